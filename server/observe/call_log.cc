// SPDX-License-Identifier: Apache-2.0
#include "server/observe/call_log.h"

namespace ulfd::server {

bool LineLimit::Take(std::chrono::steady_clock::time_point now, int64_t& left_out) {
  const int64_t second =
      std::chrono::duration_cast<std::chrono::seconds>(now.time_since_epoch()).count();
  left_out = 0;
  if (second_.exchange(second, std::memory_order_relaxed) != second) {
    taken_.store(0, std::memory_order_relaxed);
    left_out = left_out_.exchange(0, std::memory_order_relaxed);
  }
  if (taken_.fetch_add(1, std::memory_order_relaxed) < max_per_second_) return true;
  left_out_.fetch_add(1, std::memory_order_relaxed);
  return false;
}

bool CallLog::Wants(bool looked_for) {
  if (looked_for) return true;
  if (share_ <= 0) return false;
  // Every one of so many: the share is kept exactly, whatever the calls are like.
  const uint64_t n = calls_.fetch_add(1, std::memory_order_relaxed);
  return static_cast<uint64_t>(static_cast<double>(n + 1) * share_) !=
         static_cast<uint64_t>(static_cast<double>(n) * share_);
}

void CallLog::Write(Logger::Fields fields) {
  int64_t left_out = 0;
  const bool take = limit_.Take(std::chrono::steady_clock::now(), left_out);
  if (left_out > 0) logger_.Info("calls left out of the log", {{"calls", left_out}});
  if (take) logger_.Info("call", fields);
}

}  // namespace ulfd::server

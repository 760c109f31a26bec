// CallLog: lines in the log about single calls, of which there may be thousands in a second.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_OBSERVE_CALL_LOG_H_
#define ULFD_SERVER_OBSERVE_CALL_LOG_H_

#include <atomic>
#include <chrono>
#include <cstdint>

#include "server/observe/logging.h"

namespace ulfd::server {

// At most so many lines in a second.  Thread-safe, without a lock.
class LineLimit {
 public:
  explicit LineLimit(int max_per_second) : max_per_second_(max_per_second) {}
  // Whether one more may be written now.  `left_out`: of the seconds before, those that might not,
  // told once.
  bool Take(std::chrono::steady_clock::time_point now, int64_t& left_out);

 private:
  const int max_per_second_;
  std::atomic<int64_t> second_{0}, taken_{0}, left_out_{0};
};

struct CallLogOptions {
  double share = 0;          // Of all calls.
  int max_per_second = 100;  // Lines.
};

// Thread-safe.
class CallLog {
 public:
  // `logger` is borrowed.
  CallLog(Logger& logger, const CallLogOptions& options)
      : logger_(logger), share_(options.share), limit_(options.max_per_second) {}

  // Whether a call that has ended gets a line: one that its caller may look for does, of others a
  // share.
  bool Wants(bool looked_for);
  // Writes it, and before it how many were left out lately.
  void Write(Logger::Fields fields);

 private:
  Logger& logger_;
  const double share_;
  LineLimit limit_;
  std::atomic<uint64_t> calls_{0};
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_OBSERVE_CALL_LOG_H_

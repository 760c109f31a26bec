// Where log lines go: standard error, whose reader must not hold up who writes them.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_OBSERVE_LOG_SINK_H_
#define ULFD_SERVER_OBSERVE_LOG_SINK_H_

#include <spdlog/sinks/base_sink.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>

#include "absl/strings/string_view.h"

namespace ulfd::server {

// Drops lines where nobody reads, or too slowly: a full pipe is waited for once in a second, for a
// tenth of it.  Thread-safe.
class LogSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  // `fd` is borrowed.
  explicit LogSink(int fd) : fd_(fd) {}
  // Lines that nobody will read, so far; also those that only began.
  int64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

 private:
  void sink_it_(const spdlog::details::log_msg& message) override;
  void flush_() override {}
  bool TakesMore();
  bool Write(absl::string_view text);

  const int fd_;
  bool inside_ = false;  // A line that had to be dropped had begun.
  std::chrono::steady_clock::time_point may_wait_at_;
  std::atomic<int64_t> dropped_{0};
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_OBSERVE_LOG_SINK_H_

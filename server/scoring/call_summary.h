// What is said of a call once it has ended: in the log, as spans, among the slowest.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SCORING_CALL_SUMMARY_H_
#define ULFD_SERVER_SCORING_CALL_SUMMARY_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "base/mutex.h"
#include "server/observe/logging.h"
#include "server/observe/tracer.h"
#include "server/scheduler/clock.h"

namespace ulfd::server {

// Where the time of a call went: wall time, that of its batch where it was merged with others.
// Unit: nanoseconds.
struct CallTimes {
  int64_t fetch_ns = 0;  // Of rows that are not in memory.
  int64_t queue_ns = 0, decode_ns = 0, embed_ns = 0, user_ns = 0, dense_ns = 0, encode_ns = 0;
  int64_t total_ns = 0;
};

struct CallSummary {
  std::string request_id, peer, model;
  int64_t version = 0;
  int64_t ads = 0;
  int64_t values = 0;  // Elements of all inputs, ids among them.
  CallTimes times;
  std::chrono::system_clock::time_point ended_at;
  absl::Status status;
  TraceContext trace;
};

// Of a call that failed by a fault of ours.
void LogFailure(const CallSummary& call, Logger& logger);
class CallLog;
void LogCall(const CallSummary& call, CallLog& log);

// The call, and its stages one behind the other: how long each took is measured, that they touched
// is not.
std::vector<Span> SpansOf(const CallSummary& call);

// The slowest calls of this minute and of the one before.  Thread-safe.
class SlowCalls {
 public:
  static constexpr size_t kPerMinute = 10;

  // Whether such a call is one of them so far; without a lock.
  bool Among(int64_t took_ns, TimePoint now) const {
    return MinuteOf(now) != minute_.load(std::memory_order_relaxed) ||
           took_ns > least_ns_.load(std::memory_order_relaxed);
  }
  void Add(CallSummary call, TimePoint now);
  // The slowest first.
  std::vector<CallSummary> Slowest(TimePoint now) const;

 private:
  static int64_t MinuteOf(TimePoint time) {
    return std::chrono::duration_cast<std::chrono::minutes>(time.time_since_epoch()).count();
  }
  std::atomic<int64_t> minute_{-1}, least_ns_{0};  // Of the last one that has a place.
  mutable Mutex mu_;
  std::vector<CallSummary> now_ ABSL_GUARDED_BY(mu_), before_ ABSL_GUARDED_BY(mu_);
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SCORING_CALL_SUMMARY_H_

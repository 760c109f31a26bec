// What came of the calls of a load: counted while it runs, read while it runs and afterwards.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_LOAD_RESULTS_H_
#define ULFD_TOOLS_LOAD_RESULTS_H_

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "base/mutex.h"
#include "tools/load/histogram.h"

namespace ulfd::tools {

// One call that has ended.  Times are nanoseconds since the start of the load.
struct CallOutcome {
  int64_t intended_ns = 0;  // When it should have been sent.
  int64_t sent_ns = 0;      // When it was.
  int64_t done_ns = 0;
  int64_t ads = 0;
  int target = 0;
  int code = 0;               // Of grpc; 0: OK.
  absl::string_view message;  // Of a call that failed.
};

// Why a call was never sent.
enum class Unsent : uint8_t {
  kInFlight,  // As many calls as allowed were waiting for their replies.
  kNoTarget,  // Every target said that it does not serve.
};

// A slice of time, by the time for which calls were meant.
struct LoadInterval {
  int64_t sent = 0, ok = 0, failed = 0, unsent = 0;
  LatencyHistogram latency{6};  // From the intended time, of the calls that succeeded.
};

struct TargetFigures {
  int64_t sent = 0, ok = 0, failed = 0;
};

// Everything but intervals leaves out the warm-up.
struct LoadFigures {
  int64_t sent = 0, ok = 0, failed = 0, ads_ok = 0;
  std::array<int64_t, 2> unsent{};              // By Unsent.
  int64_t warmup_calls = 0, warmup_failed = 0;  // Not in the above.
  std::map<int, int64_t> codes;                 // Calls by code.
  // Calls that failed by "CODE: text", numbers written as N; at most kMaxReasons and "other".
  std::map<std::string, int64_t> reasons;
  LatencyHistogram corrected;              // Of calls that succeeded, from the intended time.
  LatencyHistogram uncorrected;            // The same calls, from the time when they were sent.
  LatencyHistogram failures;               // Of calls that failed, from the intended time.
  LatencyHistogram send_lag;               // How late calls were sent: the generator's own fault.
  std::map<int, LatencyHistogram> by_ads;  // `corrected` by std::bit_width(ads).
  std::vector<TargetFigures> targets;
};

// The last moments, for the live line.
struct LivePoint {
  int64_t ok = 0, failed = 0, unsent = 0;  // Since the last look.
  LatencyHistogram latency{6};
};

inline constexpr size_t kMaxReasons = 50;

// "RESOURCE_EXHAUSTED: queue_full: N requests wait, limit N": texts that differ only in numbers are
// the same reason.
std::string ReasonOf(int code, absl::string_view message);
// "OK", "DEADLINE_EXCEEDED", ...
std::string CodeName(int code);

// Thread-safe.
class LoadResults {
 public:
  // Calls meant for a time before `warmup_ns` are not counted.
  LoadResults(int64_t warmup_ns, int64_t interval_ns, int targets);

  void Count(const CallOutcome& call);
  void CountUnsent(int64_t intended_ns, Unsent why);

  int64_t interval_ns() const { return interval_ns_; }
  // What happened since the last call of this.
  LivePoint TakeLive();
  LoadFigures figures() const;
  std::vector<LoadInterval> intervals() const;

 private:
  LoadInterval& IntervalAt(int64_t intended_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const int64_t warmup_ns_, interval_ns_;
  mutable Mutex mu_;
  LoadFigures figures_ ABSL_GUARDED_BY(mu_);
  std::vector<LoadInterval> intervals_ ABSL_GUARDED_BY(mu_);
  LivePoint live_ ABSL_GUARDED_BY(mu_);
};

}  // namespace ulfd::tools

#endif  // ULFD_TOOLS_LOAD_RESULTS_H_

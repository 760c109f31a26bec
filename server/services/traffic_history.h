// The last minutes of traffic, for the charts of the console.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SERVICES_TRAFFIC_HISTORY_H_
#define ULFD_SERVER_SERVICES_TRAFFIC_HISTORY_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"
#include "server/observe/metrics.h"
#include "server/scheduler/worker_pool.h"
#include "server/system/background_queue.h"

namespace ulfd::server {

// Looks at the counters every two seconds, on a thread of its own, and keeps five minutes, or fewer
// where many versions serve.  Thread-safe; borrows everything.
class TrafficHistory {
 public:
  TrafficHistory(const Metrics& metrics, const WorkerPool& scheduler);

  // {"bounds": [seconds of each bucket, null for what is above],
  //  "looks": [{"age_ms", "waiting", "in_flight", "busy", "cpu": seconds so far, "versions":
  //             [{"model", "version", "ok", "failed", "counts": per bound, cumulative}]}]}
  // The oldest look first; model "" is for calls that never had one.
  std::string ToJson() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Look {
    Clock::time_point at;
    int64_t waiting = 0, in_flight = 0, busy = 0;
    double cpu = 0;  // Of the process.  Unit: seconds.
    std::vector<VersionTraffic> versions;
  };
  Look Take() const;
  void Keep(Look look);
  void Loop();

  const Metrics& metrics_;
  const WorkerPool& scheduler_;
  mutable Mutex mu_;
  std::deque<Look> looks_ ABSL_GUARDED_BY(mu_);
  size_t kept_versions_ ABSL_GUARDED_BY(mu_) = 0;  // Of all looks.
  BackgroundQueue queue_{"ulfd-history"};          // Last: it uses everything above.
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SERVICES_TRAFFIC_HISTORY_H_

// StatusReport: what an operator sees of the running server; AdminService.GetStatus and /statusz
// show the same.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SERVICES_STATUS_REPORT_H_
#define ULFD_SERVER_SERVICES_STATUS_REPORT_H_

#include <chrono>
#include <string>

#include "proto/admin.pb.h"
#include "server/models/model_lookup.h"
#include "server/scheduler/worker_pool.h"
#include "server/scoring/call_summary.h"
#include "server/services/model_events.h"
#include "server/services/readiness.h"

namespace ulfd::server {

// What was built.
struct BuildFacts {
  std::string version;  // "0.1.0"
  std::string build;    // "gcc 12.2.0, Release"
};
BuildFacts ThisBuild();

// Thread-safe; borrows everything.
class StatusReport {
 public:
  StatusReport(const ModelLookup& models, const WorkerPool& scheduler, const Readiness& readiness,
               const SlowCalls& slow_calls, const ModelEvents& events, int64_t max_queued_requests,
               int64_t max_queued_rows)
      : models_(models),
        scheduler_(scheduler),
        readiness_(readiness),
        slow_calls_(slow_calls),
        events_(events),
        max_queued_requests_(max_queued_requests),
        max_queued_rows_(max_queued_rows) {}

  void Fill(ulfd::admin::v1::GetStatusResponse& out) const;
  // The same as JSON.
  std::string Json() const;

 private:
  const ModelLookup& models_;
  const WorkerPool& scheduler_;
  const Readiness& readiness_;
  const SlowCalls& slow_calls_;
  const ModelEvents& events_;
  const int64_t max_queued_requests_, max_queued_rows_;
  const std::chrono::system_clock::time_point started_ = std::chrono::system_clock::now();
  const std::chrono::steady_clock::time_point started_steady_ = std::chrono::steady_clock::now();
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SERVICES_STATUS_REPORT_H_

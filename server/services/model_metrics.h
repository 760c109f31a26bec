// What the manager, the workers and the recorder say on /metrics.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SERVICES_MODEL_METRICS_H_
#define ULFD_SERVER_SERVICES_MODEL_METRICS_H_

#include <map>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "server/models/model_lookup.h"
#include "server/observe/metric_page.h"
#include "server/recorder/recorder.h"
#include "server/scheduler/worker_pool.h"

namespace ulfd::server {

// Numbers of one series: as its source says them, and what sources before that one had counted.
struct GrowingSeries {
  std::vector<double> last, before;
};

// Models count from 0 with each content of a version; here the counts go on for as long as the
// version serves.  Thread-safe.
class ModelMetrics {
 public:
  explicit ModelMetrics(const ModelLookup& models) : models_(models) {}
  void Collect(MetricPage& page);

 private:
  const ModelLookup& models_;
  Mutex mu_;
  std::map<std::string, GrowingSeries> series_ ABSL_GUARDED_BY(mu_);  // Of the last page.
};

void CollectScheduler(const SchedulerStats& stats, MetricPage& page);
void CollectRecorder(const RecorderStats& stats, MetricPage& page);

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SERVICES_MODEL_METRICS_H_

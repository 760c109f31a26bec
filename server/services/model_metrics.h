// What the manager, the workers and the recorder say on /metrics.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SERVICES_MODEL_METRICS_H_
#define ULFD_SERVER_SERVICES_MODEL_METRICS_H_

#include "server/models/model_lookup.h"
#include "server/observe/metric_page.h"
#include "server/recorder/recorder.h"
#include "server/scheduler/worker_pool.h"

namespace ulfd::server {

// Counters of a model begin at 0 with each content of a version, as those of a process do.
void CollectModels(const ModelLookup& models, MetricPage& page);
void CollectScheduler(const SchedulerStats& stats, MetricPage& page);
void CollectRecorder(const RecorderStats& stats, MetricPage& page);

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SERVICES_MODEL_METRICS_H_

// The recorder on /metrics.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_RECORDER_RECORDER_METRICS_H_
#define ULFD_SERVER_RECORDER_RECORDER_METRICS_H_

#include "server/observe/metric_page.h"
#include "server/recorder/recorder.h"

namespace ulfd::server {

// The families "ulfd_recorder_*".
void CollectRecorder(const RecorderStats& stats, MetricPage& page);

}  // namespace ulfd::server

#endif  // ULFD_SERVER_RECORDER_RECORDER_METRICS_H_

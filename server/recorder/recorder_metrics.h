// The recorder on /metrics.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_RECORDER_RECORDER_METRICS_H_
#define ULFD_SERVER_RECORDER_RECORDER_METRICS_H_

#include <prometheus/metric_family.h>

#include <vector>

#include "server/recorder/recorder.h"

namespace ulfd::server {

// Appends the families "ulfd_recorder_*".
void AddRecorder(const RecorderStats& stats, std::vector<prometheus::MetricFamily>& families);

}  // namespace ulfd::server

#endif  // ULFD_SERVER_RECORDER_RECORDER_METRICS_H_

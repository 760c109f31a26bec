// process_*: what Prometheus' client libraries usually say about a process, read from /proc.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_OBSERVE_PROCESS_METRICS_H_
#define ULFD_SERVER_OBSERVE_PROCESS_METRICS_H_

#include <prometheus/metric_family.h>

#include <vector>

namespace ulfd::server {

// CPU seconds, resident and virtual bytes, start time, threads, open and allowed file descriptors.
// A family that cannot be read is left out.
std::vector<prometheus::MetricFamily> CollectProcessMetrics();

}  // namespace ulfd::server

#endif  // ULFD_SERVER_OBSERVE_PROCESS_METRICS_H_

// process_*: what Prometheus' client libraries usually say about a process, read from /proc.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_OBSERVE_PROCESS_METRICS_H_
#define ULFD_SERVER_OBSERVE_PROCESS_METRICS_H_

#include "server/observe/metric_page.h"

namespace ulfd::server {

// CPU seconds, resident and virtual bytes, start time, threads, open and allowed file descriptors.
// A family that cannot be read is left out.
void CollectProcessMetrics(MetricPage& page);

}  // namespace ulfd::server

#endif  // ULFD_SERVER_OBSERVE_PROCESS_METRICS_H_

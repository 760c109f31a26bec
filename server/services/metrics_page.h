// /metrics: what was counted, what the manager and the scheduler say now, and the process, in
// Prometheus' text format.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SERVICES_METRICS_PAGE_H_
#define ULFD_SERVER_SERVICES_METRICS_PAGE_H_

#include <prometheus/metric_family.h>

#include <string>
#include <vector>

#include "server/models/model_lookup.h"
#include "server/observe/metrics.h"
#include "server/scheduler/scheduler.h"

namespace ulfd::server {

// Families without samples are left out.  `more`: families of other parts.
std::string MetricsPage(const Metrics& metrics, const ModelLookup& models,
                        const Scheduler& scheduler, std::vector<prometheus::MetricFamily> more);

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SERVICES_METRICS_PAGE_H_

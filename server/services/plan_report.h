// The plans of what serves, for the pictures of the console.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SERVICES_PLAN_REPORT_H_
#define ULFD_SERVER_SERVICES_PLAN_REPORT_H_

#include <string>

#include "server/models/model_lookup.h"
#include "server/observe/metrics.h"

namespace ulfd::server {

// A JSON list with an object for each version that serves: model, version, generation, ads (for
// which costs are given), plan (engine::PlanJson: the one that calls ran lately), and timed {calls,
// ads, us per step}: means over calls of which one in a second is timed; null before the first, and
// where plans for shapes of requests run, which are not told here.  Beyond the first 20000 steps of
// all, `plan` is null.
std::string PlansJson(const ModelLookup& models, Metrics& metrics);

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SERVICES_PLAN_REPORT_H_

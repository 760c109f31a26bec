// The console: the page of /statusz for people, and what it shows of plans.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SERVICES_CONSOLE_PAGE_H_
#define ULFD_SERVER_SERVICES_CONSOLE_PAGE_H_

#include <string>

#include "server/models/model_lookup.h"
#include "server/observe/http_server.h"
#include "server/observe/metrics.h"

namespace ulfd::server {

// One page without anything of a model or caller in it: its script fetches /statusz, /metrics and
// /plans.json.  The headers forbid every other script, style and address.
HttpReply ConsolePage();

// A JSON list with an object for each version that serves: model, version, generation, ads (for
// which costs are given), plan (engine::PlanJson: the one that calls ran lately), and timed {calls,
// ads, us per step}: means over calls of which one in a second is timed; null before the first, and
// where plans for shapes of requests run, which are not told here.  Beyond the first 20000 steps of
// all, `plan` is null.
std::string PlansJson(const ModelLookup& models, Metrics& metrics);

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SERVICES_CONSOLE_PAGE_H_

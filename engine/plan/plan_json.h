// A plan as JSON, for `ulf explain --json` and the daemon's page.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_PLAN_PLAN_JSON_H_
#define ULFD_ENGINE_PLAN_PLAN_JSON_H_

#include <cstdint>

#include "engine/graph/rewrite.h"
#include "engine/plan/plan_info.h"
#include "nlohmann/json.hpp"

namespace ulfd::engine {

// {flops, bytes}, each {per_user, per_ad, total}, the total for `ads` ads.
nlohmann::ordered_json CostJson(const Cost& cost, int64_t ads);
// The fields of PlanInfo, steps with `part` ("user" or "ad"); names need not be UTF-8.
nlohmann::ordered_json PlanJson(const PlanInfo& plan, int64_t ads);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_PLAN_PLAN_JSON_H_

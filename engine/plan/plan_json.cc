// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/plan_json.h"

#include <string>
#include <utility>

namespace ulfd::engine {
namespace {

using Json = nlohmann::ordered_json;

Json WorkJson(const Work& work, int64_t ads) {
  return {{"per_user", work.per_user},
          {"per_ad", work.per_ad},
          {"total", work.At(static_cast<double>(ads))}};
}

absl::string_view Name(PlanValue::Kind kind) {
  static constexpr absl::string_view kNames[] = {"input", "constant", "computed"};
  return kNames[static_cast<size_t>(kind)];
}

}  // namespace

Json CostJson(const Cost& cost, int64_t ads) {
  return {{"flops", WorkJson(cost.flops, ads)}, {"bytes", WorkJson(cost.bytes, ads)}};
}

Json PlanJson(const PlanInfo& plan, int64_t ads) {
  Json values = Json::array(), steps = Json::array(), parts = Json::object();
  for (const PlanPart part : kPlanParts) {
    parts[std::string(engine::Name(part))] = CostJson(plan.CostOf(part), ads);
  }
  for (const PlanValue& value : plan.values) {
    values.push_back({{"name", value.name},
                      {"kind", std::string(Name(value.kind))},
                      {"dtype", std::string(engine::Name(value.dtype))},
                      {"shape", value.shape.ToString()},
                      {"level", std::string(engine::Name(value.level))}});
  }
  for (const PlanStep& step : plan.steps) {
    steps.push_back({{"name", step.name},
                     {"type", step.type},
                     {"layers", step.layers},
                     {"part", std::string(engine::Name(step.part))},
                     {"view", step.view},
                     {"level", std::string(engine::Name(step.level))},
                     {"inputs", step.inputs},
                     {"outputs", step.outputs},
                     {"cost", CostJson(step.cost, ads)},
                     {"kernel_bytes", step.kernel_bytes},
                     {"backend", step.backend},
                     {"precision", step.precision}});
  }
  return {{"separable", plan.separable},      {"shapes_known", plan.shapes_known},
          {"tile_rows", plan.tile_rows},      {"values", std::move(values)},
          {"steps", std::move(steps)},        {"crossing", plan.crossing},
          {"cost", CostJson(plan.cost, ads)}, {"parts", std::move(parts)},
          {"kernel_bytes", plan.kernel_bytes}};
}

}  // namespace ulfd::engine

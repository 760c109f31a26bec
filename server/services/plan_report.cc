// Plans and what their steps take.
// SPDX-License-Identifier: Apache-2.0
#include "server/services/plan_report.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "engine/runtime/plan_json.h"

namespace ulfd::server {
namespace {

using Json = nlohmann::ordered_json;

Json OfVersion(const ServedModel& served, const StepProfile::Means& means) {
  constexpr int64_t kUsualAds = 200;
  const engine::Model& model = *served.model;
  const std::vector<engine::ShapePlanInfo> others = model.shape_plans();
  const bool one_plan = std::none_of(others.begin(), others.end(), [](const auto& plan) {
    return plan.state == engine::ShapePlanInfo::State::kServing;
  });
  std::optional<engine::PlanInfo> plan;
  if (means.calls == 0 || means.optimised) plan = model.OptimisedPlan();
  if (!plan.has_value()) plan = model.WrittenPlan();
  const bool timed = means.calls > 0 && one_plan && means.us.size() == plan->steps.size();
  const int64_t ads = timed ? std::max<int64_t>(1, std::llround(means.ads)) : kUsualAds;
  Json times = nullptr;
  if (timed) times = {{"calls", means.calls}, {"ads", means.ads}, {"us", means.us}};
  return {
      {"model", served.name}, {"version", served.version}, {"generation", served.generation},
      {"ads", ads},           {"timed", std::move(times)}, {"plan", engine::PlanJson(*plan, ads)}};
}

}  // namespace

std::string PlansJson(const ModelLookup& models, Metrics& metrics) {
  Json all = Json::array();
  for (const ModelStatus& model : models.List()) {
    for (const VersionStatus& version : model.versions) {
      if (version.serving == nullptr) continue;
      all.push_back(OfVersion(*version.serving, metrics.For(*version.serving)->steps->means()));
    }
  }
  return all.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace ulfd::server

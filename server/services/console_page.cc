// SPDX-License-Identifier: Apache-2.0
#include "server/services/console_page.h"

#include <openssl/sha.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "engine/plan/plan_json.h"
#include "server/services/console/console_files.h"

namespace ulfd::server {
namespace {

// What a Content-Security-Policy calls an inline script or style.
std::string HashSource(absl::string_view text) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest);
  return absl::StrCat(
      "'sha256-",
      absl::Base64Escape(absl::string_view(reinterpret_cast<const char*>(digest), sizeof(digest))),
      "'");
}

using Json = nlohmann::ordered_json;

// Takes the plan's steps from `steps_left`.
Json OfVersion(const ServedModel& served, const StepProfile::Means& means, size_t& steps_left) {
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
  Json of_plan = nullptr;
  if (plan->steps.size() <= steps_left) {
    steps_left -= plan->steps.size();
    of_plan = engine::PlanJson(*plan, ads);
  }
  return {{"model", served.name}, {"version", served.version}, {"generation", served.generation},
          {"ads", ads},           {"timed", std::move(times)}, {"plan", std::move(of_plan)}};
}

}  // namespace

HttpReply ConsolePage() {
  return {.content_type = "text/html; charset=utf-8",
          .body = absl::StrReplaceAll(
              kConsoleHtml, {{"/*style*/", kConsoleStyle}, {"/*script*/", kConsoleScript}}),
          .headers = {
              {"Content-Security-Policy",
               absl::StrCat("default-src 'none'; connect-src 'self'; img-src data:; "
                            "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
                            "script-src ",
                            HashSource(kConsoleScript), "; style-src ", HashSource(kConsoleStyle))},
              {"X-Content-Type-Options", "nosniff"},
              {"Vary", "Accept"}}};
}

std::string PlansJson(const ModelLookup& models, Metrics& metrics) {
  size_t steps_left = 20000;
  std::string all = "[";
  for (const ModelStatus& model : models.List()) {
    for (const VersionStatus& version : model.versions) {
      if (version.serving == nullptr) continue;
      const Json one =
          OfVersion(*version.serving, metrics.For(*version.serving)->steps->means(), steps_left);
      absl::StrAppend(&all, all.size() > 1 ? "," : "",
                      one.dump(-1, ' ', false, Json::error_handler_t::replace));
    }
  }
  return all + "]";
}

}  // namespace ulfd::server

// SPDX-License-Identifier: Apache-2.0
#include "server/config/model_settings.h"

#include <set>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "server/models/served_models.h"

namespace ulfd::server {
namespace {

namespace config = ulfd::config::v1;

void CheckModel(const config::ModelConfig& model, const SettingsPlace& place) {
  if (!model.has_canary()) return;
  const SettingsPlace canary = place.Of("canary", model.canary());
  const std::string& metadata = model.canary().sticky_metadata();
  if (!metadata.empty() && !model.canary().sticky_feature().empty()) {
    canary.Complain("sticky_feature", "sticky_metadata is set, too, want at most one");
  }
  if (metadata != absl::AsciiStrToLower(metadata)) {
    canary.Complain("sticky_metadata", "want lower case, as metadata keys are");
  }
  if (model.canary().label() == kStableLabel) {
    canary.Complain("label", "\"stable\" is the version that the others get, want another label");
  }
}

VersionPolicy PolicyOf(const config::VersionPolicy& policy) {
  VersionPolicy result;
  if (policy.has_latest()) result.latest = policy.latest().count();
  const auto& versions = policy.specific().versions();
  result.specific.assign(versions.begin(), versions.end());
  return result;
}

ModelConfig ModelOf(const config::ModelConfig& model, const VersionPolicy& default_policy) {
  ModelConfig result;
  result.name = model.name();
  result.base_path = model.base_path();
  result.policy = model.has_version_policy() ? PolicyOf(model.version_policy()) : default_policy;
  result.labels.insert(model.labels().begin(), model.labels().end());
  result.required = model.required();
  result.limits.weight = model.weight();
  if (model.max_queued_rows() > 0) result.limits.max_queued_rows = model.max_queued_rows();
  if (model.has_canary()) {
    const config::Canary& canary = model.canary();
    result.canary = CanaryConfig{.label = canary.label(),
                                 .share = canary.share(),
                                 .metadata = canary.sticky_metadata(),
                                 .feature = canary.sticky_feature()};
  }
  if (model.has_shadow()) {
    const config::Shadow& shadow = model.shadow();
    result.shadow = ShadowConfig{
        .label = shadow.label(), .share = shadow.share(), .max_queued = shadow.max_queued()};
  }
  result.allowed_clients.assign(model.allowed_clients().begin(), model.allowed_clients().end());
  if (model.has_record_share()) result.record_share = model.record_share();
  return result;
}

}  // namespace

void CheckModelSettings(const config::ServerConfig& settings, const SettingsPlace& place) {
  std::set<std::string> names;
  for (int i = 0; i < settings.models_size(); ++i) {
    const config::ModelConfig& model = settings.models(i);
    if (!names.insert(model.name()).second) {
      place.Complain("models", absl::StrCat("model ", Quote(model.name()), " is given twice"), i);
    }
    CheckModel(model, place.Of("models", model, i));
  }
}

VersionPolicy DefaultPolicyOf(const config::ServerConfig& settings) {
  return PolicyOf(settings.default_version_policy());
}

std::vector<ModelConfig> ModelsOf(const config::ServerConfig& settings) {
  std::vector<ModelConfig> models;
  for (const config::ModelConfig& model : settings.models()) {
    models.push_back(ModelOf(model, DefaultPolicyOf(settings)));
  }
  return models;
}

}  // namespace ulfd::server

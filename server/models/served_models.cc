// SPDX-License-Identifier: Apache-2.0
#include "server/models/served_models.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "server/system/share.h"

namespace ulfd::server {
namespace {

// The first of `all`.
std::string Quoted(const std::vector<absl::string_view>& names, size_t all) {
  std::string text = absl::StrJoin(names, ", ", [](std::string* out, absl::string_view name) {
    absl::StrAppend(out, "\"", name, "\"");
  });
  if (all > names.size()) absl::StrAppend(&text, " and ", all - names.size(), " more");
  return text;
}

std::string Published(const ServedVersions& model) {
  return absl::StrJoin(model.versions, ", ", [](std::string* out, const ModelHandle& handle) {
    absl::StrAppend(out, handle->version);
  });
}

// Names no model that the client may not use.
absl::Status UnknownChoice(const ServedModels& served, const ModelChoice& choice) {
  std::vector<absl::string_view> names;
  size_t all = choice.client.has_value() ? 0 : served.models.size();
  for (const auto& [known, versions] : served.models) {
    if (choice.client.has_value()) {
      if (!served.access.MayUse(*choice.client, known)) continue;
      ++all;
    } else if (names.size() == kNamesInMessage) {
      break;  // A stranger's call does not pay for thousands.
    }
    if (names.size() < kNamesInMessage) names.push_back(known);
  }
  return UnknownModel(choice.name, names, all);
}

absl::Status UnknownLabel(const ServedVersions& model, const ModelChoice& choice) {
  if (model.labels.empty()) {
    return NotFound("model \"", choice.name, "\" has no label \"", choice.label,
                    "\"; it has no labels");
  }
  std::vector<absl::string_view> labels;
  for (const auto& [label, version] : model.labels) {
    if (labels.size() < kNamesInMessage) labels.push_back(label);
  }
  return NotFound("model \"", choice.name, "\" has no label \"", choice.label,
                  "\"; labels: ", Quoted(labels, model.labels.size()));
}

absl::Status LabelNotPublished(const ServedVersions& model, const std::string& name,
                               const std::string& label, int64_t version) {
  return Unavailable("model \"", name, "\": label \"", label, "\" names version ", version,
                     ", which is not published; published: ", Published(model));
}

}  // namespace

absl::Status UnknownModel(absl::string_view name, const std::vector<absl::string_view>& first,
                          size_t all) {
  constexpr size_t kNameBytes = 255;  // No directory has a longer one.
  return NotFound("model \"", Printable(name, kNameBytes), "\" is unknown; ",
                  all == 0 ? "there are no models" : "models: " + Quoted(first, all));
}

const ModelHandle* ServedVersions::Find(int64_t version) const {
  const auto at = std::lower_bound(
      versions.begin(), versions.end(), version,
      [](const ModelHandle& handle, int64_t wanted) { return handle->version < wanted; });
  return at != versions.end() && (*at)->version == version ? &*at : nullptr;
}

const ModelHandle* ServedVersions::Default() const {
  if (const auto stable = labels.find(kStableLabel); stable != labels.end()) {
    return Find(stable->second);
  }
  return versions.empty() ? nullptr : &versions.back();
}

const ModelHandle* ServedVersions::Canary(const UserHash& user_hash) const {
  if (!canary.has_value() || user_hash == nullptr) return nullptr;
  const auto label = labels.find(canary->label);
  if (label == labels.end()) return nullptr;
  // The same user is below the share, or not, whatever else changes: a share that grows only adds
  // users.
  return IsAmongShare(user_hash(*canary), canary->share) ? Find(label->second) : nullptr;
}

ModelHandle ServedModels::WantsPlans() const {
  for (const auto& [name, model] : models) {
    for (const ModelHandle& handle : model.versions) {
      if (handle->model->WantsPlans()) return handle;
    }
  }
  return nullptr;
}

std::optional<ShadowTarget> ServedModels::FindShadow(const std::string& name) const {
  const auto found = models.find(name);
  if (found == models.end() || !found->second.shadow.has_value()) return std::nullopt;
  const ServedVersions& model = found->second;
  const auto label = model.labels.find(model.shadow->label);
  if (label == model.labels.end()) return std::nullopt;
  const ModelHandle* handle = model.Find(label->second);
  if (handle == nullptr) return std::nullopt;
  return ShadowTarget{*handle, model.shadow->share, model.shadow->max_queued};
}

absl::Status ServedModels::CheckAccess(const ModelChoice& choice) const {
  return choice.client.has_value() ? access.Check(*choice.client, choice.name) : absl::OkStatus();
}

absl::StatusOr<ModelHandle> ServedModels::Find(const ModelChoice& choice) const {
  RETURN_IF_ERROR(CheckAccess(choice));
  const auto found = models.find(choice.name);
  if (found == models.end()) return UnknownChoice(*this, choice);
  const ServedVersions& model = found->second;
  if (choice.version.has_value() && !choice.label.empty()) {
    return InvalidArgument("model \"", choice.name, "\": version ", *choice.version,
                           " and label \"", choice.label, "\" are both set, want at most one");
  }
  if (!choice.label.empty() && !model.labels.contains(choice.label)) {
    return UnknownLabel(model, choice);
  }
  if (model.versions.empty()) {
    return Unavailable("model \"", choice.name,
                       "\" is known, but no version of it is published yet",
                       model.waiting_for.empty() ? "" : ": ", model.waiting_for);
  }
  if (!choice.label.empty()) {
    const int64_t version = model.labels.at(choice.label);
    if (const ModelHandle* handle = model.Find(version)) return *handle;
    return LabelNotPublished(model, choice.name, choice.label, version);
  }
  if (choice.version.has_value()) {
    if (const ModelHandle* handle = model.Find(*choice.version)) return *handle;
    return NotFound("model \"", choice.name, "\" has no version ", *choice.version,
                    "; published: ", Published(model));
  }
  if (const ModelHandle* handle = model.Canary(choice.user_hash)) return *handle;
  if (const ModelHandle* handle = model.Default()) return *handle;
  return LabelNotPublished(model, choice.name, kStableLabel, model.labels.at(kStableLabel));
}

}  // namespace ulfd::server

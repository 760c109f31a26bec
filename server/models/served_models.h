// What is published at one moment: an immutable table from model, version and label to handles.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_MODELS_SERVED_MODELS_H_
#define ULFD_SERVER_MODELS_SERVED_MODELS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/models/model_types.h"
#include "server/security/access_rules.h"

namespace ulfd::server {

// The label that a request without version and label gets, where a model has it.
inline constexpr char kStableLabel[] = "stable";

// One known model.
struct ServedVersions {
  std::vector<ModelHandle> versions;  // Published ones, ascending.
  // As configured; may name versions that are not published.
  std::map<std::string, int64_t> labels;
  std::string waiting_for;  // Nothing published: why, for the message.
  std::optional<CanaryConfig> canary;
  std::optional<ShadowConfig> shadow;

  // The published version of that number, or null.
  const ModelHandle* Find(int64_t version) const;
  // What a request without version and label gets: "stable" if the model has that label, else the
  // highest.  Null if that is not published.
  const ModelHandle* Default() const;
  // The canary's version if the user is among its share; null otherwise.
  const ModelHandle* Canary(const UserHash& user_hash) const;
};

struct ServedModels {
  // No hash table: absl's are in disorder once an insertion finds no memory.
  std::map<std::string, ServedVersions> models;
  AccessRules access;

  // See ModelManager::CheckAccess.
  absl::Status CheckAccess(const ModelChoice& choice) const;
  // See ModelManager::Find.
  absl::StatusOr<ModelHandle> Find(const ModelChoice& choice) const;
  // A model that wants plans for shapes that requests showed; null: none does.
  ModelHandle WantsPlans() const;
  // See ModelManager::FindShadow.
  std::optional<ShadowTarget> FindShadow(const std::string& name) const;
};

// For a name that none of `all` models has; `first` of them are named, which are to be few: a
// repository may hold thousands, and callers choose the name.
absl::Status UnknownModel(absl::string_view name, const std::vector<absl::string_view>& first,
                          size_t all);
// At most so many names in a message.
inline constexpr size_t kNamesInMessage = 20;

}  // namespace ulfd::server

#endif  // ULFD_SERVER_MODELS_SERVED_MODELS_H_

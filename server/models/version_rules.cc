// SPDX-License-Identifier: Apache-2.0
#include "server/models/version_rules.h"

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"

namespace ulfd::server {

namespace {

void AddRoot(const std::string& place, std::vector<std::string>& roots) {
  absl::StatusOr<std::string> resolved = engine::ResolvePath(place);
  if (!resolved.ok() || std::find(roots.begin(), roots.end(), *resolved) != roots.end()) return;
  roots.push_back(*std::move(resolved));
}

}  // namespace

engine::DirectoryRules VersionRules::OfModel(const std::string& base_path) const {
  engine::DirectoryRules rules{.max_files = max_files_};
  if (!repository_.empty()) AddRoot(repository_, rules.roots);  // The first one is named in errors.
  AddRoot(base_path, rules.roots);
  for (const std::string& target : link_targets_) AddRoot(target, rules.roots);
  return rules;
}

engine::DirectoryRules VersionRules::Of(const std::string& directory) const {
  return OfVersion(directory, OfModel(directory.substr(0, directory.rfind('/'))));
}

engine::DirectoryRules VersionRules::OfVersion(const std::string& directory,
                                               engine::DirectoryRules of_model) {
  AddRoot(directory, of_model.roots);
  // Without any, links could lead anywhere; this leads nowhere.
  if (of_model.roots.empty()) of_model.roots.push_back(directory);
  return of_model;
}

}  // namespace ulfd::server

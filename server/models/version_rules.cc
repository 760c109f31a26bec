// SPDX-License-Identifier: Apache-2.0
#include "server/models/version_rules.h"

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"

namespace ulfd::server {

engine::DirectoryRules VersionRules::Of(const std::string& directory) const {
  std::vector<std::string> places;  // The first one is named in errors.
  if (!repository_.empty()) places.push_back(repository_);
  places.push_back(directory.substr(0, directory.rfind('/')));
  places.push_back(directory);
  places.insert(places.end(), link_targets_.begin(), link_targets_.end());
  engine::DirectoryRules rules{.max_files = max_files_};
  for (const std::string& place : places) {
    absl::StatusOr<std::string> resolved = engine::ResolvePath(place);
    if (!resolved.ok()) continue;
    if (std::find(rules.roots.begin(), rules.roots.end(), *resolved) != rules.roots.end()) continue;
    rules.roots.push_back(*std::move(resolved));
  }
  // Without any, links could lead anywhere; this leads nowhere.
  if (rules.roots.empty()) rules.roots.push_back(directory);
  return rules;
}

}  // namespace ulfd::server

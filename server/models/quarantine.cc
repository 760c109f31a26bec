// SPDX-License-Identifier: Apache-2.0
#include "server/models/quarantine.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/load_scope.h"
#include "base/status_macros.h"
#include "engine/directory/model_directory.h"
#include "engine/weights/digest.h"

namespace ulfd::server {

absl::Status RolledBack() { return FailedPrecondition("rolled back by an operator"); }

void Quarantine::Add(QuarantinedContent content) {
  const std::string hash = content.content_hash;
  const QuarantinedContent* const before = Find(hash);
  if (before != nullptr && before->by_operator && content.by_operator) {
    content.version = std::min(content.version, before->version);
  }
  contents_.insert_or_assign(hash, std::move(content));
  if (contents_.size() <= kMaxContents) return;
  contents_.erase(std::min_element(
      contents_.begin(), contents_.end(),
      [](const auto& a, const auto& b) { return a.second.since < b.second.since; }));
}

const QuarantinedContent* Quarantine::Find(const std::string& content_hash) const {
  const auto found = contents_.find(content_hash);
  return found == contents_.end() ? nullptr : &found->second;
}

void Quarantine::Release(int64_t version) {
  std::erase_if(contents_, [&](const auto& entry) { return entry.second.version == version; });
}

absl::StatusOr<std::string> HashVersionDirectory(const std::string& directory,
                                                 const engine::DirectoryRules& rules) {
  std::vector<std::string> names, outside;
  const LoadScope* const load = LoadScope::Current();
  const int64_t most = load == nullptr ? INT64_MAX : load->limits().max_memory_bytes;
  int64_t bytes = 0;
  RETURN_IF_ERROR(engine::WalkTree(directory, rules, [&](const engine::TreeEntry& entry) {
    if (entry.kind == engine::TreeEntry::Kind::kFile) {
      names.push_back(entry.name);
      bytes += std::min<int64_t>(entry.info.st_size, most - bytes);
    }
    if (entry.kind == engine::TreeEntry::Kind::kOutside) outside.push_back(entry.name);
  }));
  if (bytes == most) {
    return ResourceExhausted(directory, ": at least ", most, " bytes");
  }
  std::sort(names.begin(), names.end());
  std::sort(outside.begin(), outside.end());
  engine::ContentHasher hasher;
  // What is not read counts by its name: that it is there is why the content is refused.
  for (const std::string& name : outside) hasher.Add(name);
  for (const std::string& name : names) {
    if (name == engine::kSuccessFile) continue;
    hasher.Add(name);
    RETURN_IF_ERROR(hasher.AddFile(absl::StrCat(directory, "/", name)));
  }
  return hasher.Hex();
}

}  // namespace ulfd::server

// Hashes and the list of what was refused.
// SPDX-License-Identifier: Apache-2.0
#include "server/quarantine.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/runtime/model_directory.h"
#include "engine/status_macros.h"
#include "engine/weights/digest.h"

namespace ulfd::server {

void Quarantine::Add(QuarantinedContent content) {
  const std::string hash = content.content_hash;
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

absl::StatusOr<std::string> HashVersionDirectory(const std::string& directory) {
  namespace fs = std::filesystem;
  std::error_code error;
  std::vector<std::string> names;
  const fs::path root(directory);
  fs::recursive_directory_iterator it(root, fs::directory_options::follow_directory_symlink, error);
  for (; !error && it != fs::recursive_directory_iterator(); it.increment(error)) {
    // Links in a circle would go on for ever.
    if (it.depth() > 32) return absl::FailedPreconditionError(directory + ": nested too deeply");
    if (it->is_regular_file(error)) names.push_back(fs::relative(it->path(), root).string());
  }
  if (error) {
    return absl::UnavailableError(absl::StrCat("cannot read ", directory, ": ", error.message()));
  }
  std::sort(names.begin(), names.end());
  engine::ContentHasher hasher;
  for (const std::string& name : names) {
    if (name == engine::kSuccessFile) continue;
    hasher.Add(name);
    RETURN_IF_ERROR(hasher.AddFile(absl::StrCat(directory, "/", name)));
  }
  return hasher.Hex();
}

}  // namespace ulfd::server

// Listing the model repository.
// SPDX-License-Identifier: Apache-2.0
#include "server/models/repository.h"

#include <sys/stat.h>

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/model_version.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "engine/runtime/directory_tree.h"

namespace ulfd::server {
namespace {

// Of a repository, and of the versions of a model; each look at them asks for every one.
constexpr int64_t kMaxEntries = 100000;

struct Entry {
  std::string name;
  bool is_directory = false;
};

absl::StatusOr<std::vector<Entry>> ListDirectory(const std::string& path) {
  absl::StatusOr<std::vector<std::string>> names = engine::ListNames(path, kMaxEntries);
  const absl::Status& listed = names.status();
  if (absl::IsNotFound(listed) || absl::IsFailedPrecondition(listed)) {
    return absl::NotFoundError(absl::StrCat("directory ", path, " does not exist"));
  }
  if (absl::IsOutOfRange(listed)) return absl::FailedPreconditionError(listed.message());
  RETURN_IF_ERROR(listed);
  std::vector<Entry> entries;
  for (std::string& name : *names) {
    struct stat info;
    const bool is_directory =
        stat(absl::StrCat(path, "/", name).c_str(), &info) == 0 && S_ISDIR(info.st_mode);
    entries.push_back({std::move(name), is_directory});
  }
  return entries;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ListModelDirectories(const std::string& repository) {
  ASSIGN_OR_RETURN(const std::vector<Entry> entries, ListDirectory(repository));
  std::vector<std::string> names;
  for (const Entry& entry : entries) {
    const bool printable = Printable(entry.name, entry.name.size()) == entry.name;
    if (entry.is_directory && printable && entry.name[0] != '.' && entry.name != "lost+found") {
      names.push_back(entry.name);
    }
  }
  return names;
}

absl::StatusOr<VersionList> ListVersions(const std::string& base_path) {
  ASSIGN_OR_RETURN(const std::vector<Entry> entries, ListDirectory(base_path));
  VersionList list;
  for (const Entry& entry : entries) {
    const std::optional<int64_t> version = ParseVersion(entry.name);
    if (entry.is_directory && version.has_value()) {
      list.versions.push_back(*version);
    } else {
      list.ignored.push_back(entry.name);
    }
  }
  std::sort(list.versions.begin(), list.versions.end());
  return list;
}

}  // namespace ulfd::server

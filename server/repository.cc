// Listing the model repository.
// SPDX-License-Identifier: Apache-2.0
#include "server/repository.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/status_macros.h"
#include "engine/weights/file.h"

namespace ulfd::server {
namespace {

struct CloseDirectory {
  void operator()(DIR* dir) const { closedir(dir); }
};

// Of a repository, and of the versions of a model; each look at them asks for every one.
constexpr size_t kMaxEntries = 100000;

struct Entry {
  std::string name;
  bool is_directory = false;
};

absl::StatusOr<std::vector<Entry>> ListDirectory(const std::string& path) {
  std::unique_ptr<DIR, CloseDirectory> dir(opendir(path.c_str()));
  if (dir == nullptr) {
    if (errno == ENOENT || errno == ENOTDIR) {
      return absl::NotFoundError(absl::StrCat("directory ", path, " does not exist"));
    }
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  }
  std::vector<Entry> entries;
  while (true) {
    errno = 0;
    const dirent* found = readdir(dir.get());
    if (found == nullptr) break;
    Entry entry{found->d_name};
    if (entry.name == "." || entry.name == "..") continue;
    struct stat info;
    entry.is_directory =
        stat(absl::StrCat(path, "/", entry.name).c_str(), &info) == 0 && S_ISDIR(info.st_mode);
    entries.push_back(std::move(entry));
    if (entries.size() > kMaxEntries) {
      return absl::FailedPreconditionError(
          absl::StrCat(path, " holds more than ", kMaxEntries, " names"));
    }
  }
  if (errno != 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot list ", path));
  return entries;
}

}  // namespace

std::optional<int64_t> ParseVersion(absl::string_view name) {
  // SimpleAtoi alone would also take "+1", " 1" and "01".
  if (name.empty() || name[0] == '0') return std::nullopt;
  for (const char c : name) {
    if (!absl::ascii_isdigit(c)) return std::nullopt;
  }
  int64_t version;
  if (!absl::SimpleAtoi(name, &version)) return std::nullopt;  // Beyond int64.
  return version;
}

absl::StatusOr<std::vector<std::string>> ListModelDirectories(const std::string& repository) {
  ASSIGN_OR_RETURN(const std::vector<Entry> entries, ListDirectory(repository));
  std::vector<std::string> names;
  for (const Entry& entry : entries) {
    const bool printable = engine::Printable(entry.name, entry.name.size()) == entry.name;
    if (entry.is_directory && printable && entry.name[0] != '.' && entry.name != "lost+found") {
      names.push_back(entry.name);
    }
  }
  std::sort(names.begin(), names.end());
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
  std::sort(list.ignored.begin(), list.ignored.end());
  return list;
}

}  // namespace ulfd::server

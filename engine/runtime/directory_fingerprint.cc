// FingerprintDirectory: what stat tells of a version directory.
// SPDX-License-Identifier: Apache-2.0
#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/runtime/model_directory.h"
#include "engine/status_macros.h"

namespace ulfd::engine {
namespace {

struct CloseDirectory {
  void operator()(DIR* dir) const { closedir(dir); }
};

int64_t Nanoseconds(const timespec& time) { return time.tv_sec * 1'000'000'000LL + time.tv_nsec; }

class Fingerprinter {
 public:
  // `prefix` is the path within the version directory, "" or ending in a slash.
  absl::Status Add(const std::string& path, const std::string& prefix) {
    std::unique_ptr<DIR, CloseDirectory> dir(opendir(path.c_str()));
    if (dir == nullptr) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
    while (true) {
      errno = 0;
      const dirent* entry = readdir(dir.get());
      if (entry == nullptr) {
        if (errno != 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot list ", path));
        return absl::OkStatus();
      }
      const std::string name = entry->d_name;
      if (name == "." || name == "..") continue;
      RETURN_IF_ERROR(AddEntry(absl::StrCat(path, "/", name), absl::StrCat(prefix, name)));
    }
  }

  // False if this directory was seen before: a symbolic link leads in a circle.
  bool EnterDirectory(const struct stat& info) {
    return directories_.insert({info.st_dev, info.st_ino}).second;
  }

  std::string Result() {
    std::sort(lines_.begin(), lines_.end());
    std::string all;
    for (const std::string& line : lines_) absl::StrAppend(&all, line, "\n");
    return all;
  }
  int64_t newest_change_ns() const { return newest_change_ns_; }

 private:
  absl::Status AddEntry(const std::string& path, const std::string& name) {
    struct stat info;
    if (stat(path.c_str(), &info) != 0) {
      // A link that points nowhere yet, or a file that went away between readdir and stat: either
      // way a fact to compare.
      if (errno == ENOENT || errno == ELOOP) {
        lines_.push_back(absl::StrCat(name, " absent"));
        return absl::OkStatus();
      }
      return absl::ErrnoToStatus(errno, absl::StrCat("cannot stat ", path));
    }
    if (S_ISDIR(info.st_mode)) {
      return EnterDirectory(info) ? Add(path, name + "/") : absl::OkStatus();
    }
    if (!S_ISREG(info.st_mode)) return absl::OkStatus();
    lines_.push_back(
        absl::StrCat(name, " ", info.st_size, " ", Nanoseconds(info.st_mtim), " ", info.st_ino));
    newest_change_ns_ = std::max(newest_change_ns_, Nanoseconds(info.st_ctim));
    return absl::OkStatus();
  }

  std::vector<std::string> lines_;
  std::set<std::pair<dev_t, ino_t>> directories_;
  int64_t newest_change_ns_ = 0;
};

}  // namespace

absl::StatusOr<DirectoryState> FingerprintDirectory(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot stat ", path));
  }
  if (!S_ISDIR(info.st_mode)) {
    return absl::NotFoundError(absl::StrCat(path, " is not a directory"));
  }
  Fingerprinter fingerprinter;
  fingerprinter.EnterDirectory(info);
  RETURN_IF_ERROR(fingerprinter.Add(path, ""));
  DirectoryState state;
  state.device = info.st_dev;
  state.inode = info.st_ino;
  state.fingerprint = fingerprinter.Result();
  state.newest_change = std::chrono::system_clock::time_point(
      std::chrono::duration_cast<std::chrono::system_clock::duration>(
          std::chrono::nanoseconds(fingerprinter.newest_change_ns())));
  struct stat marker;
  state.has_success =
      stat(absl::StrCat(path, "/", kSuccessFile).c_str(), &marker) == 0 && S_ISREG(marker.st_mode);
  return state;
}

}  // namespace ulfd::engine

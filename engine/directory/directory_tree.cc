// SPDX-License-Identifier: Apache-2.0
#include "engine/directory/directory_tree.h"

#include <dirent.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/file.h"
#include "base/load_scope.h"
#include "base/status_macros.h"

namespace ulfd::engine {
namespace {

struct CloseDirectory {
  void operator()(DIR* dir) const { closedir(dir); }
};

class Walker {
 public:
  Walker(const std::string& root, const DirectoryRules& rules,
         absl::FunctionRef<void(const TreeEntry&)> visit)
      : root_(root), rules_(rules), visit_(visit) {}

  // `prefix`: the path below the root, "" or ending in a slash.
  absl::Status Walk(const std::string& prefix, int depth) {
    ASSIGN_OR_RETURN(const std::vector<std::string> names, List(absl::StrCat(root_, "/", prefix)));
    for (const std::string& name : names) {
      RETURN_IF_ERROR(Add(absl::StrCat(prefix, name), depth));
    }
    return absl::OkStatus();
  }

  // False if this directory was seen before: another link leads there, or one leads in a circle.
  bool Enter(const struct stat& info) {
    return directories_.insert({info.st_dev, info.st_ino}).second;
  }

 private:
  absl::StatusOr<std::vector<std::string>> List(const std::string& path) {
    RETURN_IF_ERROR(LoadScope::Check());
    absl::StatusOr<std::vector<std::string>> names =
        ListNames(path, rules_.max_files - entries_, rules_.names_left);
    if (absl::IsOutOfRange(names.status())) {
      return FailedPrecondition(root_, ": holds more than ", rules_.max_files,
                                " files (load.max_files)");
    }
    if (names.ok()) entries_ += static_cast<int64_t>(names->size());
    return names;
  }

  absl::Status Add(const std::string& name, int depth) {
    const std::string path = absl::StrCat(root_, "/", name);
    TreeEntry entry{.name = name};
    if (lstat(path.c_str(), &entry.info) != 0) return Unreadable(path, entry);
    if (S_ISLNK(entry.info.st_mode)) {
      if (stat(path.c_str(), &entry.info) != 0) return Unreadable(path, entry);
      const absl::StatusOr<std::string> place = ResolvePath(path);
      if (place.ok() && !LiesWithin(*place, rules_.roots)) {
        entry.kind = TreeEntry::Kind::kOutside;
        visit_(entry);
        return absl::OkStatus();
      }
    }
    if (S_ISDIR(entry.info.st_mode)) {
      if (name == kDeltasDirectory) return absl::OkStatus();
      if (!Enter(entry.info)) return absl::OkStatus();
      if (depth < rules_.max_depth) return Walk(absl::StrCat(name, "/"), depth + 1);
      return FailedPrecondition(root_, ": directories more than ", rules_.max_depth, " deep");
    }
    if (S_ISREG(entry.info.st_mode)) visit_(entry);
    return absl::OkStatus();
  }

  // A link that points nowhere yet, or a file that went away since it was listed, is a fact like
  // any other.
  absl::Status Unreadable(const std::string& path, TreeEntry& entry) {
    if (errno != ENOENT && errno != ELOOP) {
      return FileError(errno, absl::StrCat("cannot stat ", path));
    }
    entry.kind = TreeEntry::Kind::kAbsent;
    visit_(entry);
    return absl::OkStatus();
  }

  const std::string& root_;
  const DirectoryRules& rules_;
  const absl::FunctionRef<void(const TreeEntry&)> visit_;
  std::set<std::pair<dev_t, ino_t>> directories_;
  int64_t entries_ = 0;
};

}  // namespace

absl::StatusOr<std::vector<std::string>> ListNames(const std::string& path, int64_t most,
                                                   int64_t* names_left) {
  const std::unique_ptr<DIR, CloseDirectory> dir(opendir(path.c_str()));
  if (dir == nullptr) return FileError(errno, absl::StrCat("cannot open ", path));
  RETURN_IF_ERROR(CheckPlace(dirfd(dir.get()), path));
  std::vector<std::string> names;
  while (true) {
    errno = 0;
    const dirent* entry = readdir(dir.get());
    if (entry == nullptr) break;
    std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    if (static_cast<int64_t>(names.size()) >= most) {
      return OutOfRange(path, " holds more than ", most, " names");
    }
    if (names_left != nullptr && --*names_left < 0) {
      *names_left = 0;
      return Unavailable(path,
                         ": not read, there are more names than a look may read "
                         "(of a model 10, of all 100 times load.max_files)");
    }
    names.push_back(std::move(name));
  }
  if (errno != 0) return FileError(errno, absl::StrCat("cannot list ", path));
  std::sort(names.begin(), names.end());
  return names;
}

absl::Status WalkTree(const std::string& path, const DirectoryRules& rules,
                      absl::FunctionRef<void(const TreeEntry&)> visit) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) {
    return FileError(errno, absl::StrCat("cannot stat ", path));
  }
  if (!S_ISDIR(info.st_mode)) {
    return NotFound(path, " is not a directory");
  }
  Walker walker(path, rules, visit);
  walker.Enter(info);
  return walker.Walk("", 0);
}

absl::StatusOr<std::string> ResolvePath(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> resolved(realpath(path.c_str(), nullptr),
                                                             &std::free);
  if (resolved == nullptr) return FileError(errno, absl::StrCat("cannot resolve ", path));
  return std::string(resolved.get());
}

}  // namespace ulfd::engine

// FingerprintDirectory: what stat tells of a version directory.
// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "engine/directory/delta_directory.h"
#include "engine/directory/model_directory.h"
#include "engine/weights/digest.h"

namespace ulfd::engine {
namespace {

int64_t Nanoseconds(const timespec& time) { return time.tv_sec * 1'000'000'000LL + time.tv_nsec; }

std::string Line(const TreeEntry& entry) {
  switch (entry.kind) {
    case TreeEntry::Kind::kFile:
      return absl::StrCat(entry.name, " ", entry.info.st_size, " ", Nanoseconds(entry.info.st_mtim),
                          " ", entry.info.st_ino);
    case TreeEntry::Kind::kAbsent:
      return absl::StrCat(entry.name, " absent");
    case TreeEntry::Kind::kOutside:
      break;
  }
  return absl::StrCat(entry.name, " outside");
}

}  // namespace

absl::StatusOr<DirectoryState> FingerprintDirectory(const std::string& path,
                                                    const DirectoryRules& rules) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) {
    return FileError(errno, absl::StrCat("cannot stat ", path));
  }
  DirectoryState state;
  state.device = info.st_dev;
  state.inode = info.st_ino;
  // In the order of the walk, which is the same as long as the names are.
  ContentHasher files;
  bool empty = true;
  int64_t newest_change_ns = 0;
  const absl::Status walked = WalkTree(path, rules, [&](const TreeEntry& entry) {
    files.Add(Line(entry));
    empty = false;
    if (entry.kind != TreeEntry::Kind::kFile) return;
    newest_change_ns = std::max(newest_change_ns, Nanoseconds(entry.info.st_ctim));
    state.has_success |= entry.name == kSuccessFile;
  });
  if (absl::IsFailedPrecondition(walked)) {
    // As long as that is so, nothing else matters.
    state.fault = walked;
    ContentHasher fault;
    fault.Add(walked.message());
    state.fingerprint = fault.Hex();
  } else {
    RETURN_IF_ERROR(walked);
    if (!empty) state.fingerprint = files.Hex();
  }
  ASSIGN_OR_RETURN(state.epochs, ListEpochs(path, rules.max_files, rules.names_left));
  state.newest_change = std::chrono::system_clock::time_point(
      std::chrono::duration_cast<std::chrono::system_clock::duration>(
          std::chrono::nanoseconds(newest_change_ns)));
  return state;
}

}  // namespace ulfd::engine

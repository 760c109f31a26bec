// A walk over a version directory that strangers may have filled.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_DIRECTORY_DIRECTORY_TREE_H_
#define ULFD_ENGINE_DIRECTORY_DIRECTORY_TREE_H_

#include <sys/stat.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ulfd::engine {

// What a version directory may be.
struct DirectoryRules {
  // Resolved directories in which and below which symbolic links may end; one that ends elsewhere
  // is not followed.  Empty: links may lead anywhere.
  std::vector<std::string> roots;
  int64_t max_files = 10000;  // Of any kind, directories included, in the directory and below.
  int max_depth = 16;         // Directories on the way to a file.
  // Names that may still be read, over all directories that share it; null: any number.
  int64_t* names_left = nullptr;
};

// Deltas of tables (delta_directory.h), which are no part of a version's own content.
inline constexpr char kDeltasDirectory[] = "deltas";

struct TreeEntry {
  enum class Kind : uint8_t {
    kFile,     // `info` is the file's, after links.
    kAbsent,   // A link that leads nowhere, or gone since it was listed.
    kOutside,  // A link out of the roots.
  };
  std::string name;  // Relative to the directory that is walked.
  Kind kind = Kind::kFile;
  struct stat info = {};
};

// Names of whatever is in the directory, sorted, without "." and "..".  OUT_OF_RANGE: more than
// `most`; NOT_FOUND, FAILED_PRECONDITION: there is no such directory; INVALID_ARGUMENT: it lies
// where the thread's LoadScope may not read; other codes: it cannot be read, or not with
// `names_left` (DirectoryRules).
absl::StatusOr<std::vector<std::string>> ListNames(const std::string& path, int64_t most,
                                                   int64_t* names_left = nullptr);

// Calls `visit` for every file below `path` except those of its deltas, sorted within each
// directory, each directory once however many links lead to it.  What is neither file nor directory
// is left out.  NOT_FOUND if `path` is no directory; FAILED_PRECONDITION, naming the rule, for a
// tree that breaks it; other codes if it could not be read, which says nothing of its content.
absl::Status WalkTree(const std::string& path, const DirectoryRules& rules,
                      absl::FunctionRef<void(const TreeEntry&)> visit);

// `path` after symbolic links.
absl::StatusOr<std::string> ResolvePath(const std::string& path);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_DIRECTORY_DIRECTORY_TREE_H_

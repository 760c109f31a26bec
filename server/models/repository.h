// The model repository on disk, <repository>/<model>/<version>/, and one look at it: which models
// and versions are there, and fingerprints of their content.  Only I/O, no decision.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_MODELS_REPOSITORY_H_
#define ULFD_SERVER_MODELS_REPOSITORY_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/directory/model_directory.h"
#include "server/models/version_rules.h"

namespace ulfd::server {

// Names of the directories in `repository`, sorted.  Names that begin with a dot, "lost+found", and
// names with control characters or bytes that are not UTF-8 are not models.  NOT_FOUND if it does
// not exist; any other code says nothing of what it holds (FAILED_PRECONDITION: more than 100000
// names).
absl::StatusOr<std::vector<std::string>> ListModelDirectories(const std::string& repository);

// A look asks for so many versions of a model, the newest.
constexpr size_t kMaxVersions = 1000;

struct VersionList {
  std::vector<int64_t> versions;     // Ascending; directories, or symbolic links to some.
  size_t left_out = 0;               // Names of older versions, that were not looked at.
  std::vector<std::string> ignored;  // The first names of everything else, sorted.
  bool ignored_more = false;         // There are others.
};
// The newest kMaxVersions, and those that `named` has beside them.  Errors as above, and where
// there are more names than `names_left` (engine::DirectoryRules).
absl::StatusOr<VersionList> ListVersions(const std::string& base_path,
                                         const std::set<int64_t>& named = {},
                                         int64_t* names_left = nullptr);

// What one look found of one model.
struct ModelScan {
  absl::StatusOr<VersionList> listing;  // NOT_FOUND: its directory does not exist.
  std::map<int64_t, absl::StatusOr<engine::DirectoryState>> versions;
};

// What one look found of everything.
struct RepositoryScan {
  absl::Status repository;         // Not OK: models of the repository stay as they are.
  std::vector<std::string> found;  // Models in the repository.
  std::map<std::string, ModelScan> models;

  // What it says of one model.
  RepositoryScan Only(const std::string& name) const;
};

// Where to look for the versions of a model.
struct ModelPlace {
  std::string base_path;
  std::set<int64_t> named;  // Looked at however many newer ones there are.
};
using ModelPlaces = std::map<std::string, ModelPlace>;  // By name.

// Thread-safe.
class RepositoryScanner {
 public:
  // `repository`: may be empty (none).  `rules` is borrowed.
  RepositoryScanner(std::string repository, const VersionRules& rules);

  // Looks at the repository and at `places`, which win over it.  Reads a bounded number of names of
  // each model and of all, the newest versions first; what is beyond it is UNAVAILABLE.  `only`:
  // at no versions but those of this model, if it is there.
  RepositoryScan Scan(const ModelPlaces& places,
                      const std::optional<std::string>& only = std::nullopt) const;

 private:
  absl::StatusOr<std::vector<std::string>> ListRepository() const;

  const std::string repository_;
  const VersionRules& rules_;
  dev_t device_ = 0;  // On which it was at the start.
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_MODELS_REPOSITORY_H_

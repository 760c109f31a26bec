// One look at the model repository: which models and versions are there, and fingerprints of their
// content.  Only I/O, no decision.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_MODELS_REPOSITORY_SCAN_H_
#define ULFD_SERVER_MODELS_REPOSITORY_SCAN_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/runtime/model_directory.h"
#include "server/models/repository.h"
#include "server/models/version_rules.h"

namespace ulfd::server {

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

// Thread-safe.
class RepositoryScanner {
 public:
  // `repository`: may be empty (none).  `rules` is borrowed.
  RepositoryScanner(std::string repository, const VersionRules& rules);

  // Looks at the repository and at `base_paths` (model -> directory), which win over it.
  RepositoryScan Scan(const std::map<std::string, std::string>& base_paths) const;

 private:
  absl::StatusOr<std::vector<std::string>> ListRepository() const;

  const std::string repository_;
  const VersionRules& rules_;
  dev_t device_ = 0;  // On which it was at the start.
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_MODELS_REPOSITORY_SCAN_H_

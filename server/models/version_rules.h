// Which files a model may be read from: what the engine's DirectoryRules say of one version.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_MODELS_VERSION_RULES_H_
#define ULFD_SERVER_MODELS_VERSION_RULES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "engine/directory/directory_tree.h"

namespace ulfd::server {

// Files may lie in the version directory itself, in the directory that holds the model's versions,
// in the repository, and in the link targets that the operator names - wherever those four really
// are.  So a model or a version may be a symbolic link to anywhere, because its name is the
// operator's, while links among its files, which come with the model, stay with the models.
// Thread-safe.
class VersionRules {
 public:
  // `repository`: may be empty (none).
  VersionRules(std::string repository, std::vector<std::string> link_targets, int64_t max_files)
      : repository_(std::move(repository)),
        link_targets_(std::move(link_targets)),
        max_files_(max_files) {}

  // Of <base path>/<version>.  Resolves paths; what does not exist is left out.
  engine::DirectoryRules Of(const std::string& directory) const;
  // The same for many versions of a model: what they share is resolved once.
  engine::DirectoryRules OfModel(const std::string& base_path) const;
  static engine::DirectoryRules OfVersion(const std::string& directory,
                                          engine::DirectoryRules of_model);
  int64_t max_files() const { return max_files_; }

 private:
  const std::string repository_;
  const std::vector<std::string> link_targets_;
  const int64_t max_files_;
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_MODELS_VERSION_RULES_H_

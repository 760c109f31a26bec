// Resources of a model that has no files: for layers that need none.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TESTS_TESTING_NO_FILES_H_
#define ULFD_TESTS_TESTING_NO_FILES_H_

#include <string>

#include "absl/status/statusor.h"
#include "engine/layers/layer.h"

namespace ulfd::testing {

class NoFiles final : public engine::ModelResources {
 public:
  absl::StatusOr<const blaze::EmbeddingConfig*> EmbeddingConf(const std::string& path) override {
    return absl::NotFoundError(path);
  }
  absl::StatusOr<TableRef> Table(const std::string& name) override {
    return absl::NotFoundError(name);
  }
};

}  // namespace ulfd::testing

#endif  // ULFD_TESTS_TESTING_NO_FILES_H_

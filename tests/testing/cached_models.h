// Models that keep what they computed, beside the same models without.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TESTS_TESTING_CACHED_MODELS_H_
#define ULFD_TESTS_TESTING_CACHED_MODELS_H_

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/runtime/model.h"
#include "gtest/gtest.h"
#include "tests/testing/model_directories.h"
#include "tests/testing/user_batch.h"

namespace ulfd::testing {

// What one request got.
struct Kept {
  std::vector<OwnedOutput> outputs;
  std::vector<int64_t> missing_ids;
};

inline Kept RunOnce(const engine::Model& model, absl::Span<const engine::NamedTensor> inputs,
                    const engine::RunOptions& options = {}) {
  engine::Workspace workspace;
  engine::RunResult result;
  const absl::Status status = model.Run(inputs, options, workspace, result);
  EXPECT_TRUE(status.ok()) << status;
  if (!status.ok()) return {};
  return {Keep(result), result.stats.missing_ids};
}

// A user's and an ad's input of two columns each.
inline constexpr char kUserAndAd[] = R"(
  layer_params { type: "input_layer" top: "u" top: "a" }
)";
inline constexpr char kUserAndAdLevels[] = R"(
  inputs { name: "u" level: INPUT_LEVEL_USER row_shape: [2] }
  inputs { name: "a" level: INPUT_LEVEL_AD row_shape: [2] }
)";
// Computes nothing from either alone.
inline constexpr char kTogether[] = R"(
  layer_params { name: "m" type: "multiply_layer" bottom: "u" bottom: "a" top: "y" }
)";

class CachedModels : public ModelDirectories {
 protected:
  // `layers` over kUserAndAd.
  absl::StatusOr<std::unique_ptr<const engine::Model>> Load(const std::string& layers,
                                                            const std::string& manifest,
                                                            bool always_keep_ads = true) {
    temp_.Write("graph_ulf.txt", kUserAndAd + layers);
    temp_.Write("model.textproto", kUserAndAdLevels + manifest);
    return engine::Model::Load({.directory = base_, .always_keep_ads = always_keep_ads});
  }
};

}  // namespace ulfd::testing

#endif  // ULFD_TESTS_TESTING_CACHED_MODELS_H_

// A version directory -> everything that a model consists of.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_RUNTIME_MODEL_LOADER_H_
#define ULFD_ENGINE_RUNTIME_MODEL_LOADER_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/embedding/table.h"
#include "engine/runtime/executor.h"
#include "engine/runtime/model.h"
#include "engine/weights/weights.h"

namespace ulfd::engine {

// In the order of dependence: later members point into earlier ones.
struct LoadedModel {
  ModelInfo info;
  std::unique_ptr<WeightFile> weights;
  std::vector<std::vector<float>> kernels;  // Of a model of layout NHWC, as layers want them.
  std::vector<std::unique_ptr<const EmbeddingTable>> tables;
  Executable executable;
};

// See Model::Load; errors do not name the model.
absl::StatusOr<std::unique_ptr<LoadedModel>> LoadModel(const LoadOptions& options);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_RUNTIME_MODEL_LOADER_H_

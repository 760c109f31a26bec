// A version directory -> everything that a model consists of.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_RUNTIME_MODEL_LOADER_H_
#define ULFD_ENGINE_RUNTIME_MODEL_LOADER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/embedding/table.h"
#include "engine/runtime/executor.h"
#include "engine/runtime/load_checks.h"
#include "engine/runtime/model.h"
#include "engine/weights/weights.h"

namespace ulfd::engine {

// In the order of dependence: later members point into earlier ones.
struct LoadedModel {
  ModelInfo info;
  LoadOptions options;  // As given.
  std::shared_ptr<WeightFile> weights;
  // Of a model of layout NHWC, as layers want them.
  std::shared_ptr<std::vector<std::vector<float>>> kernels;
  Executable executable;
  ModelMemory memory;
  int64_t memory_limit = 0;  // memory_limit_bytes of the manifest.
};

// What a delta puts in the place of files of the version.
struct LoadOverrides {
  std::string weights;
  // All tables of the model.
  absl::Span<const std::shared_ptr<const EmbeddingTable>> tables;
};

// See Model::Load; errors do not name the model.  `overrides`: null: none.
absl::StatusOr<std::unique_ptr<LoadedModel>> LoadModel(const LoadOptions& options,
                                                       const LoadOverrides* overrides = nullptr);

// What the cache of ads keeps of each.
int64_t BytesOfItem(const Schedule& schedule);

// Sums up what the model holds, its tables as they are now, into model.info.  Errors: see
// CheckMemory.
absl::Status AccountMemory(LoadedModel& model);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_RUNTIME_MODEL_LOADER_H_

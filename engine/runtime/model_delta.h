// Deltas on top of a loaded model.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_RUNTIME_MODEL_DELTA_H_
#define ULFD_ENGINE_RUNTIME_MODEL_DELTA_H_

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/embedding/table.h"
#include "engine/runtime/model.h"
#include "engine/runtime/model_loader.h"

namespace ulfd::engine {

// See Model::WithDeltas; null if none could be applied.  Errors do not name the model.
std::unique_ptr<LoadedModel> ApplyDeltas(const LoadedModel& base,
                                         absl::Span<const DeltaSource> deltas,
                                         std::vector<absl::Status>& statuses);

// Whether Model::WithDeltas would apply `delta` after those `before`, of which no more is read than
// that takes: their order, and the rows of tables that `delta` drops ids from.
absl::Status CheckDelta(const LoadedModel& base, absl::Span<const DeltaSource> before,
                        const DeltaSource& delta);

// See Model::WithFolded.
std::unique_ptr<LoadedModel> ReplaceFolded(const LoadedModel& base, const EmbeddingTable& folded,
                                           std::shared_ptr<const TableRows> rows);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_RUNTIME_MODEL_DELTA_H_

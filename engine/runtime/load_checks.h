// What a manifest demands of a model once its graph is known.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_RUNTIME_LOAD_CHECKS_H_
#define ULFD_ENGINE_RUNTIME_LOAD_CHECKS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/graph/graph.h"
#include "engine/graph/inference.h"
#include "engine/runtime/executor.h"

namespace ulfd::engine {

// INVALID_ARGUMENT, naming the input and the layer, if an input has a level in the manifest with
// which no request of one user and several ads could be computed, while with the other level it
// could.  `specs`: of the inputs, with guesses and the manifest's statements; not inferred yet.
absl::Status CheckStatedLevels(const Graph& graph, absl::Span<const InputStatement> statements,
                               const GraphSpecs& specs);

// What a model takes, in bytes.
struct ModelMemory {
  int64_t weights = 0;    // Arrays of the weight file, matrices as they are laid out for kernels.
  int64_t tables = 0;     // Embedding tables.
  int64_t kernels = 0;    // What kernels hold for themselves, of both plans.
  int64_t computed = 0;   // Constants that the optimiser computed.
  int64_t cache = 0;      // The most that the cache of users may hold.
  int64_t ad_cache = 0;   // The same of ads.
  int64_t workspace = 0;  // What one worker needs for one user and a tile of ads.

  // What the model holds whatever runs.
  int64_t held() const { return weights + tables + kernels + computed + cache + ad_cache; }
};
// All but weights and tables.
ModelMemory MemoryOf(const Executable& executable);

// FAILED_PRECONDITION with the sum and its parts if that is more than `limit` bytes; 0: no limit.
// INVALID_ARGUMENT for a negative limit.
absl::Status CheckMemory(const ModelMemory& memory, int64_t limit);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_RUNTIME_LOAD_CHECKS_H_

// What a run by rows takes.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_RUNTIME_RUN_MEMORY_H_
#define ULFD_ENGINE_RUNTIME_RUN_MEMORY_H_

#include <cstdint>

#include "absl/status/status.h"
#include "engine/runtime/workspace.h"

namespace ulfd::engine {

// Whether the arenas, the scratch and so many bytes of outputs are within the limit of `options`.
// RESOURCE_EXHAUSTED names the largest tensor.
absl::Status CheckRunMemory(const RunOptions& options, const UserPart& part, int64_t output_bytes);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_RUNTIME_RUN_MEMORY_H_

// One step of a plan: what runs by rows and runs by numpy's rules do alike.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_RUNTIME_STEP_RUN_H_
#define ULFD_ENGINE_RUNTIME_STEP_RUN_H_

#include <chrono>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/plan/plan.h"
#include "engine/runtime/executor.h"
#include "engine/runtime/model.h"
#include "engine/runtime/workspace.h"

namespace ulfd::engine {

// The clock of RunStats.
inline int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Runs a step of `plan`, which is no view, and counts and times it as far as `options` want that.
absl::Status RunStep(const Executable& executable, const RunOptions& options, const Plan& plan,
                     const Step& step, absl::Span<const Tensor> in, absl::Span<Tensor> out,
                     WorkspaceState& ws, RunStats& stats);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_RUNTIME_STEP_RUN_H_

// Runs the graph as written for one user, in one piece, by numpy's rules: where the request has
// other shapes than the plan expects, where no proof holds, and where every tensor is to be kept.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_RUNTIME_GENERAL_RUN_H_
#define ULFD_ENGINE_RUNTIME_GENERAL_RUN_H_

#include "absl/status/status.h"
#include "engine/runtime/executor.h"
#include "engine/runtime/model.h"
#include "engine/runtime/workspace.h"

namespace ulfd::engine {

// Fills result.outputs (in part.outputs) and, with keep_all, result.tensors; adds to
// result.stats.  REQUIRES: `part.request` has one user.
absl::Status RunGenerally(const Executable& executable, const RunOptions& options, UserPart& part,
                          WorkspaceState& ws, RunResult& result);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_RUNTIME_GENERAL_RUN_H_

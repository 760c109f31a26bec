// Runs a schedule: the user part for many users at once, then the ads' part tile by tile.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_RUNTIME_ROW_RUN_H_
#define ULFD_ENGINE_RUNTIME_ROW_RUN_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/runtime/executor.h"
#include "engine/runtime/model.h"
#include "engine/runtime/workspace.h"

namespace ulfd::engine {

// Computes the user part of users [first_user, last_user) and sets those in `part`, whose other
// fields describe the request, and writes what outputs have of these users.  `ws`: see Executable.
absl::Status ComputeUsers(const RunOptions& options, int64_t first_user, int64_t last_user,
                          UserPart& part, WorkspaceState& ws, RunResult& result);

// Computes ads [begin, end), which are of users in the group that `part` holds, into their rows of
// the outputs.  Several threads may run parts of one request: each with its own workspace, stats
// and rows.
absl::Status ComputeAds(const RunOptions& options, const UserPart& part, int64_t begin, int64_t end,
                        WorkspaceState& ws, absl::Span<const Tensor> outputs, RunStats& stats);

// Fills the fields of `part` that describe the request (`part.request` is filled, and matches), and
// makes room for the outputs, if the run takes no more memory than `options` allow.
absl::Status BeginRows(const RunOptions& options, const Executable& executable,
                       const Schedule& schedule, int64_t ads, UserPart& part, RunResult& result);

// What an ad of a schedule that cuts ads takes on this machine, in nanoseconds.
struct ItemTimes {
  double compute = 0;  // What is computed of it alone.
  double read = 0;     // Finding that in the cache.
};
absl::StatusOr<ItemTimes> TimeItems(const Executable& executable, const Schedule& schedule);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_RUNTIME_ROW_RUN_H_

// Runs a plan for one request.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_RUNTIME_EXECUTOR_H_
#define ULFD_ENGINE_RUNTIME_EXECUTOR_H_

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/caches/ad_cache.h"
#include "engine/caches/user_cache.h"
#include "engine/embedding/table.h"
#include "engine/plan/plan.h"
#include "engine/plan/schedule.h"
#include "engine/runtime/model.h"
#include "engine/runtime/workspace.h"

namespace ulfd::engine {

class ShapePlans;  // engine/runtime/shape_plans.h

// Everything of a model that a run reads; owned by the model.  Models that a delta tells apart
// share what it left alone.
struct Executable {
  // The reference plan: the graph as written, only lowered.  Runs any request.
  std::shared_ptr<const Plan> plan;
  // The rewritten graph, or null.  Values keep the ids that they have in `plan`, and outputs their
  // places.  Runs only requests of the shapes in its specs, and never with keep_all.
  std::shared_ptr<const Plan> optimised;
  // How the two run over rows; null where no proof holds.
  std::shared_ptr<const Schedule> schedule, optimised_schedule;
  const ModelInfo* info = nullptr;
  std::vector<std::shared_ptr<const EmbeddingTable>> tables;  // Per ModelInfo::tables.
  std::shared_ptr<UserCache> user_cache;                      // Null: there is none.  Of one model.
  std::shared_ptr<AdCache> ad_cache;  // The same, of the schedule whose ads are cut.
  // Plans of other shapes; null: everything is stated.  Of one model.
  std::shared_ptr<ShapePlans> shape_plans;
  bool refuse_non_finite = false;     // Fails a run that gives NaN or infinity.
  std::shared_ptr<const void> token;  // Alive as long as the plans.
};

// to[i] += from[i]; `to` grows if it is shorter.
void AddEach(const std::vector<int64_t>& from, std::vector<int64_t>& to);

// See Model::Run.  The request is in `workspace.user.request.given`.
absl::Status Execute(const Executable& executable, const RunOptions& options,
                     WorkspaceState& workspace, RunResult& result);

// The same by numpy's rules, whatever plans there are.  REQUIRES: one user.
absl::Status ExecuteGenerally(const Executable& executable, const RunOptions& options,
                              WorkspaceState& workspace, RunResult& result);

// See Model::RunUserPart; `part.request.given` is filled.  `cut`: whether there are ads left to
// run; if not, nothing was done.
absl::Status ExecuteUserPart(const Executable& executable, const RunOptions& options,
                             UserPart& part, WorkspaceState& workspace, RunResult& result,
                             bool& cut);

// See Model::RunAds.
absl::Status ExecuteAds(const UserPart& part, const RunOptions& options, int64_t begin, int64_t end,
                        WorkspaceState& workspace, absl::Span<const Tensor> outputs,
                        RunStats& stats);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_RUNTIME_EXECUTOR_H_

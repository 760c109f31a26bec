// SPDX-License-Identifier: Apache-2.0
#include "server/models/model_lane.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>

#include "base/load_scope.h"
#include "engine/plan/plan_info.h"
#include "engine/tensor/onednn.h"
#include "server/models/merged_request.h"

namespace ulfd::server {

namespace {

// Weights that do not stay in the cache are read anew for every piece of a request: pieces are then
// as large as tiles of the plan.
int64_t PieceRows(const engine::Model& model) {
  const std::optional<engine::PlanInfo> optimised = model.OptimisedPlan();
  const engine::PlanInfo plan = optimised.has_value() ? *optimised : model.WrittenPlan();
  return plan.heavy_weights ? std::max(Lane::kPieceRows, plan.tile_rows) : Lane::kPieceRows;
}

}  // namespace

std::shared_ptr<Lane> MakeLane(const engine::Model& model, const std::string& name,
                               const Lane::Limits& limits, const CostModel::Parts& guess) {
  auto lane = std::make_shared<Lane>(name, limits, guess, PieceRows(model));
  lane->SetMerges(CanMerge(model));
  return lane;
}

CostModel::Parts MeasureCost(const engine::Model& model) {
  using Clock = std::chrono::steady_clock;
  constexpr int64_t kAds[] = {1, 16, 64};
  constexpr int kRounds = 3;
  engine::UseOneThread();
  CostModel cost;
  engine::Workspace workspace;
  const std::function<bool()> stop = [] { return !LoadScope::Check().ok(); };
  const engine::RunOptions run{.stop = &stop};
  for (const int64_t ads : kAds) {
    // The least of several: others may have had the core.
    Clock::duration least = Clock::duration::max();
    for (int round = 0; round < kRounds; ++round) {
      engine::RunResult result;
      const Clock::time_point begin = Clock::now();
      if (!model.RunWarmup(ads, run, workspace, result).ok() || result.outputs.empty()) {
        return CostModel::kGuess;
      }
      least = std::min(least, Clock::now() - begin);
    }
    cost.Observe(1, ads, least);
  }
  return cost.parts();
}

}  // namespace ulfd::server

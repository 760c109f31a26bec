// How a proved plan runs over rows: the user part for many users at once, the ads' part in tiles of
// ads.  Everything that a run would otherwise work out is worked out here, at load.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_PLAN_SCHEDULE_H_
#define ULFD_ENGINE_PLAN_SCHEDULE_H_

#include <bit>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/plan/model_info.h"
#include "engine/plan/plan.h"

namespace ulfd::engine {

// An operand of a step: where its rows lie, and how it follows the rows that the step works on.
struct Operand {
  enum class Place : uint8_t {
    kFixed,  // No rows: the same for every user and ad.
    kUser,   // A row per user.
    kAd,     // A row per ad.
    kIds,    // Ids or values of a feature: as many as its rows have.
  };
  ValueId root = kNoValue;  // Whose memory it is; views share that of what they show.
  Place place = Place::kFixed;
  bool of_request = false;  // The memory is the caller's.
  bool inner = false;       // Of the ads: lives only within an inner tile of a stage.
  int feature = -1;         // kIds: index into ModelInfo::features.
  bool of_users = false;    // kIds: the feature has a row per user, not per ad.
  int64_t row_bytes = 0;    // kIds: of one id.  kFixed: of everything.
  Tensor form;              // Type and dimensions; the leading one is set on a run unless kFixed.
};

// A step of the plan that does something: views do not.
struct RowStep {
  const Step* step = nullptr;
  std::vector<Operand> in, out;
  // Of a user step: runs once for each user, not once for all.  Of an ad step: reads something of
  // the user, so that its ads must be of one user.
  bool one_user = false;
};

// A run of ad steps over tiles of their own inside a tile.
struct Stage {
  int begin = 0, end = 0;  // Into Schedule::ad_steps.
  int64_t rows = 0;        // Ads per inner tile; 0: the whole tile at once.
};

// What the plan expects of an input of the request.
struct ExpectedInput {
  int input = 0;  // Into ModelInfo::inputs.
  Level rows = Level::kUser;
  bool free_length = false;
  TensorDims dims;  // dims[0] counts for nothing.
};

// Immutable; points into the plan.
struct Schedule {
  // Users whose part is computed at once; a request of more runs in groups.
  static constexpr int64_t kMaxUsers = 32;

  const Plan* plan = nullptr;
  uint64_t id = 0;                    // No other one has it, nor had it: addresses come again.
  std::vector<ExpectedInput> inputs;  // Those that the plan knows a shape of.
  std::vector<RowStep> user_steps, ad_steps;
  std::vector<Stage> stages;  // Of the ad steps, in order.
  // Where ads are cut: lookups come first, then steps that read nothing but single ads' rows of
  // these and of the request, so that others may have computed them; then the rest.
  int first_item = 0, last_item = 0;              // Into ad_steps.
  int first_item_stage = 0, last_item_stage = 0;  // Into stages.
  // What steps of items read, and what the other steps and outputs read of theirs.
  std::vector<Operand> item_inputs, item_kept;
  std::vector<Operand> outputs;  // Per output of the graph.
  // What user steps read of the request, and what ad steps and outputs read of their results: all
  // that goes into a user's part, and all that comes out of it.
  std::vector<Operand> user_inputs, kept;
  // Where a step depends on the user in a way that only a single user's request allows: why.
  std::string one_user_only;
  int64_t tile_rows = 0;
  bool heavy_weights = false;  // See PlanInfo.
  // Arenas for up to 1 << i users, and ads per tile; and the most scratch that a step takes there,
  // beside what grows with the ids.
  std::vector<ArenaLayout> user_layouts, ad_layouts;
  std::vector<int64_t> user_scratch, ad_scratch;

  // The layout with room for `rows`, or its scratch.  REQUIRES: rows <= kMaxUsers or tile_rows.
  template <typename Item>
  static const Item& For(const std::vector<Item>& items, int64_t rows) {
    return items[rows <= 1 ? 0 : std::bit_width(static_cast<uint64_t>(rows - 1))];
  }
};

// FAILED_PRECONDITION, saying which layer and why, if the rows are not proved independent or a
// shape is not known: such a plan runs a request of one user as a whole, by numpy's rules.
absl::Status ProveRows(const Plan& plan, const ModelInfo& info);

// `cut_items`: whether ads are cut.  Errors of LoadScope::Check.  REQUIRES: ProveRows.
absl::StatusOr<std::unique_ptr<const Schedule>> MakeSchedule(const Plan& plan,
                                                             const ModelInfo& info, bool cut_items);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_PLAN_SCHEDULE_H_

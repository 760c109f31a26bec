// A plan as data, for people and tools: its steps in order, what they stand for and what they cost.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_PLAN_PLAN_INFO_H_
#define ULFD_ENGINE_PLAN_PLAN_INFO_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "engine/graph/rewrite.h"
#include "engine/tensor/tensor.h"

namespace ulfd::engine {

struct Plan;
struct Schedule;

// A tensor of a plan.
struct PlanValue {
  enum class Kind { kInput, kConstant, kComputed };
  std::string name;  // Several values may share one (in-place layers).
  Kind kind = Kind::kComputed;
  DType dtype = DType::kFloat32;
  Shape shape;
  Level level = Level::kUnknown;
};

// What a step depends on.
enum class PlanPart : uint8_t {
  kUser,   // The user alone: runs once per request.
  kAd,     // Single ads alone, whoever the user is.
  kJoint,  // Both, or it is not proved.
};
inline constexpr std::array<PlanPart, 3> kPlanParts = {PlanPart::kUser, PlanPart::kAd,
                                                       PlanPart::kJoint};
absl::string_view Name(PlanPart part);      // "user", "ad", "joint".
absl::string_view Describe(PlanPart part);  // "user part: once per request".

// One kernel call.
struct PlanStep {
  std::string label;        // `layer 12 "fc1" (inner_product_layer)`, for messages.
  std::string name, type;   // Of the node: a pass may have added a suffix to a layer's name.
  std::vector<int> layers;  // Positions in the file of the layers that it stands for, ascending.
  PlanPart part = PlanPart::kJoint;
  bool view = false;                 // Shares its input's memory; nothing runs.
  Level level = Level::kUnknown;     // The highest of its outputs.
  std::vector<int> inputs, outputs;  // Indices into PlanInfo::values.
  Cost cost;                         // Of a view: nothing.
  int64_t kernel_bytes = 0;          // Memory beside the model's weights.
  // What computes its products with weights, "native" or "onednn"; empty: it has none.
  std::string backend;
  // In what it computes them, "fp32", "bf16" or "int8"; empty: it has none.
  std::string precision;
};

struct PlanInfo {
  std::vector<PlanValue> values;
  std::vector<PlanStep> steps;  // In the order in which they run: [0, user_steps) is the user part.
  int user_steps = 0;
  std::vector<int> outputs;  // Values that the model returns.
  // Values made in the user part and read in the others: what is computed once per request and
  // kept for all tiles.
  std::vector<int> crossing;
  bool separable = false;     // Ads may be cut into tiles.
  bool shapes_known = false;  // Every shape is a function of the number of ads; otherwise costs
                              // are estimates that count unknown lengths as 1.
  int64_t tile_rows = 0;      // Ads per tile; 0 where requests run in one piece.
  // A step of the ads' part has weights that do not stay in the cache: they are read anew for every
  // tile, and for every request of fewer ads.
  bool heavy_weights = false;
  int64_t kernel_bytes = 0;                        // Sum over the steps.
  Cost cost;                                       // Sum over the steps.
  std::array<Cost, kPlanParts.size()> part_costs;  // By PlanPart.

  const Cost& CostOf(PlanPart part) const { return part_costs[static_cast<size_t>(part)]; }
};

// By step, the positions in the file of the layers that it stands for, ascending.  `written`: as
// below.
std::vector<std::vector<int>> LayersOfSteps(const Plan& plan, const Plan* written);

// `written`: the plan of the graph as it stands in the file, if `plan` is the optimised one: what a
// step stands for is what lies between its outputs and inputs there.
// `schedule`: of `plan`, or null.
PlanInfo DescribePlan(const Plan& plan, const Plan* written, const Schedule* schedule);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_PLAN_PLAN_INFO_H_

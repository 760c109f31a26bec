// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/plan_info.h"

#include <algorithm>
#include <utility>

#include "engine/graph/passes.h"
#include "engine/plan/plan.h"
#include "engine/plan/schedule.h"

namespace ulfd::engine {

namespace {

PlanValue::Kind KindOf(Value::Kind kind) {
  switch (kind) {
    case Value::Kind::kInput:
      return PlanValue::Kind::kInput;
    case Value::Kind::kConstant:
      return PlanValue::Kind::kConstant;
    case Value::Kind::kComputed:
      break;
  }
  return PlanValue::Kind::kComputed;
}

bool AllRanked(const Node& node, const GraphSpecs& specs) {
  const auto ranked = [&](ValueId id) { return specs[id].shape.ranked(); };
  return std::all_of(node.inputs.begin(), node.inputs.end(), ranked) &&
         std::all_of(node.outputs.begin(), node.outputs.end(), ranked);
}

// Whether every shape that a step makes is a function of the number of ads alone.
bool ShapesKnown(const Plan& plan) {
  const auto known = [&](ValueId id) {
    const Shape& shape = plan.specs[id].shape;
    return shape.ranked() && std::none_of(shape.dims().begin(), shape.dims().end(),
                                          [](Dim d) { return d.IsUnknown(); });
  };
  return std::all_of(plan.steps.begin(), plan.steps.end(), [&](const Step& step) {
    return std::all_of(step.node->outputs.begin(), step.node->outputs.end(), known);
  });
}

// Which node of a plan makes each value; nullptr: none.
std::vector<const Node*> Producers(const Plan& plan) {
  std::vector<const Node*> producers(plan.graph.values.size(), nullptr);
  for (const Step& step : plan.steps) {
    for (ValueId id : step.node->outputs) producers[id] = step.node;
  }
  return producers;
}

void AddLayers(const Node& node, std::vector<int>& layers) {
  layers.push_back(node.file_index);
  layers.insert(layers.end(), node.members.begin(), node.members.end());
}

// Layers of the file that `node` stands for: those between its outputs and what the plan has
// computed otherwise.  Values keep their ids when a graph is rewritten.
std::vector<int> LayersOf(const Node& node, const std::vector<const Node*>& made_here,
                          const std::vector<const Node*>& made_as_written) {
  std::vector<int> layers;
  AddLayers(node, layers);
  std::vector<ValueId> open(node.outputs);
  std::vector<bool> seen(made_as_written.size(), false);
  while (!open.empty()) {
    const ValueId id = open.back();
    open.pop_back();
    if (id >= static_cast<ValueId>(seen.size()) || seen[id]) continue;
    seen[id] = true;
    const bool computed_elsewhere = made_here[id] != nullptr && made_here[id] != &node;
    const Node* source = made_as_written[id];
    if (source == nullptr || computed_elsewhere ||
        std::find(node.inputs.begin(), node.inputs.end(), id) != node.inputs.end()) {
      continue;
    }
    AddLayers(*source, layers);
    open.insert(open.end(), source->inputs.begin(), source->inputs.end());
  }
  std::sort(layers.begin(), layers.end());
  layers.erase(std::unique(layers.begin(), layers.end()), layers.end());
  return layers;
}

PlanStep DescribeStep(const Step& step, const Plan& plan) {
  const Node& node = *step.node;
  PlanStep info{.label = node.Label(), .name = node.name, .type = node.type, .view = step.view};
  info.inputs.assign(node.inputs.begin(), node.inputs.end());
  info.outputs.assign(node.outputs.begin(), node.outputs.end());
  info.level = Level::kConstant;
  for (ValueId id : node.outputs) info.level = Join(info.level, plan.specs[id].level);
  if (!step.view && AllRanked(node, plan.specs)) info.cost = CostOf(node, plan.specs);
  info.kernel_bytes = step.kernel->bytes();
  for (const Product* product : step.kernel->products()) {
    if (info.backend != "onednn") info.backend = std::string(Name(product->backend()));
  }
  if (const auto precision = step.kernel->precision(); precision.has_value()) {
    info.precision = std::string(Name(*precision));
  }
  return info;
}

std::vector<int> Crossing(const PlanInfo& info) {
  std::vector<int> crossing;
  std::vector<bool> of_user(info.values.size(), false);
  for (const PlanStep& step : info.steps) {
    const bool user_part = step.part == PlanPart::kUser;
    for (int id : user_part ? step.outputs : step.inputs) {
      if (user_part) {
        of_user[id] = true;
      } else if (of_user[id]) {
        crossing.push_back(id);
      }
    }
  }
  std::sort(crossing.begin(), crossing.end());
  crossing.erase(std::unique(crossing.begin(), crossing.end()), crossing.end());
  return crossing;
}

}  // namespace

absl::string_view Name(PlanPart part) {
  constexpr absl::string_view kNames[] = {"user", "ad", "joint"};
  return kNames[static_cast<size_t>(part)];
}

absl::string_view Describe(PlanPart part) {
  constexpr absl::string_view kTexts[] = {"user part: once per request",
                                          "ad part: of every ad alone",
                                          "joint part: of every ad and the user"};
  return kTexts[static_cast<size_t>(part)];
}

std::vector<std::vector<int>> LayersOfSteps(const Plan& plan, const Plan* written) {
  const std::vector<const Node*> made_here = Producers(plan);
  const std::vector<const Node*> made_as_written =
      written == nullptr ? std::vector<const Node*>() : Producers(*written);
  std::vector<std::vector<int>> layers;
  for (const Step& step : plan.steps) {
    layers.push_back(LayersOf(*step.node, made_here, made_as_written));
  }
  return layers;
}

PlanInfo DescribePlan(const Plan& plan, const Plan* written, const Schedule* schedule) {
  PlanInfo info{.user_steps = plan.user_steps,
                .separable = schedule != nullptr,
                .shapes_known = ShapesKnown(plan)};
  if (schedule != nullptr) {
    info.tile_rows = schedule->tile_rows;
    info.heavy_weights = schedule->heavy_weights;
  }
  for (size_t id = 0; id < plan.graph.values.size(); ++id) {
    const Value& value = plan.graph.values[id];
    const TensorSpec& spec = plan.specs[id];
    info.values.push_back({value.name, KindOf(value.kind), spec.dtype, spec.shape, spec.level});
  }
  for (const NamedValue& output : plan.graph.outputs) info.outputs.push_back(output.value);
  std::vector<std::vector<int>> layers = LayersOfSteps(plan, written);
  const std::vector<ItemValues::Part> parts = ItemParts(plan);
  for (const Step& step : plan.steps) {
    PlanStep described = DescribeStep(step, plan);
    if (static_cast<int>(info.steps.size()) < plan.user_steps) {
      described.part = PlanPart::kUser;
    } else if (parts[info.steps.size()] != ItemValues::Part::kOther) {
      described.part = PlanPart::kAd;
    }
    described.layers = std::move(layers[info.steps.size()]);
    info.kernel_bytes += described.kernel_bytes;
    for (Cost* sum : {&info.cost, &info.part_costs[static_cast<size_t>(described.part)]}) {
      sum->flops += described.cost.flops;
      sum->bytes += described.cost.bytes;
    }
    info.steps.push_back(std::move(described));
  }
  info.crossing = Crossing(info);
  return info;
}

}  // namespace ulfd::engine

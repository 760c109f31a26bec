// SPDX-License-Identifier: Apache-2.0
#include "tools/explain/explanation.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tools/cli/text_table.h"

namespace ulfd::tools {
namespace {

using engine::Level;
using engine::ModelInfo;
using engine::PlanInfo;
using engine::PlanStep;

bool StandsFor(const PlanStep& step, int layer) {
  return std::binary_search(step.layers.begin(), step.layers.end(), layer);
}

// Whether some step of `plan` does just what the layer says: the steps that stand for it stand for
// nothing else and are the same as in the plan as written.
bool RunsAsWritten(const PlanInfo& plan, const PlanInfo& written, int layer) {
  std::vector<std::string> here, there;
  for (const PlanStep& step : plan.steps) {
    if (!StandsFor(step, layer)) continue;
    if (step.layers.size() > 1) return false;
    here.push_back(absl::StrCat(step.name, "\n", step.type));
  }
  for (const PlanStep& step : written.steps) {
    if (StandsFor(step, layer)) there.push_back(absl::StrCat(step.name, "\n", step.type));
  }
  std::sort(here.begin(), here.end());
  std::sort(there.begin(), there.end());
  return here == there;
}

LayerExplanation ExplainLayer(const Explanation& all, int index) {
  const engine::LayerInfo& layer = all.info->layers[index];
  LayerExplanation result;
  result.level = Level::kConstant;
  for (Level level : layer.top_levels) result.level = engine::Join(result.level, level);
  for (const PlanStep& step : all.written.steps) {
    // A step that stands for several layers (double_layers) is counted for the first.
    if (!step.layers.empty() && step.layers.front() == index) result.cost += step.cost;
  }
  for (size_t r = 0; r < all.info->rewrites.size(); ++r) {
    const std::vector<int>& layers = all.info->rewrites[r].layers;
    if (std::binary_search(layers.begin(), layers.end(), index)) {
      result.rewrites.push_back(static_cast<int>(r));
    }
  }
  const PlanInfo& plan = all.plan();
  for (size_t s = 0; s < plan.steps.size(); ++s) {
    if (StandsFor(plan.steps[s], index)) result.steps.push_back(static_cast<int>(s));
  }
  if (layer.type == "input_layer") {
    result.fate = Fate::kDeclared;
  } else if (result.steps.empty()) {
    result.fate = Fate::kRemoved;
  } else if (!RunsAsWritten(plan, all.written, index)) {
    result.fate = Fate::kRewritten;
  }
  return result;
}

// One line for all findings: a name may be there only once.
std::string DoubleLayersLine(const std::vector<engine::Cancellation>& found) {
  std::vector<std::string> names;
  for (const engine::Cancellation& one : found) {
    for (const std::string& name : one.double_layers) {
      const std::string quoted = absl::StrCat("\"", absl::CEscape(name), "\"");
      if (std::find(names.begin(), names.end(), quoted) == names.end()) names.push_back(quoted);
    }
  }
  return names.empty() ? "" : absl::StrCat("double_layers: [", absl::StrJoin(names, ", "), "]");
}

std::vector<std::string> Warnings(const Explanation& all) {
  std::vector<std::string> warnings;
  const ModelInfo& info = *all.info;
  if (!info.row_separable) {
    warnings.push_back(
        "ads are not proved independent of each other: a request is computed in one piece");
  }
  if (!info.proof_failure.empty()) {
    warnings.push_back(absl::StrCat("the proof fails at ", info.proof_failure));
  }
  if (!info.not_optimised.empty()) {
    warnings.push_back(absl::StrCat("the graph is executed as written: ", info.not_optimised));
  }
  if (!all.plan().shapes_known) {
    warnings.push_back(
        "some shape is known only to a request: figures count an unknown length as 1");
  }
  if (!all.shapes.as_written.empty()) {
    warnings.push_back(absl::StrCat("the request of --inputs runs as written, in one piece: ",
                                    all.shapes.as_written));
  }
  std::vector<std::string> guessed, unread;
  for (const engine::InputInfo& input : info.inputs) {
    if (!input.used) unread.push_back(input.name);
    if (input.used && !input.stated && input.feature < 0) guessed.push_back(input.name);
  }
  if (!guessed.empty()) {
    warnings.push_back(absl::StrCat(
        "shape or level is a guess for ", absl::StrJoin(guessed, ", "),
        ": the first request of another shape runs the graph as written, the next ones by a plan "
        "of their own (--inputs shows it); `inputs` in the manifest states it"));
  }
  if (!unread.empty()) {
    warnings.push_back(absl::StrCat("no layer reads ", absl::StrJoin(unread, ", ")));
  }
  for (const engine::Cancellation& found : all.cancellations) {
    warnings.push_back(absl::StrCat(found.label, " cancels: the mean of its input is up to ",
                                    HumanNumber(found.ratio),
                                    " deviations, and rounding that input to float32 shows as a "
                                    "relative error of ",
                                    absl::StrFormat("%.1e", found.error), " in its output"));
    if (found.obstacles.empty()) continue;
    warnings.push_back(absl::StrCat(found.label, ": rounding by ",
                                    absl::StrJoin(found.obstacles, ", "),
                                    " adds to it, but has no name or no version in double"));
  }
  if (!all.suggestion.empty()) {
    warnings.push_back(absl::StrCat("suggestion for the manifest: ", all.suggestion));
  }
  return warnings;
}

}  // namespace

absl::string_view Name(Fate fate) {
  static constexpr absl::string_view kNames[] = {"declared", "kept", "rewritten", "removed"};
  return kNames[static_cast<size_t>(fate)];
}

absl::string_view KnownFrom(const Explanation& all, const engine::InputInfo& input) {
  const std::vector<engine::InputShape>& shown = all.shapes.inputs;
  if (all.shapes.as_written.empty() &&
      std::any_of(shown.begin(), shown.end(),
                  [&](const engine::InputShape& shape) { return shape.name == input.name; })) {
    return "request";
  }
  return input.stated ? "stated" : "guessed";
}

Explanation Explain(const engine::Model& model, int64_t ads, const engine::RunResult* observed,
                    const RequestShapes& shapes) {
  Explanation all{.info = &model.info(),
                  .ads = ads,
                  .written = model.WrittenPlan(),
                  .optimised = model.OptimisedPlan(),
                  .shapes = shapes};
  if (!shapes.as_written.empty()) all.optimised.reset();
  for (size_t i = 0; i < all.info->layers.size(); ++i) {
    all.layers.push_back(ExplainLayer(all, static_cast<int>(i)));
  }
  all.cancellations = model.Cancellations(observed);
  all.suggestion = DoubleLayersLine(all.cancellations);
  all.warnings = Warnings(all);
  return all;
}

}  // namespace ulfd::tools

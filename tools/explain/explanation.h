// What `ulf explain` has to say of a model, before it becomes text, JSON or a picture.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_EXPLAIN_EXPLANATION_H_
#define ULFD_TOOLS_EXPLAIN_EXPLANATION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "engine/runtime/model.h"
#include "tools/explain/profile.h"

namespace ulfd::tools {

// What became of a layer of the file.
enum class Fate : uint8_t {
  kDeclared,   // input_layer: computes nothing.
  kKept,       // A step of its own, as written.
  kRewritten,  // Its work is done by steps that stand for other layers, too, or in another way.
  kRemoved,    // No step stands for it.
};
absl::string_view Name(Fate fate);  // "declared", "kept", "rewritten", "removed".

struct LayerExplanation {
  Fate fate = Fate::kKept;
  engine::Level level = engine::Level::kUnknown;  // The highest of its tops.
  engine::Cost cost;                              // As written.
  std::vector<int> rewrites;                      // Indices into ModelInfo::rewrites.
  std::vector<int> steps;                         // Of the plan that runs.
};

// A request of shapes that neither graph nor manifest states.
struct RequestShapes {
  std::vector<engine::InputShape> inputs;
  std::string as_written;  // Why no plan serves it; empty: one does.
};

struct Explanation {
  const engine::ModelInfo* info = nullptr;  // Borrowed.
  int64_t ads = 0;                          // For which figures are given.
  engine::PlanInfo written;
  std::optional<engine::PlanInfo> optimised;
  std::vector<LayerExplanation> layers;  // Per ModelInfo::layers.
  std::vector<engine::Cancellation> cancellations;
  std::string suggestion;         // A line for the manifest against all of them.
  std::vector<Profile> profiles;  // With --profile: of the plan that runs, then others.
  std::vector<std::string> warnings;
  RequestShapes shapes;  // Empty, unless those of --inputs are not known without it.

  // The plan that requests of the expected shapes run, or that of --inputs.
  const engine::PlanInfo& plan() const { return optimised.has_value() ? *optimised : written; }
};

// `observed`: a run of the model with keep_all, whose magnitudes tell where digits are lost;
// without one (nullptr) the weights alone do.  `shapes`: those that the model was loaded for, or
// why there is no plan for them.
Explanation Explain(const engine::Model& model, int64_t ads, const engine::RunResult* observed,
                    const RequestShapes& shapes = {});

// "stated" (by the graph or the manifest), "request" (--inputs has it) or "guessed" (from the
// layers that read it).
absl::string_view KnownFrom(const Explanation& all, const engine::InputInfo& input);

// For a terminal.
std::string ExplainText(const Explanation& all);
// A page with pictures of the graph and of the steps, for a browser: one file that needs no other
// and no network, of inline SVG and CSS, no scripts, light and dark.
std::string ExplainHtml(const Explanation& all);
// For programs one object: name, version, ads (for which figures are given), memory_bytes,
// row_separable, proof_failure, not_optimised, layers, rewrites, plans {written, optimised or
// null}, profiles, cancellations, suggestion, warnings, notices; and of --inputs, where nothing
// else tells its shapes: shapes and, if no plan serves them, as_written (why).  A cost is {flops,
// bytes}, each {per_user, per_ad, total}, the total for `ads` ads.
std::string ExplainJson(const Explanation& all);

}  // namespace ulfd::tools

#endif  // ULFD_TOOLS_EXPLAIN_EXPLANATION_H_

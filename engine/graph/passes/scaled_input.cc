// x W_a + (x * s) W_m with s of the user -> x (W_a + diag(s) W_m): narrower by the columns of
// x * s, with weights that are made once per user.
// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/graph/passes/columns.h"
#include "engine/graph/passes/passes.h"
#include "engine/graph/passes/weights.h"
#include "engine/layers/fused/fused_fc.h"
#include "engine/layers/fused/scaled_weights.h"

namespace ulfd::engine {

namespace {

// Making the weights costs about 3 operations per weight and user; the products saved are worth it
// from this many ads on.
constexpr double kWorthAds = 32;

// One block that is x * s.
struct Scaled {
  int block = 0;      // In the layer's list.
  int x_block = 0;    // The block that holds x.
  int64_t x_row = 0;  // Where x's columns begin in that block.
  ValueId s = kNoValue;
  int product = 0;  // The multiply node.
};

bool SameColumns(const Columns& a, const FusedFcOptions::Block& b, ValueId b_value) {
  return a.value == b_value && a.offset >= b.offset && a.offset + a.width <= b.offset + b.k;
}

// Whether block `index` is x * s, with x among the other blocks.
bool Match(const GraphEditor& editor, int node_index, int index, Scaled& match) {
  const Node& node = editor.node(node_index);
  const FusedFcOptions& fc = *editor.semantics(node_index).fused_fc;
  const FusedFcOptions::Block& block = fc.blocks[index];
  const ValueId value = node.inputs[block.input];
  const int product = editor.Producer(value);
  if (product < 0 || editor.semantics(product).op != Semantics::Op::kMultiply) return false;
  const int64_t width = RowWidth(editor.shape(value));
  if (block.offset != 0 || block.k != width) return false;
  for (int side : {0, 1}) {
    const ValueId x = editor.node(product).inputs[side], s = editor.node(product).inputs[1 - side];
    if (editor.spec(x).level != Level::kAd || editor.spec(s).level != Level::kUser ||
        editor.shape(s)[0] != Dim::Users() || editor.shape(s).rank() < 2 ||
        RowWidth(editor.shape(x)) != width || RowWidth(editor.shape(s)) != width) {
      continue;
    }
    std::vector<int> through;
    const std::vector<Columns> columns = TraceColumns(editor, x, through);
    if (columns.size() != 1) continue;
    for (size_t b = 0; b < fc.blocks.size(); ++b) {
      if (static_cast<int>(b) == index ||
          !SameColumns(columns[0], fc.blocks[b], node.inputs[fc.blocks[b].input])) {
        continue;
      }
      match = {index, static_cast<int>(b), columns[0].offset - fc.blocks[b].offset, s, product};
      return true;
    }
  }
  return false;
}

// The layer's weights without those of the scaled columns, and those; `blocks`: the blocks that
// stay.
ScaledWeightsOptions SplitWeights(const FusedFcOptions& old, const Scaled& match,
                                  std::vector<FusedFcOptions::Block>& blocks) {
  const int64_t width = old.blocks[match.block].k;
  ScaledWeightsOptions weights{.k = old.k() - width, .n = old.n()};
  int64_t row = 0, scaled_row = 0, x_row = 0;
  for (int b = 0; b < static_cast<int>(old.blocks.size()); ++b) {
    const FusedFcOptions::Block& block = old.blocks[b];
    if (b == match.block) {
      scaled_row = row;
    } else {
      if (b == match.x_block) x_row = static_cast<int64_t>(weights.base.size()) / old.n();
      AppendRows(old.weight, row, block.k, weights.base);
      blocks.push_back(block);
    }
    row += block.k;
  }
  weights.first_row = x_row + match.x_row;
  AppendRows(old.weight, scaled_row, width, weights.scaled);
  return weights;
}

}  // namespace

absl::Status FoldScaledInputs(GraphEditor& editor) {
  for (int i = 0; i < editor.size(); ++i) {
    if (editor.semantics(i).op != Semantics::Op::kFusedFc) continue;
    const Node& node = editor.node(i);
    const FusedFcOptions& old = *editor.semantics(i).fused_fc;
    // Matrices of up to four columns have a layout of their own.
    if (!old.flat || old.weight_input >= 0 || old.n() <= 4 ||
        editor.spec(node.outputs[0]).level != Level::kAd) {
      continue;
    }
    Scaled match;
    int index = 0;
    while (index < static_cast<int>(old.blocks.size()) && !Match(editor, i, index, match)) ++index;
    if (index == static_cast<int>(old.blocks.size())) continue;
    const int64_t width = old.blocks[match.block].k;
    const int64_t rest = old.k() - width;
    if (2.0 * kWorthAds * static_cast<double>(width) < 3.0 * static_cast<double>(rest)) continue;
    if (!editor.TakeCopy({&old.weight}, old.k() * old.n())) continue;

    FusedFcOptions options = old;
    options.blocks.clear();
    ScaledWeightsOptions weights = SplitWeights(old, match, options.blocks);
    const ValueId made = editor.NewValue(absl::StrCat(node.name, "/weights"));
    std::vector<ValueId> inputs;
    for (FusedFcOptions::Block& block : options.blocks) {
      block.input = PlaceInput(node.inputs[block.input], inputs);
    }
    if (options.init >= 0) options.init = PlaceInput(node.inputs[options.init], inputs);
    options.weight_input = static_cast<int>(inputs.size());
    inputs.push_back(made);
    options.weight = {nullptr, rest, old.n(), old.n(), 1};
    options.owner = nullptr;
    std::string text =
        absl::StrCat(node.Label(), ": ", width, " columns of ", editor.node(match.product).Label(),
                     " go into weights made once per user");
    std::vector<Node> added;
    added.push_back(editor.NewNode(i, "weights", "scaled_weights",
                                   std::make_shared<ScaledWeights>(std::move(weights)), {match.s},
                                   {made}));
    added.push_back(editor.NewNode(i, "", node.type, std::make_shared<FusedFc>(std::move(options)),
                                   std::move(inputs), node.outputs));
    const int before = editor.size();
    RETURN_IF_ERROR(editor.Replace({i, match.product}, i, std::move(added), std::move(text)));
    i += editor.size() - before;
  }
  return absl::OkStatus();
}

}  // namespace ulfd::engine

// inner_product_layer and inner_product_layer_ex -> fused_fc, the form that other passes work on.
// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/graph/passes/passes.h"
#include "engine/graph/passes/weights.h"
#include "engine/layers/fused/fused_fc.h"

namespace ulfd::engine {

namespace {

// W1 above W2.
void Stack(absl::Span<const MatrixRef> matrices, FusedFcOptions& options) {
  std::vector<float> rows;
  for (const MatrixRef& m : matrices) AppendRows(m, 0, m.k, rows);
  SetWeight(std::move(rows), matrices[0].n, options);
}

// Which input of an inner_product_layer_ex over tensors of two levels is the user's; -1: both have
// the same level.
int UserSide(const GraphEditor& editor, const Node& node) {
  for (int side : {0, 1}) {
    if (editor.spec(node.inputs[side]).level < Level::kAd &&
        editor.spec(node.inputs[1 - side]).level == Level::kAd) {
      return side;
    }
  }
  return -1;
}

// The user's product once per user, from which the ads' sums start: what the layer is for.
absl::Status SplitEx(GraphEditor& editor, int index, int user) {
  const Node& node = editor.node(index);
  const Semantics& semantics = editor.semantics(index);
  const auto side = [&](int input) {
    FusedFcOptions options{.weight = semantics.matrices[input]};
    options.blocks.push_back({0, 0, options.weight.k});
    return options;
  };
  FusedFcOptions of_user = side(user), of_ads = side(1 - user);
  of_user.bias.assign(semantics.bias.begin(), semantics.bias.end());
  of_ads.init = 1;
  const ValueId partial = editor.NewValue(absl::StrCat(node.name, "/user"));
  std::vector<Node> added;
  added.push_back(editor.NewNode(index, "user", node.type,
                                 std::make_shared<FusedFc>(std::move(of_user)), {node.inputs[user]},
                                 {partial}));
  added.push_back(editor.NewNode(index, "", node.type, std::make_shared<FusedFc>(std::move(of_ads)),
                                 {node.inputs[1 - user], partial}, node.outputs));
  const std::string text = absl::StrCat(node.Label(), " takes part in fusions");
  return editor.Replace({index}, index, std::move(added), text);
}

absl::Status Unify(GraphEditor& editor, int index) {
  const Semantics& semantics = editor.semantics(index);
  const bool ex = semantics.op == Semantics::Op::kFullyConnectedEx;
  if ((!ex && semantics.op != Semantics::Op::kFullyConnected) || semantics.bias_rows > 1)
    return absl::OkStatus();
  const Node& node = editor.node(index);
  FusedFcOptions options{.weight = semantics.matrices[0],
                         .flat = editor.shape(node.inputs[0]).rank() == 2};
  if (options.weight.k == 0 || options.weight.n == 0) return absl::OkStatus();
  const int user = ex ? UserSide(editor, node) : -1;
  if (user >= 0 && semantics.matrices[1].k > 0) return SplitEx(editor, index, user);
  for (size_t b = 0; b < semantics.matrices.size(); ++b) {
    options.blocks.push_back({static_cast<int>(b), 0, semantics.matrices[b].k});
  }
  if (ex) {
    const int64_t k = semantics.matrices[0].k + semantics.matrices[1].k;
    if (!editor.TakeCopy({&semantics.matrices[0], &semantics.matrices[1]}, k * options.n()))
      return absl::OkStatus();
    Stack(semantics.matrices, options);
  }
  options.bias.assign(semantics.bias.begin(), semantics.bias.end());
  Node fused = editor.NewNode(index, "", "fused_fc", std::make_shared<FusedFc>(std::move(options)),
                              node.inputs, node.outputs);
  const std::string text = absl::StrCat(node.Label(), " takes part in fusions");
  return editor.Replace({index}, index, {std::move(fused)}, text);
}

}  // namespace

absl::Status UnifyFullyConnected(GraphEditor& editor) {
  return editor.ForEach([&](int index) { return Unify(editor, index); });
}

}  // namespace ulfd::engine

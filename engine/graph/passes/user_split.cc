// Column blocks of several levels -> the product of the user's columns once per user, where the
// ads' sums start (what the format calls inner_product_layer_ex).
// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/graph/passes/passes.h"
#include "engine/graph/passes/weights.h"
#include "engine/layers/fused/fused_fc.h"

namespace ulfd::engine {

namespace {

// Where a block is constant for all ads of a user.
bool IsShared(const GraphEditor& editor, ValueId value) {
  return editor.spec(value).level < Level::kAd;
}

absl::Status SplitUser(GraphEditor& editor, int index) {
  if (editor.semantics(index).op != Semantics::Op::kFusedFc) return absl::OkStatus();
  const Node& node = editor.node(index);
  const FusedFcOptions& whole = *editor.semantics(index).fused_fc;
  if (!whole.flat || whole.init >= 0) return absl::OkStatus();
  FcPart user, ads;
  int64_t row = 0;
  for (const FusedFcOptions::Block& block : whole.blocks) {
    const ValueId value = node.inputs[block.input];
    (IsShared(editor, value) ? user : ads).Add(whole, block, value, row);
    row += block.k;
  }
  // Without ads' columns everything is the user's already.
  if (user.inputs.empty() || ads.inputs.empty()) return absl::OkStatus();
  const int64_t user_k = user.options.k(), ad_k = ads.options.k();
  user.options.bias = whole.bias;
  ads.options.epilogue = whole.epilogue;
  const ValueId partial = editor.NewValue(absl::StrCat(node.name, "/user"));
  ads.options.init = static_cast<int>(ads.inputs.size());
  ads.inputs.push_back(partial);
  std::vector<ValueId> user_inputs = std::move(user.inputs), ad_inputs = std::move(ads.inputs);
  std::vector<Node> added;
  added.push_back(editor.NewNode(index, "user", "inner_product_layer_ex", user.Make(whole.n()),
                                 std::move(user_inputs), {partial}));
  added.push_back(editor.NewNode(index, "", "inner_product_layer_ex", ads.Make(whole.n()),
                                 std::move(ad_inputs), node.outputs));
  std::string text = absl::StrCat(node.Label(), ": ", user_k, " of ", user_k + ad_k,
                                  " columns are the user's, multiplied once per user");
  return editor.Replace({index}, index, std::move(added), std::move(text));
}

}  // namespace

absl::Status SplitUserColumns(GraphEditor& editor) {
  return editor.ForEach([&](int index) { return SplitUser(editor, index); });
}

}  // namespace ulfd::engine

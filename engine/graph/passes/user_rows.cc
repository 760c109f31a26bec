// What is computed per ad from nothing but the user's rows, repeated for each ad -> computed once
// per user, and repeated behind it where something needs that.
// SPDX-License-Identifier: Apache-2.0
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/graph/passes/columns.h"
#include "engine/graph/passes/passes.h"
#include "engine/layers/fused/repeat_rows.h"
#include "engine/layers/types/building_blocks.h"

namespace ulfd::engine {
namespace {

using Op = Semantics::Op;

constexpr char kType[] = "repeat_rows";

// Whether the node only repeats rows of the user for each ad.
bool IsRepeat(const GraphEditor& editor, int index) {
  if (index < 0 || editor.semantics(index).op != Op::kBroadcast) return false;
  const Node& node = editor.node(index);
  if (node.inputs.size() != 2) return false;
  Shape rows = editor.shape(node.inputs[0]);
  const Shape& out = editor.shape(node.outputs[0]);
  if (rows.rank() != out.rank() || rows[0] != Dim::Users() || out[0] != Dim::Ads()) return false;
  rows[0] = out[0];
  return rows == out && editor.spec(node.inputs[1]).level == Level::kAd;
}

bool OfAds(const GraphEditor& editor, ValueId value) {
  return editor.spec(value).level == Level::kAd;
}

// The first tensor of the ads among what some nodes read: it tells how many rows there are.
ValueId FindAds(const GraphEditor& editor, const std::vector<int>& nodes) {
  for (int index : nodes) {
    for (ValueId input : editor.node(index).inputs) {
      if (OfAds(editor, input)) return input;
    }
  }
  return kNoValue;
}

// Puts `added`, which make `of_user`, and its repetition in the place of node `index`.
absl::Status Repeat(GraphEditor& editor, const std::vector<int>& replaced, int index,
                    std::vector<Node> added, ValueId of_user, ValueId ads, std::string text) {
  added.push_back(editor.NewNode(index, "repeat", kType, MakeRepeatRows(), {of_user, ads},
                                 editor.node(index).outputs));
  return editor.Replace(replaced, index, std::move(added), std::move(text));
}

// Columns of a tensor of the user, repeated by fuse, concat and slice.
absl::Status TakeColumns(GraphEditor& editor, int index) {
  const Node& node = editor.node(index);
  const ValueId output = node.outputs[0];
  const TensorSpec spec = editor.spec(output);
  if (IsRepeat(editor, index) || spec.dtype != DType::kFloat32 || RowWidth(spec.shape) < 1) {
    return absl::OkStatus();
  }
  std::vector<int> through;
  const std::vector<Columns> columns = TraceColumns(editor, output, through);
  const ValueId ads = FindAds(editor, through);
  if (columns.size() != 1 || ads == kNoValue) return absl::OkStatus();
  const auto [value, offset, width] = columns[0];
  if (editor.spec(value).level != Level::kUser || editor.shape(value)[0] != Dim::Users()) {
    return absl::OkStatus();
  }
  std::vector<Node> added;
  ValueId rows = value;
  if (width != RowWidth(editor.shape(value))) {
    rows = editor.NewValue(absl::StrCat(node.name, "/columns"));
    added.push_back(editor.NewNode(index, "columns", "slice_layer", MakeSlice({{offset, width}}),
                                   {value}, {rows}));
  }
  Shape wanted = spec.shape;
  wanted[0] = Dim::Users();
  if (editor.shape(value) != wanted) {
    std::vector<int64_t> sizes = {-1};
    for (int d = 1; d < wanted.rank(); ++d) sizes.push_back(wanted[d].value());
    const ValueId shaped = editor.NewValue(absl::StrCat(node.name, "/user"));
    added.push_back(editor.NewNode(index, "user", "reshape_layer", MakeReshape(std::move(sizes)),
                                   {rows}, {shaped}));
    rows = shaped;
  }
  return Repeat(editor, through, index, std::move(added), rows, ads,
                absl::StrCat(node.Label(), " repeats \"", editor.graph().values[value].name, "\""));
}

// Whether a layer repeats the user's row itself, where others are of the ads.
bool RepeatsRows(const GraphEditor& editor, int index) {
  const Op op = editor.semantics(index).op;
  return IsArithmetic(op) || op == Op::kWhere || op == Op::kBatchDot ||
         ExpressionOf(*editor.node(index).layer) != nullptr;
}

// Lets a layer read what is repeated before it is, if that gives the same; if it then depends on no
// ad, it is repeated itself.
absl::Status ReadBefore(GraphEditor& editor, int index) {
  Node node = editor.node(index);
  const ValueId output = node.outputs[0];
  ValueId ads = kNoValue;
  bool of_user = true;
  TensorSpecs specs;
  for (ValueId& input : node.inputs) {
    const int before = editor.Producer(input);
    if (IsRepeat(editor, before)) {
      ads = editor.node(before).inputs[1];
      input = editor.node(before).inputs[0];
    }
    of_user &= !OfAds(editor, input);
    specs.push_back(editor.spec(input));
  }
  if (ads == kNoValue || !(of_user || RepeatsRows(editor, index))) return absl::OkStatus();
  const absl::StatusOr<TensorSpecs> out = node.layer->Infer(specs);
  if (!out.ok()) return absl::OkStatus();
  TensorSpec wanted = editor.spec(output);
  if (of_user) {
    wanted.level = Level::kUser;
    wanted.shape[0] = Dim::Users();
  }
  if (out->front().level != wanted.level || out->front().shape != wanted.shape) {
    return absl::OkStatus();
  }
  std::string text = absl::StrCat(
      node.Label(), of_user ? " is computed once per user" : " reads the user's rows unrepeated");
  if (!of_user) return editor.Replace({index}, index, {std::move(node)}, std::move(text));
  node.outputs = {editor.NewValue(absl::StrCat(node.name, "/user"))};
  const ValueId once = node.outputs[0];
  std::vector<Node> added;
  added.push_back(std::move(node));
  return Repeat(editor, {index}, index, std::move(added), once, ads, std::move(text));
}

}  // namespace

absl::Status HoistUserRows(GraphEditor& editor) {
  return editor.ForEach([&](int i) {
    if (IsRepeat(editor, i) || editor.node(i).outputs.size() != 1 ||
        !OfAds(editor, editor.node(i).outputs[0])) {
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(ReadBefore(editor, i));
    return editor.changed() ? absl::OkStatus() : TakeColumns(editor, i);
  });
}

}  // namespace ulfd::engine

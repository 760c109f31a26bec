// Two products of matrices and a softmax in between -> one step that never writes the (rows, heads,
// queries, keys) tensor, reads queries, keys and values where they lie, and writes as what follows
// reads.
// SPDX-License-Identifier: Apache-2.0
#include "engine/layers/fused/dot_product_attention.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/graph/passes/affine.h"
#include "engine/graph/passes/passes.h"
#include "engine/layers/checks.h"

namespace ulfd::engine {
namespace {

using Op = Semantics::Op;
using Order = std::vector<int>;

// The kernel computes queries side by side: of fewer it makes poor use.
constexpr int64_t kFewQueries = 4;
// On the way to an operand, and in all: real ones have three or four.
constexpr int kMostSteps = 8;
constexpr size_t kMostNodes = 32;

struct Match {
  std::vector<int> nodes;
  ValueId q = kNoValue, k = kNoValue, v = kNoValue, y = kNoValue;
  std::vector<ValueId> masks;  // From the softmax on; those of the options are as well.
  double scale = 1;
  DotProductOptions options;
};

// x of x times a number.
std::optional<std::pair<ValueId, double>> Scaled(const GraphEditor& editor, int index) {
  const std::optional<Link> link = AsLink(editor, index);
  if (!link.has_value() || link->period != 1) return std::nullopt;
  std::vector<Affine> columns(1);
  Apply(editor, *link, columns);
  const Affine& column = columns[0];
  if (column.mean != 0 || column.shift != 0 || !Representable(column.scale)) return std::nullopt;
  return std::pair(link->x, column.scale);
}

// What the operand of a product is made of by transpositions and numbers alone.
ValueId Operand(const GraphEditor& editor, ValueId value, Order& order, Match& match) {
  for (int step = 0; step < kMostSteps; ++step) {
    const int before = editor.Producer(value);
    if (before < 0) return value;
    const Semantics& semantics = editor.semantics(before);
    if (semantics.op == Op::kTranspose && semantics.perm[0] == 0) {
      for (int& axis : order) axis = semantics.perm[axis];
      value = editor.node(before).inputs[0];
    } else if (const auto scaled = Scaled(editor, before); scaled.has_value()) {
      match.scale *= scaled->second;
      value = scaled->first;
    } else {
      return value;
    }
    match.nodes.push_back(before);
  }
  return value;
}

Order InOrder(int rank, bool swapped) {
  Order order(rank);
  std::iota(order.begin(), order.end(), 0);
  if (swapped) std::swap(order[rank - 1], order[rank - 2]);
  return order;
}

// The product of queries and keys that these logits are made of by numbers and masks; -1: there is
// none.
int FindScores(const GraphEditor& editor, ValueId logits, Match& match) {
  const int before = editor.OnlyReader(logits) < 0 ? -1 : editor.Producer(logits);
  if (before < 0 || match.nodes.size() >= kMostNodes) return -1;
  const Op op = editor.semantics(before).op;
  const std::vector<ValueId>& in = editor.node(before).inputs;
  match.nodes.push_back(before);
  if (op == Op::kBatchDot) return before;
  if (const auto scaled = Scaled(editor, before); scaled.has_value()) {
    match.scale *= scaled->second;
    return FindScores(editor, scaled->first, match);
  }
  if (match.masks.size() == kMostMasks) return -1;
  const auto follow = [&](int side, ValueId mask, AttentionMask kind, float number) {
    if (editor.shape(in[side]) != editor.shape(logits)) return -1;
    Match masked = match;
    masked.masks.push_back(mask);
    masked.options.masks.push_back({kind, number});
    const int scores = FindScores(editor, in[side], masked);
    if (scores >= 0) match = std::move(masked);
    return scores;
  };
  const float behind = static_cast<float>(match.scale);  // What multiplies a mask, too.
  if (op == Op::kSubtract) return follow(0, in[1], AttentionMask::kAdded, -behind);
  if (op == Op::kAdd) {
    const int scores = follow(0, in[1], AttentionMask::kAdded, behind);
    return scores >= 0 ? scores : follow(1, in[0], AttentionMask::kAdded, behind);
  }
  if (op != Op::kWhere) return -1;
  if (const std::optional<float> pad = Filled(editor, in[2]); pad.has_value()) {
    return follow(1, in[0], AttentionMask::kKeeps, *pad * behind);
  }
  const std::optional<float> pad = Filled(editor, in[1]);
  return pad.has_value() ? follow(2, in[0], AttentionMask::kDrops, *pad * behind) : -1;
}

bool MatchAttention(const GraphEditor& editor, int softmax, Match& match) {
  const Node& node = editor.node(softmax);
  const Shape shape = editor.shape(node.outputs[0]);
  const int rank = shape.rank();
  if ((rank != 3 && rank != 4) || editor.semantics(softmax).axis != rank - 1) return false;
  if (!shape[rank - 2].IsConst() || shape[rank - 2].value() < kFewQueries) return false;
  match.nodes = {softmax};
  const ValueId weights = node.outputs[0];
  const int product = editor.OnlyReader(weights);
  if (product < 0 || editor.semantics(product).op != Op::kBatchDot ||
      editor.semantics(product).transpose_a || editor.node(product).inputs[0] != weights ||
      editor.node(product).inputs[1] == weights) {
    return false;
  }
  const int scores = FindScores(editor, node.inputs[0], match);
  if (scores < 0) return false;
  const auto whole = [&](ValueId id) { return editor.shape(id).rank() == rank; };
  const std::vector<ValueId>& in = editor.node(scores).inputs;
  match.v = editor.node(product).inputs[1];
  if (!whole(in[0]) || !whole(in[1]) || !whole(match.v)) return false;
  DotProductOptions& options = match.options;
  options.q = InOrder(rank, editor.semantics(scores).transpose_a);
  options.k = InOrder(rank, !editor.semantics(scores).transpose_b);
  options.v = InOrder(rank, editor.semantics(product).transpose_b);
  options.y = InOrder(rank, false);
  match.nodes.push_back(product);
  match.q = Operand(editor, in[0], options.q, match);
  match.k = Operand(editor, in[1], options.k, match);
  const double scale = match.scale;
  match.v = Operand(editor, match.v, options.v, match);
  if (match.scale != scale) return false;  // Of the values: nothing here multiplies by that.
  match.y = editor.node(product).outputs[0];
  const int behind = editor.OnlyReader(match.y);
  if (behind >= 0 && editor.semantics(behind).op == Op::kTranspose &&
      editor.semantics(behind).perm[0] == 0) {
    const Order& perm = editor.semantics(behind).perm;
    for (int i = 0; i < rank; ++i) options.y[perm[i]] = i;
    match.nodes.push_back(behind);
    match.y = editor.node(behind).outputs[0];
  }
  options.scale = static_cast<float>(match.scale);
  return Representable(match.scale);
}

absl::Status FuseSoftmax(GraphEditor& editor, int index) {
  if (editor.semantics(index).op != Op::kSoftmax) return absl::OkStatus();
  Match match;
  if (!MatchAttention(editor, index, match)) return absl::OkStatus();
  std::vector<ValueId> inputs = {match.q, match.k, match.v};
  inputs.insert(inputs.end(), match.masks.rbegin(), match.masks.rend());
  absl::c_reverse(match.options.masks);
  const int at = editor.Producer(match.y);
  Node step = editor.NewNode(index, "", "dot_product_attention",
                             std::make_shared<DotProductAttentionLayer>(std::move(match.options)),
                             inputs, {match.y});
  TensorSpecs specs;
  for (ValueId input : inputs) specs.push_back(editor.spec(input));
  const absl::StatusOr<TensorSpecs> out = step.layer->Infer(specs);
  if (!out.ok() || !GraphEditor::SameSpec(out->front(), editor.spec(match.y)))
    return absl::OkStatus();
  std::string text = absl::StrCat(editor.node(index).Label(), " and the products before and behind",
                                  match.masks.empty() ? "" : ", with masks");
  return editor.Replace(match.nodes, at, {std::move(step)}, std::move(text));
}

}  // namespace

absl::Status FuseDotProductAttention(GraphEditor& editor) {
  return editor.ForEach([&](int index) { return FuseSoftmax(editor, index); });
}

}  // namespace ulfd::engine

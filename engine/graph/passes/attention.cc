// The attention unit of DIN: a fully connected layer over any of q, k, q - k, k - q, q + k and
// q * k, further layers over the same positions, and usually a mask, a softmax and a weighted
// sum -> one step that never writes the (ads, T, 4E) tensor.
//
// The first layer is linear in each of its blocks, so that
//   [q, k, q - k, q * k] W + b = q (Wq + Wd) + k (Wk - Wd) + (q * k) Wp + b,
// whatever the order, the subset and the signs.  With B(q) = (Wk - Wd) + diag(q) Wp it is k B(q) +
// (q (Wq + Wd) + b): E columns instead of 4E.
// SPDX-License-Identifier: Apache-2.0
#include "engine/layers/fused/attention.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/graph/passes/affine.h"
#include "engine/graph/passes/columns.h"
#include "engine/graph/passes/passes.h"
#include "engine/graph/passes/weights.h"
#include "engine/layers/fused/fused_fc.h"

namespace ulfd::engine {

namespace {

using Op = Semantics::Op;

// weight * operand, or the product of both operands.
struct Term {
  ValueId operand = kNoValue;
  float sign = 1;
  bool product = false;
};

// What one block of the first layer is made of.
class BlockReader {
 public:
  BlockReader(const GraphEditor& editor, const Shape& shape) : editor_(editor), shape_(shape) {}

  // false: not a sum or a product of a query and keys.
  bool Read(ValueId value, float sign, int depth) {
    if (Operand(value)) {
      terms_.push_back({value, sign, false});
      return true;
    }
    const int producer = editor_.Producer(value);
    if (producer < 0 || depth == 0) return false;
    nodes_.push_back(producer);
    const Node& node = editor_.node(producer);
    switch (editor_.semantics(producer).op) {
      case Op::kBroadcast:
        return Read(node.inputs[0], sign, depth - 1);
      case Op::kAdd:
        return Read(node.inputs[0], sign, depth - 1) && Read(node.inputs[1], sign, depth - 1);
      case Op::kSubtract:
        return Read(node.inputs[0], sign, depth - 1) && Read(node.inputs[1], -sign, depth - 1);
      case Op::kMultiply: {
        const std::optional<ValueId> a = Factor(node.inputs[0]), b = Factor(node.inputs[1]);
        if (!a.has_value() || !b.has_value()) return false;
        if (!(Query(*a) && Keys(*b)) && !(Query(*b) && Keys(*a))) return false;
        terms_.push_back({kNoValue, sign, true});
        return Take(*a) && Take(*b);
      }
      default:
        return false;
    }
  }

  const std::vector<Term>& terms() const { return terms_; }
  const std::vector<int>& nodes() const { return nodes_; }
  ValueId query() const { return query_; }
  ValueId keys() const { return keys_; }

 private:
  // [ads, 1, E], or the ads' rows under numpy's rules.
  bool Query(ValueId value) const {
    const Shape& s = editor_.shape(value);
    return s.rank() == 3 && s[0] == Dim::Ads() && s[1] == Dim::Of(1) && s[2] == shape_[2];
  }
  // [users, T, E] or [ads, T, E].
  bool Keys(ValueId value) const {
    const Shape& s = editor_.shape(value);
    return s.rank() == 3 && (s[0] == Dim::Users() || s[0] == Dim::Ads()) && s[1] == shape_[1] &&
           s[1] != Dim::Of(1) && s[2] == shape_[2];
  }
  // The tensor itself, without the broadcast_to before it.
  std::optional<ValueId> Factor(ValueId value) {
    for (int depth = 0; depth < 4; ++depth) {
      const int producer = editor_.Producer(value);
      if (producer < 0 || editor_.semantics(producer).op != Op::kBroadcast) return value;
      nodes_.push_back(producer);
      value = editor_.node(producer).inputs[0];
    }
    return std::nullopt;
  }
  bool Take(ValueId value) {
    ValueId& role = Query(value) ? query_ : keys_;
    if (role == kNoValue) role = value;
    return role == value;
  }
  // A query or keys that nothing computes from others in a way that is looked through.
  bool Operand(ValueId value) {
    if (!Query(value) && !Keys(value)) return false;
    const int producer = editor_.Producer(value);
    if (producer >= 0) {
      const Op op = editor_.semantics(producer).op;
      const bool inner =
          op == Op::kBroadcast || op == Op::kAdd || op == Op::kSubtract || op == Op::kMultiply;
      // Keys of each ad may be a mere mixture of the two.
      if (inner && Keys(value) && editor_.shape(value)[0] == Dim::Ads()) return false;
    }
    return Take(value);
  }

  const GraphEditor& editor_;
  const Shape& shape_;  // [ads, T, E]
  std::vector<Term> terms_;
  std::vector<int> nodes_;
  ValueId query_ = kNoValue, keys_ = kNoValue;
};

// Everything that one unit replaces, from its first layer on.
struct Match {
  std::vector<int> nodes;
  ValueId query = kNoValue, keys = kNoValue, mask = kNoValue, values = kNoValue;
  ValueId output = kNoValue;
  AttentionOptions options;
  std::string blocks;  // "q, k, q - k, q * k"
  size_t block_count = 0;
  // What the unit's weights are made of, and how many numbers they are at most.
  std::vector<const MatrixRef*> weights;
  int64_t floats = 0;

  void AddWeights(const FusedFcOptions& fc) {
    weights.push_back(&fc.weight);
    floats += 2 * fc.k() * fc.n();  // As they are, and laid out for the kernel.
  }
};

std::string Text(ValueId query, const std::vector<Term>& terms) {
  std::string text;
  for (const Term& term : terms) {
    absl::StrAppend(&text,
                    term.sign < 0  ? (text.empty() ? "-" : " - ")
                    : text.empty() ? ""
                                   : " + ",
                    term.product            ? "q * k"
                    : term.operand == query ? "q"
                                            : "k");
  }
  return text;
}

// Adds sign * rows [row, row + e) of w to `sum` [e, n].
void AddRows(const MatrixRef& w, int64_t row, int64_t e, float sign, std::vector<double>& sum) {
  sum.resize(e * w.n);
  for (int64_t i = 0; i < e; ++i) {
    for (int64_t j = 0; j < w.n; ++j) sum[i * w.n + j] += sign * w.at(row + i, j);
  }
}

template <typename Values>
SharedFloats Share(const Values& values) {
  if (values.empty()) return nullptr;
  return std::make_shared<const std::vector<float>>(values.begin(), values.end());
}

AttentionFinish FinishOf(const FusedFcOptions& fc) { return {fc.bias, fc.epilogue}; }

// The first layer, if it is one.
bool MatchFirst(const GraphEditor& editor, int index, Match& match) {
  const Node& node = editor.node(index);
  const FusedFcOptions& fc = *editor.semantics(index).fused_fc;
  const Shape& out = editor.shape(node.outputs[0]);
  if (fc.flat || fc.init >= 0 || out[0] != Dim::Ads() || !out[1].IsConst()) {
    return false;
  }
  match.nodes = {index};
  std::vector<double> wq, wk, wp;
  int64_t row = 0, e = 0;
  for (const FusedFcOptions::Block& block : fc.blocks) {
    const ValueId value = node.inputs[block.input];
    const Shape& shape = editor.shape(value);
    if (shape.rank() != 3 || block.offset != 0 || Dim::Of(block.k) != shape[2]) return false;
    if (e == 0) e = block.k;
    if (block.k != e) return false;
    BlockReader reader(editor, shape);
    if (!reader.Read(value, 1, 4)) return false;
    if (match.query == kNoValue) match.query = reader.query();
    if (match.keys == kNoValue) match.keys = reader.keys();
    if ((reader.query() != kNoValue && reader.query() != match.query) ||
        (reader.keys() != kNoValue && reader.keys() != match.keys)) {
      return false;
    }
    for (const Term& term : reader.terms()) {
      AddRows(fc.weight, row, e, term.sign,
              term.product                  ? wp
              : term.operand == match.query ? wq
                                            : wk);
    }
    match.nodes.insert(match.nodes.end(), reader.nodes().begin(), reader.nodes().end());
    absl::StrAppend(&match.blocks, match.blocks.empty() ? "" : ", ",
                    Text(match.query, reader.terms()));
    row += block.k;
  }
  if (match.query == kNoValue || match.keys == kNoValue) return false;
  match.AddWeights(fc);
  match.block_count = fc.blocks.size();
  match.options.width = e;
  match.options.hidden = fc.n();
  match.options.q_weight = Share(wq);
  match.options.k_weight = Share(wk);
  match.options.product_weight = Share(wp);
  match.options.finish = FinishOf(fc);
  match.options.pooled = false;
  match.output = node.outputs[0];
  return true;
}

// Further layers over the same positions.
void MatchLayers(const GraphEditor& editor, Match& match) {
  for (;;) {
    const int reader = editor.OnlyReader(match.output);
    if (reader < 0 || editor.semantics(reader).op != Op::kFusedFc) return;
    const FusedFcOptions& fc = *editor.semantics(reader).fused_fc;
    if (fc.flat || fc.init >= 0 || fc.blocks.size() != 1 || fc.blocks[0].offset != 0 ||
        Dim::Of(fc.k()) != editor.shape(match.output)[2]) {
      return;
    }
    match.AddWeights(fc);
    match.options.layers.push_back(
        {.n = fc.n(), .weight = Share(CopyOf(fc.weight)), .finish = FinishOf(fc)});
    match.nodes.push_back(reader);
    match.output = editor.node(reader).outputs[0];
  }
}

// where(mask, logits, pad) -> softmax over the positions -> weighted sum of the values.
void MatchTail(const GraphEditor& editor, Match& match) {
  const Shape& logits = editor.shape(match.output);
  if (logits[2] != Dim::Of(1)) return;
  std::vector<int> nodes;
  ValueId value = match.output, mask = kNoValue;
  float pad = 0;
  int reader = editor.OnlyReader(value);
  if (reader >= 0 && editor.semantics(reader).op == Op::kWhere) {
    const Node& where = editor.node(reader);
    const Shape& cond = editor.shape(where.inputs[0]);
    const std::optional<float> filled = Filled(editor, where.inputs[2]);
    const bool fits = where.inputs[1] == value && filled.has_value() && cond.rank() == 3 &&
                      editor.spec(where.inputs[0]).dtype == DType::kInt32 &&
                      (cond[0] == Dim::Users() || cond[0] == Dim::Ads()) && cond[1] == logits[1] &&
                      cond[2] == Dim::Of(1) && editor.shape(where.outputs[0]) == logits;
    if (!fits) return;
    mask = where.inputs[0];
    pad = *filled;
    nodes.push_back(reader);
    value = where.outputs[0];
    reader = editor.OnlyReader(value);
  }
  if (reader < 0 || editor.semantics(reader).op != Op::kSoftmax ||
      editor.semantics(reader).axis != 1) {
    return;
  }
  nodes.push_back(reader);
  value = editor.node(reader).outputs[0];
  reader = editor.OnlyReader(value);
  if (reader < 0 || editor.semantics(reader).op != Op::kBatchDot) return;
  const Node& dot = editor.node(reader);
  const Shape& values = editor.shape(dot.inputs[1]);
  const bool fits = dot.inputs[0] == value && editor.semantics(reader).transpose_a &&
                    !editor.semantics(reader).transpose_b && values.rank() == 3 &&
                    (values[0] == Dim::Users() || values[0] == Dim::Ads()) &&
                    values[1] == logits[1] && values[2].IsConst();
  if (!fits) return;
  nodes.push_back(reader);
  match.nodes.insert(match.nodes.end(), nodes.begin(), nodes.end());
  match.mask = mask;
  match.values = dot.inputs[1];
  match.output = dot.outputs[0];
  match.options.pad = pad;
  match.options.pooled = true;
}

// Whether the first layer takes less than as it is written.  Costs are counted in products with a
// matrix [E, h].
bool Pays(const Match& match, const Dim& steps) {
  constexpr double kMatrix = 10;   // To make one for an ad; seen at 4 to 50 steps of 16 to 64.
  constexpr double kMasked = 0.5;  // Of the steps, which the unit leaves out.
  constexpr double kUnknownSteps = 50;
  const double t = steps.IsConst() ? static_cast<double>(steps.value()) : kUnknownSteps;
  const double blocks = static_cast<double>(match.block_count);
  const double made = match.options.product_weight != nullptr ? kMatrix : 1;
  return blocks * t > (match.mask != kNoValue ? 1 - kMasked : 1) * t + made;
}

// Node `index` may be the first layer of an attention unit.
absl::Status FuseUnit(GraphEditor& editor, int index) {
  if (editor.semantics(index).op != Op::kFusedFc) return absl::OkStatus();
  Match match;
  if (!MatchFirst(editor, index, match)) return absl::OkStatus();
  MatchLayers(editor, match);
  MatchTail(editor, match);
  if (!Pays(match, editor.shape(match.keys)[1])) return absl::OkStatus();
  if (!editor.TakeCopy(match.weights, match.floats)) return absl::OkStatus();
  const Node& node = editor.node(index);
  std::vector<ValueId> inputs = {match.query, match.keys};
  match.options.has_mask = match.mask != kNoValue;
  if (match.options.has_mask) inputs.push_back(match.mask);
  match.options.has_values = match.values != kNoValue && match.values != match.keys;
  if (match.options.has_values) inputs.push_back(match.values);
  std::string text = absl::StrCat(node.Label(), " over [", match.blocks, "] and ",
                                  match.options.layers.size(), " more layers",
                                  !match.options.pooled    ? ""
                                  : match.mask == kNoValue ? ", softmax and pooling"
                                                           : ", mask, softmax and pooling");
  const int at = *std::max_element(match.nodes.begin(), match.nodes.end());
  Node unit = editor.NewNode(index, "", "attention_unit",
                             std::make_shared<AttentionUnit>(std::move(match.options)),
                             std::move(inputs), {match.output});
  return editor.Replace(match.nodes, at, {std::move(unit)}, std::move(text));
}

}  // namespace

absl::Status FuseAttention(GraphEditor& editor) {
  return editor.ForEach([&](int index) { return FuseUnit(editor, index); });
}

}  // namespace ulfd::engine

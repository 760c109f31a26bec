// Batch normalisation before or behind a fully connected layer -> its weights.
//
// Precondition: the means are not large against the deviations.  (x - mean) * s computed as x * s -
// mean * s loses the digits that the two terms share; models with means of 5e5 would lose all of
// them (decision 0004).  What is not folded still joins the layer as an epilogue.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/graph/passes/columns.h"
#include "engine/graph/passes/passes.h"
#include "engine/graph/passes/weights.h"
#include "engine/layers/fused/fused_fc.h"

namespace ulfd::engine {

namespace {

// Folding costs log2 of this in bits of the result.
constexpr double kMaxMeanPerDeviation = 16;

// y = x * scale + shift for column j of a tensor whose rows are a multiple of the period.
struct Affine {
  const CyclicParams* params = nullptr;
  double eps = 0;

  double deviation(int64_t j) const { return std::sqrt(double{params->values[3][j]} + eps); }
  double scale(int64_t j) const { return params->values[1][j] / deviation(j); }
  double shift(int64_t j) const { return params->values[0][j] - params->values[2][j] * scale(j); }
  bool IsSafe() const {
    for (int64_t j = 0; j < params->period; ++j) {
      const double ratio = std::abs(params->values[2][j]) / deviation(j);
      if (!(ratio <= kMaxMeanPerDeviation)) return false;  // Also NaN.
    }
    return true;
  }
};

Affine AffineOf(const Semantics& semantics) { return {semantics.params, semantics.eps}; }

// Elements over which a layer's columns repeat: a row seen flat, or the last dimension.
int64_t ColumnsOf(const Shape& shape, bool flat) {
  if (flat) return RowWidth(shape);
  const Dim last = shape[shape.rank() - 1];
  return last.IsConst() ? last.value() : -1;
}

// Folds the normalisation of the layer's blocks, if there is any.
absl::Status FoldInputs(GraphEditor& editor, int index) {
  const Node& node = editor.node(index);
  const FusedFcOptions& old = *editor.semantics(index).fused_fc;
  if (old.init >= 0) return absl::OkStatus();
  std::vector<int> replaced = {index};
  std::vector<ValueId> inputs = node.inputs;
  std::vector<Affine> affine(inputs.size());
  std::string names;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const int producer = editor.Producer(inputs[i]);
    if (producer < 0 || editor.semantics(producer).op != Semantics::Op::kBatchNorm) continue;
    const Affine found = AffineOf(editor.semantics(producer));
    const int64_t columns = ColumnsOf(editor.shape(inputs[i]), old.flat);
    if (columns < 0 || columns % found.params->period != 0 || !found.IsSafe()) continue;
    affine[i] = found;
    inputs[i] = editor.node(producer).inputs[0];
    replaced.push_back(producer);
    absl::StrAppend(&names, names.empty() ? "" : ", ", editor.node(producer).Label());
  }
  if (replaced.size() == 1) return absl::OkStatus();
  if (!editor.TakeCopy({&old.weight}, old.k() * old.n())) return absl::OkStatus();
  FusedFcOptions options = old;
  std::vector<float> rows = CopyOf(old.weight);
  const int64_t n = old.n();
  std::vector<double> bias(old.bias.begin(), old.bias.end());
  bias.resize(n);
  int64_t row = 0;
  for (const FusedFcOptions::Block& block : old.blocks) {
    const Affine& a = affine[block.input];
    for (int64_t c = block.offset; c < block.offset + block.k; ++c, ++row) {
      if (a.params == nullptr) continue;
      const int64_t p = c % a.params->period;
      const double scale = a.scale(p), shift = a.shift(p);
      for (int64_t j = 0; j < n; ++j) {
        float& w = rows[row * n + j];
        bias[j] += shift * w;
        w = static_cast<float>(scale * w);
      }
    }
  }
  options.bias.assign(bias.begin(), bias.end());
  SetWeight(std::move(rows), old.n(), options);
  std::string text = absl::StrCat(names, " into the weights of ", node.Label());
  Node fused = editor.NewNode(index, "", "fused_fc", std::make_shared<FusedFc>(std::move(options)),
                              std::move(inputs), node.outputs);
  return editor.Replace(replaced, index, {std::move(fused)}, std::move(text));
}

// Folds the normalisation that is all that reads the layer's output.
absl::Status FoldOutput(GraphEditor& editor, int index) {
  const Node& node = editor.node(index);
  const FusedFcOptions& old = *editor.semantics(index).fused_fc;
  const int reader = editor.OnlyReader(node.outputs[0]);
  if (reader < 0 || editor.semantics(reader).op != Semantics::Op::kBatchNorm || old.init >= 0 ||
      !old.epilogue.empty()) {
    return absl::OkStatus();
  }
  const Affine affine = AffineOf(editor.semantics(reader));
  const int64_t n = old.n();
  if (n % affine.params->period != 0 || !affine.IsSafe()) return absl::OkStatus();
  if (!editor.TakeCopy({&old.weight}, old.k() * n)) return absl::OkStatus();
  FusedFcOptions options = old;
  std::vector<float> rows = CopyOf(old.weight);
  std::vector<double> bias(old.bias.begin(), old.bias.end());
  bias.resize(n);
  for (int64_t j = 0; j < n; ++j) {
    const int64_t p = j % affine.params->period;
    const double scale = affine.scale(p);
    bias[j] = bias[j] * scale + affine.shift(p);
    for (int64_t r = 0; r < old.k(); ++r) {
      float& w = rows[r * n + j];
      w = static_cast<float>(scale * w);
    }
  }
  options.bias.assign(bias.begin(), bias.end());
  SetWeight(std::move(rows), old.n(), options);
  std::string text =
      absl::StrCat(editor.node(reader).Label(), " into the weights of ", node.Label());
  Node fused = editor.NewNode(reader, "", "fused_fc", std::make_shared<FusedFc>(std::move(options)),
                              node.inputs, editor.node(reader).outputs);
  fused.name = node.name;
  return editor.Replace({index, reader}, reader, {std::move(fused)}, std::move(text));
}

}  // namespace

absl::Status FoldBatchNorm(GraphEditor& editor) {
  return editor.ForEach([&](int index) {
    if (editor.semantics(index).op != Semantics::Op::kFusedFc) return absl::OkStatus();
    RETURN_IF_ERROR(FoldInputs(editor, index));
    return editor.changed() ? absl::OkStatus() : FoldOutput(editor, index);
  });
}

}  // namespace ulfd::engine

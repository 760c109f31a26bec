// A fully connected layer behind another without an activation between them -> one, whose weights
// are the product, where that takes fewer operations.
// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/graph/passes/columns.h"
#include "engine/graph/passes/passes.h"
#include "engine/graph/passes/weights.h"
#include "engine/layers/fused/fused_fc.h"

namespace ulfd::engine {

namespace {

using Block = FusedFcOptions::Block;

// Whether the layer is nothing but x W + b.
bool IsLinear(const FusedFcOptions& options) {
  return options.epilogue.empty() && options.init < 0;
}

// Whether `second` can read the inputs of `first` instead of its value.
bool Joins(const GraphEditor& editor, int first, int second) {
  const FusedFcOptions& a = *editor.semantics(first).fused_fc;
  const FusedFcOptions& b = *editor.semantics(second).fused_fc;
  const TensorSpec& y = editor.spec(editor.node(first).outputs[0]);
  const TensorSpec& z = editor.spec(editor.node(second).outputs[0]);
  if (!IsLinear(a) || a.flat != b.flat || y.level != z.level) return false;
  if (b.init >= 0 &&
      (!a.bias.empty() || editor.node(second).inputs[b.init] == editor.node(first).outputs[0])) {
    return false;
  }
  // The rows of `first` must be those of `second`: a single row would be multiplied for each.
  for (int d = 0; d + 1 < y.shape.rank(); ++d) {
    if (y.shape[d] != z.shape[d]) return false;
  }
  return true;
}

// So many multiplications more per row are dearer than the step that is saved.
constexpr int64_t kNeverWorth = 1 << 16;
// So many take a second at load.
constexpr int64_t kMostMultiplications = int64_t{1} << 31;

// Whether one layer could be cheaper at all, told before the product is made.
bool MayPay(const GraphEditor& editor, int first, int second) {
  const FusedFcOptions& a = *editor.semantics(first).fused_fc;
  const FusedFcOptions& b = *editor.semantics(second).fused_fc;
  int64_t joined = 0;  // Columns that the second reads of the first.
  for (const Block& block : b.blocks) {
    const bool of_first = editor.node(second).inputs[block.input] == editor.node(first).outputs[0];
    joined += of_first ? block.k : 0;
  }
  return a.k() * b.n() - a.k() * a.n() - joined * b.n() < kNeverWorth &&
         a.k() * joined < kMostMultiplications / b.n();
}

// The two layers as one, composed in double.
class Composition {
 public:
  Composition(const GraphEditor& editor, int first, int second)
      : first_(editor.node(first)),
        second_(editor.node(second)),
        a_(*editor.semantics(first).fused_fc),
        b_(*editor.semantics(second).fused_fc) {}

  // `inputs`: of the new node.
  FusedFcOptions Make(std::vector<ValueId>& inputs) {
    FusedFcOptions options = b_;
    options.blocks.clear();
    const int64_t n = b_.n();
    std::vector<double> product(a_.k() * n, 0.0), bias(b_.bias.begin(), b_.bias.end());
    std::vector<double> kept;  // Rows of the second layer's other columns.
    int64_t row = 0;
    for (const Block& block : b_.blocks) {
      const ValueId value = second_.inputs[block.input];
      if (value == first_.outputs[0]) {
        Multiply(block, row, product, bias);
      } else {
        options.blocks.push_back({PlaceInput(value, inputs), block.offset, block.k});
        AppendRows(b_.weight, row, block.k, kept);
      }
      row += block.k;
    }
    for (const Block& block : a_.blocks) {
      options.blocks.push_back(
          {PlaceInput(first_.inputs[block.input], inputs), block.offset, block.k});
    }
    if (b_.init >= 0) options.init = PlaceInput(second_.inputs[b_.init], inputs);
    std::vector<float> weights(kept.begin(), kept.end());
    weights.insert(weights.end(), product.begin(), product.end());
    SetWeight(std::move(weights), n, options);
    options.bias.assign(bias.begin(), bias.end());
    return options;
  }

 private:
  // Adds what columns `block` of the first layer's value, which meet rows `row`.. of the second's
  // weights, contribute.
  void Multiply(const Block& block, int64_t row, std::vector<double>& product,
                std::vector<double>& bias) const {
    const int64_t n = b_.n();
    std::vector<float> rows;
    AppendRows(b_.weight, row, block.k, rows);
    const auto add = [&](double x, int64_t m, double* to) {
      for (int64_t j = 0; j < n; ++j) to[j] += x * rows[m * n + j];
    };
    for (int64_t i = 0; i < a_.k(); ++i) {
      for (int64_t m = 0; m < block.k; ++m) {
        add(a_.weight.at(i, block.offset + m), m, &product[i * n]);
      }
    }
    if (a_.bias.empty()) return;
    bias.resize(n, 0.0);
    for (int64_t m = 0; m < block.k; ++m) add(a_.bias[block.offset + m], m, bias.data());
  }

  const Node& first_;
  const Node& second_;
  const FusedFcOptions& a_;
  const FusedFcOptions& b_;
};

absl::Status MergeWithNext(GraphEditor& editor, int index) {
  const int next = editor.semantics(index).op == Semantics::Op::kFusedFc
                       ? editor.OnlyReader(editor.node(index).outputs[0])
                       : -1;
  if (next < 0 || editor.semantics(next).op != Semantics::Op::kFusedFc ||
      !Joins(editor, index, next) || !MayPay(editor, index, next))
    return absl::OkStatus();
  std::vector<ValueId> inputs;
  FusedFcOptions options = Composition(editor, index, next).Make(inputs);
  const int64_t k = options.k();
  std::string text = absl::StrCat(editor.node(index).Label(), " and ", editor.node(next).Label(),
                                  " -> one of ", k, " x ", options.n());
  Node node = editor.NewNode(next, "", editor.node(next).type,
                             std::make_shared<FusedFc>(std::move(options)), std::move(inputs),
                             editor.node(next).outputs);
  ASSIGN_OR_RETURN(const Cost after, editor.CostIfAdded({node}));
  Cost before = editor.CostOfNode(index);
  before += editor.CostOfNode(next);
  const FusedFcOptions& a = *editor.semantics(index).fused_fc;
  const FusedFcOptions& b = *editor.semantics(next).fused_fc;
  if (!IsCheaper(after, before) || !editor.TakeCopy({&a.weight, &b.weight}, k * b.n()))
    return absl::OkStatus();
  return editor.Replace({index, next}, next, {std::move(node)}, std::move(text));
}

}  // namespace

absl::Status MergeFcFc(GraphEditor& editor) {
  return editor.ForEach([&](int index) { return MergeWithNext(editor, index); });
}

}  // namespace ulfd::engine

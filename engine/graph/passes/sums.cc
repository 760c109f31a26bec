// Sums that need not see what they sum: over a concat -> the concat of sums; over a product of two
// tensors -> a product of matrices, which never writes the products one by one; over a tensor times
// constants -> a fully connected layer.  Sums along two axes side by side are one.
// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/graph/passes/affine.h"
#include "engine/graph/passes/passes.h"
#include "engine/graph/passes/weights.h"
#include "engine/layers/checks.h"
#include "engine/layers/fused/fused_fc.h"
#include "engine/layers/types/building_blocks.h"

namespace ulfd::engine {
namespace {

using Op = Semantics::Op;
using Sizes = std::vector<int64_t>;

// The node that makes what the sum `index` sums, if nothing else reads it; -1 otherwise.
int Summed(const GraphEditor& editor, int index) {
  const ValueId value = editor.node(index).inputs[0];
  return editor.OnlyReader(value) == index ? editor.Producer(value) : -1;
}

// Puts the new nodes in the place of `replaced`, the sum last, if that is cheaper.
absl::Status ReplaceIfCheaper(GraphEditor& editor, absl::Span<const int> replaced,
                              std::vector<Node> added, std::string text) {
  ASSIGN_OR_RETURN(const Cost after, editor.CostIfAdded(added));
  Cost before;
  for (const int index : replaced) before += editor.CostOfNode(index);
  if (!IsCheaper(after, before)) return absl::OkStatus();
  return editor.Replace(replaced, replaced.back(), std::move(added), std::move(text));
}

absl::Status SumParts(GraphEditor& editor, int concat, int sum) {
  const int along = editor.semantics(concat).axis, axis = editor.semantics(sum).axis;
  if (along == axis || along == 0 || axis == 0) return absl::OkStatus();
  const Node& node = editor.node(sum);
  std::vector<Node> added;
  std::vector<ValueId> sums;
  for (ValueId part : editor.node(concat).inputs) {
    sums.push_back(editor.NewValue(absl::StrCat(node.name, "/part", sums.size())));
    added.push_back(editor.NewNode(sum, "part", node.type, MakeSum(axis), {part}, {sums.back()}));
  }
  added.push_back(editor.NewNode(sum, "", editor.node(concat).type,
                                 MakeConcat(along > axis ? along - 1 : along), std::move(sums),
                                 node.outputs));
  std::string text = absl::StrCat(node.Label(), " sums each part of ", editor.node(concat).Label());
  return ReplaceIfCheaper(editor, {concat, sum}, std::move(added), std::move(text));
}

// One factor of a product, aligned with it as numpy does.
struct Factor {
  ValueId value = kNoValue;
  Shape shape;  // Of the product's rank.

  bool Has(int axis) const { return shape[axis] != Dim::Of(1); }
};

std::optional<Factor> FactorOf(const GraphEditor& editor, ValueId value, const Shape& product) {
  const TensorSpec& spec = editor.spec(value);
  Shape shape = AlignUserRow(spec, product.rank());
  // Leading dimensions that only the other has: a product of matrices repeats those, too.
  shape.dims().insert(shape.dims().begin(), product.rank() - shape.rank(), Dim::Of(1));
  for (int i = 1; i < shape.rank(); ++i) {
    if (shape[i] != Dim::Of(1) && shape[i] != product[i]) return std::nullopt;
  }
  return Factor{value, std::move(shape)};
}

// Sizes behind the rows; nullopt: not all are known.
std::optional<Sizes> SizesOf(const Shape& shape) {
  Sizes sizes;
  for (int d = 1; d < shape.rank(); ++d) {
    if (!shape[d].IsConst()) return std::nullopt;
    sizes.push_back(shape[d].value());
  }
  return sizes;
}

// A reshape to `dims` behind the rows.
ValueId AddReshape(const GraphEditor& editor, int origin, ValueId from, ValueId to, Sizes dims,
                   std::vector<Node>& added) {
  dims.insert(dims.begin(), -1);
  added.push_back(
      editor.NewNode(origin, "shape", "reshape_layer", MakeReshape(std::move(dims)), {from}, {to}));
  return to;
}

// How a * b summed along an axis is a product of matrices.
struct Form {
  bool swap = false;         // b is the left operand.
  bool transpose_a = false;  // [.., T, 1]^T [.., T, E],
  bool transpose_b = false;  // else [.., I, K] [.., n, K]^T,
  bool rows = false;         // of which each index before the axis may be a product of its own.
  // [.., M, K] [.., N, K]^T or [.., M, K] [.., K, N]: M are the axes from `own` to the last two,
  // which only the left operand has, N is `column`, which only the right one has.  0: none.
  int own = 0, column = 0;
};

// Nothing: the axis is the rows or only one has it, or what is beside it fits no product of
// matrices.  Dimensions further ahead are batches, which repeat where only one has them.
std::optional<Form> FormOf(const Factor& a, const Factor& b, int axis, bool constant) {
  const int last = a.shape.rank() - 1;
  if (axis < 1 || axis < last - 1 || !a.Has(axis) || !b.Has(axis)) return std::nullopt;
  const int column = axis == last ? last - 1 : last;
  const bool in_a = a.Has(column), in_b = b.Has(column), is_last = axis == last;
  if (in_a && in_b && !is_last) return std::nullopt;
  if (is_last && (column == 0 || (in_a && in_b))) return Form{.transpose_b = true, .rows = true};
  if (in_a != in_b && !constant) {
    const Factor &left = in_a ? b : a, &right = in_a ? a : b;
    int own = last - 1;
    while (own > 1 && left.Has(own - 1) && !right.Has(own - 1)) --own;
    if (own < last - 1) {
      return Form{.swap = in_a, .transpose_b = is_last, .own = own, .column = column};
    }
  }
  return Form{.swap = is_last ? in_b : in_a, .transpose_a = !is_last, .transpose_b = is_last};
}

// Behind the rows, as the product of matrices has them; nullopt: not all are known.
std::optional<Sizes> OperandSizes(const Form& form, const Factor& factor, int axis, bool left) {
  const std::optional<Sizes> sizes = SizesOf(factor.shape);
  if (!sizes.has_value()) return std::nullopt;
  const int rank = factor.shape.rank();
  Sizes dims;
  for (int d = 1; d < rank; ++d) {
    const int64_t size = (*sizes)[d - 1];
    const bool own = form.own > 0 && d >= form.own && d < rank - 2;
    if (left ? d == form.column : own) continue;
    if (form.rows && d == axis) dims.push_back(1);  // [.., I, K] -> [.., I, 1, K]
    if (left && own && d > form.own) {
      dims.back() *= size;
    } else {
      dims.push_back(size);
    }
  }
  return dims;
}

absl::Status SumProducts(GraphEditor& editor, int product, int sum) {
  const Node& node = editor.node(sum);
  const Shape shape = editor.shape(editor.node(product).outputs[0]);
  const int axis = editor.semantics(sum).axis;
  std::vector<Factor> factors;
  for (ValueId id : editor.node(product).inputs) {
    std::optional<Factor> factor = FactorOf(editor, id, shape);
    if (!factor.has_value()) return absl::OkStatus();
    factors.push_back(*std::move(factor));
  }
  const auto is_constant = [&](const Factor& factor) {
    return editor.spec(factor.value).level == Level::kConstant;
  };
  const bool constant = is_constant(factors[0]) || is_constant(factors[1]);
  const std::optional<Form> form = FormOf(factors[0], factors[1], axis, constant);
  if (!form.has_value()) return absl::OkStatus();
  if (form->swap) std::swap(factors[0], factors[1]);
  std::vector<Node> added;
  ValueId operands[2];
  for (int i = 0; i < 2; ++i) {
    operands[i] = factors[i].value;
    // What has the rank of a product of matrices stays; what has fewer dimensions gets those, too.
    if (!form->rows && form->own == 0 && editor.shape(factors[i].value).rank() >= 3) continue;
    std::optional<Sizes> dims = OperandSizes(*form, factors[i], axis, i == 0);
    if (!dims.has_value() || is_constant(factors[i])) return absl::OkStatus();
    operands[i] = AddReshape(editor, sum, operands[i],
                             editor.NewValue(absl::StrCat(node.name, "/operand", i)),
                             *std::move(dims), added);
  }
  std::optional<Sizes> out = SizesOf(editor.shape(node.outputs[0]));
  if (!out.has_value()) return absl::OkStatus();
  const ValueId dot = editor.NewValue(absl::StrCat(node.name, "/product"));
  added.push_back(editor.NewNode(sum, "product", "batchdot_layer",
                                 MakeBatchDot(form->transpose_a, form->transpose_b),
                                 {operands[0], operands[1]}, {dot}));
  AddReshape(editor, sum, dot, node.outputs[0], *std::move(out), added);
  std::string text = absl::StrCat(editor.node(product).Label(), " and ", node.Label(),
                                  " are a product of matrices");
  return ReplaceIfCheaper(editor, {product, sum}, std::move(added), std::move(text));
}

absl::Status SumBothAxes(GraphEditor& editor, int inner, int outer) {
  const int axis = editor.semantics(outer).axis, behind = editor.semantics(inner).axis - axis;
  // The outer one counts the axes that the inner one left.
  if (axis < 1 || (behind != 0 && behind != 1)) return absl::OkStatus();
  const ValueId x = editor.node(inner).inputs[0];
  Shape merged = editor.shape(x);
  merged.dims()[axis] = Multiply(merged[axis], merged[axis + 1]);
  merged.dims().erase(merged.dims().begin() + axis + 1);
  std::optional<Sizes> sizes = SizesOf(merged);
  if (!sizes.has_value()) return absl::OkStatus();
  const Node& node = editor.node(outer);
  std::vector<Node> added;
  const ValueId both = editor.NewValue(absl::StrCat(node.name, "/both"));
  AddReshape(editor, outer, x, both, *std::move(sizes), added);
  added.push_back(editor.NewNode(outer, "", node.type, MakeSum(axis), {both}, node.outputs));
  std::string text = absl::StrCat(node.Label(), " sums what ", editor.node(inner).Label(), " does");
  return ReplaceIfCheaper(editor, {inner, outer}, std::move(added), std::move(text));
}

// `summed` is the product, or a view of it.
absl::Status SumScaled(GraphEditor& editor, int summed, int sum) {
  const bool view = editor.semantics(summed).op == Op::kReshape;
  const int product = view ? Summed(editor, summed) : summed;
  if (product < 0 || editor.semantics(product).op != Op::kMultiply) return absl::OkStatus();
  const std::optional<Link> link = AsLink(editor, product);
  const Node& node = editor.node(sum);
  const Shape& shape = editor.shape(node.inputs[0]);
  const int last = shape.rank() - 1;
  std::optional<Sizes> sizes = SizesOf(editor.shape(node.outputs[0]));
  if (!link.has_value() || link->period == 1 || !sizes.has_value() || last < 1 || last > 2 ||
      editor.semantics(sum).axis != last || !shape[last].IsConst()) {
    return absl::OkStatus();
  }
  const int64_t k = shape[last].value();
  if (k == 0 || k > kMaxPeriod || k % link->period != 0) return absl::OkStatus();
  std::vector<float> weight;
  for (int64_t j = 0; j < k; ++j) {
    weight.push_back(static_cast<float>(link->c[static_cast<size_t>(j % link->period)]));
  }
  FusedFcOptions options{.flat = last == 1};
  options.blocks.push_back({0, 0, k});
  SetWeight(std::move(weight), 1, options);
  std::vector<Node> added;
  ValueId x = link->x;
  if (view) {
    x = editor.NewValue(absl::StrCat(node.name, "/view"));
    added.push_back(editor.node(summed));
    added[0].inputs = {link->x};
    added[0].outputs = {x};
  }
  const ValueId column = editor.NewValue(absl::StrCat(node.name, "/column"));
  added.push_back(editor.NewNode(sum, "", "fused_fc", std::make_shared<FusedFc>(std::move(options)),
                                 {x}, {column}));
  AddReshape(editor, sum, column, node.outputs[0], *std::move(sizes), added);
  std::string text = absl::StrCat(editor.node(product).Label(), " and ", node.Label(),
                                  " are a fully connected layer");
  const std::vector<int> replaced =
      view ? std::vector<int>{product, summed, sum} : std::vector<int>{product, sum};
  return ReplaceIfCheaper(editor, replaced, std::move(added), std::move(text));
}

}  // namespace

absl::Status RewriteSums(GraphEditor& editor) {
  return editor.ForEach([&](int i) {
    const int summed = editor.semantics(i).op == Op::kSum ? Summed(editor, i) : -1;
    const Op op = summed >= 0 ? editor.semantics(summed).op : Op::kOther;
    if (op == Op::kConcat) return SumParts(editor, summed, i);
    if (op == Op::kSum) return SumBothAxes(editor, summed, i);
    if (op == Op::kMultiply) RETURN_IF_ERROR(SumProducts(editor, summed, i));
    const bool scaled = op == Op::kMultiply || op == Op::kReshape;
    return scaled && !editor.changed() ? SumScaled(editor, summed, i) : absl::OkStatus();
  });
}

}  // namespace ulfd::engine

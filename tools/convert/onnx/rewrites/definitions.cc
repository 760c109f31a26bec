// Operators that ONNX defines by others: norms, reductions of functions, blocks of images.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "tools/convert/onnx/model/constant.h"
#include "tools/convert/onnx/model/functions.h"
#include "tools/convert/onnx/rewrites/composite_writer.h"

namespace ulfd::convert {
namespace {

using Node = onnx::NodeProto;

std::string Squared(CompositeWriter& w, const Node& node, const std::string& x) {
  return w.Make(node, "Mul", {x, x});
}

// A constant, as numbers of x's type.
std::string As(CompositeWriter& w, const Node& node, const std::string& x, std::string constant) {
  const int type = w.TypeOf(x);
  if (type == 0 || type == onnx::TensorProto::FLOAT) return constant;
  std::string cast = w.Fresh(node.output(0));
  SetInt(w.Add(node, "Cast", {constant}, cast), "to", type);
  return cast;
}

std::string NumberLike(CompositeWriter& w, const Node& node, const std::string& x, float value) {
  return As(w, node, x, w.Number(node.output(0), value));
}

// ------------------------------------------------------------------------------- reductions

// The node's output is the sum of x along its axes, or a function of that.
bool AddSum(CompositeWriter& w, const Node& node, const std::string& x, const char* function) {
  const std::string &out = node.output(0), sum = *function == '\0' ? out : w.Fresh(out);
  Node reduction = node;
  reduction.set_op_type("ReduceSum");
  reduction.set_input(0, x);
  reduction.set_output(0, sum);
  const std::vector<int64_t> axes = IntsAttribute(node, "axes");
  if (!axes.empty() && w.opset() >= kAxesAreInputs) {
    auto& all = *reduction.mutable_attribute();
    all.erase(std::remove_if(all.begin(), all.end(),
                             [](const auto& own) { return own.name() == "axes"; }),
              all.end());
    reduction.add_input(w.Integers(sum, axes));
  }
  w.Add(reduction);
  if (*function != '\0') w.Add(node, function, {sum}, out);
  return true;
}
bool SumOfSizes(CompositeWriter& w, const Node& node) {
  return AddSum(w, node, w.Make(node, "Abs", {node.input(0)}), "");
}
bool SumOfSquares(CompositeWriter& w, const Node& node) {
  return AddSum(w, node, Squared(w, node, node.input(0)), "");
}
bool Length(CompositeWriter& w, const Node& node) {
  return AddSum(w, node, Squared(w, node, node.input(0)), "Sqrt");
}
bool LogSum(CompositeWriter& w, const Node& node) { return AddSum(w, node, node.input(0), "Log"); }

// ------------------------------------------------------------------------------- norms

// Each of so many parts of a row (0: of its channels) by its own mean and deviation.
std::string NormalParts(CompositeWriter& w, const Node& node, int64_t parts) {
  const std::string& x = node.input(0);
  const std::string each = w.Make(node, "Reshape", {x, w.Integers(x, {0, parts, -1})});
  std::string normal = w.Fresh(each);
  SetFloat(w.Add(node, "LayerNormalization", {each, w.Floats(each, {1})}, normal), "epsilon",
           FloatAttribute(node, "epsilon", 1e-5f));
  return normal;
}

// The node's output is x [rows, parts, ...], times a number for each part, plus another, in the
// shape of the node's input.
void AddScaled(CompositeWriter& w, const Node& node, const std::string& x) {
  const auto column = [&](int i) {
    return w.Make(node, "Reshape", {node.input(i), w.Integers(node.output(0), {-1, 1})});
  };
  const std::string y = w.Make(node, "Add", {w.Make(node, "Mul", {x, column(1)}), column(2)});
  w.Add(node, "Reshape", {y, w.Make(node, "Shape", {node.input(0)})}, node.output(0));
}

bool InstanceNormalization(CompositeWriter& w, const Node& node) {
  AddScaled(w, node, NormalParts(w, node, 0));
  return true;
}

bool GroupNormalization(CompositeWriter& w, const Node& node) {
  constexpr int64_t kScalePerChannel = 21;  // And per group before.
  const onnx::TensorProto* const scale = w.FindTensor(node.input(1));
  const int64_t groups = IntAttribute(node, "num_groups", 0);
  if (scale == nullptr || scale->dims_size() != 1 || groups < 1) return false;
  const int64_t channels = scale->dims(0);
  const bool per_channel = w.opset() >= kScalePerChannel;
  if (per_channel ? channels % groups != 0 : channels != groups) return false;
  const std::string normal = NormalParts(w, node, groups);
  AddScaled(w, node, w.Make(node, "Reshape", {normal, w.Integers(normal, {0, channels, -1})}));
  return true;
}

bool MeanVarianceNormalization(CompositeWriter& w, const Node& node) {
  const std::string& x = node.input(0);
  std::vector<int64_t> axes = IntsAttribute(node, "axes");
  if (axes.empty()) axes = {0, 2, 3};
  const std::string away = w.Make(node, "Sub", {x, w.Reduce(node, "ReduceMean", x, axes)});
  const std::string variance = w.Reduce(node, "ReduceMean", Squared(w, node, away), axes);
  const std::string deviation =
      w.Make(node, "Add", {w.Make(node, "Sqrt", {variance}), NumberLike(w, node, x, 1e-9f)});
  w.Add(node, "Mul", {away, w.Make(node, "Reciprocal", {deviation})}, node.output(0));
  return true;
}

// x / (bias + alpha / size * (sum of squares of the channels around it))^beta: the sums are a
// product with a band of ones.
bool LocalNormalization(CompositeWriter& w, const Node& node) {
  const std::string &x = node.input(0), &out = node.output(0);
  const int64_t size = IntAttribute(node, "size", 0);
  if (size < 1) return false;
  const std::string channels = w.SizeOf(node, x, 1), shape = w.Fresh(out), upper = w.Fresh(out);
  SetInt(w.Add(node, "Concat", {channels, channels}, shape), "axis", 0);
  const float share = FloatAttribute(node, "alpha", 1e-4f) / static_cast<float>(size);
  const std::string all = w.Make(node, "Expand", {NumberLike(w, node, x, share), shape});
  w.Add(node, "Trilu", {all, w.Integers(out, {-((size - 1) / 2)})}, upper);
  const std::string band = w.Fresh(out);
  SetInt(w.Add(node, "Trilu", {upper, w.Integers(out, {size / 2})}, band), "upper", 0);
  const std::string places =
      w.Make(node, "Reshape", {Squared(w, node, x), w.Integers(out, {0, 0, -1})});
  const std::string base = w.Make(node, "Add",
                                  {w.Make(node, "MatMul", {band, places}),
                                   NumberLike(w, node, x, FloatAttribute(node, "bias", 1))});
  const std::string factor =
      w.Make(node, "Pow", {base, NumberLike(w, node, x, FloatAttribute(node, "beta", 0.75f))});
  const std::string by = w.Make(node, "Reshape", {factor, w.Make(node, "Shape", {x})});
  w.Add(node, "Div", {x, by}, out);
  return true;
}

// ------------------------------------------------------------------------------- choice, images

// 1 for the first of the largest, 0 for all others.
bool Hardmax(CompositeWriter& w, const Node& node) {
  const std::string &x = node.input(0), &out = node.output(0), best = w.Fresh(out);
  const bool flattens = w.opset() < kAxesAreInputs;  // What is behind the axis.
  const int64_t axis = IntAttribute(node, "axis", flattens ? 1 : -1);
  if (flattens && axis != -1) return false;
  Node& largest = w.Add(node, "ArgMax", {x}, best);
  SetInt(largest, "axis", axis);
  SetInt(largest, "keepdims", 0);
  const std::string values = As(w, node, x, w.Floats(out, {0, 1}));
  SetInt(w.Add(node, "OneHot", {best, w.SizeOf(node, x, axis), values}, out), "axis", axis);
  return true;
}

// The node's output: x in the shape `apart`, its axes in another order, some side by side.
void AddMoved(CompositeWriter& w, const Node& node, const std::vector<std::string>& apart,
              const std::vector<int64_t>& order, const std::vector<std::string>& side_by_side) {
  const auto shaped = [&](const std::string& x, const std::vector<std::string>& sizes) {
    const std::string shape = w.Fresh(x);
    SetInt(w.Add(node, "Concat", sizes, shape), "axis", 0);
    return std::vector<std::string>{x, shape};
  };
  const std::string parts = w.Make(node, "Reshape", shaped(node.input(0), apart));
  const std::string moved = w.Transposed(node, parts, order);
  w.Add(node, "Reshape", shaped(moved, side_by_side), node.output(0));
}

template <bool to_space>
bool MoveBlocks(CompositeWriter& w, const Node& node) {
  const std::string &x = node.input(0), &out = node.output(0);
  const int64_t block = IntAttribute(node, "blocksize", 0);
  constexpr int64_t kMost = 1 << 10;
  if (block < 1 || block > kMost) return false;
  const std::string b = w.Integers(out, {block}), same = w.Integers(out, {0}),
                    rest = w.Integers(out, {-1}), h = w.SizeOf(node, x, 2),
                    v = w.SizeOf(node, x, 3);
  const char* const op = to_space ? "Mul" : "Div";
  const std::string high = w.Make(node, op, {h, b}), wide = w.Make(node, op, {v, b});
  const std::vector<std::string> merged = {same, rest, high, wide};
  if (!to_space) {
    AddMoved(w, node, {same, same, high, b, wide, b}, {0, 3, 5, 1, 2, 4}, merged);
  } else if (StringAttribute(node, "mode", "DCR") == "CRD") {
    AddMoved(w, node, {same, rest, b, b, h, v}, {0, 1, 4, 2, 5, 3}, merged);
  } else {
    AddMoved(w, node, {same, b, b, rest, h, v}, {0, 3, 4, 1, 5, 2}, merged);
  }
  return true;
}

// What is on the diagonals from k on, or up to there; 0 elsewhere.
bool Triangle(CompositeWriter& w, const Node& node) {
  const std::string &x = node.input(0), rows = w.Fresh(node.output(0));
  w.AddOnAxis(node, "Unsqueeze", w.NumbersBelow(node, w.SizeOf(node, x, -2)), 1, rows);
  const std::string above =
      w.Make(node, "Sub", {w.NumbersBelow(node, w.SizeOf(node, x, -1)), rows});
  const std::string k = Has(node, 1) ? node.input(1) : w.Integers(rows, {0});
  const bool upper = IntAttribute(node, "upper", 1) != 0;
  const std::string is = w.Make(node, upper ? "GreaterOrEqual" : "LessOrEqual", {above, k});
  w.Add(node, "Where", {is, x, NumberLike(w, node, x, 0)}, node.output(0));
  return true;
}

constexpr Composite kRows[] = {
    {"", "ReduceL1", 1, SumOfSizes},
    {"", "ReduceL2", 1, Length},
    {"", "ReduceSumSquare", 1, SumOfSquares},
    {"", "ReduceLogSum", 1, LogSum},
    {"", "InstanceNormalization", 3, InstanceNormalization},
    {"", "GroupNormalization", 3, GroupNormalization},
    {"", "MeanVarianceNormalization", 1, MeanVarianceNormalization},
    {"", "LRN", 1, LocalNormalization},
    {"", "Hardmax", 1, Hardmax},
    {"", "Trilu", 1, Triangle},
    {"", "DepthToSpace", 1, MoveBlocks</*to_space=*/true>},
    {"", "SpaceToDepth", 1, MoveBlocks</*to_space=*/false>},
};

}  // namespace

absl::Span<const Composite> DefinedComposites() { return kRows; }

}  // namespace ulfd::convert

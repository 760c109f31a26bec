// Quantised models: their numbers are whole numbers in single precision.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/convert/onnx/model/constant.h"
#include "tools/convert/onnx/model/functions.h"
#include "tools/convert/onnx/rewrites/composite_writer.h"

namespace ulfd::convert {
namespace {

using Node = onnx::NodeProto;

// The numbers that a quantised type has.
std::optional<std::pair<float, float>> RangeOf(int type) {
  switch (type) {
    case onnx::TensorProto::UINT8:
      return std::pair(0.0f, 255.0f);
    case onnx::TensorProto::INT8:
      return std::pair(-128.0f, 127.0f);
    case onnx::TensorProto::UINT16:
      return std::pair(0.0f, 65535.0f);
    case onnx::TensorProto::INT16:
      return std::pair(-32768.0f, 32767.0f);
    default:
      return std::nullopt;
  }
}

// Which inputs are a value, its scale and its zero.
struct Operand {
  int x, scale, zero;
  int64_t axis = 0;  // Of scales, if there are several.
};

std::optional<Constant> ConstantOf(CompositeWriter& w, const Node& node, int i) {
  const onnx::TensorProto* const tensor = Has(node, i) ? w.FindTensor(node.input(i)) : nullptr;
  if (tensor == nullptr) return std::nullopt;
  absl::StatusOr<Constant> constant = ReadTensor(*tensor);
  return constant.ok() ? std::optional(*std::move(constant)) : std::nullopt;
}

// Weights, at once: they may be large, and have a scale per entry of any axis.
std::optional<std::string> DequantisedConstant(CompositeWriter& w, const Node& node,
                                               const Operand& of) {
  const std::optional<Constant> whole = ConstantOf(w, node, of.x),
                                by = ConstantOf(w, node, of.scale),
                                from = ConstantOf(w, node, of.zero);
  if (!whole.has_value() || !by.has_value() || from.has_value() != Has(node, of.zero)) {
    return std::nullopt;
  }
  const std::vector<int64_t> sizes = whole->sizes();
  const auto rank = static_cast<int64_t>(sizes.size());
  const int64_t axis = of.axis < 0 ? of.axis + rank : of.axis, scales = by->elements();
  const bool fits = scales == 1 || (axis >= 0 && axis < rank && scales > 0 &&
                                    scales == sizes[static_cast<size_t>(axis)]);
  if (!fits || !by->is_float || (from.has_value() && from->elements() != scales)) {
    return std::nullopt;
  }
  int64_t inner = 1;  // Entries in a row of one scale.
  for (int64_t d = axis + 1; scales > 1 && d < rank; ++d) inner *= sizes[static_cast<size_t>(d)];
  std::vector<float> values;
  const int64_t count = whole->elements();
  values.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = i / inner % scales;
    const float zero = from.has_value() ? from->number(at) : 0;
    values.push_back((whole->number(i) - zero) * by->f32(at));
  }
  return w.Make(node, "Reshape",
                {w.Floats(node.output(0), values), w.Integers(node.output(0), sizes)});
}

// Whole numbers (scales, places of zero) as floats that x broadcasts with: of one number, or of
// one for each entry of an axis of x.
std::optional<std::string> PerAxis(CompositeWriter& w, const Node& node, int i,
                                   const std::string& x, int64_t axis) {
  const onnx::TensorProto* const tensor = w.FindTensor(node.input(i));
  if (tensor == nullptr) return std::nullopt;
  int64_t count = 1;
  for (const int64_t size : tensor->dims()) count *= size;
  if (count < 1) return std::nullopt;
  std::string numbers = w.Float(node, node.input(i));
  if (count == 1 || axis == -1) return numbers;
  // Dimensions of 1 in the place of the axes behind it.
  std::string behind = w.Integers(node.output(0), {-axis - 1});
  if (axis >= 0) {
    const std::string rank = w.Make(node, "Shape", {w.Make(node, "Shape", {x})});
    behind = w.Make(node, "Sub", {rank, w.Integers(node.output(0), {axis + 1})});
  }
  const std::string ones = w.Make(node, "Expand", {w.Integers(node.output(0), {1}), behind});
  const std::string sizes = w.Fresh(node.output(0));
  SetInt(w.Add(node, "Concat", {w.Integers(node.output(0), {count}), ones}, sizes), "axis", 0);
  return w.Make(node, "Reshape", {numbers, sizes});
}

std::optional<std::string> Dequantised(CompositeWriter& w, const Node& node, const Operand& of) {
  std::optional<std::string> constant = DequantisedConstant(w, node, of);
  if (constant.has_value()) return constant;
  const std::optional<std::string> by = PerAxis(w, node, of.scale, node.input(of.x), of.axis);
  if (!by.has_value()) return std::nullopt;
  std::string whole = w.Float(node, node.input(of.x));
  if (Has(node, of.zero)) {
    const std::optional<std::string> from = PerAxis(w, node, of.zero, node.input(of.x), of.axis);
    if (!from.has_value()) return std::nullopt;
    whole = w.Make(node, "Sub", {whole, *from});
  }
  return w.Make(node, "Mul", {whole, *by});
}

bool AddQuantised(CompositeWriter& w, const Node& node, const std::string& x, int scale, int zero,
                  int64_t axis) {
  const int type =
      Has(node, zero)
          ? w.TypeOf(node.input(zero))
          : static_cast<int>(IntAttribute(node, "output_dtype", onnx::TensorProto::UINT8));
  const auto range = RangeOf(type == 0 ? onnx::TensorProto::UINT8 : type);
  const std::optional<std::string> by = PerAxis(w, node, scale, x, axis);
  if (!range.has_value() || !by.has_value()) return false;
  std::string whole = w.Make(node, "Round", {w.Make(node, "Div", {x, *by})});
  if (Has(node, zero)) {
    const std::optional<std::string> from = PerAxis(w, node, zero, x, axis);
    if (!from.has_value()) return false;
    whole = w.Make(node, "Add", {whole, *from});
  }
  const std::string least = w.Number(whole, range->first), most = w.Number(whole, range->second);
  w.Add(node, "Min", {w.Make(node, "Max", {whole, least}), most}, node.output(0));
  return true;
}

bool Quantize(CompositeWriter& w, const Node& node) {
  return IntAttribute(node, "block_size", 0) == 0 &&
         AddQuantised(w, node, node.input(0), 1, 2, IntAttribute(node, "axis", 1));
}

bool Dequantize(CompositeWriter& w, const Node& node) {
  if (IntAttribute(node, "block_size", 0) != 0) return false;
  const auto out = Dequantised(w, node, {0, 1, 2, IntAttribute(node, "axis", 1)});
  if (out.has_value()) w.Add(node, "Identity", {*out}, node.output(0));
  return out.has_value();
}

bool IntegerProduct(CompositeWriter& w, const Node& node) {
  std::string sides[2];
  for (int i = 0; i < 2; ++i) {
    sides[i] = w.Float(node, node.input(i));
    if (!Has(node, i + 2)) continue;
    const std::optional<std::string> from =
        PerAxis(w, node, i + 2, node.input(i), i == 1 ? -1 : -2);
    if (!from.has_value()) return false;
    sides[i] = w.Make(node, "Sub", {sides[i], *from});
  }
  w.Add(node, "MatMul", {sides[0], sides[1]}, node.output(0));
  return true;
}

// ------------------------------------------------------- operators on quantised values

bool Product(CompositeWriter& w, const Node& node) {
  const auto a = Dequantised(w, node, {0, 1, 2, -2}), b = Dequantised(w, node, {3, 4, 5, -1});
  return a.has_value() && b.has_value() &&
         AddQuantised(w, node, w.Make(node, "MatMul", {*a, *b}), 6, 7, -2);
}

bool Convolution(CompositeWriter& w, const Node& node) {
  constexpr int kBias = 8;
  const auto x = Dequantised(w, node, {0, 1, 2}), weight = Dequantised(w, node, {3, 4, 5, 0});
  if (!x.has_value() || !weight.has_value()) return false;
  std::vector<std::string> inputs = {*x, *weight};
  if (Has(node, kBias)) {  // It has the scales of both sides, multiplied.
    const std::string by = w.Make(node, "Mul", {w.Float(node, node.input(1)), node.input(4)});
    inputs.push_back(w.Make(node, "Mul", {w.Float(node, node.input(kBias)), by}));
  }
  const std::string y = w.Fresh(node.output(0));
  *w.Add(node, "Conv", inputs, y).mutable_attribute() = node.attribute();
  return AddQuantised(w, node, y, 6, 7, 0);
}

constexpr Composite kRows[] = {
    {"", "QuantizeLinear", 2, Quantize},
    {"", "DequantizeLinear", 2, Dequantize},
    {"", "MatMulInteger", 2, IntegerProduct},
    {"", "QLinearMatMul", 8, Product},
    {"", "QLinearConv", 8, Convolution},
    {kMicrosoft, "QuantizeLinear", 2, Quantize},
    {kMicrosoft, "DequantizeLinear", 2, Dequantize},
};

}  // namespace

absl::Span<const Composite> QuantisedComposites() { return kRows; }

}  // namespace ulfd::convert

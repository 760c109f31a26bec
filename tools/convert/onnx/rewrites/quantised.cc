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

// Whole numbers (scales, places of zero) as floats that x broadcasts with: of one number, or of
// one for each entry of the last axis.
std::optional<std::string> PerAxis(CompositeWriter& w, const Node& node, int i, int64_t axis) {
  const onnx::TensorProto* const tensor = w.FindTensor(node.input(i));
  if (tensor == nullptr) return std::nullopt;
  int64_t count = 1;
  for (const int64_t size : tensor->dims()) count *= size;
  if (count != 1 && axis != -1) return std::nullopt;
  return w.Float(node, node.input(i));
}

std::optional<std::string> Dequantised(CompositeWriter& w, const Node& node, int x, int scale,
                                       int zero, int64_t axis) {
  const std::optional<std::string> by = PerAxis(w, node, scale, axis);
  if (!by.has_value()) return std::nullopt;
  std::string whole = w.Float(node, node.input(x));
  if (Has(node, zero)) {
    const std::optional<std::string> from = PerAxis(w, node, zero, axis);
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
  const std::optional<std::string> by = PerAxis(w, node, scale, axis);
  if (!range.has_value() || !by.has_value()) return false;
  std::string whole = w.Make(node, "Round", {w.Make(node, "Div", {x, *by})});
  if (Has(node, zero)) {
    const std::optional<std::string> from = PerAxis(w, node, zero, axis);
    if (!from.has_value()) return false;
    whole = w.Make(node, "Add", {whole, *from});
  }
  const std::string least = w.Number(whole, range->first), most = w.Number(whole, range->second);
  w.Add(node, "Min", {w.Make(node, "Max", {whole, least}), most}, node.output(0));
  return true;
}

bool Quantize(CompositeWriter& w, const Node& node) {
  return AddQuantised(w, node, node.input(0), 1, 2, IntAttribute(node, "axis", 1));
}

// Weights, at once: they may be large, and have a scale per entry of any axis.
bool DequantizeConstant(CompositeWriter& w, const Node& node) {
  std::optional<Constant> parts[3];
  for (int i = 0; i < std::min(3, node.input_size()); ++i) {
    const onnx::TensorProto* const tensor = w.FindTensor(node.input(i));
    if (tensor == nullptr) return node.input(i).empty() && i == 2;
    absl::StatusOr<Constant> constant = ReadTensor(*tensor);
    if (!constant.ok()) return false;
    parts[i] = *std::move(constant);
  }
  const std::vector<int64_t> sizes = parts[0]->sizes();
  int64_t axis = IntAttribute(node, "axis", 1), inner = 1;
  const auto rank = static_cast<int64_t>(sizes.size());
  if (axis < 0) axis += rank;
  const int64_t scales = parts[1]->elements();
  if (scales < 1 || !parts[1]->is_float) return false;
  if (scales > 1 && (axis < 0 || axis >= rank || sizes[static_cast<size_t>(axis)] != scales)) {
    return false;
  }
  for (int64_t d = axis + 1; scales > 1 && d < rank; ++d) inner *= sizes[static_cast<size_t>(d)];
  if (parts[2].has_value() && parts[2]->elements() != scales) return false;
  std::vector<float> values;
  const int64_t count = parts[0]->elements();
  values.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = scales > 1 ? i / inner % scales : 0;
    const double zero = parts[2].has_value() ? parts[2]->number(at) : 0;
    values.push_back(static_cast<float>(parts[0]->number(i) - zero) * parts[1]->f32(at));
  }
  const std::string flat = w.Floats(node.output(0), values);
  w.Add(node, "Reshape", {flat, w.Integers(node.output(0), sizes)}, node.output(0));
  return true;
}

bool Dequantize(CompositeWriter& w, const Node& node) {
  if (DequantizeConstant(w, node)) return true;
  const auto out = Dequantised(w, node, 0, 1, 2, IntAttribute(node, "axis", 1));
  if (out.has_value()) w.Add(node, "Identity", {*out}, node.output(0));
  return out.has_value();
}

bool IntegerProduct(CompositeWriter& w, const Node& node) {
  std::string sides[2];
  for (int i = 0; i < 2; ++i) {
    sides[i] = w.Float(node, node.input(i));
    if (!Has(node, i + 2)) continue;
    const std::optional<std::string> from = PerAxis(w, node, i + 2, i == 1 ? -1 : 0);
    if (!from.has_value()) return false;
    sides[i] = w.Make(node, "Sub", {sides[i], *from});
  }
  w.Add(node, "MatMul", {sides[0], sides[1]}, node.output(0));
  return true;
}

bool QuantisedProduct(CompositeWriter& w, const Node& node) {
  const auto a = Dequantised(w, node, 0, 1, 2, 0), b = Dequantised(w, node, 3, 4, 5, -1);
  return a.has_value() && b.has_value() &&
         AddQuantised(w, node, w.Make(node, "MatMul", {*a, *b}), 6, 7, 0);
}

constexpr Composite kRows[] = {
    {kMicrosoft, "QuantizeLinear", 2, Quantize}, {kMicrosoft, "DequantizeLinear", 2, Dequantize},
    {"", "QuantizeLinear", 2, Quantize},         {"", "DequantizeLinear", 2, Dequantize},
    {"", "MatMulInteger", 2, IntegerProduct},    {"", "QLinearMatMul", 8, QuantisedProduct},
};

}  // namespace

absl::Span<const Composite> QuantisedComposites() { return kRows; }

}  // namespace ulfd::convert

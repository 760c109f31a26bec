// Operators computed while converting, on constants.
// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/onnx/fold/fold.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "tools/convert/onnx/proof/interpreter.h"

namespace ulfd::convert {
namespace {

using engine::Dim;
using Inputs = absl::Span<const Constant* const>;

const Fold* FindFold(const std::string& op) {
  for (const auto table : {MovementFolds(), ArithmeticFolds()}) {
    for (const Fold& fold : table) {
      if (op == fold.op) return &fold;
    }
  }
  return nullptr;
}

// Any other operator on numbers, as the interpreter defines it.
absl::StatusOr<std::vector<Constant>> FoldByDefinition(const onnx::NodeProto& node, int64_t opset,
                                                       Inputs inputs) {
  constexpr int64_t kMostElements = int64_t{1} << 22;
  constexpr auto kTime = std::chrono::seconds(5);
  std::vector<reference::Array> arrays(inputs.size());
  std::vector<const reference::Array*> given;
  for (size_t i = 0; i < inputs.size(); ++i) {
    given.push_back(inputs[i] == nullptr ? nullptr : &arrays[i]);
    if (inputs[i] == nullptr) continue;
    const Constant& c = *inputs[i];
    RETURN_IF_ERROR(WantNumbers(c));
    if (c.elements() > kMostElements) return absl::UnimplementedError("constants that are large");
    if (c.is_float) {
      ASSIGN_OR_RETURN(const std::vector<float> values, c.ToFloats());
      arrays[i] =
          reference::Floats(onnx::TensorProto::FLOAT, c.sizes(), {values.begin(), values.end()});
    } else {
      ASSIGN_OR_RETURN(std::vector<int64_t> values, c.ToInts());
      arrays[i] = reference::Ints(onnx::TensorProto::INT64, c.sizes(), std::move(values));
    }
  }
  reference::RunOptions options;
  options.budget.deadline = std::chrono::steady_clock::now() + kTime;
  options.budget.max_elements = kMostElements;
  ASSIGN_OR_RETURN(const std::vector<reference::Array> results,
                   reference::Compute(node, opset, options, std::move(given)));
  std::vector<Constant> constants;
  for (const reference::Array& result : results) {
    // Operators have outputs that nodes do not ask for.
    if (static_cast<int>(constants.size()) == node.output_size()) break;
    std::vector<float> floats;
    std::vector<Dim> ints;
    for (int64_t i = 0; i < result.elements(); ++i) {
      if (result.is_float()) {
        floats.push_back(static_cast<float>(result.at(i)));
      } else {
        ints.push_back(Dim::Of((*result.ints)[static_cast<size_t>(i)]));
      }
    }
    constants.push_back(result.is_float() ? FloatConstant(result.dims, std::move(floats))
                                          : IntConstant(result.dims, std::move(ints)));
  }
  return constants;
}

}  // namespace

bool CanFold(const onnx::NodeProto& node) {
  return node.op_type() == "Split" || reference::IsKnown(node) ||
         FindFold(node.op_type()) != nullptr;
}

absl::StatusOr<std::vector<Constant>> FoldNode(const onnx::NodeProto& node, int64_t opset,
                                               absl::Span<const Constant* const> inputs) {
  const std::string& op = node.op_type();
  const bool optional = op == "Slice" || op == "Dropout" || op == "Trilu" || op == "Clip";
  const Fold* const row = FindFold(op);
  if (op != "Split" && row == nullptr) return FoldByDefinition(node, opset, inputs);
  for (size_t i = 0; !optional && i < inputs.size(); ++i) {
    if (inputs[i] != nullptr) continue;
    return absl::InvalidArgumentError(absl::StrCat("input ", i, " is missing"));
  }
  if (op == "Split") return FoldSplit({node, opset, inputs});
  ASSIGN_OR_RETURN(Constant constant, row->run({node, opset, inputs}));
  return std::vector<Constant>{std::move(constant)};
}

}  // namespace ulfd::convert

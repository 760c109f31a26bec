// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/onnx/rows/fixed_rows.h"

#include <chrono>
#include <map>
#include <optional>
#include <set>

#include "absl/algorithm/container.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "tools/convert/onnx/model/constant.h"
#include "tools/convert/onnx/model/types.h"
#include "tools/convert/onnx/proof/interpreter.h"
#include "tools/convert/onnx/rows/row_values.h"

namespace ulfd::convert {
namespace {

constexpr int64_t kMostRows = 4096;

// Sizes of constants, integers in small ones, and what divides them, as rows do that are merged
// with steps or heads.
std::set<int64_t> NumbersOf(const onnx::GraphProto& graph) {
  std::set<int64_t> numbers;
  const auto add = [&](const onnx::TensorProto& tensor) {
    constexpr int64_t kFew = 16;
    numbers.insert(tensor.dims().begin(), tensor.dims().end());
    if (tensor.data_type() != onnx::TensorProto::INT64 || tensor.dims_size() > 1 ||
        absl::c_any_of(tensor.dims(), [](int64_t size) { return size > kFew; })) {
      return;
    }
    const absl::StatusOr<Constant> constant = ReadTensor(tensor);
    for (int64_t i = 0; constant.ok() && i < constant->elements(); ++i) {
      numbers.insert(constant->dim(i).value());
    }
  };
  for (const onnx::TensorProto& tensor : graph.initializer()) add(tensor);
  for (const onnx::NodeProto& node : graph.node()) {
    for (const onnx::AttributeProto& attribute : node.attribute()) {
      if (attribute.has_t()) add(attribute.t());
      numbers.insert(attribute.ints().begin(), attribute.ints().end());
    }
  }
  numbers.insert(1);
  std::set<int64_t> divisors;
  for (const int64_t number : numbers) {
    if (number < 1 || number > kMostRows) continue;
    for (int64_t divisor = 1; divisor * divisor <= number; ++divisor) {
      if (number % divisor == 0) divisors.insert({divisor, number / divisor});
    }
  }
  return divisors;
}

// Whether floats are computed with the number, as x / len(x) does: it is not only a size.
bool ComputesWith(const onnx::GraphProto& graph, int64_t number) {
  std::map<std::string, bool> same;  // Name -> whether it is a float.
  const auto add = [&](const onnx::TensorProto& tensor, const std::string& name) {
    const bool one = absl::c_all_of(tensor.dims(), [](int64_t size) { return size == 1; });
    const absl::StatusOr<Constant> constant = one ? ReadTensor(tensor) : Constant();
    if (one && constant.ok() && constant->elements() == 1 &&
        constant->number(0) == static_cast<float>(number)) {
      same[name] = constant->is_float;
    }
  };
  for (const onnx::TensorProto& tensor : graph.initializer()) add(tensor, tensor.name());
  for (const onnx::NodeProto& node : graph.node()) {
    const onnx::AttributeProto* const value =
        node.op_type() == "Constant" ? FindAttribute(node, "value") : nullptr;
    if (value != nullptr) add(value->t(), node.output(0));
    for (const std::string& input : node.input()) {
      const auto read = same.find(input);
      if (read == same.end()) continue;
      if (read->second && IsOneOf(node.op_type(), {"Add", "Sub", "Mul", "Div", "Mod", "Sqrt", "Log",
                                                   "Reciprocal"})) {
        return true;
      }
      if (IsOneOf(node.op_type(), {"Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze"})) {
        const auto to = static_cast<int>(IntAttribute(node, "to", 0));
        same[node.output(0)] = to == 0 ? read->second : reference::IsFloatType(to);
      }
    }
  }
  return false;
}

using Outputs = std::vector<reference::Sizes>;

absl::StatusOr<Outputs> RunWith(const reference::Evaluator& evaluator,
                                const onnx::GraphProto& graph, int64_t rows,
                                const std::vector<std::string>& inputs,
                                const reference::RunOptions& options) {
  std::map<std::string, reference::Array> made;
  for (const onnx::ValueInfoProto& input : graph.input()) {
    const bool follows = absl::c_linear_search(inputs, input.name());
    std::optional<reference::Array> array = MakeUpRows(input, follows ? rows : 0);
    if (!array.has_value()) return Unimplemented("input \"", input.name(), "\"");
    made[input.name()] = *std::move(array);
  }
  ASSIGN_OR_RETURN(const auto values, evaluator.Run(made, options));
  Outputs outputs;
  for (const auto& [name, value] : values) outputs.push_back(value.dims);
  return outputs;
}

}  // namespace

int64_t FixedRows(const OnnxModel& model, const std::vector<std::string>& inputs) {
  constexpr auto kTime = std::chrono::seconds(10);
  constexpr size_t kMostTries = 256;
  const onnx::GraphProto& graph = model.proto.graph();
  const absl::StatusOr<reference::Evaluator> evaluator = reference::Evaluator::Make(model);
  const std::set<int64_t> numbers = NumbersOf(graph);
  if (!evaluator.ok() || numbers.size() > kMostTries) return 0;
  reference::RunOptions options;
  options.budget.deadline = std::chrono::steady_clock::now() + kTime;
  int64_t other = 2, found = 0;
  while (numbers.contains(other)) ++other;
  // What any number of rows does not run for is not tried again and again.
  if (!absl::IsInvalidArgument(RunWith(*evaluator, graph, other, inputs, options).status())) {
    return 0;
  }
  Outputs outputs;
  for (const int64_t rows : numbers) {
    absl::StatusOr<Outputs> with = RunWith(*evaluator, graph, rows, inputs, options);
    if (!with.ok()) continue;
    // A single row is repeated where it meets what the model has of the example's.
    if (found > 1 || (found == 1 && *with != outputs)) return 0;
    found = rows;
    outputs = *std::move(with);
  }
  // Everything computes with 1.
  const bool computes = found > 1 && ComputesWith(graph, found);
  return options.budget.Check().ok() && !computes ? found : 0;
}

}  // namespace ulfd::convert

// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/onnx/rewrites/pattern_reader.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "tools/convert/onnx/model/constant.h"
#include "tools/convert/onnx/model/types.h"

namespace ulfd::convert {
namespace {

std::optional<float> OnlyNumber(const onnx::TensorProto& tensor) {
  if (!absl::c_all_of(tensor.dims(), [](int64_t size) { return size == 1; })) return std::nullopt;
  const absl::StatusOr<Constant> constant = ReadTensor(tensor);
  if (!constant.ok() || constant->elements() != 1) return std::nullopt;
  return static_cast<float>(constant->number(0));
}

}  // namespace

using Node = onnx::NodeProto;

PatternReader::PatternReader(onnx::GraphProto& graph, int64_t opset) : Rewriter(graph, opset) {
  for (const Node& node : graph.node()) {
    if (node.output_size() == 1) makers_[node.output(0)] = &node;
    for (const std::string& input : node.input()) ++readers_[input];
  }
  for (const onnx::ValueInfoProto& output : graph.output()) ++readers_[output.name()];
}

const Node* PatternReader::MakerOf(const std::string& name, absl::string_view op,
                                   int inputs) const {
  const auto found = makers_.find(name);
  const bool is = found != makers_.end() && found->second->op_type() == op &&
                  found->second->input_size() >= inputs;
  return is ? found->second : nullptr;
}

bool PatternReader::HasOneReader(const std::string& name) const {
  const auto found = readers_.find(name);
  return found != readers_.end() && found->second == 1;
}

std::optional<float> PatternReader::NumberOf(const std::string& name) const {
  const onnx::TensorProto* const tensor = FindTensor(name);
  return tensor != nullptr && tensor->dims_size() <= 1 ? OnlyNumber(*tensor) : std::nullopt;
}

bool PatternReader::IsNumber(const std::string& name, float number) const {
  return NumberOf(name) == number;
}

bool PatternReader::IsNumber(const onnx::TensorProto& tensor, float number) {
  return OnlyNumber(tensor) == number;
}

std::string PatternReader::Beside(const Node& node, float number) const {
  for (int i = 0; i < 2; ++i) {
    if (IsNumber(node.input(i), number)) return node.input(1 - i);
  }
  return "";
}

std::string PatternReader::Negated(const std::string& name) const {
  if (const Node* neg = MakerOf(name, "Neg", 1)) return neg->input(0);
  if (const Node* product = MakerOf(name, "Mul", 2)) return Beside(*product, -1);
  const Node* const difference = MakerOf(name, "Sub", 2);
  return difference != nullptr && IsNumber(difference->input(0), 0) ? difference->input(1) : "";
}

std::string PatternReader::Inverted(const std::string& name) const {
  if (const Node* inverse = MakerOf(name, "Reciprocal", 1)) return inverse->input(0);
  if (const Node* power = MakerOf(name, "Pow", 2)) {
    return IsNumber(power->input(1), -1) ? power->input(0) : "";
  }
  const Node* const ratio = MakerOf(name, "Div", 2);
  return ratio != nullptr && IsNumber(ratio->input(0), 1) ? ratio->input(1) : "";
}

std::vector<int64_t> PatternReader::AxesOf(const Node& node) const {
  if (node.input_size() < 2) return IntsAttribute(node, "axes");
  return Ints(node.input(1)).value_or(std::vector<int64_t>());
}

bool PatternReader::OfFloats(const Node& node) const {
  return std::any_of(node.input().begin(), node.input().end(),
                     [&](const std::string& input) { return IsPlainFloat(types_.TypeOf(input)); });
}

bool PatternReader::Be(const Node& node, const char* op, const std::vector<std::string>& inputs) {
  Add(node, op, inputs, node.output(0));
  return true;
}

}  // namespace ulfd::convert

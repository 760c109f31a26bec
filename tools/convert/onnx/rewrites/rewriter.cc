// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/onnx/rewrites/rewriter.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tools/convert/onnx/model/constant.h"
#include "tools/convert/onnx/model/functions.h"
#include "tools/convert/onnx/model/types.h"

namespace ulfd::convert {

Rewriter::Rewriter(onnx::GraphProto& graph, int64_t opset)
    : opset_(opset), types_(builder_, opset), graph_(graph) {
  InferTypes(graph, types_);
  for (const onnx::ValueInfoProto& input : graph.input()) names_.insert(input.name());
  for (const onnx::TensorProto& tensor : graph.initializer()) {
    constants_[tensor.name()] = &tensor;
    names_.insert(tensor.name());
  }
  for (const onnx::NodeProto& node : graph.node()) {
    names_.insert(node.output().begin(), node.output().end());
    for (const onnx::AttributeProto& attribute : node.attribute()) {
      if (node.op_type() == "Constant" && attribute.name() == "value" && attribute.has_t() &&
          node.output_size() == 1) {
        constants_[node.output(0)] = &attribute.t();
      }
    }
  }
}

bool Rewriter::Run() {
  bool changed = false;
  for (const onnx::NodeProto& node : graph_.node()) {
    const int before = nodes_.size();
    const bool replaced = node.output_size() > 0 && Replace(node);
    changed |= replaced;
    if (!replaced) nodes_.DeleteSubrange(before, nodes_.size() - before);
    if (!replaced || Stays(node)) *nodes_.Add() = node;
  }
  if (!changed || !Fits()) return false;
  graph_.mutable_node()->Swap(&nodes_);
  for (onnx::TensorProto& tensor : added_) *graph_.add_initializer() = std::move(tensor);
  DropUnread(graph_);
  return true;
}

const onnx::TensorProto* Rewriter::FindTensor(const std::string& name) const {
  const auto found = constants_.find(name);
  return found == constants_.end() ? nullptr : found->second;
}

std::optional<std::vector<int64_t>> Rewriter::Ints(const std::string& name) const {
  const onnx::TensorProto* const tensor = FindTensor(name);
  if (tensor == nullptr) return std::nullopt;
  const absl::StatusOr<Constant> constant = ReadTensor(*tensor);
  if (!constant.ok() || constant->is_float) return std::nullopt;
  absl::StatusOr<std::vector<int64_t>> values = constant->ToInts();
  return values.ok() ? std::optional(*std::move(values)) : std::nullopt;
}

std::optional<int64_t> Rewriter::Int(const onnx::NodeProto& node, int i) const {
  if (node.input_size() <= i) return std::nullopt;
  const std::optional<std::vector<int64_t>> values = Ints(node.input(i));
  return values.has_value() && values->size() == 1 ? std::optional((*values)[0]) : std::nullopt;
}

std::vector<std::string> Rewriter::EinsumTerms(const onnx::NodeProto& node) {
  if (node.op_type() != "Einsum") return {};  // Others may have such an attribute, too.
  std::string equation = StringAttribute(node, "equation", "");
  std::erase(equation, ' ');
  const std::vector<std::string> sides = absl::StrSplit(equation, absl::MaxSplits("->", 1));
  std::vector<std::string> terms = absl::StrSplit(sides[0], ',');
  if (sides.size() != 2 || static_cast<int>(terms.size()) != node.input_size()) return {};
  terms.push_back(sides[1]);
  return terms;
}

std::string Rewriter::Fresh(const std::string& base) {
  std::string name;
  do {
    name = absl::StrCat(base, "/plain", ++count_);
  } while (!names_.insert(name).second);
  return name;
}

onnx::TensorProto& Rewriter::NewTensor(const std::string& base, int type) {
  onnx::TensorProto& tensor = added_.emplace_back();
  tensor.set_name(Fresh(base));
  tensor.set_data_type(type);
  constants_[tensor.name()] = &tensor;
  return tensor;
}

std::string Rewriter::Integers(const std::string& base, absl::Span<const int64_t> values) {
  onnx::TensorProto& tensor = NewTensor(base, onnx::TensorProto::INT64);
  tensor.add_dims(static_cast<int64_t>(values.size()));
  for (const int64_t value : values) tensor.add_int64_data(value);
  return tensor.name();
}

std::string Rewriter::IntegersLike(const onnx::TensorProto& like,
                                   absl::Span<const int64_t> values) {
  std::string name = Integers(like.name(), values);
  *added_.back().mutable_dims() = like.dims();
  return name;
}

std::string Rewriter::Floats(const std::string& base, absl::Span<const float> values) {
  onnx::TensorProto& tensor = NewTensor(base, onnx::TensorProto::FLOAT);
  tensor.add_dims(static_cast<int64_t>(values.size()));
  for (const float value : values) tensor.add_float_data(value);
  return tensor.name();
}

std::string Rewriter::Number(const std::string& base, float value) {
  onnx::TensorProto& tensor = NewTensor(base, onnx::TensorProto::FLOAT);
  tensor.add_float_data(value);
  return tensor.name();
}

onnx::NodeProto& Rewriter::Add(const onnx::NodeProto& of, const char* op,
                               const std::vector<std::string>& inputs, const std::string& output) {
  return AddNode(op, of.name(), inputs, output, nodes_);
}

std::string Rewriter::Make(const onnx::NodeProto& of, const char* op,
                           const std::vector<std::string>& inputs) {
  return Add(of, op, inputs, Fresh(of.output(0))).output(0);
}

void Rewriter::AddOnAxis(const onnx::NodeProto& of, const char* op, const std::string& input,
                         int64_t axis, const std::string& output) {
  if (opset_ >= kAxesAreInputs) {
    Add(of, op, {input, Integers(output, {axis})}, output);
    return;
  }
  SetInts(Add(of, op, {input}, output), "axes", {axis});
}

void Rewriter::AddSlice(const onnx::NodeProto& of, const std::string& input, int64_t axis,
                        int64_t begin, int64_t end, const std::string& output) {
  Add(of, "Slice",
      {input, Integers(output, {begin}), Integers(output, {end}), Integers(output, {axis})},
      output);
}

std::string Rewriter::Scalar(const onnx::NodeProto& of, int64_t value) {
  std::string one = Integers(of.output(0), {value}), scalar = Fresh(one);
  AddOnAxis(of, "Squeeze", one, 0, scalar);
  return scalar;
}

std::string Rewriter::NumbersBelow(const onnx::NodeProto& of, const std::string& count) {
  const std::string limit = Fresh(count);
  AddOnAxis(of, "Squeeze", count, 0, limit);
  return Make(of, "Range", {Scalar(of, 0), limit, Scalar(of, 1)});
}

void Rewriter::AddBesideRows(const onnx::NodeProto& of, const std::vector<std::string>& values,
                             const std::string& output) {
  std::vector<std::string> columns;
  for (const std::string& value : values) {
    columns.push_back(Fresh(output));
    AddOnAxis(of, "Unsqueeze", value, 1, columns.back());
  }
  const std::string joined = Fresh(output), row = Fresh(output);
  SetInt(Add(of, "Concat", columns, joined), "axis", 1);
  AddSlice(of, Make(of, "Shape", {values[0]}), 0, 1, std::numeric_limits<int64_t>::max(), row);
  const std::string shape = Fresh(output);
  SetInt(Add(of, "Concat", {Integers(output, {-1}), row}, shape), "axis", 0);
  Add(of, "Reshape", {joined, shape}, output);
}

}  // namespace ulfd::convert

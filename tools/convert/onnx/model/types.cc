// Element types of all values of an ONNX graph.
// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/onnx/model/types.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ulfd::convert {
namespace {

bool IsOneOf(const std::string& op, std::initializer_list<const char*> ops) {
  return std::any_of(ops.begin(), ops.end(), [&](const char* known) { return op == known; });
}

int TypeOfOutput(const onnx::NodeProto& node, int output, const OnnxGraph& graph) {
  const std::string& op = node.op_type();
  if (IsComparison(op) || IsOneOf(op, {"And", "Or", "Xor", "Not", "IsNaN", "IsInf"})) {
    return onnx::TensorProto::BOOL;
  }
  if (op == "Cast") return static_cast<int>(IntAttribute(node, "to", 0));
  if (op == "EyeLike" && HasAttribute(node, "dtype")) {
    return static_cast<int>(IntAttribute(node, "dtype", 0));
  }
  if (IsOneOf(op, {"Shape", "Size", "ArgMax", "ArgMin", "NonZero"}) ||
      (output == 1 && IsOneOf(op, {"MaxPool", "TopK"}))) {
    return onnx::TensorProto::INT64;
  }
  if (output == 1 && op == "Dropout") return onnx::TensorProto::BOOL;
  for (const onnx::AttributeProto& attribute : node.attribute()) {
    if (op != "Constant" && op != "ConstantOfShape") break;
    if (attribute.name() == "value") return attribute.t().data_type();
    if (attribute.name() == "value_int" || attribute.name() == "value_ints") {
      return onnx::TensorProto::INT64;
    }
  }
  if (op == "Constant" || op == "ConstantOfShape") return onnx::TensorProto::FLOAT;
  const int from = op == "Where" || op == "CastLike" ? 1 : op == "OneHot" ? 2 : 0;
  return node.input_size() > from ? graph.TypeOf(node.input(from)) : 0;
}

// Single precision has no more integers than this in a row: those beyond are rounded, to this or to
// more.
constexpr double kExact = 1 << 24;

// A step that moves rounded integers by so little that they stay beyond what they are compared
// with.
constexpr double kStep = 1 << 16, kComparedAfterSteps = 1 << 20;

bool IsSmallConstant(const Constant* constant, double most) {
  if (constant == nullptr || constant->is_float) return false;
  return std::all_of(constant->ints.begin(), constant->ints.end(), [&](const engine::Dim& value) {
    return value.IsConst() && std::fabs(static_cast<double>(value.value())) < most;
  });
}
// Also one that is repeated for each row.
const Constant* ConstantOf(const std::string& name, const OnnxGraph& graph) {
  const OnnxValue* value = graph.FindValue(name);
  return value == nullptr ? graph.FindConstant(name) : graph.ConstantBehind(value->tensor);
}
bool HasSmallConstant(const onnx::NodeProto& node, const OnnxGraph& graph, double most) {
  return node.input_size() == 2 && (IsSmallConstant(ConstantOf(node.input(0), graph), most) ||
                                    IsSmallConstant(ConstantOf(node.input(1), graph), most));
}

// What computes places from lengths: length - 1, (length - step) * mask.  A product with integers
// that are exact is 0, exact, or at least as large as the rounded one.
bool Steps(const onnx::NodeProto& node, const OnnxGraph& graph) {
  if (node.op_type() == "Mul") {
    return node.input_size() == 2 && (graph.RoundedFrom(node.input(0)) == nullptr ||
                                      graph.RoundedFrom(node.input(1)) == nullptr);
  }
  return IsOneOf(node.op_type(), {"Add", "Sub"}) && HasSmallConstant(node, graph, kStep);
}

// Operators that give back values that they read: rounding before is rounding after.
bool Moves(const std::string& op) {
  return IsOneOf(op, {"Clip",      "Identity", "Reshape",   "Flatten",  "Squeeze", "Unsqueeze",
                      "Transpose", "Expand",   "Concat",    "Slice",    "Split",   "Gather",
                      "Neg",       "Abs",      "Min",       "Max",      "Relu",    "Where",
                      "Tile",      "Dropout",  "ReduceMax", "ReduceMin"});
}

}  // namespace

bool IsComparison(const std::string& op) {
  return IsOneOf(op, {"Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual"});
}

bool IsIdType(int type) {
  return type == onnx::TensorProto::INT64 || type == onnx::TensorProto::INT32;
}

bool IsPlainFloat(int type) {
  return type == onnx::TensorProto::FLOAT || type == onnx::TensorProto::DOUBLE;
}

void InferTypes(const onnx::GraphProto& proto, OnnxGraph& graph) {
  for (const onnx::ValueInfoProto& input : proto.input()) {
    graph.SetType(input.name(), input.type().tensor_type().elem_type());
  }
  for (const onnx::TensorProto& tensor : proto.initializer()) {
    graph.SetType(tensor.name(), tensor.data_type());
  }
  for (const onnx::NodeProto& node : proto.node()) {
    for (int i = 0; i < node.output_size(); ++i) {
      graph.SetType(node.output(i), TypeOfOutput(node, i, graph));
    }
  }
}

absl::Status CheckIntegers(const onnx::NodeProto& node, const OnnxGraph& graph,
                           const onnx::NodeProto* reader) {
  const std::string& op = node.op_type();
  if (node.output_size() > 0 && IsShortInteger(graph.TypeOf(node.output(0))) && !Moves(op)) {
    return absl::UnimplementedError("computes integers of 8 or 16 bits, which start over");
  }
  std::set<std::string> sources;
  for (const std::string& input : node.input()) {
    if (graph.RoundedFrom(input) != nullptr) sources.insert(*graph.RoundedFrom(input));
  }
  if (sources.empty() || Moves(op) || IsOneOf(op, {"Shape", "Size", "Sign"})) {
    return absl::OkStatus();
  }
  // A sum of rounded numbers is as exact as their sum rounded: the length of a mask.
  if (op == "ReduceSum") return absl::OkStatus();
  // As numbers of steps, INT32 has all that can be.
  const bool steps = reader != nullptr && IsOneOf(reader->op_type(), {"GRU", "LSTM", "RNN"});
  if (op == "Cast" && (steps || IntAttribute(node, "to", 0) != onnx::TensorProto::INT32)) {
    return absl::OkStatus();
  }
  // Those compare with small ones, and give back what they find.
  if (IsOneOf(op, {"OneHot", "GatherElements", "NegativeLogLikelihoodLoss",
                   "SoftmaxCrossEntropyLoss", "GRU", "LSTM", "RNN"})) {
    return absl::OkStatus();
  }
  const bool compares = IsComparison(op);
  const bool stepped = std::any_of(node.input().begin(), node.input().end(),
                                   [&](const std::string& name) { return graph.IsStepped(name); });
  if (compares && HasSmallConstant(node, graph, stepped ? kComparedAfterSteps : kExact)) {
    return absl::OkStatus();
  }
  const bool small = std::any_of(node.input().begin(), node.input().end(),
                                 [&](const std::string& name) { return graph.IsSmall(name); });
  if (compares && small && !stepped) return absl::OkStatus();
  if (Steps(node, graph)) return absl::OkStatus();
  const std::string names = absl::StrJoin(sources, ",");
  return absl::UnimplementedError(
      absl::StrCat(compares ? "compares" : "computes with", " integers of input \"", names,
                   "\", which ULF has in single precision: those beyond 2^24 would be rounded; "
                   "--small_integers=",
                   names, " if there are none, or make them floats in the model"));
}

void MarkIntegers(const onnx::NodeProto& node, OnnxGraph& graph) {
  if (IsOneOf(node.op_type(), {"Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze",
                               "Transpose", "Expand", "Slice", "Gather"}) &&
      graph.IsSmall(node.input(0))) {
    graph.MarkSmall(node.output(0));
  }
  // Between small limits nothing is rounded: what is beyond becomes a limit either way.
  if (node.op_type() == "Clip" && node.input_size() == 3 &&
      IsSmallConstant(graph.FindConstant(node.input(1)), kExact) &&
      IsSmallConstant(graph.FindConstant(node.input(2)), kExact)) {
    return;
  }
  for (const std::string& output : node.output()) {
    if (!graph.IsInteger(output) || graph.FindConstant(output) != nullptr) continue;
    for (const std::string& input : node.input()) {
      const std::string* source = graph.RoundedFrom(input);
      if (source != nullptr && node.op_type() != "Sign") {
        const std::string name = *source;
        graph.MarkRounded(output, name);
        if (graph.IsStepped(input) || Steps(node, graph)) graph.MarkStepped(output);
      }
    }
  }
}

}  // namespace ulfd::convert

// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/onnx/model/types.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "base/errors.h"

namespace ulfd::convert {
namespace {

int TypeOfOutput(const onnx::NodeProto& node, int output, const OnnxGraph& graph) {
  const std::string& op = node.op_type();
  if (IsComparison(op) || IsOneOf(op, {"And", "Or", "Xor", "Not", "IsNaN", "IsInf"})) {
    return onnx::TensorProto::BOOL;
  }
  if (op == "Cast") return static_cast<int>(IntAttribute(node, "to", 0));
  if (op == "EyeLike" && FindAttribute(node, "dtype") != nullptr) {
    return static_cast<int>(IntAttribute(node, "dtype", 0));
  }
  if (IsOneOf(op, {"Shape", "Size", "ArgMax", "ArgMin", "NonZero"}) ||
      (output == 1 && IsOneOf(op, {"MaxPool", "TopK"}))) {
    return onnx::TensorProto::INT64;
  }
  if (output == 1 && op == "Dropout") return onnx::TensorProto::BOOL;
  if (IsOneOf(op, {"If", "Loop", "Scan"})) return 0;  // Their first inputs say nothing of it.
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
constexpr auto kExact = static_cast<double>(engine::kFloatIntegers);

// Double has these.
constexpr auto kMost = static_cast<double>(engine::kDoubleIntegers);

// A step that moves rounded integers by so little that they stay beyond what they are compared
// with.
constexpr double kStep = 1 << 16, kComparedAfterSteps = 1 << 20;

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
  return IsOneOf(
      op, {"Clip",      "Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose",
           "Expand",    "Concat",   "Slice",   "Split",   "Gather",  "Neg",       "Abs",
           "Min",       "Max",      "Relu",    "Where",   "Tile",    "Dropout",   "ReduceMax",
           "ReduceMin", "Pad",      "Trilu",   "GatherND"});
}

// The bound of an operand; null: not known.
std::optional<IntegerBound> BoundOfOperand(const std::string& name, const OnnxGraph& graph) {
  if (const IntegerBound* bound = graph.BoundOf(name)) return *bound;
  if (graph.IsSmall(name) || graph.TypeOf(name) == onnx::TensorProto::BOOL) {
    return IntegerBound{.plus = graph.IsSmall(name) ? kExact : 1};
  }
  const Constant* const constant = ConstantOf(name, graph);
  if (!IsSmallConstant(constant, kMost)) return std::nullopt;
  IntegerBound bound;
  for (const engine::Dim& value : constant->ints) {
    bound.plus = std::max(bound.plus, std::fabs(static_cast<double>(value.value())));
  }
  return bound;
}

IntegerBound Sum(IntegerBound a, const IntegerBound& b) {
  a.inputs.insert(b.inputs.begin(), b.inputs.end());
  a.factor += b.factor;
  a.plus += b.plus;
  return a;
}

IntegerBound Either(IntegerBound a, const IntegerBound& b) {
  a.inputs.insert(b.inputs.begin(), b.inputs.end());
  a.factor = std::max(a.factor, b.factor);
  a.plus = std::max(a.plus, b.plus);
  return a;
}

bool Computes(const std::string& op) { return IsOneOf(op, {"Add", "Sub", "Mul", "Div", "Mod"}); }

// The smallest magnitude among whole numbers other than 0; 1 where they are not known.
double LeastOf(const Constant* constant) {
  if (!IsSmallConstant(constant, kMost) || constant->ints.empty()) return 1;
  double least = kMost;
  for (const engine::Dim& value : constant->ints) {
    least = std::min(least, std::fabs(static_cast<double>(value.value())));
  }
  return std::max(1.0, least);
}

// How large the node's results can be; null: not known.
std::optional<IntegerBound> BoundOfResult(const onnx::NodeProto& node, const OnnxGraph& graph) {
  const std::string& op = node.op_type();
  if (!Computes(op) && !Moves(op) && op != "Cast") return std::nullopt;
  std::vector<IntegerBound> bounds;
  for (const std::string& input : node.input()) {
    // Shapes, places and conditions say nothing of the size.
    const bool computed = graph.BoundOf(input) != nullptr;
    if (input.empty() || (!computed && !Computes(op) &&
                          !IsOneOf(op, {"Cast", "Where", "Concat", "Max", "Min", "Pad"}))) {
      continue;
    }
    const std::optional<IntegerBound> bound = BoundOfOperand(input, graph);
    if (!bound.has_value()) return std::nullopt;
    bounds.push_back(*bound);
  }
  if (bounds.empty()) return std::nullopt;
  IntegerBound result = bounds[0];
  for (size_t i = 1; i < bounds.size(); ++i) {
    const IntegerBound& next = bounds[i];
    if (op == "Mul") {
      if (result.factor > 0 && next.factor > 0) return std::nullopt;
      const double by = result.factor > 0 ? next.plus : result.plus;
      result = Either(result.factor > 0 ? result : next, {});
      result.factor *= by;
      result.plus *= by;
    } else if (op == "Mod") {
      result = Either(next, {.inputs = result.inputs});
    } else if (op == "Div") {
      const double by = LeastOf(ConstantOf(node.input(1), graph));
      result.factor /= by;
      result.plus /= by;
    } else {
      result = Computes(op) ? Sum(result, next) : Either(result, next);
    }
  }
  return result;
}

// Limits inputs so that nothing that the node reads or makes is rounded by what has integers up to
// `exact`.
bool LimitInputs(const onnx::NodeProto& node, int64_t exact, OnnxGraph& graph) {
  for (const std::string& input : node.input()) {
    const IntegerBound* const bound = graph.BoundOf(input);
    if (bound == nullptr ? graph.RoundedFrom(input) != nullptr : !LimitTo(*bound, graph, exact)) {
      return false;
    }
  }
  const std::optional<IntegerBound> result = BoundOfResult(node, graph);
  return result.has_value() ? LimitTo(*result, graph, exact) : !Computes(node.op_type());
}

// Whether the node's formula does without rounding what its operator would round.
bool UseFormula(const onnx::NodeProto& node, OnnxGraph& graph) {
  if (node.output_size() != 1 || graph.FindFormula(node.output(0)) == nullptr) return false;
  // INT32 starts over beyond 2^31.
  const bool of_32_bits = graph.TypeOf(node.input(0)) == onnx::TensorProto::INT32 ||
                          graph.TypeOf(node.output(0)) == onnx::TensorProto::INT32;
  const int64_t exact = of_32_bits ? int64_t{1} << 31 : engine::kDoubleIntegers;
  if (!LimitInputs(node, exact, graph)) return false;
  graph.UseFormula(node.output(0));
  return true;
}

}  // namespace

bool IsOneOf(const std::string& op, std::initializer_list<const char*> ops) {
  return std::any_of(ops.begin(), ops.end(), [&](const char* known) { return op == known; });
}

bool IsComparison(const std::string& op) {
  return IsOneOf(op, {"Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual"});
}

bool LimitTo(const IntegerBound& bound, OnnxGraph& graph, int64_t exact) {
  constexpr double kFewest = 1 << 12;
  const auto most = static_cast<double>(exact);
  const double below = bound.factor > 0 ? (most - bound.plus) / bound.factor : most;
  if (below < kFewest || bound.plus > most) return false;
  graph.LimitInputs(bound, static_cast<int64_t>(std::min(below, kMost)));
  return true;
}

bool IsSmallConstant(const Constant* constant, double most) {
  if (constant == nullptr || constant->is_float) return false;
  return std::all_of(constant->ints.begin(), constant->ints.end(), [&](const engine::Dim& value) {
    return value.IsConst() && std::fabs(static_cast<double>(value.value())) < most;
  });
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

absl::Status CheckIntegers(const onnx::NodeProto& node, OnnxGraph& graph,
                           const onnx::NodeProto* reader) {
  const std::string& op = node.op_type();
  if (op == "Cast" && graph.IsOnlyHalved(node.input(0))) {
    return Unimplemented("rounds to half precision, which ULF lacks");
  }
  // Booleans are 0 and 1 as integers of any size.
  const bool of_booleans = op == "Cast" && graph.TypeOf(node.input(0)) == onnx::TensorProto::BOOL;
  if (node.output_size() > 0 && IsShortInteger(graph.TypeOf(node.output(0))) && !Moves(op) &&
      !of_booleans) {
    return Unimplemented("computes integers of 8 or 16 bits, which start over");
  }
  std::set<std::string> sources;
  bool exact = true;
  for (const std::string& input : node.input()) {
    if (graph.RoundedFrom(input) != nullptr) sources.insert(*graph.RoundedFrom(input));
    exact &= graph.RoundedFrom(input) == nullptr;
    if (const IntegerBound* bound = graph.BoundOf(input)) {
      sources.insert(bound->inputs.begin(), bound->inputs.end());
    }
  }
  if (const int64_t below = IntAttribute(node, kIntegersBelow, 0); below > 0) {
    graph.LimitInputs({.inputs = sources}, below);
  }
  if (sources.empty() || Moves(op) || IsOneOf(op, {"Shape", "Size", "Sign"})) {
    return absl::OkStatus();
  }
  // A sum of rounded numbers is as exact as their sum rounded: the length of a mask.
  if (IsOneOf(op, {"ReduceSum", "CumSum"})) return absl::OkStatus();
  // As numbers of steps, INT32 has all that can be.
  const bool steps = reader != nullptr && IsOneOf(reader->op_type(), {"GRU", "LSTM", "RNN"});
  if (op == "Cast" && (steps || IntAttribute(node, "to", 0) != onnx::TensorProto::INT32)) {
    return absl::OkStatus();
  }
  // Those compare with small ones, and give back what they find.
  if (IsOneOf(op, {"OneHot", "GatherElements", "ScatterElements", "NegativeLogLikelihoodLoss",
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
  const bool finds = compares || IsOneOf(op, {"TopK", "ArgMax", "ArgMin", "Cast"});
  if (exact && finds) return absl::OkStatus();
  if (!exact && Steps(node, graph)) return absl::OkStatus();
  if (UseFormula(node, graph)) return absl::OkStatus();
  if ((finds || Computes(op)) && LimitInputs(node, engine::kFloatIntegers, graph)) {
    for (const std::string& output : node.output()) graph.MarkExact(output);
    return absl::OkStatus();
  }
  graph.LimitInputs({.inputs = sources}, 0);
  return Unimplemented(
      compares ? "compares" : "computes with", " integers of input \"", absl::StrJoin(sources, ","),
      "\", which ULF has in single precision: those beyond 2^24 would be rounded, and no bound of "
      "the input keeps the results below; make them floats in the model");
}

void MarkIntegers(const onnx::NodeProto& node, OnnxGraph& graph) {
  const int from = node.input_size() > 0 ? graph.TypeOf(node.input(0)) : 0;
  const bool halved = std::any_of(node.input().begin(), node.input().end(),
                                  [&](const auto& name) { return graph.IsOnlyHalved(name); });
  if ((halved && Moves(node.op_type())) ||
      (node.op_type() == "Cast" && IntAttribute(node, "to", 0) == onnx::TensorProto::FLOAT16 &&
       from != onnx::TensorProto::BOOL && from != onnx::TensorProto::FLOAT16)) {
    for (const std::string& output : node.output()) graph.MarkOnlyHalved(output);
  }
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
  const std::optional<IntegerBound> bound = BoundOfResult(node, graph);
  for (const std::string& output : node.output()) {
    if (!graph.IsInteger(output) || graph.FindConstant(output) != nullptr) continue;
    if (bound.has_value()) graph.SetBound(output, *bound);
    if (graph.IsExact(output)) continue;
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

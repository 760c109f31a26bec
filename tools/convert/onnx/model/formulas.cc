// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/onnx/model/formulas.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "tools/convert/onnx/model/types.h"

namespace ulfd::convert {
namespace {

// The formula of a node of these operands, "" for other operators.
std::string FormulaOf(const onnx::NodeProto& node, const std::vector<std::string>& x) {
  static constexpr std::pair<const char*, const char*> kInfix[] = {{"Add", "+"},
                                                                   {"Sub", "-"},
                                                                   {"Mul", "*"},
                                                                   {"Equal", "=="},
                                                                   {"Greater", ">"},
                                                                   {"Less", "<"},
                                                                   {"GreaterOrEqual", ">="},
                                                                   {"LessOrEqual", "<="}};
  const std::string& op = node.op_type();
  for (const auto& [name, sign] : kInfix) {
    if (op == name) return absl::StrCat("(", x[0], " ", sign, " ", x[1], ")");
  }
  if (op == "Div") return absl::StrCat("trunc(", x[0], " / ", x[1], ")");
  if (op == "Mod") {
    const char* const whole = IntAttribute(node, "fmod", 0) != 0 ? "trunc" : "floor";
    return absl::StrCat("(", x[0], " - ", x[1], " * ", whole, "(", x[0], " / ", x[1], "))");
  }
  if (op == "Neg" || op == "Abs") return absl::StrCat(op == "Neg" ? "neg(" : "abs(", x[0], ")");
  if (op == "Cast" && IsIdType(static_cast<int>(IntAttribute(node, "to", 0)))) return x[0];
  if (x.size() == 2 && (op == "Min" || op == "Max")) {
    return absl::StrCat(op == "Min" ? "min(" : "max(", x[0], ", ", x[1], ")");
  }
  return op == "Where" ? absl::StrCat("where(", absl::StrJoin(x, ", "), ")") : "";
}

// Appends the inputs of one of a formula's operands, and returns its text; null: it is rounded.
std::optional<std::string> OperandOf(const std::string& name, const OnnxGraph& graph,
                                     std::vector<IntegerFormula::Input>& inputs) {
  const IntegerFormula* const formula = graph.IsInteger(name) ? graph.FindFormula(name) : nullptr;
  if (formula != nullptr) {
    const size_t before = inputs.size();
    inputs.insert(inputs.end(), formula->inputs.begin(), formula->inputs.end());
    std::vector<std::pair<std::string, std::string>> places;
    for (size_t i = 0; i < formula->inputs.size(); ++i) {
      places.emplace_back(absl::StrCat("@", i), absl::StrCat("@", before + i));
    }
    return absl::StrReplaceAll(formula->text, places);
  }
  const Constant* const constant = graph.FindConstant(name);
  if (IsSmallConstant(constant, engine::kDoubleIntegers) && constant->dims.size() <= 1 &&
      IsNumbers(constant->dims) && constant->elements() == 1) {
    return absl::StrCat("(", constant->ints[0].value(), ")");
  }
  if (constant != nullptr
          ? !IsSmallConstant(constant, engine::kFloatIntegers)
          : graph.RoundedFrom(name) != nullptr || graph.FindValue(name) == nullptr) {
    return std::nullopt;
  }
  inputs.push_back({.name = name});
  return absl::StrCat("@", inputs.size() - 1);
}

}  // namespace

void ComposeFormula(const onnx::NodeProto& node, OnnxGraph& graph) {
  constexpr size_t kMostInputs = 16, kMostMoves = 16, kLongest = 1024;  // Every name may have one.
  const bool any = std::any_of(node.input().begin(), node.input().end(), [&](const auto& name) {
    return graph.IsInteger(name) && graph.FindFormula(name) != nullptr;
  });
  const int type = node.output_size() == 1 ? graph.TypeOf(node.output(0)) : 0;
  if (!any || !(IsIdType(type) || type == onnx::TensorProto::BOOL)) return;
  IntegerFormula formula;
  if (IsOneOf(node.op_type(), {"Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze",
                               "Transpose", "Expand", "Slice", "Gather", "Tile"})) {
    const IntegerFormula* const moved = graph.FindFormula(node.input(0));
    if (moved == nullptr || moved->inputs.size() != 1 ||
        moved->inputs[0].moves.size() == kMostMoves) {
      return;
    }
    formula = *moved;
    formula.inputs[0].moves.push_back(&node);
  } else {
    std::vector<std::string> operands;
    for (const std::string& input : node.input()) {
      const auto operand = OperandOf(input, graph, formula.inputs);
      if (!operand.has_value()) return;
      operands.push_back(*operand);
    }
    formula.text = FormulaOf(node, operands);
  }
  if (formula.text.empty() || formula.text.size() > kLongest ||
      formula.inputs.size() > kMostInputs) {
    return;
  }
  graph.SetFormula(node.output(0), std::move(formula));
}

}  // namespace ulfd::convert

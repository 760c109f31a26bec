// An operator that may end an idiom is a row of the table at the end.
// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/onnx/model/idioms.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "tools/convert/onnx/model/constant.h"
#include "tools/convert/onnx/model/functions.h"
#include "tools/convert/onnx/model/rewriter.h"
#include "tools/convert/onnx/model/types.h"

namespace ulfd::convert {
namespace {

using Node = onnx::NodeProto;

// Softmax works along its axis alone from here on, and along all behind it before.
constexpr int64_t kSoftmaxOfOneAxis = 13;

class IdiomReader : public Rewriter {
 public:
  IdiomReader(onnx::GraphProto& graph, int64_t opset) : Rewriter(graph, opset) {
    for (const Node& node : graph.node()) {
      if (node.output_size() == 1) makers_[node.output(0)] = &node;
      for (const std::string& input : node.input()) ++readers_[input];
    }
    for (const onnx::ValueInfoProto& output : graph.output()) ++readers_[output.name()];
  }

 private:
  struct Row {
    const char* op;
    int inputs;  // At least.
    bool (IdiomReader::*replace)(const Node& node);
  };
  static const Row kRows[];

  bool Replace(const Node& node) override {
    if (!node.domain().empty() && node.domain() != "ai.onnx") return false;
    for (const Row* row = kRows; row->op != nullptr; ++row) {
      if (node.op_type() != row->op) continue;
      return node.input_size() >= row->inputs && (this->*row->replace)(node);
    }
    return false;
  }

  // ------------------------------------------------------------------------------- parts

  // Null: another operator, or with fewer inputs.
  const Node* MakerOf(const std::string& name, absl::string_view op, int inputs) const {
    const auto found = makers_.find(name);
    const bool is = found != makers_.end() && found->second->op_type() == op &&
                    found->second->input_size() >= inputs;
    return is ? found->second : nullptr;
  }
  // Whether it is this constant, which makes nothing larger that it meets.
  bool IsNumber(const std::string& name, float number) const {
    const onnx::TensorProto* const tensor = FindTensor(name);
    if (tensor == nullptr || tensor->dims_size() > 1) return false;
    const absl::StatusOr<Constant> constant = ReadTensor(*tensor);
    return constant.ok() && constant->elements() == 1 && constant->number(0) == number;
  }
  // The other input of a node that has two, one of which is the number; empty: it is not.
  std::string Beside(const Node& node, float number) const {
    for (int i = 0; i < 2; ++i) {
      if (IsNumber(node.input(i), number)) return node.input(1 - i);
    }
    return "";
  }
  // x of -x, written in any way; empty: it is none.
  std::string Negated(const std::string& name) const {
    if (const Node* neg = MakerOf(name, "Neg", 1)) return neg->input(0);
    if (const Node* product = MakerOf(name, "Mul", 2)) return Beside(*product, -1);
    const Node* const difference = MakerOf(name, "Sub", 2);
    return difference != nullptr && IsNumber(difference->input(0), 0) ? difference->input(1) : "";
  }
  // x of 1 / x.
  std::string Inverted(const std::string& name) const {
    if (const Node* inverse = MakerOf(name, "Reciprocal", 1)) return inverse->input(0);
    if (const Node* power = MakerOf(name, "Pow", 2)) {
      return IsNumber(power->input(1), -1) ? power->input(0) : "";
    }
    const Node* const ratio = MakerOf(name, "Div", 2);
    return ratio != nullptr && IsNumber(ratio->input(0), 1) ? ratio->input(1) : "";
  }
  // x of exp(x) + 1.
  std::string ExponentBesideOne(const std::string& name) const {
    const Node* const sum = MakerOf(name, "Add", 2);
    const Node* const exp = sum == nullptr ? nullptr : MakerOf(Beside(*sum, 1), "Exp", 1);
    return exp == nullptr ? "" : exp->input(0);
  }
  // x of x > 0.
  std::string Positive(const std::string& name) const {
    for (const auto& [op, zero] :
         {std::pair("Greater", 1), {"GreaterOrEqual", 1}, {"Less", 0}, {"LessOrEqual", 0}}) {
      const Node* const compared = MakerOf(name, op, 2);
      if (compared == nullptr || !IsNumber(compared->input(zero), 0)) continue;
      return compared->input(1 - zero);
    }
    return "";
  }
  // The inputs are of one type, of which that of some may not be known.
  bool OfFloats(const Node& node) const {
    return std::any_of(node.input().begin(), node.input().end(), [&](const std::string& input) {
      return IsPlainFloat(types_.TypeOf(input));
    });
  }

  bool Be(const Node& node, const char* op, const std::vector<std::string>& inputs) {
    Add(node, op, inputs, node.output(0));
    return true;
  }

  // ------------------------------------------------------------------------------- idioms

  bool Ratio(const Node& node, const std::string& above, const std::string& below) {
    const std::string x = ExponentBesideOne(below);
    if (IsNumber(above, 1) && !x.empty()) {  // 1 / (1 + exp(-x)).
      const std::string negated = Negated(x);
      return !negated.empty() && Be(node, "Sigmoid", {negated});
    }
    const Node* const exp = MakerOf(above, "Exp", 1);
    if (exp == nullptr) return false;
    if (x == exp->input(0)) return Be(node, "Sigmoid", {x});
    const Node* const sum = MakerOf(below, "ReduceSum", 1);
    if (sum == nullptr || sum->input(0) != above || IntAttribute(*sum, "keepdims", 1) == 0) {
      return false;
    }
    const std::optional<std::vector<int64_t>> axes =
        sum->input_size() > 1 ? Ints(sum->input(1)) : IntsAttribute(*sum, "axes");
    if (!axes.has_value() || axes->size() != 1 ||
        (opset_ < kSoftmaxOfOneAxis && axes->front() != -1)) {
      return false;
    }
    SetInt(Add(node, "Softmax", {exp->input(0)}, node.output(0)), "axis", axes->front());
    return true;
  }
  bool Div(const Node& node) { return Ratio(node, node.input(0), node.input(1)); }

  bool Reciprocal(const Node& node) {
    const std::string x = Negated(ExponentBesideOne(node.input(0)));
    return !x.empty() && Be(node, "Sigmoid", {x});
  }
  bool Pow(const Node& node) { return IsNumber(node.input(1), -1) && Reciprocal(node); }

  bool Log(const Node& node) {
    const std::string x = ExponentBesideOne(node.input(0));
    return !x.empty() && Be(node, "Softplus", {x});
  }

  bool Mul(const Node& node) {
    for (int i = 0; i < 2; ++i) {
      const std::string &x = node.input(i), &y = node.input(1 - i);
      if (const std::string below = Inverted(y); !below.empty()) {
        return Ratio(node, x, below) || Be(node, "Div", {x, below});
      }
      const Node* const cast = MakerOf(y, "Cast", 1);
      if (cast != nullptr && OfFloats(node) && Positive(cast->input(0)) == x) {
        return Be(node, "Relu", {x});
      }
    }
    return false;
  }

  bool Max(const Node& node) {
    if (node.input_size() != 2) return false;
    const std::string x = Beside(node, 0);
    return !x.empty() && OfFloats(node) && Be(node, "Relu", {x});
  }

  bool Where(const Node& node) {
    if (const Node* opposite = MakerOf(node.input(0), "Not", 1)) {
      return Be(node, "Where", {opposite->input(0), node.input(2), node.input(1)});
    }
    const std::string &x = node.input(1), &other = node.input(2);
    if (Positive(node.input(0)) == x && OfFloats(node) && IsNumber(other, 0)) {
      return Be(node, "Relu", {x});
    }
    return false;
  }

  bool Sum(const Node& node) {
    return node.input_size() == 2 && Be(node, "Add", {node.input(0), node.input(1)});
  }

  bool Plus(const Node& node) {
    for (int i = 0; i < 2 && OfFloats(node); ++i) {
      const std::string minus = Negated(node.input(i));
      if (!minus.empty()) return Be(node, "Sub", {node.input(1 - i), minus});
    }
    return false;
  }
  bool Minus(const Node& node) {
    const std::string plus = OfFloats(node) ? Negated(node.input(1)) : "";
    return !plus.empty() && Be(node, "Add", {node.input(0), plus});
  }

  bool Concat(const Node& node) {
    const int64_t axis = IntAttribute(node, "axis", 0);
    std::vector<std::string> flat;
    for (const std::string& input : node.input()) {
      const auto found = concats_.find(input);
      if (found != concats_.end() && found->second.first == axis && readers_[input] == 1) {
        flat.insert(flat.end(), found->second.second.begin(), found->second.second.end());
      } else {
        flat.push_back(input);
      }
    }
    const bool longer = flat.size() > static_cast<size_t>(node.input_size());
    if (longer) SetInt(Add(node, "Concat", flat, node.output(0)), "axis", axis);
    concats_[node.output(0)] = {axis, std::move(flat)};
    return longer;
  }

  bool Einsum(const Node& node) {
    const std::vector<std::string> sides = absl::StrSplit(Equation(node), absl::MaxSplits("->", 1));
    if (sides.size() != 2) return false;
    const std::vector<std::string> terms = absl::StrSplit(sides[0], ',');
    if (static_cast<int>(terms.size()) != node.input_size()) return false;
    if (terms.size() == 1) return SumOf(node, terms[0], sides[1]);
    return terms.size() == 2 &&
           (ProductWith(node, terms, sides[1], 1) || ProductWith(node, terms, sides[1], 0));
  }
  static std::string Equation(const Node& node) {
    std::string equation = StringAttribute(node, "equation", "");
    equation.erase(std::remove(equation.begin(), equation.end(), ' '), equation.end());
    return equation;
  }
  static bool Repeats(std::string labels) {
    std::sort(labels.begin(), labels.end());
    return std::adjacent_find(labels.begin(), labels.end()) != labels.end();
  }
  // "bij->bi": its labels in their order, some left out.
  bool SumOf(const Node& node, const std::string& term, const std::string& out) {
    if (term.find('.') != std::string::npos || Repeats(term)) return false;
    std::vector<int64_t> axes;
    size_t next = 0;
    for (size_t i = 0; i < term.size(); ++i) {
      if (next < out.size() && term[i] == out[next]) {
        ++next;
      } else {
        axes.push_back(static_cast<int64_t>(i));
      }
    }
    if (next != out.size() || axes.empty()) return false;
    const bool axes_are_input = opset_ >= kAxesAreInputs;
    std::vector<std::string> inputs = {node.input(0)};
    if (axes_are_input) inputs.push_back(Integers(node.output(0), axes));
    Node& sum = Add(node, "ReduceSum", inputs, node.output(0));
    if (!axes_are_input) SetInts(sum, "axes", axes);
    SetInt(sum, "keepdims", 0);
    return true;
  }
  // "bti,io->bto" with a constant matrix: whose last axis the sum runs along.
  bool ProductWith(const Node& node, const std::vector<std::string>& terms, const std::string& out,
                   int matrix) {
    std::string of = terms[1 - matrix], by = terms[matrix];
    const onnx::TensorProto* const weight = FindTensor(node.input(matrix));
    if (weight == nullptr || weight->dims_size() != 2 || by.size() != 2 || of.size() < 2) {
      return false;
    }
    const bool turned = by[1] == of.back();
    if (turned) std::swap(by[0], by[1]);
    const std::string rows = of.substr(0, of.size() - 1);
    if (by[0] != of.back() || out != rows + by[1] ||
        Repeats((rows.substr(0, 3) == "..." ? rows.substr(3) : rows) + by)) {
      return false;
    }
    std::string right = node.input(matrix);
    if (turned) {
      const std::string weights = right;
      right = Fresh(node.output(0));
      SetInts(Add(node, "Transpose", {weights}, right), "perm", {1, 0});
    }
    return Be(node, "MatMul", {node.input(1 - matrix), right});
  }

  // (W xᵀ)ᵀ is x Wᵀ.
  bool Transpose(const Node& node) {
    const std::vector<int64_t> turn = {1, 0};
    const auto is_turned = [&](const Node* by) {
      return by != nullptr && IntsAttribute(*by, "perm") == turn;
    };
    const Node* const product = MakerOf(node.input(0), "MatMul", 2);
    if (!is_turned(&node) || product == nullptr) return false;
    const Node* const x = MakerOf(product->input(1), "Transpose", 1);
    if (!is_turned(x)) return false;
    const std::string weights = Fresh(node.output(0));
    SetInts(Add(node, "Transpose", {product->input(0)}, weights), "perm", turn);
    return Be(node, "MatMul", {x->input(0), weights});
  }

  std::map<std::string, const Node*> makers_;
  std::map<std::string, int> readers_;
  std::map<std::string, std::pair<int64_t, std::vector<std::string>>> concats_;  // Axis and inputs.
};

const IdiomReader::Row IdiomReader::kRows[] = {
    {"Add", 2, &IdiomReader::Plus},
    {"Concat", 1, &IdiomReader::Concat},
    {"Div", 2, &IdiomReader::Div},
    {"Einsum", 1, &IdiomReader::Einsum},
    {"Log", 1, &IdiomReader::Log},
    {"Max", 2, &IdiomReader::Max},
    {"Mul", 2, &IdiomReader::Mul},
    {"Pow", 2, &IdiomReader::Pow},
    {"Reciprocal", 1, &IdiomReader::Reciprocal},
    {"Sub", 2, &IdiomReader::Minus},
    {"Sum", 1, &IdiomReader::Sum},
    {"Transpose", 1, &IdiomReader::Transpose},
    {"Where", 3, &IdiomReader::Where},
    {nullptr, 0, nullptr},
};

}  // namespace

void ReadIdioms(onnx::GraphProto& graph, int64_t opset) { IdiomReader(graph, opset).Run(); }

}  // namespace ulfd::convert

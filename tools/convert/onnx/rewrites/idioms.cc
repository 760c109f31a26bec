// An operator that may end an idiom is a row of the table at the end.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "tools/convert/onnx/model/functions.h"
#include "tools/convert/onnx/rewrites/pattern_reader.h"
#include "tools/convert/onnx/rewrites/rewrites.h"

namespace ulfd::convert {
namespace {

using Node = onnx::NodeProto;

// Softmax works along its axis alone from here on, and along all behind it before.
constexpr int64_t kSoftmaxOfOneAxis = 13;

class IdiomReader : public PatternReader {
 public:
  IdiomReader(onnx::GraphProto& graph, int64_t opset) : PatternReader(graph, opset) {}

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

  // x of exp(x) + 1.
  std::string ExponentBesideOne(const std::string& name) const {
    const Node* const sum = MakerOf(name, "Add", 2);
    const Node* const exp = sum == nullptr ? nullptr : MakerOf(Beside(*sum, 1), "Exp", 1);
    return exp == nullptr ? "" : exp->input(0);
  }
  // 1 / (1 + exp(x)) is the sigmoid of -x.
  bool InverseOf(const Node& node, const std::string& below) {
    const std::string x = ExponentBesideOne(below), negated = Negated(x);
    return !x.empty() && Be(node, "Sigmoid", {negated.empty() ? Make(node, "Neg", {x}) : negated});
  }
  bool Ratio(const Node& node, const std::string& above, const std::string& below) {
    const std::string x = ExponentBesideOne(below), negated = Negated(x);
    if (IsNumber(above, 1)) return InverseOf(node, below);
    if (!negated.empty()) return Be(node, "Mul", {above, Make(node, "Sigmoid", {negated})});
    const Node* const exp = MakerOf(above, "Exp", 1);
    if (exp == nullptr) return false;
    if (x == exp->input(0)) return Be(node, "Sigmoid", {x});
    const Node* const sum = MakerOf(below, "ReduceSum", 1);
    if (sum == nullptr || sum->input(0) != above || IntAttribute(*sum, "keepdims", 1) == 0) {
      return false;
    }
    const std::vector<int64_t> axes = AxesOf(*sum);
    if (axes.size() != 1 || (opset_ < kSoftmaxOfOneAxis && axes.front() != -1)) return false;
    SetInt(Add(node, "Softmax", {exp->input(0)}, node.output(0)), "axis", axes.front());
    return true;
  }
  bool Div(const Node& node) { return IsGelu(node) || Ratio(node, node.input(0), node.input(1)); }

  // x of x / 2.
  std::string Doubled(const std::string& name) const {
    if (const Node* product = MakerOf(name, "Mul", 2)) return Beside(*product, 0.5f);
    const Node* const ratio = MakerOf(name, "Div", 2);
    return ratio != nullptr && IsNumber(ratio->input(1), 2) ? ratio->input(0) : "";
  }
  bool IsNear(const std::string& name, double number) const {
    const std::optional<float> value = NumberOf(name);
    return value.has_value() && std::abs(double{*value} / number - 1) < 1e-6;
  }
  std::string BesideNear(const Node& node, double number) const {
    for (int i = 0; i < 2; ++i) {
      if (IsNear(node.input(i), number)) return node.input(1 - i);
    }
    return "";
  }
  // What a GELU multiplies x / 2 by: 1 + erf(x / sqrt(2)) or its approximation.
  struct Gate {
    std::string x;
    bool tanh = false;
  };
  std::optional<Gate> GateOf(const std::string& name) const {
    const Node* const sum = MakerOf(name, "Add", 2);
    const std::string inner = sum == nullptr ? "" : Beside(*sum, 1);
    std::string x;
    if (const Node* erf = MakerOf(inner, "Erf", 1)) {
      if (const Node* ratio = MakerOf(erf->input(0), "Div", 2)) {
        if (IsNear(ratio->input(1), std::sqrt(2.0))) x = ratio->input(0);
      } else if (const Node* product = MakerOf(erf->input(0), "Mul", 2)) {
        x = BesideNear(*product, std::sqrt(0.5));
      }
      return x.empty() ? std::nullopt : std::optional(Gate{x});
    }
    // tanh(sqrt(2 / pi) * (x + 0.044715 x^3)).
    const Node* const tanh = MakerOf(inner, "Tanh", 1);
    const Node* const product = tanh == nullptr ? nullptr : MakerOf(tanh->input(0), "Mul", 2);
    const Node* const cubic =
        product == nullptr ? nullptr : MakerOf(BesideNear(*product, 0.7978845608), "Add", 2);
    for (int i = 0; cubic != nullptr && i < 2; ++i) {
      const Node* const term = MakerOf(cubic->input(1 - i), "Mul", 2);
      if (term != nullptr && CubeRoot(BesideNear(*term, 0.044715)) == cubic->input(i)) {
        return Gate{cubic->input(i), true};
      }
    }
    return std::nullopt;
  }
  std::string CubeRoot(const std::string& name) const {
    if (const Node* power = MakerOf(name, "Pow", 2)) {
      return IsNumber(power->input(1), 3) ? power->input(0) : "";
    }
    const Node* const product = MakerOf(name, "Mul", 2);
    for (int i = 0; product != nullptr && i < 2; ++i) {
      const std::string& x = product->input(i);
      const Node* const square = MakerOf(product->input(1 - i), "Mul", 2);
      if (square != nullptr && square->input(0) == x && square->input(1) == x) return x;
    }
    return "";
  }
  // (x / 2) * gate, x * (gate / 2), or (x * gate) / 2.
  bool IsGelu(const Node& node) {
    std::vector<std::pair<std::string, std::string>> pairs;  // Whose product is the half of this.
    const auto add = [&](const Node* product) {
      for (int i = 0; product != nullptr && i < 2; ++i) {
        pairs.emplace_back(product->input(i), product->input(1 - i));
      }
    };
    add(MakerOf(Doubled(node.output(0)), "Mul", 2));
    if (node.op_type() == "Mul") {
      for (int i = 0; i < 2; ++i) {
        pairs.emplace_back(node.input(i), Doubled(node.input(1 - i)));
        pairs.emplace_back(Doubled(node.input(i)), node.input(1 - i));
      }
    }
    for (const auto& [gate, x] : pairs) {
      const std::optional<Gate> of = GateOf(gate);
      if (!of.has_value() || of->x != x) continue;
      Node& gelu = Add(node, "Gelu", {x}, node.output(0));
      if (of->tanh) SetString(gelu, "approximate", "tanh");
      return true;
    }
    return false;
  }

  bool Reciprocal(const Node& node) { return InverseOf(node, node.input(0)); }
  bool Pow(const Node& node) { return IsNumber(node.input(1), -1) && Reciprocal(node); }

  bool Log(const Node& node) {
    const std::string x = ExponentBesideOne(node.input(0));
    return !x.empty() && Be(node, "Softplus", {x});
  }

  bool Mul(const Node& node) {
    if (IsGelu(node)) return true;
    for (int i = 0; i < 2; ++i) {
      const std::string &x = node.input(i), &y = node.input(1 - i);
      if (const std::string below = Inverted(y); !below.empty()) {
        return Ratio(node, x, below) || Be(node, "Div", {x, below});
      }
    }
    return false;
  }

  bool Where(const Node& node) {
    const Node* const opposite = MakerOf(node.input(0), "Not", 1);
    return opposite != nullptr &&
           Be(node, "Where", {opposite->input(0), node.input(2), node.input(1)});
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
    constexpr size_t kMost = 64;  // Inputs; a chain of many would be copied with each.
    const int64_t axis = IntAttribute(node, "axis", 0);
    std::vector<std::string> flat;
    for (const std::string& input : node.input()) {
      const auto found = concats_.find(input);
      if (found != concats_.end() && found->second.first == axis && HasOneReader(input)) {
        flat.insert(flat.end(), found->second.second.begin(), found->second.second.end());
      } else {
        flat.push_back(input);
      }
    }
    if (flat.size() > kMost) return false;
    const bool longer = flat.size() > static_cast<size_t>(node.input_size());
    if (longer) SetInt(Add(node, "Concat", flat, node.output(0)), "axis", axis);
    concats_[node.output(0)] = {axis, std::move(flat)};
    return longer;
  }

  bool Einsum(const Node& node) {
    const std::vector<std::string> terms = EinsumTerms(node);
    if (terms.size() == 2) return SumOf(node, terms[0], terms[1]);
    return terms.size() == 3 &&
           (ProductWith(node, terms, terms[2], 1) || ProductWith(node, terms, terms[2], 0));
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
    if (!is_turned(&node) || product == nullptr || !HasOneReader(node.input(0))) return false;
    const Node* const x = MakerOf(product->input(1), "Transpose", 1);
    if (!is_turned(x)) return false;
    const std::string weights = Fresh(node.output(0));
    SetInts(Add(node, "Transpose", {product->input(0)}, weights), "perm", turn);
    return Be(node, "MatMul", {x->input(0), weights});
  }

  std::map<std::string, std::pair<int64_t, std::vector<std::string>>> concats_;  // Axis and inputs.
};

const IdiomReader::Row IdiomReader::kRows[] = {
    {"Add", 2, &IdiomReader::Plus},
    {"Concat", 1, &IdiomReader::Concat},
    {"Div", 2, &IdiomReader::Div},
    {"Einsum", 1, &IdiomReader::Einsum},
    {"Log", 1, &IdiomReader::Log},
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

void ReadIdioms(onnx::GraphProto& graph, int64_t opset) {
  ReadRectifiers(graph, opset);
  IdiomReader(graph, opset).Run();
  ReadNorms(graph, opset);
  ReadRemainders(graph, opset);
}

}  // namespace ulfd::convert

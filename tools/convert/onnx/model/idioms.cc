// An operator that may end an idiom is a row of the table at the end.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "tools/convert/onnx/model/constant.h"
#include "tools/convert/onnx/model/functions.h"
#include "tools/convert/onnx/model/rewriter.h"
#include "tools/convert/onnx/model/rewrites.h"
#include "tools/convert/onnx/model/types.h"

namespace ulfd::convert {
namespace {

using Node = onnx::NodeProto;

// Of a function that is linear in x where x > 0, and where x < 0: its slopes, for all columns or
// for each.
struct Slopes {
  std::string of;  // x; empty: zero, whatever x is.
  std::vector<float> above, below;
};

// f of the slopes column by column; empty: their numbers differ.
template <typename Function>
std::vector<float> Zip(const std::vector<float>& a, const std::vector<float>& b, Function f) {
  if (a.size() != b.size() && a.size() != 1 && b.size() != 1) return {};
  std::vector<float> values(std::max(a.size(), b.size()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = f(a[i % a.size()], b[i % b.size()]);
  return values;
}
float Least(float a, float b) { return std::min(a, b); }
float Most(float a, float b) { return std::max(a, b); }

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
    NoteCondition(node);
    NoteWidth(node);
    if (IsRectifier(node)) return true;
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
    return tensor != nullptr && tensor->dims_size() <= 1 && IsNumber(*tensor, number);
  }
  static bool IsNumber(const onnx::TensorProto& tensor, float number) {
    if (!absl::c_all_of(tensor.dims(), [](int64_t size) { return size == 1; })) return false;
    const absl::StatusOr<Constant> constant = ReadTensor(tensor);
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

  // ------------------------------------------------------------------------------- rectifiers

  // x > 0, or x < 0.
  struct Condition {
    std::string of;
    bool above = false;
  };
  Condition ConditionOf(const std::string& name) const {
    const auto found = conditions_.find(name);
    return found == conditions_.end() ? Condition() : found->second;
  }
  void NoteCondition(const Node& node) {
    const std::string& op = node.op_type();
    if (node.input_size() == 0) return;
    if (op == "Cast" || op == "Not") {
      Condition at = ConditionOf(node.input(0));
      if (at.of.empty()) return;
      at.above ^= op == "Not";
      conditions_[node.output(0)] = std::move(at);
      return;
    }
    const bool less = op == "Less" || op == "LessOrEqual";
    if (node.input_size() != 2 || !(less || op == "Greater" || op == "GreaterOrEqual")) return;
    for (const int zero : {0, 1}) {
      const std::string& x = node.input(1 - zero);
      if (IsZero(node.input(zero), x)) conditions_[node.output(0)] = {x, less == (zero == 0)};
    }
  }
  // The number, or as many as x has.
  bool IsZero(const std::string& name, const std::string& x) const {
    if (IsNumber(name, 0)) return true;
    const Node* const made = MakerOf(name, "ConstantOfShape", 1);
    const Node* const shape = made == nullptr ? nullptr : MakerOf(made->input(0), "Shape", 1);
    if (shape == nullptr) return false;
    const Slopes like = SlopesOf(shape->input(0));  // With slopes per column it may be wider.
    if (like.of != SlopesOf(x).of || like.above.size() > 1) return false;
    const onnx::AttributeProto* const value = FindAttribute(*made, "value");
    return value == nullptr || IsNumber(value->t(), 0);
  }

  // The columns of what a matrix or a vector of the file is applied to, and of values behind that:
  // PRelu, unlike arithmetic, repeats no column of x.  0: not known.
  int64_t WidthOf(const std::string& name) const {
    const auto found = widths_.find(name);
    if (found != widths_.end()) return found->second;
    const onnx::TensorProto* const tensor = FindTensor(name);
    return tensor != nullptr && tensor->dims_size() == 1 ? tensor->dims(0) : 0;
  }
  void NoteWidth(const Node& node) {
    const std::string& op = node.op_type();
    if (node.input_size() == 0) return;
    int64_t width = 0;
    if (op == "MatMul" || op == "Gemm") {
      const onnx::TensorProto* const weight =
          node.input_size() > 1 ? FindTensor(node.input(1)) : nullptr;
      if (weight == nullptr || weight->dims_size() != 2) return;
      width = weight->dims(IntAttribute(node, "transB", 0) != 0 ? 0 : 1);
    } else if (IsOneOf(op, {"Add", "Sub", "Mul", "Div"})) {
      // A column beside columns is repeated.
      for (const std::string& input : node.input()) width = std::max(width, WidthOf(input));
      if (width == 1) return;
    } else if (IsOneOf(op, {"BatchNormalization", "Relu", "Neg", "Abs"})) {
      width = WidthOf(node.input(0));
    }
    if (width > 0) widths_[node.output(0)] = width;
  }

  // Every value is linear in itself.
  Slopes SlopesOf(const std::string& name) const {
    const auto found = slopes_.find(name);
    return found == slopes_.end() ? Slopes{name, {1}, {1}} : found->second;
  }
  // The same beside another input: 0 has no slope.
  Slopes SlopesBeside(const std::string& name, const std::string& other) const {
    return IsZero(name, other) ? Slopes{"", {0}, {0}} : SlopesOf(name);
  }
  // A number, or one per column; empty: anything else.
  std::vector<float> FactorsOf(const std::string& name) const {
    constexpr int64_t kMost = 4096;
    const onnx::TensorProto* const tensor = FindTensor(name);
    if (tensor == nullptr || tensor->dims_size() > 1 ||
        absl::c_any_of(tensor->dims(), [](int64_t size) { return size > kMost; })) {
      return {};
    }
    const absl::StatusOr<Constant> constant = ReadTensor(*tensor);
    if (!constant.ok() || !constant->is_float) return {};
    return constant->ToFloats().value_or(std::vector<float>());
  }

  template <typename Above, typename Below>
  std::optional<Slopes> Combined(const Slopes& a, const Slopes& b, Above above, Below below) const {
    if (!a.of.empty() && !b.of.empty() && a.of != b.of) return std::nullopt;
    Slopes both = {a.of.empty() ? b.of : a.of, Zip(a.above, b.above, above),
                   Zip(a.below, b.below, below)};
    return both.above.empty() || both.below.empty() ? std::nullopt : std::optional(both);
  }

  // nullopt: no such function, or nothing but x itself.
  std::optional<Slopes> SlopesOfNode(const Node& node) const {
    const std::string& op = node.op_type();
    const Slopes zero = {"", {0}, {0}};
    const auto minus = [](float a, float b) { return a - b; };
    if (node.input_size() == 0) return std::nullopt;
    const Slopes first = SlopesOf(node.input(0));
    if (op == "Relu") return Combined(first, zero, Most, Least);
    if (op == "Neg") return Combined(zero, first, minus, minus);
    if (op == "Abs") {
      return Combined(
          first, zero, [](float a, float) { return std::abs(a); },
          [](float b, float) { return -std::abs(b); });
    }
    if (op == "Clip") return SlopesOfClip(node);
    if (op == "Where" && node.input_size() == 3) return SlopesOfWhere(node);
    if (node.input_size() != 2) return std::nullopt;
    if (op == "Mul" || op == "Div") return SlopesOfProduct(node);
    const Slopes a = SlopesBeside(node.input(0), node.input(1));
    const Slopes b = SlopesBeside(node.input(1), node.input(0));
    if (op == "Add") return Combined(a, b, std::plus<>(), std::plus<>());
    if (op == "Sub") return Combined(a, b, minus, minus);
    if (op == "Max") return Combined(a, b, Most, Least);
    return op == "Min" ? Combined(a, b, Least, Most) : std::nullopt;
  }
  std::optional<Slopes> SlopesOfClip(const Node& node) const {
    const bool least = node.input_size() > 1 && !node.input(1).empty();
    const bool most = node.input_size() > 2 && !node.input(2).empty();
    if (least == most || !IsNumber(node.input(least ? 1 : 2), 0)) return std::nullopt;
    const Slopes x = SlopesOf(node.input(0)), zero = {"", {0}, {0}};
    return least ? Combined(x, zero, Most, Least) : Combined(x, zero, Least, Most);
  }
  std::optional<Slopes> SlopesOfWhere(const Node& node) const {
    const Condition at = ConditionOf(node.input(0));
    if (at.of.empty()) return std::nullopt;
    const auto side = [&](int i) { return SlopesBeside(node.input(i), at.of); };
    const Slopes above = side(at.above ? 1 : 2), below = side(at.above ? 2 : 1);
    const std::optional<Slopes> both = Combined(
        above, below, [](float a, float) { return a; }, [](float, float b) { return b; });
    return both.has_value() && both->of == at.of ? both : std::nullopt;
  }
  std::optional<Slopes> SlopesOfProduct(const Node& node) const {
    const auto times = [](float a, float by) { return a * by; };
    if (node.op_type() == "Div") {
      std::vector<float> by = FactorsOf(node.input(1));
      for (float& value : by) value = 1 / value;
      if (by.empty()) return std::nullopt;
      return Combined(SlopesOf(node.input(0)), {"", by, by}, times, times);
    }
    for (int i = 0; i < 2; ++i) {
      const Slopes x = SlopesOf(node.input(i));
      if (const std::vector<float> by = FactorsOf(node.input(1 - i)); !by.empty()) {
        return Combined(x, {"", by, by}, times, times);
      }
      const Condition at = ConditionOf(node.input(1 - i));
      if (at.of.empty() || at.of != x.of) continue;
      const float above = at.above ? 1 : 0;
      return Combined(x, {"", {above}, {1 - above}}, times, times);
    }
    return std::nullopt;
  }

  // Relu, LeakyRelu and PRelu in any other way.
  bool IsRectifier(const Node& node) {
    const std::optional<Slopes> slopes = SlopesOfNode(node);
    if (!slopes.has_value() || slopes->of.empty()) return false;
    numbers_left_ -= static_cast<int64_t>(slopes->above.size() + slopes->below.size());
    if (numbers_left_ < 0) return false;
    slopes_[node.output(0)] = *slopes;
    const auto all = [](const std::vector<float>& values, float value) {
      return std::all_of(values.begin(), values.end(), [&](float v) { return v == value; });
    };
    const std::vector<float>& below = slopes->below;
    if (IsOneOf(node.op_type(), {"Relu", "Abs"}) || !OfFloats(node) || !all(slopes->above, 1) ||
        all(below, 1)) {
      return false;
    }
    const auto columns = static_cast<int64_t>(std::max(slopes->above.size(), below.size()));
    if (columns > 1 && WidthOf(slopes->of) != columns) return false;
    if (!all(below, below.front())) {
      return Be(node, "PRelu", {slopes->of, Floats(node.output(0), below)});
    }
    if (below.front() == 0) return Be(node, "Relu", {slopes->of});
    SetFloat(Add(node, "LeakyRelu", {slopes->of}, node.output(0)), "alpha", below.front());
    return true;
  }

  // ------------------------------------------------------------------------------- idioms

  bool Ratio(const Node& node, const std::string& above, const std::string& below) {
    const std::string x = ExponentBesideOne(below);
    if (const std::string negated = Negated(x); !negated.empty()) {  // 1 / (1 + exp(-x)).
      return IsNumber(above, 1) ? Be(node, "Sigmoid", {negated})
                                : Be(node, "Mul", {above, Make(node, "Sigmoid", {negated})});
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
    }
    return false;
  }

  bool Where(const Node& node) {
    if (const Node* opposite = MakerOf(node.input(0), "Not", 1)) {
      return Be(node, "Where", {opposite->input(0), node.input(2), node.input(1)});
    }
    // exp(x) - 1 where x < 0.
    const Condition at = ConditionOf(node.input(0));
    const Node* const less = at.above ? MakerOf(node.input(2), "Sub", 2) : nullptr;
    const Node* const exp = less != nullptr && IsNumber(less->input(1), 1)
                                ? MakerOf(less->input(0), "Exp", 1)
                                : nullptr;
    return exp != nullptr && exp->input(0) == at.of && node.input(1) == at.of &&
           Be(node, "Elu", {at.of});
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
      if (found != concats_.end() && found->second.first == axis && readers_[input] == 1) {
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
    if (!is_turned(&node) || product == nullptr || readers_[node.input(0)] > 1) return false;
    const Node* const x = MakerOf(product->input(1), "Transpose", 1);
    if (!is_turned(x)) return false;
    const std::string weights = Fresh(node.output(0));
    SetInts(Add(node, "Transpose", {product->input(0)}, weights), "perm", turn);
    return Be(node, "MatMul", {x->input(0), weights});
  }

  std::map<std::string, const Node*> makers_;
  std::map<std::string, Condition> conditions_;
  std::map<std::string, int64_t> widths_;
  std::map<std::string, Slopes> slopes_;
  int64_t numbers_left_ = int64_t{1} << 22;  // That slopes_ may hold, whatever the file says.
  std::map<std::string, int> readers_;
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

void ReadIdioms(onnx::GraphProto& graph, int64_t opset) { IdiomReader(graph, opset).Run(); }

}  // namespace ulfd::convert

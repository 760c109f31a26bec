// Relu, LeakyRelu, PRelu and Elu, in whatever way they are written.
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
#include "tools/convert/onnx/model/constant.h"
#include "tools/convert/onnx/model/functions.h"
#include "tools/convert/onnx/model/types.h"
#include "tools/convert/onnx/rewrites/pattern_reader.h"
#include "tools/convert/onnx/rewrites/rewrites.h"

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

class RectifierReader : public PatternReader {
 public:
  RectifierReader(onnx::GraphProto& graph, int64_t opset) : PatternReader(graph, opset) {}

 private:
  bool Replace(const Node& node) override {
    if (!node.domain().empty() && node.domain() != "ai.onnx") return false;
    NoteCondition(node);
    NoteWidth(node);
    return IsRectifier(node) || IsElu(node);
  }

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

  // x where x > 0, exp(x) - 1 elsewhere.
  bool IsElu(const Node& node) {
    if (node.op_type() != "Where" || node.input_size() < 3) return false;
    const Condition at = ConditionOf(node.input(0));
    const Node* const less = at.above ? MakerOf(node.input(2), "Sub", 2) : nullptr;
    const Node* const exp = less != nullptr && IsNumber(less->input(1), 1)
                                ? MakerOf(less->input(0), "Exp", 1)
                                : nullptr;
    return exp != nullptr && exp->input(0) == at.of && node.input(1) == at.of &&
           Be(node, "Elu", {at.of});
  }

  std::map<std::string, Condition> conditions_;
  std::map<std::string, int64_t> widths_;
  std::map<std::string, Slopes> slopes_;
  int64_t numbers_left_ = int64_t{1} << 22;  // That slopes_ may hold, whatever the file says.
};

}  // namespace

void ReadRectifiers(onnx::GraphProto& graph, int64_t opset) { RectifierReader(graph, opset).Run(); }

}  // namespace ulfd::convert

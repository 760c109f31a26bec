// ONNX's elementwise operators.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "tools/convert/onnx/model/graph.h"
#include "tools/convert/onnx/model/types.h"
#include "tools/convert/onnx/operators/layers.h"
#include "tools/convert/onnx/rewrites/rewrites.h"
#include "tools/convert/recipes.h"

namespace ulfd::convert {
namespace {

using engine::Dim;

// A view stays a view: add(in, out) gives the tensor behind it a layer.
template <typename Fn>
absl::Status Map(OnnxNode& node, Fn add) {
  ASSIGN_OR_RETURN(OnnxValue x, node.value(0));
  const std::string out = node.Top();
  RETURN_IF_ERROR(add(x.tensor, out));
  x.tensor = out;
  node.Set(x);
  return absl::OkStatus();
}

// A string as an argument of a template.
template <size_t n>
struct Text {
  // NOLINTNEXTLINE(google-explicit-constructor)
  constexpr Text(const char (&text)[n]) { std::copy_n(text, n, chars); }
  char chars[n];
};
template <Text type>
absl::Status Unary(OnnxNode& node) {
  return Map(node, [&](const std::string& in, const std::string& out) {
    return AddPlain(node.builder(), type.chars, node.name, {in}, out);
  });
}

absl::Status UnaryExpression(OnnxNode& node, absl::string_view text) {
  return Map(node, [&](const std::string& in, const std::string& out) {
    return AddExpression(node.builder(), node.name, text, {in}, out);
  });
}

template <Text text>
absl::Status Of(OnnxNode& node) {
  return UnaryExpression(node, text.chars);
}

absl::Status Same(OnnxNode& node) {
  ASSIGN_OR_RETURN(OnnxValue x, node.value(0));
  node.note = "its output is its input";
  node.Set(x);
  return absl::OkStatus();
}

// The only value of a constant; NaN if it has several or is none.
float OneValue(const Constant* constant) {
  if (constant == nullptr || !IsNumbers(constant->dims)) return NAN;
  if (!constant->uniform && constant->elements() != 1) return NAN;
  if (constant->is_float) return constant->f32(0);
  return constant->dim(0).IsConst() ? static_cast<float>(constant->dim(0).value()) : NAN;
}

absl::Status Dropout(OnnxNode& node) {
  if (node.Has(2) && OneValue(node.constant(1)) != 0 && OneValue(node.constant(2)) != 0) {
    return Unimplemented("training_mode, whose result is random; export the model with eval()");
  }
  if (node.node.output_size() > 1 && node.uses.contains(node.node.output(1))) {
    ASSIGN_OR_RETURN(const OnnxValue x, node.value(0));
    node.graph.Define(node.node.output(1),
                      Constant{.dims = x.dims, .uniform = true, .ints = {Dim::Of(1)}});
  }
  return Same(node);
}

// Values are float32 whatever the type says; only a cast that changes values needs a layer.
absl::Status Cast(OnnxNode& node) {
  const int64_t to = IntAttribute(node.node, "to", 0);
  if (to == onnx::TensorProto::BOOL) {
    node.note = "values other than 0 become 1";
    return UnaryExpression(node, "@0 != 0");
  }
  const bool to_float = to == onnx::TensorProto::FLOAT || to == onnx::TensorProto::DOUBLE ||
                        to == onnx::TensorProto::FLOAT16;
  const int from = node.graph.TypeOf(node.node.input(0));
  const bool to_integer = to == onnx::TensorProto::INT64 || to == onnx::TensorProto::INT32 ||
                          (from == onnx::TensorProto::BOOL && IsShortInteger(static_cast<int>(to)));
  if (!to_float && !to_integer) {
    return Unimplemented(
        "to ", onnx::TensorProto::DataType_Name(static_cast<onnx::TensorProto::DataType>(to)));
  }
  const bool exact = node.graph.IsInteger(node.node.input(0)) || from == onnx::TensorProto::BOOL;
  if (to_integer && !exact) {
    node.note = "fractions are cut off";
    return UnaryExpression(node, "trunc(@0)");
  }
  return Same(node);
}

absl::Status Elu(OnnxNode& node) {
  const std::string alpha = Number(FloatAttribute(node.node, "alpha", 1));
  return UnaryExpression(node,
                         absl::StrCat("where(@0 > 0, @0, ", alpha, " * (exp(min(@0, 0)) - 1))"));
}

absl::Status HardSigmoid(OnnxNode& node) {
  const std::string alpha = Number(FloatAttribute(node.node, "alpha", 0.2f));
  const std::string beta = Number(FloatAttribute(node.node, "beta", 0.5f));
  return UnaryExpression(node, absl::StrCat("max(0, min(1, ", alpha, " * @0 + ", beta, "))"));
}

absl::Status Shrink(OnnxNode& node) {
  const std::string lambda = Number(FloatAttribute(node.node, "lambd", 0.5f));
  const std::string bias = Number(FloatAttribute(node.node, "bias", 0));
  return UnaryExpression(node, absl::StrCat("where(@0 < (0 - ", lambda, "), @0 + ", bias,
                                            ", where(@0 > ", lambda, ", @0 - ", bias, ", 0))"));
}
absl::Status IsInf(OnnxNode& node) {
  const bool below = IntAttribute(node.node, "detect_negative", 1) != 0;
  const bool above = IntAttribute(node.node, "detect_positive", 1) != 0;
  const char* const value = below && above ? "abs(@0)" : below ? "neg(@0)" : "@0";
  const char* const least = below || above ? "3.40282347e38" : "@0";  // The largest number.
  return UnaryExpression(node, absl::StrCat(value, " > ", least));
}
// Of x above 0 by the half angle, and of 1 / x where x is above 1.
std::string ArcTangentOf(const std::string& x) {
  const std::string magnitude = absl::StrCat("abs(", x, ")");
  const std::string small =
      absl::StrCat("where(", magnitude, " > 1, 1 / ", magnitude, ", ", magnitude, ")");
  const std::string t = absl::StrCat("(", small, " / (1 + sqrt(1 + ", small, " * ", small, ")))");
  const std::string angle =
      absl::StrCat("(2 * ", t, " * (1 - ", t, " * ", t, " * (0.333333333 - ", t, " * ", t,
                   " * (0.2 - ", t, " * ", t, " * (0.142857143 - ", t, " * ", t,
                   " * (0.111111111 - ", t, " * ", t, " * (0.0909090909 - ", t, " * ", t,
                   " * (0.0769230769 - ", t, " * ", t, " * 0.0666666667))))))))");
  return absl::StrCat("where(", x, " < 0, -1, 1) * where(", magnitude, " > 1, 1.57079633 - ", angle,
                      ", ", angle, ")");
}
absl::Status Atan(OnnxNode& node) { return UnaryExpression(node, ArcTangentOf("@0")); }
const char kSineAsTangent[] = "(@0 / sqrt((1 - @0) * (1 + @0)))";
absl::Status Asin(OnnxNode& node) { return UnaryExpression(node, ArcTangentOf(kSineAsTangent)); }
absl::Status Acos(OnnxNode& node) {
  return UnaryExpression(node, absl::StrCat("1.57079633 - ", ArcTangentOf(kSineAsTangent)));
}

absl::Status Selu(OnnxNode& node) {
  const float alpha = FloatAttribute(node.node, "alpha", 1.67326319217681884765625f);
  const float gamma = FloatAttribute(node.node, "gamma", 1.05070102214813232421875f);
  return UnaryExpression(node, absl::StrCat(Number(gamma), " * where(@0 > 0, @0, ", Number(alpha),
                                            " * (exp(min(@0, 0)) - 1))"));
}
absl::Status Celu(OnnxNode& node) {
  const std::string alpha = Number(FloatAttribute(node.node, "alpha", 1));
  return UnaryExpression(
      node, absl::StrCat("where(@0 > 0, @0, ", alpha, " * (exp(min(@0, 0) / ", alpha, ") - 1))"));
}

absl::Status Gelu(OnnxNode& node) {
  if (StringAttribute(node.node, "approximate", "none") == "tanh") {
    return UnaryExpression(node,
                           "0.5 * @0 * (1 + tanh(0.797884561 * (@0 + 0.044715 * @0 * @0 * @0)))");
  }
  return UnaryExpression(node, "0.5 * @0 * (1 + erf(@0 * 0.707106781))");
}
absl::Status ThresholdedRelu(OnnxNode& node) {
  return UnaryExpression(
      node, absl::StrCat("where(@0 > ", Number(FloatAttribute(node.node, "alpha", 1)), ", @0, 0)"));
}

absl::Status LeakyRelu(OnnxNode& node) {
  return Map(node, [&](const std::string& in, const std::string& out) {
    return AddPrelu(node.builder(), node.name, in, {FloatAttribute(node.node, "alpha", 0.01f)},
                    out);
  });
}

// The slope broadcasts to x: one value, [C, 1, 1] for x [rows, C, H, W], or a value per element of
// the last dimensions.
absl::Status PRelu(OnnxNode& node) {
  ASSIGN_OR_RETURN(const OnnxValue x, node.value(0));
  const Constant* slope = node.constant(1);
  if (slope == nullptr) return Unimplemented("a slope that is computed");
  ASSIGN_OR_RETURN(const std::vector<float> slopes, slope->ToFloats());
  std::vector<int64_t> sizes = slope->sizes();
  // Dimensions of 1 in front say nothing, those behind repeat each value.
  sizes.erase(sizes.begin(),
              std::find_if(sizes.begin(), sizes.end(), [](int64_t size) { return size != 1; }));
  if (static_cast<int>(sizes.size()) >= x.rank() && slopes.size() > 1) {
    return Unimplemented("a slope of shape ", DimsText(slope->dims), " for input ",
                         DimsText(x.dims));
  }
  int64_t repeat = 1;
  bool behind = true;
  std::vector<int> axes;
  for (int axis = x.rank() - 1; !sizes.empty(); --axis) {
    behind &= sizes.back() == 1;
    if (!x.dims[axis].IsConst() || (!behind && x.dims[axis] != Dim::Of(sizes.back()))) {
      return Unimplemented("a slope of shape ", DimsText(slope->dims), " for input ",
                           DimsText(x.dims));
    }
    if (behind) repeat *= x.dims[axis].value();
    axes.insert(axes.begin(), axis);
    sizes.pop_back();
  }
  ASSIGN_OR_RETURN(const std::string in, node.graph.PlainAlong(x, axes));
  const std::string out = node.Top();
  std::vector<float> spread;
  for (const float value : slopes) spread.insert(spread.end(), static_cast<size_t>(repeat), value);
  const auto count = static_cast<int64_t>(spread.size());
  RETURN_IF_ERROR(node.builder().AddLayer(MakeLayer("prelu_layer", node.name, {in}, out),
                                          {MakeBlob({count}, spread)}));
  node.Set(out, x.dims);
  return absl::OkStatus();
}

// ---------------------------------------------------------------------------------- several inputs

// The inputs as plain tensors, and the shape that they broadcast to.
struct Operands {
  std::vector<std::string> tensors;
  Dims dims;
  std::vector<int> order;  // Of the tensors' axes; empty: as they are.
  int front = 0;           // Axes of one that they lack.

  OnnxValue Result(const OnnxGraph& graph, const std::string& tensor) const {
    const OnnxValue whole = WithFront(graph.Whole(tensor, dims), front);
    return order.empty() ? whole : Reordered(whole, Inverse(order));
  }
};

// The order of axes that all have whose tensors repeat nothing.
std::vector<int> SharedOrder(const OnnxGraph& graph, const std::vector<OnnxValue>& values,
                             int rank) {
  std::vector<int> order;
  for (const OnnxValue& x : values) {
    const bool whole =
        x.rank() == rank && std::find(x.axes.begin(), x.axes.end(), -1) == x.axes.end();
    if (!whole) continue;
    std::vector<int> own = TensorOrder(graph, x);
    if (own.empty() || (!order.empty() && own != order)) return {};
    order = std::move(own);
  }
  return order;
}

// A tensor of the user keeps its row in front when others have more dimensions: [users, n] beside
// [ads, steps, n] is [users, 1, n], which is the same for the one row that ONNX sees.
void LiftUser(const OnnxGraph& graph, int rank, OnnxValue& x) {
  if (x.rank() >= rank || !graph.RowsAreUsers(x)) return;
  if (std::find(x.axes.begin(), x.axes.end(), 0) == x.axes.end()) {
    x.dims.insert(x.dims.begin(), Dim::Users());
    x.axes.insert(x.axes.begin(), 0);
  }
  if (x.axes[0] != 0) return;
  const auto missing = static_cast<size_t>(rank - x.rank());
  x.dims.insert(x.dims.begin() + 1, missing, Dim::Of(1));
  x.axes.insert(x.axes.begin() + 1, missing, -1);
}

absl::StatusOr<Operands> Align(OnnxGraph& graph, std::vector<OnnxValue> values) {
  Operands operands;
  int rank = 0;
  for (const OnnxValue& x : values) rank = std::max(rank, x.rank());
  for (OnnxValue& x : values) {
    LiftUser(graph, rank, x);
    ASSIGN_OR_RETURN(operands.dims, BroadcastDims(operands.dims, x.dims));
  }
  operands.order = SharedOrder(graph, values, rank);
  if (operands.order.empty()) operands.front = AdsAxis(operands.dims);
  operands.dims.clear();
  for (OnnxValue& x : values) {
    const int missing = rank - x.rank();
    if (!operands.order.empty() || operands.front > 0) x = WithFront(std::move(x), missing);
    if (!operands.order.empty()) x = Reordered(x, operands.order);
    x = WithoutFront(std::move(x), operands.front);
    ASSIGN_OR_RETURN(std::string tensor, graph.Plain(x));
    operands.tensors.push_back(std::move(tensor));
    ASSIGN_OR_RETURN(operands.dims, BroadcastDims(operands.dims, x.dims));
  }
  return operands;
}

absl::StatusOr<Operands> ReadOperands(OnnxNode& node) {
  std::vector<OnnxValue> values;
  for (int i = 0; i < node.node.input_size(); ++i) {
    ASSIGN_OR_RETURN(OnnxValue x, node.value(i));
    values.push_back(std::move(x));
  }
  return Align(node.graph, std::move(values));
}

// The output is the expression of what is lined up.
absl::Status SetExpression(OnnxNode& node, absl::string_view text, const Operands& x) {
  const std::string out = node.Top();
  RETURN_IF_ERROR(AddExpression(node.builder(), node.name, text, x.tensors, out));
  node.Set(x.Result(node.graph, out));
  return absl::OkStatus();
}

template <Text type>
absl::Status Arithmetic(OnnxNode& node) {
  ASSIGN_OR_RETURN(const Operands x, ReadOperands(node));
  const std::string out = node.Top();
  RETURN_IF_ERROR(AddPlain(node.builder(), type.chars, node.name, x.tensors, out));
  node.Set(x.Result(node.graph, out));
  return absl::OkStatus();
}

absl::Status Formula(OnnxNode& node, absl::string_view text) {
  ASSIGN_OR_RETURN(const Operands x, ReadOperands(node));
  return SetExpression(node, text, x);
}

template <Text text>
absl::Status OfSeveral(OnnxNode& node) {
  return Formula(node, text.chars);
}

// Quotients of integers up to 2^24 round to none but their own whole part.
absl::Status Div(OnnxNode& node) {
  const Constant* const by = node.constant(1);
  if (by != nullptr && node.graph.IsRowSum(node.node.input(0)) && IsNumbers(by->dims) &&
      by->elements() == 1 && by->number(0) >= 1 && by->number(0) == std::floor(by->number(0))) {
    return ExampleRows(absl::StrCat("divides a sum over the request's rows by ", by->number(0)));
  }
  if (!node.graph.IsInteger(node.node.input(0))) return Arithmetic<"div_layer">(node);
  return Formula(node, "trunc(@0 / @1)");
}

// The remainder has the sign of the divisor, or with fmod that of the dividend.
absl::Status Mod(OnnxNode& node) {
  if (!node.graph.IsInteger(node.node.input(0))) return Unimplemented("of floats");
  const bool fmod = IntAttribute(node.node, "fmod", 0) != 0;
  return Formula(node, fmod ? "@0 - @1 * trunc(@0 / @1)" : "@0 - @1 * floor(@0 / @1)");
}

// "f(f(@0, @1), @2)".
std::string Nested(absl::string_view function, int inputs) {
  std::string text = "@0";
  for (int i = 1; i < inputs; ++i) text = absl::StrCat(function, "(", text, ", @", i, ")");
  return text;
}

template <Text function>
absl::Status FoldInputs(OnnxNode& node) {
  return Formula(node, Nested(function.chars, node.node.input_size()));
}
absl::Status Mean(OnnxNode& node) {
  const int inputs = node.node.input_size();
  return Formula(node, absl::StrCat(Nested("add", inputs), " / ", inputs));
}
absl::Status Where(OnnxNode& node) { return Formula(node, "where(@0, @1, @2)"); }

absl::Status WhereRows(OnnxNode& node) {
  ASSIGN_OR_RETURN(OnnxValue mask, node.value(0));
  ASSIGN_OR_RETURN(const OnnxValue x, node.value(1));
  for (int axis = mask.rank(); axis < x.rank(); ++axis) mask = WithAxis(std::move(mask), axis);
  onnx::NodeProto where = node.node;
  where.set_input(0, node.Scratch("mask"));
  node.graph.Define(where.input(0), std::move(mask));
  OnnxNode step = node.With(where);
  return Where(step);
}

absl::Status Pow(OnnxNode& node) {
  const float exponent = OneValue(node.constant(1));
  if (node.graph.IsInteger(node.node.input(0)) && exponent != 2) {
    return Unimplemented("a power of integers other than the square");
  }
  if (exponent == 0.5f) return UnaryExpression(node, "sqrt(@0)");
  if (exponent != 2) return Formula(node, "pow(@0, @1)");
  return Map(node, [&](const std::string& in, const std::string& out) {
    return AddPlain(node.builder(), "multiply_layer", node.name, {in, in}, out);
  });
}

// Bounds are attributes up to operator set 10, inputs from 11 on.
absl::Status Clip(OnnxNode& node) {
  float low = FloatAttribute(node.node, "min", -INFINITY);
  float high = FloatAttribute(node.node, "max", INFINITY);
  for (int i = 1; i < 3; ++i) {
    if (!node.Has(i)) continue;
    float& bound = i == 1 ? low : high;
    bound = OneValue(node.constant(i));
    if (std::isnan(bound)) return Unimplemented("a bound that is computed");
  }
  constexpr float kLargest = 3.4028234e38f;  // Exporters write it for "no bound".
  if (low <= -kLargest && high >= kLargest) return Same(node);
  if (low == 0 && high >= kLargest) return Unary<"relu_layer">(node);
  std::string text = "@0";
  if (low > -kLargest) text = absl::StrCat("max(", text, ", ", Number(low), ")");
  if (high < kLargest) text = absl::StrCat("min(", text, ", ", Number(high), ")");
  return UnaryExpression(node, text);
}

constexpr OnnxType kTypes[] = {
    {kWhereRows, &WhereRows},
    {"Relu", &Unary<"relu_layer">},
    {"Sigmoid", &Unary<"sigmoid_layer">},
    {"Tanh", &Unary<"tanh_layer">},
    {"Neg", &Of<"neg(@0)">},
    {"Abs", &Of<"abs(@0)">},
    {"Exp", &Of<"exp(@0)">},
    {"Log", &Of<"log(@0)">},
    {"Sqrt", &Of<"sqrt(@0)">},
    {"Reciprocal", &Of<"1 / @0">},
    // Booleans are 0 and 1.
    {"Not", &Of<"1 - @0">},
    {"Identity", &Same},
    {"Dropout", &Dropout},
    {"Cast", &Cast},
    {"Sign", &Of<"where(@0 > 0, 1, where(@0 < 0, -1, 0))">},
    {"Sin", &Of<"sin(@0)">},
    {"Cos", &Of<"cos(@0)">},
    {"Tan", &Of<"sin(@0) / cos(@0)">},
    {"Round", &Of<"round(@0)">},
    {"Shrink", &Shrink},
    {"IsNaN", &Of<"@0 != @0">},
    {"IsInf", &IsInf},
    {"Atan", &Atan},
    {"Asin", &Asin},
    {"Acos", &Acos},
    {"Sinh", &Of<"0.5 * (exp(@0) - exp(0 - @0))">},
    {"Cosh", &Of<"0.5 * (exp(@0) + exp(0 - @0))">},
    {"Asinh", &Of<"where(@0 < 0, -1, 1) * log(abs(@0) + sqrt(@0 * @0 + 1))">},
    {"Acosh", &Of<"log(@0 + sqrt(@0 * @0 - 1))">},
    {"Atanh", &Of<"0.5 * log((1 + @0) / (1 - @0))">},
    {"Floor", &Of<"floor(@0)">},
    {"Ceil", &Of<"neg(floor(neg(@0)))">},
    {"Selu", &Selu},
    {"Celu", &Celu},
    {"HardSwish", &Of<"@0 * max(0, min(1, @0 / 6 + 0.5))">},
    // x * tanh(log(1 + exp(x))) without an exp that overflows.
    {"Mish", &Of<"@0 * tanh(max(@0, 0) + log(1 + exp(-abs(@0))))">},
    {"Erf", &Of<"erf(@0)">},
    {"Gelu", &Gelu},
    {"ThresholdedRelu", &ThresholdedRelu},
    {"Softsign", &Of<"@0 / (1 + abs(@0))">},
    // log(1 + exp(x)), without an exp that overflows.
    {"Softplus", &Of<"max(@0, 0) + log(1 + exp(-abs(@0)))">},
    {"Elu", &Elu},
    {"HardSigmoid", &HardSigmoid},
    {"LeakyRelu", &LeakyRelu},
    {"PRelu", &PRelu},
    {"Add", &ConvertAdd},
    {"Sub", &Arithmetic<"sub_layer">},
    {"Mul", &Arithmetic<"multiply_layer">},
    {"Div", &Div},
    {"Mod", &Mod},
    {"Sum", &FoldInputs<"add">},
    {"Mean", &Mean},
    {"Min", &FoldInputs<"min">},
    {"Max", &FoldInputs<"max">},
    {"Equal", &OfSeveral<"@0 == @1">},
    {"Greater", &OfSeveral<"@0 > @1">},
    {"Less", &OfSeveral<"@0 < @1">},
    {"GreaterOrEqual", &OfSeveral<"@0 >= @1">},
    {"LessOrEqual", &OfSeveral<"@0 <= @1">},
    {"And", &OfSeveral<"@0 * @1">},
    {"Or", &OfSeveral<"max(@0, @1)">},
    {"Xor", &OfSeveral<"@0 != @1">},
    {"Where", &Where},
    {"Pow", &Pow},
    {"Clip", &Clip},
};

}  // namespace

absl::Status ConvertFormula(OnnxNode& node) {
  const IntegerFormula formula = *node.graph.FindFormula(node.output());
  std::vector<OnnxValue> values;
  for (const IntegerFormula::Input& input : formula.inputs) {
    std::string name = input.name;
    for (const onnx::NodeProto* const move : input.moves) {
      onnx::NodeProto again = *move;
      again.set_input(0, name);
      name = node.Scratch("int64");
      again.set_output(0, name);
      OnnxNode step = node.With(again);
      RETURN_IF_ERROR(FindOnnxType(again.op_type())->convert(step));
    }
    ASSIGN_OR_RETURN(OnnxValue x, node.graph.ValueOf(name));
    values.push_back(std::move(x));
  }
  ASSIGN_OR_RETURN(const Operands x, Align(node.graph, std::move(values)));
  node.note = "in double";
  return SetExpression(node, formula.text, x);
}

absl::Status ConvertAdd(OnnxNode& node) {
  // Integers + 0 for every row, as exporters repeat an index.
  for (const int i : {0, 1}) {
    const Constant *const zero = node.constant(i), *const other = node.constant(1 - i);
    if (zero == nullptr || other == nullptr || zero->is_float || !zero->uniform ||
        IsNumbers(zero->dims) || zero->dim(0) != Dim::Of(0)) {
      continue;
    }
    ASSIGN_OR_RETURN(OnnxValue x, node.value(1 - i));
    ASSIGN_OR_RETURN(x.dims, BroadcastDims(x.dims, zero->dims));
    x.axes.insert(x.axes.begin(), x.dims.size() - x.axes.size(), -1);
    node.Set(x);
    return absl::OkStatus();
  }
  return Arithmetic<"add_layer">(node);
}

absl::Span<const OnnxType> ElementwiseOnnxTypes() { return kTypes; }

}  // namespace ulfd::convert

// The interpreter's operators that work element by element.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <functional>

#include "base/errors.h"
#include "base/status_macros.h"
#include "tools/convert/onnx/model/constant.h"
#include "tools/convert/onnx/proof/interpreter.h"

namespace ulfd::convert::reference {
namespace {

// ---------------------------------------------------------------------------------- one input

template <typename Fn>
Results Map(const Call& call, Fn fn) {
  const Array& x = *call.in[0];
  if (!x.is_float()) {
    return Unimplemented(call.node.op_type(), " of integers");
  }
  std::vector<double> values = ValuesOf(x);
  for (double& value : values) value = call.Round(x.type, fn(value));
  return One(Floats(x.type, x.dims, std::move(values)));
}

template <typename Fn>
Results MapInts(const Call& call, int type, Fn fn) {
  const Array& x = *call.in[0];
  std::vector<int64_t> values = *x.ints;
  for (int64_t& value : values) value = Wrap(type, fn(value));
  return One(Ints(type, x.dims, std::move(values)));
}

template <double (*fn)(double)>
Results Of(const Call& call) {
  return Map(call, fn);
}

// Integers too.
template <typename Fn, typename IntFn>
Results MapBoth(const Call& call, Fn fn, IntFn int_fn) {
  if (call.in[0]->is_float()) return Map(call, fn);
  return MapInts(call, call.in[0]->type, int_fn);
}

double Attribute(const Call& call, const char* name, float otherwise) {
  return double{FloatAttribute(call.node, name, otherwise)};
}

Results Relu(const Call& c) {
  return MapBoth(
      c, [](double x) { return x < 0 ? 0 : x; }, [](int64_t x) { return std::max<int64_t>(x, 0); });
}
Results Sigmoid(const Call& c) {
  return Map(c, [](double x) { return 1 / (1 + std::exp(-x)); });
}
Results Neg(const Call& c) {
  return MapBoth(
      c, [](double x) { return -x; }, [](int64_t x) { return -x; });
}
Results Abs(const Call& c) {
  return MapBoth(
      c, [](double x) { return std::fabs(x); }, [](int64_t x) { return x < 0 ? -x : x; });
}
Results Sign(const Call& c) {
  return MapBoth(
      c, [](double x) { return x > 0   ? 1.0
                               : x < 0 ? -1.0
                                       : 0.0; },
      [](int64_t x) { return int64_t{x > 0} - int64_t{x < 0}; });
}
Results Shrink(const Call& c) {
  const double lambda = double{FloatAttribute(c.node, "lambd", 0.5f)};
  const double bias = double{FloatAttribute(c.node, "bias", 0)};
  return Map(c, [=](double x) { return x < -lambda ? x + bias : x > lambda ? x - bias : 0; });
}
template <typename Fn>
Results Test(const Call& c, Fn fn) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < c.in[0]->elements(); ++i) out.push_back(int64_t{fn(c.in[0]->at(i))});
  return One(Ints(onnx::TensorProto::BOOL, c.in[0]->dims, std::move(out)));
}
Results IsNan(const Call& c) {
  return Test(c, [](double x) { return std::isnan(x); });
}
Results IsInf(const Call& c) {
  const bool below = IntAttribute(c.node, "detect_negative", 1) != 0;
  const bool above = IntAttribute(c.node, "detect_positive", 1) != 0;
  return Test(c, [=](double x) { return (below && x == -INFINITY) || (above && x == INFINITY); });
}
Results Reciprocal(const Call& c) {
  return Map(c, [](double x) { return 1 / x; });
}
Results Softsign(const Call& c) {
  return Map(c, [](double x) { return x / (1 + std::fabs(x)); });
}
double SoftplusOf(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); }
Results Elu(const Call& c) {
  const double alpha = Attribute(c, "alpha", 1);
  return Map(c, [alpha](double x) { return x < 0 ? alpha * std::expm1(x) : x; });
}
Results Celu(const Call& c) {
  const double alpha = Attribute(c, "alpha", 1);
  return Map(c, [alpha](double x) {
    return std::max(0.0, x) + std::min(0.0, alpha * std::expm1(x / alpha));
  });
}
Results Selu(const Call& c) {
  const double alpha = Attribute(c, "alpha", 1.67326319217681884765625f);
  const double gamma = Attribute(c, "gamma", 1.05070102214813232421875f);
  return Map(c, [=](double x) { return x > 0 ? gamma * x : gamma * alpha * std::expm1(x); });
}
Results HardSigmoid(const Call& c) {
  const double alpha = Attribute(c, "alpha", 0.2f), beta = Attribute(c, "beta", 0.5f);
  return Map(c, [=](double x) { return std::clamp(alpha * x + beta, 0.0, 1.0); });
}
Results HardSwish(const Call& c) {
  return Map(c, [](double x) { return x * std::clamp(x / 6 + 0.5, 0.0, 1.0); });
}
Results Mish(const Call& c) {
  return Map(c, [](double x) { return x * std::tanh(SoftplusOf(x)); });
}
Results Gelu(const Call& c) {
  if (StringAttribute(c.node, "approximate", "none") == "tanh") {
    return Map(c, [](double x) {
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    });
  }
  return Map(c, [](double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); });
}
Results LeakyRelu(const Call& c) {
  const double alpha = Attribute(c, "alpha", 0.01f);
  return Map(c, [alpha](double x) { return x < 0 ? alpha * x : x; });
}
Results ThresholdedRelu(const Call& c) {
  const double alpha = Attribute(c, "alpha", 1);
  return Map(c, [alpha](double x) { return x > alpha ? x : 0; });
}

Results Not(const Call& c) {
  if (c.in[0]->ints == nullptr) return InvalidArgument("Not of floats");
  return MapInts(c, onnx::TensorProto::BOOL, [](int64_t x) { return int64_t{x == 0}; });
}
Results Same(const Call& c) { return One(*c.in[0]); }

Results Dropout(const Call& c) {
  const auto is_zero = [&c](size_t i) {
    return c.Has(i) && c.in[i]->elements() == 1 && c.in[i]->at(0) == 0;
  };
  if (c.Has(2) && !is_zero(1) && !is_zero(2))
    return Unimplemented("training_mode: its result is random");
  return One(*c.in[0]);
}

Results Cast(const Call& c) {
  const Array& x = *c.in[0];
  // CastLike's second input has the type.
  const int to = c.Has(1) ? c.in[1]->type : static_cast<int>(IntAttribute(c.node, "to", 0));
  if (IsFloatType(to)) {
    std::vector<double> values = ValuesOf(x);
    Array out = Floats(to, x.dims, {});
    for (double& value : values) value = c.Round(out.type, value);
    out.floats = std::make_shared<const std::vector<double>>(std::move(values));
    return One(std::move(out));
  }
  switch (to) {
    case onnx::TensorProto::BOOL:
    case onnx::TensorProto::INT64:
    case onnx::TensorProto::INT32:
    case onnx::TensorProto::INT8:
    case onnx::TensorProto::UINT8:
    case onnx::TensorProto::INT16:
    case onnx::TensorProto::UINT16:
      break;
    default:
      return Unimplemented("Cast to type ", to);
  }
  const auto count = static_cast<size_t>(x.elements());
  std::vector<int64_t> values(count);
  for (size_t i = 0; i < count; ++i) {
    if (x.ints != nullptr) {
      values[i] = Wrap(to, (*x.ints)[i]);
      continue;
    }
    const double value = x.at(static_cast<int64_t>(i));
    if (to == onnx::TensorProto::BOOL) {
      values[i] = int64_t{value != 0};
    } else if (std::fabs(value) < 9e18) {
      values[i] = Wrap(to, static_cast<int64_t>(value));
    } else {
      return InvalidArgument(value, kNoInteger);
    }
  }
  return One(Ints(to, x.dims, std::move(values)));
}

Results Clip(const Call& c) {
  double low = Attribute(c, "min", -INFINITY), high = Attribute(c, "max", INFINITY);
  for (size_t i = 1; i < 3; ++i) {
    if (!c.Has(i)) continue;
    if (c.in[i]->elements() != 1) return InvalidArgument("a bound of several values");
    (i == 1 ? low : high) = c.in[i]->at(0);
  }
  return MapBoth(
      c, [=](double x) { return std::min(std::max(x, low), high); },
      [=](int64_t x) {
        const auto value = static_cast<double>(x);
        return value < low    ? static_cast<int64_t>(low)
               : value > high ? static_cast<int64_t>(high)
                              : x;
      });
}

// ------------------------------------------------------------------------------- several inputs

struct Binary {
  bool compares = false, divides = false;
  double (*floats)(double, double) = nullptr;
  int64_t (*ints)(int64_t, int64_t) = nullptr;
};

Results Pairwise(const Call& c, const Array& a, const Array& b, const Binary& op) {
  if (a.type != b.type) return InvalidArgument("the types of the inputs differ");
  ASSIGN_OR_RETURN(const Sizes dims, BroadcastSizes(a.dims, b.dims));
  ASSIGN_OR_RETURN(const int64_t count, CountOf(c, dims));
  const Sizes strides[] = {BroadcastStrides(a.dims, dims), BroadcastStrides(b.dims, dims)};
  if (a.is_float()) {
    if (op.floats == nullptr) return InvalidArgument("of floats");
    std::vector<double> values;
    values.reserve(static_cast<size_t>(count));
    Walk(dims, strides, [&](const int64_t* at) {
      values.push_back(c.Round(a.type, op.floats(a.at(at[0]), b.at(at[1]))));
    });
    if (!op.compares) return One(Floats(a.type, dims, std::move(values)));
    return One(Ints(onnx::TensorProto::BOOL, dims, {values.begin(), values.end()}));
  }
  if (op.ints == nullptr) return InvalidArgument("of integers");
  const int type = op.compares ? int{onnx::TensorProto::BOOL} : a.type;
  std::vector<int64_t> values;
  values.reserve(static_cast<size_t>(count));
  bool by_zero = false;
  Walk(dims, strides, [&](const int64_t* at) {
    const int64_t left = (*a.ints)[static_cast<size_t>(at[0])];
    const int64_t right = (*b.ints)[static_cast<size_t>(at[1])];
    by_zero |= op.divides && right == 0;
    values.push_back(by_zero ? 0 : Wrap(type, op.ints(left, right)));
  });
  if (by_zero) return InvalidArgument(kDividedByZero);
  return One(Ints(type, dims, std::move(values)));
}

// Integers wrap around.
template <typename Op>
constexpr Binary Arithmetic() {
  return {
      .floats = [](double a, double b) { return Op()(a, b); },
      .ints =
          [](int64_t a, int64_t b) {
            return static_cast<int64_t>(Op()(static_cast<uint64_t>(a), static_cast<uint64_t>(b)));
          }};
}
template <typename Op>
constexpr Binary Comparison() {
  return {.compares = true,
          .floats = [](double a, double b) { return static_cast<double>(Op()(a, b)); },
          .ints = [](int64_t a, int64_t b) { return int64_t{Op()(a, b)}; }};
}

constexpr Binary kAdd = Arithmetic<std::plus<>>();
constexpr Binary kSub = Arithmetic<std::minus<>>();
constexpr Binary kMul = Arithmetic<std::multiplies<>>();
constexpr Binary kDiv = {
    .divides = true,
    .floats = [](double a, double b) { return a / b; },
    .ints = [](int64_t a, int64_t b) { return b == -1 ? kSub.ints(0, a) : a / b; }};
constexpr Binary kFmod = {.divides = true,
                          .floats = [](double a, double b) { return std::fmod(a, b); },
                          .ints = [](int64_t a, int64_t b) { return b == -1 ? 0 : a % b; }};
// The sign of the divisor.
constexpr Binary kMod = {.divides = true, .ints = [](int64_t a, int64_t b) {
                           const int64_t rest = b == -1 ? 0 : a % b;
                           return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
                         }};
// What is no number stays none.
constexpr Binary kMin = {
    .floats = [](double a, double b) { return a < b || std::isnan(a) ? a : b; },
    .ints = [](int64_t a, int64_t b) { return std::min(a, b); }};
constexpr Binary kMax = {
    .floats = [](double a, double b) { return a > b || std::isnan(a) ? a : b; },
    .ints = [](int64_t a, int64_t b) { return std::max(a, b); }};
constexpr Binary kEqual = Comparison<std::equal_to<>>();
constexpr Binary kGreater = Comparison<std::greater<>>();
constexpr Binary kLess = Comparison<std::less<>>();
constexpr Binary kGreaterOrEqual = Comparison<std::greater_equal<>>();
constexpr Binary kLessOrEqual = Comparison<std::less_equal<>>();
constexpr Binary kAnd = {.compares = true,
                         .ints = [](int64_t a, int64_t b) { return int64_t{a != 0 && b != 0}; }};
constexpr Binary kOr = {.compares = true,
                        .ints = [](int64_t a, int64_t b) { return int64_t{a != 0 || b != 0}; }};
constexpr Binary kXor = {
    .compares = true, .ints = [](int64_t a, int64_t b) { return int64_t{(a != 0) != (b != 0)}; }};

template <const Binary& op>
Results Two(const Call& c) {
  return Pairwise(c, *c.in[0], *c.in[1], op);
}

// The first with the second, that with the third.
template <const Binary& op>
Results Several(const Call& c) {
  Array total = *c.in[0];
  for (size_t i = 1; i < c.in.size(); ++i) {
    if (!c.Has(i)) return InvalidArgument("an input is missing");
    ASSIGN_OR_RETURN(const std::vector<Array> next, Pairwise(c, total, *c.in[i], op));
    total = next[0];
  }
  return One(std::move(total));
}

Results Mean(const Call& c) {
  ASSIGN_OR_RETURN(const std::vector<Array> total, Several<kAdd>(c));
  std::vector<double> values = ValuesOf(total[0]);
  for (double& value : values) {
    value = c.Round(total[0].type, value / static_cast<double>(c.in.size()));
  }
  return One(Floats(total[0].type, total[0].dims, std::move(values)));
}

Results Mod(const Call& c) {
  return Pairwise(c, *c.in[0], *c.in[1], IntAttribute(c.node, "fmod", 0) != 0 ? kFmod : kMod);
}

// The type of the result is the base's, whatever the exponent's.
Results Pow(const Call& c) {
  const Array &a = *c.in[0], &b = *c.in[1];
  ASSIGN_OR_RETURN(const Sizes dims, BroadcastSizes(a.dims, b.dims));
  ASSIGN_OR_RETURN(const int64_t count, CountOf(c, dims));
  std::vector<double> values;
  values.reserve(static_cast<size_t>(count));
  const Sizes strides[] = {BroadcastStrides(a.dims, dims), BroadcastStrides(b.dims, dims)};
  Walk(dims, strides, [&](const int64_t* at) {
    values.push_back(c.Round(a.type, std::pow(a.at(at[0]), b.at(at[1]))));
  });
  if (a.is_float()) return One(Floats(a.type, dims, std::move(values)));
  std::vector<int64_t> ints;
  for (const double value : values) {
    if (!(std::fabs(value) < 9e15)) return Unimplemented("a power beyond 2^53");
    ints.push_back(Wrap(a.type, static_cast<int64_t>(value)));
  }
  return One(Ints(a.type, dims, std::move(ints)));
}

Results PRelu(const Call& c) {
  const Array &x = *c.in[0], &slope = *c.in[1];
  if (!x.is_float()) return Unimplemented("PRelu of integers");
  ASSIGN_OR_RETURN(const Sizes dims, BroadcastSizes(x.dims, slope.dims));
  if (dims != x.dims) return InvalidArgument("a slope larger than the input");
  std::vector<double> values;
  const Sizes strides[] = {StridesOf(dims), BroadcastStrides(slope.dims, dims)};
  Walk(dims, strides, [&](const int64_t* at) {
    const double value = x.at(at[0]);
    values.push_back(c.Round(x.type, value < 0 ? value * slope.at(at[1]) : value));
  });
  return One(Floats(x.type, dims, std::move(values)));
}

Results Where(const Call& c) {
  const Array &test = *c.in[0], &a = *c.in[1], &b = *c.in[2];
  // PyTorch leaves numbers beside floats as the integers that they were written as.
  const int type = a.is_float() ? a.type : b.type;
  const bool is_float = a.is_float() || b.is_float();
  if (test.ints == nullptr || (a.type != b.type && a.is_float() == b.is_float())) {
    return InvalidArgument("types that do not fit");
  }
  ASSIGN_OR_RETURN(Sizes dims, BroadcastSizes(a.dims, b.dims));
  ASSIGN_OR_RETURN(dims, BroadcastSizes(test.dims, dims));
  RETURN_IF_ERROR(CountOf(c, dims).status());
  std::vector<double> floats;
  std::vector<int64_t> ints;
  const Sizes strides[] = {BroadcastStrides(test.dims, dims), BroadcastStrides(a.dims, dims),
                           BroadcastStrides(b.dims, dims)};
  Walk(dims, strides, [&](const int64_t* at) {
    const bool first = (*test.ints)[static_cast<size_t>(at[0])] != 0;
    const Array& from = first ? a : b;
    const int64_t place = at[first ? 1 : 2];
    if (is_float) {
      floats.push_back(c.Round(type, from.at(place)));
    } else {
      ints.push_back((*from.ints)[static_cast<size_t>(place)]);
    }
  });
  return is_float ? One(Floats(type, dims, std::move(floats)))
                  : One(Ints(type, dims, std::move(ints)));
}

constexpr Operator kOperators[] = {
    {"Relu", 1, &Relu},
    {"Sigmoid", 1, &Sigmoid},
    {"Tanh", 1, &Of<std::tanh>},
    {"Neg", 1, &Neg},
    {"Abs", 1, &Abs},
    {"Sign", 1, &Sign},
    {"Exp", 1, &Of<std::exp>},
    {"Log", 1, &Of<std::log>},
    {"Sqrt", 1, &Of<std::sqrt>},
    {"Sinh", 1, &Of<std::sinh>},
    {"Cosh", 1, &Of<std::cosh>},
    {"Tan", 1, &Of<std::tan>},
    {"Asin", 1, &Of<std::asin>},
    {"Acos", 1, &Of<std::acos>},
    {"Atan", 1, &Of<std::atan>},
    {"Asinh", 1, &Of<std::asinh>},
    {"Acosh", 1, &Of<std::acosh>},
    {"Atanh", 1, &Of<std::atanh>},
    {"Shrink", 1, &Shrink},
    {"IsNaN", 1, &IsNan},
    {"IsInf", 1, &IsInf},
    {"Sin", 1, &Of<std::sin>},
    {"Cos", 1, &Of<std::cos>},
    {"Erf", 1, &Of<std::erf>},
    {"Floor", 1, &Of<std::floor>},
    {"Ceil", 1, &Of<std::ceil>},
    {"Round", 1, &Of<std::nearbyint>},
    {"Reciprocal", 1, &Reciprocal},
    {"Softsign", 1, &Softsign},
    {"Softplus", 1, &Of<SoftplusOf>},
    {"Elu", 1, &Elu},
    {"Celu", 1, &Celu},
    {"Selu", 1, &Selu},
    {"HardSigmoid", 1, &HardSigmoid},
    {"HardSwish", 1, &HardSwish},
    {"Mish", 1, &Mish},
    {"Gelu", 1, &Gelu},
    {"LeakyRelu", 1, &LeakyRelu},
    {"ThresholdedRelu", 1, &ThresholdedRelu},
    {"Not", 1, &Not},
    {"Identity", 1, &Same},
    {"Dropout", 1, &Dropout},
    {"Cast", 1, &Cast},
    {"CastLike", 2, &Cast},
    {"Clip", 1, &Clip},
    {"Add", 2, &Two<kAdd>},
    {"Sub", 2, &Two<kSub>},
    {"Mul", 2, &Two<kMul>},
    {"Div", 2, &Two<kDiv>},
    {"Mod", 2, &Mod},
    {"Pow", 2, &Pow},
    {"Equal", 2, &Two<kEqual>},
    {"Greater", 2, &Two<kGreater>},
    {"Less", 2, &Two<kLess>},
    {"GreaterOrEqual", 2, &Two<kGreaterOrEqual>},
    {"LessOrEqual", 2, &Two<kLessOrEqual>},
    {"And", 2, &Two<kAnd>},
    {"Or", 2, &Two<kOr>},
    {"Xor", 2, &Two<kXor>},
    {"Min", 1, &Several<kMin>},
    {"Max", 1, &Several<kMax>},
    {"Sum", 1, &Several<kAdd>},
    {"Mean", 1, &Mean},
    {"PRelu", 2, &PRelu},
    {"Where", 3, &Where},
};

}  // namespace

absl::Span<const Operator> ElementwiseOperators() { return kOperators; }

}  // namespace ulfd::convert::reference

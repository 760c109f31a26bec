// The interpreter's operators that work element by element.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
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
    return absl::UnimplementedError(absl::StrCat(call.node.op_type(), " of integers"));
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
double SigmoidOf(double x) { return 1 / (1 + std::exp(-x)); }
Results Sigmoid(const Call& c) { return Map(c, &SigmoidOf); }
Results Tanh(const Call& c) {
  return Map(c, [](double x) { return std::tanh(x); });
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
Results Exp(const Call& c) {
  return Map(c, [](double x) { return std::exp(x); });
}
Results Log(const Call& c) {
  return Map(c, [](double x) { return std::log(x); });
}
Results Sqrt(const Call& c) {
  return Map(c, [](double x) { return std::sqrt(x); });
}
Results Sinh(const Call& c) {
  return Map(c, [](double x) { return std::sinh(x); });
}
Results Cosh(const Call& c) {
  return Map(c, [](double x) { return std::cosh(x); });
}
Results Tan(const Call& c) {
  return Map(c, [](double x) { return std::tan(x); });
}
Results Asin(const Call& c) {
  return Map(c, [](double x) { return std::asin(x); });
}
Results Acos(const Call& c) {
  return Map(c, [](double x) { return std::acos(x); });
}
Results Atan(const Call& c) {
  return Map(c, [](double x) { return std::atan(x); });
}
Results Asinh(const Call& c) {
  return Map(c, [](double x) { return std::asinh(x); });
}
Results Acosh(const Call& c) {
  return Map(c, [](double x) { return std::acosh(x); });
}
Results Atanh(const Call& c) {
  return Map(c, [](double x) { return std::atanh(x); });
}
Results Shrink(const Call& c) {
  const double lambda = double{FloatAttribute(c.node, "lambd", 0.5f)};
  const double bias = double{FloatAttribute(c.node, "bias", 0)};
  return Map(c, [=](double x) { return x < -lambda ? x + bias : x > lambda ? x - bias : 0; });
}
Results IsNan(const Call& c) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < c.in[0]->elements(); ++i)
    out.push_back(std::isnan(c.in[0]->at(i)) ? 1 : 0);
  return One(Ints(onnx::TensorProto::BOOL, c.in[0]->dims, std::move(out)));
}
Results IsInf(const Call& c) {
  const bool below = IntAttribute(c.node, "detect_negative", 1) != 0;
  const bool above = IntAttribute(c.node, "detect_positive", 1) != 0;
  std::vector<int64_t> out;
  for (int64_t i = 0; i < c.in[0]->elements(); ++i) {
    const double value = c.in[0]->at(i);
    out.push_back((below && value == -INFINITY) || (above && value == INFINITY) ? 1 : 0);
  }
  return One(Ints(onnx::TensorProto::BOOL, c.in[0]->dims, std::move(out)));
}
Results Sin(const Call& c) {
  return Map(c, [](double x) { return std::sin(x); });
}
Results Cos(const Call& c) {
  return Map(c, [](double x) { return std::cos(x); });
}
Results Erf(const Call& c) {
  return Map(c, [](double x) { return std::erf(x); });
}
Results Floor(const Call& c) {
  return Map(c, [](double x) { return std::floor(x); });
}
Results Ceil(const Call& c) {
  return Map(c, [](double x) { return std::ceil(x); });
}
Results RoundEven(const Call& c) {
  return Map(c, [](double x) { return std::nearbyint(x); });
}
Results Reciprocal(const Call& c) {
  return Map(c, [](double x) { return 1 / x; });
}
Results Softsign(const Call& c) {
  return Map(c, [](double x) { return x / (1 + std::fabs(x)); });
}
Results Softplus(const Call& c) {
  return Map(c, [](double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); });
}
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
  return Map(c, [](double x) {
    return x * std::tanh(std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))));
  });
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
  if (c.in[0]->ints == nullptr) return absl::InvalidArgumentError("Not of floats");
  return MapInts(c, onnx::TensorProto::BOOL, [](int64_t x) { return int64_t{x == 0}; });
}
Results Same(const Call& c) { return One(*c.in[0]); }

Results Dropout(const Call& c) {
  const auto is_zero = [&c](size_t i) {
    return c.Has(i) && c.in[i]->elements() == 1 && c.in[i]->at(0) == 0;
  };
  if (c.Has(2) && !is_zero(1) && !is_zero(2))
    return absl::UnimplementedError("training_mode: its result is random");
  return One(*c.in[0]);
}

Results Cast(const Call& c) {
  const Array& x = *c.in[0];
  const auto to = static_cast<int>(IntAttribute(c.node, "to", 0));
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
      return absl::UnimplementedError(absl::StrCat("Cast to type ", to));
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
      return absl::InvalidArgumentError(absl::StrCat(value, kNoInteger));
    }
  }
  return One(Ints(to, x.dims, std::move(values)));
}

Results Clip(const Call& c) {
  double low = Attribute(c, "min", -INFINITY), high = Attribute(c, "max", INFINITY);
  for (size_t i = 1; i < 3; ++i) {
    if (!c.Has(i)) continue;
    if (c.in[i]->elements() != 1) return absl::InvalidArgumentError("a bound of several values");
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

enum class Kind { kArithmetic, kComparison };

struct Binary {
  Kind kind;
  double (*floats)(double, double);
  absl::StatusOr<int64_t> (*ints)(int64_t, int64_t);
};

Results Pairwise(const Call& c, const Array& a, const Array& b, const Binary& op) {
  if (a.type != b.type) return absl::InvalidArgumentError("the types of the inputs differ");
  ASSIGN_OR_RETURN(const Sizes dims, BroadcastSizes(a.dims, b.dims));
  ASSIGN_OR_RETURN(const int64_t count, CountOf(c, dims));
  const Sizes strides[] = {BroadcastStrides(a.dims, dims), BroadcastStrides(b.dims, dims)};
  const bool compares = op.kind == Kind::kComparison;
  if (a.is_float()) {
    if (op.floats == nullptr) return absl::InvalidArgumentError("of floats");
    std::vector<double> values;
    values.reserve(static_cast<size_t>(count));
    Walk(dims, strides, [&](const int64_t* at) {
      values.push_back(c.Round(a.type, op.floats(a.at(at[0]), b.at(at[1]))));
    });
    if (!compares) return One(Floats(a.type, dims, std::move(values)));
    return One(Ints(onnx::TensorProto::BOOL, dims, {values.begin(), values.end()}));
  }
  if (op.ints == nullptr) return absl::InvalidArgumentError("of integers");
  std::vector<int64_t> values;
  values.reserve(static_cast<size_t>(count));
  absl::Status status;
  Walk(dims, strides, [&](const int64_t* at) {
    const absl::StatusOr<int64_t> value =
        op.ints((*a.ints)[static_cast<size_t>(at[0])], (*b.ints)[static_cast<size_t>(at[1])]);
    if (!value.ok()) status = value.status();
    values.push_back(value.ok() ? Wrap(compares ? int{onnx::TensorProto::BOOL} : a.type, *value)
                                : 0);
  });
  RETURN_IF_ERROR(status);
  return One(Ints(compares ? int{onnx::TensorProto::BOOL} : a.type, dims, std::move(values)));
}

int64_t Wrapped(uint64_t value) { return static_cast<int64_t>(value); }
uint64_t Bits(int64_t value) { return static_cast<uint64_t>(value); }

constexpr Binary kAdd = {
    Kind::kArithmetic, [](double a, double b) { return a + b; },
    [](int64_t a, int64_t b) -> absl::StatusOr<int64_t> { return Wrapped(Bits(a) + Bits(b)); }};
constexpr Binary kSub = {
    Kind::kArithmetic, [](double a, double b) { return a - b; },
    [](int64_t a, int64_t b) -> absl::StatusOr<int64_t> { return Wrapped(Bits(a) - Bits(b)); }};
constexpr Binary kMul = {
    Kind::kArithmetic, [](double a, double b) { return a * b; },
    [](int64_t a, int64_t b) -> absl::StatusOr<int64_t> { return Wrapped(Bits(a) * Bits(b)); }};
constexpr Binary kDiv = {Kind::kArithmetic, [](double a, double b) { return a / b; },
                         [](int64_t a, int64_t b) -> absl::StatusOr<int64_t> {
                           if (b == 0) return absl::InvalidArgumentError(kDividedByZero);
                           return b == -1 ? Wrapped(0 - Bits(a)) : a / b;
                         }};
constexpr Binary kFmod = {Kind::kArithmetic, [](double a, double b) { return std::fmod(a, b); },
                          [](int64_t a, int64_t b) -> absl::StatusOr<int64_t> {
                            if (b == 0) return absl::InvalidArgumentError(kDividedByZero);
                            return b == -1 ? 0 : a % b;
                          }};
// The sign of the divisor.
constexpr Binary kMod = {Kind::kArithmetic, nullptr,
                         [](int64_t a, int64_t b) -> absl::StatusOr<int64_t> {
                           if (b == 0) return absl::InvalidArgumentError(kDividedByZero);
                           const int64_t rest = b == -1 ? 0 : a % b;
                           return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
                         }};
constexpr Binary kMin = {
    Kind::kArithmetic, [](double a, double b) { return a < b ? a : b; },
    [](int64_t a, int64_t b) -> absl::StatusOr<int64_t> { return std::min(a, b); }};
constexpr Binary kMax = {
    Kind::kArithmetic, [](double a, double b) { return a > b ? a : b; },
    [](int64_t a, int64_t b) -> absl::StatusOr<int64_t> { return std::max(a, b); }};
constexpr Binary kEqual = {
    Kind::kComparison, [](double a, double b) { return a == b ? 1.0 : 0; },
    [](int64_t a, int64_t b) -> absl::StatusOr<int64_t> { return int64_t{a == b}; }};
constexpr Binary kGreater = {
    Kind::kComparison, [](double a, double b) { return a > b ? 1.0 : 0; },
    [](int64_t a, int64_t b) -> absl::StatusOr<int64_t> { return int64_t{a > b}; }};
constexpr Binary kLess = {
    Kind::kComparison, [](double a, double b) { return a < b ? 1.0 : 0; },
    [](int64_t a, int64_t b) -> absl::StatusOr<int64_t> { return int64_t{a < b}; }};
constexpr Binary kGreaterOrEqual = {
    Kind::kComparison, [](double a, double b) { return a >= b ? 1.0 : 0; },
    [](int64_t a, int64_t b) -> absl::StatusOr<int64_t> { return int64_t{a >= b}; }};
constexpr Binary kLessOrEqual = {
    Kind::kComparison, [](double a, double b) { return a <= b ? 1.0 : 0; },
    [](int64_t a, int64_t b) -> absl::StatusOr<int64_t> { return int64_t{a <= b}; }};
constexpr Binary kAnd = {
    Kind::kComparison, nullptr,
    [](int64_t a, int64_t b) -> absl::StatusOr<int64_t> { return int64_t{a != 0 && b != 0}; }};
constexpr Binary kOr = {
    Kind::kComparison, nullptr,
    [](int64_t a, int64_t b) -> absl::StatusOr<int64_t> { return int64_t{a != 0 || b != 0}; }};
constexpr Binary kXor = {
    Kind::kComparison, nullptr,
    [](int64_t a, int64_t b) -> absl::StatusOr<int64_t> { return int64_t{(a != 0) != (b != 0)}; }};

template <const Binary& op>
Results Two(const Call& c) {
  return Pairwise(c, *c.in[0], *c.in[1], op);
}

// The first with the second, that with the third.
template <const Binary& op>
Results Several(const Call& c) {
  Array total = *c.in[0];
  for (size_t i = 1; i < c.in.size(); ++i) {
    if (!c.Has(i)) return absl::InvalidArgumentError("an input is missing");
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
    if (!(std::fabs(value) < 9e15)) return absl::UnimplementedError("a power beyond 2^53");
    ints.push_back(Wrap(a.type, static_cast<int64_t>(value)));
  }
  return One(Ints(a.type, dims, std::move(ints)));
}

Results PRelu(const Call& c) {
  const Array &x = *c.in[0], &slope = *c.in[1];
  if (!x.is_float()) return absl::UnimplementedError("PRelu of integers");
  ASSIGN_OR_RETURN(const Sizes dims, BroadcastSizes(x.dims, slope.dims));
  if (dims != x.dims) return absl::InvalidArgumentError("a slope larger than the input");
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
    return absl::InvalidArgumentError("types that do not fit");
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
    {"Tanh", 1, &Tanh},
    {"Neg", 1, &Neg},
    {"Abs", 1, &Abs},
    {"Sign", 1, &Sign},
    {"Exp", 1, &Exp},
    {"Log", 1, &Log},
    {"Sqrt", 1, &Sqrt},
    {"Sinh", 1, &Sinh},
    {"Cosh", 1, &Cosh},
    {"Tan", 1, &Tan},
    {"Asin", 1, &Asin},
    {"Acos", 1, &Acos},
    {"Atan", 1, &Atan},
    {"Asinh", 1, &Asinh},
    {"Acosh", 1, &Acosh},
    {"Atanh", 1, &Atanh},
    {"Shrink", 1, &Shrink},
    {"IsNaN", 1, &IsNan},
    {"IsInf", 1, &IsInf},
    {"Sin", 1, &Sin},
    {"Cos", 1, &Cos},
    {"Erf", 1, &Erf},
    {"Floor", 1, &Floor},
    {"Ceil", 1, &Ceil},
    {"Round", 1, &RoundEven},
    {"Reciprocal", 1, &Reciprocal},
    {"Softsign", 1, &Softsign},
    {"Softplus", 1, &Softplus},
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

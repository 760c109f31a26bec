// Arithmetic of constants, computed while converting.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "tools/convert/onnx/fold/fold.h"
#include "tools/convert/onnx/model/types.h"

namespace ulfd::convert {
namespace {

using engine::Dim;

template <typename Number>
bool Compared(const std::string& op, Number a, Number b) {
  if (op == "Equal") return a == b;
  if (op == "Greater") return a > b;
  if (op == "Less") return a < b;
  return op == "GreaterOrEqual" ? a >= b : a <= b;
}

absl::StatusOr<Dim> IntResult(const std::string& op, Dim a, Dim b) {
  const bool numbers = a.IsConst() && b.IsConst();
  // Sizes; what is larger is none, and its product might not fit.
  const bool arithmetic = op == "Mul" || op == "Div" || op == "Add" || op == "Sub" || op == "Mod";
  for (const Dim& d : {a, b}) {
    if (!arithmetic) break;
    if (std::abs(static_cast<double>(d.value())) <= static_cast<double>(kMaxRowElements)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(op, " of ", a.ToString(), " and ", b.ToString(), ", want sizes"));
  }
  if (op == "Mul") return engine::Multiply(a, b);
  if (b == Dim::Of(0) && (op == "Add" || op == "Sub")) return a;
  if (op == "Div" && !(numbers && b.value() == 0)) {
    if (numbers) return Dim::Of(a.value() / b.value());
    const std::optional<Dim> quotient = engine::Divide(a, b);
    if (quotient.has_value() && !quotient->IsUnknown()) return *quotient;
  }
  if (op == "Add" && numbers) return Dim::Of(a.value() + b.value());
  if (op == "Sub" && numbers) return Dim::Of(a.value() - b.value());
  // The sign is the divisor's.
  if (op == "Mod" && numbers && b.value() > 0) {
    const int64_t rest = a.value() % b.value();
    return Dim::Of(rest < 0 ? rest + b.value() : rest);
  }
  if (op == "Equal") {
    if (a == b && !a.IsUnknown()) return Dim::Of(1);
    if (numbers) return Dim::Of(0);
    // A number of rows is at least 0, so that it is no marker such as -1.
    if ((a.IsConst() && a.value() < 0) || (b.IsConst() && b.value() < 0)) return Dim::Of(0);
  }
  if (numbers && IsComparison(op)) return Dim::Of(Compared(op, a.value(), b.value()));
  if (numbers && op == "Min") return Dim::Of(std::min(a.value(), b.value()));
  if (numbers && op == "Max") return Dim::Of(std::max(a.value(), b.value()));
  if (numbers && op == "Xor") return Dim::Of((a.value() != 0) != (b.value() != 0));
  if (numbers && op == "And") return Dim::Of(a.value() != 0 && b.value() != 0);
  if (numbers && op == "Or") return Dim::Of(a.value() != 0 || b.value() != 0);
  return absl::InvalidArgumentError(
      absl::StrCat(op, " of ", a.ToString(), " and ", b.ToString(), " depends on the request"));
}

absl::StatusOr<float> FloatResult(const std::string& op, float a, float b) {
  if (op == "Add") return a + b;
  if (op == "Sub") return a - b;
  if (op == "Mul") return a * b;
  if (op == "Div") return a / b;
  if (op == "Pow") return std::pow(a, b);
  if (op == "Min") return std::min(a, b);
  if (op == "Max") return std::max(a, b);
  return absl::UnimplementedError(absl::StrCat(op, " of float constants"));
}

// Offsets of an operand of shape `from` for each element of `to`.
std::vector<int64_t> BroadcastWalk(const Constant& c, const std::vector<int64_t>& to) {
  const std::vector<int64_t> from = c.sizes(), own = RowMajor(from);
  std::vector<int64_t> strides(to.size(), 0);
  for (size_t back = 1; back <= from.size(); ++back) {
    if (from[from.size() - back] != 1) strides[to.size() - back] = own[from.size() - back];
  }
  return Walk(to, strides);
}

absl::StatusOr<Constant> FoldBinary(const FoldContext& ctx) {
  const Constant &a = *ctx.in[0], &b = *ctx.in[1];
  const std::string& op = ctx.node.op_type();
  if (IntAttribute(ctx.node, "fmod", 0) != 0) return absl::UnimplementedError("fmod of constants");
  ASSIGN_OR_RETURN(const Dims dims, BroadcastDims(a.dims, b.dims));
  const bool compares = IsComparison(op);
  Constant out{.is_float = a.is_float && !compares, .dims = dims};
  if (a.is_float != b.is_float) return absl::InvalidArgumentError("types differ");
  out.uniform = a.uniform && b.uniform;
  std::vector<int64_t> from_a = {0}, from_b = {0};
  if (!out.uniform) {
    RETURN_IF_ERROR(WantNumbers(out));
    from_a = BroadcastWalk(a, out.sizes());
    from_b = BroadcastWalk(b, out.sizes());
  }
  std::vector<float> floats;
  for (size_t i = 0; i < from_a.size(); ++i) {
    if (a.is_float && compares) {
      out.ints.push_back(Dim::Of(Compared(op, a.f32(from_a[i]), b.f32(from_b[i]))));
    } else if (a.is_float) {
      ASSIGN_OR_RETURN(const float value, FloatResult(op, a.f32(from_a[i]), b.f32(from_b[i])));
      floats.push_back(value);
    } else {
      ASSIGN_OR_RETURN(const Dim value, IntResult(op, a.dim(from_a[i]), b.dim(from_b[i])));
      out.ints.push_back(value);
    }
  }
  out.floats = std::make_shared<const std::vector<float>>(std::move(floats));
  return out;
}

absl::StatusOr<Constant> FoldWhere(const FoldContext& ctx) {
  const Constant& cond = *ctx.in[0];
  ASSIGN_OR_RETURN(Dims dims, BroadcastDims(cond.dims, ctx.in[1]->dims));
  ASSIGN_OR_RETURN(dims, BroadcastDims(dims, ctx.in[2]->dims));
  Constant shape{.dims = dims};
  RETURN_IF_ERROR(WantNumbers(shape));
  const std::vector<int64_t> sizes = shape.sizes();
  const auto at_cond = BroadcastWalk(cond, sizes), at_a = BroadcastWalk(*ctx.in[1], sizes),
             at_b = BroadcastWalk(*ctx.in[2], sizes);
  std::vector<float> floats;
  std::vector<Dim> ints;
  for (size_t i = 0; i < at_cond.size(); ++i) {
    const bool first = cond.dim(at_cond[i]) != Dim::Of(0);
    const Constant& from = *ctx.in[first ? 1 : 2];
    const int64_t at = first ? at_a[i] : at_b[i];
    if (from.is_float) {
      floats.push_back(from.f32(at));
    } else {
      ints.push_back(from.dim(at));
    }
  }
  return ctx.in[1]->is_float ? FloatConstant(sizes, std::move(floats))
                             : IntConstant(sizes, std::move(ints));
}

absl::StatusOr<Constant> FoldUnary(const FoldContext& ctx) {
  const std::string& op = ctx.node.op_type();
  Constant out = *ctx.in[0];
  if (!out.is_float) {
    for (Dim& value : out.ints) {
      if (op == "Not" && value.IsConst()) {
        value = Dim::Of(value.value() == 0);
      } else if (op == "Neg" && value.IsConst()) {
        value = Dim::Of(-value.value());
      } else if (op == "Abs") {
        if (value.IsConst()) value = Dim::Of(std::abs(value.value()));  // No size is negative.
      } else if (op != "Floor" && op != "Ceil") {
        return absl::InvalidArgumentError(absl::StrCat(op, " of integers"));
      }
    }
    return out;
  }
  std::vector<float> values = *out.floats;
  for (float& v : values) {
    v = op == "Sqrt"    ? std::sqrt(v)
        : op == "Neg"   ? -v
        : op == "Exp"   ? std::exp(v)
        : op == "Log"   ? std::log(v)
        : op == "Abs"   ? std::abs(v)
        : op == "Floor" ? std::floor(v)
                        : std::ceil(v);
  }
  out.floats = std::make_shared<const std::vector<float>>(std::move(values));
  return out;
}

// Limits are attributes of old operator sets, and inputs of newer ones.
absl::StatusOr<Constant> FoldClip(const FoldContext& ctx) {
  Constant out = *ctx.in[0];
  for (const size_t i : {1, 2}) {
    const char* const name = i == 1 ? "min" : "max";
    const bool attribute = HasAttribute(ctx.node, name);
    const Constant stated = FloatConstant({}, {FloatAttribute(ctx.node, name, 0)});
    const Constant* const limit = attribute ? &stated : i < ctx.in.size() ? ctx.in[i] : nullptr;
    if (limit == nullptr) continue;
    onnx::NodeProto bound;
    bound.set_op_type(i == 1 ? "Max" : "Min");
    const Constant* const both[] = {&out, limit};
    ASSIGN_OR_RETURN(out, FoldBinary({bound, ctx.opset, both}));
  }
  return out;
}

absl::StatusOr<Constant> FoldTrilu(const FoldContext& ctx) {
  const Constant& x = *ctx.in[0];
  RETURN_IF_ERROR(WantNumbers(x));
  const std::vector<int64_t> sizes = x.sizes();
  int64_t k = 0;
  if (ctx.in.size() > 1 && ctx.in[1] != nullptr) {
    ASSIGN_OR_RETURN(const std::vector<int64_t> shift, ctx.in[1]->ToInts());
    if (shift.size() != 1) return absl::InvalidArgumentError("want one diagonal");
    k = shift[0];
  }
  if (sizes.size() < 2) return absl::InvalidArgumentError("want a matrix");
  const bool upper = IntAttribute(ctx.node, "upper", 1) != 0;
  const int64_t columns = sizes.back(), rows = sizes[sizes.size() - 2];
  Constant out = x.is_float ? FloatConstant(sizes, {}) : IntConstant(sizes, {});
  std::vector<float> floats;
  for (int64_t i = 0; i < x.elements(); ++i) {
    const int64_t column = i % columns, row = i / columns % rows;
    const bool kept = upper ? column - row >= k : column - row <= k;
    if (x.is_float) {
      floats.push_back(kept ? x.f32(i) : 0);
    } else {
      out.ints.push_back(kept ? x.dim(i) : Dim::Of(0));
    }
  }
  if (x.is_float) out.floats = std::make_shared<const std::vector<float>>(std::move(floats));
  return out;
}

absl::StatusOr<Constant> FoldEyeLike(const FoldContext& ctx) {
  const Constant& x = *ctx.in[0];
  RETURN_IF_ERROR(WantNumbers(x));
  if (x.dims.size() != 2) return absl::InvalidArgumentError("want a matrix");
  const std::vector<int64_t> sizes = x.sizes();
  const int64_t k = IntAttribute(ctx.node, "k", 0);
  std::vector<float> floats;
  std::vector<Dim> ints;
  const auto dtype = static_cast<int>(IntAttribute(ctx.node, "dtype", 0));
  const bool is_float = dtype == 0 ? x.is_float
                                   : dtype == onnx::TensorProto::FLOAT ||
                                         dtype == onnx::TensorProto::DOUBLE ||
                                         dtype == onnx::TensorProto::FLOAT16;
  for (int64_t i = 0; i < x.elements(); ++i) {
    const bool one = i % sizes[1] - i / sizes[1] == k;
    if (is_float) {
      floats.push_back(one ? 1.0f : 0.0f);
    } else {
      ints.push_back(Dim::Of(one ? 1 : 0));
    }
  }
  return is_float ? FloatConstant(sizes, std::move(floats)) : IntConstant(sizes, std::move(ints));
}

constexpr Fold kFolds[] = {
    {"Add", &FoldBinary},         {"Sub", &FoldBinary},  {"Mul", &FoldBinary},
    {"Div", &FoldBinary},         {"Pow", &FoldBinary},  {"Min", &FoldBinary},
    {"Max", &FoldBinary},         {"Mod", &FoldBinary},  {"Equal", &FoldBinary},
    {"Greater", &FoldBinary},     {"Less", &FoldBinary}, {"GreaterOrEqual", &FoldBinary},
    {"LessOrEqual", &FoldBinary}, {"And", &FoldBinary},  {"Or", &FoldBinary},
    {"Xor", &FoldBinary},         {"Clip", &FoldClip},   {"Where", &FoldWhere},
    {"Not", &FoldUnary},          {"Neg", &FoldUnary},   {"Sqrt", &FoldUnary},
    {"Exp", &FoldUnary},          {"Log", &FoldUnary},   {"Abs", &FoldUnary},
    {"Floor", &FoldUnary},        {"Ceil", &FoldUnary},  {"Trilu", &FoldTrilu},
    {"EyeLike", &FoldEyeLike},
};

}  // namespace

absl::Span<const Fold> ArithmeticFolds() { return kFolds; }

}  // namespace ulfd::convert

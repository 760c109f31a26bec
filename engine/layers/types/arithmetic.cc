// Elementwise arithmetic with numpy broadcasting, where, and sums along an axis.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "engine/kernels/table.h"
#include "engine/layers/checks.h"
#include "engine/layers/common/broadcast.h"
#include "engine/layers/common/function_kernel.h"
#include "engine/layers/common/multiversion.h"
#include "engine/layers/types/building_blocks.h"
#include "engine/layers/types/families.h"

namespace ulfd::engine {
namespace {

// ---------------------------------------------------------------------------- add sub multiply div

// Operands whose runs are short because one of them has a single row and repeats parts of it, as
// the angles of all heads: that row is written out once, and runs are rows.
class BinaryKernel final : public Kernel {
 public:
  explicit BinaryKernel(BinaryOp op) : op_(op) {}

  size_t ScratchBytes(absl::Span<const Tensor> in) const override {
    TensorDims out;
    const size_t rank = std::max(in[0].dims.size(), in[1].dims.size());
    for (size_t d = 0; d < rank; ++d) {
      const auto size = [&](const Tensor& t) {
        const size_t missing = rank - t.dims.size();
        return d < missing ? 1 : t.dims[d - missing];
      };
      out.push_back(size(in[0]) == 1 ? size(in[1]) : size(in[0]));
    }
    const BroadcastPlan plan = PlanBroadcast(out, {in[0].dims, in[1].dims});
    return RepeatedRow(plan) < 0 ? 0 : static_cast<size_t>(RowOf(plan)) * sizeof(float);
  }

  absl::Status Run(RunContext& ctx) const override {
    const Tensor &a = ctx.in[0], &b = ctx.in[1];
    const BroadcastPlan plan = PlanBroadcast(ctx.out[0].dims, {a.dims, b.dims});
    float* const y = ctx.out[0].f32();
    const int repeated = RepeatedRow(plan);
    if (repeated >= 0) {
      const int64_t row = RowOf(plan);
      auto* const whole = static_cast<float*>(ctx.scratch);
      WriteRow(ctx.in[static_cast<size_t>(repeated)], plan, static_cast<size_t>(repeated), whole);
      const Strided one{whole, 0, 1}, x{repeated == 0 ? b.f32() : a.f32(), row, 1};
      Kernels().binary(op_, repeated == 0 ? one : x, repeated == 0 ? x : one, y, row,
                       plan.outer.front().count, row);
      return absl::OkStatus();
    }
    plan.ForEachBlock([&](const BroadcastPlan::Offsets& at, int64_t out) {
      Kernels().binary(op_, {a.f32() + at[0], plan.row_step(0), plan.advances[0] ? 1 : 0},
                       {b.f32() + at[1], plan.row_step(1), plan.advances[1] ? 1 : 0}, y + out,
                       plan.run, plan.rows(), plan.run);
    });
    return absl::OkStatus();
  }

 private:
  static int64_t RowOf(const BroadcastPlan& plan) {
    int64_t row = plan.run;
    for (size_t i = 1; i < plan.outer.size(); ++i) row *= plan.outer[i].count;
    return row;
  }

  // The operand whose row is to be written out, or -1: the other one has every element of the
  // output.
  static int RepeatedRow(const BroadcastPlan& plan) {
    constexpr int64_t kShort = 64, kFewRows = 4, kLongRow = 1 << 14;
    if (plan.outer.size() < 2 || plan.run >= kShort || plan.outer.front().count < kFewRows)
      return -1;
    const int64_t row = RowOf(plan);
    if (row > kLongRow) return -1;
    for (const int i : {0, 1}) {
      bool whole = plan.advances[static_cast<size_t>(1 - i)];
      int64_t step = row;
      for (const BroadcastPlan::Axis& axis : plan.outer) {
        whole &= axis.step[static_cast<size_t>(1 - i)] == step;
        if (&axis + 1 != plan.outer.end()) step /= (&axis + 1)->count;
      }
      if (whole && plan.outer.front().step[static_cast<size_t>(i)] == 0) return i;
    }
    return -1;
  }

  static void WriteRow(const Tensor& x, const BroadcastPlan& plan, size_t operand, float* to) {
    BroadcastPlan one = plan;
    one.outer.front().count = 1;
    one.ForEachRun([&](const BroadcastPlan::Offsets& at, int64_t out) {
      const float* const from = x.f32() + at[operand];
      if (plan.advances[operand]) {
        std::copy_n(from, plan.run, to + out);
      } else {
        std::fill_n(to + out, plan.run, *from);
      }
    });
  }

  const BinaryOp op_;
};

// add_layer, sub_layer, multiply_layer, div_layer: y = a op b with numpy's broadcasting both ways.
// The level is that of the higher input if its rows lead.  x / 0 is IEEE.
template <BinaryOp kBinary, Semantics::Op kOp>
class Binary final : public Layer {
 public:
  static absl::StatusOr<std::unique_ptr<Layer>> Parse(const ParseContext&) {
    return std::unique_ptr<Layer>(new Binary);
  }
  absl::StatusOr<TensorSpecs> Infer(absl::Span<const TensorSpec> in) const override {
    RETURN_IF_ERROR(WantFloat32(in));
    return InferBroadcast(in);
  }
  Semantics semantics() const override { return {.op = kOp}; }
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(absl::Span<const TensorSpec>) const override {
    return std::unique_ptr<Kernel>(new BinaryKernel(kBinary));
  }
};

// ---------------------------------------------------------------------------------------- where

// One run; steps are 0 or 1.
template <class Cond>
[[gnu::always_inline]] inline void WhereRun(const Cond* cond, int64_t cond_step, const float* a,
                                            int64_t a_step, const float* b, int64_t b_step,
                                            float* __restrict y, int64_t n) {
  if (cond_step == 0) {
    const float* from = *cond > 0 ? a : b;
    const int64_t step = *cond > 0 ? a_step : b_step;
    if (step == 0) {
      std::fill_n(y, n, *from);
    } else {
      std::copy_n(from, n, y);
    }
  } else if (a_step == 1 && b_step == 1) {
    for (int64_t i = 0; i < n; ++i) y[i] = cond[i] > 0 ? a[i] : b[i];
  } else if (a_step == 1) {
    for (int64_t i = 0; i < n; ++i) y[i] = cond[i] > 0 ? a[i] : *b;
  } else {
    for (int64_t i = 0; i < n; ++i) y[i] = cond[i] > 0 ? *a : b[i * b_step];
  }
}
ULFD_MULTIVERSION void WhereRun32(const int32_t* c, int64_t cs, const float* a, int64_t as,
                                  const float* b, int64_t bs, float* y, int64_t n) {
  WhereRun(c, cs, a, as, b, bs, y, n);
}
ULFD_MULTIVERSION void WhereRun64(const int64_t* c, int64_t cs, const float* a, int64_t as,
                                  const float* b, int64_t bs, float* y, int64_t n) {
  WhereRun(c, cs, a, as, b, bs, y, n);
}

// where_layer.  The level is that of the highest input if its rows lead.
class Where final : public Layer {
 public:
  static absl::StatusOr<std::unique_ptr<Layer>> Parse(const ParseContext&) {
    return std::unique_ptr<Layer>(new Where);
  }
  absl::StatusOr<TensorSpecs> Infer(absl::Span<const TensorSpec> in) const override {
    if (in[0].dtype == DType::kFloat32) {
      return InvalidArgument("input 0 (condition): float32, want int32 or int64");
    }
    for (int i = 1; i < 3; ++i) {
      if (in[i].dtype == DType::kFloat32) continue;
      return InvalidArgument("input ", i, ": ", Name(in[i].dtype), ", want float32");
    }
    return InferBroadcast(in);
  }
  void SuggestInputs(absl::Span<TensorSpec> in) const override {
    if (in[0].dtype == DType::kFloat32) in[0].dtype = DType::kInt32;
  }
  Semantics semantics() const override { return {.op = Semantics::Op::kWhere}; }
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(absl::Span<const TensorSpec>) const override {
    return MakeKernel([](RunContext& ctx) {
      const Tensor& cond = ctx.in[0];
      const float* a = ctx.in[1].f32();
      const float* b = ctx.in[2].f32();
      float* y = ctx.out[0].f32();
      const BroadcastPlan plan =
          PlanBroadcast(ctx.out[0].dims, {cond.dims, ctx.in[1].dims, ctx.in[2].dims});
      const auto& step = plan.advances;
      plan.ForEachRun([&](const BroadcastPlan::Offsets& at, int64_t out) {
        if (cond.dtype == DType::kInt32) {
          WhereRun32(cond.i32() + at[0], step[0], a + at[1], step[1], b + at[2], step[2], y + out,
                     plan.run);
        } else {
          WhereRun64(cond.i64() + at[0], step[0], a + at[1], step[1], b + at[2], step[2], y + out,
                     plan.run);
        }
      });
    });
  }
};

// ---------------------------------------------------------------------------------------- sum

// y[.., t, ..] = the sum of entries 0 to t of the middle axis of [outer, count, inner].
ULFD_MULTIVERSION void CumulativeSums(const float* x, int64_t outer, int64_t count, int64_t inner,
                                      float* y) {
  for (int64_t o = 0; count > 0 && o < outer; ++o, x += count * inner, y += count * inner) {
    if (inner == 1) {
      float sum = 0;
      for (int64_t t = 0; t < count; ++t) y[t] = sum += x[t];
      continue;
    }
    std::copy_n(x, inner, y);
    for (int64_t t = 1; t < count; ++t) {
      const float* __restrict before = y + (t - 1) * inner;
      float* __restrict to = y + t * inner;
      for (int64_t i = 0; i < inner; ++i) to[i] = before[i] + x[t * inner + i];
    }
  }
}

// What the kernels call it; nothing for what keeps the axis.
std::optional<ReduceOp> ReduceOpOf(ulf::SumParameter::Function function) {
  switch (function) {
    case ulf::SumParameter::SUM:
      return ReduceOp::kSum;
    case ulf::SumParameter::MAX:
      return ReduceOp::kMax;
    case ulf::SumParameter::MIN:
      return ReduceOp::kMin;
    case ulf::SumParameter::PRODUCT:
      return ReduceOp::kProduct;
    case ulf::SumParameter::CUMULATIVE_SUM:
      break;
  }
  return std::nullopt;
}

// sum_layer (the guide also spells it reduce_layer).  Along axis 0 rows are summed away, so that
// the level is unknown then.  Of several axes only the first counts (a notice).
class SumAxis final : public Layer {
 public:
  using Function = ulf::SumParameter::Function;
  explicit SumAxis(int axis, Function function = ulf::SumParameter::SUM)
      : axis_(axis), function_(function) {}

  static absl::StatusOr<std::unique_ptr<Layer>> Parse(const ParseContext& ctx) {
    if (!ctx.param.has_sum_param()) return std::unique_ptr<Layer>(new SumAxis(1));
    const auto& dims = ctx.param.sum_param().dim();
    if (dims.empty()) return InvalidArgument("sum_param.dim: empty, want one axis");
    RETURN_IF_ERROR(WantBetween("sum_param.dim", dims[0], 0));
    if (dims.size() > 1) {
      ctx.notices.push_back(absl::StrCat("sum_param.dim lists ", dims.size(),
                                         " axes: only the first, ", dims[0],
                                         ", is summed (as in Blaze)"));
    }
    return std::unique_ptr<Layer>(new SumAxis(dims[0], ctx.param.sum_param().function()));
  }
  absl::StatusOr<TensorSpecs> Infer(absl::Span<const TensorSpec> in) const override {
    RETURN_IF_ERROR(WantFloat32(in));
    RETURN_IF_ERROR(WantAxis("sum_param.dim", axis_, in[0]));
    TensorSpec out = in[0];
    if (ReduceOpOf(function_).has_value()) out.shape.dims().erase(out.shape.dims().begin() + axis_);
    out.level = LevelOf(out.shape, in);
    if (axis_ == 0 && out.level != Level::kConstant) out.level = Level::kUnknown;
    return TensorSpecs{out};
  }
  Semantics semantics() const override {
    const bool is_sum = function_ == ulf::SumParameter::SUM;
    return {.op = is_sum ? Semantics::Op::kSum : Semantics::Op::kOther, .axis = axis_};
  }
  double Flops(absl::Span<const TensorSpec> in, absl::Span<const TensorSpec>) const override {
    return static_cast<double>(in[0].shape.Elements().value());
  }
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(absl::Span<const TensorSpec>) const override {
    return MakeKernel([axis = axis_, op = ReduceOpOf(function_)](RunContext& ctx) {
      const Tensor& x = ctx.in[0];
      float* const y = ctx.out[0].f32();
      if (ctx.out[0].elements() == 0) return;
      const Around around(x, axis);
      if (op.has_value()) {
        Kernels().reduce(*op, x.f32(), y, around.outer, x.dims[axis], around.inner);
      } else {
        CumulativeSums(x.f32(), around.outer, x.dims[axis], around.inner, y);
      }
    });
  }
  std::string Describe() const override {
    const std::string dim = absl::StrCat("dim=", axis_);
    return function_ == ulf::SumParameter::SUM
               ? dim
               : absl::StrCat(dim, " ", ulf::SumParameter::Function_Name(function_));
  }

 private:
  const int axis_;
  const Function function_;
};

template <BinaryOp kOp, Semantics::Op kSemantics>
constexpr LayerType BinaryType(absl::string_view name, absl::string_view summary,
                               absl::string_view formula) {
  return {.name = name,
          .summary = summary,
          .inputs = {2, 2},
          .parse = &Binary<kOp, kSemantics>::Parse,
          .doc = {.formula = formula,
                  .inputs = "a, b float32, any rank; numpy broadcasting both ways",
                  .source = "ULF layer guide",
                  .example_inputs = "a:3,4;b@user:1,4"}};
}

constexpr LayerType kTypes[] = {
    BinaryType<BinaryOp::kAdd, Semantics::Op::kAdd>("add_layer", "a + b with numpy broadcasting",
                                                    "y = a + b"),
    BinaryType<BinaryOp::kSub, Semantics::Op::kSubtract>(
        "sub_layer", "a - b with numpy broadcasting", "y = a - b"),
    BinaryType<BinaryOp::kMultiply, Semantics::Op::kMultiply>(
        "multiply_layer", "a * b with numpy broadcasting", "y = a * b"),
    BinaryType<BinaryOp::kDiv, Semantics::Op::kDivide>("div_layer", "a / b with numpy broadcasting",
                                                       "y = a / b"),
    {.name = "where_layer",
     .summary = "condition > 0 ? a : b with numpy broadcasting",
     .inputs = {3, 3},
     .parse = &Where::Parse,
     .doc = {.formula = "y = cond > 0 ? a : b",
             .inputs = "cond int32 or int64; a, b float32; numpy broadcasting",
             .source = "ULF layer guide",
             .example_inputs = "mask:4;a:4;b:4"}},
    {.name = "sum_layer",
     .summary = "sum, maximum, minimum or product along one axis, which is dropped",
     .param_field = ulf::LayerParameter::kSumParamFieldNumber,
     .parse = &SumAxis::Parse,
     .doc = {.formula = "y = sum of x along sum_param.dim (1), which is dropped; "
                        "sum_param.function: MAX, MIN, PRODUCT; CUMULATIVE_SUM keeps the axis",
             .inputs = "x float32, any rank above the axis",
             .source = "ULF layer guide",
             .example_inputs = "x:3,4"}},
};

}  // namespace

std::unique_ptr<Layer> MakeSum(int axis) { return std::make_unique<SumAxis>(axis); }

absl::Span<const LayerType> ArithmeticLayers() { return kTypes; }

}  // namespace ulfd::engine

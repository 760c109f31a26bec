// expression_layer: a formula over its inputs, in one pass over tiles that stay in the first-level
// cache.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "engine/kernels/table.h"
#include "engine/layers/checks.h"
#include "engine/layers/common/broadcast.h"
#include "engine/layers/common/expression.h"
#include "engine/layers/common/multiversion.h"
#include "engine/layers/types/building_blocks.h"
#include "engine/layers/types/families.h"
#include "engine/tensor/element.h"

namespace ulfd::engine {
namespace {

using Op = ExpressionOp;

constexpr int64_t kTile = 1024;  // Elements.
// Between tiles in scratch: not a multiple of 4096 bytes, where processors take the store to one
// tile for one to the next.
constexpr int64_t kPlace = kTile + 80;
constexpr int64_t kShortRun = 16;  // Shorter ones are put side by side before anything is computed.

// n values from `from` on, or that one n times.
template <class T>
[[gnu::always_inline]] inline void CopyRow(const T* from, int64_t step, int64_t n, float* to) {
  if (step == 0) {
    const float value = static_cast<float>(*from);
    for (int64_t j = 0; j < n; ++j) to[j] = value;
  } else {
    for (int64_t j = 0; j < n; ++j) to[j] = static_cast<float>(from[j]);
  }
}

// Rows of n values, whose first ones lie row_step apart, side by side as floats.
template <class T>
[[gnu::always_inline]] inline void CopyRows(const T* from, int64_t row_step, int64_t step,
                                            int64_t rows, int64_t n, float* to) {
  constexpr int64_t kFew = 4;  // Values, for which a loop is not worth starting.
  for (int64_t j = 0; n <= kFew && j < n; ++j) {
    for (int64_t row = 0; row < rows; ++row) {
      to[row * n + j] = static_cast<float>(from[row * row_step + j * step]);
    }
  }
  if (n <= kFew) return;
  for (int64_t row = 0; row < rows; ++row) CopyRow(from + row * row_step, step, n, to + row * n);
}
ULFD_MULTIVERSION void Gather(const Tensor& x, int64_t offset, int64_t row_step, int64_t step,
                              int64_t rows, int64_t n, float* to) {
  switch (x.dtype) {
    case DType::kFloat32:
      return CopyRows(x.f32() + offset, row_step, step, rows, n, to);
    case DType::kInt32:
      return CopyRows(x.i32() + offset, row_step, step, rows, n, to);
    case DType::kInt64:
      return CopyRows(x.i64() + offset, row_step, step, rows, n, to);
  }
}

constexpr std::pair<Op, BinaryOp> kBinary[] = {
    {Op::kAdd, BinaryOp::kAdd},         {Op::kSub, BinaryOp::kSub},
    {Op::kMul, BinaryOp::kMultiply},    {Op::kDiv, BinaryOp::kDiv},
    {Op::kMin, BinaryOp::kMin},         {Op::kMax, BinaryOp::kMax},
    {Op::kLess, BinaryOp::kLess},       {Op::kLessEqual, BinaryOp::kLessEqual},
    {Op::kGreater, BinaryOp::kGreater}, {Op::kGreaterEqual, BinaryOp::kGreaterEqual},
    {Op::kEqual, BinaryOp::kEqual},     {Op::kNotEqual, BinaryOp::kNotEqual},
    {Op::kPow, BinaryOp::kPow}};
constexpr std::pair<Op, UnaryOp> kUnary[] = {
    {Op::kNeg, UnaryOp::kNeg},     {Op::kAbs, UnaryOp::kAbs},     {Op::kExp, UnaryOp::kExp},
    {Op::kLog, UnaryOp::kLog},     {Op::kSqrt, UnaryOp::kSqrt},   {Op::kSin, UnaryOp::kSin},
    {Op::kErf, UnaryOp::kErf},     {Op::kFloor, UnaryOp::kFloor}, {Op::kTrunc, UnaryOp::kTrunc},
    {Op::kRound, UnaryOp::kRound}, {Op::kCos, UnaryOp::kCos},     {Op::kSigmoid, UnaryOp::kSigmoid},
    {Op::kTanh, UnaryOp::kTanh},   {Op::kRelu, UnaryOp::kRelu}};

// What the kernels call it.  REQUIRES: it is in the list.
template <class KernelOp, size_t count>
KernelOp InKernels(const std::pair<Op, KernelOp> (&list)[count], Op op) {
  return std::find_if(std::begin(list), std::end(list),
                      [op](const auto& entry) { return entry.first == op; })
      ->second;
}

// [rows, n] values of the output, and of each input.
struct Tile {
  int64_t rows, n;
  const Strided* inputs;
};

// An instruction, and what the kernels call it.
struct Step : Instruction {
  int operands = 0;
  UnaryOp unary{};
  BinaryOp binary{};
  int64_t place = -1;  // Where the value goes; -1: to the output.
  float value = 0;     // The number, of instructions that push one.
  DoubleOperation in_double = nullptr;
};

std::vector<Step> StepsOf(const Expression& expression) {
  const std::vector<Instruction>& program = expression.program;
  std::vector<Step> steps;
  int64_t depth = 0;  // Of the stack.
  for (size_t i = 0; i < program.size(); ++i) {
    Step& step = steps.emplace_back(Step{program[i]});
    step.value = static_cast<float>(step.number);
    step.in_double = InDouble(step.op);
    if (step.op == Op::kStore) continue;
    const bool pushes = step.op == Op::kNumber || step.op == Op::kInput || step.op == Op::kLoad;
    step.operands = pushes ? 0 : OperandCount(step.op);
    depth += 1 - step.operands;
    if (step.operands == 1) step.unary = InKernels(kUnary, step.op);
    if (step.operands == 2) step.binary = InKernels(kBinary, step.op);
    // A value that is kept has a place of its own, others that of their position on the stack.
    const bool is_kept = i + 1 < program.size() && program[i + 1].op == Op::kStore;
    if (i + 1 < program.size()) {
      step.place = is_kept ? expression.stack + program[i + 1].input : depth - 1;
    }
  }
  return steps;
}

// y [rows, n] = op(x).
void Function(UnaryOp op, const Strided& x, float* y, int64_t rows, int64_t n) {
  if (x.step == 1 && (rows == 1 || x.stride == n)) return Kernels().unary(op, x.data, y, rows * n);
  for (int64_t r = 0; r < rows; ++r) {
    CopyRow(x.data + r * x.stride, x.step, n, y + r * n);
  }
  Kernels().unary(op, y, y, rows * n);
}

class ExpressionKernel final : public Kernel {
 public:
  explicit ExpressionKernel(const Expression& expression)
      : expression_(expression), steps_(StepsOf(expression)) {}

  size_t ScratchBytes(absl::Span<const Tensor> in) const override {
    const size_t values = in.size() + Values();
    return values * (kPlace * sizeof(float) + sizeof(Strided));
  }

  absl::Status Run(RunContext& ctx) const override {
    absl::InlinedVector<absl::Span<const int64_t>, 4> dims;
    for (const Tensor& x : ctx.in) dims.push_back(x.dims);
    const BroadcastPlan plan = PlanBroadcast(ctx.out[0].dims, dims);
    const bool wide = std::any_of(ctx.in.begin(), ctx.in.end(),
                                  [](const Tensor& x) { return x.dtype == DType::kInt64; });
    if (wide) {
      RunInDouble(ctx, plan);
      return absl::OkStatus();
    }
    const int64_t rows_at_once = std::max<int64_t>(1, kTile / std::max<int64_t>(1, plan.run));
    plan.ForEachBlock([&](const BroadcastPlan::Offsets& at, int64_t out) {
      for (int64_t row = 0; row < plan.rows(); row += rows_at_once) {
        const int64_t rows = std::min(rows_at_once, plan.rows() - row);
        for (int64_t column = 0; column < plan.run; column += kTile) {
          const int64_t n = std::min(kTile, plan.run - column);
          if (ctx.pace.Stops(rows * n * Work())) return;
          RunTile(ctx, plan, at, row, column, rows, n,
                  ctx.out[0].f32() + out + row * plan.run + column);
        }
      }
    });
    return absl::OkStatus();
  }

 private:
  // Values that are alive at once beside the inputs.
  size_t Values() const {
    return static_cast<size_t>(expression_.stack) + static_cast<size_t>(expression_.stored);
  }
  // Of one value, in multiplications.
  int64_t Work() const { return static_cast<int64_t>(expression_.program.size()) * 16; }

  // A float has no integers of 64 bits: each result is rounded once, at the end.
  void RunInDouble(RunContext& ctx, const BroadcastPlan& plan) const {
    auto* const values = static_cast<double*>(ctx.scratch);
    plan.ForEachRun([&](const BroadcastPlan::Offsets& at, int64_t out) {
      for (int64_t i = 0; i < plan.run; ++i) {
        if (i % kTile == 0 && ctx.pace.Stops(std::min(kTile, plan.run - i) * Work())) return;
        const auto leaf = [&](const Step& step) {
          const auto k = static_cast<size_t>(step.input);
          return step.op == Op::kNumber ? step.number
                                        : ElementOf(ctx.in[k], at[k] + (plan.advances[k] ? i : 0));
        };
        const auto result = [](const Step& step, const double* operands) {
          return step.in_double(operands);
        };
        ctx.out[0].f32()[out + i] = static_cast<float>(Follow(values, leaf, result));
      }
    });
  }

  // The program.  `values`: room for Values() of them.  leaf(step) is the number or input that an
  // instruction pushes, result(step, operands) what an operation makes.
  template <class Value, class Leaf, class Result>
  Value Follow(Value* values, Leaf leaf, Result result) const {
    Value* const kept = values + expression_.stack;
    Value* top = values - 1;
    for (const Step& step : steps_) {
      switch (step.op) {
        case Op::kNumber:
        case Op::kInput:
          *++top = leaf(step);
          break;
        case Op::kLoad:
          *++top = kept[step.input];
          break;
        case Op::kStore:
          kept[step.input] = *top;
          break;
        default:
          top -= step.operands - 1;
          *top = result(step, top);
      }
    }
    return *top;
  }

  // Rows [row, row + rows) of a block, of each the values [column, column + n).
  void RunTile(RunContext& ctx, const BroadcastPlan& plan, const BroadcastPlan::Offsets& at,
               int64_t row, int64_t column, int64_t rows, int64_t n, float* y) const {
    const bool side_by_side = plan.run < kShortRun && rows > 1;
    auto* place = static_cast<float*>(ctx.scratch);
    const int64_t places = static_cast<int64_t>(ctx.in.size() + Values());
    auto* const inputs = reinterpret_cast<Strided*>(place + places * kPlace);
    for (size_t i = 0; i < ctx.in.size(); ++i, place += kPlace) {
      const Tensor& x = ctx.in[i];
      const int64_t row_step = plan.row_step(i), step = plan.advances[i] ? 1 : 0;
      const int64_t offset = at[i] + row * row_step + column * step;
      const bool lies_so = row_step == n * step;  // Side by side.
      if (x.dtype == DType::kFloat32 && (lies_so || !side_by_side)) {
        inputs[i] = {x.f32() + offset, row_step, step};
      } else if (row_step == 0 && step == 0) {
        Gather(x, offset, 0, 0, 1, 1, place);
        inputs[i] = {place, 0, 0};
      } else {
        Gather(x, offset, row_step, step, rows, n, place);
        inputs[i] = {place, n, 1};
      }
    }
    Compute(side_by_side ? Tile{1, rows * n, inputs} : Tile{rows, n, inputs},
            inputs + ctx.in.size(), place, y);
  }

  // The program on a tile.  `values`: room for Values() operands, `places`: for as many tiles.
  void Compute(const Tile& tile, Strided* values, float* places, float* y) const {
    const Strided last = Follow(
        values,
        [&](const Step& step) {
          return step.op == Op::kNumber ? Strided{&step.value, 0, 0} : tile.inputs[step.input];
        },
        [&](const Step& step, const Strided* operands) {
          float* const to = step.place < 0 ? y : places + step.place * kPlace;
          Apply(step, operands, tile, to);
          return Strided{to, tile.n, 1};
        });
    if (last.data != y) {
      const Strided zero{&kZero, 0, 0};
      Kernels().where(zero, zero, last, y, tile.rows, tile.n);
    }
  }

  // to [rows, n] = the step's operation on the operands.
  static void Apply(const Step& step, const Strided* operands, Tile tile, float* to) {
    bool one_row = true;
    for (int i = 0; i < step.operands; ++i) {
      one_row &= operands[i].stride == operands[i].step * tile.n;
    }
    if (one_row) tile = {1, tile.rows * tile.n, tile.inputs};
    switch (step.operands) {
      case 1:
        return Function(step.unary, operands[0], to, tile.rows, tile.n);
      case 2:
        return Kernels().binary(step.binary, operands[0], operands[1], to, tile.n, tile.rows,
                                tile.n);
      default:
        return Kernels().where(operands[0], operands[1], operands[2], to, tile.rows, tile.n);
    }
  }

  static constexpr float kZero = 0;
  const Expression expression_;
  const std::vector<Step> steps_;
};

// expression_layer.  All inputs broadcast by numpy's rules, and the level is that of the highest if
// its rows lead.  Where one is int64, all is computed in double and rounded once.  Grammar:
// expression.h.
class ExpressionLayer final : public Layer {
 public:
  explicit ExpressionLayer(Expression expression) : expression_(std::move(expression)) {}

  static absl::StatusOr<std::unique_ptr<Layer>> Parse(const ParseContext& ctx) {
    if (!ctx.param.has_expression_param()) {
      return InvalidArgument("has no expression_param, want one with an expression");
    }
    const int inputs = ctx.param.bottom_size();
    absl::StatusOr<Expression> expression =
        Expression::Parse(ctx.param.expression_param().expression(), inputs);
    if (!expression.ok()) {
      return InvalidArgument("expression_param.expression: ", expression.status().message());
    }
    std::vector<bool> used(static_cast<size_t>(inputs), false);
    for (const Instruction& instruction : expression->program) {
      if (instruction.op == Op::kInput) used[instruction.input] = true;
    }
    for (int i = 0; i < inputs; ++i) {
      if (used[i]) continue;
      return InvalidArgument("bottom ", i, " \"", ctx.param.bottom(i), "\": not used, want @", i,
                             " in expression_param.expression");
    }
    return std::unique_ptr<Layer>(new ExpressionLayer(*std::move(expression)));
  }
  absl::StatusOr<TensorSpecs> Infer(absl::Span<const TensorSpec> in) const override {
    return InferBroadcast(in);
  }
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(absl::Span<const TensorSpec>) const override {
    return std::unique_ptr<Kernel>(new ExpressionKernel(expression_));
  }
  Semantics semantics() const override {
    const std::vector<Instruction>& program = expression_.program;
    bool where = program.size() == 4 && program[3].op == Op::kWhere;
    for (int i = 0; where && i < 3; ++i) {
      where = program[i].op == Op::kInput && program[i].input == i;
    }
    return {.op = where ? Semantics::Op::kWhere : Semantics::Op::kOther};
  }
  std::string Describe() const override { return expression_.ToString(); }

  const Expression& expression() const { return expression_; }

 private:
  const Expression expression_;
};

constexpr LayerType kTypes[] = {
    {.name = "expression_layer",
     .summary = "a formula over the inputs, element by element, in one pass",
     .inputs = {1, 64},
     .param_field = ulf::LayerParameter::kExpressionParamFieldNumber,
     .parse = &ExpressionLayer::Parse,
     .doc =
         {.formula =
              "y = the formula in expression_param.expression; + - * / ^ < <= > >= == !=, add sub "
              "mul div pow min max lt le gt ge eq ne neg abs exp log sqrt sigmoid tanh sin cos "
              "erf floor trunc round relu where",
          .inputs = "@0, @1, ... float32, int32 or int64; numpy broadcasting; with an int64, "
                    "computed in double",
          .source = "expressions of the layer framework",
          .example_inputs = "a:4;b:4",
          .example_param = "expression_param { expression: \"sigmoid(@0) * (@0 - @1)\" }"}},
};

}  // namespace

std::unique_ptr<Layer> MakeExpression(Expression expression) {
  return std::make_unique<ExpressionLayer>(std::move(expression));
}

const Expression* ExpressionOf(const Layer& layer) {
  const auto* const found = dynamic_cast<const ExpressionLayer*>(&layer);
  return found == nullptr ? nullptr : &found->expression();
}

absl::Span<const LayerType> ExpressionLayers() { return kTypes; }

}  // namespace ulfd::engine

// expression_layer: a formula over its inputs, in one pass over tiles that stay in the first-level
// cache.
// SPDX-License-Identifier: Apache-2.0
#include "engine/layers/types/expression_layer.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/layers/checks.h"
#include "engine/layers/common/block_program.h"
#include "engine/layers/common/expression.h"
#include "engine/layers/common/multiversion.h"
#include "engine/layers/types/arithmetic.h"
#include "engine/layers/types/families.h"

namespace ulfd::engine {
namespace {

using Op = ExpressionOp;

constexpr int64_t kTile = 1024;  // Elements.
// Between the tiles of the inputs in scratch: not a multiple of 4096 bytes, where processors take
// the store to one tile for one to the next.
constexpr int64_t kPlace = kTile + 80;
// Shorter runs are put together before anything is computed,
constexpr int64_t kShortRun = 128;
constexpr int64_t kBlockRun = 32;  // unless they are a multiple of this, which fills the blocks.

// How the inputs are walked through along the output: axes outside of runs, along which each input
// either advances by one element or stays.  Axes that all walk through alike are one.
struct Walk {
  using Steps = absl::InlinedVector<int64_t, 4>;  // Elements of each input per index.
  struct Axis {
    int64_t count = 0;
    Steps step;
  };
  absl::InlinedVector<Axis, 4> outer;  // Outermost first; at least one.
  int64_t run = 1;
  int64_t runs = 1;  // How many.
  Steps step;        // Within a run: 0 or 1.

  Walk(absl::Span<const int64_t> out, absl::Span<const Tensor> in) : step(in.size(), 0) {
    for (size_t d = 0; d < out.size(); ++d) {
      Axis axis{out[d], Steps(in.size(), 0)};
      for (size_t i = 0; i < in.size(); ++i) axis.step[i] = StepOf(in[i], out, d);
      if (axis.count == 1) continue;
      if (!outer.empty() && Merges(outer.back(), axis)) {
        axis.count *= outer.back().count;
        outer.pop_back();
      }
      outer.push_back(std::move(axis));
    }
    if (!outer.empty()) {
      run = outer.back().count;
      step = outer.back().step;
      outer.pop_back();
    }
    for (const Axis& axis : outer) runs *= axis.count;
    if (outer.empty()) outer.push_back({1, Steps(in.size(), 0)});
  }

  // The offset of run `index` in input i.
  int64_t Offset(size_t i, int64_t index) const {
    int64_t offset = 0;
    for (size_t axis = outer.size(); axis-- > 0; index /= outer[axis].count) {
      offset += index % outer[axis].count * outer[axis].step[i];
    }
    return offset;
  }

 private:
  static bool Merges(const Axis& outer, const Axis& inner) {
    for (size_t i = 0; i < inner.step.size(); ++i) {
      if (outer.step[i] != inner.step[i] * inner.count) return false;
    }
    return true;
  }
  // Elements of `x` per index of dimension d of the output, aligned at the last dimension.
  static int64_t StepOf(const Tensor& x, absl::Span<const int64_t> out, size_t d) {
    const int own = static_cast<int>(d) + x.rank() - static_cast<int>(out.size());
    if (own < 0 || x.dims[own] == 1) return 0;
    int64_t step = 1;
    for (int k = own + 1; k < x.rank(); ++k) step *= x.dims[k];
    return step;
  }
};

float At(const Tensor& x, int64_t i) {
  switch (x.dtype) {
    case DType::kFloat32:
      return x.f32()[i];
    case DType::kInt32:
      return static_cast<float>(x.i32()[i]);
    case DType::kInt64:
      return static_cast<float>(x.i64()[i]);
  }
  return 0;
}

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

// Rows of n values, whose first ones lie row_step apart.
template <class T>
[[gnu::always_inline]] inline void CopyRows(const T* from, int64_t row_step, int64_t step,
                                            int64_t rows, int64_t n, float* to) {
  if (n == 1) return CopyRow(from, row_step == 0 ? 0 : 1, 1, to);
  for (int64_t row = 0; row < rows; ++row) CopyRow(from + row * row_step, step, n, to + row * n);
}

ULFD_MULTIVERSION void CopyRowsAs(const Tensor& x, int64_t offset, int64_t row_step, int64_t step,
                                  int64_t rows, int64_t n, float* to) {
  switch (x.dtype) {
    case DType::kFloat32:
      if (n == 1) {  // Single values, a step apart.
        for (int64_t row = 0; row < rows; ++row) to[row] = x.f32()[offset + row * row_step];
        return;
      }
      return CopyRows(x.f32() + offset, row_step, step, rows, n, to);
    case DType::kInt32:
      for (int64_t row = 0; row < rows; ++row) {
        CopyRow(x.i32() + offset + row * row_step, step, n, to + row * n);
      }
      return;
    case DType::kInt64:
      for (int64_t row = 0; row < rows; ++row) {
        CopyRow(x.i64() + offset + row * row_step, step, n, to + row * n);
      }
      return;
  }
}

// "@0 + @1" and its like, which is what the arithmetic layers do.
std::optional<BinaryOp> ArithmeticOf(const Expression& expression) {
  const std::vector<Instruction>& p = expression.program;
  if (p.size() != 3 || p[0].op != Op::kInput || p[0].input != 0 || p[1].op != Op::kInput ||
      p[1].input != 1) {
    return std::nullopt;
  }
  switch (p[2].op) {
    case Op::kAdd:
      return BinaryOp::kAdd;
    case Op::kSub:
      return BinaryOp::kSub;
    case Op::kMul:
      return BinaryOp::kMultiply;
    case Op::kDiv:
      return BinaryOp::kDiv;
    default:
      return std::nullopt;
  }
}

class ExpressionKernel final : public Kernel {
 public:
  explicit ExpressionKernel(const Expression& expression)
      : program_(BlockProgram::Compile(expression)) {}

  size_t ScratchBytes(absl::Span<const Tensor> in) const override {
    return in.size() * kPlace * sizeof(float) + program_.ScratchBytes();
  }
  absl::Status Run(RunContext& ctx) const override {
    if (ctx.out[0].elements() == 0) return absl::OkStatus();
    const Walk walk(ctx.out[0].dims, ctx.in);
    const bool floats = std::all_of(ctx.in.begin(), ctx.in.end(),
                                    [](const Tensor& x) { return x.dtype == DType::kFloat32; });
    const bool in_place = walk.run >= kShortRun || walk.run % kBlockRun == 0 || Flat(walk);
    if (floats && in_place) {
      RunInPlace(walk, ctx);
    } else if (walk.run < kShortRun && walk.runs > 1) {
      RunGathered(walk, ctx);
    } else {
      RunConverted(walk, ctx);
    }
    return absl::OkStatus();
  }

 private:
  using Operands = absl::InlinedVector<BlockOperand, 4>;

  // An operand that is read only, as BlockOperand wants it.
  static float* Floats(const Tensor& x) { return static_cast<float*>(x.data); }
  // A tile of an input, converted or put together.
  static float* Gathered(const RunContext& ctx, size_t input) {
    return static_cast<float*>(ctx.scratch) + static_cast<int64_t>(input) * kPlace;
  }
  static void* ProgramScratch(const RunContext& ctx) { return Gathered(ctx, ctx.in.size()); }

  // Whether rows of this length lie side by side, or can be repeated, in whole places.
  static bool Flat(const Walk& walk) {
    const Walk::Axis& rows = walk.outer.back();
    if (rows.count == 1) return true;
    for (size_t i = 0; i < walk.step.size(); ++i) {
      if (rows.step[i] == 0) continue;
      if (rows.step[i] != walk.run || walk.step[i] == 0) return false;
    }
    return BlockOperand::kPlaceFloats % walk.run == 0;
  }
  // Operands are read where they are, rows of runs at a time.
  void RunInPlace(const Walk& walk, RunContext& ctx) const {
    const Walk::Axis& rows = walk.outer.back();
    absl::InlinedVector<BlockOperand, 4> operands(ctx.in.size());
    float* y = ctx.out[0].f32();
    for (int64_t run = 0; run < walk.runs; run += rows.count, y += rows.count * walk.run) {
      for (size_t i = 0; i < operands.size(); ++i) {
        operands[i] = {Floats(ctx.in[i]) + walk.Offset(i, run), rows.step[i],
                       walk.step[i] == 0 ? BlockOperand::Kind::kScalar : BlockOperand::Kind::kRows};
      }
      RunRows(walk, ctx, absl::MakeSpan(operands), y);
    }
  }

  // walk.outer.back().count rows of walk.run values.
  void RunRows(const Walk& walk, RunContext& ctx, absl::Span<BlockOperand> operands,
               float* y) const {
    const int64_t rows = walk.outer.back().count;
    if (rows > 1 && Flat(walk)) {
      // One long row: what is the same in each row is repeated as often as a place has room.
      for (size_t i = 0; i < operands.size(); ++i) {
        BlockOperand& operand = operands[i];
        if (operand.row_stride != 0 || operand.kind == BlockOperand::Kind::kScalar) continue;
        float* const place = Gathered(ctx, i);
        for (int64_t at = 0; at < BlockOperand::kPlaceFloats; at += walk.run) {
          std::copy_n(operand.data, walk.run, place + at);
        }
        operand = {place, 0, BlockOperand::Kind::kPlace};
      }
      return program_.Run(operands, ProgramScratch(ctx), y, 1, rows * walk.run, ctx.pace);
    }
    program_.Run(operands, ProgramScratch(ctx), y, rows, walk.run, ctx.pace);
  }

  // Long runs, not all of float32: tiles of the others are converted.
  void RunConverted(const Walk& walk, RunContext& ctx) const {
    float* y = ctx.out[0].f32();
    Operands operands(ctx.in.size());
    for (int64_t run = 0; run < walk.runs; ++run) {
      for (int64_t done = 0; done < walk.run; done += kTile) {
        const int64_t n = std::min(kTile, walk.run - done);
        for (size_t i = 0; i < operands.size(); ++i) {
          const Tensor& x = ctx.in[i];
          const int64_t offset = walk.Offset(i, run);
          float* const place = Gathered(ctx, i);
          if (walk.step[i] == 0) {
            *place = At(x, offset);
            operands[i] = {place, 0, BlockOperand::Kind::kScalar};
          } else if (x.dtype == DType::kFloat32) {
            operands[i].data = Floats(x) + offset + done;
          } else {
            CopyRowsAs(x, offset + done, 0, 1, 1, n, place);
            operands[i].data = place;
          }
        }
        program_.Run(operands, ProgramScratch(ctx), y, 1, n, ctx.pace);
        y += n;
      }
    }
  }

  // Short runs: as many as fit a tile are put side by side first, unless they lie so.
  void RunGathered(const Walk& walk, RunContext& ctx) const {
    const Walk::Axis& rows = walk.outer.back();
    // Tiles end where the innermost axis does, if that leaves them long enough.
    const bool within = rows.count * walk.run >= 2 * kShortRun;
    const int64_t fit = kTile / walk.run;
    float* y = ctx.out[0].f32();
    Operands operands(ctx.in.size());
    Walk::Steps gathered(operands.size(), -1);  // The offset whose row fills the place, or -1.
    for (int64_t run = 0; run < walk.runs;) {
      const int64_t left = within ? rows.count - run % rows.count : walk.runs - run;
      const int64_t count = std::min(fit, left);
      for (size_t i = 0; i < operands.size(); ++i) {
        const Tensor& x = ctx.in[i];
        float* const place = Gathered(ctx, i);
        operands[i] = {place, 0, BlockOperand::Kind::kRows};
        if (x.elements() == 1) {
          *place = At(x, 0);
          operands[i].kind = BlockOperand::Kind::kScalar;
          continue;
        }
        const int64_t offset = walk.Offset(i, run);
        if (within && x.dtype == DType::kFloat32 && walk.step[i] == 1 && rows.step[i] == walk.run) {
          operands[i].data = Floats(x) + offset;
          continue;
        }
        if (within && rows.step[i] == 0) {  // One row again and again, also in the next tile.
          if (gathered[i] == offset) continue;
          CopyRowsAs(x, offset, 0, walk.step[i], std::min(fit, rows.count), walk.run, place);
          gathered[i] = offset;
        } else {
          Gather(walk, x, i, run, count, place);
        }
      }
      program_.Run(operands, ProgramScratch(ctx), y, 1, count * walk.run, ctx.pace);
      y += count * walk.run;
      run += count;
    }
  }

  // Runs [first, first + count) of input i.
  static void Gather(const Walk& walk, const Tensor& x, size_t i, int64_t first, int64_t count,
                     float* to) {
    const Walk::Axis& rows = walk.outer.back();
    while (count > 0) {
      const int64_t now = std::min(count, rows.count - first % rows.count);
      CopyRowsAs(x, walk.Offset(i, first), rows.step[i], walk.step[i], now, walk.run, to);
      to += now * walk.run;
      first += now;
      count -= now;
    }
  }

  const BlockProgram program_;
};

// expression_layer: y = a formula over the inputs @0, @1, ..., element by element.
// Input   0.. f32, int32 or int64 (read as f32), any rank and level; numpy broadcasting of all.
// Weights none.
// Output  0 the broadcast shape, f32; level of the highest input if its rows lead.
// Params  expression_param.expression (required): "add(@0, mul(@1, @2))" or "@0 + @1 * @2";
//         functions add sub mul div pow min max lt le gt ge eq ne, neg abs exp log sqrt sigmoid
//         tanh sin cos relu, where (first > 0 ? second : third); operators + - * / ^ < <= > >= ==
//         !=, brackets, numbers.  Comparisons give 1 or 0.  Grammar: expression.h.
// Errors  InvalidArgument for a text that does not parse (with column and caret), an input that the
//         layer lacks or that the text does not use, more than 256 levels of nesting, shapes that
//         do not broadcast.
// Source  Expressions of the layer framework.
class ExpressionLayer final : public Layer {
 public:
  explicit ExpressionLayer(Expression expression) : expression_(std::move(expression)) {}

  static absl::StatusOr<std::unique_ptr<Layer>> Parse(const ParseContext& ctx) {
    if (!ctx.param.has_expression_param()) {
      return absl::InvalidArgumentError("has no expression_param, want one with an expression");
    }
    const int inputs = ctx.param.bottom_size();
    absl::StatusOr<Expression> expression =
        Expression::Parse(ctx.param.expression_param().expression(), inputs);
    if (!expression.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("expression_param.expression: ", expression.status().message()));
    }
    std::vector<bool> used(static_cast<size_t>(inputs), false);
    for (const Instruction& instruction : expression->program) {
      if (instruction.op == Op::kInput) used[instruction.input] = true;
    }
    for (int i = 0; i < inputs; ++i) {
      if (used[i]) continue;
      return absl::InvalidArgumentError(absl::StrCat("bottom ", i, " \"", ctx.param.bottom(i),
                                                     "\": not used, want @", i,
                                                     " in expression_param.expression"));
    }
    return std::unique_ptr<Layer>(new ExpressionLayer(*std::move(expression)));
  }
  absl::StatusOr<TensorSpecs> Infer(absl::Span<const TensorSpec> in) const override {
    return InferBroadcast(in);
  }
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(absl::Span<const TensorSpec> in) const override {
    const bool floats = std::all_of(in.begin(), in.end(),
                                    [](const TensorSpec& x) { return x.dtype == DType::kFloat32; });
    if (const std::optional<BinaryOp> op = ArithmeticOf(expression_); floats && op.has_value()) {
      return MakeArithmetic(*op);
    }
    return std::unique_ptr<Kernel>(new ExpressionKernel(expression_));
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
              "relu where",
          .inputs = "@0, @1, ... float32, int32 or int64; numpy broadcasting",
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

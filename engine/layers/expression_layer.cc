// expression_layer: a formula over its inputs, in one pass over tiles that stay in the first-level
// cache.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/kernels/elementwise.h"
#include "engine/layers/arithmetic.h"
#include "engine/layers/block_program.h"
#include "engine/layers/checks.h"
#include "engine/layers/expression.h"
#include "engine/layers/families.h"
#include "engine/layers/multiversion.h"
#include "engine/status_macros.h"

namespace ulfd::engine {
namespace {

using Op = ExpressionOp;

constexpr int64_t kTile = 1024;  // Elements.
// Between the tiles' places in scratch: not a multiple of 4096 bytes, where processors take the
// store to one tile for one to the next.
constexpr int64_t kPlace = kTile + 80;
constexpr int64_t kShortRun = 128;  // Shorter runs are put together before anything is computed,
constexpr int64_t kBlockRun = 16;   // unless blocks compute it: those take such runs as they lie.

// ----------------------------------------------------------------------------------- tile kernels

// An operand of a tile: `data`, or one number for all elements.
struct Value {
  const float* data = nullptr;
  float number = 0;
};

// y may be an operand, which is why the loops say themselves that they carry nothing over.
template <class Fn>
[[gnu::always_inline]] inline void Binary(const Value& a, const Value& b, float* y, int64_t n,
                                          Fn fn) {
  if (a.data != nullptr && b.data != nullptr) {
    const float *p = a.data, *q = b.data;
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) y[i] = fn(p[i], q[i]);
  } else if (a.data != nullptr) {
    const float* p = a.data;
    const float v = b.number;
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) y[i] = fn(p[i], v);
  } else {
    const float* q = b.data;
    const float v = a.number;
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) y[i] = fn(v, q[i]);
  }
}

// REQUIRES: one of the operands is not a number alone.
ULFD_MULTIVERSION void BinaryTile(Op op, Value a, Value b, float* y, int64_t n) {
  switch (op) {
    case Op::kAdd:
      return Binary(a, b, y, n, [](float p, float q) { return p + q; });
    case Op::kSub:
      return Binary(a, b, y, n, [](float p, float q) { return p - q; });
    case Op::kMul:
      return Binary(a, b, y, n, [](float p, float q) { return p * q; });
    case Op::kDiv:
      return Binary(a, b, y, n, [](float p, float q) { return p / q; });
    case Op::kMin:
      return Binary(a, b, y, n, [](float p, float q) { return p < q || p != p ? p : q; });
    case Op::kMax:
      return Binary(a, b, y, n, [](float p, float q) { return p > q || p != p ? p : q; });
    case Op::kLess:
      return Binary(a, b, y, n, [](float p, float q) { return p < q ? 1.0f : 0.0f; });
    case Op::kLessEqual:
      return Binary(a, b, y, n, [](float p, float q) { return p <= q ? 1.0f : 0.0f; });
    case Op::kGreater:
      return Binary(a, b, y, n, [](float p, float q) { return p > q ? 1.0f : 0.0f; });
    case Op::kGreaterEqual:
      return Binary(a, b, y, n, [](float p, float q) { return p >= q ? 1.0f : 0.0f; });
    case Op::kEqual:
      return Binary(a, b, y, n, [](float p, float q) { return p == q ? 1.0f : 0.0f; });
    case Op::kNotEqual:
      return Binary(a, b, y, n, [](float p, float q) { return p != q ? 1.0f : 0.0f; });
    default:
      return;
  }
}

// Within 2 ulp; negative numbers and NaN give NaN, 0 gives -infinity.  Method and coefficients of
// Cephes' logf: log of the mantissa in [sqrt(1/2), sqrt(2)) as a polynomial, plus exponent * log 2.
[[gnu::always_inline]] inline float Log(float x) {
  const bool denormal = x < std::numeric_limits<float>::min();
  const float normal = denormal ? x * 8388608.0f : x;
  const int32_t bits = std::bit_cast<int32_t>(normal);
  int32_t exponent = ((bits >> 23) & 0xff) - 126 - (denormal ? 23 : 0);
  float m = std::bit_cast<float>((bits & 0x007fffff) | 0x3f000000);  // [0.5, 1)
  const bool low = m < 0.707106781f;
  exponent -= low ? 1 : 0;
  m = (low ? m + m : m) - 1.0f;
  const float e = static_cast<float>(exponent), z = m * m;
  float p = 7.0376836292e-2f;
  p = p * m - 1.1514610310e-1f;
  p = p * m + 1.1676998740e-1f;
  p = p * m - 1.2420140846e-1f;
  p = p * m + 1.4249322787e-1f;
  p = p * m - 1.6668057665e-1f;
  p = p * m + 2.0000714765e-1f;
  p = p * m - 2.4999993993e-1f;
  p = p * m + 3.3333331174e-1f;
  float y = m * z * p - 2.12194440e-4f * e - 0.5f * z;
  y = m + y + 0.693359375f * e;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  y = x == kInfinity ? x : y;
  y = x == 0.0f ? -kInfinity : y;
  return x < 0.0f || x != x ? std::numeric_limits<float>::quiet_NaN() : y;
}

ULFD_MULTIVERSION void UnaryTile(Op op, const float* x, float* y, int64_t n) {
  switch (op) {
    case Op::kNeg:
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i) y[i] = -x[i];
      return;
    case Op::kAbs:
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i) y[i] = std::abs(x[i]);
      return;
    case Op::kSqrt:
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i) y[i] = std::sqrt(x[i]);
      return;
    case Op::kLog:
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i) y[i] = Log(x[i]);
      return;
    case Op::kRelu:
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i) y[i] = x[i] < 0 ? 0.0f : x[i];
      return;
    case Op::kExp:
      return Unary(UnaryOp::kExp, x, y, n);
    case Op::kSigmoid:
      return Unary(UnaryOp::kSigmoid, x, y, n);
    case Op::kTanh:
      return Unary(UnaryOp::kTanh, x, y, n);
    default:
      return;
  }
}

// Powers are exact to the last bit or two, and slow (a call each), but for squares.
void PowTile(const Value& a, const Value& b, float* y, int64_t n) {
  if (b.data == nullptr && b.number == 2) return BinaryTile(Op::kMul, a, a, y, n);
  for (int64_t i = 0; i < n; ++i) {
    y[i] = std::pow(a.data != nullptr ? a.data[i] : a.number,
                    b.data != nullptr ? b.data[i] : b.number);
  }
}

ULFD_MULTIVERSION void WhereTile(const float* cond, Value a, Value b, float* y, int64_t n) {
  const float *p = a.data, *q = b.data;
  if (p != nullptr && q != nullptr) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) {
      const float u = p[i], v = q[i];  // Both sides always: no branch.
      y[i] = cond[i] > 0 ? u : v;
    }
  } else if (p != nullptr) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) {
      const float u = p[i];
      y[i] = cond[i] > 0 ? u : b.number;
    }
  } else if (q != nullptr) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) {
      const float v = q[i];
      y[i] = cond[i] > 0 ? a.number : v;
    }
  } else {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) y[i] = cond[i] > 0 ? a.number : b.number;
  }
}

// One instruction on `n` elements.  The result is a number if every operand is, else in `y`.
Value Apply(Op op, int operands, const Value* v, float* y, int64_t n) {
  if (std::all_of(v, v + operands, [](const Value& x) { return x.data == nullptr; })) {
    const float numbers[3] = {v[0].number, operands > 1 ? v[1].number : 0,
                              operands > 2 ? v[2].number : 0};
    return {nullptr, Evaluate(op, numbers)};
  }
  if (operands == 1) {
    UnaryTile(op, v[0].data, y, n);
  } else if (op == Op::kPow) {
    PowTile(v[0], v[1], y, n);
  } else if (operands == 2) {
    BinaryTile(op, v[0], v[1], y, n);
  } else if (v[0].data != nullptr) {
    WhereTile(v[0].data, v[1], v[2], y, n);
  } else {
    const Value& chosen = v[0].number > 0 ? v[1] : v[2];
    if (chosen.data == nullptr) return chosen;
    std::copy_n(chosen.data, n, y);  // Its own place is free from now on.
  }
  return {y, 0};
}

// ------------------------------------------------------------------------------------------ kernel

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
  explicit ExpressionKernel(Expression expression)
      : expression_(std::move(expression)), blocks_(BlockProgram::Compile(expression_)) {
    for (const Instruction& instruction : expression_.program) {
      operands_.push_back(OperandCount(instruction.op));
      operations_ += operands_.back() > 0 ? 1 : 0;
    }
  }

  size_t ScratchBytes(absl::Span<const Tensor> in) const override {
    const size_t places = static_cast<size_t>(expression_.stack + expression_.stored) + in.size();
    return places * kPlace * sizeof(float) + (blocks_.has_value() ? blocks_->ScratchBytes() : 0);
  }
  absl::Status Run(RunContext& ctx) const override {
    if (ctx.out[0].elements() == 0) return absl::OkStatus();
    const Walk walk(ctx.out[0].dims, ctx.in);
    const bool floats = std::all_of(ctx.in.begin(), ctx.in.end(),
                                    [](const Tensor& x) { return x.dtype == DType::kFloat32; });
    if (floats && blocks_.has_value() && BlocksTake(walk)) {
      RunOnBlocks(walk, ctx);
    } else if (walk.run < kShortRun && walk.runs > 1) {
      RunGathered(walk, ctx);
    } else {
      RunDirect(walk, ctx);
    }
    return absl::OkStatus();
  }

 private:
  using Values = absl::InlinedVector<Value, 4>;
  struct Machine {
    explicit Machine(const Expression& expression)
        : stack(static_cast<size_t>(expression.stack)),
          kept(static_cast<size_t>(expression.stored)) {}
    Values stack, kept;
  };

  float* Gathered(const RunContext& ctx, size_t input) const {
    return static_cast<float*>(ctx.scratch) +
           (expression_.stack + expression_.stored + static_cast<int64_t>(input)) * kPlace;
  }

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
  bool BlocksTake(const Walk& walk) const {
    return Flat(walk) ||
           (walk.run >= kBlockRun && (blocks_->takes_rows() || walk.run >= kShortRun));
  }

  // Where the places of blocks begin: behind all others.
  void* BlockScratch(const RunContext& ctx) const { return Gathered(ctx, ctx.in.size()); }

  // Operands are read where they are, rows of runs at a time.
  void RunOnBlocks(const Walk& walk, RunContext& ctx) const {
    const Walk::Axis& rows = walk.outer.back();
    absl::InlinedVector<BlockOperand, 4> operands(ctx.in.size());
    float* y = ctx.out[0].f32();
    for (int64_t run = 0; run < walk.runs; run += rows.count, y += rows.count * walk.run) {
      for (size_t i = 0; i < operands.size(); ++i) {
        operands[i] = {static_cast<float*>(ctx.in[i].data) + walk.Offset(i, run), rows.step[i],
                       walk.step[i] == 0 ? BlockOperand::Kind::kScalar : BlockOperand::Kind::kRows};
      }
      RunRows(walk, ctx, absl::MakeSpan(operands), y);
    }
  }

  // walk.outer.back().count rows of walk.run values.
  void RunRows(const Walk& walk, const RunContext& ctx, absl::Span<BlockOperand> operands,
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
      return blocks_->Run(operands, BlockScratch(ctx), y, 1, rows * walk.run);
    }
    if (blocks_->takes_rows()) {
      return blocks_->Run(operands, BlockScratch(ctx), y, rows, walk.run);
    }
    for (int64_t row = 0; row < rows; ++row, y += walk.run) {
      blocks_->Run(operands, BlockScratch(ctx), y, 1, walk.run);
      for (BlockOperand& operand : operands) operand.data += operand.row_stride;
    }
  }

  // Long runs: operands are read where they are.
  void RunDirect(const Walk& walk, RunContext& ctx) const {
    const bool floats = std::all_of(ctx.in.begin(), ctx.in.end(),
                                    [](const Tensor& x) { return x.dtype == DType::kFloat32; });
    // A single operation writes to the output and needs no tile.
    const int64_t tile = floats && operations_ <= 1 ? walk.run : kTile;
    float* y = ctx.out[0].f32();
    Values inputs(ctx.in.size());
    Machine machine(expression_);
    for (int64_t run = 0; run < walk.runs; ++run) {
      for (int64_t done = 0; done < walk.run; done += tile) {
        const int64_t n = std::min(tile, walk.run - done);
        for (size_t i = 0; i < inputs.size(); ++i) {
          const Tensor& x = ctx.in[i];
          const int64_t offset = walk.Offset(i, run);
          if (walk.step[i] == 0) {
            inputs[i] = {nullptr, At(x, offset)};
          } else if (x.dtype == DType::kFloat32) {
            inputs[i].data = x.f32() + offset + done;
          } else {
            CopyRowsAs(x, offset + done, 0, 1, 1, n, Gathered(ctx, i));
            inputs[i].data = Gathered(ctx, i);
          }
        }
        Tile(ctx, inputs, n, machine, y);
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
    Values inputs(ctx.in.size());
    Machine machine(expression_);
    Walk::Steps gathered(inputs.size(), -1);  // The offset whose row fills the place, or -1.
    for (int64_t run = 0; run < walk.runs;) {
      const int64_t left = within ? rows.count - run % rows.count : walk.runs - run;
      const int64_t count = std::min(fit, left);
      for (size_t i = 0; i < inputs.size(); ++i) {
        const Tensor& x = ctx.in[i];
        if (x.elements() == 1) {
          inputs[i].number = At(x, 0);
          continue;
        }
        const int64_t offset = walk.Offset(i, run);
        if (within && x.dtype == DType::kFloat32 && walk.step[i] == 1 && rows.step[i] == walk.run) {
          inputs[i].data = x.f32() + offset;
          continue;
        }
        inputs[i].data = Gathered(ctx, i);
        if (within && rows.step[i] == 0) {  // One row again and again, also in the next tile.
          if (gathered[i] == offset) continue;
          CopyRowsAs(x, offset, 0, walk.step[i], std::min(fit, rows.count), walk.run,
                     Gathered(ctx, i));
          gathered[i] = offset;
        } else {
          Gather(walk, x, i, run, count, Gathered(ctx, i));
        }
      }
      Tile(ctx, inputs, count * walk.run, machine, y);
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

  // The whole formula on n elements.  The last instruction writes to y.
  void Tile(const RunContext& ctx, const Values& inputs, int64_t n, Machine& machine,
            float* y) const {
    float* const scratch = static_cast<float*>(ctx.scratch);
    if (blocks_.has_value()) {
      absl::InlinedVector<BlockOperand, 4> operands(inputs.size());
      for (size_t i = 0; i < inputs.size(); ++i) {
        const bool number = inputs[i].data == nullptr;
        operands[i] = {const_cast<float*>(number ? &inputs[i].number : inputs[i].data), 0,
                       number ? BlockOperand::Kind::kScalar : BlockOperand::Kind::kRows};
      }
      return blocks_->Run(operands, BlockScratch(ctx), y, 1, n);
    }
    Values& stack = machine.stack;
    Values& kept = machine.kept;
    size_t top = 0;
    const Instruction* const end = expression_.program.data() + expression_.program.size();
    for (const Instruction* i = expression_.program.data(); i != end; ++i) {
      switch (i->op) {
        case Op::kNumber:
          stack[top++] = {nullptr, i->number};
          break;
        case Op::kInput:
          stack[top++] = inputs[i->input];
          break;
        case Op::kLoad:
          stack[top++] = kept[i->input];
          break;
        case Op::kStore:
          kept[i->input] = stack[top - 1];
          break;
        default: {
          const int operands = operands_[static_cast<size_t>(i - expression_.program.data())];
          top -= static_cast<size_t>(operands);
          const bool keep = i + 1 != end && i[1].op == Op::kStore;
          float* to = i + 1 == end ? y
                      : keep       ? scratch + (expression_.stack + i[1].input) * kPlace
                                   : scratch + static_cast<int64_t>(top) * kPlace;
          stack[top] = Apply(i->op, operands, stack.data() + top, to, n);
          ++top;
        }
      }
    }
    const Value& result = stack[0];
    if (result.data == nullptr) {
      std::fill_n(y, n, result.number);
    } else if (result.data != y) {
      std::copy_n(result.data, n, y);
    }
  }

  const Expression expression_;
  const std::optional<BlockProgram> blocks_;
  std::vector<int> operands_;  // Per instruction.
  int64_t operations_ = 0;
};

// expression_layer: y = a formula over the inputs @0, @1, ..., element by element.
// Input   0.. f32, int32 or int64 (read as f32), any rank and level; numpy broadcasting of all.
// Weights none.
// Output  0 the broadcast shape, f32; level of the highest input if its rows lead.
// Params  expression_param.expression (required): "add(@0, mul(@1, @2))" or "@0 + @1 * @2";
//         functions add sub mul div pow min max lt le gt ge eq ne, neg abs exp log sqrt sigmoid tanh
//         relu, where (first > 0 ? second : third); operators + - * / ^ < <= > >= == !=, brackets,
//         numbers.  Comparisons give 1 or 0.  Grammar: expression.h.
// Errors  InvalidArgument for a text that does not parse (with column and caret), an input that the
//         layer lacks or that the text does not use, more than 256 levels of nesting, shapes that do
//         not broadcast.
// Source  Expressions of the layer framework.
class ExpressionLayer final : public Layer {
 public:
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
    ASSIGN_OR_RETURN(TensorSpec out, InferBroadcast(in));
    return TensorSpecs{out};
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

 private:
  explicit ExpressionLayer(Expression expression) : expression_(std::move(expression)) {}
  const Expression expression_;
};

constexpr LayerType kTypes[] = {
    {.name = "expression_layer",
     .summary = "a formula over the inputs, element by element, in one pass",
     .inputs = {1, 64},
     .outputs = {1, 1},
     .param_field = ulf::LayerParameter::kExpressionParamFieldNumber,
     .parse = &ExpressionLayer::Parse,
     .doc =
         {.formula =
              "y = the formula in expression_param.expression; + - * / ^ < <= > >= == !=, add sub "
              "mul div pow min max lt le gt ge eq ne neg abs exp log sqrt sigmoid tanh relu where",
          .inputs = "@0, @1, ... float32, int32 or int64; numpy broadcasting",
          .source = "expressions of the layer framework",
          .example_inputs = "a:4;b:4",
          .example_param = "expression_param { expression: \"sigmoid(@0) * (@0 - @1)\" }"}},
};

}  // namespace

absl::Span<const LayerType> ExpressionLayers() { return kTypes; }

}  // namespace ulfd::engine

// Programs over blocks of values (see RunBlocks in elementwise.h).  Included after a vec_*.h by the
// sources that table.h names.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_KERNELS_BLOCKS_BODY_H_
#define ULFD_ENGINE_KERNELS_BLOCKS_BODY_H_

#include "engine/kernels/math_body.h"
#include "engine/kernels/table.h"
#include "engine/kernels/types.h"

namespace ulfd::engine {
namespace {

// it = fn(it), several vectors at a time.  In line: as calls, sigmoids took 1.4 times as long,
// because what comes before and after a call cannot run beside the function's long chains.
template <int kVecs, class Fn>
[[gnu::always_inline]] inline void Each(Vec* it, Fn fn) {
  if constexpr (kVecs % 4 == 0) {
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; v += 4) {
      const Four y = fn(Four{{it[v], it[v + 1]}, {it[v + 2], it[v + 3]}});
      it[v] = y.a.a;
      it[v + 1] = y.a.b;
      it[v + 2] = y.b.a;
      it[v + 3] = y.b.b;
    }
  } else if constexpr (kVecs % 2 == 0) {
    for (int v = 0; v < kVecs; v += 2) {
      const Two y = fn(Two{it[v], it[v + 1]});
      it[v] = y.a;
      it[v + 1] = y.b;
    }
  } else {
    for (int v = 0; v < kVecs; ++v) it[v] = fn(it[v]);
  }
}
// Out of line, as are the C library's powers.  it = it to the power x, or x to the power it.
template <int kVecs>
[[gnu::noinline]] void PowerOf(BlockOp op, Vec* it, const Vec* x) {
  for (int v = 0; v < kVecs; ++v) {
    float p[Vec::kLanes], q[Vec::kLanes];
    it[v].Store(op == BlockOp::kPow ? p : q);
    x[v].Store(op == BlockOp::kPow ? q : p);
    for (int i = 0; i < Vec::kLanes; ++i) p[i] = __builtin_powf(p[i], q[i]);
    it[v] = Vec::Load(p);
  }
}

// it = sin(it) or cos(it).
template <int kVecs>
[[gnu::noinline]] void SineOf(BlockOp op, Vec* it) {
  const bool cosine = op == BlockOp::kCos;
  for (int v = 0; v < kVecs; ++v) {
    float x[Vec::kLanes], y[Vec::kLanes];
    it[v].Store(x);
    it[v] = Sine(it[v], Vec::Set(cosine ? 0.5f : 0.0f));
    bool near = true;
    for (const float value : x) near &= __builtin_fabsf(value) <= kMostSine;
    if (near) continue;
    it[v].Store(y);
    for (int i = 0; i < Vec::kLanes; ++i) {
      if (__builtin_fabsf(x[i]) <= kMostSine) continue;
      y[i] = static_cast<float>(cosine ? __builtin_cos(x[i]) : __builtin_sin(x[i]));
    }
    it[v] = Vec::Load(y);
  }
}

// Some vectors of one row.
template <int kVecs, bool kMasked>
struct Block {
  static_assert(kVecs == 1 || !kMasked);
  int64_t at;      // Of the block's first value in the row.
  Vec::Mask mask;  // Of a masked block.
  Vec it[kVecs];   // The value that the program works on.

  [[gnu::always_inline]] Vec Read(const float* p) const {
    if constexpr (kMasked) return Vec::LoadMasked(p, mask);
    return Vec::Load(p);
  }
  [[gnu::always_inline]] void Write(Vec v, float* p) const {
    if constexpr (kMasked) {
      v.StoreMasked(p, mask);
    } else {
      v.Store(p);
    }
  }
  [[gnu::always_inline]] float* Place(const BlockOperand& o) const {
    // Blocks do not cross the end of a place.
    return o.data + (at & static_cast<int64_t>(o.kind));
  }
  // it = fn(it, operand).
  template <class Fn>
  [[gnu::always_inline]] void With(const BlockOperand& o, Fn fn) {
    const float* p = Place(o);
    if (o.kind == BlockOperand::Kind::kScalar) {
      const Vec x = Vec::Broadcast(p);
#pragma GCC unroll 8
      for (int v = 0; v < kVecs; ++v) it[v] = fn(it[v], x);
    } else {
#pragma GCC unroll 8
      for (int v = 0; v < kVecs; ++v) it[v] = fn(it[v], Read(p + v * Vec::kLanes));
    }
  }
  // it = fn(it), in registers.
  template <class Fn>
  [[gnu::always_inline]] void Simply(Fn fn) {
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) it[v] = fn(it[v]);
  }
  [[gnu::always_inline]] void Store(const BlockOperand& o) const {
    float* p = Place(o);
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) Write(it[v], p + v * Vec::kLanes);
  }
  [[gnu::always_inline]] Vec OperandAt(const BlockOperand& o, int v) const {
    const float* p = Place(o);
    return o.kind == BlockOperand::Kind::kScalar ? Vec::Broadcast(p) : Read(p + v * Vec::kLanes);
  }
  // it = fn(it, a, b).
  template <class Fn>
  [[gnu::always_inline]] void With(const BlockOperand& a, const BlockOperand& b, Fn fn) {
    if (a.kind != BlockOperand::Kind::kScalar && b.kind != BlockOperand::Kind::kScalar) {
      const float *p = Place(a), *q = Place(b);
#pragma GCC unroll 8
      for (int v = 0; v < kVecs; ++v) {
        it[v] = fn(it[v], Read(p + v * Vec::kLanes), Read(q + v * Vec::kLanes));
      }
    } else {
#pragma GCC unroll 8
      for (int v = 0; v < kVecs; ++v) it[v] = fn(it[v], OperandAt(a, v), OperandAt(b, v));
    }
  }
  [[gnu::always_inline]] void Power(BlockOp op, const BlockOperand& o) {
    Vec x[kVecs], y[kVecs];
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) {
      x[v] = it[v];
      y[v] = OperandAt(o, v);
    }
    PowerOf<kVecs>(op, x, y);
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) it[v] = x[v];
  }
  [[gnu::always_inline]] void Sines(BlockOp op) {
    Vec x[kVecs];
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) x[v] = it[v];
    SineOf<kVecs>(op, x);
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) it[v] = x[v];
  }
  // it = outer(it, a op b).
  template <class Fn>
  [[gnu::always_inline]] void WithSum(const BlockStep& s, Fn outer) {
    With(s.a, s.b, [outer](Vec x, Vec a, Vec b) { return outer(x, a + b); });
  }
  template <class Fn>
  [[gnu::always_inline]] void WithDifference(const BlockStep& s, Fn outer) {
    With(s.a, s.b, [outer](Vec x, Vec a, Vec b) { return outer(x, a - b); });
  }
  template <class Fn>
  [[gnu::always_inline]] void WithProduct(const BlockStep& s, Fn outer) {
    With(s.a, s.b, [outer](Vec x, Vec a, Vec b) { return outer(x, a * b); });
  }
};

[[gnu::always_inline]] inline Vec Truth(Vec a, Vec b) {  // a > b
  return Vec::SelectGreater(a, b, Vec::Set(1.0f), Vec::Zero());
}
[[gnu::always_inline]] inline Vec TruthOrEqual(Vec a, Vec b) {  // a >= b
  return Vec::SelectEqual(a, b, Vec::Set(1.0f), Truth(a, b));
}
// NaN if either is.
[[gnu::always_inline]] inline Vec MinOrNan(Vec a, Vec b) {
  return Vec::SelectEqual(a, a, Vec::Min(a, b), a);
}
[[gnu::always_inline]] inline Vec MaxOrNan(Vec a, Vec b) {
  return Vec::SelectEqual(a, a, Vec::Max(a, b), a);
}

// One switch over all operations is what keeps the block in registers.
template <int kVecs, bool kMasked>
void RunBlock(  // NOLINT(readability-function-size)
    const BlockStep* steps, int64_t count, int64_t at, Vec::Mask mask) {
  using Op = BlockOp;
  Block<kVecs, kMasked> b;  // The first step is kLoad.
  b.at = at;
  b.mask = mask;
  const auto load = [](Vec, Vec x) { return x; };
  const auto add = [](Vec it, Vec x) { return it + x; };
  const auto sub = [](Vec it, Vec x) { return it - x; };
  const auto sub_from = [](Vec it, Vec x) { return x - it; };
  const auto mul = [](Vec it, Vec x) { return it * x; };
  for (const BlockStep* s = steps; s != steps + count; ++s) {
    switch (s->op) {
      case Op::kLoad:
        b.With(s->a, load);
        break;
      case Op::kStore:
        b.Store(s->a);
        break;
      case Op::kAdd:
        b.With(s->a, add);
        break;
      case Op::kSub:
        b.With(s->a, sub);
        break;
      case Op::kSubFrom:
        b.With(s->a, sub_from);
        break;
      case Op::kMul:
        b.With(s->a, mul);
        break;
      case Op::kDiv:
        b.With(s->a, [](Vec it, Vec x) { return it / x; });
        break;
      case Op::kDivInto:
        b.With(s->a, [](Vec it, Vec x) { return x / it; });
        break;
      case Op::kMin:
        b.With(s->a, [](Vec it, Vec x) { return MinOrNan(it, x); });
        break;
      case Op::kMinOf:
        b.With(s->a, [](Vec it, Vec x) { return MinOrNan(x, it); });
        break;
      case Op::kMax:
        b.With(s->a, [](Vec it, Vec x) { return MaxOrNan(it, x); });
        break;
      case Op::kMaxOf:
        b.With(s->a, [](Vec it, Vec x) { return MaxOrNan(x, it); });
        break;
      case Op::kLess:
        b.With(s->a, [](Vec it, Vec x) { return Truth(x, it); });
        break;
      case Op::kLessEqual:
        b.With(s->a, [](Vec it, Vec x) { return TruthOrEqual(x, it); });
        break;
      case Op::kGreater:
        b.With(s->a, [](Vec it, Vec x) { return Truth(it, x); });
        break;
      case Op::kGreaterEqual:
        b.With(s->a, [](Vec it, Vec x) { return TruthOrEqual(it, x); });
        break;
      case Op::kEqual:
        b.With(s->a,
               [](Vec it, Vec x) { return Vec::SelectEqual(it, x, Vec::Set(1.0f), Vec::Zero()); });
        break;
      case Op::kNotEqual:
        b.With(s->a,
               [](Vec it, Vec x) { return Vec::SelectEqual(it, x, Vec::Zero(), Vec::Set(1.0f)); });
        break;
      case Op::kNeg:
        b.Simply([](Vec it) { return Vec::Xor(it, Vec::Set(-0.0f)); });
        break;
      case Op::kAbs:
        b.Simply([](Vec it) { return Vec::Xor(Vec::Or(it, Vec::Set(-0.0f)), Vec::Set(-0.0f)); });
        break;
      case Op::kSquare:
        b.Simply([](Vec it) { return it * it; });
        break;
      case Op::kSqrt:
        b.Simply([](Vec it) { return Vec::Sqrt(it); });
        break;
      case Op::kRelu:
        b.Simply([](Vec it) { return Relu(it); });
        break;
      case Op::kExp:
        Each<kVecs>(b.it, [](auto x) { return Exp(x); });
        break;
      case Op::kLog:
        Each<kVecs>(b.it, [](auto x) { return Log(x); });
        break;
      case Op::kSigmoid:
        Each<kVecs>(b.it, [](auto x) { return Sigmoid(x); });
        break;
      case Op::kTanh:
        Each<kVecs>(b.it, [](auto x) { return Tanh(x); });
        break;
      case Op::kSin:
      case Op::kCos:
        b.Sines(s->op);
        break;
      case Op::kPow:
      case Op::kPowOf:
        b.Power(s->op, s->a);
        break;
      case Op::kWhere:
        b.With(s->a, s->b,
               [](Vec it, Vec x, Vec y) { return Vec::SelectGreater(it, Vec::Zero(), x, y); });
        break;
      case Op::kLoadSum:
        b.WithSum(*s, load);
        break;
      case Op::kLoadDifference:
        b.WithDifference(*s, load);
        break;
      case Op::kLoadProduct:
        b.WithProduct(*s, load);
        break;
      case Op::kAddSum:
        b.WithSum(*s, add);
        break;
      case Op::kAddDifference:
        b.WithDifference(*s, add);
        break;
      case Op::kAddProduct:
        b.WithProduct(*s, add);
        break;
      case Op::kSubSum:
        b.WithSum(*s, sub);
        break;
      case Op::kSubDifference:
        b.WithDifference(*s, sub);
        break;
      case Op::kSubProduct:
        b.WithProduct(*s, sub);
        break;
      case Op::kSubFromSum:
        b.WithSum(*s, sub_from);
        break;
      case Op::kSubFromDifference:
        b.WithDifference(*s, sub_from);
        break;
      case Op::kSubFromProduct:
        b.WithProduct(*s, sub_from);
        break;
      case Op::kMulSum:
        b.WithSum(*s, mul);
        break;
      case Op::kMulDifference:
        b.WithDifference(*s, mul);
        break;
      case Op::kMulProduct:
        b.WithProduct(*s, mul);
        break;
      default:
        __builtin_unreachable();
    }
  }
}

void Blocks(BlockStep* steps, int64_t count, int64_t rows, int64_t n) {
  constexpr int kVecs = static_cast<int>(BlockOperand::kPlaceFloats) / Vec::kLanes;
  const int64_t full = n / Vec::kLanes * Vec::kLanes;
  const Vec::Mask mask = Vec::MaskOf(n - full);
  for (int64_t row = 0; row < rows; ++row) {
    int64_t i = 0;
    for (; i + kVecs * Vec::kLanes <= full; i += kVecs * Vec::kLanes) {
      RunBlock<kVecs, false>(steps, count, i, mask);
    }
    if (i + kVecs / 2 * Vec::kLanes <= full) {
      RunBlock<kVecs / 2, false>(steps, count, i, mask);
      i += kVecs / 2 * Vec::kLanes;
    }
    for (; i < full; i += Vec::kLanes) RunBlock<1, false>(steps, count, i, mask);
    if (full < n) RunBlock<1, true>(steps, count, full, mask);
    for (int64_t k = 0; k < count; ++k) {
      steps[k].a.data += steps[k].a.row_stride;
      steps[k].b.data += steps[k].b.row_stride;
    }
  }
}

}  // namespace
}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_KERNELS_BLOCKS_BODY_H_

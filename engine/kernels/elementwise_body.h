// Arrays: functions, arithmetic, softmax, sums.  Included after a vec_*.h by the sources that
// table.h names.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_KERNELS_ELEMENTWISE_BODY_H_
#define ULFD_ENGINE_KERNELS_ELEMENTWISE_BODY_H_

#include "engine/kernels/math_body.h"
#include "engine/kernels/table.h"

// Built once per instruction set; products of lanes are small.
// NOLINTBEGIN(misc-definitions-in-headers,bugprone-implicit-widening-of-multiplication-result)
namespace ulfd::engine {
namespace {

template <class Fn>
[[gnu::always_inline]] inline void Map(const float* x, float* y, int64_t n, Fn fn) {
  const int64_t full = n / Vec::kLanes * Vec::kLanes;
  int64_t i = 0;
  for (; i + Four::kLanes <= full; i += Four::kLanes) fn(Four::Load(x + i)).Store(y + i);
  for (; i + Two::kLanes <= full; i += Two::kLanes) fn(Two::Load(x + i)).Store(y + i);
  if (i < full) fn(Vec::Load(x + i)).Store(y + i);
  if (full == n) return;
  const Vec::Mask mask = Vec::MaskOf(n - full);
  fn(Vec::LoadMasked(x + full, mask)).StoreMasked(y + full, mask);
}

// The sine of x, or its cosine; large ones by the C library.
Vec SineOrCosine(Vec x, bool cosine) {
  float values[Vec::kLanes], y[Vec::kLanes];
  x.Store(values);
  Sine(x, Vec::Set(cosine ? 0.5f : 0.0f)).Store(y);
  for (int i = 0; i < Vec::kLanes; ++i) {
    if (__builtin_fabsf(values[i]) <= kMostSine) continue;
    y[i] = static_cast<float>(cosine ? __builtin_cos(values[i]) : __builtin_sin(values[i]));
  }
  return Vec::Load(y);
}
void Sines(const float* x, float* y, int64_t n, bool cosine) {
  for (int64_t i = 0; i < n; i += Vec::kLanes) {
    const Vec::Mask mask = Vec::MaskOf(Least(n - i, Vec::kLanes));
    SineOrCosine(Vec::LoadMasked(x + i, mask), cosine).StoreMasked(y + i, mask);
  }
}

void Unary(UnaryOp op, const float* x, float* y, int64_t n) {
  switch (op) {
    case UnaryOp::kRelu:
      return Map(x, y, n, [](auto v) { return Relu(v); });
    case UnaryOp::kSigmoid:
      return Map(x, y, n, [](auto v) { return Sigmoid(v); });
    case UnaryOp::kTanh:
      return Map(x, y, n, [](auto v) { return Tanh(v); });
    case UnaryOp::kExp:
      return Map(x, y, n, [](auto v) { return Exp(v); });
    case UnaryOp::kLog:
      return Map(x, y, n, [](auto v) { return Log(v); });
    case UnaryOp::kSqrt:
      return Map(x, y, n, [](auto v) { return decltype(v)::Sqrt(v); });
    case UnaryOp::kNeg:
      return Map(x, y, n, [](auto v) { return decltype(v)::Xor(v, decltype(v)::Set(-0.0f)); });
    case UnaryOp::kAbs:
      return Map(x, y, n, [](auto v) {
        const auto sign = decltype(v)::Set(-0.0f);
        return decltype(v)::Xor(decltype(v)::Or(v, sign), sign);
      });
    case UnaryOp::kSin:
      return Sines(x, y, n, false);
    case UnaryOp::kCos:
      return Sines(x, y, n, true);
    case UnaryOp::kErf:
      return Map(x, y, n, [](auto v) { return Erf(v); });
    case UnaryOp::kFloor:
      return Map(x, y, n, [](auto v) { return Floor(v); });
    case UnaryOp::kTrunc:
      return Map(x, y, n, [](auto v) { return Trunc(v); });
    case UnaryOp::kRound:
      return Map(x, y, n, [](auto v) { return decltype(v)::Round(v); });
  }
}

// ------------------------------------------------------------------------------------ arithmetic

inline Vec Truth(Vec a, Vec b) {  // a > b
  return Vec::SelectGreater(a, b, Vec::Set(1.0f), Vec::Zero());
}
inline Vec TruthOrEqual(Vec a, Vec b) {  // a >= b
  return Vec::SelectEqual(a, b, Vec::Set(1.0f), Truth(a, b));
}
inline Vec Power(Vec a, Vec b) {
  float x[Vec::kLanes], y[Vec::kLanes];
  a.Store(x);
  b.Store(y);
  for (int i = 0; i < Vec::kLanes; ++i) x[i] = __builtin_powf(x[i], y[i]);
  return Vec::Load(x);
}

template <bool kStepA, bool kStepB, class Fn>
void BinaryRowsOf(Strided a, Strided b, float* y, int64_t y_stride, int64_t rows, int64_t n,
                  Fn fn) {
  const int64_t full = n / Vec::kLanes * Vec::kLanes;
  const Vec::Mask mask = Vec::MaskOf(n - full);
  for (int64_t r = 0; r < rows; ++r, a.data += a.stride, b.data += b.stride, y += y_stride) {
    const Vec a0 = kStepA ? Vec::Zero() : Vec::Broadcast(a.data);
    const Vec b0 = kStepB ? Vec::Zero() : Vec::Broadcast(b.data);
    for (int64_t i = 0; i < full; i += Vec::kLanes) {
      fn(kStepA ? Vec::Load(a.data + i) : a0, kStepB ? Vec::Load(b.data + i) : b0).Store(y + i);
    }
    if (full == n) continue;
    fn(kStepA ? Vec::LoadMasked(a.data + full, mask) : a0,
       kStepB ? Vec::LoadMasked(b.data + full, mask) : b0)
        .StoreMasked(y + full, mask);
  }
}

void Binary(BinaryOp op, const Strided& a, const Strided& b, float* y, int64_t y_stride,
            int64_t rows, int64_t n) {
  const auto run = [&](auto fn) {
    if (a.step != 0 && b.step != 0) {
      BinaryRowsOf<true, true>(a, b, y, y_stride, rows, n, fn);
    } else if (a.step != 0) {
      BinaryRowsOf<true, false>(a, b, y, y_stride, rows, n, fn);
    } else if (b.step != 0) {
      BinaryRowsOf<false, true>(a, b, y, y_stride, rows, n, fn);
    } else {
      BinaryRowsOf<false, false>(a, b, y, y_stride, rows, n, fn);
    }
  };
  switch (op) {
    case BinaryOp::kAdd:
      return run([](Vec u, Vec v) { return u + v; });
    case BinaryOp::kSub:
      return run([](Vec u, Vec v) { return u - v; });
    case BinaryOp::kMultiply:
      return run([](Vec u, Vec v) { return u * v; });
    case BinaryOp::kDiv:
      return run([](Vec u, Vec v) { return u / v; });
    case BinaryOp::kMin:
      return run([](Vec u, Vec v) { return Vec::SelectEqual(u, u, Vec::Min(u, v), u); });
    case BinaryOp::kMax:
      return run([](Vec u, Vec v) { return Vec::SelectEqual(u, u, Vec::Max(u, v), u); });
    case BinaryOp::kLess:
      return run([](Vec u, Vec v) { return Truth(v, u); });
    case BinaryOp::kLessEqual:
      return run([](Vec u, Vec v) { return TruthOrEqual(v, u); });
    case BinaryOp::kGreater:
      return run([](Vec u, Vec v) { return Truth(u, v); });
    case BinaryOp::kGreaterEqual:
      return run([](Vec u, Vec v) { return TruthOrEqual(u, v); });
    case BinaryOp::kEqual:
      return run([](Vec u, Vec v) { return Vec::SelectEqual(u, v, Vec::Set(1.0f), Vec::Zero()); });
    case BinaryOp::kNotEqual:
      return run([](Vec u, Vec v) { return Vec::SelectEqual(u, v, Vec::Zero(), Vec::Set(1.0f)); });
    case BinaryOp::kPow:
      // One exponent for all: GELU has cubes, variances have squares.
      if (b.step == 0 && (b.stride == 0 || rows == 1)) {
        if (*b.data == 2) return run([](Vec u, Vec) { return u * u; });
        if (*b.data == 3) return run([](Vec u, Vec) { return u * u * u; });
        if (*b.data == 4) return run([](Vec u, Vec) { return (u * u) * (u * u); });
      }
      return run([](Vec u, Vec v) { return Power(u, v); });
  }
}

void Where(const Strided& condition, const Strided& a, const Strided& b, float* y, int64_t rows,
           int64_t n) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < n; i += Vec::kLanes) {
      const Vec::Mask mask = Vec::MaskOf(Least(n - i, Vec::kLanes));
      const auto at = [&](const Strided& x) {
        const float* const row = x.data + r * x.stride;
        return x.step == 0 ? Vec::Broadcast(row) : Vec::LoadMasked(row + i, mask);
      };
      Vec::SelectGreater(at(condition), Vec::Zero(), at(a), at(b)).StoreMasked(y + r * n + i, mask);
    }
  }
}

// --------------------------------------------------------------------------------------- softmax

// Of the lanes: the maximum (NaNs may get lost) and the sum.
inline float MaxOf(Vec v) {
  float lane[Vec::kLanes];
  v.Store(lane);
  float max = lane[0];
  for (int i = 1; i < Vec::kLanes; ++i) max = max < lane[i] ? lane[i] : max;
  return max;
}
inline float SumOf(Vec v) {
  float out[4];
  Vec::Sum4(v, v, v, v, out);
  return out[0];
}

// Of one row of n values: the largest, and the sum of exp(x - max), which go to y but for kLog.  A
// NaN anywhere makes the sum NaN.
struct RowSum {
  float max, sum;
};
template <bool kLog>
RowSum SumOfExps(const float* x, float* y, int64_t n) {
  const int64_t full = n / Vec::kLanes * Vec::kLanes;
  float max = x[0];
  if (full > 0) {
    Vec most = Vec::Load(x);
    for (int64_t i = Vec::kLanes; i < full; i += Vec::kLanes)
      most = Vec::Max(Vec::Load(x + i), most);
    max = MaxOf(most);
  }
  for (int64_t i = full; i < n; ++i) max = max < x[i] ? x[i] : max;
  const Vec shift = Vec::Set(max);
  Vec sum = Vec::Zero();
  for (int64_t i = 0; i < full; i += Vec::kLanes) {
    const Vec e = ExpOfNegative(Vec::Load(x + i) - shift);
    if (!kLog) e.Store(y + i);
    sum = sum + e;
  }
  if (full < n) {
    const Vec::Mask mask = Vec::MaskOf(n - full);
    float rest[Vec::kLanes] = {};
    ExpOfNegative(Vec::LoadMasked(x + full, mask) - shift).StoreMasked(rest, mask);
    sum = sum + Vec::Load(rest);
    if (!kLog) Vec::Load(rest).StoreMasked(y + full, mask);
  }
  return {max, SumOf(sum)};
}

void SoftmaxRows(const float* x, float* y, int64_t rows, int64_t n) {
  for (int64_t r = 0; r < rows; ++r, x += n, y += n) {
    const float scale = 1.0f / SumOfExps<false>(x, y, n).sum;
    Map(y, y, n, [scale](auto v) { return v * decltype(v)::Set(scale); });
  }
}

// With the logarithms of as many sums as a vector has lanes at once.
void LogSoftmaxRows(const float* x, float* y, int64_t rows, int64_t n) {
  for (int64_t r = 0; r < rows; r += Vec::kLanes) {
    const int64_t now = Least(rows - r, Vec::kLanes);
    float max[Vec::kLanes], log[Vec::kLanes] = {};
    for (int64_t i = 0; i < now; ++i) {
      const RowSum row = SumOfExps<true>(x + (r + i) * n, nullptr, n);
      max[i] = row.max;
      log[i] = row.sum;
    }
    Log(Vec::Load(log)).Store(log);
    for (int64_t i = 0; i < now; ++i) {
      Map(x + (r + i) * n, y + (r + i) * n, n, [most = max[i], sum = log[i]](auto v) {
        return v - decltype(v)::Set(most) - decltype(v)::Set(sum);
      });
    }
  }
}

// Columns of one vector, [count, inner].
template <bool kLog, class LoadFn, class StoreFn>
[[gnu::always_inline]] inline void SoftmaxColumns(const float* x, float* y, int64_t count,
                                                  int64_t inner, LoadFn load, StoreFn store) {
  Vec max = load(x);
  for (int64_t t = 1; t < count; ++t) max = Vec::Max(load(x + t * inner), max);
  Vec sum = Vec::Zero();
  for (int64_t t = 0; t < count; ++t) {
    const Vec e = ExpOfNegative(load(x + t * inner) - max);
    if (!kLog) store(e, y + t * inner);
    sum = sum + e;
  }
  if (kLog) {
    const Vec log = Log(sum);
    for (int64_t t = 0; t < count; ++t) store(load(x + t * inner) - max - log, y + t * inner);
    return;
  }
  const Vec scale = Vec::Set(1.0f) / sum;
  for (int64_t t = 0; t < count; ++t) store(load(y + t * inner) * scale, y + t * inner);
}

// Rows of few values: as many as a vector has lanes are turned into columns and back.
constexpr int64_t kShortRow = 16;
template <bool kLog>
void SoftmaxShortRows(const float* x, float* y, int64_t rows, int64_t count) {
  float columns[kShortRow * Vec::kLanes] = {};
  for (int64_t r = 0; r < rows;
       r += Vec::kLanes, x += Vec::kLanes * count, y += Vec::kLanes * count) {
    const int64_t lanes = Least(rows - r, Vec::kLanes);
    for (int64_t i = 0; i < lanes; ++i) {
      for (int64_t t = 0; t < count; ++t) columns[t * Vec::kLanes + i] = x[i * count + t];
    }
    SoftmaxColumns<kLog>(
        columns, columns, count, Vec::kLanes, [](const float* p) { return Vec::Load(p); },
        [](Vec v, float* p) { v.Store(p); });
    for (int64_t i = 0; i < lanes; ++i) {
      for (int64_t t = 0; t < count; ++t) y[i * count + t] = columns[t * Vec::kLanes + i];
    }
  }
}

template <bool kLog>
void SoftmaxOf(const float* x, float* y, int64_t outer, int64_t count, int64_t inner) {
  if (count == 0) return;
  if (inner == 1 && count <= kShortRow) return SoftmaxShortRows<kLog>(x, y, outer, count);
  if (inner == 1) return (kLog ? &LogSoftmaxRows : &SoftmaxRows)(x, y, outer, count);
  const int64_t full = inner / Vec::kLanes * Vec::kLanes;
  const Vec::Mask mask = Vec::MaskOf(inner - full);
  for (int64_t o = 0; o < outer; ++o, x += count * inner, y += count * inner) {
    for (int64_t j = 0; j < full; j += Vec::kLanes) {
      SoftmaxColumns<kLog>(
          x + j, y + j, count, inner, [](const float* p) { return Vec::Load(p); },
          [](Vec v, float* p) { v.Store(p); });
    }
    if (full == inner) continue;
    SoftmaxColumns<kLog>(
        x + full, y + full, count, inner,
        [mask](const float* p) { return Vec::LoadMasked(p, mask); },
        [mask](Vec v, float* p) { v.StoreMasked(p, mask); });
  }
}
void Softmax(const float* x, float* y, int64_t outer, int64_t count, int64_t inner, bool log) {
  log ? SoftmaxOf<true>(x, y, outer, count, inner) : SoftmaxOf<false>(x, y, outer, count, inner);
}

// ------------------------------------------------------------------------------------ layer norms

template <int kRows>
[[gnu::always_inline]] inline void MeansOf(const Vec* sums, int64_t n, float* means) {
  if constexpr (kRows == 4) {
    Vec::Sum4(sums[0], sums[1], sums[2], sums[3], means);
  } else {
    for (int r = 0; r < kRows; ++r) means[r] = SumOf(sums[r]);
  }
  for (int r = 0; r < kRows; ++r) means[r] /= static_cast<float>(n);
}

// Rows side by side.  The mean is rounded; what is left of it in the differences is subtracted,
// too.
template <int kRows>
void LayerNormRows(const RowNorm& norm, const float* x, float* y, int64_t n) {
  constexpr float kOnes[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  const int64_t full = n / Vec::kLanes * Vec::kLanes;
  const Vec::Mask mask = Vec::MaskOf(n - full);
  const Vec inside = Vec::LoadMasked(kOnes, mask);
  const auto load = [&](int r, int64_t i) {
    return i < full ? Vec::Load(x + r * n + i) : Vec::LoadMasked(x + r * n + i, mask);
  };
  float means[kRows] = {}, variances[kRows], rests[kRows] = {};
  Vec sums[kRows], squares[kRows];
  if (norm.centred) {
    for (int r = 0; r < kRows; ++r) sums[r] = Vec::Zero();
    for (int64_t i = 0; i < n; i += Vec::kLanes) {
      for (int r = 0; r < kRows; ++r) sums[r] = sums[r] + load(r, i);
    }
    MeansOf<kRows>(sums, n, means);
  }
  for (int r = 0; r < kRows; ++r) sums[r] = squares[r] = Vec::Zero();
  for (int64_t i = 0; i < n; i += Vec::kLanes) {
    for (int r = 0; r < kRows; ++r) {
      Vec away = load(r, i) - Vec::Set(means[r]);
      if (i == full) away = away * inside;
      squares[r] = Vec::Fma(away, away, squares[r]);
      sums[r] = sums[r] + away;
    }
  }
  MeansOf<kRows>(squares, n, variances);
  if (norm.centred) MeansOf<kRows>(sums, n, rests);
  for (int r = 0; r < kRows; ++r) {
    const float rounded = variances[r] - rests[r] * rests[r];
    const float variance = rounded < 0 ? 0 : rounded;
    variances[r] = 1.0f / __builtin_sqrtf(variance + norm.eps);
  }
  for (int64_t i = 0; i < n; i += Vec::kLanes) {
    Vec scale = Vec::Set(1.0f), shift = Vec::Zero();
    if (norm.scale != nullptr) {
      scale = i < full ? Vec::Load(norm.scale + i) : Vec::LoadMasked(norm.scale + i, mask);
      shift = i < full ? Vec::Load(norm.shift + i) : Vec::LoadMasked(norm.shift + i, mask);
    }
    for (int r = 0; r < kRows; ++r) {
      const Vec away = load(r, i) - Vec::Set(means[r]) - Vec::Set(rests[r]);
      const Vec out = Vec::Fma(away * Vec::Set(variances[r]), scale, shift);
      i < full ? out.Store(y + r * n + i) : out.StoreMasked(y + r * n + i, mask);
    }
  }
}

void LayerNorm(const RowNorm& norm, const float* x, float* y, int64_t rows, int64_t n) {
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) LayerNormRows<4>(norm, x + r * n, y + r * n, n);
  for (; r < rows; ++r) LayerNormRows<1>(norm, x + r * n, y + r * n, n);
}

// ------------------------------------------------------------------------------------------ sums

// kVecs vectors of columns, two chains each.
template <int kVecs, class LoadFn>
[[gnu::always_inline]] inline void WeightedColumns(const float* w, const float* v, int64_t stride,
                                                   int64_t count, Vec (&sum)[kVecs], LoadFn load) {
  Vec odd[kVecs];
#pragma GCC unroll 4
  for (int j = 0; j < kVecs; ++j) sum[j] = odd[j] = Vec::Zero();
  int64_t t = 0;
  for (; t + 2 <= count; t += 2, v += 2 * stride) {
    const Vec w0 = Vec::Broadcast(w + t), w1 = Vec::Broadcast(w + t + 1);
#pragma GCC unroll 4
    for (int j = 0; j < kVecs; ++j) {
      sum[j] = Vec::Fma(w0, load(v + j * Vec::kLanes), sum[j]);
      odd[j] = Vec::Fma(w1, load(v + stride + j * Vec::kLanes), odd[j]);
    }
  }
  if (t < count) {
    const Vec w0 = Vec::Broadcast(w + t);
#pragma GCC unroll 4
    for (int j = 0; j < kVecs; ++j) sum[j] = Vec::Fma(w0, load(v + j * Vec::kLanes), sum[j]);
  }
#pragma GCC unroll 4
  for (int j = 0; j < kVecs; ++j) sum[j] = sum[j] + odd[j];
}

void WeightedSum(const float* w, const float* v, int64_t stride, int64_t count, int64_t n,
                 float* y) {
  constexpr int kVecs = 4;
  const auto load = [](const float* p) { return Vec::Load(p); };
  int64_t j = 0;
  for (; j + kVecs * Vec::kLanes <= n; j += kVecs * Vec::kLanes) {
    Vec sum[kVecs];
    WeightedColumns(w, v + j, stride, count, sum, load);
    for (int i = 0; i < kVecs; ++i) sum[i].Store(y + j + i * Vec::kLanes);
  }
  Vec sum[1];
  for (; j + Vec::kLanes <= n; j += Vec::kLanes) {
    WeightedColumns(w, v + j, stride, count, sum, load);
    sum[0].Store(y + j);
  }
  if (j == n) return;
  const Vec::Mask mask = Vec::MaskOf(n - j);
  WeightedColumns(w, v + j, stride, count, sum,
                  [mask](const float* p) { return Vec::LoadMasked(p, mask); });
  sum[0].StoreMasked(y + j, mask);
}

// Values [0, n) of b = wk + q * wp, where wk may be null.
[[gnu::always_inline]] inline void ScaleRow(const float* wk, const float* wp, Vec q, int64_t n,
                                            float* b) {
  for (int64_t j = 0; j < n; j += Vec::kLanes) {
    if (n < Vec::kLanes) {
      const Vec p = Vec::LoadHalfPanel(wp);
      (wk == nullptr ? q * p : Vec::Fma(q, p, Vec::LoadHalfPanel(wk)))
          .StoreMasked(b, Vec::MaskOf(n));
    } else {
      const Vec p = Vec::Load(wp + j);
      (wk == nullptr ? q * p : Vec::Fma(q, p, Vec::Load(wk + j))).Store(b + j);
    }
  }
}

// Padding is scaled, too, and stays 0.  A q that is not finite makes it NaN, which no one reads.
void ScaleRows(const MatrixView& wk, const MatrixView& wp, const float* q, float* b) {
  if (wp.columns) {
    for (int64_t i = 0; i < wp.n * wp.k; ++i) {
      b[i] = (wk.data != nullptr ? wk.data[i] : 0.0f) + q[i % wp.k] * wp.data[i];
    }
    return;
  }
  int64_t at = 0;
  const float* k = wk.data;
  for (int64_t column = 0; column < wp.n; column += MatrixView::kPanel) {
    const bool whole = column + MatrixView::kPanel <= wp.n;
    const int64_t width = whole ? wp.row_stride : wp.tail_row_stride;
    for (int64_t i = 0; i < wp.k; ++i, at += width) {
      ScaleRow(k == nullptr ? k : k + at, wp.data + at, Vec::Broadcast(q + i),
               whole ? MatrixView::kPanel : width, b + at);
    }
  }
}

float Dot(const float* a, const float* b, int64_t n) {
  Vec sum = Vec::Zero(), odd = Vec::Zero();
  int64_t i = 0;
  for (; i + 2 * Vec::kLanes <= n; i += 2 * Vec::kLanes) {
    sum = Vec::Fma(Vec::Load(a + i), Vec::Load(b + i), sum);
    odd = Vec::Fma(Vec::Load(a + i + Vec::kLanes), Vec::Load(b + i + Vec::kLanes), odd);
  }
  for (; i < n; i += Vec::kLanes) {
    const Vec::Mask mask = Vec::MaskOf(Least(n - i, Vec::kLanes));
    sum = Vec::Fma(Vec::LoadMasked(a + i, mask), Vec::LoadMasked(b + i, mask), sum);
  }
  return SumOf(sum + odd);
}

}  // namespace
}  // namespace ulfd::engine
// NOLINTEND(misc-definitions-in-headers,bugprone-implicit-widening-of-multiplication-result)

#endif  // ULFD_ENGINE_KERNELS_ELEMENTWISE_BODY_H_

// Elementwise functions of a vector.  Included after a vec_*.h by the sources that table.h names.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_KERNELS_MATH_BODY_H_
#define ULFD_ENGINE_KERNELS_MATH_BODY_H_

#include "engine/kernels/types.h"

namespace ulfd::engine {
namespace {

inline int64_t Least(int64_t a, int64_t b) { return a < b ? a : b; }

// Several vectors, whose operations alternate: a function of one vector is a chain of operations
// that wait for each other, and chains side by side keep the machine busy.  On arrays four take
// 0.85 of the time of two (exp, tanh; sigmoid 0.93; kernels_bench, Zen 3); behind the products of
// fc and attention no difference was measured.  All functions below take one, two or four.
template <class Half>
struct Pair {
  static constexpr int kLanes = 2 * Half::kLanes;
  Half a, b;

  [[gnu::always_inline]] static Pair Set(float x) { return {Half::Set(x), Half::Set(x)}; }
  [[gnu::always_inline]] static Pair Load(const float* p) {
    return {Half::Load(p), Half::Load(p + Half::kLanes)};
  }
  [[gnu::always_inline]] void Store(float* p) const {
    a.Store(p);
    b.Store(p + Half::kLanes);
  }
  [[gnu::always_inline]] friend Pair operator+(Pair x, Pair y) { return {x.a + y.a, x.b + y.b}; }
  [[gnu::always_inline]] friend Pair operator-(Pair x, Pair y) { return {x.a - y.a, x.b - y.b}; }
  [[gnu::always_inline]] friend Pair operator*(Pair x, Pair y) { return {x.a * y.a, x.b * y.b}; }
  [[gnu::always_inline]] friend Pair operator/(Pair x, Pair y) { return {x.a / y.a, x.b / y.b}; }
  [[gnu::always_inline]] static Pair Fma(Pair x, Pair y, Pair z) {
    return {Half::Fma(x.a, y.a, z.a), Half::Fma(x.b, y.b, z.b)};
  }
  [[gnu::always_inline]] static Pair Fnma(Pair x, Pair y, Pair z) {
    return {Half::Fnma(x.a, y.a, z.a), Half::Fnma(x.b, y.b, z.b)};
  }
  [[gnu::always_inline]] static Pair Max(Pair x, Pair y) {
    return {Half::Max(x.a, y.a), Half::Max(x.b, y.b)};
  }
  [[gnu::always_inline]] static Pair Min(Pair x, Pair y) {
    return {Half::Min(x.a, y.a), Half::Min(x.b, y.b)};
  }
  [[gnu::always_inline]] static Pair SelectGreater(Pair x, Pair y, Pair t, Pair f) {
    return {Half::SelectGreater(x.a, y.a, t.a, f.a), Half::SelectGreater(x.b, y.b, t.b, f.b)};
  }
  [[gnu::always_inline]] static Pair SelectEqual(Pair x, Pair y, Pair t, Pair f) {
    return {Half::SelectEqual(x.a, y.a, t.a, f.a), Half::SelectEqual(x.b, y.b, t.b, f.b)};
  }
  [[gnu::always_inline]] static Pair Or(Pair x, Pair y) {
    return {Half::Or(x.a, y.a), Half::Or(x.b, y.b)};
  }
  [[gnu::always_inline]] static Pair And(Pair x, Pair y) {
    return {Half::And(x.a, y.a), Half::And(x.b, y.b)};
  }
  [[gnu::always_inline]] static Pair ShiftToExponent(Pair x, Pair base) {
    return {Half::ShiftToExponent(x.a, base.a), Half::ShiftToExponent(x.b, base.b)};
  }
  [[gnu::always_inline]] static Pair ExponentBits(Pair x) {
    return {Half::ExponentBits(x.a), Half::ExponentBits(x.b)};
  }
};
using Two = Pair<Vec>;
using Four = Pair<Two>;

// exp(x) = 2^n * exp(r) with n = round(x / ln 2), |r| <= ln 2 / 2.  Adding 1.5 * 2^23 rounds and
// leaves n in the low bits of the sum; ln 2 is subtracted in two parts, the first of which has few
// enough bits that n times it is exact.
template <class T>
struct Reduced {
  T shifted;  // n + 1.5 * 2^23.
  T n, r;
};
constexpr float kRound = 12582912.0f;

template <class T>
[[gnu::always_inline]] inline Reduced<T> Reduce(T x) {
  Reduced<T> z;
  z.shifted = T::Fma(x, T::Set(1.44269504f), T::Set(kRound));
  z.n = z.shifted - T::Set(kRound);
  z.r = T::Fnma(z.n, T::Set(0.693359375f), x);
  z.r = T::Fnma(z.n, T::Set(-2.12194440e-4f), z.r);
  return z;
}

// 2^(n + extra) for an n + 1.5 * 2^23, if that is a normal number.
template <class T>
[[gnu::always_inline]] inline T PowerOfTwo(T shifted, float two_to_extra) {
  return T::ShiftToExponent(shifted, T::Set(two_to_extra));
}

// exp(r), relative error 3e-9 before rounding.  Coefficients: minimax, as those below.
template <class T>
[[gnu::always_inline]] inline T ExpOfReduced(T r) {
  T p = T::Set(0.0013814599f);
  p = T::Fma(p, r, T::Set(0.008368717f));
  p = T::Fma(p, r, T::Set(0.04166839f));
  p = T::Fma(p, r, T::Set(0.16666521f));
  p = T::Fma(p, r, T::Set(0.49999994f));
  p = T::Fma(p, r, T::Set(1.0f));
  return T::Fma(p, r, T::Set(1.0f));
}

// Constants leave a NaN alone as first operands of Max and Min.
constexpr float kExpUnderflow = -104.5f;  // exp of less rounds to 0.
constexpr float kTwoTo30 = 1073741824.0f;

// exp(x) for x <= 0; scaled by 2^30 first, so that nothing is denormal before the last product.
template <class T>
[[gnu::always_inline]] inline T ExpOfNegative(T x) {
  const Reduced<T> z = Reduce(T::Max(T::Set(kExpUnderflow), x));
  return ExpOfReduced(z.r) * PowerOfTwo(z.shifted, kTwoTo30) * T::Set(1.0f / kTwoTo30);
}

template <class T>
[[gnu::always_inline]] inline T Exp(T x) {
  const Reduced<T> z = Reduce(T::Min(T::Set(89.0f), T::Max(T::Set(kExpUnderflow), x)));
  // In two steps, neither of which leaves the normal numbers before the last multiplication.
  const T half = T::Fma(z.n, T::Set(0.5f), T::Set(kRound));
  const T rest = z.shifted - (half - T::Set(kRound));
  return ExpOfReduced(z.r) * PowerOfTwo(half, 1.0f) * PowerOfTwo(rest, 1.0f);
}

// Method and coefficients of Cephes' logf: log of the mantissa in [sqrt(1/2), sqrt(2)) as a
// polynomial, plus exponent * log 2.
template <class T>
[[gnu::always_inline]] inline T Log(T x) {
  constexpr float kMin = 1.17549435e-38f, kInfinity = __builtin_inff();
  const T zero = T::Set(0.0f);
  // Denormal numbers times 2^23.
  const T normal = T::SelectGreater(T::Set(kMin), x, x * T::Set(8388608.0f), x);
  const T bias = T::SelectGreater(T::Set(kMin), x, T::Set(126.0f + 23.0f), T::Set(126.0f));
  T e = T::ExponentBits(normal) - bias;
  // The largest denormal number is the mask of the mantissa; [0.5, 1).
  T m = T::Or(T::And(normal, T::Set(0x1.fffffcp-127f)), T::Set(0.5f));
  const T half = T::Set(0.707106781f);
  e = T::SelectGreater(half, m, e - T::Set(1.0f), e);
  m = T::SelectGreater(half, m, m + m, m) - T::Set(1.0f);
  const T z = m * m;
  T p = T::Set(7.0376836292e-2f);
  p = T::Fma(p, m, T::Set(-1.1514610310e-1f));
  p = T::Fma(p, m, T::Set(1.1676998740e-1f));
  p = T::Fma(p, m, T::Set(-1.2420140846e-1f));
  p = T::Fma(p, m, T::Set(1.4249322787e-1f));
  p = T::Fma(p, m, T::Set(-1.6668057665e-1f));
  p = T::Fma(p, m, T::Set(2.0000714765e-1f));
  p = T::Fma(p, m, T::Set(-2.4999993993e-1f));
  p = T::Fma(p, m, T::Set(3.3333331174e-1f));
  T y = T::Fnma(T::Set(2.12194440e-4f), e, m * z * p);
  y = T::Fnma(T::Set(0.5f), z, y);
  y = T::Fma(T::Set(0.693359375f), e, m + y);
  y = T::SelectGreater(T::Set(kInfinity), x, y, x);  // Infinity and NaN are their own logarithms.
  y = T::SelectGreater(x, zero, y, T::Set(-kInfinity));
  return T::SelectGreater(zero, x, T::Set(__builtin_nanf("")), T::SelectEqual(x, x, y, x));
}

// With z = exp(x): z / (1 + z), both scaled by 2^30, so that small results lose no digits.  Beyond
// 60 it is 1.  (A coefficient less would save a tenth of the time and cost 2e-7.)
template <class T>
[[gnu::always_inline]] inline T Sigmoid(T x) {
  const Reduced<T> reduced = Reduce(T::Min(T::Set(60.0f), T::Max(T::Set(kExpUnderflow), x)));
  const T z = ExpOfReduced(reduced.r) * PowerOfTwo(reduced.shifted, kTwoTo30);
  return z / (z + T::Set(kTwoTo30));
}

// With e = exp(-2|x|) - 1, which keeps its digits near 0: |tanh x| = -e / (2 + e).
template <class T>
[[gnu::always_inline]] inline T Tanh(T x) {
  const T sign = T::Set(-0.0f);
  const T negative = T::Or(x, sign);
  const Reduced<T> z = Reduce(T::Max(T::Set(-40.0f), negative + negative));
  T q = T::Set(0.0013882521f);
  q = T::Fma(q, z.r, T::Set(0.0083665205f));
  q = T::Fma(q, z.r, T::Set(0.0416672f));
  q = T::Fma(q, z.r, T::Set(0.16666543f));
  q = T::Fma(q, z.r, T::Set(0.49999997f));
  q = T::Fma(q, z.r * z.r, z.r);  // exp(r) - 1.
  const T scale = PowerOfTwo(z.shifted, 1.0f);
  const T e = T::Fma(scale, q, scale - T::Set(1.0f));
  const T magnitude = (T::Set(0.0f) - e) / (e + T::Set(2.0f));
  return T::Or(magnitude, T::And(x, sign));
}

template <class T>
[[gnu::always_inline]] inline T Relu(T x) {
  return T::Max(T::Set(0.0f), x);
}

template <class T>
[[gnu::always_inline]] inline T Prelu(T x, T slope) {
  return T::SelectGreater(x, T::Set(0.0f), x, slope * x);
}

template <class T>
[[gnu::always_inline]] inline T Centre(T x, T mean, T scale, T beta) {
  return T::Fma(x - mean, scale, beta);
}

template <class T>
[[gnu::always_inline]] inline T Dice(T x, T mean, T scale, T gamma) {
  const T p = Sigmoid((x - mean) * scale);
  return x * T::Fma(T::Set(1.0f) - p, gamma, p);
}

// Activation `kKind` of a vector of columns that begin at `column`; load(p) reads the parameters.
template <Activation::Kind kKind, class T, class LoadFn>
[[gnu::always_inline]] inline T Activate(const Activation& a, T x, int64_t column, LoadFn load) {
  using Kind = Activation::Kind;
  if constexpr (kKind == Kind::kRelu) return Relu(x);
  if constexpr (kKind == Kind::kPrelu) return Prelu(x, load(a.slope + column));
  if constexpr (kKind == Kind::kSigmoid) return Sigmoid(x);
  if constexpr (kKind == Kind::kTanh) return Tanh(x);
  if constexpr (kKind == Kind::kDice) {
    return Dice(x, load(a.mean + column), load(a.scale + column), load(a.gamma + column));
  }
  return x;
}

}  // namespace
}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_KERNELS_MATH_BODY_H_

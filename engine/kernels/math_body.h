// Elementwise functions of a vector.  Included after a vec_*.h by the sources that table.h names.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_KERNELS_MATH_BODY_H_
#define ULFD_ENGINE_KERNELS_MATH_BODY_H_

#include "engine/kernels/types.h"

// Built once per instruction set.
// NOLINTBEGIN(misc-definitions-in-headers)
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
  [[gnu::always_inline]] static Pair Xor(Pair x, Pair y) {
    return {Half::Xor(x.a, y.a), Half::Xor(x.b, y.b)};
  }
  [[gnu::always_inline]] static Pair Round(Pair x) { return {Half::Round(x.a), Half::Round(x.b)}; }
  [[gnu::always_inline]] static Pair Sqrt(Pair x) { return {Half::Sqrt(x.a), Half::Sqrt(x.b)}; }
  [[gnu::always_inline]] static Pair And(Pair x, Pair y) {
    return {Half::And(x.a, y.a), Half::And(x.b, y.b)};
  }
  [[gnu::always_inline]] static Pair Reciprocal(Pair x) {
    return {Half::Reciprocal(x.a), Half::Reciprocal(x.b)};
  }
  [[gnu::always_inline]] static Pair CoarseReciprocal(Pair x) {
    return {Half::CoarseReciprocal(x.a), Half::CoarseReciprocal(x.b)};
  }
  [[gnu::always_inline]] static Pair Exp2Bits(Pair x) {
    return {Half::Exp2Bits(x.a), Half::Exp2Bits(x.b)};
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

// exp(x) = 2^(n / s) * exp(r) with n = round(x * s / ln 2), |r| <= ln 2 / 2s, for s = kSteps; for a
// negative s exp(-x) = 2^(n / -s) * exp(-r).  Adding 1.5 * 2^23 rounds and leaves n in the low bits
// of the sum; ln 2 is subtracted in two parts, the first of which has few enough bits that n times
// it is exact.
constexpr float kRound = 12582912.0f;
template <class T>
struct Reduced {
  T shifted;  // n + round.
  T r;
};
template <int kSteps, class T>
[[gnu::always_inline]] inline Reduced<T> Reduce(T x, T round) {
  Reduced<T> z;
  z.shifted = T::Fma(x, T::Set(kSteps * 1.44269504f), round);
  const T n = z.shifted - round;
  z.r = T::Fnma(n, T::Set(0.693359375f / kSteps), x);
  z.r = T::Fnma(n, T::Set(-2.12194440e-4f / kSteps), z.r);
  return z;
}

// What Exp and Sigmoid reduce by.  Added to kRound, so many steps are a factor of 2^exponent.
constexpr int kSteps = Vec::kExpSteps;
constexpr float StepsOf(int exponent) { return static_cast<float>(kSteps * exponent); }

// exp(r) - 1, or with a sign of -1 exp(-r) - 1, within 6e-8 (32 steps), 3e-8 (8 steps) or 3e-9 of
// exp(r).  Coefficients: minimax.
template <int kSign = 1, class T>
[[gnu::always_inline]] inline T ExpOfReducedLess1(T r) {
  if constexpr (kSteps == 32) return r * T::Fma(r, T::Set(0.500004f), T::Set(kSign * 1.0000147f));
  if constexpr (kSteps == 8) {
    const T p = T::Fma(r, T::Set(kSign * 0.1666862f), T::Set(0.5000647f));
    return r * T::Fma(p, r, T::Set(kSign));
  }
  T p = T::Set(0.0013814599f);
  p = T::Fma(p, r, T::Set(kSign * 0.008368717f));
  p = T::Fma(p, r, T::Set(0.04166839f));
  p = T::Fma(p, r, T::Set(kSign * 0.16666521f));
  p = T::Fma(p, r, T::Set(0.49999994f));
  return r * T::Fma(p, r, T::Set(kSign));
}

// Constants leave a NaN alone as first operands of Max and Min.
constexpr float kExpUnderflow = -104.5f;  // exp of less rounds to 0.
constexpr float kTwoTo30 = 1073741824.0f;
constexpr float kTwoTo64 = 18446744073709551616.0f;

// exp(x) * 2^e for a `round` of kRound + StepsOf(e), if that is a normal number.
template <class T>
[[gnu::always_inline]] inline T ScaledExp(T x, T round) {
  const Reduced<T> z = Reduce<kSteps>(x, round);
  const T power = T::Exp2Bits(z.shifted);
  return T::Fma(power, ExpOfReducedLess1(z.r), power);
}

// exp(x) for x <= 0; scaled by 2^30 first, so that nothing is denormal before the last product.
template <class T>
[[gnu::always_inline]] inline T ExpOfNegative(T x) {
  return ScaledExp(T::Max(T::Set(kExpUnderflow), x), T::Set(kRound + StepsOf(30))) *
         T::Set(1.0f / kTwoTo30);
}

template <class T>
[[gnu::always_inline]] inline T Exp(T x) {
  x = T::Min(T::Set(89.0f), T::Max(T::Set(kExpUnderflow), x));
  // Neither denormal nor infinite before the last product.
  const T zero = T::Set(0.0f);
  const T round =
      T::SelectGreater(zero, x, T::Set(kRound + StepsOf(64)), T::Set(kRound - StepsOf(64)));
  const T scale = T::SelectGreater(zero, x, T::Set(1.0f / kTwoTo64), T::Set(kTwoTo64));
  return ScaledExp(x, round) * scale;
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

// The sine of x and half of pi times 2 `shift`, |x| <= kMostSine: what is left of the nearest
// multiple of pi, taken off in three pieces, by a polynomial of Taylor's.
constexpr float kMostSine = 8192.0f;
template <class T>
[[gnu::always_inline]] inline T Sine(T x, T shift) {
  const T round = T::Set(12582912.0f);  // 1.5 * 2^23
  const T n = T::Fma(x, T::Set(0.318309886f), shift) + round - round;
  const T turns = n - shift;
  T r = T::Fnma(turns, T::Set(3.140625f), x);
  r = T::Fnma(turns, T::Set(9.67502594e-4f), r);
  r = T::Fnma(turns, T::Set(1.50995799e-7f), r);
  const T even = T::Fma(n, T::Set(0.5f), T::Set(-0.25f)) + round - round;  // n / 2, rounded down.
  const T sign = T::Fma(T::Fnma(T::Set(2.0f), even, n), T::Set(-2.0f), T::Set(1.0f));
  const T z = r * r;
  T p = T::Set(-2.50521084e-8f);
  p = T::Fma(p, z, T::Set(2.75573192e-6f));
  p = T::Fma(p, z, T::Set(-1.98412698e-4f));
  p = T::Fma(p, z, T::Set(8.33333333e-3f));
  p = T::Fma(p, z, T::Set(-0.166666667f));
  return sign * T::Fma(p, r * z, r);
}

// 1 / (1 + exp(-x)) within 1.3e-4 of it, a thirtieth of what bf16 rounds by: exp(-r) as 1 - r.
template <class T>
[[gnu::always_inline]] inline T CoarseSigmoid(T x) {
  x = T::Min(T::Set(87.0f), T::Max(T::Set(-87.0f), x));
  constexpr float kLn2 = 0.693147181f;
  const T round = T::Set(kRound);
  const T shifted = T::Fma(x, T::Set(-kSteps / kLn2), round);
  const T r = T::Fma(shifted - round, T::Set(kLn2 / kSteps), x);
  const T power = T::Exp2Bits(shifted);
  return T::CoarseReciprocal(T::Fnma(power, r, power) + T::Set(1.0f));
}

// 1 / (1 + exp(-x)), the sum scaled by 2^-30, so that small results lose no digits.  Beyond 60 it
// is 1.
template <class T>
[[gnu::always_inline]] inline T Sigmoid(T x) {
  if constexpr (kCoarse) return CoarseSigmoid(x);
  x = T::Min(T::Set(60.0f), T::Max(T::Set(kExpUnderflow), x));
  const T one = T::Set(1.0f / kTwoTo30);
  const Reduced<T> z = Reduce<-kSteps>(x, T::Set(kRound - StepsOf(30)));
  const T power = T::Exp2Bits(z.shifted);
  // The small terms first.
  const T sum = power + T::Fma(power, ExpOfReducedLess1<-1>(z.r), one);
  return T::Reciprocal(sum) * one;
}

// exp(x) - 1 for -40 <= x <= 0, which keeps its digits near 0.
template <class T>
[[gnu::always_inline]] inline T ExpOfNegativeLess1(T x) {
  const Reduced<T> z = Reduce<1>(x, T::Set(kRound));
  T q = T::Set(0.0013882521f);
  q = T::Fma(q, z.r, T::Set(0.0083665205f));
  q = T::Fma(q, z.r, T::Set(0.0416672f));
  q = T::Fma(q, z.r, T::Set(0.16666543f));
  q = T::Fma(q, z.r, T::Set(0.49999997f));
  q = T::Fma(q, z.r * z.r, z.r);                                // exp(r) - 1.
  const T scale = T::ShiftToExponent(z.shifted, T::Set(1.0f));  // 2^n.
  return T::Fma(scale, q, scale - T::Set(1.0f));
}

// With e = exp(-2|x|) - 1: |tanh x| = -e / (2 + e).
template <class T>
[[gnu::always_inline]] inline T Tanh(T x) {
  const T sign = T::Set(-0.0f);
  const T negative = T::Or(x, sign);
  const T e = ExpOfNegativeLess1(T::Max(T::Set(-40.0f), negative + negative));
  const T magnitude = (T::Set(0.0f) - e) / (e + T::Set(2.0f));
  return T::Or(magnitude, T::And(x, sign));
}

// 1 - exp(log(1 - erf x)), where the logarithm is x by a polynomial (minimax, weighted by what it
// does to the result).
template <class T>
[[gnu::always_inline]] inline T Erf(T x) {
  constexpr float kOne = 3.95f;  // From there on the result rounds to 1.
  const T sign = T::And(x, T::Set(-0.0f));
  const T t = T::Min(T::Set(kOne), T::Xor(x, sign));
  T p = T::Set(9.256243e-6f);
  p = T::Fma(p, t, T::Set(-1.1764107e-4f));
  p = T::Fma(p, t, T::Set(6.328361e-4f));
  p = T::Fma(p, t, T::Set(-1.6670258e-3f));
  p = T::Fma(p, t, T::Set(1.6039435e-4f));
  p = T::Fma(p, t, T::Set(1.9153064e-2f));
  p = T::Fma(p, t, T::Set(-0.10277783f));
  p = T::Fma(p, t, T::Set(-0.6366194f));
  p = T::Fma(p, t, T::Set(-1.1283792f));
  return T::Or(T::Set(0.0f) - ExpOfNegativeLess1(p * t), sign);
}

template <class T>
[[gnu::always_inline]] inline T Floor(T x) {
  const T nearest = T::Round(x);
  return T::SelectGreater(nearest, x, nearest - T::Set(1.0f), nearest);
}
template <class T>
[[gnu::always_inline]] inline T Trunc(T x) {
  const T sign = T::And(x, T::Set(-0.0f));
  return T::Or(Floor(T::Xor(x, sign)), sign);
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
// NOLINTEND(misc-definitions-in-headers)

#endif  // ULFD_ENGINE_KERNELS_MATH_BODY_H_

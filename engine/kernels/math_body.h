// Elementwise functions of a vector.  Included after a vec_*.h by the sources that table.h names.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_KERNELS_MATH_BODY_H_
#define ULFD_ENGINE_KERNELS_MATH_BODY_H_

#include "engine/kernels/types.h"

namespace ulfd::engine {
namespace {

inline int64_t Least(int64_t a, int64_t b) { return a < b ? a : b; }

// exp(x) = 2^n * exp(r) with n = round(x / ln 2), |r| <= ln 2 / 2.  Adding 1.5 * 2^23 rounds and
// leaves n in the low bits of the sum; ln 2 is subtracted in two parts, the first of which has few
// enough bits that n times it is exact.
struct Reduced {
  Vec shifted;  // n + 1.5 * 2^23.
  Vec n, r;
};
constexpr float kRound = 12582912.0f;

[[gnu::always_inline]] inline Reduced Reduce(Vec x) {
  Reduced z;
  z.shifted = Vec::Fma(x, Vec::Set(1.44269504f), Vec::Set(kRound));
  z.n = z.shifted - Vec::Set(kRound);
  z.r = Vec::Fnma(z.n, Vec::Set(0.693359375f), x);
  z.r = Vec::Fnma(z.n, Vec::Set(-2.12194440e-4f), z.r);
  return z;
}

// 2^(n + extra) for an n + 1.5 * 2^23, if that is a normal number.
[[gnu::always_inline]] inline Vec PowerOfTwo(Vec shifted, float two_to_extra) {
  return Vec::ShiftToExponent(shifted, Vec::Set(two_to_extra));
}

// exp(r), relative error 3e-9 before rounding.  Coefficients: minimax, as those below.
[[gnu::always_inline]] inline Vec ExpOfReduced(Vec r) {
  Vec p = Vec::Set(0.0013814599f);
  p = Vec::Fma(p, r, Vec::Set(0.008368717f));
  p = Vec::Fma(p, r, Vec::Set(0.04166839f));
  p = Vec::Fma(p, r, Vec::Set(0.16666521f));
  p = Vec::Fma(p, r, Vec::Set(0.49999994f));
  p = Vec::Fma(p, r, Vec::Set(1.0f));
  return Vec::Fma(p, r, Vec::Set(1.0f));
}

// Constants leave a NaN alone as first operands of Max and Min.
constexpr float kExpUnderflow = -104.5f;  // exp of less rounds to 0.
constexpr float kTwoTo30 = 1073741824.0f;

// 2^30 * exp(x) for x <= 0, which is never denormal.  NaN gives NaN.
[[gnu::always_inline]] inline Vec ScaledExpOfNegative(Vec x) {
  const Reduced z = Reduce(Vec::Max(Vec::Set(kExpUnderflow), x));
  return ExpOfReduced(z.r) * PowerOfTwo(z.shifted, kTwoTo30);
}

// exp(x) for x <= 0.
[[gnu::always_inline]] inline Vec ExpOfNegative(Vec x) {
  return ScaledExpOfNegative(x) * Vec::Set(1.0f / kTwoTo30);
}

[[gnu::always_inline]] inline Vec Exp(Vec x) {
  const Reduced z = Reduce(Vec::Min(Vec::Set(89.0f), Vec::Max(Vec::Set(kExpUnderflow), x)));
  // In two steps, neither of which leaves the normal numbers before the last multiplication.
  const Vec half = Vec::Fma(z.n, Vec::Set(0.5f), Vec::Set(kRound));
  const Vec rest = z.shifted - (half - Vec::Set(kRound));
  return ExpOfReduced(z.r) * PowerOfTwo(half, 1.0f) * PowerOfTwo(rest, 1.0f);
}

// With z = exp(-|x|): 1 / (1 + z) or z / (1 + z), both scaled by 2^30 above and below.
[[gnu::always_inline]] inline Vec Sigmoid(Vec x) {
  const Vec z = ScaledExpOfNegative(Vec::Or(x, Vec::Set(-0.0f)));
  const Vec one = Vec::Set(kTwoTo30);
  return Vec::SelectNegative(x, z, one) / (one + z);
}

// With e = exp(-2|x|) - 1, which keeps its digits near 0: |tanh x| = -e / (2 + e).
[[gnu::always_inline]] inline Vec Tanh(Vec x) {
  const Vec sign = Vec::Set(-0.0f);
  const Vec negative = Vec::Or(x, sign);
  const Reduced z = Reduce(Vec::Max(Vec::Set(-40.0f), negative + negative));
  Vec q = Vec::Set(0.0013882521f);
  q = Vec::Fma(q, z.r, Vec::Set(0.0083665205f));
  q = Vec::Fma(q, z.r, Vec::Set(0.0416672f));
  q = Vec::Fma(q, z.r, Vec::Set(0.16666543f));
  q = Vec::Fma(q, z.r, Vec::Set(0.49999997f));
  q = Vec::Fma(q, z.r * z.r, z.r);  // exp(r) - 1.
  const Vec scale = PowerOfTwo(z.shifted, 1.0f);
  const Vec e = Vec::Fma(scale, q, scale - Vec::Set(1.0f));
  const Vec magnitude = (Vec::Zero() - e) / (e + Vec::Set(2.0f));
  return Vec::Or(magnitude, Vec::And(x, sign));
}

[[gnu::always_inline]] inline Vec Relu(Vec x) { return Vec::Max(Vec::Zero(), x); }

[[gnu::always_inline]] inline Vec Prelu(Vec x, Vec slope) {
  return Vec::SelectGreater(x, Vec::Zero(), x, slope * x);
}

[[gnu::always_inline]] inline Vec Centre(Vec x, Vec mean, Vec scale, Vec beta) {
  return Vec::Fma(x - mean, scale, beta);
}

[[gnu::always_inline]] inline Vec Dice(Vec x, Vec mean, Vec scale, Vec gamma) {
  const Vec p = Sigmoid((x - mean) * scale);
  return x * Vec::Fma(Vec::Set(1.0f) - p, gamma, p);
}

// Activation `kKind` of a vector of columns that begin at `column`; load(p) reads the parameters.
template <Activation::Kind kKind, class LoadFn>
[[gnu::always_inline]] inline Vec Activate(const Activation& a, Vec x, int64_t column,
                                           LoadFn load) {
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

// Entries along an axis that become one.  Included after a vec_*.h by the sources that table.h
// names.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_KERNELS_REDUCE_BODY_H_
#define ULFD_ENGINE_KERNELS_REDUCE_BODY_H_

#include "engine/kernels/math_body.h"
#include "engine/kernels/table.h"
#include "engine/kernels/transpose_body.h"

// Built once per instruction set.
// NOLINTBEGIN(misc-definitions-in-headers)
namespace ulfd::engine {
namespace {

constexpr float kInfinite = __builtin_inff();

// How entry x at place t is added to what others made, in kParts vectors, which begin as kOfNone.
// An entry of kNothing changes nothing.
template <ReduceOp kOp>
struct Reduction {
  static constexpr int kParts = 1;
  static constexpr float kNothing = kOp == ReduceOp::kMax       ? -kInfinite
                                    : kOp == ReduceOp::kMin     ? kInfinite
                                    : kOp == ReduceOp::kProduct ? 1.0f
                                                                : 0.0f;
  static constexpr float kOfNone[] = {kNothing};

  template <class T>
  [[gnu::always_inline]] static void Add(T x, T, T (&folded)[kParts]) {
    T& y = folded[0];
    if constexpr (kOp == ReduceOp::kSum) y = y + x;
    if constexpr (kOp == ReduceOp::kProduct) y = y * x;
    if constexpr (kOp == ReduceOp::kMax) y = T::SelectEqual(y, y, T::Max(y, x), y);
    if constexpr (kOp == ReduceOp::kMin) y = T::SelectEqual(y, y, T::Min(y, x), y);
  }
  template <class T>
  [[gnu::always_inline]] static void Merge(const T (&other)[kParts], T (&folded)[kParts]) {
    Add(other[0], other[0], folded);
  }
  template <class T>
  [[gnu::always_inline]] static T Result(const T (&folded)[kParts]) {
    return folded[0];
  }
};

// The merit of the best, and its place.
template <bool kSmallest>
struct BestPlace {
  static constexpr int kParts = 2;
  static constexpr float kNothing = __builtin_nanf("");
  static constexpr float kOfNone[] = {-kInfinite, kInfinite};

  template <class T>
  [[gnu::always_inline]] static void Add(T x, T t, T (&best)[kParts]) {
    const T signed_x = kSmallest ? T::Xor(x, T::Set(-0.0f)) : x;
    const T merit = T::SelectEqual(x, x, signed_x, T::Set(-kInfinite));
    best[1] = T::SelectGreater(merit, best[0], t, best[1]);
    best[0] = T::Max(merit, best[0]);
  }
  template <class T>
  [[gnu::always_inline]] static void Merge(const T (&other)[kParts], T (&best)[kParts]) {
    const T of_equal = T::SelectEqual(other[0], best[0], T::Min(other[1], best[1]), best[1]);
    best[1] = T::SelectGreater(other[0], best[0], other[1], of_equal);
    best[0] = T::Max(other[0], best[0]);
  }
  template <class T>
  [[gnu::always_inline]] static T Result(const T (&best)[kParts]) {
    return T::SelectGreater(T::Set(kInfinite), best[1], best[1], T::Set(0.0f));  // All are worst.
  }
};

template <class Op, class T>
[[gnu::always_inline]] inline void Begin(T (&folded)[Op::kParts]) {
  for (int p = 0; p < Op::kParts; ++p) folded[p] = T::Set(Op::kOfNone[p]);
}

// ---------------------------------------------------------------------------------------- columns

// load(t): entry t of each column.  Some entries at a time, so that sums of many keep their digits.
template <class Op, class T, class LoadFn>
[[gnu::always_inline]] inline T ReduceColumns(int64_t count, LoadFn load) {
  constexpr int64_t kEntries = 16;
  T all[Op::kParts], some[Op::kParts];
  Begin<Op>(all);
  for (int64_t t = 0; t < count;) {
    Begin<Op>(some);
    for (const int64_t end = Least(count, t + kEntries); t < end; ++t) {
      Op::Add(load(t), T::Set(static_cast<float>(t)), some);
    }
    Op::Merge(some, all);
  }
  return Op::Result(all);
}

// The columns from j on, as far as vectors of T fit in.
template <class Op, class T>
void ReduceColumnsFrom(const float* x, float* y, int64_t count, int64_t inner, int64_t& j) {
  for (; j + T::kLanes <= inner; j += T::kLanes) {
    ReduceColumns<Op, T>(count, [&](int64_t t) { return T::Load(x + t * inner + j); }).Store(y + j);
  }
}

// ------------------------------------------------------------------------------------------- rows

struct Counting {
  float from_0[Four::kLanes] = {};
  constexpr Counting() {
    for (int i = 0; i < Four::kLanes; ++i) from_0[i] = static_cast<float>(i);
  }
};
constexpr Counting kCounting;

template <class Op, class T>
[[gnu::always_inline]] inline void AddEntries(const float* x, int64_t n, int64_t& i,
                                              T (&folded)[Op::kParts]) {
  for (; i + T::kLanes <= n; i += T::kLanes) {
    Op::Add(T::Load(x + i), T::Load(kCounting.from_0) + T::Set(static_cast<float>(i)), folded);
  }
}

// What four vectors have seen, in one.
template <class Op>
[[gnu::always_inline]] inline void MergeFour(const Four (&wide)[Op::kParts],
                                             Vec (&folded)[Op::kParts]) {
  Two half[Op::kParts], other[Op::kParts];
  Vec rest[Op::kParts];
  for (int p = 0; p < Op::kParts; ++p) half[p] = wide[p].a, other[p] = wide[p].b;
  Op::Merge(other, half);
  for (int p = 0; p < Op::kParts; ++p) folded[p] = half[p].a, rest[p] = half[p].b;
  Op::Merge(rest, folded);
}

// One row of n entries: what each lane of a vector has seen of it.
template <class Op>
[[gnu::always_inline]] inline void ReduceLanes(const float* x, int64_t n,
                                               Vec (&folded)[Op::kParts]) {
  constexpr float kOnes[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  Begin<Op>(folded);
  int64_t i = 0;
  if (n >= Four::kLanes) {
    Four wide[Op::kParts];
    Begin<Op>(wide);
    AddEntries<Op>(x, n, i, wide);
    MergeFour<Op>(wide, folded);
  }
  AddEntries<Op>(x, n, i, folded);
  if (i == n) return;
  const Vec::Mask mask = Vec::MaskOf(n - i);
  Op::Add(Vec::SelectGreater(Vec::LoadMasked(kOnes, mask), Vec::Zero(),
                             Vec::LoadMasked(x + i, mask), Vec::Set(Op::kNothing)),
          Vec::Load(kCounting.from_0) + Vec::Set(static_cast<float>(i)), folded);
}

// As many rows at a time as a vector has lanes: these become the columns of a square.
template <class Op>
void ReduceRows(const float* x, float* y, int64_t rows, int64_t n) {
  constexpr int64_t kLanes = Vec::kLanes;
  float lanes[Op::kParts][kLanes * kLanes] = {}, turned[Op::kParts][kLanes * kLanes] = {};
  for (int64_t r = 0; r < rows; r += kLanes) {
    const int64_t now = Least(rows - r, kLanes);
    if (n < kLanes) {
      Transpose(x + r * n, n, now, n, turned[0], kLanes);
      ReduceColumns<Op, Vec>(n, [&](int64_t t) {
        return Vec::Load(turned[0] + t * kLanes);
      }).StoreMasked(y + r, Vec::MaskOf(now));
      continue;
    }
    Vec folded[Op::kParts];
    for (int64_t i = 0; i < now; ++i) {
      ReduceLanes<Op>(x + (r + i) * n, n, folded);
      for (int p = 0; p < Op::kParts; ++p) folded[p].Store(lanes[p] + i * kLanes);
    }
    for (int p = 0; p < Op::kParts; ++p) {
      Transpose(lanes[p], kLanes, kLanes, kLanes, turned[p], kLanes);
    }
    Four all[Op::kParts], some[Op::kParts];  // Of four lanes each.
    for (int p = 0; p < Op::kParts; ++p) all[p] = Four::Load(turned[p]);
    for (int64_t l = 4; l < kLanes; l += 4) {
      for (int p = 0; p < Op::kParts; ++p) some[p] = Four::Load(turned[p] + l * kLanes);
      Op::Merge(some, all);
    }
    MergeFour<Op>(all, folded);
    Op::Result(folded).StoreMasked(y + r, Vec::MaskOf(now));
  }
}

template <class Op>
void ReduceMiddle(const float* x, float* y, int64_t outer, int64_t count, int64_t inner) {
  if (inner == 1) return ReduceRows<Op>(x, y, outer, count);
  for (int64_t o = 0; o < outer; ++o, x += count * inner, y += inner) {
    int64_t j = 0;
    ReduceColumnsFrom<Op, Four>(x, y, count, inner, j);
    ReduceColumnsFrom<Op, Two>(x, y, count, inner, j);
    ReduceColumnsFrom<Op, Vec>(x, y, count, inner, j);
    if (j == inner) continue;
    const Vec::Mask mask = Vec::MaskOf(inner - j);
    ReduceColumns<Op, Vec>(count, [&](int64_t t) {
      return Vec::LoadMasked(x + t * inner + j, mask);
    }).StoreMasked(y + j, mask);
  }
}

void ReduceAxis(ReduceOp op, const float* x, float* y, int64_t outer, int64_t count,
                int64_t inner) {
  switch (op) {
    case ReduceOp::kSum:
      return ReduceMiddle<Reduction<ReduceOp::kSum>>(x, y, outer, count, inner);
    case ReduceOp::kMax:
      return ReduceMiddle<Reduction<ReduceOp::kMax>>(x, y, outer, count, inner);
    case ReduceOp::kMin:
      return ReduceMiddle<Reduction<ReduceOp::kMin>>(x, y, outer, count, inner);
    case ReduceOp::kProduct:
      return ReduceMiddle<Reduction<ReduceOp::kProduct>>(x, y, outer, count, inner);
  }
}

void BestPlaces(bool smallest, const float* x, float* places, int64_t outer, int64_t count,
                int64_t inner) {
  smallest ? ReduceMiddle<BestPlace<true>>(x, places, outer, count, inner)
           : ReduceMiddle<BestPlace<false>>(x, places, outer, count, inner);
}

}  // namespace
}  // namespace ulfd::engine
// NOLINTEND(misc-definitions-in-headers)

#endif  // ULFD_ENGINE_KERNELS_REDUCE_BODY_H_

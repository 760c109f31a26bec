// Attention by dot products.  Included after a vec_*.h by the sources that table.h names.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_KERNELS_DOT_PRODUCT_BODY_H_
#define ULFD_ENGINE_KERNELS_DOT_PRODUCT_BODY_H_

#include "engine/kernels/math_body.h"
#include "engine/kernels/table.h"

// Built once per instruction set.
// NOLINTBEGIN(misc-definitions-in-headers)
namespace ulfd::engine {
namespace {

template <int kCount>
struct SideBySide {};

// fn(first, SideBySide<..>()) for groups of 8, 4 and 1.
template <class Fn>
[[gnu::always_inline]] inline void InGroups(int64_t count, Fn fn) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) fn(i, SideBySide<8>());
  if (i + 4 <= count) {
    fn(i, SideBySide<4>());
    i += 4;
  }
  for (; i < count; ++i) fn(i, SideBySide<1>());
}

// sums[j] = sum over i < count of from[i * step + j * between] * vectors[i].
template <int kCount>
[[gnu::always_inline]] inline void SumVectors(const float* from, int64_t step, int64_t between,
                                              const float* vectors, int64_t count, Vec* sums) {
  for (int j = 0; j < kCount; ++j) sums[j] = Vec::Zero();
  for (int64_t i = 0; i < count; ++i) {
    const Vec v = Vec::Load(vectors + i * Vec::kLanes);
    for (int j = 0; j < kCount; ++j) {
      sums[j] = Vec::Fma(Vec::Broadcast(from + i * step + j * between), v, sums[j]);
    }
  }
}

// Makes of each of the `keys` logits of a lane its share, times the sum of all that it returns.
Vec ExpOfLogits(float* p, int64_t keys, Vec most) {
  constexpr int64_t kLanes = Vec::kLanes;
  Vec total = Vec::Zero();
  int64_t key = 0;
  for (; key + 2 <= keys; key += 2) {
    const Two e = ExpOfNegative(Two::Load(p + key * kLanes) - Two{most, most});
    e.Store(p + key * kLanes);
    total = total + e.a + e.b;
  }
  if (key < keys) {
    const Vec e = ExpOfNegative(Vec::Load(p + key * kLanes) - most);
    e.Store(p + key * kLanes);
    total = total + e;
  }
  return total;
}

// A query in each lane: nothing is summed across lanes, and no matrix is laid out anew.  `scratch`
// has (width + keys) vectors.
void DotProductAttention(const DotProductArgs& a, float* scratch) {
  constexpr int64_t kLanes = Vec::kLanes;
  float *const q = scratch, *const p = scratch + a.width * kLanes;
  for (int64_t first = 0; first < a.queries; first += kLanes) {
    const int64_t lanes = Least(kLanes, a.queries - first);
    for (int64_t c = 0; c < a.width; ++c) {
      const float* const from = a.q.data + first * a.q.step + c * a.q.column;
      for (int64_t l = 0; l < kLanes; ++l) {
        q[c * kLanes + l] = l < lanes ? from[l * a.q.step] * a.scale : 0.0f;
      }
    }
    Vec most = Vec::Set(-__builtin_inff());
    const auto mask_of = [&](const StridedMatrix& at, int64_t key) {
      const float* const from = at.data + first * at.step + key * at.column;
      if (at.step == 0) return Vec::Broadcast(from);
      float mask[kLanes] = {};
      for (int64_t l = 0; l < lanes; ++l) mask[l] = from[l * at.step];
      return Vec::Load(mask);
    };
    const auto keep = [&](Vec logits, int64_t key) {
      for (int i = 0; i < a.mask_count; ++i) {
        const Vec mask = mask_of(a.masks[i].at, key), number = Vec::Set(a.masks[i].number);
        if (a.masks[i].kind == AttentionMask::kAdded) {
          logits = Vec::Fma(mask, number, logits);
        } else if (a.masks[i].kind == AttentionMask::kKeeps) {
          logits = Vec::SelectGreater(mask, Vec::Zero(), logits, number);
        } else {
          logits = Vec::SelectGreater(mask, Vec::Zero(), number, logits);
        }
      }
      logits.Store(p + key * kLanes);
      most = Vec::Max(logits, most);
    };
    InGroups(a.keys, [&]<int kCount>(int64_t key, SideBySide<kCount>) {
      Vec sums[kCount];
      SumVectors<kCount>(a.k.data + key * a.k.step, a.k.column, a.k.step, q, a.width, sums);
      for (int j = 0; j < kCount; ++j) keep(sums[j], key + j);
    });
    const Vec inverse = Vec::Set(1.0f) / ExpOfLogits(p, a.keys, most);
    const auto write = [&](Vec sum, int64_t c) {
      float y[kLanes];
      (sum * inverse).Store(y);
      float* const to = a.y + first * a.y_step + c * a.y_column;
      for (int64_t l = 0; l < lanes; ++l) to[l * a.y_step] = y[l];
    };
    InGroups(a.v_width, [&]<int kCount>(int64_t c, SideBySide<kCount>) {
      Vec sums[kCount];
      SumVectors<kCount>(a.v.data + c * a.v.column, a.v.step, a.v.column, p, a.keys, sums);
      for (int j = 0; j < kCount; ++j) write(sums[j], c + j);
    });
  }
}

}  // namespace
}  // namespace ulfd::engine
// NOLINTEND(misc-definitions-in-headers)

#endif  // ULFD_ENGINE_KERNELS_DOT_PRODUCT_BODY_H_

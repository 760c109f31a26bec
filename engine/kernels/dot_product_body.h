// Attention by dot products.  Included after a vec_*.h by the sources that table.h names.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_KERNELS_DOT_PRODUCT_BODY_H_
#define ULFD_ENGINE_KERNELS_DOT_PRODUCT_BODY_H_

#include "engine/kernels/math_body.h"
#include "engine/kernels/table.h"

namespace ulfd::engine {
namespace {

// Keys or columns of kCount, side by side: sums over `count` of from[i * step + j * between] times
// vectors.
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

// A query in each lane: nothing is summed across lanes, and no matrix is laid out anew.  `scratch`
// has (width + keys) vectors.
void DotProductAttention(const DotProductArgs& a, float* scratch) {
  constexpr int64_t kLanes = Vec::kLanes;
  constexpr int kSide = 4;
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
    const auto mask_of = [&](int64_t key) {
      const float* const from = a.mask.data + first * a.mask.step + key * a.mask.column;
      if (a.mask.step == 0) return Vec::Broadcast(from);
      float mask[kLanes] = {};
      for (int64_t l = 0; l < lanes; ++l) mask[l] = from[l * a.mask.step];
      return Vec::Load(mask);
    };
    const auto keep = [&](Vec logits, int64_t key) {
      if (a.kind == AttentionMask::kAdded) {
        logits = logits + mask_of(key);
      } else if (a.kind == AttentionMask::kKeeps) {
        logits = Vec::SelectGreater(mask_of(key), Vec::Zero(), logits, Vec::Set(a.pad));
      } else if (a.kind == AttentionMask::kDrops) {
        logits = Vec::SelectGreater(mask_of(key), Vec::Zero(), Vec::Set(a.pad), logits);
      }
      logits.Store(p + key * kLanes);
      most = Vec::Max(logits, most);
    };
    Vec sums[kSide];
    int64_t key = 0;
    for (; key + kSide <= a.keys; key += kSide) {
      SumVectors<kSide>(a.k.data + key * a.k.step, a.k.column, a.k.step, q, a.width, sums);
      for (int j = 0; j < kSide; ++j) keep(sums[j], key + j);
    }
    for (; key < a.keys; ++key) {
      SumVectors<1>(a.k.data + key * a.k.step, a.k.column, a.k.step, q, a.width, sums);
      keep(sums[0], key);
    }
    Vec total = Vec::Zero();
    for (key = 0; key < a.keys; ++key) {
      const Vec e = ExpOfNegative(Vec::Load(p + key * kLanes) - most);
      e.Store(p + key * kLanes);
      total = total + e;
    }
    const Vec inverse = Vec::Set(1.0f) / total;
    const auto write = [&](Vec sum, int64_t c) {
      float y[kLanes];
      (sum * inverse).Store(y);
      float* const to = a.y + first * a.y_step + c * a.y_column;
      for (int64_t l = 0; l < lanes; ++l) to[l * a.y_step] = y[l];
    };
    int64_t c = 0;
    for (; c + kSide <= a.v_width; c += kSide) {
      SumVectors<kSide>(a.v.data + c * a.v.column, a.v.step, a.v.column, p, a.keys, sums);
      for (int j = 0; j < kSide; ++j) write(sums[j], c + j);
    }
    for (; c < a.v_width; ++c) {
      SumVectors<1>(a.v.data + c * a.v.column, a.v.step, a.v.column, p, a.keys, sums);
      write(sums[0], c);
    }
  }
}

}  // namespace
}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_KERNELS_DOT_PRODUCT_BODY_H_

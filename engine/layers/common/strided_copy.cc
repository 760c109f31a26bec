// SPDX-License-Identifier: Apache-2.0
#include "engine/layers/common/strided_copy.h"

#include <algorithm>
#include <cstring>

#include "engine/kernels/table.h"
#include "engine/layers/common/multiversion.h"

namespace ulfd::engine {

namespace {

using Axes = absl::InlinedVector<StridedCopy::Axis, 8>;

// Axes that are walked through like one become one; axes of one element go.
Axes Merged(const Axes& axes) {
  Axes merged;
  for (const StridedCopy::Axis& axis : axes) {
    if (axis.count == 1) continue;
    if (!merged.empty() && merged.back().step == axis.count * axis.step) {
      merged.back() = {merged.back().count * axis.count, axis.step};
    } else {
      merged.push_back(axis);
    }
  }
  if (merged.empty()) merged.push_back({1, 1});
  return merged;
}

template <class T>
[[gnu::always_inline]] inline void CopyRun(const T* x, int64_t step, T* __restrict y, int64_t n) {
  if (step == 1) {
    std::memcpy(y, x, n * sizeof(T));
  } else if (step == 0) {
    std::fill_n(y, n, *x);
  } else if (step == -1) {  // So that vectors are turned around.
    for (int64_t i = 0; i < n; ++i) y[i] = x[-i];
  } else if (step == 2) {  // So that they are shuffled.
    for (int64_t i = 0; i < n; ++i) y[i] = x[i * 2];
  } else {
    for (int64_t i = 0; i < n; ++i) y[i] = x[i * step];
  }
}

// copy(runs, inner, x, y) for the two innermost axes, whose runs may be of a few elements.
template <class T, class Copy>
[[gnu::always_inline]] inline void CopyAll(const Axes& axes, const T* x, T* y, Copy copy) {
  const StridedCopy::Axis inner = axes.back();
  const StridedCopy::Axis runs = axes.size() > 1 ? axes[axes.size() - 2] : StridedCopy::Axis{1, 0};
  absl::InlinedVector<int64_t, 8> index(axes.size(), 0);
  for (;; y += runs.count * inner.count) {
    copy(runs, inner, x, y);
    int axis = static_cast<int>(axes.size()) - 3;
    for (; axis >= 0; --axis) {
      x += axes[axis].step;
      if (++index[axis] < axes[axis].count) break;
      x -= axes[axis].step * axes[axis].count;
      index[axis] = 0;
    }
    if (axis < 0) return;
  }
}

// Runs of kSize to 2 * kSize neighbours, without calls: their first and their last kSize.
template <int kSize, class T>
[[gnu::always_inline]] inline void CopyShortRuns(const StridedCopy::Axis& runs, int64_t n,
                                                 const T* x, T* y) {
  for (int64_t run = 0; run < runs.count; ++run, x += runs.step, y += n) {
    std::memcpy(y, x, kSize * sizeof(T));
    std::memcpy(y + n - kSize, x + n - kSize, kSize * sizeof(T));
  }
}

template <class T>
[[gnu::always_inline]] inline void CopyRuns(const StridedCopy::Axis& runs,
                                            const StridedCopy::Axis& inner, const T* x, T* y) {
  if (inner.step == 1 && inner.count <= 32) {
    if (inner.count >= 16) return CopyShortRuns<16>(runs, inner.count, x, y);
    if (inner.count >= 8) return CopyShortRuns<8>(runs, inner.count, x, y);
    if (inner.count >= 4) return CopyShortRuns<4>(runs, inner.count, x, y);
    if (inner.count >= 2) return CopyShortRuns<2>(runs, inner.count, x, y);
  }
  for (int64_t run = 0; run < runs.count; ++run, y += inner.count) {
    CopyRun(x + run * runs.step, inner.step, y, inner.count);
  }
}

ULFD_MULTIVERSION void Copy32(const Axes& axes, const int32_t* x, int32_t* y) {
  CopyAll(axes, x, y, CopyRuns<int32_t>);
}
ULFD_MULTIVERSION void Copy64(const Axes& axes, const int64_t* x, int64_t* y) {
  CopyAll(axes, x, y, CopyRuns<int64_t>);
}

// Matrices, one after the other, laid out the other way.
bool AreTransposed(const Axes& axes) {
  return axes.size() > 1 && axes[axes.size() - 2].step == 1 && axes.back().step > 1;
}
void TransposeAll(const Axes& axes, const float* x, float* y) {
  CopyAll(axes, x, y,
          [](const StridedCopy::Axis& runs, const StridedCopy::Axis& inner, const float* from,
             float* to) {
            Kernels().transpose(from, inner.step, inner.count, runs.count, to, inner.count);
          });
}

}  // namespace

void StridedCopy::Run(const Tensor& x, Tensor& y) const {
  if (y.elements() == 0) return;
  const Axes merged = Merged(axes);
  if (x.dtype == DType::kFloat32 && AreTransposed(merged)) {
    TransposeAll(merged, x.f32() + start, y.f32());
  } else if (SizeOf(x.dtype) == sizeof(int32_t)) {
    Copy32(merged, x.i32() + start, static_cast<int32_t*>(y.data));
  } else {
    Copy64(merged, x.i64() + start, static_cast<int64_t*>(y.data));
  }
}

}  // namespace ulfd::engine

// numpy broadcasting at run time: which elements of the operands belong to a run of output
// elements.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_LAYERS_COMMON_BROADCAST_H_
#define ULFD_ENGINE_LAYERS_COMMON_BROADCAST_H_

#include <cstddef>
#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "engine/tensor/tensor.h"

namespace ulfd::engine {

// Output elements in order, cut into runs of `run` elements, along which each operand either
// advances by one element or stays.  Dimensions that all operands walk through alike are merged, so
// runs are as long as can be and nothing is divided per element.
struct BroadcastPlan {
  using Offsets = absl::InlinedVector<int64_t, 4>;  // Of each operand.
  struct Axis {
    int64_t count = 0;
    Offsets step;  // Elements of each operand per index.
  };
  absl::InlinedVector<Axis, 8> outer;  // Outermost first.
  int64_t run = 0;                     // 0: no output at all.
  absl::InlinedVector<bool, 4> advances;

  // Calls fn(offsets of the operands, offset of the output) for each run.
  template <class Fn>
  void ForEachRun(Fn fn) const {
    Walk(static_cast<int>(outer.size()), run, fn);
  }
  // The same for blocks of rows() runs, which follow one another in the output; between them,
  // operand i moves on by row_step(i).
  template <class Fn>
  void ForEachBlock(Fn fn) const {
    Walk(outer.empty() ? 0 : static_cast<int>(outer.size()) - 1, run * rows(), fn);
  }
  int64_t rows() const { return outer.empty() ? 1 : outer.back().count; }
  int64_t row_step(size_t operand) const { return outer.empty() ? 0 : outer.back().step[operand]; }

 private:
  // Calls fn for each index of the first `axes` axes; the output moves on by `step`.
  template <class Fn>
  void Walk(int axes, int64_t step, Fn fn) const {
    if (run == 0) return;
    Offsets offsets(advances.size(), 0);
    absl::InlinedVector<int64_t, 8> index(axes, 0);
    for (int64_t out = 0;; out += step) {
      fn(offsets, out);
      int axis = axes - 1;
      for (; axis >= 0; --axis) {
        for (size_t i = 0; i < offsets.size(); ++i) offsets[i] += outer[axis].step[i];
        if (++index[axis] < outer[axis].count) break;
        for (size_t i = 0; i < offsets.size(); ++i) {
          offsets[i] -= outer[axis].step[i] * outer[axis].count;
        }
        index[axis] = 0;
      }
      if (axis < 0) return;
    }
  }
};

// REQUIRES: each operand broadcasts to `out`.  Allocates nothing for up to four.
BroadcastPlan PlanBroadcast(absl::Span<const int64_t> out,
                            absl::Span<const absl::Span<const int64_t>> operands);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_LAYERS_COMMON_BROADCAST_H_

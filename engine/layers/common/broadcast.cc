// SPDX-License-Identifier: Apache-2.0
#include "engine/layers/common/broadcast.h"

namespace ulfd::engine {

namespace {

// Whether `inner` continues `outer` for every operand, so that the two are one axis.
bool Mergeable(const BroadcastPlan::Axis& outer, const BroadcastPlan::Axis& inner) {
  for (size_t i = 0; i < inner.step.size(); ++i) {
    if (outer.step[i] != inner.step[i] * inner.count) return false;
  }
  return true;
}

}  // namespace

BroadcastPlan PlanBroadcast(absl::Span<const int64_t> out,
                            absl::Span<const absl::Span<const int64_t>> operands) {
  BroadcastPlan plan;
  plan.advances.assign(operands.size(), false);
  absl::InlinedVector<BroadcastPlan::Axis, 8> axes;  // Innermost first.
  BroadcastPlan::Offsets size(operands.size(), 1);
  for (int back = 0; back < static_cast<int>(out.size()); ++back) {
    const int64_t count = out[out.size() - 1 - back];
    if (count == 0) return plan;
    if (count == 1) continue;
    BroadcastPlan::Axis axis{count, BroadcastPlan::Offsets(operands.size(), 0)};
    for (size_t i = 0; i < operands.size(); ++i) {
      const int place = static_cast<int>(operands[i].size()) - 1 - back;
      if (place < 0 || operands[i][place] == 1) continue;
      axis.step[i] = size[i];
      size[i] *= count;
    }
    if (!axes.empty() && Mergeable(axis, axes.back())) {
      axes.back().count *= count;
    } else {
      axes.push_back(axis);
    }
  }
  plan.run = axes.empty() ? 1 : axes[0].count;
  for (size_t i = 0; i < operands.size() && !axes.empty(); ++i) {
    plan.advances[i] = axes[0].step[i] != 0;
  }
  for (size_t i = axes.size(); i > 1; --i) plan.outer.push_back(axes[i - 1]);
  return plan;
}

}  // namespace ulfd::engine

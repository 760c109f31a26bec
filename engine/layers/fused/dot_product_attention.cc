// SPDX-License-Identifier: Apache-2.0
#include "engine/layers/fused/dot_product_attention.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/errors.h"
#include "base/status_macros.h"
#include "engine/kernels/table.h"
#include "engine/layers/checks.h"

namespace ulfd::engine {
namespace {

// A tensor by the axes of attention: rows, heads (1 where there are none), positions, columns.
struct Operand {
  std::array<int64_t, 4> sizes = {1, 1, 1, 1};
  std::array<int64_t, 4> steps = {0, 0, 0, 0};  // 0 where the size is 1: the same for all.
};

Operand OperandOf(const Tensor& x, const std::vector<int>& order) {
  std::vector<int64_t> steps(x.dims.size(), 1);
  for (size_t i = x.dims.size() - 1; i > 0; --i) steps[i - 1] = steps[i] * x.dims[i];
  Operand operand;
  for (size_t i = 0; i < order.size(); ++i) {
    const size_t axis = i == 0 ? 0 : i + 4 - order.size();
    operand.sizes[axis] = x.dims[order[i]];
    if (operand.sizes[axis] != 1) operand.steps[axis] = steps[order[i]];
  }
  return operand;
}
// Aligned at its last axis, as numpy does.
Operand MaskOf(const Tensor& mask, size_t rank) {
  Operand operand;
  int64_t step = 1;
  for (size_t i = 0; i < mask.dims.size(); ++i) {
    const int64_t size = mask.dims[mask.dims.size() - 1 - i];
    const size_t axis = i + 1 == rank ? 0 : 3 - i;
    operand.sizes[axis] = size;
    if (size != 1) operand.steps[axis] = step;
    step *= size;
  }
  return operand;
}

class DotProductKernel final : public Kernel {
 public:
  explicit DotProductKernel(std::shared_ptr<const DotProductOptions> options)
      : options_(std::move(options)) {}
  size_t ScratchBytes(absl::Span<const Tensor> in) const override {
    const Operand k = OperandOf(in[1], options_->k);
    return DotProductScratchBytes(k.sizes[2], k.sizes[3]);
  }
  absl::Status Run(RunContext& ctx) const override {
    const Operand q = OperandOf(ctx.in[0], options_->q), k = OperandOf(ctx.in[1], options_->k),
                  v = OperandOf(ctx.in[2], options_->v), y = OperandOf(ctx.out[0], options_->y);
    const int mask_count = static_cast<int>(options_->masks.size());
    std::array<Operand, kMostMasks> masks;
    for (int i = 0; i < mask_count; ++i) masks[i] = MaskOf(ctx.in[3 + i], options_->q.size());
    const int64_t queries = q.sizes[2], work = k.sizes[2] * (k.sizes[3] + v.sizes[3]);
    const int64_t at_once = Pace::RowsAtOnce(work, 16);
    const auto matrix = [](const Tensor& x, const Operand& of, int64_t row, int64_t head) {
      return StridedMatrix{x.f32() + row * of.steps[0] + head * of.steps[1], of.steps[2],
                           of.steps[3]};
    };
    for (int64_t row = 0; row < y.sizes[0]; ++row) {
      for (int64_t head = 0; head < y.sizes[1]; ++head) {
        DotProductArgs args{.keys = k.sizes[2],
                            .width = k.sizes[3],
                            .v_width = v.sizes[3],
                            .scale = options_->scale,
                            .q = matrix(ctx.in[0], q, row, head),
                            .k = matrix(ctx.in[1], k, row, head),
                            .v = matrix(ctx.in[2], v, row, head),
                            .mask_count = mask_count,
                            .y = ctx.out[0].f32() + row * y.steps[0] + head * y.steps[1],
                            .y_step = y.steps[2],
                            .y_column = y.steps[3]};
        for (int i = 0; i < mask_count; ++i) {
          args.masks[i] = {options_->masks[i].kind, options_->masks[i].number,
                           matrix(ctx.in[3 + i], masks[i], row, head)};
        }
        for (int64_t first = 0; first < queries; first += args.queries) {
          args.queries = std::min(at_once, queries - first);
          if (ctx.pace.Stops(args.queries * work)) return absl::OkStatus();
          Kernels().dot_product_attention(args, static_cast<float*>(ctx.scratch));
          args.q.data += args.queries * args.q.step;
          args.y += args.queries * args.y_step;
          for (MaskArgs& mask : args.masks) mask.at.data += args.queries * mask.at.step;
        }
      }
    }
    return absl::OkStatus();
  }

 private:
  const std::shared_ptr<const DotProductOptions> options_;
};

// The axes in the order of attention.
absl::StatusOr<Shape> ShapeOf(absl::Span<const TensorSpec> in, int index,
                              const std::vector<int>& order) {
  const int rank = static_cast<int>(order.size());
  RETURN_IF_ERROR(WantRank(in, index, rank, rank));
  Shape shape = in[index].shape;
  for (int i = 0; i < rank; ++i) shape[i] = in[index].shape[order[i]];
  return shape;
}

}  // namespace

absl::StatusOr<TensorSpecs> DotProductAttentionLayer::Infer(absl::Span<const TensorSpec> in) const {
  const DotProductOptions& o = *options_;
  const size_t count = 3 + o.masks.size();
  if (in.size() != count) {
    return InvalidArgument(in.size(), " inputs, want ", count);
  }
  RETURN_IF_ERROR(WantFloat32(in));
  ASSIGN_OR_RETURN(Shape q, ShapeOf(in, 0, o.q));
  ASSIGN_OR_RETURN(const Shape k, ShapeOf(in, 1, o.k));
  ASSIGN_OR_RETURN(const Shape v, ShapeOf(in, 2, o.v));
  const int rank = q.rank(), last = rank - 1;
  if (!CouldBeEqual(q[last], k[last]) || k[last - 1] == Dim::Of(0)) {
    return BadInput(1, in[1], "keys of ", q[last].ToString(), " columns");
  }
  if (!CouldBeEqual(k[last - 1], v[last - 1])) {
    return BadInput(2, in[2], "values of ", k[last - 1].ToString(), " keys");
  }
  for (const auto& [shape, index] : {std::pair(k, 1), std::pair(v, 2)}) {
    for (int i = 0; i + 2 < rank; ++i) {
      const std::optional<Dim> both = Broadcast(q[i], shape[i]);
      if (!both.has_value()) return BadInput(index, in[index], "leading dimensions as input 0");
      q[i] = *both;
    }
  }
  for (size_t mask = 3; mask < count; ++mask) {
    Shape scores = q;
    scores[last] = k[last - 1];
    const absl::StatusOr<Shape> masked = BroadcastShapes(scores, AlignUserRow(in[mask], rank));
    if (!masked.ok() || masked->rank() != rank || !CouldBeEqual((*masked)[last], scores[last]) ||
        !CouldBeEqual((*masked)[last - 1], scores[last - 1])) {
      return BadInput(static_cast<int>(mask), in[mask], "a mask of ", scores.ToString());
    }
    for (int i = 0; i + 2 < rank; ++i) q[i] = (*masked)[i];
  }
  q[last] = v[last];
  TensorSpec out{DType::kFloat32, q, Level::kUnknown};
  for (int i = 0; i < rank; ++i) out.shape[o.y[i]] = q[i];
  return OnlyOutput(std::move(out), in);
}

absl::StatusOr<std::unique_ptr<Kernel>> DotProductAttentionLayer::Prepare(
    absl::Span<const TensorSpec>) const {
  return std::unique_ptr<Kernel>(new DotProductKernel(options_));
}

double DotProductAttentionLayer::Flops(absl::Span<const TensorSpec> in,
                                       absl::Span<const TensorSpec> out) const {
  const DotProductOptions& o = *options_;
  const auto size = [](const TensorSpec& spec, int axis) {
    return static_cast<double>(spec.shape[axis].value());
  };
  const size_t last = o.q.size() - 1;
  const double keys = size(in[1], o.k[last - 1]), width = size(in[1], o.k[last]);
  const double v_width = size(in[2], o.v[last]);
  const double scores = static_cast<double>(out[0].shape.Elements().value()) / v_width * keys;
  return scores * (2 * width + 2 * v_width + 1);
}

}  // namespace ulfd::engine

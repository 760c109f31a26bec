// Layers that put elements into another order: transpose, reverse, reorg, shuffle_channel.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "engine/layers/checks.h"
#include "engine/layers/common/function_kernel.h"
#include "engine/layers/common/strided_copy.h"
#include "engine/layers/types/building_blocks.h"
#include "engine/layers/types/families.h"

namespace ulfd::engine {
namespace {

// Elements between neighbours along each axis.
TensorDims StridesOf(const Tensor& x) {
  TensorDims strides(x.dims.size());
  int64_t stride = 1;
  for (int i = x.rank() - 1; i >= 0; --i) {
    strides[i] = stride;
    stride *= x.dims[i];
  }
  return strides;
}

// Copies all elements, in the order that plan(x, strides of x) says.
template <typename Plan>
std::unique_ptr<Kernel> MakeCopy(Plan plan) {
  return MakeKernel([plan](RunContext& ctx) {
    const Tensor& x = ctx.in[0];
    plan(x, StridesOf(x)).Run(x, ctx.out[0]);
  });
}

// --------------------------------------------------------------------------------------- transpose

// transpose_layer.  The level is unknown unless rows stay in front.
class Transpose final : public Layer {
 public:
  explicit Transpose(std::vector<int> perm) : perm_(std::move(perm)) {}

  static absl::StatusOr<std::unique_ptr<Layer>> Parse(const ParseContext& ctx) {
    const auto& perm = ctx.param.transpose_param().perm();
    std::vector<int> sorted(perm.begin(), perm.end());
    std::sort(sorted.begin(), sorted.end());
    for (int i = 0; i < perm.size(); ++i) {
      if (sorted[i] == i) continue;
      return InvalidArgument("transpose_param.perm: [", absl::StrJoin(perm, ", "),
                             "], want each of 0 to ", perm.size() - 1, " once");
    }
    if (perm.empty()) {
      return InvalidArgument("transpose_param.perm: empty, want an axis for each axis");
    }
    return std::unique_ptr<Layer>(new Transpose({perm.begin(), perm.end()}));
  }
  absl::StatusOr<TensorSpecs> Infer(absl::Span<const TensorSpec> in) const override {
    const int rank = static_cast<int>(perm_.size());
    if (in[0].shape.rank() != rank) {
      return BadInput(0, in[0], "rank ", rank, " for transpose_param.perm [",
                      absl::StrJoin(perm_, ", "), "]");
    }
    TensorSpec out = in[0];
    for (int k = 0; k < rank; ++k) out.shape[k] = in[0].shape[perm_[k]];
    out.level = LevelOf(out.shape, in);
    if (perm_[0] != 0 && out.level != Level::kConstant) out.level = Level::kUnknown;
    return TensorSpecs{out};
  }
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(absl::Span<const TensorSpec>) const override {
    return MakeCopy([perm = perm_](const Tensor& x, const TensorDims& at) {
      StridedCopy copy;
      for (int axis : perm) copy.Add(x.dims[axis], at[axis]);
      return copy;
    });
  }
  Semantics semantics() const override { return {.op = Semantics::Op::kTranspose, .perm = perm_}; }
  std::string Describe() const override {
    return absl::StrCat("perm=[", absl::StrJoin(perm_, ", "), "]");
  }

 private:
  const std::vector<int> perm_;
};

// ----------------------------------------------------------------------- splitting, merging axes

// Primitive of composite layers: see MakeSplitAxis.
class SplitAxis final : public Layer {
 public:
  SplitAxis(int axis, int64_t outer, int64_t inner) : axis_(axis), outer_(outer), inner_(inner) {}
  absl::StatusOr<TensorSpecs> Infer(absl::Span<const TensorSpec> in) const override {
    RETURN_IF_ERROR(WantAxis("axis", axis_, in[0]));
    const int64_t known = outer_ > 0 ? outer_ : inner_;
    const std::optional<Dim> rest = Divide(in[0].shape[axis_], Dim::Of(known));
    if (!rest.has_value()) {
      return BadInput(0, in[0], "axis ", axis_, " a multiple of ", known);
    }
    TensorSpec out = in[0];
    out.shape[axis_] = outer_ > 0 ? Dim::Of(outer_) : *rest;
    out.shape.dims().insert(out.shape.dims().begin() + axis_ + 1,
                            outer_ > 0 ? *rest : Dim::Of(inner_));
    return OnlyOutput(std::move(out), in);
  }
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(absl::Span<const TensorSpec>) const override {
    return MakeView();
  }

 private:
  const int axis_;
  const int64_t outer_, inner_;
};

// Primitive of composite layers: see MakeMergeAxes.
class MergeAxes final : public Layer {
 public:
  MergeAxes(int first, int count) : first_(first), count_(count) {}
  absl::StatusOr<TensorSpecs> Infer(absl::Span<const TensorSpec> in) const override {
    RETURN_IF_ERROR(WantAxis("axis", first_ + count_ - 1, in[0]));
    TensorSpec out = in[0];
    auto& dims = out.shape.dims();
    for (int i = 1; i < count_; ++i) {
      dims[first_] = Multiply(dims[first_], dims[first_ + 1]);
      dims.erase(dims.begin() + first_ + 1);
    }
    return OnlyOutput(std::move(out), in);
  }
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(absl::Span<const TensorSpec>) const override {
    return MakeView();
  }

 private:
  const int first_, count_;
};

// ---------------------------------------------------------------------------------------- reverse

// reverse_layer (Reverse).  The level is unknown where axis 0 (the rows) is reversed.
class Reverse final : public Layer {
 public:
  static absl::StatusOr<std::unique_ptr<Layer>> Parse(const ParseContext& ctx) {
    const auto& axes = ctx.param.reverse_param().axis();
    if (axes.empty()) {
      return InvalidArgument("reverse_param.axis: none, want at least one");
    }
    return std::unique_ptr<Layer>(new Reverse({axes.begin(), axes.end()}));
  }
  absl::StatusOr<TensorSpecs> Infer(absl::Span<const TensorSpec> in) const override {
    const int rank = in[0].shape.rank();
    std::vector<bool> seen(rank, false);
    for (int axis : axes_) {
      if (axis < -rank || axis >= rank) {
        return InvalidArgument("reverse_param.axis: ", axis, ", want ", -rank, " to ", rank - 1,
                               " for input 0: shape ", in[0].shape.ToString());
      }
      const int place = axis < 0 ? axis + rank : axis;
      if (seen[place]) {
        return InvalidArgument("reverse_param.axis: ", axis, " is axis ", place, " a second time");
      }
      seen[place] = true;
    }
    TensorSpec out = in[0];
    if (seen[0] && out.level != Level::kConstant) out.level = Level::kUnknown;
    return TensorSpecs{out};
  }
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(absl::Span<const TensorSpec>) const override {
    return MakeCopy([axes = axes_](const Tensor& x, TensorDims at) {
      StridedCopy copy;
      for (int axis : axes) {
        axis += axis < 0 ? x.rank() : 0;
        copy.start += at[axis] * (x.dims[axis] - 1);
        at[axis] = -at[axis];
      }
      for (int i = 0; i < x.rank(); ++i) copy.Add(x.dims[i], at[i]);
      return copy;
    });
  }
  std::string Describe() const override {
    return absl::StrCat("axis=[", absl::StrJoin(axes_, ", "), "]");
  }

 private:
  explicit Reverse(std::vector<int> axes) : axes_(std::move(axes)) {}
  const std::vector<int> axes_;
};

// ---------------------------------------------------------------------------------------- reorg

// reorg_layer (Reorg, PassThrough): channels that were neighbours stay neighbours.  (Darknet's own
// reorg computes other places from the same numbers; the published operator does not.)  Decomposes
// into reshape, transpose, reshape.
class Reorg final : public Layer {
 public:
  static absl::StatusOr<std::unique_ptr<Layer>> Parse(const ParseContext& ctx) {
    const ulf::ReorgParameter& p = ctx.param.reorg_param();
    RETURN_IF_ERROR(WantBetween("reorg_param.stride", p.stride(), 1, kMaxStride));
    return std::unique_ptr<Layer>(new Reorg(p.stride(), p.reverse()));
  }
  absl::StatusOr<TensorSpecs> Infer(absl::Span<const TensorSpec> in) const override {
    RETURN_IF_ERROR(WantImage(in));
    TensorSpec out = in[0];
    const Dim side = Dim::Of(stride_), square = Dim::Of(stride_ * stride_);
    if (reverse_) {
      ASSIGN_OR_RETURN(out.shape[1], Quotient(in[0], 1, square));
      for (int axis : {2, 3}) out.shape[axis] = Multiply(in[0].shape[axis], side);
    } else {
      out.shape[1] = Multiply(in[0].shape[1], square);
      for (int axis : {2, 3}) {
        ASSIGN_OR_RETURN(out.shape[axis], Quotient(in[0], axis, side));
      }
    }
    return OnlyOutput(std::move(out), in);
  }
  absl::Status Lower(Lowering& lowering) const override {
    using Value = Lowering::Value;
    if (reverse_) {  // [n, s*s*c, h, w] -> [n, s, s, c, h, w] -> [n, c, h, s, w, s]
      const Value outer = lowering.Add("reshape_1", MakeSplitAxis(1, stride_, 0), {0});
      const Value split = lowering.Add("reshape_2", MakeSplitAxis(2, stride_, 0), {outer});
      const Value turned = lowering.Add("transpose", MakeTranspose({0, 3, 4, 1, 5, 2}), {split});
      const Value rows = lowering.Add("reshape_3", MakeMergeAxes(2, 2), {turned});
      lowering.SetOutput(0, lowering.Add("reshape_4", MakeMergeAxes(3, 2), {rows}));
      return absl::OkStatus();
    }
    // [n, c, h, w] -> [n, c, h/s, s, w/s, s] -> [n, s, s, c, h/s, w/s]
    const Value rows = lowering.Add("reshape_1", MakeSplitAxis(2, 0, stride_), {0});
    const Value split = lowering.Add("reshape_2", MakeSplitAxis(4, 0, stride_), {rows});
    const Value turned = lowering.Add("transpose", MakeTranspose({0, 3, 5, 1, 2, 4}), {split});
    lowering.SetOutput(0, lowering.Add("reshape_3", MakeMergeAxes(1, 3), {turned}));
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(absl::Span<const TensorSpec>) const override {
    return MakeCopy([s = stride_, reverse = reverse_](const Tensor& x, const TensorDims& at) {
      StridedCopy copy;
      copy.Add(x.dims[0], at[0]);
      if (reverse) {
        const int64_t channels = x.dims[1] / (s * s);
        copy.Add(channels, at[1]);
        copy.Add(x.dims[2], at[2]);
        copy.Add(s, s * channels * at[1]);
        copy.Add(x.dims[3], at[3]);
        copy.Add(s, channels * at[1]);
      } else {
        copy.Add(s, at[2]);
        copy.Add(s, at[3]);
        copy.Add(x.dims[1], at[1]);
        copy.Add(x.dims[2] / s, s * at[2]);
        copy.Add(x.dims[3] / s, s * at[3]);
      }
      return copy;
    });
  }
  std::string Describe() const override {
    return absl::StrCat("stride=", stride_, reverse_ ? " reverse=true" : "");
  }

 private:
  static constexpr int64_t kMaxStride = 4096;
  Reorg(int64_t stride, bool reverse) : stride_(stride), reverse_(reverse) {}

  absl::StatusOr<Dim> Quotient(const TensorSpec& in, int axis, Dim by) const {
    const std::optional<Dim> quotient = Divide(in.shape[axis], by);
    if (quotient.has_value()) return *quotient;
    constexpr absl::string_view kNames[] = {"rows", "channels", "height", "width"};
    return BadInput(0, in, kNames[axis], " that ", by.value(), " divides (reorg_param.stride ",
                    stride_, reverse_ ? ", reverse)" : ")");
  }

  const int64_t stride_;
  const bool reverse_;
};

// ---------------------------------------------------------------------------------------- shuffle

// Primitive of shuffle_channel_layer: axes 1 and 2 change places, however many follow.
class SwapAxes final : public Layer {
 public:
  absl::StatusOr<TensorSpecs> Infer(absl::Span<const TensorSpec> in) const override {
    RETURN_IF_ERROR(WantAxis("axis", 2, in[0]));
    TensorSpec out = in[0];
    std::swap(out.shape[1], out.shape[2]);
    return TensorSpecs{out};
  }
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(absl::Span<const TensorSpec>) const override {
    return MakeCopy([](const Tensor& x, const TensorDims& at) {
      StridedCopy copy;
      copy.Add(x.dims[0], at[0]);
      copy.Add(x.dims[2], at[2]);
      copy.Add(x.dims[1], at[1]);
      copy.Add(at[2], 1);
      return copy;
    });
  }
};

// shuffle_channel_layer (ShuffleChannel).  Decomposes into reshape, transpose, reshape.
class ShuffleChannel final : public Layer {
 public:
  static absl::StatusOr<std::unique_ptr<Layer>> Parse(const ParseContext& ctx) {
    const int64_t group = ctx.param.shuffle_channel_param().group();
    RETURN_IF_ERROR(WantBetween("shuffle_channel_param.group", group, 1));
    return std::unique_ptr<Layer>(new ShuffleChannel(group));
  }
  absl::StatusOr<TensorSpecs> Infer(absl::Span<const TensorSpec> in) const override {
    if (in[0].shape.rank() < 2) return BadInput(0, in[0], "rank 2 or more");
    if (!Divide(in[0].shape[1], Dim::Of(group_)).has_value()) {
      return BadInput(0, in[0], "channels that ", group_, " divides (shuffle_channel_param.group)");
    }
    return TensorSpecs{in[0]};
  }
  absl::Status Lower(Lowering& lowering) const override {
    // [n, c, rest] for any number of further axes: those stay where they are.
    const Lowering::Value split = lowering.Add("reshape_1", MakeSplitAxis(1, group_, 0), {0});
    const Lowering::Value turned = lowering.Add("transpose", std::make_unique<SwapAxes>(), {split});
    lowering.SetOutput(0, lowering.Add("reshape_2", MakeMergeAxes(1, 2), {turned}));
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(absl::Span<const TensorSpec>) const override {
    return MakeCopy([group = group_](const Tensor& x, const TensorDims& at) {
      const int64_t per_group = x.dims[1] / group;
      StridedCopy copy;
      copy.Add(x.dims[0], at[0]);
      copy.Add(per_group, at[1]);
      copy.Add(group, per_group * at[1]);
      copy.Add(at[1], 1);
      return copy;
    });
  }
  std::string Describe() const override { return absl::StrCat("group=", group_); }

 private:
  explicit ShuffleChannel(int64_t group) : group_(group) {}

  const int64_t group_;
};

constexpr LayerType kTypes[] = {
    {.name = "transpose_layer",
     .summary = "axes in another order",
     .param_field = ulf::LayerParameter::kTransposeParamFieldNumber,
     .parse = &Transpose::Parse,
     .doc = {.formula = "axis perm[k] of x becomes axis k of y",
             .inputs = "x, any type",
             .source = "numpy.transpose",
             .example_inputs = "x:2,3",
             .example_param = "transpose_param { perm: 0 perm: 2 perm: 1 }"}},
    {.name = "reverse_layer",
     .summary = "elements in opposite order along axes",
     .param_field = ulf::LayerParameter::kReverseParamFieldNumber,
     .parse = &Reverse::Parse,
     .aliases = "Reverse",
     .doc = {.formula = "the elements in opposite order along each axis",
             .inputs = "x, any type and shape",
             .source = "Reverse of the extension operators; numpy.flip",
             .example_inputs = "x:3",
             .example_param = "reverse_param { axis: -1 }"}},
    {.name = "reorg_layer",
     .summary = "squares of places to channels, or back",
     .param_field = ulf::LayerParameter::kReorgParamFieldNumber,
     .parse = &Reorg::Parse,
     .aliases = "Reorg PassThrough",
     .decomposable = true,
     .image_inputs = 1,
     .image_outputs = 1,
     .doc = {.formula =
                 "y[n, (i*s + j)*C + c, h, w] = x[n, c, h*s + i, w*s + j]; reverse: the inverse",
             .inputs = "x [rows, channels, height, width] float32",
             .source = "Reorg/PassThrough of the extension operators",
             .example_inputs = "x:2,4,4",
             .example_param = "reorg_param { stride: 2 }"}},
    {.name = "shuffle_channel_layer",
     .summary = "channels [group, c / group] transposed",
     .param_field = ulf::LayerParameter::kShuffleChannelParamFieldNumber,
     .parse = &ShuffleChannel::Parse,
     .aliases = "ShuffleChannel",
     .decomposable = true,
     .image_inputs = 1,
     .image_outputs = 1,
     .doc = {.formula = "y[n, j*group + i] = x[n, i*(c / group) + j]",
             .inputs = "x [rows, channels, ...], any type",
             .source = "ShuffleChannel of the extension operators; torch.nn.ChannelShuffle",
             .example_inputs = "x:6,2,2",
             .example_param = "shuffle_channel_param { group: 3 }"}},
};

}  // namespace

std::unique_ptr<Layer> MakeTranspose(std::vector<int> perm) {
  return std::make_unique<Transpose>(std::move(perm));
}

std::unique_ptr<Layer> MakeSplitAxis(int axis, int64_t outer, int64_t inner) {
  return std::make_unique<SplitAxis>(axis, outer, inner);
}

std::unique_ptr<Layer> MakeMergeAxes(int first, int count) {
  return std::make_unique<MergeAxes>(first, count);
}

absl::Span<const LayerType> RearrangeLayers() { return kTypes; }

}  // namespace ulfd::engine

// Layers that choose entries along an axis: top_k, take.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/layers/checks.h"
#include "engine/layers/common/function_kernel.h"
#include "engine/layers/types/families.h"

namespace ulfd::engine {
namespace {

// ----------------------------------------------------------------------------------------- top_k

// The better an entry the smaller its rank: by value, then by place; NaN comes behind all numbers.
uint64_t RankOf(float value, int64_t place) {
  uint32_t order = ~uint32_t{0};
  if (value == value) {
    const auto bits = std::bit_cast<uint32_t>(value + 0.0f);  // -0 is 0.
    order = bits >> 31 != 0 ? bits : ~bits & 0x7fffffff;
  }
  return uint64_t{order} << 32 | static_cast<uint64_t>(place);
}

class TopKKernel final : public Kernel {
 public:
  TopKKernel(int axis, int64_t k, bool smallest) : axis_(axis), k_(k), sign_(smallest ? -1 : 1) {}
  size_t ScratchBytes(absl::Span<const Tensor> in) const override {
    return static_cast<size_t>(std::min(in[0].dims[axis_], k_ + AtOnce())) * sizeof(uint64_t);
  }
  absl::Status Run(RunContext& ctx) const override {
    const Tensor& x = ctx.in[0];
    const int64_t n = x.dims[axis_];
    const Around around(x, axis_);
    if (n < k_ && around.outer * around.inner > 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("input 0: ", n, " entries along axis ", axis_, ", want ", k_, " or more"));
    }
    auto* const best = static_cast<uint64_t*>(ctx.scratch);
    for (int64_t o = 0; o < around.outer; ++o) {
      for (int64_t i = 0; i < around.inner; ++i) {
        const float* const column = x.f32() + o * n * around.inner + i;
        if (!Choose(column, n, around.inner, best, ctx.pace)) return absl::OkStatus();
        for (int64_t j = 0; j < k_; ++j) {
          const auto place = static_cast<uint32_t>(best[j]);
          const int64_t at = (o * k_ + j) * around.inner + i;
          ctx.out[0].f32()[at] = column[place * around.inner];
          ctx.out[1].f32()[at] = static_cast<float>(place);
        }
      }
    }
    return absl::OkStatus();
  }

 private:
  // Entries that are ranked before the best are chosen of them.
  int64_t AtOnce() const { return std::max<int64_t>(k_, 1 << 14); }

  // Ranks of the k best, in order; false: nobody waits for them.
  bool Choose(const float* x, int64_t n, int64_t stride, uint64_t* best, Pace& pace) const {
    constexpr int64_t kWork = 128;  // Of ranking an entry and choosing.
    int64_t held = 0;
    for (int64_t i = 0; i < n;) {
      const int64_t end = std::min(n, i + AtOnce());
      if (pace.Stops((held + end - i) * kWork)) return false;
      for (; i < end; ++i) best[held++] = RankOf(sign_ * x[i * stride], i);
      if (held == k_) continue;
      std::nth_element(best, best + k_ - 1, best + held);
      held = std::min(held, k_);
    }
    std::sort(best, best + k_);
    return true;
  }

  const int axis_;
  const int64_t k_;
  const float sign_;
};

// top_k_layer: the k largest or smallest entries along an axis, the best first, and their places.
// Input   0 x f32, any rank above the axis.
// Weights none.
// Output  0 values, 1 places (whole numbers as f32): shape of x with k for the axis; level of x,
//         unknown if the axis is 0.  Of equal entries the first is in front; NaN comes last.
// Params  top_k_param: k, axis, smallest.
// Errors  InvalidArgument for a k below 1 or above the axis, an axis that x lacks.
// Source  ONNX TopK.
class TopK final : public Layer {
 public:
  static absl::StatusOr<std::unique_ptr<Layer>> Parse(const ParseContext& ctx) {
    const auto& param = ctx.param.top_k_param();
    if (param.k() < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("top_k_param.k: ", param.k(), ", want 1 or more"));
    }
    if (param.axis() < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("top_k_param.axis: ", param.axis(), ", want 0 or more"));
    }
    return std::unique_ptr<Layer>(new TopK(param.axis(), param.k(), param.smallest()));
  }
  absl::StatusOr<TensorSpecs> Infer(absl::Span<const TensorSpec> in) const override {
    RETURN_IF_ERROR(WantFloat32(in));
    RETURN_IF_ERROR(WantAxis("top_k_param.axis", axis_, in[0]));
    const Dim size = in[0].shape[axis_];
    if (size.IsConst() && size.value() < k_) {
      return BadInput(0, in[0], absl::StrCat("at least ", k_, " entries along axis ", axis_));
    }
    TensorSpec out = in[0];
    out.shape[axis_] = Dim::Of(k_);
    out.level = LevelOf(out.shape, in);
    if (axis_ == 0 && out.level != Level::kConstant) out.level = Level::kUnknown;
    return TensorSpecs{out, out};
  }
  double Flops(absl::Span<const TensorSpec> in, absl::Span<const TensorSpec>) const override {
    return static_cast<double>(in[0].shape.Elements().value()) * static_cast<double>(k_);
  }
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(absl::Span<const TensorSpec>) const override {
    return std::unique_ptr<Kernel>(new TopKKernel(axis_, k_, smallest_));
  }
  std::string Describe() const override {
    return absl::StrCat("axis=", axis_, " k=", k_, smallest_ ? " smallest" : "");
  }

 private:
  TopK(int axis, int64_t k, bool smallest) : axis_(axis), k_(k), smallest_(smallest) {}
  const int axis_;
  const int64_t k_;
  const bool smallest_;
};

// ------------------------------------------------------------------------------------------ take

// A place that counts from the end where it is below 0; -1: there is none.
int64_t PlaceOf(float index, int64_t n) {
  if (!(index >= -static_cast<float>(n) && index < static_cast<float>(n))) return -1;
  const auto place = static_cast<int64_t>(index);
  return place < 0 ? place + n : place;
}

// Of one row: x [outer, n, inner], index [outer, k, inner or 1] -> y [outer, k, inner].
void TakeRow(const float* x, const float* index, int64_t outer, int64_t n, int64_t k, int64_t inner,
             int64_t index_inner, float* y) {
  for (int64_t o = 0; o < outer; ++o, x += n * inner) {
    for (int64_t j = 0; j < k; ++j, index += index_inner, y += inner) {
      for (int64_t i = 0; i < index_inner; ++i) {
        const int64_t width = index_inner == 1 ? inner : 1, place = PlaceOf(index[i], n);
        if (place < 0) {
          std::fill_n(y + i, width, 0.0f);
        } else {
          std::copy_n(x + place * inner + i, width, y + i);
        }
      }
    }
  }
}

// take_layer: y[.., j, ..] = x[.., index[.., j, ..], ..] along an axis.
// Input   0 x f32; 1 index f32, whole numbers: below 0 they count from the end of the axis.
//         Ranks and axes before the given one are the same, but that one of them may have a single
//         row (axis 0) for all; behind it the index has the axes of x, or 1 for each: then it
//         stands for all of them.
// Weights none.
// Output  0 shape of x with as many entries along the axis as the index has; zero where there is no
//         such place.  Level of both.
// Params  take_param.axis, 1 or more: rows are not taken from other rows.
// Errors  InvalidArgument for other shapes.
// Source  ONNX GatherElements; numpy.take_along_axis.
class Take final : public Layer {
 public:
  static absl::StatusOr<std::unique_ptr<Layer>> Parse(const ParseContext& ctx) {
    const int axis = ctx.param.take_param().axis();
    if (axis < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("take_param.axis: ", axis, ", want 1 or more"));
    }
    return std::unique_ptr<Layer>(new Take(axis));
  }
  absl::StatusOr<TensorSpecs> Infer(absl::Span<const TensorSpec> in) const override {
    RETURN_IF_ERROR(WantFloat32(in));
    RETURN_IF_ERROR(WantAxis("take_param.axis", axis_, in[0]));
    const Shape &x = in[0].shape, &index = in[1].shape;
    RETURN_IF_ERROR(WantRank(in, 1, x.rank(), x.rank()));
    TensorSpec out = in[0];
    bool fits = true, same = true, single = true;
    for (int d = 0; d < x.rank(); ++d) {
      const bool one_row = d == 0 && (x[0] == Dim::Users() || x[0] == Dim::Of(1));
      const bool one_index = d == 0 && (index[0] == Dim::Users() || index[0] == Dim::Of(1));
      if (d == axis_ || one_row) {
        out.shape[d] = index[d];
      } else if (d < axis_) {
        const std::optional<Dim> both = one_index ? x[d] : Same(x[d], index[d]);
        fits &= both.has_value();
        out.shape[d] =
            d > 0 || one_index || x[d] == index[d] ? both.value_or(x[d]) : Dim::Unknown();
      } else {
        same &= Same(x[d], index[d]).has_value();
        single &= index[d] == Dim::Of(1);
      }
    }
    if (!fits || !(same || single)) {
      return BadInput(1, in[1], absl::StrCat("one that fits input 0: shape ", x.ToString()));
    }
    out.level = out.shape[0].IsUnknown() ? Level::kUnknown : LevelOf(out.shape, in);
    return TensorSpecs{out};
  }
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(absl::Span<const TensorSpec>) const override {
    return MakeKernel([axis = axis_](RunContext& ctx) {
      const Tensor &x = ctx.in[0], &index = ctx.in[1], &y = ctx.out[0];
      const Around all(x, axis), of_index(index, axis);
      const int64_t n = x.dims[axis], k = index.dims[axis], rows = y.dims[0];
      if (y.elements() == 0) return;
      const int64_t outer = all.outer / x.dims[0];
      for (int64_t row = 0; row < rows; ++row) {
        TakeRow(x.f32() + (x.dims[0] == 1 ? 0 : row) * outer * n * all.inner,
                index.f32() + (index.dims[0] == 1 ? 0 : row) * outer * k * of_index.inner, outer, n,
                k, all.inner, of_index.inner, ctx.out[0].f32() + row * outer * k * all.inner);
      }
    });
  }
  std::string Describe() const override { return absl::StrCat("axis=", axis_); }

 private:
  explicit Take(int axis) : axis_(axis) {}
  const int axis_;
};

constexpr LayerType kTypes[] = {
    {.name = "top_k_layer",
     .summary = "the k largest or smallest entries along an axis, and their places",
     .outputs = {2, 2},
     .param_field = ulf::LayerParameter::kTopKParamFieldNumber,
     .parse = &TopK::Parse,
     .doc = {.formula = "y0[.., j, ..] = the j-th best x[.., i, ..] along the axis; "
                        "y1[.., j, ..] = its i",
             .inputs = "x float32, any rank above the axis",
             .source = "ONNX TopK",
             .example_inputs = "x:5",
             .example_param = "top_k_param { axis: 1 k: 2 }"}},
    {.name = "take_layer",
     .summary = "entries along an axis, by their places",
     .inputs = {2, 2},
     .param_field = ulf::LayerParameter::kTakeParamFieldNumber,
     .parse = &Take::Parse,
     .doc = {.formula = "y[.., j, ..] = x[.., index[.., j, ..], ..] along the axis",
             .inputs = "x float32, any rank above the axis\nindex float32, whole numbers: below 0 "
                       "they count from the end; axes behind may all be 1, one of the two may have "
                       "a single row",
             .source = "ONNX GatherElements; numpy.take_along_axis",
             .example_inputs = "x:5,3;index:2,1",
             .example_param = "take_param { axis: 1 }"}},
};

}  // namespace

absl::Span<const LayerType> ChoiceLayers() { return kTypes; }

}  // namespace ulfd::engine

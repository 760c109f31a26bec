// Enlargement of images.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/layers/checks.h"
#include "engine/layers/common/function_kernel.h"
#include "engine/layers/common/multiversion.h"
#include "engine/layers/types/families.h"

namespace ulfd::engine {
namespace {

ULFD_MULTIVERSION void UpsampleRow(const float* x, float scale, int64_t stride, float* __restrict y,
                                   int64_t n) {
  if (stride == 1) {
    for (int64_t i = 0; i < n; ++i) y[i] = x[i] * scale;
  } else if (stride == 2) {
    for (int64_t i = 0; i < n; ++i) y[2 * i] = y[2 * i + 1] = x[i] * scale;
  } else {
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < stride; ++j) y[i * stride + j] = x[i] * scale;
    }
  }
}

// upsample_layer (Upsample): the nearest place.
class Upsample final : public Layer {
 public:
  static absl::StatusOr<std::unique_ptr<Layer>> Parse(const ParseContext& ctx) {
    const ulf::UpsampleParameter& p = ctx.param.upsample_param();
    const std::pair<absl::string_view, int64_t> strides[] = {
        {p.has_stride_h() ? "stride_h" : "stride", p.has_stride_h() ? p.stride_h() : p.stride()},
        {p.has_stride_w() ? "stride_w" : "stride", p.has_stride_w() ? p.stride_w() : p.stride()}};
    for (const auto& [field, value] : strides) {
      RETURN_IF_ERROR(WantBetween(absl::StrCat("upsample_param.", field), value, 1, kMaxStride));
    }
    return std::unique_ptr<Layer>(new Upsample(strides[0].second, strides[1].second, p.scale()));
  }
  absl::StatusOr<TensorSpecs> Infer(absl::Span<const TensorSpec> in) const override {
    RETURN_IF_ERROR(WantImage(in));
    TensorSpec out = in[0];
    out.shape[2] = Multiply(out.shape[2], Dim::Of(down_));
    out.shape[3] = Multiply(out.shape[3], Dim::Of(across_));
    return OnlyOutput(std::move(out), in);
  }
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(absl::Span<const TensorSpec>) const override {
    return MakeKernel([down = down_, across = across_, scale = scale_](RunContext& ctx) {
      const Tensor& x = ctx.in[0];
      const int64_t width = x.dims[3], out_width = width * across;
      const float* from = x.f32();
      float* to = ctx.out[0].f32();
      if (width == 0) return;
      for (int64_t row = x.elements() / width; row > 0; --row, from += width) {
        UpsampleRow(from, scale, across, to, width);
        for (int64_t copy = 1; copy < down; ++copy) {
          std::copy_n(to, out_width, to + copy * out_width);
        }
        to += down * out_width;
      }
    });
  }
  std::string Describe() const override {
    return absl::StrCat("stride=", down_, "x", across_, " scale=", scale_);
  }

 private:
  static constexpr int64_t kMaxStride = 4096;
  Upsample(int64_t down, int64_t across, float scale)
      : down_(down), across_(across), scale_(scale) {}
  const int64_t down_, across_;
  const float scale_;
};

constexpr LayerType kTypes[] = {
    {.name = "upsample_layer",
     .summary = "nearest-neighbour enlargement of images, times a scale",
     .param_field = ulf::LayerParameter::kUpsampleParamFieldNumber,
     .parse = &Upsample::Parse,
     .aliases = "Upsample",
     .image_inputs = 1,
     .image_outputs = 1,
     .doc = {.formula = "y[n, c, h, w] = scale * x[n, c, h / stride_h, w / stride_w], rounded down",
             .inputs = "x [rows, channels, height, width] float32",
             .source = "Upsample of the extension operators",
             .example_inputs = "x:2,2,2",
             .example_param = "upsample_param { scale: 1 stride: 2 }"}},
};

}  // namespace

absl::Span<const LayerType> UpsampleLayers() { return kTypes; }

}  // namespace ulfd::engine

// Rows or places divided by their norm: normalize (SSD), layer_norm.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "engine/kernels/table.h"
#include "engine/layers/checks.h"
#include "engine/layers/common/function_kernel.h"
#include "engine/layers/common/multiversion.h"
#include "engine/layers/types/families.h"

namespace ulfd::engine {
namespace {

ULFD_MULTIVERSION void AddSquares(const float* x, double* __restrict sums, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sums[i] += double{x[i]} * double{x[i]};
}
ULFD_MULTIVERSION double SumOfSquares(const float* x, int64_t n) {
  constexpr int kLanes = 8;
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) lanes[j] += double{x[i + j]} * double{x[i + j]};
  }
  double sum = 0;
  for (double lane : lanes) sum += lane;
  for (; i < n; ++i) sum += double{x[i]} * double{x[i]};
  return sum;
}
ULFD_MULTIVERSION void Inverse(const double* sums, double eps, float* __restrict inverse,
                               int64_t n) {
  for (int64_t i = 0; i < n; ++i) inverse[i] = static_cast<float>(1.0 / std::sqrt(sums[i] + eps));
}
ULFD_MULTIVERSION void ScaleBy(const float* x, const float* inverse, float scale,
                               float* __restrict y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * inverse[i] * scale;
}
ULFD_MULTIVERSION void ScaleAll(const float* x, float scale, float* __restrict y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * scale;
}

struct NormalizeOptions {
  bool across_spatial = false, per_channel = false;
  float eps = 0;
  std::vector<float> scale;  // One, or one per channel.
};

class NormalizeKernel final : public Kernel {
 public:
  explicit NormalizeKernel(const NormalizeOptions& options) : options_(options) {}
  size_t ScratchBytes(absl::Span<const Tensor> in) const override {
    if (options_.across_spatial) return 0;
    return static_cast<size_t>(in[0].dims[2] * in[0].dims[3]) * (sizeof(double) + sizeof(float));
  }
  absl::Status Run(RunContext& ctx) const override {
    const Tensor& x = ctx.in[0];
    const int64_t channels = x.dims[1], places = x.dims[2] * x.dims[3];
    if (x.elements() == 0) return absl::OkStatus();
    double* sums = static_cast<double*>(ctx.scratch);
    for (int64_t row = 0; row < x.dims[0]; ++row) {
      const float* from = x.f32() + row * channels * places;
      float* to = ctx.out[0].f32() + row * channels * places;
      if (options_.across_spatial) {
        const double norm = std::sqrt(SumOfSquares(from, channels * places) + options_.eps);
        for (int64_t c = 0; c < channels; ++c) {
          ScaleAll(from + c * places, static_cast<float>(Scale(c) / norm), to + c * places, places);
        }
        continue;
      }
      float* inverse = reinterpret_cast<float*>(sums + places);
      std::fill_n(sums, places, 0.0);
      for (int64_t c = 0; c < channels; ++c) AddSquares(from + c * places, sums, places);
      Inverse(sums, options_.eps, inverse, places);
      for (int64_t c = 0; c < channels; ++c) {
        ScaleBy(from + c * places, inverse, Scale(c), to + c * places, places);
      }
    }
    return absl::OkStatus();
  }

 private:
  float Scale(int64_t channel) const {
    return options_.scale[options_.scale.size() == 1 ? 0 : channel];
  }

  const NormalizeOptions options_;
};

// normalize_layer (Normalize).  The sum runs over the channels at each place, or over the whole row
// (across_spatial).
class Normalize final : public Layer {
 public:
  static absl::StatusOr<std::unique_ptr<Layer>> Parse(const ParseContext& ctx) {
    const ulf::NormalizeParameter& p = ctx.param.norm_param();
    if (!(p.eps() >= 0)) {
      return InvalidArgument("norm_param.eps: ", p.eps(), ", want 0 or more");
    }
    if (p.has_scale_filler() && p.scale_filler().type() != "constant") {
      return InvalidArgument("norm_param.scale_filler.type: \"", p.scale_filler().type(),
                             "\", want \"constant\" (or a weight)");
    }
    std::vector<float> scale = {p.has_scale_filler() ? p.scale_filler().value() : 1.0f};
    const bool trained = !ctx.weights.empty();
    if (trained) {
      scale.assign(ctx.weights[0].data.begin(), ctx.weights[0].data.end());
      if (scale.empty() || (p.channel_shared() && scale.size() != 1)) {
        return BadWeight(
            ctx.weights, 0,
            p.channel_shared() ? "one value (norm_param.channel_shared)" : "one value per channel");
      }
    }
    return std::unique_ptr<Layer>(new Normalize(
        {p.across_spatial(), trained && !p.channel_shared(), p.eps(), std::move(scale)}));
  }
  absl::StatusOr<TensorSpecs> Infer(absl::Span<const TensorSpec> in) const override {
    RETURN_IF_ERROR(WantImage(in));
    const int64_t channels = static_cast<int64_t>(options_.scale.size());
    if (options_.per_channel && !CouldBeEqual(in[0].shape[1], Dim::Of(channels))) {
      return BadInput(0, in[0], channels, " channels (the size of weight 0)");
    }
    return TensorSpecs{in[0]};
  }
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(absl::Span<const TensorSpec>) const override {
    return std::unique_ptr<Kernel>(new NormalizeKernel(options_));
  }
  std::string Describe() const override {
    return absl::StrCat(
        "across_spatial=", options_.across_spatial ? "true" : "false", " eps=", options_.eps,
        " scale=", options_.per_channel ? "per channel" : absl::StrCat(options_.scale[0]));
  }

 private:
  explicit Normalize(NormalizeOptions options) : options_(std::move(options)) {}
  const NormalizeOptions options_;
};

// ------------------------------------------------------------------------------------- layer_norm

struct LayerNormOptions {
  bool centred = true;
  float eps = 0;
  std::vector<float> scale, shift;  // Of one size; empty: neither.
};

class LayerNorm final : public Layer {
 public:
  static absl::StatusOr<std::unique_ptr<Layer>> Parse(const ParseContext& ctx) {
    const ulf::LayerNormParameter& p = ctx.param.layer_norm_param();
    if (!(p.eps() >= 0)) {
      return InvalidArgument("layer_norm_param.eps: ", p.eps(), ", want 0 or more");
    }
    LayerNormOptions options{.centred = p.centred(), .eps = p.eps()};
    if (!ctx.weights.empty()) {
      const absl::Span<const float> scale = ctx.weights[0].data;
      if (scale.empty()) return BadWeight(ctx.weights, 0, "a value for each of the last dimension");
      options.scale.assign(scale.begin(), scale.end());
      options.shift.resize(scale.size());
    }
    if (ctx.weights.size() > 1) {
      const absl::Span<const float> shift = ctx.weights[1].data;
      if (shift.size() != options.scale.size()) {
        return BadWeight(ctx.weights, 1, options.scale.size(), " values, as weight 0");
      }
      options.shift.assign(shift.begin(), shift.end());
    }
    return std::unique_ptr<Layer>(new LayerNorm(std::move(options)));
  }
  absl::StatusOr<TensorSpecs> Infer(absl::Span<const TensorSpec> in) const override {
    RETURN_IF_ERROR(WantFloat32(in));
    RETURN_IF_ERROR(WantRank(in, 0, 2, 8));
    const auto n = static_cast<int64_t>(options_->scale.size());
    if (n > 0 && !CouldBeEqual(in[0].shape[in[0].shape.rank() - 1], Dim::Of(n))) {
      return BadInput(0, in[0], "a last dimension of ", n, " (the size of weight 0)");
    }
    return TensorSpecs{in[0]};
  }
  Semantics semantics() const override { return {.op = Semantics::Op::kLayerNorm}; }
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(absl::Span<const TensorSpec>) const override {
    return MakeKernel([options = options_](RunContext& ctx) {
      const Tensor& x = ctx.in[0];
      RowNorm norm{.eps = options->eps, .centred = options->centred};
      if (!options->scale.empty()) {
        norm.scale = options->scale.data();
        norm.shift = options->shift.data();
      }
      const int64_t n = x.dims.back();
      if (n > 0) Kernels().layer_norm(norm, x.f32(), ctx.out[0].f32(), x.elements() / n, n);
    });
  }
  double Flops(absl::Span<const TensorSpec> in, absl::Span<const TensorSpec> out) const override {
    return 7 * Layer::Flops(in, out);  // Two sums, a difference, a square, a product and an affine.
  }
  std::string Describe() const override {
    return absl::StrCat("eps=", options_->eps, " centred=", options_->centred ? "true" : "false",
                        options_->scale.empty()
                            ? ""
                            : absl::StrCat(" scale and shift of ", options_->scale.size()));
  }

 private:
  explicit LayerNorm(LayerNormOptions options)
      : options_(std::make_shared<const LayerNormOptions>(std::move(options))) {}
  const std::shared_ptr<const LayerNormOptions> options_;
};

constexpr LayerType kTypes[] = {
    {.name = "layer_norm_layer",
     .summary = "(x - mean) / sqrt(var + eps) * scale + shift, over the last dimension",
     .weights = {0, 2},
     .param_field = ulf::LayerParameter::kLayerNormParamFieldNumber,
     .parse = &LayerNorm::Parse,
     .doc = {.formula = "y = (x - mean) / sqrt(mean of (x - mean)^2 + eps) * scale + shift, each "
                        "row of the last dimension with its own mean; centred: false: a mean of 0",
             .inputs = "x float32, rank 2 or more",
             .weights = "scale [n]; optional\nshift [n]; optional",
             .source = "arXiv:1607.06450; arXiv:1910.07467 (RMS norm)",
             .example_inputs = "x:4",
             .example_weights = "4;4",
             .example_param = "layer_norm_param { eps: 1e-5 }"}},
    {.name = "normalize_layer",
     .summary = "x / sqrt(sum of x^2 + eps) * scale, per place or per row",
     .weights = {0, 1},
     .param_field = ulf::LayerParameter::kNormParamFieldNumber,
     .parse = &Normalize::Parse,
     .aliases = "Normalize",
     .image_inputs = 1,
     .image_outputs = 1,
     .doc = {.formula = "y = x / sqrt(sum of x^2 + eps) * scale; the sum over channels at each "
                        "place, or over the row",
             .inputs = "x [rows, channels, height, width] float32",
             .weights = "scale [1], or [channels] if not channel_shared; optional",
             .source = "Normalize of the extension operators; SSD",
             .example_inputs = "x:3,2,2",
             .example_weights = "3",
             .example_param = "norm_param { across_spatial: false channel_shared: false }"}},
};

}  // namespace

absl::Span<const LayerType> NormalizeLayers() { return kTypes; }

}  // namespace ulfd::engine

// Convolution of images.
// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "engine/layers/checks.h"
#include "engine/layers/common/small_convolution.h"
#include "engine/layers/common/window.h"
#include "engine/layers/types/families.h"
#include "engine/tensor/onednn_convolution.h"

namespace ulfd::engine {
namespace {

class ConvolutionKernel final : public Kernel {
 public:
  ConvolutionKernel(std::unique_ptr<const Convolution> convolution, SmallConvolution small)
      : convolution_(std::move(convolution)), small_(std::move(small)) {}
  size_t ScratchBytes(absl::Span<const Tensor> in) const override {
    const Tensor& x = in[0];
    if (x.elements() == 0) return 0;
    if (small_.Suits(x.dims[2], x.dims[3])) return small_.ScratchBytes(x.dims[2], x.dims[3]);
    return convolution_->ScratchBytes(x.dims[0], x.dims[2], x.dims[3]);
  }
  int64_t bytes() const override { return convolution_->bytes() + small_.bytes(); }
  absl::Status Run(RunContext& ctx) const override {
    const Tensor& x = ctx.in[0];
    if (x.elements() == 0) return absl::OkStatus();
    if (!small_.Suits(x.dims[2], x.dims[3])) {
      return convolution_->Run(x.f32(), x.dims[0], x.dims[2], x.dims[3], ctx.out[0].f32(),
                               ctx.scratch, ctx.pace);
    }
    small_.Run(x.f32(), x.dims[0], x.dims[2], x.dims[3], ctx.out[0].f32(), ctx.scratch, ctx.pace);
    return absl::OkStatus();
  }

 private:
  const std::unique_ptr<const Convolution> convolution_;
  const SmallConvolution small_;
};

// convolution_layer.  c runs over the channels of o's group; x is zero outside the image; sizes are
// rounded down.
class ConvolutionLayer final : public Layer {
 public:
  static absl::StatusOr<std::unique_ptr<Layer>> Parse(const ParseContext& ctx) {
    const ulf::ConvolutionParameter& p = ctx.param.convolution_param();
    const Weight& weight = ctx.weights[0];
    if (weight.rank() != 4 || weight.data.empty()) {
      return BadWeight(ctx.weights, 0,
                       "[num_output, channels / group, kernel_h, kernel_w], none of them 0");
    }
    ASSIGN_OR_RETURN(const Window window, ReadWindow(p, weight));
    if (window.size[0] != weight.dims[2] || window.size[1] != weight.dims[3]) {
      return BadWeight(ctx.weights, 0, "kernel ", window.size[0], " x ", window.size[1],
                       " (convolution_param.kernel_size)");
    }
    if (p.has_num_output() && p.num_output() != weight.dims[0]) {
      return BadWeight(ctx.weights, 0, p.num_output(), " outputs (convolution_param.num_output)");
    }
    const int64_t group = p.group();
    if (group < 1 || weight.dims[0] % group != 0) {
      return InvalidArgument("convolution_param.group: ", group, ", want a divisor of the ",
                             weight.dims[0], " output channels");
    }
    ConvolutionGeometry geometry{.in_channels = weight.dims[1] * group,
                                 .out_channels = weight.dims[0],
                                 .groups = group,
                                 .kernel = window.size,
                                 .stride = window.stride,
                                 .dilation = window.dilation,
                                 .pad = window.pad};
    ASSIGN_OR_RETURN(const absl::Span<const float> bias, BiasOf(ctx));
    return std::unique_ptr<Layer>(new ConvolutionLayer(window, geometry, weight.data, bias));
  }
  absl::StatusOr<TensorSpecs> Infer(absl::Span<const TensorSpec> in) const override {
    RETURN_IF_ERROR(WantFloat32(in));
    RETURN_IF_ERROR(WantRank(in, 0, 4, 4));
    if (!CouldBeEqual(in[0].shape[1], Dim::Of(geometry_.in_channels))) {
      return BadInput(0, in[0], geometry_.in_channels, " channels (",
                      geometry_.in_channels / geometry_.groups, " of the weight x group ",
                      geometry_.groups, ")");
    }
    TensorSpec out = in[0];
    ASSIGN_OR_RETURN(out.shape, window_.Output(in[0], Dim::Of(geometry_.out_channels)));
    out.level = LevelOf(out.shape, in);
    return TensorSpecs{out};
  }
  void SuggestInputs(absl::Span<TensorSpec> in) const override {
    Suggest(in[0],
            Shape({Dim::Unknown(), Dim::Of(geometry_.in_channels), Dim::Unknown(), Dim::Unknown()}),
            Level::kUnknown);
  }
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(absl::Span<const TensorSpec> in) const override {
    int64_t size[2] = {0, 0};
    for (int axis = 0; axis < 2; ++axis) {
      if (in[0].shape.ranked() && in[0].shape[axis + 2].IsConst()) {
        size[axis] = in[0].shape[axis + 2].value();
      }
    }
    SmallConvolution small(geometry_, weight_, bias_);
    if (small.Suits(size[0], size[1])) size[0] = size[1] = 0;  // oneDNN has nothing to prepare.
    ASSIGN_OR_RETURN(std::unique_ptr<const Convolution> convolution,
                     Convolution::Create(geometry_, weight_, bias_, size[0], size[1]));
    return std::unique_ptr<Kernel>(new ConvolutionKernel(std::move(convolution), std::move(small)));
  }
  double Flops(absl::Span<const TensorSpec> in, absl::Span<const TensorSpec> out) const override {
    const int64_t taps =
        geometry_.in_channels / geometry_.groups * window_.size[0] * window_.size[1];
    return 2 * static_cast<double>(taps) * Layer::Flops(in, out);
  }
  std::string Describe() const override {
    return absl::StrCat("channels=", geometry_.in_channels, " num_output=", geometry_.out_channels,
                        " group=", geometry_.groups, " ", window_.ToString());
  }

 private:
  ConvolutionLayer(const Window& window, const ConvolutionGeometry& geometry,
                   absl::Span<const float> weight, absl::Span<const float> bias)
      : window_(window), geometry_(geometry), weight_(weight), bias_(bias) {}

  static absl::StatusOr<Window> ReadWindow(const ulf::ConvolutionParameter& p,
                                           const Weight& weight) {
    Window window;
    ASSIGN_OR_RETURN(window.size, ReadPair("convolution_param.kernel_size", p.kernel_size(), 0, 1));
    if (p.kernel_size().empty()) window.size = {weight.dims[2], weight.dims[3]};
    ASSIGN_OR_RETURN(window.stride, ReadPair("convolution_param.stride", p.stride(), 1, 1));
    ASSIGN_OR_RETURN(window.dilation, ReadPair("convolution_param.dilation", p.dilation(), 1, 1));
    ASSIGN_OR_RETURN(window.pad, ReadPad("convolution_param.pad", p.pad()));
    return window;
  }

  static absl::StatusOr<absl::Span<const float>> BiasOf(const ParseContext& ctx) {
    const bool has_bias = ctx.weights.size() > 1;
    if (!ctx.param.convolution_param().bias_term()) {
      if (has_bias) {
        ctx.notices.push_back(absl::StrCat(WeightLabel(ctx.weights, 1),
                                           " is ignored: convolution_param.bias_term is false"));
      }
      return absl::Span<const float>();
    }
    if (!has_bias) {
      return InvalidArgument(
          "1 weight, want 2 (weight and bias; or convolution_param.bias_term: false)");
    }
    if (static_cast<int64_t>(ctx.weights[1].data.size()) != ctx.weights[0].dims[0]) {
      return BadWeight(ctx.weights, 1, ctx.weights[0].dims[0], " values (one per output channel)");
    }
    return ctx.weights[1].data;
  }

  const Window window_;
  const ConvolutionGeometry geometry_;
  const absl::Span<const float> weight_, bias_;
};

constexpr LayerType kTypes[] = {
    {.name = "convolution_layer",
     .summary = "2-d convolution (NCHW) with groups, padding, stride and dilation",
     .weights = {1, 2},
     .param_field = ulf::LayerParameter::kConvolutionParamFieldNumber,
     .parse = &ConvolutionLayer::Parse,
     .image_inputs = 1,
     .image_outputs = 1,
     .kernel_weight = true,
     .doc = {.formula = "y[n, o, i, j] = bias[o] + sum over c, u, v of x[n, c, i*stride + "
                        "u*dilation - pad, j*stride + v*dilation - pad] * weight[o, c, u, v]",
             .inputs = "x [rows, channels, height, width] float32",
             .weights = "weight [num_output, channels / group, kernel_h, kernel_w]\nbias "
                        "[num_output], unless bias_term is false",
             .source = "ConvolutionLayer of the layer framework; torch.nn.Conv2d",
             .example_inputs = "x:2,4,4",
             .example_weights = "3,2,3,3;3",
             .example_param = "convolution_param { pad: 1 stride: 2 }"}},
};

}  // namespace

absl::Span<const LayerType> ConvolutionLayers() { return kTypes; }

}  // namespace ulfd::engine

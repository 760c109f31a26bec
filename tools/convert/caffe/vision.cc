// Caffe's image layers and the extension operators.
// SPDX-License-Identifier: Apache-2.0
#include <google/protobuf/message.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "engine/layers/registry.h"
#include "tools/convert/caffe/layers.h"
#include "tools/convert/recipes.h"

namespace ulfd::convert {
namespace {

using Sizes = std::vector<uint32_t>;

// A size that a file states once, per direction, or as *_h and *_w.
template <typename Repeated>
absl::StatusOr<Sizes> Directions(absl::string_view field, const Repeated& stated, bool has_h,
                                 bool has_w, uint32_t h, uint32_t w, Sizes none) {
  if (has_h || has_w) {
    if (!stated.empty()) {
      return InvalidArgument(field, " is stated twice: as one value and by direction");
    }
    return Sizes{h, w};
  }
  if (stated.empty()) return none;
  if (stated.size() > 2) {
    return Unimplemented(field, ": ", stated.size(), " values, want 2-d: one or two");
  }
  return Sizes(stated.begin(), stated.end());
}

struct Window {
  Sizes kernel, pad, stride, dilation;  // One or two each, but for a kernel that is not stated.
};

// Of a layer with convolution_param, whose blobs are then as many as it says.
absl::StatusOr<Window> WindowOf(CaffeNode& node) {
  const caffe::ConvolutionParameter& p = node.layer.convolution_param();
  ASSIGN_OR_RETURN(const int axis, node.Axis("convolution_param.axis", p.axis()));
  if (axis != 1) {
    return Unimplemented("convolution_param.axis ", p.axis(), ", want 1");
  }
  Window window;
  ASSIGN_OR_RETURN(window.kernel,
                   Directions("convolution_param.kernel", p.kernel_size(), p.has_kernel_h(),
                              p.has_kernel_w(), p.kernel_h(), p.kernel_w(), {}));
  ASSIGN_OR_RETURN(window.pad, Directions("convolution_param.pad", p.pad(), p.has_pad_h(),
                                          p.has_pad_w(), p.pad_h(), p.pad_w(), {0}));
  ASSIGN_OR_RETURN(window.stride,
                   Directions("convolution_param.stride", p.stride(), p.has_stride_h(),
                              p.has_stride_w(), p.stride_h(), p.stride_w(), {1}));
  ASSIGN_OR_RETURN(window.dilation,
                   Directions("convolution_param.dilation", p.dilation(), false, false, 0, 0, {1}));
  RETURN_IF_ERROR(node.WantWeightAndBias(p.bias_term()));
  return window;
}

absl::Status Convolution(CaffeNode& node) {
  const caffe::ConvolutionParameter& p = node.layer.convolution_param();
  ASSIGN_OR_RETURN(const Window window, WindowOf(node));
  ulf::LayerParameter layer =
      MakeLayer("convolution_layer", node.layer.name(), node.bottoms, node.out());
  ulf::ConvolutionParameter& ours = *layer.mutable_convolution_param();
  ours.set_num_output(p.num_output());
  ours.set_bias_term(p.bias_term());
  if (p.group() != 1) ours.set_group(p.group());
  ours.mutable_kernel_size()->Add(window.kernel.begin(), window.kernel.end());
  ours.mutable_pad()->Add(window.pad.begin(), window.pad.end());
  ours.mutable_stride()->Add(window.stride.begin(), window.stride.end());
  ours.mutable_dilation()->Add(window.dilation.begin(), window.dilation.end());
  std::vector<ulf::BlobData> weights = {MakeBlob(node.blobs[0].dims, node.blobs[0].values)};
  if (p.bias_term()) {
    weights.push_back(
        MakeBlob({static_cast<int64_t>(node.blobs[1].values.size())}, node.blobs[1].values));
  }
  return node.builder.AddLayer(std::move(layer), std::move(weights));
}

absl::Status Deconvolution(CaffeNode& node) {
  const caffe::ConvolutionParameter& p = node.layer.convolution_param();
  ASSIGN_OR_RETURN(const Window window, WindowOf(node));
  const CaffeBlob& weight = node.blobs[0];
  if (weight.dims.size() != 4) {
    return Unimplemented("a weight of ", weight.dims.size(), " dimensions, want 4");
  }
  if (window.kernel.empty()) {
    return InvalidArgument("convolution_param has no kernel_size");
  }
  const auto along = [](const Sizes& sizes, size_t i) { return sizes[sizes.size() == 1 ? 0 : i]; };
  struct Deconvolution d {
    .channels = weight.dims[0], .outputs = int64_t{p.num_output()}, .group = int64_t{p.group()},
    .weight = weight.values
  };
  for (size_t i = 0; i < 2; ++i) {
    d.kernel[i] = along(window.kernel, i);
    d.stride[i] = along(window.stride, i);
    d.dilation[i] = along(window.dilation, i);
    d.cut_before[i] = d.cut_after[i] = along(window.pad, i);
    if (weight.dims[i + 2] != d.kernel[i] || d.stride[i] < 1 || d.dilation[i] < 1) {
      return InvalidArgument("kernel, stride or dilation do not fit the weight");
    }
  }
  if (p.bias_term()) d.bias = node.blobs[1].values;
  return AddDeconvolution(node.builder, node.layer.name(), node.in(), d, node.out());
}

// A one-element or empty list, for fields that are not repeated.
Sizes Once(bool is_set, uint32_t value) { return is_set ? Sizes{value} : Sizes{}; }

absl::Status Pooling(CaffeNode& node) {
  const caffe::PoolingParameter& p = node.layer.pooling_param();
  if (p.pool() == caffe::PoolingParameter::STOCHASTIC) {
    return Unimplemented("pooling_param.pool STOCHASTIC");
  }
  const bool average = p.pool() == caffe::PoolingParameter::AVE;
  ulf::LayerParameter layer =
      MakeLayer("max_pooling_layer", node.layer.name(), node.bottoms, node.out());
  ulf::PoolingParameter& ours = *layer.mutable_pooling_param();
  if (average) ours.set_pool(ulf::PoolingParameter::AVE);
  if (p.global_pooling()) {
    if (p.has_kernel_size() || p.has_kernel_h() || p.has_kernel_w()) {
      return InvalidArgument(
          "pooling_param has global_pooling and a kernel size, want one of the two");
    }
    ours.set_global_pooling(true);
    return node.builder.AddLayer(std::move(layer));
  }
  ASSIGN_OR_RETURN(const Sizes kernel,
                   Directions("pooling_param.kernel", Once(p.has_kernel_size(), p.kernel_size()),
                              p.has_kernel_h(), p.has_kernel_w(), p.kernel_h(), p.kernel_w(), {}));
  ASSIGN_OR_RETURN(const Sizes pad,
                   Directions("pooling_param.pad", Once(p.has_pad(), p.pad()), p.has_pad_h(),
                              p.has_pad_w(), p.pad_h(), p.pad_w(), {0}));
  ASSIGN_OR_RETURN(const Sizes stride,
                   Directions("pooling_param.stride", Once(p.has_stride(), p.stride()),
                              p.has_stride_h(), p.has_stride_w(), p.stride_h(), p.stride_w(), {1}));
  ours.mutable_kernel_size()->Add(kernel.begin(), kernel.end());
  ours.mutable_pad()->Add(pad.begin(), pad.end());
  ours.mutable_stride()->Add(stride.begin(), stride.end());
  if (p.round_mode() == caffe::PoolingParameter::CEIL) {
    ours.set_round_mode(ulf::PoolingParameter::CEIL);
  }
  return node.builder.AddLayer(std::move(layer));
}

// The extension operators, which the engine knows by their names of Caffe, too, and whose
// parameters have the same messages in both formats.
absl::Status Extension(CaffeNode& node) {
  engine::Notices none;
  ASSIGN_OR_RETURN(const engine::LayerType* const type,
                   engine::FindLayerType(node.layer.type(), none));
  ulf::LayerParameter layer = MakeLayer(type->name, node.layer.name(), node.bottoms, node.out());
  for (size_t i = 1; i < node.tops.size(); ++i) layer.add_top(node.tops[i]);
  for (const int number : {type->param_field, type->other_param_field}) {
    if (number == 0) continue;
    const auto* const to = layer.GetDescriptor()->FindFieldByNumber(number);
    const auto* const from = node.layer.GetDescriptor()->FindFieldByName(to->name());
    const google::protobuf::Reflection& params = *node.layer.GetReflection();
    if (!params.HasField(node.layer, from)) continue;
    layer.GetReflection()
        ->MutableMessage(&layer, to)
        ->CopyFrom(params.GetMessage(node.layer, from));
  }
  std::vector<ulf::BlobData> weights;
  for (const CaffeBlob& blob : node.blobs) weights.push_back(MakeBlob(blob.dims, blob.values));
  // What the filler filled was trained: a blob has the values.
  if (layer.has_norm_param() && !weights.empty()) {
    layer.mutable_norm_param()->clear_scale_filler();
  }
  return node.builder.AddLayer(std::move(layer), std::move(weights));
}

// x / (k + alpha / n * (sum of squares around it))^beta: a convolution of the squares.
absl::Status Lrn(CaffeNode& node) {
  const caffe::LRNParameter& p = node.layer.lrn_param();
  const uint32_t size = p.local_size();
  constexpr int64_t kMostChannels = 4096;
  if (size % 2 == 0 || p.norm_region() != caffe::LRNParameter::ACROSS_CHANNELS) {
    return Unimplemented("lrn_param: want an odd local_size and ACROSS_CHANNELS");
  }
  if (node.rank() != 4 || !node.shape()[1].IsConst() || node.shape()[1].value() > kMostChannels) {
    return Unimplemented("input 0: shape ", node.shape().ToString(), ", want [rows, C, H, W]");
  }
  const int64_t channels = node.shape()[1].value(), reach = size / 2;
  std::vector<float> band(static_cast<size_t>(channels * channels), 0.0f);
  for (int64_t to = 0; to < channels; ++to) {
    for (int64_t from = std::max<int64_t>(0, to - reach); from < std::min(channels, to + reach + 1);
         ++from) {
      band[static_cast<size_t>(to * channels + from)] = p.alpha() / static_cast<float>(size);
    }
  }
  const std::string squares = node.builder.FreshTensor(node.out() + "/squares");
  const std::string sums = node.builder.FreshTensor(node.out() + "/sums");
  RETURN_IF_ERROR(
      AddPlain(node.builder, "multiply_layer", squares, {node.in(), node.in()}, squares));
  ulf::LayerParameter layer = MakeLayer("convolution_layer", sums, {squares}, sums);
  layer.mutable_convolution_param()->set_num_output(static_cast<uint32_t>(channels));
  layer.mutable_convolution_param()->set_bias_term(false);
  layer.mutable_convolution_param()->add_kernel_size(1);
  RETURN_IF_ERROR(
      node.builder.AddLayer(std::move(layer), {MakeBlob({channels, channels, 1, 1}, band)}));
  return AddExpression(node.builder, node.layer.name(),
                       absl::StrCat("@0 / pow(@1 + ", Number(p.k()), ", ", Number(p.beta()), ")"),
                       {node.in(), sums}, node.out());
}

constexpr CaffeType kTypes[] = {
    {"LRN", {1, 1}, {1, 1}, {0, 0}, &Lrn},
    {"Deconvolution", {1, 1}, {1, 1}, {1, 2}, &Deconvolution},
    {"Convolution", {1, 1}, {1, 1}, {1, 2}, &Convolution},
    {"Pooling", {1, 1}, {1, 1}, {0, 0}, &Pooling},
    {"Reverse", {1, 1}, {1, 1}, {0, 0}, &Extension},
    {"Upsample", {1, 1}, {1, 1}, {0, 0}, &Extension},
    {"Normalize", {1, 1}, {1, 1}, {0, 1}, &Extension},
    {"Reorg", {1, 1}, {1, 1}, {0, 0}, &Extension},
    {"PassThrough", {1, 1}, {1, 1}, {0, 0}, &Extension},
    {"ROIAlign", {2, 2}, {1, 1}, {0, 0}, &Extension},
    {"ShuffleChannel", {1, 1}, {1, 1}, {0, 0}, &Extension},
    {"Yolo", {1, 1}, {1, 3}, {0, 0}, &Extension},
    {"PriorBox", {1, 2}, {1, 1}, {0, 0}, &Extension},
    {"SpatialTransformer", {1, 2}, {1, 1}, {0, 0}, &Extension},
};

}  // namespace

absl::Span<const CaffeType> VisionCaffeTypes() { return kTypes; }

}  // namespace ulfd::convert

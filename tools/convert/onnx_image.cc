// ONNX's image operators, of one or two dimensions, NCHW.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "tools/convert/onnx_graph.h"
#include "tools/convert/onnx_layers.h"
#include "tools/convert/recipes.h"

namespace ulfd::convert {
namespace {

using engine::Dim;

// Attributes that convolution and pooling share; pads as ULF states them: top, left, bottom, right.
struct Window {
  std::vector<int64_t> kernel, strides, pads, dilations;
};

// For an image of `dims` (two dimensions, or one, which becomes the width of an image of height 1).
absl::StatusOr<Window> ReadWindow(const OnnxNode& node, const Dims& dims,
                                  std::vector<int64_t> kernel) {
  Window window{.kernel = std::move(kernel),
                .strides = IntsAttribute(node.node, "strides"),
                .pads = IntsAttribute(node.node, "pads"),
                .dilations = IntsAttribute(node.node, "dilations")};
  if (HasAttribute(node.node, "kernel_shape")) {
    window.kernel = IntsAttribute(node.node, "kernel_shape");
  }
  const size_t rank = dims.size() - 2;
  if (window.strides.empty()) window.strides.assign(rank, 1);
  if (window.pads.empty()) window.pads.assign(2 * rank, 0);
  if (window.dilations.empty()) window.dilations.assign(rank, 1);
  if (window.kernel.size() != rank || window.strides.size() != rank ||
      window.pads.size() != 2 * rank || window.dilations.size() != rank) {
    return absl::UnimplementedError(
        absl::StrCat("a window of ", window.kernel.size(), " dimensions, want ", rank));
  }
  for (const auto* list : {&window.kernel, &window.strides, &window.dilations, &window.pads}) {
    const auto [smallest, largest] = std::minmax_element(list->begin(), list->end());
    if (*smallest < (list == &window.pads ? 0 : 1) || *largest > kMaxRowElements) {
      return absl::InvalidArgumentError(
          "kernel_shape, strides, dilations and pads: a size too small or too large");
    }
  }
  const std::string auto_pad = StringAttribute(node.node, "auto_pad", "NOTSET");
  const bool upper = auto_pad == "SAME_UPPER";
  if (!upper && auto_pad != "SAME_LOWER" && auto_pad != "NOTSET" && auto_pad != "VALID") {
    return absl::UnimplementedError(absl::StrCat("auto_pad ", auto_pad));
  }
  for (size_t d = 0; (upper || auto_pad == "SAME_LOWER") && d < rank; ++d) {
    if (!dims[d + 2].IsConst()) return absl::UnimplementedError("auto_pad of an unknown size");
    const int64_t size = dims[d + 2].value(), stride = window.strides[d];
    const int64_t extent = (window.kernel[d] - 1) * window.dilations[d] + 1;
    const int64_t pad =
        std::max<int64_t>(0, (size + stride - 1) / stride * stride - stride + extent - size);
    window.pads[d] = upper ? pad / 2 : pad - pad / 2;
    window.pads[rank + d] = pad - window.pads[d];
  }
  if (rank == 1) {
    window.kernel.insert(window.kernel.begin(), 1);
    window.strides.insert(window.strides.begin(), 1);
    window.dilations.insert(window.dilations.begin(), 1);
    window.pads = {0, window.pads[0], 0, window.pads[1]};
  }
  return window;
}

void SetSizes(const std::vector<int64_t>& sizes, google::protobuf::RepeatedField<uint32_t>& field) {
  for (const int64_t size : sizes) field.Add(static_cast<uint32_t>(size));
}

absl::Status Finish(OnnxNode& node, const OnnxValue& x, ulf::LayerParameter layer,
                    std::vector<ulf::BlobData> weights) {
  const std::string out = layer.top(0);
  RETURN_IF_ERROR(node.builder().AddLayer(std::move(layer), std::move(weights)));
  OnnxValue y = node.graph.Whole(out);
  y.dims[0] = x.dims[0];  // Repeated rows stay repeated.
  if (x.rank() == 3) {    // The height is of our making.
    y.dims.erase(y.dims.begin() + 2);
    y.axes.erase(y.axes.begin() + 2);
  }
  node.Set(y);
  return absl::OkStatus();
}

// The tensor [rows, C, H, W].
absl::StatusOr<std::string> Image(OnnxNode& node, const OnnxValue& x) {
  if (x.rank() != 3 && x.rank() != 4) {
    return absl::UnimplementedError(
        absl::StrCat("an input of shape ", DimsText(x.dims), ", want [rows, C, H, W]"));
  }
  return node.graph.PlainAlong(x.rank() == 3 ? WithAxis(x, 2) : x, {1, 2, 3});
}

absl::Status Conv(OnnxNode& node) {
  ASSIGN_OR_RETURN(const OnnxValue x, node.value(0));
  ASSIGN_OR_RETURN(const std::string in, Image(node, x));
  const Constant *weight = node.constant(1), *bias = node.constant(2);
  if (weight == nullptr || (node.Has(2) && bias == nullptr)) {
    return absl::UnimplementedError("weights that are computed");
  }
  std::vector<int64_t> sizes = weight->sizes();
  if (static_cast<int>(sizes.size()) != x.rank()) {
    return absl::UnimplementedError(absl::StrCat("a weight of shape ", DimsText(weight->dims)));
  }
  ASSIGN_OR_RETURN(const Window window,
                   ReadWindow(node, x.dims, std::vector<int64_t>(sizes.begin() + 2, sizes.end())));
  if (sizes.size() == 3) sizes.insert(sizes.begin() + 2, 1);
  ulf::LayerParameter layer = MakeLayer("convolution_layer", node.name, {in}, node.Top());
  ulf::ConvolutionParameter& p = *layer.mutable_convolution_param();
  p.set_num_output(static_cast<uint32_t>(sizes[0]));
  p.set_bias_term(bias != nullptr);
  if (const int64_t group = IntAttribute(node.node, "group", 1); group != 1) {
    if (group < 1 || group > sizes[0]) {
      return absl::InvalidArgumentError(
          absl::StrCat("group ", group, ", want 1 to ", sizes[0], " (the output channels)"));
    }
    p.set_group(static_cast<uint32_t>(group));
  }
  SetSizes(window.kernel, *p.mutable_kernel_size());
  SetSizes(window.pads, *p.mutable_pad());
  SetSizes(window.strides, *p.mutable_stride());
  SetSizes(window.dilations, *p.mutable_dilation());
  ASSIGN_OR_RETURN(const std::vector<float> values, weight->ToFloats());
  std::vector<ulf::BlobData> weights = {MakeBlob(sizes, values)};
  if (bias != nullptr) {
    ASSIGN_OR_RETURN(const std::vector<float> biases, bias->ToFloats());
    weights.push_back(MakeBlob({static_cast<int64_t>(biases.size())}, biases));
  }
  return Finish(node, x, std::move(layer), std::move(weights));
}

absl::Status Pool(OnnxNode& node, bool average) {
  ASSIGN_OR_RETURN(const OnnxValue x, node.value(0));
  ASSIGN_OR_RETURN(const std::string in, Image(node, x));
  ASSIGN_OR_RETURN(const Window window, ReadWindow(node, x.dims, {}));
  if (window.dilations != std::vector<int64_t>{1, 1}) return absl::UnimplementedError("dilations");
  if (node.node.output_size() > 1 && node.uses.contains(node.node.output(1))) {
    return absl::UnimplementedError("the output of indices");
  }
  ulf::LayerParameter layer = MakeLayer("max_pooling_layer", node.name, {in}, node.Top());
  ulf::PoolingParameter& p = *layer.mutable_pooling_param();
  SetSizes(window.kernel, *p.mutable_kernel_size());
  SetSizes(window.pads, *p.mutable_pad());
  SetSizes(window.strides, *p.mutable_stride());
  if (IntAttribute(node.node, "ceil_mode", 0) != 0) p.set_round_mode(ulf::PoolingParameter::CEIL);
  if (average) {
    p.set_pool(ulf::PoolingParameter::AVE);
    p.set_count_include_pad(IntAttribute(node.node, "count_include_pad", 0) != 0);
  }
  return Finish(node, x, std::move(layer), {});
}

absl::Status MaxPool(OnnxNode& node) { return Pool(node, false); }
absl::Status AveragePool(OnnxNode& node) { return Pool(node, true); }

absl::Status GlobalPool(OnnxNode& node, bool average) {
  ASSIGN_OR_RETURN(const OnnxValue x, node.value(0));
  ASSIGN_OR_RETURN(const std::string in, Image(node, x));
  ulf::LayerParameter layer = MakeLayer("max_pooling_layer", node.name, {in}, node.Top());
  layer.mutable_pooling_param()->set_global_pooling(true);
  if (average) layer.mutable_pooling_param()->set_pool(ulf::PoolingParameter::AVE);
  return Finish(node, x, std::move(layer), {});
}

absl::Status GlobalMaxPool(OnnxNode& node) { return GlobalPool(node, false); }
absl::Status GlobalAveragePool(OnnxNode& node) { return GlobalPool(node, true); }

constexpr OnnxType kTypes[] = {
    {"Conv", &Conv},
    {"MaxPool", &MaxPool},
    {"AveragePool", &AveragePool},
    {"GlobalMaxPool", &GlobalMaxPool},
    {"GlobalAveragePool", &GlobalAveragePool},
};

}  // namespace

absl::Span<const OnnxType> ImageOnnxTypes() { return kTypes; }

}  // namespace ulfd::convert

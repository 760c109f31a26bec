// ONNX's image operators, of one to three dimensions, NCHW.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "tools/convert/onnx/model/graph.h"
#include "tools/convert/onnx/operators/layers.h"
#include "tools/convert/recipes.h"

namespace ulfd::convert {
namespace {

using engine::Dim;

// Attributes that convolution and pooling share; pads as ULF states them: top, left, bottom, right.
struct Window {
  std::vector<int64_t> kernel, strides, pads, dilations;
};

// For an image of `dims` (of two or three dimensions, or one, the width of an image of height 1).
absl::StatusOr<Window> ReadWindow(const OnnxNode& node, const Dims& dims,
                                  std::vector<int64_t> kernel) {
  Window window{.kernel = std::move(kernel),
                .strides = IntsAttribute(node.node, "strides"),
                .pads = IntsAttribute(node.node, "pads"),
                .dilations = IntsAttribute(node.node, "dilations")};
  if (FindAttribute(node.node, "kernel_shape") != nullptr) {
    window.kernel = IntsAttribute(node.node, "kernel_shape");
  }
  const size_t rank = dims.size() - 2;
  if (window.strides.empty()) window.strides.assign(rank, 1);
  if (window.pads.empty()) window.pads.assign(2 * rank, 0);
  if (window.dilations.empty()) window.dilations.assign(rank, 1);
  if (window.kernel.size() != rank || window.strides.size() != rank ||
      window.pads.size() != 2 * rank || window.dilations.size() != rank) {
    return Unimplemented("a window of ", window.kernel.size(), " dimensions, want ", rank);
  }
  for (const auto* list : {&window.kernel, &window.strides, &window.dilations, &window.pads}) {
    const auto [smallest, largest] = std::minmax_element(list->begin(), list->end());
    if (*smallest < (list == &window.pads ? 0 : 1) || *largest > kMaxRowElements) {
      return InvalidArgument(
          "kernel_shape, strides, dilations and pads: a size too small or too large");
    }
  }
  const std::string auto_pad = StringAttribute(node.node, "auto_pad", "NOTSET");
  const bool upper = auto_pad == "SAME_UPPER";
  if (!upper && auto_pad != "SAME_LOWER" && auto_pad != "NOTSET" && auto_pad != "VALID") {
    return Unimplemented("auto_pad ", auto_pad);
  }
  for (size_t d = 0; (upper || auto_pad == "SAME_LOWER") && d < rank; ++d) {
    if (!dims[d + 2].IsConst()) return Unimplemented("auto_pad of an unknown size");
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

// The image `out`, made of x: repeated rows stay repeated.
OnnxValue ImageOf(const OnnxNode& node, const OnnxValue& x, const std::string& out) {
  OnnxValue y = node.graph.Whole(out);
  y.dims[0] = x.dims[0];
  return y;
}

// It is the node's output.
absl::Status SetImage(OnnxNode& node, const OnnxValue& x, const std::string& out) {
  OnnxValue y = ImageOf(node, x, out);
  // The height is of our making.
  node.Set(x.rank() == 3 ? WithoutAxis(std::move(y), 2) : std::move(y));
  return absl::OkStatus();
}

// The tensor [rows, C, H, W].
absl::StatusOr<std::string> Image(OnnxNode& node, const OnnxValue& x) {
  if (x.rank() != 3 && x.rank() != 4) {
    return Unimplemented("an input of shape ", DimsText(x.dims), ", want [rows, C, H, W]");
  }
  return node.graph.PlainAlong(x.rank() == 3 ? WithAxis(x, 2) : x, {1, 2, 3});
}

// What padding makes behind the image and the Slice behind the node cuts off again, as causal
// convolutions have it (TCN): less padding.
void TakeCut(OnnxNode& node, int rank, Window& window) {
  const auto reader = node.only_reader.find(node.node.output(0));
  if (reader == node.only_reader.end() || reader->second->op_type() != "Slice") return;
  const OnnxNode slice = node.With(*reader->second);
  std::vector<int64_t> lists[4];
  const char* const names[] = {"starts", "ends", "axes", "steps"};
  for (int i = 0; i < 4; ++i) {
    absl::StatusOr<std::vector<int64_t>> list = Integers(slice, i + 1, names[i]);
    if (!list.ok() || list->size() > 1 || (list->empty() && i < 3)) return;
    lists[i] = *std::move(list);
  }
  const int64_t cut = -lists[1][0], axis = lists[2][0];
  const bool in_order = lists[3].empty() || lists[3][0] == 1;
  if (lists[0][0] != 0 || (axis != -1 && axis != rank - 1) || !in_order || cut < 1 ||
      cut > window.pads[3] || window.strides[1] != 1) {
    return;
  }
  window.pads[3] -= cut;
  node.absorbed = reader->second;
}

// An image of one dimension.
struct Steps {
  OnnxValue value;       // [rows, steps, channels]; no tensor: it is no such image.
  int dimension = 0;     // Of the window, that of the steps.
  int single = -1;       // The axis of the image that has one entry, or, after the windows, will.
  bool in_rows = false;  // The channels are a row of the image, so that a window takes them whole.
};

// An image whose tensor has the channels of a step side by side, as embedded histories do: of one
// dimension, or of two of which one has a single entry; or with windows as wide as the image, which
// are steps of as many channels.
Steps StepsOf(const OnnxNode& node, const OnnxValue& x, const Window& window) {
  const auto has_one = [&](int d) {
    return x.rank() == 4 && x.dims[d + 2] == Dim::Of(1) && window.kernel[d] == 1 &&
           window.strides[d] == 1 && window.pads[d] == 0 && window.pads[d + 2] == 0;
  };
  const bool in_rows = x.rank() == 4 && x.dims[1] == Dim::Of(1) &&
                       x.dims[3] == Dim::Of(window.kernel[1]) && window.pads[1] == 0 &&
                       window.pads[3] == 0;
  Steps all{.in_rows = in_rows};
  int steps = 2;
  if (x.rank() == 3) {
    all.dimension = 1;
  } else if (in_rows || has_one(1)) {
    all.single = 3;
  } else if (has_one(0)) {
    all.dimension = 1;
    all.single = 2;
    steps = 3;
  } else {
    return {};
  }
  const int channels = in_rows ? 3 : 1;
  const int rank = node.graph.Whole(x.tensor).rank();
  const bool side_by_side = x.axes[steps] > 0 && x.axes[channels] == rank - 1 &&
                            x.axes[steps] == rank - 2 && x.dims[steps].IsConst() &&
                            x.dims[channels].IsConst() && !node.graph.IsRepeated(x, steps) &&
                            !node.graph.IsRepeated(x, channels);
  if (!side_by_side) return {};
  all.value = {.tensor = x.tensor,
               .dims = {x.dims[0], x.dims[steps], x.dims[channels]},
               .axes = {x.axes[0], x.axes[steps], x.axes[channels]}};
  return all;
}

// The steps of every window side by side: [rows, windows, kernel * channels].
absl::StatusOr<OnnxValue> Windows(OnnxNode& node, const OnnxValue& steps, int64_t kernel,
                                  int64_t dilation) {
  if (kernel == 1) return steps;
  const int64_t channels = steps.dims[2].value();
  const int64_t windows = steps.dims[1].value() - (kernel - 1) * dilation;
  ASSIGN_OR_RETURN(const std::string in, node.graph.Plain(steps));
  const std::string out = node.Scratch("windows");
  ulf::LayerParameter layer = MakeLayer("slice_layer", out, {in}, out);
  layer.mutable_slice_param()->set_concat_dim(1);
  for (int64_t tap = 0; tap < kernel; ++tap) {
    ulf::Slice& slice = *layer.mutable_slice_param()->add_slices();
    slice.set_offset(static_cast<int32_t>(tap * dilation * channels));
    slice.add_shape(static_cast<int32_t>(windows));
    slice.add_shape(static_cast<int32_t>(channels));
  }
  RETURN_IF_ERROR(node.builder().AddLayer(std::move(layer)));
  return node.graph.Whole(out, {steps.dims[0], Dim::Of(windows), Dim::Of(kernel * channels)});
}

// A weight [outputs, channels, taps] for taps side by side, whose channels are neighbours.  In rows
// they are that already.
absl::StatusOr<Dense> DenseOfTaps(const Constant& weight, const Constant* bias, int64_t taps,
                                  bool in_rows) {
  ASSIGN_OR_RETURN(const std::vector<float> values, weight.ToFloats());
  const int64_t outputs = weight.dims[0].value();
  const int64_t columns = static_cast<int64_t>(values.size()) / outputs, channels = columns / taps;
  Dense dense{.weight = std::vector<float>(values.size()), .sizes = {columns, outputs}};
  for (int64_t o = 0, from = 0; o < outputs; ++o) {
    for (int64_t i = 0; i < columns; ++i, ++from) {
      const int64_t column = in_rows ? i : i % taps * channels + i / taps;
      dense.weight[static_cast<size_t>(column * outputs + o)] = values[static_cast<size_t>(from)];
    }
  }
  if (bias != nullptr) {
    ASSIGN_OR_RETURN(dense.bias, bias->ToFloats());
  }
  return dense;
}

// A convolution over steps is a product with the windows; false: it is none.
absl::StatusOr<bool> ConvOfSteps(OnnxNode& node, const OnnxValue& x, const Window& window,
                                 const Constant& weight, const Constant* bias) {
  const Steps image = StepsOf(node, x, window);
  const int d = image.dimension;
  const int64_t kernel = window.kernel[d], dilation = window.dilations[d];
  OnnxValue steps = image.value;
  if (steps.tensor.empty() || window.strides[d] != 1) return false;
  const int64_t padded = steps.dims[1].value() + window.pads[d] + window.pads[d + 2];
  const int64_t outputs = weight.dims[0].value(), channels = steps.dims[2].value();
  constexpr int64_t kMostColumns = 4096, kMostSteps = 4096;
  if (kernel > kMostColumns || kernel * channels > kMostColumns || padded > kMostSteps ||
      (kernel - 1) * dilation >= padded ||
      weight.dims[x.rank() == 3 ? 2 : d + 2] != Dim::Of(kernel) ||
      weight.elements() != outputs * kernel * channels) {
    return false;
  }
  ASSIGN_OR_RETURN(const Dense dense, DenseOfTaps(weight, bias, kernel, image.in_rows));
  ASSIGN_OR_RETURN(steps, Padded(node, steps, 1, window.pads[d], window.pads[d + 2]));
  ASSIGN_OR_RETURN(const OnnxValue windows, Windows(node, steps, kernel, dilation));
  ASSIGN_OR_RETURN(OnnxValue y, DenseOf(node, windows, dense, node.name, node.Top()));
  y = MoveAxis(std::move(y), 2, 1);
  node.Set(image.single > 0 ? WithAxis(std::move(y), image.single) : std::move(y));
  return true;
}

// Windows side by side are patches, and a convolution a product with each; false: they overlap, or
// leave something out.
absl::StatusOr<bool> ConvOfPatches(OnnxNode& node, const OnnxValue& x, const Window& window,
                                   const Constant& weight, const Constant* bias) {
  const OnnxValue image = x.rank() == 3 ? WithAxis(x, 2) : x;
  const int64_t high = window.kernel[0], wide = window.kernel[1], outputs = weight.dims[0].value();
  const bool touch = window.kernel == window.strides && high * wide > 1 &&
                     window.dilations == std::vector<int64_t>{1, 1} &&
                     window.pads == std::vector<int64_t>{0, 0, 0, 0};
  const Dims& d = image.dims;
  constexpr int64_t kMostColumns = 4096;
  if (!touch || high > kMostColumns || wide > kMostColumns || node.graph.IsRepeated(image, 0) ||
      !d[1].IsConst() || !d[2].IsConst() || !d[3].IsConst()) {
    return false;
  }
  const int64_t channels = d[1].value(), rows = d[2].value() / high, columns = d[3].value() / wide;
  const int64_t pixels = high * wide;
  if (channels < 1 || rows * high != d[2].value() || columns * wide != d[3].value() ||
      rows * columns < 1 || pixels > kMostColumns / channels ||
      weight.elements() != outputs * pixels * channels) {
    return false;
  }
  ASSIGN_OR_RETURN(const Dense dense, DenseOfTaps(weight, bias, pixels, false));
  const auto of = [](int64_t size) { return Dim::Of(size); };
  ASSIGN_OR_RETURN(OnnxValue y, Reshaped(node, MoveAxis(image, 1, 3),
                                         {d[0], of(rows), of(high), of(columns), of(wide), d[1]}));
  ASSIGN_OR_RETURN(y, Reshaped(node, MoveAxis(std::move(y), 2, 3),
                               {d[0], of(rows), of(columns), of(pixels * channels)}));
  ASSIGN_OR_RETURN(y, DenseOf(node, y, dense, node.name, node.Top()));
  y = MoveAxis(std::move(y), 3, 1);
  node.Set(x.rank() == 3 ? WithoutAxis(std::move(y), 2) : std::move(y));
  return true;
}

// Adds the layer of weights [outputs, channels, height, width].
absl::Status AddConvolution(OnnxNode& node, const std::string& name, const std::string& in,
                            const Window& window, const std::vector<int64_t>& sizes,
                            const std::vector<float>& values, const std::vector<float>& biases,
                            const std::string& out) {
  ulf::LayerParameter layer = MakeLayer("convolution_layer", name, {in}, out);
  ulf::ConvolutionParameter& p = *layer.mutable_convolution_param();
  p.set_num_output(static_cast<uint32_t>(sizes[0]));
  p.set_bias_term(!biases.empty());
  if (const int64_t group = IntAttribute(node.node, "group", 1); group != 1) {
    if (group < 1 || group > sizes[0]) {
      return InvalidArgument("group ", group, ", want 1 to ", sizes[0], " (the output channels)");
    }
    p.set_group(static_cast<uint32_t>(group));
  }
  SetSizes(window.kernel, *p.mutable_kernel_size());
  SetSizes(window.pads, *p.mutable_pad());
  SetSizes(window.strides, *p.mutable_stride());
  SetSizes(window.dilations, *p.mutable_dilation());
  std::vector<ulf::BlobData> weights = {MakeBlob(sizes, values)};
  if (!biases.empty()) {
    weights.push_back(MakeBlob({static_cast<int64_t>(biases.size())}, biases));
  }
  return node.builder().AddLayer(std::move(layer), std::move(weights));
}

// A volume [rows, C, D, H, W] is an image of C * D channels: the weight of what a slice makes of
// one that its kernel does not reach is 0.
absl::Status ConvOfVolume(OnnxNode& node, const OnnxValue& x, Window window,
                          const std::vector<int64_t>& sizes, const std::vector<float>& values,
                          const std::vector<float>& biases) {
  constexpr int64_t kMostWeights = 1 << 24;
  const Dims& d = x.dims;
  if (!IsNumbers({d.begin() + 1, d.end()}) ||
      !std::equal(window.kernel.begin(), window.kernel.end(), sizes.begin() + 2)) {
    return Unimplemented("a window of another size, or an input of shape ", DimsText(d));
  }
  const int64_t depth = d[2].value(), outputs = sizes[0], channels = sizes[1], taps = sizes[2];
  const int64_t room = depth + window.pads[0] + window.pads[3] - (taps - 1) * window.dilations[0];
  const int64_t slices = (room - 1) / window.strides[0] + 1, area = sizes[3] * sizes[4];
  int64_t weights = 1;
  for (const int64_t size : {outputs, channels, area, depth, slices}) {
    if (room < 1 || size < 1 || size > kMostWeights / weights) {
      return Unimplemented("a weight of shape ", DimsText(node.constant(1)->dims),
                           " for an input of shape ", DimsText(d));
    }
    weights *= size;
  }
  std::vector<float> spread(static_cast<size_t>(weights), 0.0f), all_biases;
  for (int64_t out = 0; out < outputs * slices; ++out) {
    const int64_t first = out % slices * window.strides[0] - window.pads[0];
    for (int64_t i = 0; i < channels * taps; ++i) {
      const int64_t slice = first + i % taps * window.dilations[0];
      if (slice < 0 || slice >= depth) continue;
      const auto from = values.begin() + (out / slices * channels * taps + i) * area;
      std::copy_n(from, area,
                  spread.begin() + ((out * channels + i / taps) * depth + slice) * area);
    }
    if (!biases.empty()) all_biases.push_back(biases[static_cast<size_t>(out / slices)]);
  }
  for (auto* const list : {&window.kernel, &window.strides, &window.dilations})
    list->erase(list->begin());
  window.pads = {window.pads[1], window.pads[2], window.pads[4], window.pads[5]};
  ASSIGN_OR_RETURN(const OnnxValue image,
                   Reshaped(node, x, {d[0], Dim::Of(d[1].value() * depth), d[3], d[4]}));
  ASSIGN_OR_RETURN(const std::string in, Image(node, image));
  const std::string made = node.Scratch("slices");
  RETURN_IF_ERROR(AddConvolution(node, made, in, window,
                                 {outputs * slices, channels * depth, sizes[3], sizes[4]}, spread,
                                 all_biases, made));
  const OnnxValue y = ImageOf(node, x, made);
  return ReshapeTo(node, y, {d[0], Dim::Of(outputs), Dim::Of(slices), y.dims[2], y.dims[3]});
}

absl::Status Conv(OnnxNode& node) {
  ASSIGN_OR_RETURN(const OnnxValue x, node.value(0));
  const Constant *weight = node.constant(1), *bias = node.constant(2);
  if (weight == nullptr || (node.Has(2) && bias == nullptr)) {
    return Unimplemented("weights that are computed");
  }
  std::vector<int64_t> sizes = weight->sizes();
  if (static_cast<int>(sizes.size()) != x.rank() || x.rank() < 3 || x.rank() > 5 ||
      IsEmpty(*weight)) {
    return Unimplemented("a weight of shape ", DimsText(weight->dims), " for an input of shape ",
                         DimsText(x.dims));
  }
  ASSIGN_OR_RETURN(Window window,
                   ReadWindow(node, x.dims, std::vector<int64_t>(sizes.begin() + 2, sizes.end())));
  ASSIGN_OR_RETURN(const std::vector<float> values, weight->ToFloats());
  std::vector<float> biases;
  if (bias != nullptr) {
    ASSIGN_OR_RETURN(biases, bias->ToFloats());
    if (static_cast<int64_t>(biases.size()) != sizes[0]) {
      return InvalidArgument("a bias of ", biases.size(), " values, want ", sizes[0]);
    }
  }
  if (x.rank() == 5) return ConvOfVolume(node, x, std::move(window), sizes, values, biases);
  TakeCut(node, x.rank(), window);
  if (IntAttribute(node.node, "group", 1) == 1) {
    for (const auto product : {&ConvOfSteps, &ConvOfPatches}) {
      ASSIGN_OR_RETURN(const bool done, product(node, x, window, *weight, bias));
      if (done) return absl::OkStatus();
    }
  }
  ASSIGN_OR_RETURN(const std::string in, Image(node, x));
  if (sizes.size() == 3) sizes.insert(sizes.begin() + 2, 1);
  const std::string out = node.Top();
  RETURN_IF_ERROR(AddConvolution(node, node.name, in, window, sizes, values, biases, out));
  return SetImage(node, x, out);
}

// What a ConvTranspose states per dimension of the image.
struct TransposedSizes {
  std::vector<int64_t> strides, dilations, added, pads;
  std::vector<int64_t> wanted;  // output_shape; empty: what the others make.
  std::string auto_pad;

  bool is_same() const { return auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER"; }
};

constexpr int64_t kMostTransposed = 1 << 12;

absl::StatusOr<TransposedSizes> ReadTransposed(const OnnxNode& node, size_t rank) {
  const auto list = [&](const char* name, size_t size, int64_t otherwise) {
    std::vector<int64_t> values = IntsAttribute(node.node, name);
    if (values.empty()) values.assign(size, otherwise);
    return values;
  };
  TransposedSizes sizes{.strides = list("strides", rank, 1),
                        .dilations = list("dilations", rank, 1),
                        .added = list("output_padding", rank, 0),
                        .pads = list("pads", 2 * rank, 0),
                        .wanted = IntsAttribute(node.node, "output_shape"),
                        .auto_pad = StringAttribute(node.node, "auto_pad", "NOTSET")};
  const auto fits = [](const std::vector<int64_t>& values, size_t size, int64_t least) {
    return values.size() == size && std::all_of(values.begin(), values.end(), [&](int64_t v) {
             return v >= least && v <= kMostTransposed;
           });
  };
  if (fits(sizes.strides, rank, 1) && fits(sizes.dilations, rank, 1) &&
      fits(sizes.added, rank, 0) && fits(sizes.pads, 2 * rank, 0) &&
      (sizes.wanted.empty() || fits(sizes.wanted, rank, 1))) {
    return sizes;
  }
  return InvalidArgument(
      "strides, dilations, pads, output_padding or output_shape: a size that cannot be");
}

// Dimension i of the image, which has `size` pixels, into place `at` of the deconvolution.
absl::Status SetTransposed(const TransposedSizes& sizes, size_t i, int64_t size, size_t at,
                           Deconvolution& d) {
  d.stride[at] = sizes.strides[i];
  d.dilation[at] = sizes.dilations[i];
  d.cut_before[at] = sizes.pads[i];
  d.cut_after[at] = sizes.pads[sizes.pads.size() / 2 + i] - sizes.added[i];
  if (sizes.wanted.empty() && !sizes.is_same()) return absl::OkStatus();
  const int64_t whole = d.stride[at] * (size - 1) + (d.kernel[at] - 1) * d.dilation[at] + 1;
  const int64_t left = sizes.wanted.empty() ? size * d.stride[at] : sizes.wanted[i];
  const int64_t cut = whole + sizes.added[i] - left;
  // Runtimes do not agree on which side gets the odd one.
  if (cut > 0 && cut % 2 != 0 && !sizes.is_same()) {
    return Unimplemented("output_shape that cuts an odd number, without auto_pad");
  }
  const int64_t half = std::max<int64_t>(0, cut) / 2;
  d.cut_before[at] = sizes.auto_pad == "SAME_LOWER" ? std::max<int64_t>(0, cut) - half : half;
  d.cut_after[at] = whole - left - d.cut_before[at];
  return absl::OkStatus();
}

absl::Status ConvTranspose(OnnxNode& node) {
  ASSIGN_OR_RETURN(const OnnxValue x, node.value(0));
  ASSIGN_OR_RETURN(const std::string in, Image(node, x));
  const Constant *weight = node.constant(1), *bias = node.constant(2);
  if (weight == nullptr || (node.Has(2) && bias == nullptr)) {
    return Unimplemented("weights that are computed");
  }
  const std::vector<int64_t> kernel = weight->sizes();
  if (static_cast<int>(kernel.size()) != x.rank()) {
    return Unimplemented("a weight of shape ", DimsText(weight->dims));
  }
  const size_t rank = kernel.size() - 2;
  ASSIGN_OR_RETURN(const TransposedSizes sizes, ReadTransposed(node, rank));
  const int64_t group = IntAttribute(node.node, "group", 1);
  if (group < 1 || group > kMostTransposed) {
    return InvalidArgument("group ", group, ", want 1 to ", kMostTransposed);
  }
  ASSIGN_OR_RETURN(std::vector<float> values, weight->ToFloats());
  Deconvolution d{.channels = kernel[0],
                  .outputs = kernel[1] * group,
                  .group = group,
                  .kernel = {1, 1},
                  .stride = {1, 1},
                  .dilation = {1, 1},
                  .cut_before = {0, 0},
                  .cut_after = {0, 0},
                  .weight = std::move(values)};
  for (size_t i = 0; i < rank; ++i) {
    const size_t at = 2 - rank + i;  // One dimension is the width of an image of height 1.
    const Dim size = x.dims[i + 2];
    if (!size.IsConst()) return Unimplemented("an image of unknown size");
    d.kernel[at] = kernel[i + 2];
    RETURN_IF_ERROR(SetTransposed(sizes, i, size.value(), at, d));
  }
  if (bias != nullptr) {
    ASSIGN_OR_RETURN(d.bias, bias->ToFloats());
    if (static_cast<int64_t>(d.bias.size()) != d.outputs) {
      return InvalidArgument("a bias of another size");
    }
  }
  const std::string out = node.Top();
  RETURN_IF_ERROR(AddDeconvolution(node.builder(), node.name, in, d, out));
  return SetImage(node, x, out);
}

// Whether there is one window, the image.
bool IsWhole(const Window& window, const Dims& dims) {
  bool whole = window.pads == std::vector<int64_t>(window.pads.size(), 0);
  for (size_t d = dims.size() - 1, k = window.kernel.size() - 1; d > 1; --d, --k) {
    whole &= dims[d] == Dim::Of(window.kernel[k]);
  }
  return whole;
}

// The largest of all places of the image.
absl::Status LargestOfImage(OnnxNode& node, const OnnxValue& x) {
  std::vector<int> axes(static_cast<size_t>(x.rank() - 2));
  std::iota(axes.begin(), axes.end(), 2);
  ASSIGN_OR_RETURN(OnnxValue y, ReduceAxes(node, x, std::move(axes), ulf::SumParameter::MAX));
  node.Set(std::move(y));
  return absl::OkStatus();
}

template <bool average>
absl::Status AddPool(OnnxNode& node, const std::string& name, const std::string& in,
                     const Window& window, const std::string& out) {
  ulf::LayerParameter layer = MakeLayer("max_pooling_layer", name, {in}, out);
  ulf::PoolingParameter& p = *layer.mutable_pooling_param();
  SetSizes(window.kernel, *p.mutable_kernel_size());
  SetSizes(window.pads, *p.mutable_pad());
  SetSizes(window.strides, *p.mutable_stride());
  if (IntAttribute(node.node, "ceil_mode", 0) != 0) p.set_round_mode(ulf::PoolingParameter::CEIL);
  if (average) {
    p.set_pool(ulf::PoolingParameter::AVE);
    p.set_count_include_pad(IntAttribute(node.node, "count_include_pad", 0) != 0);
  }
  return node.builder().AddLayer(std::move(layer));
}

// A volume [rows, C, D, H, W]: its slices are pooled, then each pixel of these along the depth.  A
// window's part within the image is a box, so means of means are its mean.
template <bool average>
absl::Status PoolOfVolume(OnnxNode& node, const OnnxValue& x, const Window& window) {
  const Dims& d = x.dims;
  if (!IsNumbers({d.begin() + 1, d.end()})) return Unimplemented("of shape ", DimsText(d));
  const auto &k = window.kernel, &s = window.strides, &p = window.pads;
  const Window in_slices{.kernel = {k[1], k[2]},
                         .strides = {s[1], s[2]},
                         .pads = {p[1], p[2], p[4], p[5]},
                         .dilations = {}};
  const Window along_depth{
      .kernel = {k[0], 1}, .strides = {s[0], 1}, .pads = {p[0], 0, p[3], 0}, .dilations = {}};
  ASSIGN_OR_RETURN(OnnxValue y,
                   Reshaped(node, x, {d[0], Dim::Of(d[1].value() * d[2].value()), d[3], d[4]}));
  ASSIGN_OR_RETURN(std::string in, Image(node, y));
  const std::string slices = node.Scratch("slices"), pooled = node.Scratch("pooled");
  RETURN_IF_ERROR(AddPool<average>(node, slices, in, in_slices, slices));
  y = ImageOf(node, x, slices);
  const Dim high = y.dims[2], wide = y.dims[3];
  ASSIGN_OR_RETURN(y, Reshaped(node, y, {d[0], d[1], d[2], Dim::Of(high.value() * wide.value())}));
  ASSIGN_OR_RETURN(in, Image(node, y));
  RETURN_IF_ERROR(AddPool<average>(node, pooled, in, along_depth, pooled));
  y = ImageOf(node, x, pooled);
  return ReshapeTo(node, y, {d[0], d[1], y.dims[2], high, wide});
}

template <bool average>
absl::Status Pool(OnnxNode& node) {
  ASSIGN_OR_RETURN(const OnnxValue x, node.value(0));
  if (x.rank() < 3 || x.rank() > 5) return Unimplemented("of shape ", DimsText(x.dims));
  ASSIGN_OR_RETURN(const Window window, ReadWindow(node, x.dims, {}));
  if (window.dilations != std::vector<int64_t>(window.dilations.size(), 1)) {
    return Unimplemented("dilations");
  }
  if (node.node.output_size() > 1 && node.uses.contains(node.node.output(1))) {
    return Unimplemented("the output of indices");
  }
  if (!average && IsWhole(window, x.dims)) return LargestOfImage(node, x);
  if (x.rank() == 5) return PoolOfVolume<average>(node, x, window);
  ASSIGN_OR_RETURN(const std::string in, Image(node, x));
  const std::string out = node.Top();
  RETURN_IF_ERROR(AddPool<average>(node, node.name, in, window, out));
  return SetImage(node, x, out);
}

absl::Status GlobalMaxPool(OnnxNode& node) {
  ASSIGN_OR_RETURN(const OnnxValue x, node.value(0));
  if (x.rank() < 3) return Unimplemented("of shape ", DimsText(x.dims));
  return LargestOfImage(node, x);
}

absl::Status GlobalAveragePool(OnnxNode& node) {
  ASSIGN_OR_RETURN(const OnnxValue x, node.value(0));
  const Dims& d = x.dims;
  const bool volume = x.rank() == 5 && IsNumbers({d.begin() + 1, d.end()});
  OnnxValue image = x;
  if (volume) {
    const Dim rows = Dim::Of(d[2].value() * d[3].value());
    ASSIGN_OR_RETURN(image, Reshaped(node, x, {d[0], d[1], rows, d[4]}));
  }
  ASSIGN_OR_RETURN(const std::string in, Image(node, image));
  const std::string out = node.Top();
  ulf::LayerParameter layer = MakeLayer("max_pooling_layer", node.name, {in}, out);
  layer.mutable_pooling_param()->set_global_pooling(true);
  layer.mutable_pooling_param()->set_pool(ulf::PoolingParameter::AVE);
  RETURN_IF_ERROR(node.builder().AddLayer(std::move(layer)));
  if (!volume) return SetImage(node, x, out);
  node.Set(WithAxis(ImageOf(node, x, out), 2));
  return absl::OkStatus();
}

constexpr OnnxType kTypes[] = {
    {"Conv", &Conv},
    {"ConvTranspose", &ConvTranspose},
    {"MaxPool", &Pool</*average=*/false>},
    {"AveragePool", &Pool</*average=*/true>},
    {"GlobalMaxPool", &GlobalMaxPool},
    {"GlobalAveragePool", &GlobalAveragePool},
};

}  // namespace

absl::Span<const OnnxType> ImageOnnxTypes() { return kTypes; }

}  // namespace ulfd::convert

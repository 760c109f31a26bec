// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/recipes.h"

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/status_macros.h"

namespace ulfd::convert {
namespace {

using engine::Dim;
using engine::TensorSpec;

absl::StatusOr<const TensorSpec*> SpecOf(const GraphBuilder& builder, const std::string& tensor) {
  const TensorSpec* spec = builder.Find(tensor);
  if (spec == nullptr) {
    return InvalidArgument("reads \"", tensor, "\", which no node before it makes");
  }
  return spec;
}

absl::Status WantNumber(const TensorSpec& spec, int axis) {
  if (spec.shape[axis].IsConst()) return absl::OkStatus();
  return InvalidArgument("input 0: shape ", spec.shape.ToString(), ", want a number for dimension ",
                         axis);
}

// Each value `times` times.
std::vector<float> Repeat(absl::Span<const float> values, int64_t times) {
  std::vector<float> repeated;
  repeated.reserve(values.size() * static_cast<size_t>(times));
  for (const float value : values)
    repeated.insert(repeated.end(), static_cast<size_t>(times), value);
  return repeated;
}

ulf::BlobData Vector(const std::vector<float>& values) {
  return MakeBlob({static_cast<int64_t>(values.size())}, values);
}

}  // namespace

ulf::LayerParameter MakeLayer(absl::string_view type, absl::string_view name,
                              absl::Span<const std::string> bottoms, absl::string_view top) {
  ulf::LayerParameter layer;
  layer.set_type(std::string(type));
  layer.set_name(std::string(name));
  for (const std::string& bottom : bottoms) layer.add_bottom(bottom);
  layer.add_top(std::string(top));
  return layer;
}

absl::Status AddPlain(GraphBuilder& builder, absl::string_view type, absl::string_view name,
                      absl::Span<const std::string> bottoms, absl::string_view out) {
  return builder.AddLayer(MakeLayer(type, name, bottoms, out));
}

absl::Status AddReshape(GraphBuilder& builder, absl::string_view name, const std::string& in,
                        absl::Span<const int64_t> shape, absl::string_view out) {
  ulf::LayerParameter layer = MakeLayer("reshape_layer", name, {in}, out);
  for (const int64_t d : shape) layer.mutable_reshape_param()->add_shape(static_cast<int32_t>(d));
  return builder.AddLayer(std::move(layer));
}

absl::Status AddRename(GraphBuilder& builder, absl::string_view name, const std::string& in,
                       absl::string_view out) {
  ASSIGN_OR_RETURN(const TensorSpec* spec, SpecOf(builder, in));
  return AddReshape(builder, name, in, std::vector<int64_t>(spec->shape.rank(), 0), out);
}

absl::Status AddTranspose(GraphBuilder& builder, absl::string_view name, const std::string& in,
                          absl::Span<const int> perm, absl::string_view out) {
  ulf::LayerParameter layer = MakeLayer("transpose_layer", name, {in}, out);
  for (const int axis : perm) layer.mutable_transpose_param()->add_perm(axis);
  return builder.AddLayer(std::move(layer));
}

absl::Status AddConcat(GraphBuilder& builder, absl::string_view name,
                       absl::Span<const std::string> in, int axis, absl::string_view out) {
  ulf::LayerParameter layer = MakeLayer("concat_layer", name, in, out);
  layer.mutable_concat_param()->set_dim(axis);
  return builder.AddLayer(std::move(layer));
}

absl::Status AddSoftmax(GraphBuilder& builder, absl::string_view name, const std::string& in,
                        int axis, absl::string_view out, bool log) {
  ulf::LayerParameter layer = MakeLayer("softmax_layer", name, {in}, out);
  layer.mutable_softmax_param()->set_dim(axis);
  if (log) layer.mutable_softmax_param()->set_log(true);
  return builder.AddLayer(std::move(layer));
}

absl::Status AddExpression(GraphBuilder& builder, absl::string_view name,
                           absl::string_view expression, absl::Span<const std::string> in,
                           absl::string_view out) {
  ulf::LayerParameter layer = MakeLayer("expression_layer", name, in, out);
  layer.mutable_expression_param()->set_expression(std::string(expression));
  return builder.AddLayer(std::move(layer));
}

absl::Status AddConstant(GraphBuilder& builder, absl::string_view name, const ulf::BlobData& blob,
                         absl::string_view out) {
  ulf::LayerParameter layer = MakeLayer("constant_layer", name, {}, out);
  *layer.mutable_constant_param()->mutable_blob_data() = blob;
  return builder.AddLayer(std::move(layer));
}

absl::StatusOr<int64_t> InnerSize(const GraphBuilder& builder, const std::string& in, int axis) {
  ASSIGN_OR_RETURN(const TensorSpec* spec, SpecOf(builder, in));
  int64_t inner = 1;
  for (int d = axis + 1; d < spec->shape.rank(); ++d) {
    RETURN_IF_ERROR(WantNumber(*spec, d));
    inner *= spec->shape[d].value();
  }
  return inner;
}

absl::Status AddTake(GraphBuilder& builder, absl::string_view name, const std::string& in,
                     const std::string& index, int axis, absl::string_view out) {
  ulf::LayerParameter layer = MakeLayer("take_layer", name, {in, index}, out);
  layer.mutable_take_param()->set_axis(axis);
  return builder.AddLayer(std::move(layer));
}

absl::Status AddScatter(GraphBuilder& builder, absl::string_view name,
                        const std::array<std::string, 3>& x_index_update, int axis, bool add,
                        absl::string_view out) {
  ulf::LayerParameter layer =
      MakeLayer(add ? "scatter_add_layer" : "scatter_layer", name, x_index_update, out);
  layer.mutable_take_param()->set_axis(axis);
  return builder.AddLayer(std::move(layer));
}

absl::Status AddSlices(GraphBuilder& builder, absl::string_view name, const std::string& in,
                       int axis, absl::Span<const Range> ranges, absl::string_view out) {
  ASSIGN_OR_RETURN(const TensorSpec* spec, SpecOf(builder, in));
  if (axis == 0) {
    return Unimplemented("cuts along axis 0, the rows, which belong to the request");
  }
  RETURN_IF_ERROR(WantNumber(*spec, axis));
  ASSIGN_OR_RETURN(const int64_t inner, InnerSize(builder, in, axis));
  // slice_layer sees a row as flat: one piece per index of the dimensions between rows and axis.
  int64_t outer = 1, count = 0;
  for (const Range& range : ranges) count += range.length;
  std::vector<int64_t> shape = {0};
  for (int d = 1; d < spec->shape.rank(); ++d) {
    if (d < axis) {
      RETURN_IF_ERROR(WantNumber(*spec, d));
      outer *= spec->shape[d].value();
    }
    shape.push_back(d == axis ? count : spec->shape[d].value());
  }
  const int64_t step = spec->shape[axis].value() * inner;
  ulf::LayerParameter layer = MakeLayer("slice_layer", name, {in}, out);
  layer.mutable_slice_param()->set_concat_dim(0);
  const bool single = outer == 1 && ranges.size() == 1;
  for (int64_t o = 0; o < outer; ++o) {
    for (const auto& [begin, length] : ranges) {
      ulf::Slice& piece = *layer.mutable_slice_param()->add_slices();
      piece.set_offset(static_cast<int32_t>(o * step + begin * inner));
      if (!single) piece.add_shape(static_cast<int32_t>(length * inner));
    }
  }
  if (single) {
    ulf::Slice& piece = *layer.mutable_slice_param()->mutable_slices(0);
    for (size_t d = 1; d < shape.size(); ++d) piece.add_shape(static_cast<int32_t>(shape[d]));
  }
  if (single) return builder.AddLayer(std::move(layer));
  const std::string flat = builder.FreshTensor(absl::StrCat(out, "/flat"));
  layer.set_top(0, flat);
  RETURN_IF_ERROR(builder.AddLayer(std::move(layer)));
  return AddReshape(builder, absl::StrCat(name, "/shape"), flat, shape, out);
}

absl::Status AddSlice(GraphBuilder& builder, absl::string_view name, const std::string& in,
                      int axis, int64_t begin, int64_t length, absl::string_view out) {
  return AddSlices(builder, name, in, axis, {{begin, length}}, out);
}

absl::Status AddPrelu(GraphBuilder& builder, absl::string_view name, const std::string& in,
                      absl::Span<const float> slopes, absl::string_view out) {
  int64_t times = 1;
  if (slopes.size() > 1) {
    ASSIGN_OR_RETURN(times, InnerSize(builder, in, 1));
  }
  return builder.AddLayer(MakeLayer("prelu_layer", name, {in}, out),
                          {Vector(Repeat(slopes, times))});
}

absl::Status AddNorm(GraphBuilder& builder, absl::string_view name, const std::string& in, int axis,
                     const ChannelNorm& norm, absl::string_view out) {
  ASSIGN_OR_RETURN(const int64_t inner, InnerSize(builder, in, axis));
  const auto channels = static_cast<int64_t>(norm.gamma.size());
  if (inner == 1 || channels * inner <= kMaxRepeated) {
    ulf::LayerParameter layer = MakeLayer("bn_layer", name, {in}, out);
    layer.mutable_bn_param()->set_eps(norm.eps);
    return builder.AddLayer(std::move(layer),
                            {Vector(Repeat(norm.beta, inner)), Vector(Repeat(norm.gamma, inner)),
                             Vector(Repeat(norm.mean, inner)), Vector(Repeat(norm.var, inner))});
  }
  std::vector<int64_t> dims = {channels};
  dims.resize(static_cast<size_t>(builder.Find(in)->shape.rank() - axis), 1);
  std::vector<std::string> bottoms = {in};
  const std::pair<const char*, const std::vector<float>*> parts[] = {
      {"mean", &norm.mean}, {"var", &norm.var}, {"gamma", &norm.gamma}, {"beta", &norm.beta}};
  for (const auto& [part, values] : parts) {
    bottoms.push_back(builder.FreshTensor(absl::StrCat(out, "/", part)));
    RETURN_IF_ERROR(AddConstant(builder, absl::StrCat(name, "/", part), MakeBlob(dims, *values),
                                bottoms.back()));
  }
  return AddExpression(builder, name,
                       absl::StrCat("(@0 - @1) * (@3 / sqrt(@2 + ", Number(norm.eps), ")) + @4"),
                       bottoms, out);
}

namespace {

// Every pixel of `in`, which is [rows, channels, height, width], followed by stride - 1 zeros.
absl::StatusOr<std::string> SpreadPixels(GraphBuilder& builder, const std::string& in,
                                         const Deconvolution& d, absl::string_view out) {
  if (d.stride[0] * d.stride[1] == 1) return in;
  constexpr int64_t kMostStride = 64;
  if (std::max(d.stride[0], d.stride[1]) > kMostStride) {
    return Unimplemented("a stride above ", kMostStride);
  }
  const engine::Shape& shape = builder.Find(in)->shape;
  const int64_t height = shape[2].value(), width = shape[3].value();
  std::vector<float> first(static_cast<size_t>(d.stride[0] * d.stride[1]), 0.0f);
  first[0] = 1;
  const std::string mask = builder.FreshTensor(absl::StrCat(out, "/mask"));
  const std::string pixels = builder.FreshTensor(absl::StrCat(out, "/pixels"));
  const std::string spread = builder.FreshTensor(absl::StrCat(out, "/spread"));
  const std::string image = builder.FreshTensor(absl::StrCat(out, "/image"));
  RETURN_IF_ERROR(AddConstant(builder, mask, MakeBlob({d.stride[0], 1, d.stride[1]}, first), mask));
  RETURN_IF_ERROR(AddReshape(builder, pixels, in, {0, d.channels * height, 1, width, 1}, pixels));
  RETURN_IF_ERROR(AddExpression(builder, spread, "where(@0, @1, 0)", {mask, pixels}, spread));
  RETURN_IF_ERROR(AddReshape(builder, image, spread,
                             {0, d.channels, height * d.stride[0], width * d.stride[1]}, image));
  return image;
}

// The weight as a convolution has it: outputs first, each kernel turned around.
ulf::BlobData TurnedWeight(const Deconvolution& d) {
  const int64_t cells = d.kernel[0] * d.kernel[1];
  std::vector<float> turned(d.weight.size());
  const int64_t own = d.channels / d.group, per_group = d.outputs / d.group;
  for (int64_t c = 0; c < d.channels; ++c) {
    for (int64_t o = 0; o < per_group; ++o) {
      const int64_t from = (c * per_group + o) * cells;
      const int64_t to = ((c / own * per_group + o) * own + c % own) * cells;
      for (int64_t k = 0; k < cells; ++k) {
        turned[static_cast<size_t>(to + cells - 1 - k)] = d.weight[static_cast<size_t>(from + k)];
      }
    }
  }
  return MakeBlob({d.outputs, own, d.kernel[0], d.kernel[1]}, turned);
}

// `in` without those first and last pixels of height and width.
absl::Status AddCuts(GraphBuilder& builder, absl::string_view name, std::string in,
                     const std::array<int64_t, 2>& first, const std::array<int64_t, 2>& last,
                     absl::string_view out) {
  for (int axis = 2; axis < 4; ++axis) {
    const auto i = static_cast<size_t>(axis - 2);
    const int64_t left = builder.Find(in)->shape[axis].value() - first[i] - last[i];
    if (left < 1) return InvalidArgument("cuts leave nothing");
    const std::string cut =
        axis == 3 ? std::string(out) : builder.FreshTensor(absl::StrCat(out, "/cut"));
    RETURN_IF_ERROR(AddSlice(builder, axis == 3 ? name : cut, in, axis, first[i], left, cut));
    in = cut;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status AddDeconvolution(GraphBuilder& builder, absl::string_view name, const std::string& in,
                              const Deconvolution& d, absl::string_view out) {
  const engine::Shape shape = builder.Find(in)->shape;
  const int64_t cells = d.kernel[0] * d.kernel[1];
  if (shape.rank() != 4 || shape[1] != engine::Dim::Of(d.channels) || !shape[2].IsConst() ||
      !shape[3].IsConst()) {
    return Unimplemented("input of shape ", shape.ToString(), ", want ", d.channels,
                         " channels of a known size");
  }
  if (d.group < 1 || d.channels % d.group != 0 || d.outputs % d.group != 0 ||
      static_cast<int64_t>(d.weight.size()) != d.channels * d.outputs / d.group * cells) {
    return InvalidArgument("channels, group and weight do not fit");
  }
  ASSIGN_OR_RETURN(const std::string image, SpreadPixels(builder, in, d, out));
  // What the convolution pads, and what is cut off behind it.
  std::array<int64_t, 2> before, after, first, last;
  bool cuts = false;
  for (size_t i = 0; i < 2; ++i) {
    const int64_t reach = (d.kernel[i] - 1) * d.dilation[i];
    before[i] = reach - d.cut_before[i];
    after[i] = reach - d.cut_after[i] - (d.stride[i] - 1);
    first[i] = std::max<int64_t>(0, -before[i]);
    last[i] = std::max<int64_t>(0, -after[i]);
    constexpr int64_t kMostPad = 1 << 16;
    if (std::max(before[i], after[i]) > kMostPad) {
      return Unimplemented("a kernel that reaches too far");
    }
    cuts |= before[i] < 0 || after[i] < 0;
  }
  const std::string top =
      cuts ? builder.FreshTensor(absl::StrCat(out, "/whole")) : std::string(out);
  ulf::LayerParameter layer =
      MakeLayer("convolution_layer", cuts ? top : std::string(name), {image}, top);
  ulf::ConvolutionParameter& p = *layer.mutable_convolution_param();
  p.set_num_output(static_cast<uint32_t>(d.outputs));
  p.set_bias_term(!d.bias.empty());
  if (d.group != 1) p.set_group(static_cast<uint32_t>(d.group));
  for (size_t i = 0; i < 2; ++i) {
    p.add_kernel_size(static_cast<uint32_t>(d.kernel[i]));
    p.add_stride(1);
    p.add_dilation(static_cast<uint32_t>(d.dilation[i]));
    p.add_pad(static_cast<uint32_t>(std::max<int64_t>(0, before[i])));
  }
  for (const int64_t pad : after) p.add_pad(static_cast<uint32_t>(std::max<int64_t>(0, pad)));
  std::vector<ulf::BlobData> weights = {TurnedWeight(d)};
  if (!d.bias.empty()) weights.push_back(MakeBlob({d.outputs}, d.bias));
  RETURN_IF_ERROR(builder.AddLayer(std::move(layer), std::move(weights)));
  return cuts ? AddCuts(builder, name, top, first, last, out) : absl::OkStatus();
}

std::string Number(float value) {
  char digits[32];
  snprintf(digits, sizeof(digits), "%.9g", static_cast<double>(value));
  return value < 0 ? absl::StrCat("(", digits, ")") : std::string(digits);
}

}  // namespace ulfd::convert

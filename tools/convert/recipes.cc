// The ULF layers that conversions are made of.
// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/recipes.h"

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace ulfd::convert {
namespace {

using engine::Dim;
using engine::TensorSpec;

absl::StatusOr<const TensorSpec*> SpecOf(const GraphBuilder& builder, const std::string& tensor) {
  const TensorSpec* spec = builder.Find(tensor);
  if (spec == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("reads \"", tensor, "\", which no node before it makes"));
  }
  return spec;
}

absl::Status WantNumber(const TensorSpec& spec, int axis) {
  if (spec.shape[axis].IsConst()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("input 0: shape ", spec.shape.ToString(),
                                                 ", want a number for dimension ", axis));
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
                        int axis, absl::string_view out) {
  ulf::LayerParameter layer = MakeLayer("softmax_layer", name, {in}, out);
  layer.mutable_softmax_param()->set_dim(axis);
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

absl::Status AddSlice(GraphBuilder& builder, absl::string_view name, const std::string& in,
                      int axis, int64_t begin, int64_t length, absl::string_view out) {
  ASSIGN_OR_RETURN(const TensorSpec* spec, SpecOf(builder, in));
  if (axis == 0) {
    return absl::UnimplementedError("cuts along axis 0, the rows, which belong to the request");
  }
  RETURN_IF_ERROR(WantNumber(*spec, axis));
  ASSIGN_OR_RETURN(const int64_t inner, InnerSize(builder, in, axis));
  // slice_layer sees a row as flat: one piece per index of the dimensions between rows and axis.
  int64_t outer = 1;
  std::vector<int64_t> shape = {0};
  for (int d = 1; d < spec->shape.rank(); ++d) {
    if (d < axis) {
      RETURN_IF_ERROR(WantNumber(*spec, d));
      outer *= spec->shape[d].value();
    }
    shape.push_back(d == axis ? length : spec->shape[d].value());
  }
  const int64_t step = spec->shape[axis].value() * inner;
  ulf::LayerParameter layer = MakeLayer("slice_layer", name, {in}, out);
  layer.mutable_slice_param()->set_concat_dim(0);
  for (int64_t o = 0; o < outer; ++o) {
    ulf::Slice& piece = *layer.mutable_slice_param()->add_slices();
    piece.set_offset(static_cast<int32_t>(o * step + begin * inner));
    if (outer > 1) {
      piece.add_shape(static_cast<int32_t>(length * inner));
      continue;
    }
    for (size_t d = 1; d < shape.size(); ++d) piece.add_shape(static_cast<int32_t>(shape[d]));
  }
  if (outer == 1) return builder.AddLayer(std::move(layer));
  const std::string flat = builder.FreshTensor(absl::StrCat(out, "/flat"));
  layer.set_top(0, flat);
  RETURN_IF_ERROR(builder.AddLayer(std::move(layer)));
  return AddReshape(builder, absl::StrCat(name, "/shape"), flat, shape, out);
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

// |x| rounded to a whole number: beyond 2^23 single precision has no fractions to keep.
constexpr char kWhole[] = "8388608";
std::string NearestOfMagnitude(absl::string_view x) {
  return absl::StrCat("((abs(", x, ") + ", kWhole, ") - ", kWhole, ")");
}

}  // namespace

std::string Truncated(absl::string_view x) {
  const std::string near = NearestOfMagnitude(x);
  return absl::StrCat("where(abs(", x, ") < ", kWhole, ", where(", x, " < 0, -1, 1) * (", near,
                      " - where(", near, " > abs(", x, "), 1, 0)), ", x, ")");
}

std::string Rounded(absl::string_view x) {
  return absl::StrCat("where(abs(", x, ") < ", kWhole, ", where(", x, " < 0, -1, 1) * ",
                      NearestOfMagnitude(x), ", ", x, ")");
}

std::string Floor(absl::string_view x) {
  const std::string cut = Truncated(x);
  return absl::StrCat("(", cut, " - where(", cut, " > ", x, ", 1, 0))");
}

std::string Number(float value) {
  char digits[32];
  snprintf(digits, sizeof(digits), "%.9g", static_cast<double>(value));
  return value < 0 ? absl::StrCat("(", digits, ")") : std::string(digits);
}

}  // namespace ulfd::convert

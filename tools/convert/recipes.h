// The ULF layers that conversions are made of, one call each.  Tensor names are those of the
// builder; `name` is the new layer's, `out` its top.  Errors are the engine's.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_CONVERT_RECIPES_H_
#define ULFD_TOOLS_CONVERT_RECIPES_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tools/convert/graph_builder.h"

namespace ulfd::convert {

// A layer message with type, name, bottoms and one top.
ulf::LayerParameter MakeLayer(absl::string_view type, absl::string_view name,
                              absl::Span<const std::string> bottoms, absl::string_view top);

// A layer without parameters.
absl::Status AddPlain(GraphBuilder& builder, absl::string_view type, absl::string_view name,
                      absl::Span<const std::string> bottoms, absl::string_view out);
// `shape` as in ulf.ReshapeParameter.
absl::Status AddReshape(GraphBuilder& builder, absl::string_view name, const std::string& in,
                        absl::Span<const int64_t> shape, absl::string_view out);
// The same tensor under another name.
absl::Status AddRename(GraphBuilder& builder, absl::string_view name, const std::string& in,
                       absl::string_view out);
absl::Status AddTranspose(GraphBuilder& builder, absl::string_view name, const std::string& in,
                          absl::Span<const int> perm, absl::string_view out);
absl::Status AddConcat(GraphBuilder& builder, absl::string_view name,
                       absl::Span<const std::string> in, int axis, absl::string_view out);
absl::Status AddSoftmax(GraphBuilder& builder, absl::string_view name, const std::string& in,
                        int axis, absl::string_view out, bool log = false);
// `expression` over @0, @1, ... (ulf.ExpressionParameter).
absl::Status AddExpression(GraphBuilder& builder, absl::string_view name,
                           absl::string_view expression, absl::Span<const std::string> in,
                           absl::string_view out);
absl::Status AddConstant(GraphBuilder& builder, absl::string_view name, const ulf::BlobData& blob,
                         absl::string_view out);
// Elements [begin, begin + length) of an axis.
struct Range {
  int64_t begin = 0, length = 0;
};
// The ranges side by side, along an axis other than 0 whose later dimensions, and those between it
// and the rows, are numbers.
absl::Status AddSlices(GraphBuilder& builder, absl::string_view name, const std::string& in,
                       int axis, absl::Span<const Range> ranges, absl::string_view out);
absl::Status AddSlice(GraphBuilder& builder, absl::string_view name, const std::string& in,
                      int axis, int64_t begin, int64_t length, absl::string_view out);
// take_layer: entries of `in` along an axis other than 0, at the places in `index`.
absl::Status AddTake(GraphBuilder& builder, absl::string_view name, const std::string& in,
                     const std::string& index, int axis, absl::string_view out);
// scatter_layer, scatter_add_layer: x with the entries of `update` at the places in `index`, or
// added there.
absl::Status AddScatter(GraphBuilder& builder, absl::string_view name,
                        const std::array<std::string, 3>& x_index_update, int axis, bool add,
                        absl::string_view out);
// x > 0 ? x : slope * x, with one slope, or one per index of axis 1.
absl::Status AddPrelu(GraphBuilder& builder, absl::string_view name, const std::string& in,
                      absl::Span<const float> slopes, absl::string_view out);

// Parameters of a batch normalisation, one value per index of `axis`.
struct ChannelNorm {
  std::vector<float> gamma, beta, mean, var;
  float eps = 0;
};
// bn_layer along `axis`; where that would repeat more than kMaxRepeated values, an expression.
absl::Status AddNorm(GraphBuilder& builder, absl::string_view name, const std::string& in, int axis,
                     const ChannelNorm& norm, absl::string_view out);
inline constexpr int64_t kMaxRepeated = 1 << 16;

// A transposed convolution of an image [rows, C, H, W]: `cut_before` and `cut_after` of the whole
// result are left out on each side (below 0: zeros are added, but for the bias).
struct Deconvolution {
  int64_t channels = 0, outputs = 0, group = 1;
  std::array<int64_t, 2> kernel, stride, dilation, cut_before, cut_after;
  std::vector<float> weight;  // [channels, outputs / group, kernel]
  std::vector<float> bias;    // Empty: none.
};
// Zeros between the pixels, then a convolution with the weights the other way round.
absl::Status AddDeconvolution(GraphBuilder& builder, absl::string_view name, const std::string& in,
                              const Deconvolution& d, absl::string_view out);

// The dimensions of `in` after `axis` as one number.  INVALID_ARGUMENT where one is not known.
absl::StatusOr<int64_t> InnerSize(const GraphBuilder& builder, const std::string& in, int axis);
// A number as the expression language reads it back.
std::string Number(float value);

}  // namespace ulfd::convert

#endif  // ULFD_TOOLS_CONVERT_RECIPES_H_

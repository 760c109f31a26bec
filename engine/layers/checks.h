// Checks that several layer types share, with one wording for all.  Messages start with what is
// wrong ("input 1: ...", `weight 2 "var": ...`) and say what was found and what was wanted; the
// caller adds the layer's name.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_LAYERS_CHECKS_H_
#define ULFD_ENGINE_LAYERS_CHECKS_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/errors.h"
#include "engine/layers/layer.h"
#include "engine/tensor/tensor.h"

namespace ulfd::engine {

// "input 1: shape [2, 3], want WANTED", as an error.
template <typename... Parts>
absl::Status BadInput(int index, const TensorSpec& spec, const Parts&... wanted) {
  return InvalidArgument("input ", index, ": shape ", spec.shape.ToString(), ", want ", wanted...);
}
// Every input is float32: "input 1: int32, want float32".
absl::Status WantFloat32(absl::Span<const TensorSpec> in);
// All inputs have the type of the first: "input 2: int32, want float32 like input 0".
absl::Status WantOneType(absl::Span<const TensorSpec> in);
// The rank of input `index` is within [min, max]: "input 0: shape [2], want rank 2 or 3".
absl::Status WantRank(absl::Span<const TensorSpec> in, int index, int min, int max);
// Input 0 is an image: float32, [rows, channels, height, width].
absl::Status WantImage(absl::Span<const TensorSpec> in);
// "reorg_param.stride: 0, want 1 to 4096"; without `max` "concat_param.dim: -1, want 0 or more".
absl::Status WantBetween(absl::string_view field, int64_t value, int64_t min,
                         int64_t max = std::numeric_limits<int64_t>::max());
// `axis` exists in input 0: "softmax_param.dim: 3, want 0 to 1 for input 0: shape [2, 3]".
absl::Status WantAxis(absl::string_view field, int64_t axis, const TensorSpec& spec);

// One spec for tensors that must agree (nothing is repeated): a number beats an unknown.  nullopt:
// they differ for sure.
std::optional<Dim> Same(Dim a, Dim b);

// `spec` as one of several operands that numpy aligns at the last dimension: a user's single row
// that comes to lie behind another leading dimension of `rank` is a plain 1 there.  ([users, E]
// beside [ads, 1, E] reads as [1, E].)
Shape AlignUserRow(const TensorSpec& spec, int rank);
// `out`, whose level is LevelOf(its shape, in), as all that a layer puts out.
TensorSpecs OnlyOutput(TensorSpec out, absl::Span<const TensorSpec> in);

// Shape and level of an elementwise function of `in` with numpy broadcasting; dtype float32.
absl::StatusOr<TensorSpecs> InferBroadcast(absl::Span<const TensorSpec> in);

// `weight 2 "var"`, or `weight 2` where the file has no names.
std::string WeightLabel(LayerWeights weights, int index);
// "[128, 2]"
std::string ShapeText(const Weight& weight);
// `weight 2 "var": shape [64], want WANTED`, as an error.
template <typename... Parts>
absl::Status BadWeight(LayerWeights weights, int index, const Parts&... wanted) {
  return InvalidArgument(WeightLabel(weights, index), ": shape ", ShapeText(weights[index]),
                         ", want ", wanted...);
}
// The weight as a matrix: leading dimensions of 1 beyond two are dropped.
absl::StatusOr<Weight> WantMatrix(LayerWeights weights, int index);

// For Layer::SuggestInputs: fills in what `spec` leaves open, if the ranks agree.
void Suggest(TensorSpec& spec, const Shape& shape, Level level);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_LAYERS_CHECKS_H_

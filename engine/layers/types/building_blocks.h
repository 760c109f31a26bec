// Layers of the format that graph passes and composite layers are made of.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_LAYERS_TYPES_BUILDING_BLOCKS_H_
#define ULFD_ENGINE_LAYERS_TYPES_BUILDING_BLOCKS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/layers/common/expression.h"
#include "engine/layers/layer.h"
#include "engine/weights/weights.h"

namespace ulfd::engine {

// softmax_layer and sum_layer along `axis`.  REQUIRES: axis >= 0.
std::unique_ptr<Layer> MakeSoftmax(int axis);
std::unique_ptr<Layer> MakeSum(int axis);

// batchdot_layer.
std::unique_ptr<Layer> MakeBatchDot(bool transpose_a, bool transpose_b);

// inner_product_layer without bias: y = x * weight.  REQUIRES: `weight` is a matrix [k, n]; its
// data outlives the layer.
std::unique_ptr<Layer> MakeInnerProduct(const Weight& weight);

// y = (x - mean) * scale + beta, computed in this order; a bn_layer of gamma `scale`, variance 1
// and eps 0.  The vectors are copied; they repeat along the flattened x.  INVALID_ARGUMENT if one
// is empty.
absl::StatusOr<std::unique_ptr<Layer>> MakeBatchNorm(absl::Span<const float> mean,
                                                     absl::Span<const float> scale,
                                                     absl::Span<const float> beta);
// y = p * x + (1 - p) * gamma * x with p = sigmoid((x - mean) / sqrt(var)); as above.
absl::StatusOr<std::unique_ptr<Layer>> MakeDice(absl::Span<const float> gamma,
                                                absl::Span<const float> mean,
                                                absl::Span<const float> var);

// expression_layer.
std::unique_ptr<Layer> MakeExpression(Expression expression);
// The formula of an expression_layer; null for any other.
const Expression* ExpressionOf(const Layer& layer);

// reshape_layer; `sizes` as in ulf.ReshapeParameter.  REQUIRES: at most one -1, none below.
std::unique_ptr<Layer> MakeReshape(std::vector<int64_t> sizes);
// concat_layer along `axis`.  REQUIRES: axis >= 0.
std::unique_ptr<Layer> MakeConcat(int axis);
// slice_layer of these columns of a row, one piece behind the other: [d0, their elements].
// REQUIRES: at least one; offset >= 0 and elements >= 1 in each.
std::unique_ptr<Layer> MakeSlice(absl::Span<const Semantics::Piece> pieces);
// broadcast_to_layer to these sizes; 0: as it is.
std::unique_ptr<Layer> MakeBroadcast(std::vector<int64_t> sizes);

// The axis along which a top_k_layer or take_layer chooses; -1: it is another.
int ChoiceAxisOf(const Layer& layer);
// The same top_k_layer along another axis; null: it is none.
std::unique_ptr<Layer> TopKAlong(const Layer& layer, int axis);

// Axis perm[k] of the input becomes axis k.  REQUIRES: each of 0..perm.size() - 1 once.
std::unique_ptr<Layer> MakeTranspose(std::vector<int> perm);
// Axis `axis` of size a becomes two axes.  `inner` > 0: [a / inner, inner]; `outer` > 0:
// [outer, a / outer].  REQUIRES: exactly one of them is above 0.
std::unique_ptr<Layer> MakeSplitAxis(int axis, int64_t outer, int64_t inner);
// Axes [first, first + count) become one.
std::unique_ptr<Layer> MakeMergeAxes(int first, int count);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_LAYERS_TYPES_BUILDING_BLOCKS_H_

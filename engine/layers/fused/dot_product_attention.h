// Attention by dot products as one layer: what a graph pass makes of two products of matrices and a
// softmax in between.  Not a type of the format.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_LAYERS_FUSED_DOT_PRODUCT_ATTENTION_H_
#define ULFD_ENGINE_LAYERS_FUSED_DOT_PRODUCT_ATTENTION_H_

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/kernels/attention.h"
#include "engine/layers/layer.h"

namespace ulfd::engine {

struct DotProductOptions {
  struct Mask {
    AttentionMask kind;
    float number;  // As in MaskArgs.
  };
  float scale = 1;
  std::vector<Mask> masks;  // At most kMostMasks, one after the other.
  // Axis i of q, k, v and y as below is axis order[i] of the tensor; order[0] is 0.  All are as
  // long.
  std::vector<int> q, k, v, y;
};

// dot_product_attention (primitive, not a type of the format).  y = softmax over the keys of (scale
// * q k^T, masked), times v, for each row and head.
// Input   0 q [N, .., queries, E]; 1 k [N, .., keys, E]; 2 v [N, .., keys, E'], of rank 3 or 4,
//         leading dimensions alike or 1; then the masks, which numpy broadcasts to [N, ..,
//         queries, keys].  All float32.
// Output  0 [N, .., queries, E'].
// Errors  (Infer) InvalidArgument for other types, ranks and sizes, and no keys.
class DotProductAttentionLayer final : public Layer {
 public:
  explicit DotProductAttentionLayer(DotProductOptions options)
      : options_(std::make_shared<const DotProductOptions>(std::move(options))) {}

  absl::StatusOr<TensorSpecs> Infer(absl::Span<const TensorSpec> in) const override;
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(absl::Span<const TensorSpec> in) const override;
  double Flops(absl::Span<const TensorSpec> in, absl::Span<const TensorSpec> out) const override;

 private:
  const std::shared_ptr<const DotProductOptions> options_;
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_LAYERS_FUSED_DOT_PRODUCT_ATTENTION_H_

// Weights that depend on the user: the user's half of folding x * s into a fully connected layer.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_LAYERS_FUSED_SCALED_WEIGHTS_H_
#define ULFD_ENGINE_LAYERS_FUSED_SCALED_WEIGHTS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "engine/layers/layer.h"

namespace ulfd::engine {

// scaled_weights (made by the optimiser, not a type of the format): for
//   x W_a + (x * s) W_m = x (W_a + diag(s) W_m)
// the matrix in brackets, for each user's s.
struct ScaledWeightsOptions {
  int64_t k = 0, n = 0;
  std::vector<float> base;    // W_a [k, n]
  int64_t first_row = 0;      // Of the rows that diag(s) W_m is added to.
  std::vector<float> scaled;  // W_m [columns of s, n]
};

// Input s [users, ...]; output [users, k, n].
class ScaledWeights final : public Layer {
 public:
  explicit ScaledWeights(ScaledWeightsOptions options) : options_(std::move(options)) {}

  absl::StatusOr<TensorSpecs> Infer(absl::Span<const TensorSpec> in) const override;
  // The layer must outlive the kernel.
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(absl::Span<const TensorSpec> in) const override;

 private:
  const ScaledWeightsOptions options_;
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_LAYERS_FUSED_SCALED_WEIGHTS_H_

// The fully connected layer that the optimiser works with: columns of several tensors, a part that
// is computed elsewhere, and what follows it, in one step.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_LAYERS_FUSED_FUSED_FC_H_
#define ULFD_ENGINE_LAYERS_FUSED_FUSED_FC_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/layers/fused/fc_epilogue.h"
#include "engine/layers/layer.h"

namespace ulfd::engine {

// fused_fc (made by the optimiser, not a type of the format): y = epilogue(init + [b0 | b1 | ...]
// W), where each block is a range of columns of an input.  This is what the format calls
// inner_product_layer_ex when one part of the columns is the user's: its product arrives as init.
struct FusedFcOptions {
  // Columns [offset, offset + k) of an input.
  struct Block {
    int input = 0;
    int64_t offset = 0, k = 0;
  };
  std::vector<Block> blocks;  // In the order of W's rows.
  // W [sum of k, n]; `owner` keeps it alive unless it is shared.
  MatrixRef weight;
  std::shared_ptr<const void> owner;
  std::vector<float> bias;  // n values or none.
  // Index of the input that the sums start from instead of the bias: [rows, n], or fewer rows by
  // numpy's rules.  -1: none.
  int init = -1;
  // true: inputs are seen as [rows, everything else] and the output is [rows, n]; inputs of one row
  // (the user's) go with all rows.  false: rank 3, the last dimension counts, all blocks have the
  // same leading dimensions.
  bool flat = true;
  FcEpilogue epilogue;

  int64_t k() const;
  int64_t n() const { return weight.n; }
};

class FusedFc final : public Layer {
 public:
  explicit FusedFc(FusedFcOptions options) : options_(std::move(options)) {}

  // INVALID_ARGUMENT if the inputs do not fit the options.
  absl::StatusOr<TensorSpecs> Infer(absl::Span<const TensorSpec> in) const override;
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(absl::Span<const TensorSpec> in) const override;
  Semantics semantics() const override;
  double Flops(absl::Span<const TensorSpec> in, absl::Span<const TensorSpec> out) const override;
  std::shared_ptr<const Layer> WithoutWeights() const override;

 private:
  const FusedFcOptions options_;
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_LAYERS_FUSED_FUSED_FC_H_

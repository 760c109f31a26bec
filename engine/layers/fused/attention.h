// The attention unit as one layer: what a graph pass makes of a chain of arithmetic, fully
// connected layers, mask, softmax and pooling.  Not a type of the format.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_LAYERS_FUSED_ATTENTION_H_
#define ULFD_ENGINE_LAYERS_FUSED_ATTENTION_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/layers/fused/fc_epilogue.h"
#include "engine/layers/layer.h"

namespace ulfd::engine {

// Numbers that layers and kernels share; null: none.
using SharedFloats = std::shared_ptr<const std::vector<float>>;

// What is done to the n columns of a fully connected layer: the bias is added, then the epilogue.
struct AttentionFinish {
  std::vector<float> bias;  // n values or none.
  FcEpilogue epilogue;
};

// A layer after the first.
struct AttentionLayer {
  int64_t n = 0;
  SharedFloats weight;  // [n of the layer before, n], row-major.
  AttentionFinish finish;
};

// See engine/kernels/attention.h for the formula.
struct AttentionOptions {
  int64_t width = 0;   // E: of q and k.
  int64_t hidden = 0;  // h: outputs of the first layer.
  // [E, h] row-major, already combined; at least one.  For [q, k, q - k, q * k] times
  // [W0; W1; W2; W3]: W0 + W2, W1 - W2, W3.
  SharedFloats q_weight, k_weight, product_weight;
  AttentionFinish finish;  // Of the first layer.
  std::vector<AttentionLayer> layers;
  // True: y is v weighted with the softmax over the steps of the last layer's one output per step;
  // false: y is that layer's output.
  bool pooled = true;
  // Only if pooled:
  bool has_mask = false;  // There is an input mask: mask > 0 ? logit : pad.
  float pad = 0;
  bool has_values = false;  // There is an input v; otherwise v is k.
};

// attention_unit (primitive, not a type of the format).
// Input   0 q [N, E] or [N, 1, E] f32; 1 k [N or 1, T, E] f32; then, if there is one, mask [N or 1,
//         T] or [N or 1, T, 1] int32; then, if there is one, v [N or 1, T, E'] f32.  A leading 1
//         (the user's row) is for all N.
// Output  0 pooled: [N, 1, E'] (E' = E without v); otherwise [N, T, n of the last layer].
// Errors  (Infer) InvalidArgument for other types, ranks, widths, and steps or rows that differ.
class AttentionUnit final : public Layer {
 public:
  // REQUIRES: sizes that fit together; if pooled, one output of the last layer.
  explicit AttentionUnit(AttentionOptions options)
      : options_(std::make_shared<const AttentionOptions>(std::move(options))) {}

  absl::StatusOr<TensorSpecs> Infer(absl::Span<const TensorSpec> in) const override;
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(absl::Span<const TensorSpec> in) const override;
  // Counts every step, also those that a mask leaves out at run time.
  double Flops(absl::Span<const TensorSpec> in, absl::Span<const TensorSpec> out) const override;

 private:
  const std::shared_ptr<const AttentionOptions> options_;
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_LAYERS_FUSED_ATTENTION_H_

// The attention unit of DIN for one user and some ads: what every history step means to every ad,
// and the history pooled by it, without ever writing a tensor of ads x steps x features.
//
//   h[n, t] = act(q[n] Wq + k[t] Wk + (q[n] * k[t]) Wp + b)      (each term optional)
// then further fully connected layers over h[n, t], and, if asked for, of the one value s[n, t] per
// step that the last of them gives:
//   s[n, t] = mask[t] > 0 ? s[n, t] : pad                        (with a mask)
//   s[n] = softmax over t of s[n]
//   y[n] = sum over t of s[n, t] v[t]
// A concatenation of q, k, q - k, k - q and q * k times a matrix has the form of the first line,
// with the sums of the parts of that matrix that belong to the terms.
//
// With a product term, Wk + diag(q[n]) Wp is built per ad and lies in the first-level cache; steps
// go through all layers in pieces that fit there, too.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_KERNELS_ATTENTION_H_
#define ULFD_ENGINE_KERNELS_ATTENTION_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "engine/kernels/fc.h"
#include "engine/kernels/isa.h"
#include "engine/kernels/row_args.h"
#include "engine/kernels/types.h"
#include "engine/tensor/pace.h"

namespace ulfd::engine {

// A layer after the first.
struct AttentionStage {
  int64_t k = 0;  // Values that it reads per step.
  MatrixView w;   // [k, n]: PackedMatrix::view(), also of one in bf16.
  const float* bias = nullptr;
  Epilogue epilogue;
};

// What a unit computes.  Borrows everything; matrices are views of PackedMatrix::Pack.
struct AttentionSpec {
  int64_t width = 0;                              // Of q and k.
  int64_t hidden = 0;                             // Outputs of the first layer.
  MatrixView q_weight, k_weight, product_weight;  // [width, hidden]; null data: no such term.
  const float* bias = nullptr;                    // [hidden]
  Epilogue epilogue;                              // Of the first layer.
  absl::Span<const AttentionStage> stages;        // The layers after it.
  bool pooled = true;                             // False: y is what the last layer gives.
  float pad = 0;                                  // Of steps that the mask leaves out.
  // Wk + diag(q) Wp and what it meets are rounded to bf16.  REQUIRES: Has(kBf16).
  bool bf16 = false;

  // Outputs of the last layer; 1 if pooled.
  int64_t outputs() const { return stages.empty() ? hidden : stages[stages.size() - 1].w.n; }
};

// Pointers are borrowed, of any alignment.  Strides are in floats (mask: int32) from ad to ad; 0:
// the user's, one for all ads.
struct AttentionCall {
  int64_t ads = 0;
  int64_t steps = 0;
  const float* q = nullptr;  // [ads, width]
  int64_t q_stride = 0;
  const float* k = nullptr;  // [steps, width] without gaps, per ad or one for all.
  int64_t k_stride = 0;
  const int32_t* mask = nullptr;  // [steps]; null: none.
  int64_t mask_stride = 0;
  const float* v = nullptr;  // [steps, v_width] without gaps; only if pooled.
  int64_t v_stride = 0;
  int64_t v_width = 0;
  float* y = nullptr;    // [ads, v_width], or [ads, steps, outputs()], without gaps.
  Pace* pace = nullptr;  // Null: the call is never given up.
};

// Scratch that Attention needs for calls of that many steps, whatever the number of ads.
size_t AttentionScratchBytes(const AttentionSpec& spec, int64_t steps, int64_t v_width);

// Thread-safe; allocates nothing.  An ad's result does not depend on the other ads of the call.
//
// Steps that the user's mask leaves out are not computed at all where that cannot be seen: if their
// weights underflow to exactly 0 (checked against each ad's logits), their values are finite and at
// least one step is left.
// REQUIRES: `scratch` has AttentionScratchBytes() bytes, 64-byte aligned.
void Attention(const AttentionSpec& spec, const AttentionCall& call, void* scratch,
               Isa isa = ActiveIsa());

// Scratch of KernelTable::dot_product_attention.
size_t DotProductScratchBytes(int64_t keys, int64_t width);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_KERNELS_ATTENTION_H_

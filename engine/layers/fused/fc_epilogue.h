// What follows a fully connected layer column by column, with parameters of its own: for layers
// that the optimiser makes.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_LAYERS_FUSED_FC_EPILOGUE_H_
#define ULFD_ENGINE_LAYERS_FUSED_FC_EPILOGUE_H_

#include <vector>

#include "engine/kernels/types.h"

namespace ulfd::engine {

// An epilogue that owns its parameters, n values each.
struct FcEpilogue {
  bool affine = false;  // (x - mean) * scale + beta, before the activation.
  std::vector<float> affine_mean, affine_scale, affine_beta;
  Activation::Kind activation = Activation::Kind::kNone;
  std::vector<float> slope;               // kPrelu.
  std::vector<float> mean, scale, gamma;  // kDice; scale is 1 / sqrt(var + eps).

  bool empty() const { return !affine && activation == Activation::Kind::kNone; }
};

// As kernels take it; borrows the parameters.
Epilogue ViewOf(const FcEpilogue& owned);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_LAYERS_FUSED_FC_EPILOGUE_H_

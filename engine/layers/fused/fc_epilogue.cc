// SPDX-License-Identifier: Apache-2.0
#include "engine/layers/fused/fc_epilogue.h"

namespace ulfd::engine {

Epilogue ViewOf(const FcEpilogue& owned) {
  Epilogue epilogue;
  if (owned.affine) {
    epilogue.affine = {owned.affine_mean.data(), owned.affine_scale.data(),
                       owned.affine_beta.data()};
  }
  epilogue.activation = {.kind = owned.activation,
                         .slope = owned.slope.data(),
                         .mean = owned.mean.data(),
                         .scale = owned.scale.data(),
                         .gamma = owned.gamma.data()};
  return epilogue;
}

}  // namespace ulfd::engine

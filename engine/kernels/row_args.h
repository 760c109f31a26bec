// What LayerNorm (elementwise.h) is asked for.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_KERNELS_ROW_ARGS_H_
#define ULFD_ENGINE_KERNELS_ROW_ARGS_H_

#include <cstdint>

namespace ulfd::engine {

struct RowNorm {
  float eps = 0;
  bool centred = true;
  const float* scale = nullptr;  // n values, as `shift`; null: neither.
  const float* shift = nullptr;
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_KERNELS_ROW_ARGS_H_

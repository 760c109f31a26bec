// Vectors of GCC's own, which functions of ULFD_MULTIVERSION compute with: GCC 12 makes none of
// selections in a loop over floats, and nothing good of more lanes than AVX2 has.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_LAYERS_COMMON_LANES_H_
#define ULFD_ENGINE_LAYERS_COMMON_LANES_H_

#include <cstring>

namespace ulfd::engine {

constexpr int kLanes = 8;
using Lanes = float __attribute__((vector_size(kLanes * sizeof(float))));

// By reference: a vector is no argument or result where the target may lack its registers.
[[gnu::always_inline]] inline void Load(const float* from, Lanes& to) {
  std::memcpy(&to, from, sizeof(to));
}
[[gnu::always_inline]] inline void Store(const Lanes& from, float* to) {
  std::memcpy(to, &from, sizeof(from));
}

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_LAYERS_COMMON_LANES_H_

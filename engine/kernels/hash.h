// A hash of memory by a secret.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_KERNELS_HASH_H_
#define ULFD_ENGINE_KERNELS_HASH_H_

#include <cstddef>
#include <cstdint>

#include "engine/kernels/isa.h"
#include "engine/kernels/table.h"

namespace ulfd::engine {

inline constexpr int64_t kHashBlockBytes = 64;
// Words of the secret for so many blocks; the next block's begin kHashBlockWords further on.
inline constexpr size_t kHashBlockWords = 16, kHashMoreWords = 3 * kHashBlockWords;

// Adds to the four sums those of NH (UMAC; Black, Halevi, Krawczyk, Krovetz, Rogaway, 1999): of two
// different data of as many bytes all four are equal for one of 2^128 secrets.  They depend on the
// instruction set only in how fast they come: faster with a secret aligned to blocks.  Where bytes
// are left behind whole blocks, the last 64 are the last block; fewer than 64 in all are filled up
// with zeros.
inline void AddHash(const void* data, int64_t bytes, const uint32_t* secret, uint64_t* sums) {
  static const KernelTable& kernels = KernelsOf(ActiveIsa());
  kernels.hash(data, bytes, secret, sums);
}

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_KERNELS_HASH_H_

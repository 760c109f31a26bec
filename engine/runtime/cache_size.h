// How much of a tile's memory stays close to a core.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_RUNTIME_CACHE_SIZE_H_
#define ULFD_ENGINE_RUNTIME_CACHE_SIZE_H_

#include <cstdint>

namespace ulfd::engine {

// Bytes of second-level cache of a core; 512 KiB where the machine does not say.
int64_t SecondLevelCacheBytes();

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_RUNTIME_CACHE_SIZE_H_

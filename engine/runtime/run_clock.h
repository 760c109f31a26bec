// The clock of RunStats.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_RUNTIME_RUN_CLOCK_H_
#define ULFD_ENGINE_RUNTIME_RUN_CLOCK_H_

#include <chrono>
#include <cstdint>

namespace ulfd::engine {

inline int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_RUNTIME_RUN_CLOCK_H_

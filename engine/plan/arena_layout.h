// Places in one block of memory for values that live from one step to another.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_PLAN_ARENA_LAYOUT_H_
#define ULFD_ENGINE_PLAN_ARENA_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ulfd::engine {

// What a value of so many bytes takes in an arena: a multiple of 64, and not nothing.
int64_t Aligned(int64_t bytes);

// Offsets of values in an arena such that values that are alive together do not overlap.  Multiples
// of 64 bytes.
struct ArenaLayout {
  std::vector<int64_t> offsets;  // Per value; -1: not in this arena.
  int64_t bytes = 0;             // Saturating: it may be more than there is.
};

// A value that is made by step `first` and read last by step `last`.
struct Lifetime {
  int value = 0;
  int first = 0, last = 0;
  int64_t bytes = 0;
};

// First fit in the order of the steps.  `values`: size of `offsets`.
ArenaLayout LayOut(std::vector<Lifetime> lifetimes, size_t values);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_PLAN_ARENA_LAYOUT_H_

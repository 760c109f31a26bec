// Hash tables that outlive a load which runs out of memory.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_BASE_HASH_MAP_H_
#define ULFD_BASE_HASH_MAP_H_

#include <cstddef>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/load_scope.h"

namespace ulfd {

// absl's tables are in disorder once an allocation throws while they grow: even their destructor
// ends the process.  The limits of a load let them grow, and refuse what is allocated next.
template <typename T>
struct UnrefusedAllocator {
  using value_type = T;
  UnrefusedAllocator() = default;
  template <typename U>
  UnrefusedAllocator(const UnrefusedAllocator<U>&) {}  // NOLINT(google-explicit-constructor)
  T* allocate(size_t n) {
    const LoadScope::WithoutRefusals unrefused;
    return std::allocator<T>().allocate(n);
  }
  void deallocate(T* memory, size_t n) { std::allocator<T>().deallocate(memory, n); }
  friend bool operator==(const UnrefusedAllocator&, const UnrefusedAllocator&) { return true; }
};

template <typename Key, typename Hash = typename absl::flat_hash_set<Key>::hasher,
          typename Eq = typename absl::flat_hash_set<Key>::key_equal>
using HashSet = absl::flat_hash_set<Key, Hash, Eq, UnrefusedAllocator<Key>>;

template <typename Key, typename Value, typename Hash = typename absl::flat_hash_set<Key>::hasher,
          typename Eq = typename absl::flat_hash_set<Key>::key_equal>
using HashMap =
    absl::flat_hash_map<Key, Value, Hash, Eq, UnrefusedAllocator<std::pair<const Key, Value>>>;

}  // namespace ulfd

#endif  // ULFD_BASE_HASH_MAP_H_

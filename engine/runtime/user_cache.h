// What was computed of users, for requests that bring the same user again.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_RUNTIME_USER_CACHE_H_
#define ULFD_ENGINE_RUNTIME_USER_CACHE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/lru_cache.h"

namespace ulfd::engine {

// One user's part.
struct CachedUser {
  std::string values;  // Rows of Schedule::kept, one after another.
  // What computing it counted, per ModelInfo::tables.
  std::vector<int64_t> looked_up_ids, missing_ids;

  int64_t bytes() const {
    return static_cast<int64_t>(sizeof(*this) + values.capacity() +
                                2 * missing_ids.size() * sizeof(int64_t));
  }
};

// Of one model.  A key is everything that the user's part is computed from.
using UserCache = LruCache<CachedUser>;

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_RUNTIME_USER_CACHE_H_

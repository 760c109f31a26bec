// SPDX-License-Identifier: Apache-2.0
#include "server/system/memory_release.h"

#include <cstddef>

#include "absl/base/attributes.h"

// Present in glibc, respectively only when jemalloc is linked.
extern "C" {
ABSL_ATTRIBUTE_WEAK int malloc_trim(size_t pad);
ABSL_ATTRIBUTE_WEAK int mallctl(const char* name, void* old_value, size_t* old_size, void* value,
                                size_t size);
}

namespace ulfd::server {

void ReleaseFreeMemory() {
  if (mallctl != nullptr) {
    // A cache holds up to 32 KiB of each size class until its thread allocates a lot more; the
    // pages themselves are given back by a thread of jemalloc's (main.cc).
    mallctl("thread.tcache.flush", nullptr, nullptr, nullptr, 0);
  } else if (malloc_trim != nullptr) {
    malloc_trim(0);
  }
}

}  // namespace ulfd::server

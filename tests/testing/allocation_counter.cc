// Counts the calling thread's allocations.
// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/allocation_counter.h"

#include <dlfcn.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

extern "C" {
// What glibc's malloc and relatives are called beside their usual names.
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* old, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);
}

namespace ulfd::testing {

namespace {

thread_local bool counting = false;
thread_local Allocations counts;

// `caller`: the return address of the allocating function.
void Count(const void* caller) {
  if (!counting) return;
  counting = false;  // dladdr may allocate.
  Dl_info info;
  const bool library = dladdr(caller, &info) != 0 && info.dli_fname != nullptr &&
                       (std::strstr(info.dli_fname, "libdnnl") != nullptr ||
                        std::strstr(info.dli_fname, "libgomp") != nullptr);
  ++(library ? counts.library : counts.own);
  counting = true;
}

}  // namespace

void StartCounting() {
  counts = Allocations{};
  counting = true;
}

Allocations StopCounting() {
  counting = false;
  return counts;
}

}  // namespace ulfd::testing

extern "C" {

void* malloc(size_t bytes) {
  ulfd::testing::Count(__builtin_return_address(0));
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
  ulfd::testing::Count(__builtin_return_address(0));
  return __libc_calloc(count, bytes);
}
void* realloc(void* old, size_t bytes) {
  ulfd::testing::Count(__builtin_return_address(0));
  return __libc_realloc(old, bytes);
}
void* memalign(size_t alignment, size_t bytes) {
  ulfd::testing::Count(__builtin_return_address(0));
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  ulfd::testing::Count(__builtin_return_address(0));
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** result, size_t alignment, size_t bytes) {
  ulfd::testing::Count(__builtin_return_address(0));
  void* const data = __libc_memalign(alignment, bytes);
  if (data == nullptr) return ENOMEM;
  *result = data;
  return 0;
}

}  // extern "C"

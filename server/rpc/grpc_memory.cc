// gRPC's allocator, and a sum.  The library calls it through the dynamic linker, which takes the
// program's own functions first, as it does for operator new.
// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/grpc_memory.h"

#include <grpc/support/alloc.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>

namespace ulfd::server {
namespace {

std::atomic<int64_t> total{0};
thread_local int64_t uncounted = 0;

void Count(int64_t bytes) {
  // A line of a cache that all threads write is dear: not with every allocation.
  constexpr int64_t kStep = 4096;
  uncounted += bytes;
  if (uncounted < kStep && uncounted > -kStep) return;
  total.fetch_add(uncounted, std::memory_order_relaxed);
  uncounted = 0;
}

int64_t SizeOf(void* memory) { return static_cast<int64_t>(malloc_usable_size(memory)); }

// gRPC has no way back from want of memory.
void* Counted(void* memory) {
  if (memory == nullptr) std::abort();
  Count(SizeOf(memory));
  return memory;
}

}  // namespace

int64_t GrpcBytes() { return total.load(std::memory_order_relaxed); }

}  // namespace ulfd::server

using ulfd::server::Count;
using ulfd::server::Counted;
using ulfd::server::SizeOf;

void* gpr_malloc(size_t size) { return size == 0 ? nullptr : Counted(std::malloc(size)); }

void* gpr_zalloc(size_t size) { return size == 0 ? nullptr : Counted(std::calloc(size, 1)); }

void gpr_free(void* memory) {
  if (memory != nullptr) Count(-SizeOf(memory));
  std::free(memory);
}

void* gpr_realloc(void* memory, size_t size) {
  if (size == 0 && memory == nullptr) return nullptr;
  if (memory != nullptr) Count(-SizeOf(memory));
  return Counted(std::realloc(memory, size));
}

void* gpr_malloc_aligned(size_t size, size_t alignment) {
  void* memory = nullptr;
  return Counted(posix_memalign(&memory, alignment, size) == 0 ? memory : nullptr);
}

void gpr_free_aligned(void* memory) { gpr_free(memory); }

// gRPC's allocator, and sums.  The library calls it through the dynamic linker, which takes the
// program's own functions first, as it does for operator new.
// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/grpc_memory.h"

#include <grpc/support/alloc.h>
#include <malloc.h>

#include <cstdlib>

namespace ulfd::server {
namespace {

// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): its name says it.
thread_local int64_t of_thread = 0;

int64_t SizeOf(void* memory) { return static_cast<int64_t>(malloc_usable_size(memory)); }

// gRPC has no way back from want of memory.
void* Counted(void* memory) {
  if (memory == nullptr) std::abort();
  of_thread += SizeOf(memory);
  return memory;
}

}  // namespace

int64_t GrpcBytesOfThread() { return of_thread; }

}  // namespace ulfd::server

using ulfd::server::Counted;
using ulfd::server::of_thread;
using ulfd::server::SizeOf;

void* gpr_malloc(size_t size) { return size == 0 ? nullptr : Counted(std::malloc(size)); }

void* gpr_zalloc(size_t size) { return size == 0 ? nullptr : Counted(std::calloc(size, 1)); }

void gpr_free(void* memory) {
  if (memory != nullptr) of_thread -= SizeOf(memory);
  std::free(memory);
}

void* gpr_realloc(void* memory, size_t size) {
  if (size == 0 && memory == nullptr) return nullptr;
  if (memory != nullptr) of_thread -= SizeOf(memory);
  return Counted(std::realloc(memory, size));
}

void* gpr_malloc_aligned(size_t size, size_t alignment) {
  void* memory = nullptr;
  return Counted(posix_memalign(&memory, alignment, size) == 0 ? memory : nullptr);
}

void gpr_free_aligned(void* memory) { gpr_free(memory); }

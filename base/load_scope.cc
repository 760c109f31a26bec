// The limits of a thread's load, and the operators new and delete that count for them.
// SPDX-License-Identifier: Apache-2.0
#include "base/load_scope.h"

#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <utility>

#include "absl/base/attributes.h"
#include "base/errors.h"
#include "base/status_macros.h"

// jemalloc's free for who knows the size, which is sooner done; there only where jemalloc is
// linked.
extern "C" ABSL_ATTRIBUTE_WEAK void sdallocx(void* memory, size_t bytes, int flags);

namespace ulfd {
namespace {

// Trivial, so that operator new may look at it at any time of a thread's life.
// NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables): of a thread.
thread_local LoadScope* current = nullptr;
thread_local uint32_t allocations = 0;
// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)

}  // namespace

LoadScope::LoadScope(LoadLimits limits)
    : limits_(Within(std::move(limits), current)), outer_(current) {
  current = this;
}

// Whoever parses a part of a load sets limits of its own, and ends with the load.
LoadLimits LoadScope::Within(LoadLimits limits, const LoadScope* outer) {
  if (outer == nullptr) return limits;
  limits.deadline = std::min(limits.deadline, outer->limits_.deadline);
  if (limits.cancelled == nullptr) limits.cancelled = outer->limits_.cancelled;
  return limits;
}

LoadScope::~LoadScope() {
  current = outer_;
  if (outer_ == nullptr) return;
  outer_->bytes_ += bytes_;
  outer_->peak_bytes_ = std::max(outer_->peak_bytes_, outer_->bytes_);
}

const LoadScope* LoadScope::Current() { return current; }

bool LoadScope::IsOver() const {
  return (limits_.cancelled != nullptr && limits_.cancelled->load()) ||
         std::chrono::steady_clock::now() > limits_.deadline;
}

absl::Status LoadScope::Check() {
  if (current == nullptr) return absl::OkStatus();
  if (current->refused_bytes_ == 0 && !current->IsOver()) return absl::OkStatus();
  const WithoutRefusals for_the_message;
  return current->Why();
}

absl::Status LoadScope::Why() const {
  if (limits_.cancelled != nullptr && limits_.cancelled->load()) {
    return absl::CancelledError("the load was cancelled");
  }
  if (refused_bytes_ != 0) {
    return ResourceExhausted("the load holds ", held_when_refused_, " bytes and wants ",
                             refused_bytes_, " more, it may hold ", limits_.max_memory_bytes,
                             " at a time (load.max_memory_bytes)");
  }
  return FailedPrecondition("the load takes longer than load.max_time_ms allows");
}

absl::Status LoadScope::Charge(int64_t bytes) {
  if (current == nullptr) return absl::OkStatus();
  if (bytes > 0 && !Allocate(static_cast<size_t>(bytes))) return Check();
  current->bytes_ += bytes;
  current->peak_bytes_ = std::max(current->peak_bytes_, current->bytes_);
  return absl::OkStatus();
}

bool LoadScope::Allocate(size_t bytes) {
  LoadScope* const scope = current;
  if (scope == nullptr || scope->unlimited_ > 0) return true;
  // The clock costs as much as an allocation.
  constexpr uint32_t kAllocationsPerLook = 64;
  if (++allocations % kAllocationsPerLook == 0 && scope->IsOver()) return false;
  const int64_t limit = scope->limits_.max_memory_bytes;
  const int64_t held = std::max<int64_t>(scope->bytes_, 0);
  if (held <= limit && bytes <= static_cast<uint64_t>(limit - held)) return true;
  if (scope->refused_bytes_ == 0) {
    constexpr auto kMost = static_cast<size_t>(std::numeric_limits<int64_t>::max());
    scope->refused_bytes_ = static_cast<int64_t>(std::clamp<size_t>(bytes, 1, kMost));
    scope->held_when_refused_ = held;
  }
  return false;
}

void LoadScope::Allocated(void* memory) {
  LoadScope* const scope = current;
  if (scope == nullptr) return;
  scope->bytes_ += static_cast<int64_t>(malloc_usable_size(memory));
  scope->peak_bytes_ = std::max(scope->peak_bytes_, scope->bytes_);
}

void LoadScope::Freed(void* memory) {
  if (current != nullptr) current->bytes_ -= static_cast<int64_t>(malloc_usable_size(memory));
}

absl::Status AllocationFailure() {
  const LoadScope::WithoutRefusals for_the_message;
  RETURN_IF_ERROR(LoadScope::Check());
  return ResourceExhausted("there is not enough memory");
}

LoadScope::WithoutRefusals::WithoutRefusals() : scope_(current) {
  if (scope_ != nullptr) ++scope_->unlimited_;
}

LoadScope::WithoutRefusals::~WithoutRefusals() {
  if (scope_ != nullptr) --scope_->unlimited_;
}

}  // namespace ulfd

// Those of the C++ library and, while a load runs on the thread, a sum and a limit.  All other
// forms of new and delete call these.  A process that reads what strangers write has no other way
// to know what that costs: protobuf, the containers and the strings allocate where no price is
// known before.
namespace {

void* Counted(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  ulfd::LoadScope::Allocated(memory);
  return memory;
}

}  // namespace

void* operator new(size_t bytes) {
  if (!ulfd::LoadScope::Allocate(bytes)) throw std::bad_alloc();
  return Counted(std::malloc(std::max<size_t>(bytes, 1)));
}

void* operator new(size_t bytes, std::align_val_t alignment) {
  if (!ulfd::LoadScope::Allocate(bytes)) throw std::bad_alloc();
  void* memory = nullptr;
  const size_t least = std::max(static_cast<size_t>(alignment), sizeof(void*));
  if (posix_memalign(&memory, least, std::max<size_t>(bytes, 1)) != 0) throw std::bad_alloc();
  return Counted(memory);
}

// The C++ library's calls the form above, AddressSanitizer's does not.
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  if (!ulfd::LoadScope::Allocate(bytes)) return nullptr;
  void* const memory = std::malloc(std::max<size_t>(bytes, 1));
  if (memory != nullptr) ulfd::LoadScope::Allocated(memory);
  return memory;
}

void operator delete(void* memory) noexcept {
  if (memory == nullptr) return;
  ulfd::LoadScope::Freed(memory);
  std::free(memory);
}

void operator delete(void* memory, size_t bytes) noexcept {
  if (sdallocx == nullptr || memory == nullptr || ulfd::LoadScope::Current() != nullptr) {
    return operator delete(memory);
  }
  sdallocx(memory, std::max<size_t>(bytes, 1), 0);
}

void operator delete(void* memory, std::align_val_t) noexcept { operator delete(memory); }

void operator delete(void* memory, size_t, std::align_val_t) noexcept { operator delete(memory); }

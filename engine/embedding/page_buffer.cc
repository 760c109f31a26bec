// SPDX-License-Identifier: Apache-2.0
#include "engine/embedding/page_buffer.h"

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

#include "base/errors.h"
#include "base/load_scope.h"
#include "base/status_macros.h"

namespace ulfd::engine {

PageBuffer::PageBuffer(PageBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

PageBuffer& PageBuffer::operator=(PageBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

namespace {

// Unmaps [data, data + bytes).  One munmap of many GB would keep the lock of the address space, and
// with it page faults and mappings of every other thread, until all pages are free.
void Unmap(void* data, size_t bytes) {
  constexpr size_t kStepBytes = size_t{16} << 20;
  auto* begin = static_cast<char*>(data);
  while (bytes > kStepBytes) {
    bytes -= kStepBytes;
    munmap(begin + bytes, kStepBytes);
    sched_yield();
  }
  munmap(begin, bytes);
}

}  // namespace

PageBuffer::~PageBuffer() {
  if (data_ == nullptr) return;
  Unmap(data_, bytes_);
  LoadScope::Charge(-static_cast<int64_t>(bytes_)).IgnoreError();  // To give back cannot fail.
}

namespace {

// Linux's transparent huge pages on x86-64 and on arm64 with 4 KB pages.
constexpr size_t kHugePageBytes = size_t{2} << 20;

// `bytes` of unused address space that begin at a huge page; nullptr if there is none.
void* ReserveAligned(size_t bytes) {
  const size_t mapped = bytes + kHugePageBytes;
  void* all = mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED) return nullptr;
  auto* begin = static_cast<char*>(all);
  const size_t head =
      (kHugePageBytes - reinterpret_cast<uintptr_t>(begin) % kHugePageBytes) % kHugePageBytes;
  if (head > 0) munmap(begin, head);
  munmap(begin + head + bytes, mapped - head - bytes);
  return begin + head;
}

// Maps `bytes`, or moves `data` of `old_bytes` there, so that no part of a huge page is left at the
// beginning and huge pages stay whole when they move; MAP_FAILED.
void* MapAligned(void* data, size_t old_bytes, size_t bytes) {
  void* place = ReserveAligned(bytes);
  if (place == nullptr) return MAP_FAILED;
  void* mapped = data == nullptr
                     ? mmap(place, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0)
                     : mremap(data, old_bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, place);
  if (mapped == MAP_FAILED) munmap(place, bytes);
  return mapped;
}

void* Map(void* data, size_t old_bytes, size_t bytes) {
  if (bytes > old_bytes && bytes >= kHugePageBytes) return MapAligned(data, old_bytes, bytes);
  if (data != nullptr) return mremap(data, old_bytes, bytes, MREMAP_MAYMOVE);
  return mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

}  // namespace

absl::Status PageBuffer::Resize(size_t bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t wanted = (bytes + page - 1) / page * page;
  if (wanted == bytes_) return absl::OkStatus();
  const auto more = static_cast<int64_t>(wanted) - static_cast<int64_t>(bytes_);
  RETURN_IF_ERROR(LoadScope::Charge(more));
  if (wanted == 0) {
    Unmap(data_, bytes_);
    data_ = nullptr;
    bytes_ = 0;
    return absl::OkStatus();
  }
  void* moved = Map(data_, bytes_, wanted);
  if (moved == MAP_FAILED) {
    RETURN_IF_ERROR(LoadScope::Charge(-more));
    return ResourceExhausted("no memory for ", wanted, " bytes");
  }
  data_ = moved;
  bytes_ = wanted;
  // Random reads of large tables miss the TLB less with huge pages.  A hint: without effect where
  // the kernel has none.
  madvise(data_, bytes_, MADV_HUGEPAGE);
  return absl::OkStatus();
}

}  // namespace ulfd::engine

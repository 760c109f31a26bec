// Large, growing, page-aligned memory.
// SPDX-License-Identifier: Apache-2.0
#include "engine/embedding/page_buffer.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ulfd::engine {

PageBuffer::PageBuffer(PageBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

PageBuffer& PageBuffer::operator=(PageBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

PageBuffer::~PageBuffer() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

absl::Status PageBuffer::Resize(size_t bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t wanted = (bytes + page - 1) / page * page;
  if (wanted == bytes_) return absl::OkStatus();
  if (wanted == 0) {
    munmap(data_, bytes_);
    data_ = nullptr;
    bytes_ = 0;
    return absl::OkStatus();
  }
  void* moved = data_ == nullptr ? mmap(nullptr, wanted, PROT_READ | PROT_WRITE,
                                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                                 : mremap(data_, bytes_, wanted, MREMAP_MAYMOVE);
  if (moved == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat("no memory for ", wanted, " bytes"));
  }
  data_ = moved;
  bytes_ = wanted;
  // Random reads of large tables miss the TLB less with huge pages.  A hint: without effect where
  // the kernel has none.
  madvise(data_, bytes_, MADV_HUGEPAGE);
  return absl::OkStatus();
}

}  // namespace ulfd::engine

// Large, growing, page-aligned memory.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_EMBEDDING_PAGE_BUFFER_H_
#define ULFD_ENGINE_EMBEDDING_PAGE_BUFFER_H_

#include <cstddef>

#include "absl/status/status.h"

namespace ulfd::engine {

// Zeroed pages straight from the kernel: untouched pages cost nothing, growing moves page tables
// rather than bytes, and freeing gives the memory back at once instead of leaving it to the request
// allocator.  From 2 MB on the buffer begins at a huge page and asks for huge pages.
class PageBuffer {
 public:
  PageBuffer() = default;
  PageBuffer(PageBuffer&& other) noexcept;
  PageBuffer& operator=(PageBuffer&& other) noexcept;
  ~PageBuffer();

  // Makes the buffer at least `bytes` long (rounded up to pages) or cuts it to that; keeps the
  // content and may move it. RESOURCE_EXHAUSTED if the kernel refuses; the buffer is then as
  // before.
  absl::Status Resize(size_t bytes);

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_EMBEDDING_PAGE_BUFFER_H_

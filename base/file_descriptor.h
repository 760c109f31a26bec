// File descriptors that close themselves, and what is written through them.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_BASE_FILE_DESCRIPTOR_H_
#define ULFD_BASE_FILE_DESCRIPTOR_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace ulfd {

// Owns a file descriptor; -1: none.
class FileDescriptor {
 public:
  explicit FileDescriptor(int fd = -1) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FileDescriptor();
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

// Writes all of `bytes` where the descriptor stands, waiting where it has to; false: errno says
// why, and some may have been written.
bool WriteAll(int fd, absl::string_view bytes);

// Makes the content of a file or the names in a directory outlast a power cut.  Errors: those of
// open and fsync, as `cannot write PATH to disk: REASON`.
absl::Status SyncToDisk(const std::string& path);

}  // namespace ulfd

#endif  // ULFD_BASE_FILE_DESCRIPTOR_H_

// Reading files with errors that name them: whole, or chunk by chunk.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_BASE_FILE_H_
#define ULFD_BASE_FILE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/file_descriptor.h"

namespace ulfd {

// An open file that is read from start to end.  Files are read rather than mapped: one that is cut
// meanwhile is then an error like any other.  mapped_file.h is for what is too large for memory.
class InputFile {
 public:
  // NOT_FOUND if there is no such file; INVALID_ARGUMENT for what is no regular file (never blocks)
  // and for a file outside of the roots of the thread's LoadScope; errors of LoadScope::Check.
  static absl::StatusOr<InputFile> Open(const std::string& path);

  // Reads up to `size` bytes, fewer only at the end of the file; returns how many.
  absl::StatusOr<size_t> Read(char* to, size_t size);
  // Reads up to `size` bytes from byte `offset` on, fewer only at the end of the file; returns how
  // many.  Leaves the position of Read alone.
  absl::StatusOr<size_t> ReadAt(int64_t offset, char* to, size_t size) const;
  // Reads the last `size` bytes, or all of a shorter file; returns how many.  Leaves the position
  // of Read alone.
  absl::StatusOr<size_t> ReadTail(char* to, size_t size) const;
  // Size when the file was opened, in bytes.
  int64_t size() const { return size_; }
  const std::string& path() const { return path_; }
  // The same open file once more.  UNAVAILABLE if there are too many.
  absl::StatusOr<InputFile> Duplicate() const;
  // For mappings; the file closes it.
  int descriptor() const { return fd_.get(); }
  // What was read with ReadAt need not stay in memory; what somebody maps does.
  void Forget(int64_t offset, size_t size) const;

 private:
  InputFile(std::string path, FileDescriptor fd, int64_t size);
  std::string path_;
  FileDescriptor fd_;
  int64_t size_;
};

// What `error` (errno) says of a file: absl::ErrnoToStatus, but UNAVAILABLE if it says nothing of
// it: too many open files; a file system that is full, fails or went away (of FUSE: ENOTCONN).
absl::Status FileError(int error, absl::string_view message);

// Whether `path`, resolved, is one of `roots` (resolved, too) or lies below one; without roots
// everything does.
bool LiesWithin(absl::string_view path, const std::vector<std::string>& roots);

// Whether what is open as `fd`, with every symbolic link followed, lies within the roots of the
// thread's LoadScope; INVALID_ARGUMENT, naming `path`, if it does not.
absl::Status CheckPlace(int fd, const std::string& path);

// The whole content.  Errors: those of InputFile, and RESOURCE_EXHAUSTED above `max_bytes`.
absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t max_bytes = INT64_MAX);

}  // namespace ulfd

#endif  // ULFD_BASE_FILE_H_

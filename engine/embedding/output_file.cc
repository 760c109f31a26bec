// A file that is written at any place.
// SPDX-License-Identifier: Apache-2.0
#include "engine/embedding/output_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"

namespace ulfd::engine {

OutputFile::~OutputFile() {
  if (fd_ >= 0) close(fd_);
}

absl::Status OutputFile::Failed(absl::string_view what) const {
  return absl::ErrnoToStatus(errno, absl::StrCat(path_, ": ", what));
}

absl::Status OutputFile::Open(const std::string& path) {
  path_ = path;
  fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  return fd_ < 0 ? Failed("cannot be created") : absl::OkStatus();
}

absl::Status OutputFile::OpenUnnamed(const std::string& directory) {
  path_ = absl::StrCat("an unnamed file in ", directory);
  fd_ = open(directory.c_str(), O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
  return fd_ < 0 ? Failed("cannot be created") : absl::OkStatus();
}

std::string OutputFile::DescriptorPath() const { return absl::StrCat("/proc/self/fd/", fd_); }

absl::Status OutputFile::WriteAt(uint64_t offset, const char* from, size_t size) {
  while (size > 0) {
    const ssize_t n = pwrite(fd_, from, size, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Failed("cannot be written");
    offset += static_cast<uint64_t>(n);
    from += n;
    size -= static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

absl::Status OutputFile::ReadAt(uint64_t offset, char* to, size_t size) const {
  while (size > 0) {
    const ssize_t n = pread(fd_, to, size, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Failed("cannot be read");
    if (n == 0) return absl::DataLossError(absl::StrCat(path_, ": was cut while it was written"));
    offset += static_cast<uint64_t>(n);
    to += n;
    size -= static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

absl::Status OutputFile::Resize(uint64_t size) {
  return ftruncate(fd_, static_cast<off_t>(size)) == 0 ? absl::OkStatus() : Failed("cannot grow");
}

absl::Status OutputFile::Sync() { return fsync(fd_) == 0 ? absl::OkStatus() : Failed("fsync"); }

}  // namespace ulfd::engine

// SPDX-License-Identifier: Apache-2.0
#include "engine/embedding/output_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/new_file.h"

namespace ulfd::engine {

OutputFile::~OutputFile() {
  if (!beside_.empty()) unlink(beside_.c_str());
}

absl::Status OutputFile::Failed(absl::string_view what) const {
  return Unavailable(path_, ": ", what, ": ", std::strerror(errno));
}

absl::Status OutputFile::OpenBeside(const std::string& path) {
  path_ = path;
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  fd_ = FileDescriptor(
      open(folder.empty() ? "." : folder.c_str(), O_RDWR | O_TMPFILE | O_CLOEXEC, 0644));
  if (fd_.get() >= 0) return absl::OkStatus();
  const std::string beside = PathBeside(path);
  fd_ = FileDescriptor(open(beside.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (fd_.get() < 0) return Failed("cannot be created");
  beside_ = beside;
  return absl::OkStatus();
}

absl::Status OutputFile::TakePlaceOf(const std::string& path) {
  if (beside_.empty()) {
    const std::string beside = PathBeside(path), self = DescriptorPath();
    if (linkat(AT_FDCWD, self.c_str(), AT_FDCWD, beside.c_str(), AT_SYMLINK_FOLLOW) != 0) {
      return Failed("cannot be named");
    }
    beside_ = beside;
  }
  if (std::rename(beside_.c_str(), path.c_str()) != 0) return Failed("cannot be renamed to");
  beside_.clear();
  return absl::OkStatus();
}

absl::Status OutputFile::OpenUnnamed(const std::string& directory) {
  path_ = absl::StrCat("an unnamed file in ", directory);
  fd_ = FileDescriptor(open(directory.c_str(), O_RDWR | O_TMPFILE | O_CLOEXEC, 0600));
  return fd_.get() < 0 ? Failed("cannot be created") : absl::OkStatus();
}

std::string OutputFile::DescriptorPath() const { return absl::StrCat("/proc/self/fd/", fd_.get()); }

absl::Status OutputFile::WriteAt(uint64_t offset, const char* from, size_t size) {
  while (size > 0) {
    const ssize_t n = pwrite(fd_.get(), from, size, static_cast<off_t>(offset));
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
    const ssize_t n = pread(fd_.get(), to, size, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Failed("cannot be read");
    if (n == 0) return DataLoss(path_, ": was cut while it was written");
    offset += static_cast<uint64_t>(n);
    to += n;
    size -= static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

absl::Status OutputFile::Resize(uint64_t size) {
  return ftruncate(fd_.get(), static_cast<off_t>(size)) == 0 ? absl::OkStatus()
                                                             : Failed("cannot grow");
}

absl::Status OutputFile::Sync() {
  return fsync(fd_.get()) == 0 ? absl::OkStatus() : Failed("fsync");
}

}  // namespace ulfd::engine

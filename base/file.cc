// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/errors.h"
#include "base/load_place.h"
#include "base/load_scope.h"
#include "base/status_macros.h"

namespace ulfd {

bool LiesWithin(absl::string_view path, const std::vector<std::string>& roots) {
  const auto holds = [path](absl::string_view root) {
    absl::ConsumeSuffix(&root, "/");
    return absl::StartsWith(path, root) && (path.size() == root.size() || path[root.size()] == '/');
  };
  return roots.empty() || std::any_of(roots.begin(), roots.end(), holds);
}

namespace {

// A regular file that lies where the load may read.  Nothing is opened before that is known: to
// open a FIFO can block, and to open a device can set off what it does.
absl::StatusOr<int> OpenForReading(const std::string& path) {
  const int place = open(path.c_str(), O_PATH | O_CLOEXEC);
  if (place < 0) return FileError(errno, path);
  const absl::Cleanup close_place = [place] { close(place); };
  RETURN_IF_ERROR(CheckPlace(place, path));
  struct stat info;
  if (fstat(place, &info) != 0) return FileError(errno, path);
  if (!S_ISREG(info.st_mode)) {
    return InvalidArgument(path, ": not a regular file");
  }
  const int fd = open(absl::StrCat("/proc/self/fd/", place).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0 && errno == ENOENT) {
    return Unavailable(path, ": cannot be opened, /proc is not mounted");
  }
  if (fd < 0) return FileError(errno, path);
  return fd;
}

}  // namespace

absl::Status FileError(int error, absl::string_view message) {
  absl::Status status = absl::ErrnoToStatus(error, message);
  switch (error) {
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
    case ENAMETOOLONG:
    case ELOOP:
    case EINVAL:
    case EACCES:
    case EPERM:
      return status;
    default:
      return Unavailable(status.message());
  }
}

absl::StatusOr<InputFile> InputFile::Open(const std::string& path) {
  RETURN_IF_ERROR(LoadScope::Check());
  ASSIGN_OR_RETURN(const int fd, OpenForReading(path));
  InputFile file(path, fd, 0);
  struct stat st;
  if (fstat(fd, &st) != 0) return FileError(errno, path);
  file.size_ = st.st_size;
  return file;
}

InputFile::InputFile(std::string path, int fd, int64_t size)
    : path_(std::move(path)), fd_(fd), size_(size) {}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), size_(other.size_) {}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) close(fd_);
    path_ = std::move(other.path_);
    fd_ = std::exchange(other.fd_, -1);
    size_ = other.size_;
  }
  return *this;
}

InputFile::~InputFile() {
  if (fd_ >= 0) close(fd_);
}

absl::StatusOr<InputFile> InputFile::Duplicate() const {
  const int fd = fcntl(fd_, F_DUPFD_CLOEXEC, 0);
  if (fd < 0) return FileError(errno, path_);
  return InputFile(path_, fd, size_);
}

void InputFile::Forget(int64_t offset, size_t size) const {
  posix_fadvise(fd_, offset, static_cast<off_t>(size), POSIX_FADV_DONTNEED);
}

absl::StatusOr<size_t> InputFile::Read(char* to, size_t size) {
  // A file of many gigabytes on a slow disk must not keep a load from its deadline.
  constexpr size_t kPiece = size_t{16} << 20;
  size_t got = 0;
  while (got < size) {
    RETURN_IF_ERROR(LoadScope::Check());
    const ssize_t n = read(fd_, to + got, std::min(kPiece, size - got));
    if (n == 0) break;
    if (n < 0) {
      if (errno == EINTR) continue;
      return FileError(errno, path_);
    }
    got += static_cast<size_t>(n);
  }
  return got;
}

absl::StatusOr<size_t> InputFile::ReadTail(char* to, size_t size) const {
  size = std::min(size, static_cast<size_t>(size_));
  return ReadAt(size_ - static_cast<int64_t>(size), to, size);
}

absl::StatusOr<size_t> InputFile::ReadAt(int64_t offset, char* to, size_t size) const {
  size_t got = 0;
  while (got < size) {
    const ssize_t n = pread(fd_, to + got, size - got, offset + static_cast<int64_t>(got));
    if (n == 0) break;
    if (n < 0) {
      if (errno == EINTR) continue;
      return FileError(errno, path_);
    }
    got += static_cast<size_t>(n);
  }
  return got;
}

absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t max_bytes) {
  ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path));
  if (file.size() > max_bytes) {
    return ResourceExhausted(path, ": ", file.size(), " bytes, want at most ", max_bytes);
  }
  // One byte more than the size tells whether the file grew since it was opened.
  std::string content(static_cast<size_t>(file.size()) + 1, '\0');
  ASSIGN_OR_RETURN(const size_t got, file.Read(content.data(), content.size()));
  if (got != static_cast<size_t>(file.size())) {
    return Unavailable(path, ": changed while it was read");
  }
  content.resize(got);
  return content;
}

}  // namespace ulfd

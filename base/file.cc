// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/errors.h"
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

absl::Status CheckPlace(int fd, const std::string& path) {
  const LoadScope* const scope = LoadScope::Current();
  if (scope == nullptr || scope->limits().roots.empty()) return absl::OkStatus();
  const std::vector<std::string>& roots = scope->limits().roots;
  std::string resolved(PATH_MAX, '\0');
  const ssize_t size =
      readlink(absl::StrCat("/proc/self/fd/", fd).c_str(), resolved.data(), resolved.size());
  if (size < 0) {  // Not "not found", which would be the file's.
    return Unavailable(path, ": cannot tell where it lies, /proc is not mounted");
  }
  resolved.resize(static_cast<size_t>(size));
  if (LiesWithin(resolved, roots)) return absl::OkStatus();
  return InvalidArgument(path, ": leads out of ", roots.front(),
                         " through a symbolic link (model_link_targets allows it)");
}

namespace {

// A regular file that lies where the load may read.  Nothing is opened before that is known: to
// open a FIFO can block, and to open a device can set off what it does.
absl::StatusOr<FileDescriptor> OpenForReading(const std::string& path) {
  const FileDescriptor place(open(path.c_str(), O_PATH | O_CLOEXEC));
  if (place.get() < 0) return FileError(errno, path);
  RETURN_IF_ERROR(CheckPlace(place.get(), path));
  struct stat info;
  if (fstat(place.get(), &info) != 0) return FileError(errno, path);
  if (!S_ISREG(info.st_mode)) {
    return InvalidArgument(path, ": not a regular file");
  }
  FileDescriptor fd(
      open(absl::StrCat("/proc/self/fd/", place.get()).c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() >= 0) return fd;
  if (errno == ENOENT) return Unavailable(path, ": cannot be opened, /proc is not mounted");
  return FileError(errno, path);
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
  ASSIGN_OR_RETURN(FileDescriptor fd, OpenForReading(path));
  struct stat st;
  if (fstat(fd.get(), &st) != 0) return FileError(errno, path);
  return InputFile(path, std::move(fd), st.st_size);
}

InputFile::InputFile(std::string path, FileDescriptor fd, int64_t size)
    : path_(std::move(path)), fd_(std::move(fd)), size_(size) {}

absl::StatusOr<InputFile> InputFile::Duplicate() const {
  FileDescriptor fd(fcntl(fd_.get(), F_DUPFD_CLOEXEC, 0));
  if (fd.get() < 0) return FileError(errno, path_);
  return InputFile(path_, std::move(fd), size_);
}

void InputFile::Forget(int64_t offset, size_t size) const {
  posix_fadvise(fd_.get(), offset, static_cast<off_t>(size), POSIX_FADV_DONTNEED);
}

absl::StatusOr<size_t> InputFile::Read(char* to, size_t size) {
  // A file of many gigabytes on a slow disk must not keep a load from its deadline.
  constexpr size_t kPiece = size_t{16} << 20;
  size_t got = 0;
  while (got < size) {
    RETURN_IF_ERROR(LoadScope::Check());
    const ssize_t n = read(fd_.get(), to + got, std::min(kPiece, size - got));
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
    const ssize_t n = pread(fd_.get(), to + got, size - got, offset + static_cast<int64_t>(got));
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

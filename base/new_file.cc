// By file descriptor, for errno and fsync.
// SPDX-License-Identifier: Apache-2.0
#include "base/new_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace ulfd {
namespace {

constexpr size_t kBufferBytes = size_t{64} << 10;

absl::Status Failed(const std::string& path) {
  return absl::UnavailableError(absl::StrCat("cannot write ", path, ": ", std::strerror(errno)));
}

bool IsDescriptor(absl::string_view path) {
  return absl::StartsWith(path, "/dev/fd/") || absl::StartsWith(path, "/dev/std") ||
         absl::StartsWith(path, "/proc/");
}

// The new name, too; where directories cannot be synchronised there is nothing to be done.
void SyncFolder(const std::string& path) {
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  const int fd = open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  fsync(fd);
  close(fd);
}

}  // namespace

std::string PathBeside(const std::string& path) {
  static std::atomic<uint32_t> count{0};
  std::string beside;
  struct stat about {};
  do {  // A process of the same id that was killed may have left its own.
    beside = absl::StrCat(path, ".", getpid(), ".", count.fetch_add(1));
  } while (lstat(beside.c_str(), &about) == 0);
  return beside;
}

NewFile::NewFile(std::string path, std::string temporary, int fd)
    : path_(std::move(path)), temporary_(std::move(temporary)), fd_(fd) {}
NewFile::NewFile(NewFile&& other) noexcept
    : path_(other.path_),
      temporary_(std::exchange(other.temporary_, "")),
      fd_(std::exchange(other.fd_, -1)),
      buffer_(std::move(other.buffer_)) {}

NewFile::~NewFile() {
  if (fd_ >= 0) close(fd_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

absl::StatusOr<NewFile> NewFile::Create(const std::string& path) {
  struct stat about {};
  if (IsDescriptor(path) || (stat(path.c_str(), &about) == 0 && !S_ISREG(about.st_mode))) {
    // A FIFO that nobody reads is an error; once somebody does, writing waits.
    const int fd = open(path.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return Failed(path);
    fcntl(fd, F_SETFL, O_WRONLY);
    return NewFile(path, "", fd);
  }
  // The file that a link leads to is replaced, not the link.
  std::error_code error;
  const std::string place = std::filesystem::weakly_canonical(path, error).string();
  const std::string& target = error || place.empty() ? path : place;
  std::string temporary = PathBeside(target);
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) return Failed(path);
  NewFile file(target, std::move(temporary), fd);
  // Who may read the old one may read the new one.
  if (about.st_mode != 0 && fchmod(fd, about.st_mode & 07777) != 0) return Failed(path);
  return file;
}

NewFile NewFile::StandardOutput() { return NewFile("standard output", "", dup(STDOUT_FILENO)); }

absl::Status NewFile::Write(absl::string_view text) {
  buffer_.append(text.data(), text.size());
  return buffer_.size() < kBufferBytes ? absl::OkStatus() : Flush();
}

absl::Status NewFile::Flush() {
  for (absl::string_view left = buffer_; !left.empty();) {
    const ssize_t written = write(fd_, left.data(), left.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Failed(path_);
    left.remove_prefix(static_cast<size_t>(written));
  }
  buffer_.clear();
  return absl::OkStatus();
}

absl::Status NewFile::Commit() {
  RETURN_IF_ERROR(Flush());
  if (temporary_.empty()) return absl::OkStatus();
  if (fsync(fd_) != 0 || rename(temporary_.c_str(), path_.c_str()) != 0) return Failed(path_);
  temporary_.clear();
  SyncFolder(path_);
  return absl::OkStatus();
}

}  // namespace ulfd

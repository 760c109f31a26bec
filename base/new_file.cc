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
#include "base/errors.h"
#include "base/status_macros.h"

namespace ulfd {
namespace {

constexpr size_t kBufferBytes = size_t{64} << 10;

absl::Status Failed(const std::string& path) {
  return Unavailable("cannot write ", path, ": ", std::strerror(errno));
}

bool IsDescriptor(absl::string_view path) {
  return absl::StartsWith(path, "/dev/fd/") || absl::StartsWith(path, "/dev/std") ||
         absl::StartsWith(path, "/proc/");
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

NewFile::NewFile(std::string path, std::string temporary, FileDescriptor fd)
    : path_(std::move(path)), temporary_(std::move(temporary)), fd_(std::move(fd)) {}
NewFile::NewFile(NewFile&& other) noexcept
    : path_(other.path_),
      temporary_(std::exchange(other.temporary_, "")),
      fd_(std::move(other.fd_)),
      buffer_(std::move(other.buffer_)) {}

NewFile::~NewFile() {
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

absl::StatusOr<NewFile> NewFile::Create(const std::string& path) {
  struct stat about {};
  if (IsDescriptor(path) || (stat(path.c_str(), &about) == 0 && !S_ISREG(about.st_mode))) {
    // A FIFO that nobody reads is an error; once somebody does, writing waits.
    FileDescriptor fd(open(path.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC | O_NONBLOCK));
    if (fd.get() < 0) return Failed(path);
    fcntl(fd.get(), F_SETFL, O_WRONLY);
    return NewFile(path, "", std::move(fd));
  }
  // The file that a link leads to is replaced, not the link.
  std::error_code error;
  const std::string place = std::filesystem::weakly_canonical(path, error).string();
  const std::string& target = error || place.empty() ? path : place;
  std::string temporary = PathBeside(target);
  FileDescriptor fd(open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (fd.get() < 0) return Failed(path);
  NewFile file(target, std::move(temporary), std::move(fd));
  // Who may read the old one may read the new one.
  if (about.st_mode != 0 && fchmod(file.fd_.get(), about.st_mode & 07777) != 0) {
    return Failed(path);
  }
  return file;
}

NewFile NewFile::StandardOutput() {
  return NewFile("standard output", "", FileDescriptor(dup(STDOUT_FILENO)));
}

absl::Status NewFile::Write(absl::string_view text) {
  buffer_.append(text.data(), text.size());
  return buffer_.size() < kBufferBytes ? absl::OkStatus() : Flush();
}

absl::Status NewFile::Flush() {
  if (!WriteAll(fd_.get(), buffer_)) return Failed(path_);
  buffer_.clear();
  return absl::OkStatus();
}

absl::Status NewFile::Commit() {
  RETURN_IF_ERROR(Flush());
  if (temporary_.empty()) return absl::OkStatus();
  if (fsync(fd_.get()) != 0 || rename(temporary_.c_str(), path_.c_str()) != 0) return Failed(path_);
  temporary_.clear();
  // The new name, too; where directories cannot be synchronised there is nothing to be done.
  SyncToDisk(path_.substr(0, path_.rfind('/') + 1) + ".").IgnoreError();
  return absl::OkStatus();
}

}  // namespace ulfd

// Reading files with errors that name them: whole, or chunk by chunk.
// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/status_macros.h"

namespace ulfd::engine {

absl::StatusOr<InputFile> InputFile::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // A FIFO must not block.
  if (fd < 0) return absl::ErrnoToStatus(errno, path);
  InputFile file(path, fd, 0);
  struct stat st;
  if (fstat(fd, &st) != 0) return absl::ErrnoToStatus(errno, path);
  if (!S_ISREG(st.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a regular file"));
  }
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

absl::StatusOr<size_t> InputFile::Read(char* to, size_t size) {
  size_t got = 0;
  while (got < size) {
    const ssize_t n = read(fd_, to + got, size - got);
    if (n == 0) break;
    if (n < 0) {
      if (errno == EINTR) continue;
      return absl::ErrnoToStatus(errno, path_);
    }
    got += static_cast<size_t>(n);
  }
  return got;
}

absl::StatusOr<size_t> InputFile::ReadTail(char* to, size_t size) const {
  size = std::min(size, static_cast<size_t>(size_));
  const int64_t start = size_ - static_cast<int64_t>(size);
  size_t got = 0;
  while (got < size) {
    const ssize_t n = pread(fd_, to + got, size - got, start + static_cast<int64_t>(got));
    if (n == 0) break;
    if (n < 0) {
      if (errno == EINTR) continue;
      return absl::ErrnoToStatus(errno, path_);
    }
    got += static_cast<size_t>(n);
  }
  return got;
}

absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t max_bytes) {
  ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path));
  if (file.size() > max_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat(path, ": ", file.size(), " bytes, want at most ", max_bytes));
  }
  // One byte more than the size tells whether the file grew since it was opened.
  std::string content(static_cast<size_t>(file.size()) + 1, '\0');
  ASSIGN_OR_RETURN(const size_t got, file.Read(content.data(), content.size()));
  if (got != static_cast<size_t>(file.size())) {
    return absl::UnavailableError(absl::StrCat(path, ": changed while it was read"));
  }
  content.resize(got);
  return content;
}

absl::Status Annotate(const absl::Status& status, absl::string_view prefix) {
  if (status.ok()) return status;
  absl::Status annotated(status.code(), absl::StrCat(prefix, ": ", status.message()));
  status.ForEachPayload([&](absl::string_view type, const absl::Cord& payload) {
    annotated.SetPayload(type, payload);
  });
  return annotated;
}

std::string Quote(absl::string_view text) {
  constexpr size_t kMax = 40;
  const bool cut = text.size() > kMax;
  return absl::StrCat("\"", absl::CHexEscape(text.substr(0, kMax)), cut ? "...\"" : "\"");
}

bool IsUtf8(absl::string_view text) {
  // Per lead byte: how many bytes follow and the range of the first of them (RFC 3629, section 4).
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i++]);
    if (lead < 0x80) continue;
    if (lead < 0xc2 || lead > 0xf4) return false;
    const size_t more = lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : 3;
    if (text.size() - i < more) return false;
    const auto next = static_cast<unsigned char>(text[i]);
    if ((lead == 0xe0 && next < 0xa0) || (lead == 0xed && next > 0x9f) ||
        (lead == 0xf0 && next < 0x90) || (lead == 0xf4 && next > 0x8f)) {
      return false;
    }
    for (size_t k = 0; k < more; ++k, ++i) {
      if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) return false;
    }
  }
  return true;
}

}  // namespace ulfd::engine

// Reading files with errors that name them: whole, or chunk by chunk.
// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/cord.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "engine/status_macros.h"
#include "engine/tensor/load_scope.h"

namespace ulfd::engine {

bool LiesWithin(absl::string_view path, const std::vector<std::string>& roots) {
  const auto holds = [path](absl::string_view root) {
    absl::ConsumeSuffix(&root, "/");
    return absl::StartsWith(path, root) && (path.size() == root.size() || path[root.size()] == '/');
  };
  return roots.empty() || std::any_of(roots.begin(), roots.end(), holds);
}

namespace {

absl::Status LeadsOut(const std::string& path, const std::vector<std::string>& roots) {
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": leads out of ", roots.front(),
                   " through a symbolic link (model_link_targets allows it)"));
}

// What the descriptor is open on, with every symbolic link followed.
absl::StatusOr<std::string> ResolvedPath(int fd, const std::string& path) {
  std::string resolved(PATH_MAX, '\0');
  const ssize_t size =
      readlink(absl::StrCat("/proc/self/fd/", fd).c_str(), resolved.data(), resolved.size());
  if (size < 0) return absl::ErrnoToStatus(errno, absl::StrCat(path, ": where it lies (/proc)"));
  resolved.resize(static_cast<size_t>(size));
  return resolved;
}

// A regular file that lies where the load may read.  Nothing is opened before that is known: to
// open a FIFO can block, and to open a device can set off what it does.
absl::StatusOr<int> OpenForReading(const std::string& path) {
  const LoadScope* const scope = LoadScope::Current();
  const int place = open(path.c_str(), O_PATH | O_CLOEXEC);
  if (place < 0) return absl::ErrnoToStatus(errno, path);
  const absl::Cleanup close_place = [place] { close(place); };
  if (scope != nullptr && !scope->limits().roots.empty()) {
    ASSIGN_OR_RETURN(const std::string resolved, ResolvedPath(place, path));
    if (!LiesWithin(resolved, scope->limits().roots)) return LeadsOut(path, scope->limits().roots);
  }
  struct stat info;
  if (fstat(place, &info) != 0) return absl::ErrnoToStatus(errno, path);
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a regular file"));
  }
  const int fd = open(absl::StrCat("/proc/self/fd/", place).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0 && errno == ENOENT) {
    return absl::UnavailableError(absl::StrCat(path, ": cannot be opened, /proc is not mounted"));
  }
  if (fd < 0) return absl::ErrnoToStatus(errno, path);
  return fd;
}

}  // namespace

absl::StatusOr<InputFile> InputFile::Open(const std::string& path) {
  RETURN_IF_ERROR(LoadScope::Check());
  ASSIGN_OR_RETURN(const int fd, OpenForReading(path));
  InputFile file(path, fd, 0);
  struct stat st;
  if (fstat(fd, &st) != 0) return absl::ErrnoToStatus(errno, path);
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

int InputFile::Duplicate() const { return fcntl(fd_, F_DUPFD_CLOEXEC, 0); }

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
      return absl::ErrnoToStatus(errno, path_);
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

namespace {

absl::Status WithText(const absl::Status& status, absl::string_view text) {
  absl::Status other(status.code(), text);
  status.ForEachPayload(
      [&](absl::string_view type, const absl::Cord& payload) { other.SetPayload(type, payload); });
  return other;
}

}  // namespace

absl::Status Annotate(const absl::Status& status, absl::string_view prefix) {
  if (status.ok()) return status;
  return WithText(status, absl::StrCat(prefix, ": ", status.message()));
}

absl::string_view Beginning(absl::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  size_t end = max_bytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end);
}

std::string Printable(absl::string_view text, size_t max_bytes) {
  const size_t size = text.size();
  text = Beginning(text, max_bytes);
  const bool utf8 = IsUtf8(text);
  std::string printable;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f || (byte >= 0x80 && !utf8)) {
      absl::StrAppend(&printable, absl::CHexEscape(absl::string_view(&c, 1)));
    } else {
      printable.push_back(c);
    }
  }
  if (size > max_bytes) absl::StrAppend(&printable, "... (", size, " bytes)");
  return printable;
}

absl::Status Clip(const absl::Status& status, size_t max_bytes) {
  if (status.ok()) return status;
  return WithText(status, Printable(status.message(), max_bytes));
}

void ClipNotices(std::vector<std::string>& notices) {
  constexpr size_t kMaxNotices = 100;
  const size_t count = notices.size();
  if (count > kMaxNotices) {
    notices.resize(kMaxNotices);
    notices.push_back(absl::StrCat("and ", count - kMaxNotices, " more notices"));
  }
  for (std::string& notice : notices) notice = Printable(notice, kMaxLoadErrorBytes);
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

// Reads by file descriptor, for errno.
// SPDX-License-Identifier: Apache-2.0
#include "base/text_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace ulfd {

absl::StatusOr<std::string> ReadTextFile(const std::string& path) {
  constexpr size_t kMaxBytes = size_t{1} << 20;
  // Without O_NONBLOCK, to open a FIFO in the place of the file would hang the server.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return absl::NotFoundError(absl::StrCat(path, ": ", std::strerror(errno)));
  struct stat about {};
  if (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode)) {
    close(fd);
    return absl::NotFoundError(absl::StrCat(path, ": is not a regular file"));
  }
  std::string text;
  char buffer[4096];
  ssize_t got;
  while ((got = read(fd, buffer, sizeof(buffer))) > 0 && text.size() <= kMaxBytes) {
    text.append(buffer, static_cast<size_t>(got));
  }
  const int error = errno;
  close(fd);
  if (got < 0) return absl::NotFoundError(absl::StrCat(path, ": ", std::strerror(error)));
  if (text.size() > kMaxBytes) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": larger than ", kMaxBytes, " bytes"));
  }
  return text;
}

namespace {

// Whether all of it is on disk; errno says why not.
bool WriteAndSync(int fd, absl::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return fsync(fd) == 0;
}

}  // namespace

absl::Status WriteTextFile(const std::string& path, const std::string& text) {
  const auto failed = [&path] {
    return absl::UnavailableError(absl::StrCat("cannot write ", path, ": ", std::strerror(errno)));
  };
  std::string temporary = absl::StrCat(path, ".XXXXXX");
  const int fd = mkostemp(temporary.data(), O_CLOEXEC);
  if (fd < 0) return failed();
  const bool good = fchmod(fd, 0644) == 0 && WriteAndSync(fd, text) &&
                    rename(temporary.c_str(), path.c_str()) == 0;
  const absl::Status status = good ? absl::OkStatus() : failed();
  close(fd);
  if (!good) {
    unlink(temporary.c_str());
    return status;
  }
  // The name, too; where directories cannot be synchronised there is nothing to be done.
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  const int directory = open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_CLOEXEC);
  if (directory >= 0) {
    fsync(directory);
    close(directory);
  }
  return absl::OkStatus();
}

}  // namespace ulfd

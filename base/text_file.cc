// Reads by file descriptor, for errno.
// SPDX-License-Identifier: Apache-2.0
#include "base/text_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/errors.h"
#include "base/file_descriptor.h"
#include "base/new_file.h"
#include "base/status_macros.h"

namespace ulfd {
namespace {

// Reads until there is no more, or more than `most` bytes; false: errno says why.
bool ReadSome(int fd, size_t most, std::string& text) {
  char buffer[16384];
  ssize_t got;
  while ((got = read(fd, buffer, sizeof(buffer))) > 0 && text.size() <= most) {
    text.append(buffer, static_cast<size_t>(got));
  }
  return got >= 0;
}

}  // namespace

absl::StatusOr<std::string> ReadTextFile(const std::string& path, int64_t max_bytes) {
  const auto most = static_cast<size_t>(max_bytes);
  // Without O_NONBLOCK, to open a FIFO in the place of the file would hang the server.
  const FileDescriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) return NotFound(path, ": ", std::strerror(errno));
  struct stat about {};
  if (fstat(fd.get(), &about) != 0 || !S_ISREG(about.st_mode)) {
    return NotFound(path, ": is not a regular file");
  }
  std::string text;
  if (!ReadSome(fd.get(), most, text)) {
    return NotFound(path, ": ", std::strerror(errno));
  }
  if (text.size() > most) {
    return InvalidArgument(path, ": larger than ", most, " bytes");
  }
  return text;
}

absl::StatusOr<std::string> ReadFileOrPipe(const std::string& path, size_t max_bytes) {
  const FileDescriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  if (fd.get() < 0 || !ReadSome(fd.get(), max_bytes, text)) {
    return absl::ErrnoToStatus(errno, path);
  }
  if (text.size() <= max_bytes) return text;
  return InvalidArgument(path, ": more bytes than ", max_bytes, ", which is the most");
}

absl::Status WriteTextFile(const std::string& path, absl::string_view text) {
  ASSIGN_OR_RETURN(NewFile file, NewFile::Create(path));
  RETURN_IF_ERROR(file.Write(text));
  return file.Commit();
}

}  // namespace ulfd

// Reading files with errors that name them: whole, or chunk by chunk.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_WEIGHTS_FILE_H_
#define ULFD_ENGINE_WEIGHTS_FILE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ulfd::engine {

// An open file that is read from start to end.  Files are read, never mapped: a mapped file that
// somebody truncates while a model loads would kill the process with SIGBUS.
class InputFile {
 public:
  // NOT_FOUND if there is no such file; INVALID_ARGUMENT for what is no regular file (never blocks)
  // and for a file outside of the roots of the thread's LoadScope; errors of LoadScope::Check.
  static absl::StatusOr<InputFile> Open(const std::string& path);
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;
  ~InputFile();

  // Reads up to `size` bytes, fewer only at the end of the file; returns how many.
  absl::StatusOr<size_t> Read(char* to, size_t size);
  // Reads up to `size` bytes from byte `offset` on, fewer only at the end of the file; returns how
  // many.  Leaves the position of Read alone.
  absl::StatusOr<size_t> ReadAt(int64_t offset, char* to, size_t size) const;
  // Reads the last `size` bytes, or all of a shorter file; returns how many.  Leaves the position
  // of Read alone.
  absl::StatusOr<size_t> ReadTail(char* to, size_t size) const;
  // Size when the file was opened, in bytes.
  int64_t size() const { return size_; }
  const std::string& path() const { return path_; }
  // A descriptor of its own for the same file, for libraries that read files themselves; -1 and
  // errno if there are too many.  The caller closes it.
  int Duplicate() const;

 private:
  InputFile(std::string path, int fd, int64_t size);
  std::string path_;
  int fd_ = -1;
  int64_t size_ = 0;
};

// Whether `path`, resolved, is one of `roots` (resolved, too) or lies below one; without roots
// everything does.
bool LiesWithin(absl::string_view path, const std::vector<std::string>& roots);

// The whole content.  Errors: those of InputFile, and RESOURCE_EXHAUSTED above `max_bytes`.
absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t max_bytes = INT64_MAX);

// `status` with "PREFIX: " before its text, payloads kept; OK stays OK.
absl::Status Annotate(const absl::Status& status, absl::string_view prefix);

// The first bytes of UTF-8 text, at most so many, and no part of a character.
absl::string_view Beginning(absl::string_view text, size_t max_bytes);

// `text` for messages, logs and replies: bytes that are not UTF-8 and control characters, line ends
// too, are escaped, and what is longer than about `max_bytes` is cut, and says how long it was.
std::string Printable(absl::string_view text, size_t max_bytes);
// `status` with its text made so, payloads kept.
absl::Status Clip(const absl::Status& status, size_t max_bytes);

// What a hostile model may make others keep, log and send of an error or a notice.
inline constexpr size_t kMaxLoadErrorBytes = 4096;
// Each notice made printable and cut to that; of more than 100, how many were left out.
void ClipNotices(std::vector<std::string>& notices);

// At most 40 bytes of `text`, with anything unprintable escaped, in quotes: for quoting a file's
// content in a message.
std::string Quote(absl::string_view text);

// Whether `text` is valid UTF-8.  Names from files end up in messages and replies, which must be.
bool IsUtf8(absl::string_view text);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_WEIGHTS_FILE_H_

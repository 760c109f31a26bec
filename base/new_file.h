// NewFile: a file that takes its place whole.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_BASE_NEW_FILE_H_
#define ULFD_BASE_NEW_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/file_descriptor.h"

namespace ulfd {

// A path beside `path` that nothing has and that no other caller is given: for what takes the place
// of `path` once it is whole.
std::string PathBeside(const std::string& path);

// Written from start to end beside `path`, whose place it takes by Commit: whoever reads that finds
// all of the old file or all of the new one, also after a crash, and a file that is mapped stays as
// it is.  It has the mode of the old one, or what the umask leaves.  What is there and no regular
// file (a pipe, a device), or a descriptor (/dev/stdout), is written to itself.  Errors:
// UNAVAILABLE, with the path and the reason.
class NewFile {
 public:
  static absl::StatusOr<NewFile> Create(const std::string& path);
  static NewFile StandardOutput();
  NewFile(NewFile&& other) noexcept;
  NewFile& operator=(NewFile&&) = delete;
  // Without a Commit nothing is left.
  ~NewFile();

  absl::Status Write(absl::string_view text);
  absl::Status Commit();

 private:
  NewFile(std::string path, std::string temporary, FileDescriptor fd);
  absl::Status Flush();

  const std::string path_;
  std::string temporary_;  // Empty: `path_` itself is written, or has been replaced.
  FileDescriptor fd_;
  std::string buffer_;
};

}  // namespace ulfd

#endif  // ULFD_BASE_NEW_FILE_H_

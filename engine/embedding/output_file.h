// A file that is written at any place.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_EMBEDDING_OUTPUT_FILE_H_
#define ULFD_ENGINE_EMBEDDING_OUTPUT_FILE_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/file_descriptor.h"

namespace ulfd::engine {

// A descriptor that is closed.
class OutputFile {
 public:
  OutputFile() = default;
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  // Creates a file in the directory of `path`, of which nothing is left if the process ends, where
  // the file system has files without names.
  absl::Status OpenBeside(const std::string& path);
  // Gives it the name `path`, in the place of what has that.
  absl::Status TakePlaceOf(const std::string& path);
  // Creates a file without a name, of which nothing is left once it is closed.
  absl::Status OpenUnnamed(const std::string& directory);
  // By which this process, and no other, can open it again.
  std::string DescriptorPath() const;
  absl::Status WriteAt(uint64_t offset, const char* from, size_t size);
  absl::Status ReadAt(uint64_t offset, char* to, size_t size) const;
  absl::Status Resize(uint64_t size);
  // Makes the content outlast a power cut.
  absl::Status Sync();

 private:
  absl::Status Failed(absl::string_view what) const;
  std::string path_;    // For messages.
  std::string beside_;  // Its name until it has its place; empty: none.
  FileDescriptor fd_;
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_EMBEDDING_OUTPUT_FILE_H_

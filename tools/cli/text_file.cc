// Reads text files.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/text_file.h"

#include <cerrno>
#include <cstdio>

namespace ulfd::tools {

absl::StatusOr<std::string> ReadFileOrPipe(const std::string& path) {
  std::FILE* const file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) return absl::ErrnoToStatus(errno, path);
  std::string content;
  char block[16384];
  size_t got = 0;
  while ((got = std::fread(block, 1, sizeof block, file)) > 0) content.append(block, got);
  const int error = std::ferror(file) != 0 ? errno : 0;
  std::fclose(file);
  if (error != 0) return absl::ErrnoToStatus(error, path);
  return content;
}

}  // namespace ulfd::tools

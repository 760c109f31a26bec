// Reads and writes text files.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/text_file.h"

#include <cerrno>
#include <cstdio>

#include "absl/strings/str_cat.h"

namespace ulfd::tools {

absl::StatusOr<std::string> ReadTextFile(const std::string& path) {
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

absl::Status WriteTextFile(const std::string& path, const std::string& content) {
  std::FILE* const file = std::fopen(path.c_str(), "wb");
  bool good = file != nullptr;
  if (good) {
    good = std::fwrite(content.data(), 1, content.size(), file) == content.size();
    good &= std::fclose(file) == 0;
  }
  if (good) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
}

}  // namespace ulfd::tools

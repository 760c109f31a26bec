// What the fuzzers share.
// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/fuzz.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"

namespace ulfd::fuzz {
namespace {

constexpr size_t kMaxMessageBytes = 64 << 10;

struct ScratchDirectory {
  ScratchDirectory() {
    path = absl::StrCat(std::filesystem::temp_directory_path().string(), "/ulfd_fuzz_", getpid());
    std::filesystem::create_directories(path);
  }
  ~ScratchDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  std::string path;
};

}  // namespace

const std::string& Scratch() {
  static const ScratchDirectory directory;
  return directory.path;
}

std::string WriteScratch(absl::string_view name, absl::string_view content) {
  const std::string path = absl::StrCat(Scratch(), "/", name);
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream file(path, std::ios::binary);
  file.write(content.data(), static_cast<std::streamsize>(content.size()));
  file.close();
  if (!file) Fail(absl::StrCat("cannot write ", path));
  return path;
}

std::string EmptyScratch(absl::string_view name) {
  const std::string path = absl::StrCat(Scratch(), "/", name);
  std::filesystem::remove_all(path);
  std::filesystem::create_directories(path);
  return path;
}

void CheckMessage(const absl::Status& status) {
  if (status.ok()) return;
  if (status.message().empty()) Fail("an error without a message");
  if (status.message().size() > kMaxMessageBytes) {
    Fail(absl::StrCat("a message of ", status.message().size(), " bytes"));
  }
  if (!IsUtf8(status.message())) {
    Fail(absl::StrCat("a message that is not UTF-8: ", absl::CHexEscape(status.message())));
  }
}

void Fail(absl::string_view what) {
  std::fprintf(stderr, "fuzz: %.*s\n", static_cast<int>(what.size()), what.data());
  std::abort();
}

}  // namespace ulfd::fuzz

// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/paths.h"

#include <filesystem>
#include <fstream>
#include <iterator>

namespace ulfd::testing {

std::string SourceDir() { return ULFD_SOURCE_DIR; }
std::string TestData() { return SourceDir() + "/tests/data"; }
std::string SharedDir() { return SourceDir() + "/../shared"; }

std::string SharedDocument(const std::string& number) {
  const std::string documents = SharedDir() + "/seeds";
  if (!std::filesystem::exists(documents)) return "";
  for (const auto& entry : std::filesystem::directory_iterator(documents)) {
    if (entry.path().filename().string().rfind(number, 0) != 0) continue;
    std::ifstream file(entry.path());
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  return "";
}

}  // namespace ulfd::testing

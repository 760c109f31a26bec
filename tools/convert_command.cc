// ulf convert: hands over to the program ulf-convert beside this one.
//
// The converter needs ONNX's libraries; `ulf`, which also checks the health of a serving container,
// should not, so that they are two programs.
// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "base/errors.h"
#include "tools/cli/commands.h"

namespace ulfd::tools {

absl::Status RunConvert(Args args) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return Unavailable("/proc/self/exe: ", error.message());
  std::string program = (self.parent_path() / "ulf-convert").string();
  std::vector<std::string> words(args.begin(), args.end());
  std::vector<char*> argv = {program.data()};
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execv(program.c_str(), argv.data());
  if (errno == ENOENT) {
    return NotFound(
        program,
        " is not there: the converters are a program beside ulf, built by "
        "`cmake --build --preset release --target ulf-convert` (libonnx-dev is needed)");
  }
  return Unavailable(program, ": ", strerror(errno));
}

}  // namespace ulfd::tools

// Whole text files that commands read: requests, names, tokens.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_CLI_TEXT_FILE_H_
#define ULFD_TOOLS_CLI_TEXT_FILE_H_

#include <string>

#include "absl/status/statusor.h"

namespace ulfd::tools {

// The content, also of a pipe.  Errors name the file.
absl::StatusOr<std::string> ReadFileOrPipe(const std::string& path);

}  // namespace ulfd::tools

#endif  // ULFD_TOOLS_CLI_TEXT_FILE_H_

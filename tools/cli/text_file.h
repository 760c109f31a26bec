// Whole text files of the commands: requests, names, tokens, reports.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_CLI_TEXT_FILE_H_
#define ULFD_TOOLS_CLI_TEXT_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ulfd::tools {

// The content, also of a pipe.  Errors name the file.
absl::StatusOr<std::string> ReadTextFile(const std::string& path);

// Creates or replaces the file.  Errors name it.
absl::Status WriteTextFile(const std::string& path, const std::string& content);

}  // namespace ulfd::tools

#endif  // ULFD_TOOLS_CLI_TEXT_FILE_H_

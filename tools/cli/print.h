// Text for people: on a terminal or in a file.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_CLI_PRINT_H_
#define ULFD_TOOLS_CLI_PRINT_H_

#include <cstdio>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace ulfd::tools {

// Writes `text` to `out`.  Models, servers and stores choose parts of it: what would command a
// terminal is escaped, but for line ends and tabs.
void Print(std::FILE* out, absl::string_view text);

// Says on standard error why `command` failed, in at most 16 KiB.
void PrintError(absl::string_view command, const absl::Status& error);

}  // namespace ulfd::tools

#endif  // ULFD_TOOLS_CLI_PRINT_H_

// SIGINT and SIGTERM as a question, for commands that would leave something half-made behind.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_CLI_INTERRUPT_H_
#define ULFD_TOOLS_CLI_INTERRUPT_H_

#include "absl/status/status.h"

namespace ulfd::tools {

// From now on the first of each only sets what the others tell; the next one ends the process.
void CatchInterrupts();
bool Interrupted();
// CANCELLED once Interrupted().
absl::Status CheckInterrupted();

}  // namespace ulfd::tools

#endif  // ULFD_TOOLS_CLI_INTERRUPT_H_

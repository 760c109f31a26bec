// The subcommands of `ulf`, one file each.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_CLI_COMMANDS_H_
#define ULFD_TOOLS_CLI_COMMANDS_H_

#include "absl/status/status.h"
#include "base/flags/flag_set.h"

namespace ulfd::tools {

absl::Status RunAdmin(Args args);
absl::Status RunCompare(Args args);
absl::Status RunConvert(Args args);
absl::Status RunInspect(Args args);
absl::Status RunExplain(Args args);
absl::Status RunScore(Args args);
absl::Status RunPredict(Args args);
absl::Status RunHealth(Args args);
absl::Status RunLayers(Args args);
absl::Status RunLoad(Args args);
absl::Status RunMakeDemo(Args args);
absl::Status RunQuantise(Args args);
absl::Status RunRecordings(Args args);
absl::Status RunSync(Args args);
absl::Status RunTable(Args args);

}  // namespace ulfd::tools

#endif  // ULFD_TOOLS_CLI_COMMANDS_H_

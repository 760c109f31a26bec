// Words that settings may have as values, for the command line and the configuration file alike.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SETTING_NAMES_H_
#define ULFD_SERVER_SETTING_NAMES_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/logging.h"

namespace ulfd::server {

// INVALID_ARGUMENT: `"loud", want debug, info, warning or error`.
absl::StatusOr<LogLevel> ParseLogLevel(absl::string_view word);
// INVALID_ARGUMENT: `"xml", want text or json`.
absl::StatusOr<LogFormat> ParseLogFormat(absl::string_view word);

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SETTING_NAMES_H_

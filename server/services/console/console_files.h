// The files beside this one, as they are in the program.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SERVICES_CONSOLE_CONSOLE_FILES_H_
#define ULFD_SERVER_SERVICES_CONSOLE_CONSOLE_FILES_H_

#include "absl/strings/string_view.h"

namespace ulfd::server {

extern const absl::string_view kConsoleHtml, kConsoleStyle, kConsoleScript;

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SERVICES_CONSOLE_CONSOLE_FILES_H_

// The console: the page of /statusz for people.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SERVICES_CONSOLE_PAGE_H_
#define ULFD_SERVER_SERVICES_CONSOLE_PAGE_H_

#include "server/observe/http_server.h"

namespace ulfd::server {

// One page without anything of a model or caller in it: its script fetches /statusz, /metrics and
// /plans.json.  The headers forbid every other script, style and address.
HttpReply ConsolePage();

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SERVICES_CONSOLE_PAGE_H_

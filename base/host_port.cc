// What stands behind the last colon is the port.
// SPDX-License-Identifier: Apache-2.0
#include "base/host_port.h"

#include "absl/strings/numbers.h"

namespace ulfd {

bool IsHostAndPort(absl::string_view text) {
  const size_t colon = text.rfind(':');
  int port = 0;
  return colon != text.npos && colon > 0 && absl::SimpleAtoi(text.substr(colon + 1), &port) &&
         port >= 1 && port <= 65535;
}

}  // namespace ulfd

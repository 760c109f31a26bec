// Where a server is: "HOST:PORT".
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_BASE_HOST_PORT_H_
#define ULFD_BASE_HOST_PORT_H_

#include "absl/strings/string_view.h"

namespace ulfd {

// Whether `text` is a host of any form and a port of 1 to 65535.  Libraries take worse: gRPC takes
// a port modulo 65536, and 0 where there is none.
bool IsHostAndPort(absl::string_view text);

}  // namespace ulfd

#endif  // ULFD_BASE_HOST_PORT_H_

// Shares of calls and of users.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SYSTEM_SHARE_H_
#define ULFD_SERVER_SYSTEM_SHARE_H_

#include <cstdint>

#include "engine/embedding/key_hash.h"

namespace ulfd::server {

// Whether what has that number is among a share (0..1) of all: evenly spread, whatever pattern the
// numbers have.  A share that grows only adds some.
inline bool IsAmongShare(int64_t number, double share) {
  return static_cast<double>(engine::HashKey(number) >> 11) * 0x1p-53 < share;
}

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SYSTEM_SHARE_H_

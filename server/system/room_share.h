// How much of a common room one client may take.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SYSTEM_ROOM_SHARE_H_
#define ULFD_SERVER_SYSTEM_ROOM_SHARE_H_

#include <cstdint>

namespace ulfd::server {

// How many times the room that is left one client may take (dynamic thresholds: Choudhury and
// Hahne, IEEE/ACM Transactions on Networking 6-2, 1998).
inline constexpr int64_t kRoomShare = 8;

// Whether there is room for `more`, of a client that has `own` of what is `taken`.
inline bool HasRoom(int64_t taken, int64_t own, int64_t more, int64_t limit) {
  const int64_t left = limit - taken - more;
  return left >= 0 && (own + more - 1) / kRoomShare <= left;
}

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SYSTEM_ROOM_SHARE_H_

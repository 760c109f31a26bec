// How much of a common room one client may take.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SYSTEM_ROOM_SHARE_H_
#define ULFD_SERVER_SYSTEM_ROOM_SHARE_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"

namespace ulfd::server {

// How many times the room that is left one client may take (dynamic thresholds: Choudhury and
// Hahne, IEEE/ACM Transactions on Networking 6-2, 1998).
inline constexpr int64_t kRoomShare = 8;

// Whether there is room for `more`, of a client that has `own` of what is `taken`.
inline bool HasRoom(int64_t taken, int64_t own, int64_t more, int64_t limit) {
  const int64_t left = limit - taken - more;
  return left >= 0 && (own + more - 1) / kRoomShare <= left;
}

// Bytes, calls or connections that clients share.  Thread-safe.
class SharedRoom {
 public:
  explicit SharedRoom(int64_t limit) : limit_(limit) {}
  // false: there is no room for the client's.  What is alone is never too large.
  bool Take(const std::string& client, int64_t bytes) {
    if (bytes == 0) return true;
    MutexLock lock(mu_);
    int64_t& own = of_client_[client];
    const bool room = taken_ == 0 || HasRoom(taken_, own, bytes, limit_);
    if (room) {
      taken_ += bytes;
      own += bytes;
    } else if (own == 0) {
      of_client_.erase(client);
    }
    return room;
  }
  void Release(const std::string& client, int64_t bytes) {
    if (bytes == 0) return;
    MutexLock lock(mu_);
    const auto own = of_client_.find(client);
    taken_ -= bytes;
    own->second -= bytes;
    if (own->second == 0) of_client_.erase(own);
  }

 private:
  const int64_t limit_;
  Mutex mu_;
  int64_t taken_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<std::string, int64_t> of_client_ ABSL_GUARDED_BY(mu_);
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SYSTEM_ROOM_SHARE_H_

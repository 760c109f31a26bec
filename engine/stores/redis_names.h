// Where the nodes of a Redis Cluster are.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_STORES_REDIS_NAMES_H_
#define ULFD_ENGINE_STORES_REDIS_NAMES_H_

#include <sys/socket.h>

#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/mutex.h"

namespace ulfd::engine {

struct RedisAddress {
  sockaddr_storage address = {};
  socklen_t size = 0;
};

// "[::1]:7": "::1" and "7".
std::pair<std::string, std::string> SplitNode(absl::string_view node);

// Addresses of nodes.  Asking for that of a name may take as long as the system's resolver lets it,
// so that whoever must not wait only looks up what others asked for.  Thread-safe.
class RedisNames {
 public:
  // Of an IP address, or of a name that was resolved.  UNAVAILABLE: it was not yet.
  absl::StatusOr<RedisAddress> Find(const std::string& node) const;
  // Asks for the address of a name, and remembers it for Find: of several the first one where
  // somebody listens, which may take a second for each.
  absl::Status Resolve(const std::string& node);
  // Forgets all others: a cluster may name new ones for ever.
  void KeepOnly(const std::set<std::string>& nodes);

 private:
  mutable Mutex mu_;
  std::map<std::string, RedisAddress> found_ ABSL_GUARDED_BY(mu_);  // By node; names only.
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_STORES_REDIS_NAMES_H_

// ClientQuota: how much one client may have under way, so that none crowds out the others.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SCHEDULER_CLIENT_QUOTA_H_
#define ULFD_SERVER_SCHEDULER_CLIENT_QUOTA_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "base/mutex.h"

namespace ulfd::server {

// Thread-safe.  Remembers only clients that have something under way.
class ClientQuota {
 public:
  explicit ClientQuota(int64_t max_rows) : max_rows_(max_rows) {}

  // Books the ads of a call until Release; RESOURCE_EXHAUSTED with reason "quota" (refusal.h) if
  // the client would have more than its limit under way.  Its only call is never too large: it
  // would never be served otherwise.
  absl::Status Acquire(const std::string& client, int64_t rows);
  void Release(const std::string& client, int64_t rows);
  // Clients that have something under way.
  int64_t clients() const;

 private:
  const int64_t max_rows_;
  mutable Mutex mu_;
  std::map<std::string, int64_t> rows_ ABSL_GUARDED_BY(mu_);
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SCHEDULER_CLIENT_QUOTA_H_

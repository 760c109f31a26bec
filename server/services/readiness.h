// Readiness: whether the server and each model can be called, as health checks, /readyz and KServe
// see it.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SERVICES_READINESS_H_
#define ULFD_SERVER_SERVICES_READINESS_H_

#include <atomic>
#include <string>

#include "server/models/model_lookup.h"
#include "server/models/model_types.h"

namespace ulfd::server {

// Thread-safe.
class Readiness {
 public:
  explicit Readiness(const ModelLookup& models) : models_(models) {}

  // From the first call on nothing is ready any more.
  void StartDraining() { draining_.store(true); }
  bool draining() const { return draining_.load(); }

  // ModelLookup::Ready, and the server is not draining.
  bool ServerReady() const { return !draining() && models_.Ready(); }
  // Empty if ServerReady; else "draining", or a line for each model that cannot be called (for the
  // first hundred), with the reason.
  std::string WhyNotReady() const;
  // The model that `choice` means can be called, and the server is not draining.
  bool ModelReady(const ModelChoice& choice) const {
    return !draining() && models_.Find(choice).ok();
  }

 private:
  const ModelLookup& models_;
  std::atomic<bool> draining_{false};
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SERVICES_READINESS_H_

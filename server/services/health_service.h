// grpc.health.v1.Health with Check and Watch, on our own copy of its proto so that reflection can
// describe it.
//
// Known names: "" (the server), the full name of each service, "model/<name>" for each model that
// the manager knows.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SERVICES_HEALTH_SERVICE_H_
#define ULFD_SERVER_SERVICES_HEALTH_SERVICE_H_

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"
#include "proto/health.grpc.pb.h"
#include "server/rpc/call_receiver.h"
#include "server/services/readiness.h"

namespace ulfd::server {

class HealthService final : public RpcServiceOf<HealthService, grpc::health::v1::Health> {
 public:
  using ServingStatus = grpc::health::v1::HealthCheckResponse::ServingStatus;
  // More watches than that are refused with RESOURCE_EXHAUSTED: on one connection, and at all.  Of
  // an address that has more watches than a newcomer's, one ends instead.
  static constexpr int kMaxOfConnection = 32;
  static constexpr size_t kMaxWatches = 4000;

  // `services`: full names whose health is that of the server.
  HealthService(const ModelLookup& models, const Readiness& readiness,
                std::vector<std::string> services);

  // Looks again and tells the watchers what changed.  Any thread.
  void Refresh();
  // Ends every watch, now and from now on: the server cannot shut down while a stream is open.
  void EndWatches();

  void AwaitCalls(CallReceiver& receiver) override;

 private:
  class Watcher;
  void Check(
      UnaryCall<grpc::health::v1::HealthCheckRequest, grpc::health::v1::HealthCheckResponse>& call);
  // A stream has been opened; it removes itself at its end, whatever is said here.
  void Add(Watcher* watcher);
  // Looked up anew, so that health never says otherwise than /readyz.
  ServingStatus StatusOf(const std::string& service) const;
  void Remove(Watcher* watcher);
  // Ends a watch of the address that has most of them, if that has more than `address`.
  bool MakeRoom(const std::string& address) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Uncount(const Watcher& watcher) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const ModelLookup& models_;
  const Readiness& readiness_;
  const std::vector<std::string> services_;

  // Held from a look to its notice, so that an older look never overtakes a newer one.  Before a
  // watcher's own.
  Mutex mu_;
  std::set<Watcher*> watchers_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, int> of_connection_ ABSL_GUARDED_BY(mu_);  // Watches, by peer.
  std::map<std::string, int> of_address_ ABSL_GUARDED_BY(mu_);
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SERVICES_HEALTH_SERVICE_H_

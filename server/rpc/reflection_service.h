// grpc.reflection.v1alpha.ServerReflection: describes the services of a port.  gRPC 1.51's own
// takes a thread for every open stream, and ends the process when the system refuses one.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_RPC_REFLECTION_SERVICE_H_
#define ULFD_SERVER_RPC_REFLECTION_SERVICE_H_

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"
#include "proto/reflection.grpc.pb.h"
#include "server/rpc/call_receiver.h"
#include "server/system/background_queue.h"
#include "server/system/room_share.h"

namespace ulfd::server {

// Of one port.
class ReflectionService final
    : public RpcServiceOf<ReflectionService, grpc::reflection::v1alpha::ServerReflection> {
 public:
  // More streams than that are refused with RESOURCE_EXHAUSTED, on one connection and at all; and
  // those of a client that HasRoom leaves none.
  static constexpr int kMaxOfConnection = 8;
  static constexpr size_t kMaxStreams = 256;
  // A stream without a request for that long is ended; larger requests end theirs.
  static constexpr std::chrono::seconds kMostIdle{30};
  static constexpr size_t kMaxRequestBytes = 4096;

  // Full names, before the first call.
  void set_services(std::vector<std::string> services) { services_ = std::move(services); }
  void AwaitCalls(CallReceiver& receiver) override;
  // Ends every stream, now and from now on.
  void EndStreams();

 private:
  class Stream;
  grpc::Status Add(Stream* stream, const std::string& peer);
  void Remove(Stream* stream, const std::string& peer);
  void Answer(const grpc::reflection::v1alpha::ServerReflectionRequest& request,
              grpc::reflection::v1alpha::ServerReflectionResponse& response) const;

  std::vector<std::string> services_;
  Mutex mu_;  // Before a stream's own.
  std::set<Stream*> streams_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, int> of_connection_ ABSL_GUARDED_BY(mu_);  // By peer.
  SharedRoom room_{kMaxStreams};
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  // Answers: receiving threads read no connection while something else is ready, and the next
  // request of a stream always is.  Last: it uses everything above.
  BackgroundQueue aside_{"ulfd-reflect"};
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_RPC_REFLECTION_SERVICE_H_

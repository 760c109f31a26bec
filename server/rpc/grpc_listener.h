// Builds a gRPC server: port, limits, security and connection settings in one place.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_RPC_GRPC_LISTENER_H_
#define ULFD_SERVER_RPC_GRPC_LISTENER_H_

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/server_config.pb.h"
#include "server/observe/metric_page.h"
#include "server/rpc/call_receiver.h"
#include "server/rpc/connection_acceptor.h"
#include "server/rpc/listener_credentials.h"
#include "server/rpc/reflection_service.h"

namespace ulfd::server {

using config::v1::ServerConfig;

// A gRPC server on one port.
class GrpcListener {
 public:
  // Listens on "address:port" (0: any free port), or on the socket of the address "unix:PATH" (its
  // port() is 0), and serves on so many receiving threads.  Another process on the same port is an
  // error, UNAVAILABLE, which says why.  `services`, `security` and `logger` are borrowed.
  static absl::StatusOr<std::unique_ptr<GrpcListener>> Create(
      const std::string& address, int port, int threads, const ServerConfig& settings,
      const PortSecurity& security, const std::vector<RpcService*>& services, Logger& logger);
  // Shutdown at once.
  ~GrpcListener();

  // Takes no more connections and calls, and returns when those under way that want an answer have
  // had it, and half a second to take it; those that have not within `grace` are cancelled.
  void Shutdown(std::chrono::milliseconds grace);

  int port() const { return port_; }
  // Calls that want an answer and have none yet.
  int64_t unanswered() const { return receiver_->unanswered(); }
  // What connections and receiving threads have come to.
  void Collect(MetricPage& page) const;

 private:
  GrpcListener() = default;
  // Builds the server and receives its calls; false: it does not start.
  bool Serve(grpc::ServerBuilder& builder, const ServerConfig& settings,
             const std::vector<RpcService*>& services, int threads);
  int port_ = 0;
  std::shared_ptr<grpc::ServerCredentials> credentials_;  // The server's handshakes ask it.
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> entrance_;
  std::unique_ptr<ReflectionService> reflection_;  // Null if it is switched off.
  grpc::AsyncGenericService unknown_;
  // Outlives the server, which puts events into its queue.
  std::unique_ptr<CallReceiver> receiver_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<ConnectionAcceptor> acceptor_;  // Hands connections to the server.
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_RPC_GRPC_LISTENER_H_

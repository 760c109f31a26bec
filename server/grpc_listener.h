// Builds a gRPC server: port, limits and connection settings in one place.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_GRPC_LISTENER_H_
#define ULFD_SERVER_GRPC_LISTENER_H_

#include <grpcpp/impl/codegen/service_type.h>
#include <grpcpp/server.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/options.h"

namespace ulfd::server {

struct GrpcListener {
  std::unique_ptr<grpc::Server> server;
  int port = 0;
};

// Reflection is part of every server that this builds: call once, before the first one is built.
void EnableReflection();

// Listens on "address:port" (0: any free port) and serves.  Another process on the same port is an
// error, UNAVAILABLE, which says why. `services` are borrowed.
absl::StatusOr<GrpcListener> Listen(const std::string& address, int port, const Options& options,
                                    const std::vector<grpc::Service*>& services);

}  // namespace ulfd::server

#endif  // ULFD_SERVER_GRPC_LISTENER_H_

// What gRPC says, as lines of our log.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_RPC_GRPC_LOG_H_
#define ULFD_SERVER_RPC_GRPC_LOG_H_

#include "server/observe/logging.h"

namespace ulfd::server {

// While it lives, what gRPC logs (GRPC_VERBOSITY says how much) goes to `logger`: some lines in a
// second, as strangers may cause them.  One at a time.
class GrpcLog {
 public:
  explicit GrpcLog(Logger& logger);
  ~GrpcLog();
  GrpcLog(const GrpcLog&) = delete;
  GrpcLog& operator=(const GrpcLog&) = delete;
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_RPC_GRPC_LOG_H_

// What gRPC's C core allocates for headers, calls and connections; the bytes of messages it
// allocates otherwise.
//
// Its own quota is no measure for us: nobody can ask for what it counts, and beyond it gRPC closes
// idle connections first, whosever they are.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_RPC_GRPC_MEMORY_H_
#define ULFD_SERVER_RPC_GRPC_MEMORY_H_

#include <cstdint>

namespace ulfd::server {

// By this thread so far, without what it gave back.
int64_t GrpcBytesOfThread();

}  // namespace ulfd::server

#endif  // ULFD_SERVER_RPC_GRPC_MEMORY_H_

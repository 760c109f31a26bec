// The one place where an absl::Status becomes a grpc::Status.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_RPC_GRPC_STATUS_H_
#define ULFD_SERVER_RPC_GRPC_STATUS_H_

#include <grpcpp/support/status.h>

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace ulfd::server {

// Error texts on the wire are at most that long: gRPC puts them into a header, and proxies refuse
// long headers.
inline constexpr size_t kMaxErrorBytes = 1024;

// `text` cut to so many bytes, with "..." at the end if anything was cut; never inside a UTF-8
// sequence.
std::string ClipError(absl::string_view text, size_t most = kMaxErrorBytes);

// Same code (the two enums agree by number), text clipped.
grpc::Status ToGrpcStatus(const absl::Status& status);

}  // namespace ulfd::server

#endif  // ULFD_SERVER_RPC_GRPC_STATUS_H_

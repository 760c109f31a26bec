// What a call brings beside its message: deadline and metadata.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_RPC_CALL_CONTEXT_H_
#define ULFD_SERVER_RPC_CALL_CONTEXT_H_

#include <grpcpp/server_context.h>

#include <string>

#include "absl/strings/string_view.h"
#include "server/scheduler/clock.h"

namespace ulfd::server {

// The deadline of a call on the steady clock; TimePoint::max() if it has none.
TimePoint DeadlineOf(const grpc::ServerContext& context, TimePoint now);

// The value of a metadata key of the call; empty if it has none.  Borrows from `context`.
absl::string_view MetadataOf(const grpc::ServerContext& context, const std::string& key);

}  // namespace ulfd::server

#endif  // ULFD_SERVER_RPC_CALL_CONTEXT_H_

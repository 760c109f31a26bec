// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/call_context.h"

#include <grpc/support/time.h>

#include <chrono>

namespace ulfd::server {

TimePoint DeadlineOf(const grpc::ServerContext& context, TimePoint now) {
  // gRPC keeps it on its monotonic clock; by way of the wall clock, a jump in between would end the
  // call.
  const gpr_timespec deadline = context.raw_deadline();
  const gpr_timespec left = gpr_time_sub(deadline, gpr_now(deadline.clock_type));
  // Deadlines further away than any call may last are none.
  if (left.tv_sec > int64_t{365} * 24 * 3600) return TimePoint::max();
  return now + std::chrono::seconds(left.tv_sec) + std::chrono::nanoseconds(left.tv_nsec);
}

absl::string_view MetadataOf(const grpc::ServerContext& context, const std::string& key) {
  const auto it = context.client_metadata().find(key);
  if (it == context.client_metadata().end()) return "";
  return {it->second.data(), it->second.size()};
}

}  // namespace ulfd::server

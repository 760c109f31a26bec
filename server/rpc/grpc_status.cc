// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/grpc_status.h"

#include "absl/strings/str_cat.h"
#include "base/text.h"

namespace ulfd::server {

static_assert(static_cast<int>(grpc::StatusCode::UNAUTHENTICATED) ==
              static_cast<int>(absl::StatusCode::kUnauthenticated));
static_assert(static_cast<int>(grpc::StatusCode::RESOURCE_EXHAUSTED) ==
              static_cast<int>(absl::StatusCode::kResourceExhausted));

std::string ClipError(absl::string_view text, size_t most) {
  if (text.size() <= most) return std::string(text);
  constexpr absl::string_view kDots = "...";
  return absl::StrCat(Beginning(text, most - kDots.size()), kDots);
}

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), ClipError(status.message()));
}

}  // namespace ulfd::server

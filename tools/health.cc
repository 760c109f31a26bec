// ulf health: asks a running daemon whether it serves; the health check of the container image.
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "engine/status_macros.h"
#include "proto/health.grpc.pb.h"
#include "tools/clients.h"
#include "tools/commands.h"

namespace ulfd::tools {
namespace {

constexpr char kDescription[] =
    "Calls grpc.health.v1.Health.Check.  Exit code 0: SERVING; 1: anything else, or no answer.";

}  // namespace

absl::Status RunHealth(Args args) {
  std::string model;
  absl::Duration timeout = absl::Seconds(2);
  FlagSet flags("health HOST:PORT [--model=NAME]", kDescription);
  flags.Add("model", "Asks for this model instead of the whole daemon.", &model);
  flags.Add("timeout", "Deadline of the call.", &timeout);
  std::vector<std::string> positional;
  bool help = false;
  RETURN_IF_ERROR(flags.Parse(args, 1, 1, &positional, &help));
  if (help) return absl::OkStatus();
  if (timeout <= absl::ZeroDuration()) return UsageError("--timeout: must be positive");

  const auto stub = grpc::health::v1::Health::NewStub(Connect(positional[0]));
  grpc::health::v1::HealthCheckRequest request;
  if (!model.empty()) request.set_service(absl::StrCat("model/", model));
  grpc::health::v1::HealthCheckResponse response;
  grpc::ClientContext context;
  Prepare(context, timeout);
  RETURN_IF_ERROR(FromGrpc(stub->Check(&context, request, &response), "Health.Check"));
  const std::string state =
      grpc::health::v1::HealthCheckResponse::ServingStatus_Name(response.status());
  if (response.status() != grpc::health::v1::HealthCheckResponse::SERVING) {
    return absl::UnavailableError(state);
  }
  std::printf("%s\n", state.c_str());
  return absl::OkStatus();
}

}  // namespace ulfd::tools

// ulf health: asks a running daemon whether it serves; the health check of the container image.
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "proto/health.grpc.pb.h"
#include "tools/cli/commands.h"
#include "tools/cli/print.h"
#include "tools/cli/url_client.h"
#include "tools/client/connection.h"

namespace ulfd::tools {
namespace {

constexpr char kDescription[] =
    R"(With HOST:PORT, calls grpc.health.v1.Health.Check; with http://HOST:PORT/readyz, reads that
page of the daemon's HTTP port, which asks for neither certificates nor tokens.  Exit code 0:
it serves (SERVING, status 200); 1: anything else, or no answer.)";

absl::Status CheckGrpc(const Connection& server, const std::string& model, absl::Duration timeout) {
  using grpc::health::v1::Health, grpc::health::v1::HealthCheckResponse;
  grpc::health::v1::HealthCheckRequest request;
  if (!model.empty()) request.set_service(absl::StrCat("model/", model));
  ASSIGN_OR_RETURN(const HealthCheckResponse response,
                   Call<Health>(server, &Health::Stub::Check, "Health.Check", request, timeout));
  const std::string state =
      NameOr(HealthCheckResponse::ServingStatus_Name(response.status()), response.status());
  if (response.status() != HealthCheckResponse::SERVING) return Unavailable(state);
  Print(stdout, state + "\n");
  return absl::OkStatus();
}

absl::Status CheckHttp(const std::string& url, absl::Duration timeout) {
  UrlClient client({.timeout = timeout, .proxies = false});
  ASSIGN_OR_RETURN(const std::string page, client.Page(url));
  Print(stdout, absl::StrCat(absl::StripTrailingAsciiWhitespace(page), "\n"));
  return absl::OkStatus();
}

}  // namespace

absl::Status RunHealth(Args args) {
  std::string model;
  absl::Duration timeout = absl::Seconds(2);
  FlagSet flags("ulf health HOST:PORT|http://HOST:PORT/readyz [--model=NAME]", kDescription);
  flags.Add("model", "Asks for this model instead of the whole daemon.", &model);
  flags.Add("timeout", "Deadline of the call.", &timeout, kShortestTimeout);
  const ConnectionFlags connection_flags(flags);
  ASSIGN_OR_RETURN(const std::vector<std::string> positional, flags.Parse(args, 1, 1));
  const std::string& target = positional[0];
  const bool page = absl::StrContains(target, "://");
  RETURN_IF_ERROR(flags.Only(!page, "gRPC",
                             {"model", "tls", "tls_ca", "tls_cert", "tls_key", "tls_server_name",
                              "token_file", "metadata"}));
  if (page) return CheckHttp(target, timeout);
  RETURN_IF_ERROR(CheckTarget(target));
  ASSIGN_OR_RETURN(const Connector connector, Connector::Create(connection_flags));
  return CheckGrpc(connector.Connect(target), model, timeout);
}

}  // namespace ulfd::tools

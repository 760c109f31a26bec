// gRPC server settings.
// SPDX-License-Identifier: Apache-2.0
#include "server/grpc_listener.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include "absl/strings/str_cat.h"
#include "server/http_server.h"

namespace ulfd::server {
namespace {

int Ms(std::chrono::milliseconds duration) { return static_cast<int>(duration.count()); }

void Configure(const Options& options, grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(options.max_message_bytes);
  builder.SetMaxSendMessageSize(options.max_message_bytes);
  // Two daemons on one port would each get some of the calls: the second one must fail.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, Ms(options.keepalive_time));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Ms(options.keepalive_timeout));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             Ms(options.min_client_ping_interval));
  if (options.max_connection_age.count() > 0) {
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS, Ms(options.max_connection_age));
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS,
                               Ms(options.max_connection_age_grace));
  }
  // Compressing costs more CPU than the scores need; clients may still send compressed requests.
  builder.SetDefaultCompressionAlgorithm(GRPC_COMPRESS_NONE);
}

}  // namespace

void EnableReflection() {
  grpc::EnableDefaultHealthCheckService(false);  // We have our own.
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
}

absl::StatusOr<GrpcListener> Listen(const std::string& address, int port, const Options& options,
                                    const std::vector<grpc::Service*>& services) {
  grpc::ServerBuilder builder;
  Configure(options, builder);
  GrpcListener listener;
  builder.AddListeningPort(absl::StrCat(address, ":", port), grpc::InsecureServerCredentials(),
                           &listener.port);
  for (grpc::Service* service : services) builder.RegisterService(service);
  listener.server = builder.BuildAndStart();
  if (listener.server == nullptr || listener.port == 0) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", address, ":", port,
                                               " for gRPC: ", WhyNotListening(address, port)));
  }
  return listener;
}

}  // namespace ulfd::server

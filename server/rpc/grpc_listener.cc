// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/grpc_listener.h"

#include <grpc/grpc.h>
#include <grpc/support/time.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "server/rpc/connection_turns.h"
#include "server/rpc/header_limit.h"
#include "server/rpc/tls_limit.h"
#include "server/scheduler/cpu_count.h"
#include "server/system/listening_socket.h"

namespace ulfd::server {
namespace {

// How the address of a Unix socket begins.
constexpr char kUnixPrefix[] = "unix:";
// What an idle connection without TLS takes.
constexpr int64_t kConnectionBytes = 16 << 10;

// TLS handshakes that may begin in a second: half of a CPU's time.
constexpr int kHandshakesPerCpu = 300;

using std::chrono::milliseconds;

void Configure(const ServerConfig& settings, grpc::ServerBuilder& builder) {
  const auto& connections = settings.connections();
  const auto set = [&](const char* name, int value) { builder.AddChannelArgument(name, value); };
  builder.SetMaxReceiveMessageSize(settings.limits().max_message_bytes());
  builder.SetMaxSendMessageSize(settings.limits().max_message_bytes());
  set(GRPC_ARG_MAX_METADATA_SIZE, connections.max_header_bytes());
  // What gRPC makes of headers for the call takes twice as much again.
  LimitHeaders(connections.max_header_bytes(), connections.memory_quota_bytes() / 8);
  set(GRPC_ARG_MAX_CONCURRENT_STREAMS, connections.max_concurrent_streams());
  set(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, connections.handshake_timeout_ms());
  set(GRPC_ARG_KEEPALIVE_TIME_MS, connections.keepalive_time_ms());
  set(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, connections.keepalive_timeout_ms());
  set(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  set(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  set(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
      connections.min_client_ping_interval_ms());
  set(GRPC_ARG_HTTP2_MAX_PING_STRIKES, connections.max_ping_strikes());
  if (connections.max_age_ms() > 0) {
    set(GRPC_ARG_MAX_CONNECTION_AGE_MS, connections.max_age_ms());
    set(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS, connections.max_age_grace_ms());
  }
  if (connections.max_idle_ms() > 0) {
    set(GRPC_ARG_MAX_CONNECTION_IDLE_MS, connections.max_idle_ms());
  }
  // What came on one connection is parsed at once before anybody else's: not megabytes of it.
  constexpr int kReadBytes = 64 << 10;
  set(GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, kReadBytes);
  // gRPC 1.51 inflates a whole message before it looks at the limit; compressing costs more CPU
  // than the scores need.  Without the two filters, compressed requests come as they are, and are
  // refused.
  set(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  set(GRPC_ARG_ENABLE_PER_MESSAGE_COMPRESSION, 0);
  // gRPC ends all calls whose time is over before it reads what others sent.  Who computes for a
  // call looks at its deadline, and clients reset what has become late (decision 0092).
  set(GRPC_ARG_ENABLE_DEADLINE_CHECKS, 0);
}

// Twice as many streams as clients are told: a call is over for the client before it is for us.
int64_t MostStreams(const ServerConfig& settings) {
  return int64_t{2} * settings.connections().max_concurrent_streams();
}

CallBudget Budget(const ServerConfig& settings) {
  return {.connection_calls = MostStreams(settings),
          .connection_bytes = settings.connections().max_unsent_bytes(),
          .caller_bytes = settings.connections().memory_quota_bytes() / 4,
          .total_bytes = settings.connections().memory_quota_bytes() / 2,
          .request_bytes = settings.connections().memory_quota_bytes() / 2};
}

WatchLimits Watched(const ServerConfig& settings) {
  const auto quota = static_cast<int64_t>(settings.connections().memory_quota_bytes());
  return {.streams = MostStreams(settings),
          .all_streams = quota / 2 / CallLedger::kCallBytes,
          .silent_bytes = quota / 4,
          .lost_streams = settings.connections().max_lost_streams()};
}

// Connections must not take the memory that calls need, nor the descriptors of models and pages.
int MaxConnections(const ServerConfig& settings, const PortSecurity& security, Logger& logger) {
  const int64_t bytes = security.tls == nullptr ? kConnectionBytes : kTlsConnectionBytes;
  const auto quota = static_cast<int64_t>(settings.connections().memory_quota_bytes());
  const int stated = settings.connections().max_connections();
  const int wanted = static_cast<int>(std::min<int64_t>(stated, quota / 2 / bytes));
  if (wanted < stated) {
    logger.Info("fewer connections than max_connections, for memory_quota_bytes",
                {{"max_connections", stated}, {"connections", wanted}});
  }
  const int64_t room = RoomForConnections().grpc;
  if (room >= wanted) return wanted;
  logger.Warning("fewer connections than max_connections, for lack of file descriptors",
                 {{"max_connections", wanted}, {"connections", room}});
  return static_cast<int>(room);
}

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcListener>> GrpcListener::Create(
    const std::string& address, int port, int threads, const ServerConfig& settings,
    const PortSecurity& security, const std::vector<RpcService*>& services, Logger& logger) {
  using External = grpc::ServerBuilder::experimental_type::ExternalConnectionType;
  auto listener = std::unique_ptr<GrpcListener>(new GrpcListener());
  ASSIGN_OR_RETURN(ListeningSocket socket, ListenOn(address, port, "gRPC"));
  listener->port_ = socket.port;
  listener->credentials_ = MakeCredentials(security, absl::StartsWith(address, kUnixPrefix));
  grpc::ServerBuilder builder;
  Configure(settings, builder);
  listener->entrance_ = builder.experimental().AddExternalConnectionAcceptor(
      External::FROM_FD, listener->credentials_);
  if (!listener->Serve(builder, settings, services, threads)) {
    return Unavailable("gRPC does not start on ", address, ":", port, ", see the log above");
  }
  AcceptorOptions acceptor;
  acceptor.max_connections = MaxConnections(settings, security, logger);
  acceptor.user_timeout = milliseconds(settings.connections().keepalive_timeout_ms());
  acceptor.watch = Watched(settings);
  if (security.tls != nullptr) {
    acceptor.watch.places = acceptor.max_connections;
    acceptor.handshakes_per_second = kHandshakesPerCpu * UsableCpuCount();
    acceptor.handshake_timeout = milliseconds(settings.connections().handshake_timeout_ms());
  }
  listener->acceptor_ = std::make_unique<ConnectionAcceptor>(
      std::move(socket), acceptor,
      [entrance = listener->entrance_.get(), receiver = listener->receiver_.get()](int fd) {
        // Where calls are received, connections have turns.
        const bool handed = receiver->Run([entrance, fd] {
          grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
          connection.fd = fd;
          entrance->HandleNewConnection(&connection);
        });
        if (!handed) close(fd);
      },
      listener->receiver_->ledger(), logger);
  return listener;
}

bool GrpcListener::Serve(grpc::ServerBuilder& builder, const ServerConfig& settings,
                         const std::vector<RpcService*>& services, int threads) {
  std::vector<RpcService*> all = services;
  if (settings.reflection()) {
    reflection_ = std::make_unique<ReflectionService>();
    all.push_back(reflection_.get());
    std::vector<std::string> names;
    names.reserve(all.size());
    for (const RpcService* service : all) names.emplace_back(service->full_name());
    reflection_->set_services(std::move(names));
  }
  for (RpcService* service : all) builder.RegisterService(&service->methods());
  builder.RegisterAsyncGenericService(&unknown_);
  constexpr int64_t kParsedByMessage = 8;  // Bytes in memory for each on the wire, at most.
  receiver_ = std::make_unique<CallReceiver>(
      builder,
      ReceiverOptions{
          .max_header_bytes = settings.connections().max_header_bytes(),
          .message = {.max_fields = settings.limits().max_request_fields(),
                      .max_parsed_bytes = kParsedByMessage * settings.limits().max_message_bytes()},
          .budget = Budget(settings)});
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) return false;
  for (RpcService* service : all) service->AwaitCalls(*receiver_);
  for (int i = 0; i < kAwaitedCalls; ++i) UnknownCall::Await(unknown_, *receiver_);
  receiver_->Start(threads);
  return true;
}

void GrpcListener::Collect(MetricPage& page) const {
  const ConnectionStats stats = acceptor_->Stats();
  page.AddGauge("ulfd_connections", "Open connections to the gRPC port", stats.open);
  page.AddCounter("ulfd_connections_total", "Connections to the gRPC port so far", stats.accepted);
  for (const auto& [why, refused] : {std::pair("max_connections", stats.over_limit),
                                     std::pair("descriptors", stats.no_descriptors)}) {
    page.AddCounter("ulfd_connections_refused_total",
                    "Connections closed at once (max_connections), or times that none could be "
                    "accepted because the process has no file descriptor left (descriptors)",
                    refused, {{"why", why}});
  }
  const auto closed = [&page](const char* why, int64_t number) {
    page.AddCounter("ulfd_connections_closed_total",
                    "Connections to the gRPC port that were closed for what they took: calls under "
                    "way (calls), replies that wait to be sent (unsent), HTTP/2 streams (streams), "
                    "bytes that never became a call (silent), TLS handshakes (handshakes), headers "
                    "(headers), small frames (frames), streams refused for their token or reset "
                    "(refused)",
                    number, {{"why", why}});
  };
  for (const char* why : {"calls", "unsent", "streams", "silent", "handshakes", "refused"}) {
    const auto it = stats.closed.find(why);
    const int64_t in_openssl = why == absl::string_view("handshakes") ? EndedForHandshakes() : 0;
    closed(why, in_openssl + (it == stats.closed.end() ? 0 : it->second));
  }
  closed("headers", EndedForHeaders());
  closed("frames", EndedForFrames());
  page.AddCounter("ulfd_spare_receivers_total",
                  "Spare threads started because all that receive calls were kept busy, each by "
                  "one connection (endless headers, messages of many megabytes)",
                  receiver_->spares());
  page.AddCounter("ulfd_threads_refused_total",
                  "Spare receiving threads that the system refused; it went on without",
                  receiver_->refused_spares());
}

void GrpcListener::Shutdown(milliseconds grace) {
  acceptor_->Stop();
  if (reflection_ != nullptr) reflection_->EndStreams();
  constexpr milliseconds kUntilIdle{200};
  acceptor_->CloseIdle(std::min(grace, kUntilIdle));
  receiver_->EndWhenAnswered([this] { grpc_server_cancel_all_calls(server_->c_server()); });
  server_->Shutdown(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                 gpr_time_from_millis(grace.count(), GPR_TIMESPAN)));
  receiver_->Stop();
}

GrpcListener::~GrpcListener() {
  if (acceptor_ == nullptr) return;  // It was not created as a whole.
  Shutdown(milliseconds(0));
  acceptor_.reset();
  server_.reset();
}

}  // namespace ulfd::server

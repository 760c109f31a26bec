// Connections to servers, made as the command line says, and what goes with each call.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_CLIENT_CONNECTION_H_
#define ULFD_TOOLS_CLIENT_CONNECTION_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/channel_arguments.h"
#include "tools/cli/connection_flags.h"

namespace ulfd::tools {

// A channel to one server.  Immutable and thread-safe; copies share the channel.
class Connection {
 public:
  Connection(std::shared_ptr<grpc::Channel> channel, std::shared_ptr<const Metadata> metadata)
      : channel_(std::move(channel)), metadata_(std::move(metadata)) {}

  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }
  // Adds metadata, token included, to a call, and sets its deadline (infinite: none).  A call does
  // not wait for a server that refuses connections.
  void Prepare(grpc::ClientContext& context, absl::Duration timeout) const;

 private:
  std::shared_ptr<grpc::Channel> channel_;
  std::shared_ptr<const Metadata> metadata_;
};

// A usage error unless it is "HOST:PORT" or "unix:PATH".
absl::Status CheckTarget(const std::string& target);

// Makes connections.  Immutable and thread-safe; copies are cheap.
class Connector {
 public:
  // Plain text, without token.
  Connector();
  // Reads the files; errors name them, and never hold a token or a key.
  static absl::StatusOr<Connector> Create(const ConnectionOptions& options);
  // After FlagSet::Parse; usage errors as of ConnectionFlags::Options.
  static absl::StatusOr<Connector> Create(const ConnectionFlags& flags);

  // To a target that is good (CheckTarget), without a limit on the size of replies.
  Connection Connect(const std::string& target,
                     grpc::ChannelArguments arguments = grpc::ChannelArguments()) const;
  // What goes with every call; the token is in it.
  const Metadata& metadata() const { return *metadata_; }

 private:
  std::shared_ptr<grpc::ChannelCredentials> tls_;  // Null: plain text.
  std::string tls_server_name_;
  bool has_token_ = false;
  std::shared_ptr<const Metadata> metadata_;
};

// The same code; the text says which call failed.
absl::Status FromGrpc(const grpc::Status& status, absl::string_view call);

// The name of a value of an enum, or its number where only the server knows a name for it.
std::string NameOr(const std::string& name, int number);

// While it lives, the program ends with 1 and a line that names the call, a second after the
// timeout (infinite: never).  gRPC looks at a deadline only once it has read what there is, and a
// server can send frames without end.  One at a time.
class CallAlarm {
 public:
  CallAlarm(absl::string_view call, absl::Duration timeout);
  CallAlarm(const CallAlarm&) = delete;
  CallAlarm& operator=(const CallAlarm&) = delete;
  ~CallAlarm();
};

// Makes a call that has one reply: `method` is that of Service::Stub, `name` for errors.
template <typename Service, typename Request, typename Reply>
absl::StatusOr<Reply> Call(const Connection& server,
                           grpc::Status (Service::Stub::*method)(grpc::ClientContext*,
                                                                 const Request&, Reply*),
                           absl::string_view name, const Request& request, absl::Duration timeout) {
  const auto stub = Service::NewStub(server.channel());
  grpc::ClientContext context;
  server.Prepare(context, timeout);
  Reply reply;
  const CallAlarm alarm(name, timeout);
  const grpc::Status status = ((*stub).*method)(&context, request, &reply);
  if (!status.ok()) return FromGrpc(status, name);
  return reply;
}

}  // namespace ulfd::tools

#endif  // ULFD_TOOLS_CLIENT_CONNECTION_H_

// Security: the certificates, tokens and rules of this server, kept up to date.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_RPC_LISTENER_SECURITY_H_
#define ULFD_SERVER_RPC_LISTENER_SECURITY_H_

#include <grpcpp/server_context.h>

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "proto/server_config.pb.h"
#include "server/models/model_types.h"
#include "server/observe/logging.h"
#include "server/observe/metric_page.h"
#include "server/rpc/listener_credentials.h"

namespace ulfd::server {

using config::v1::ServerConfig;

// Thread-safe.
class Security {
 public:
  // Reads the files that `settings` name; an error is one of theirs.  `logger` is borrowed.
  static absl::StatusOr<std::unique_ptr<Security>> Create(const ServerConfig& settings,
                                                          Logger& logger);
  ~Security();

  PortSecurity grpc() const { return {grpc_tls_.get(), grpc_callers_.get()}; }
  PortSecurity admin() const { return {admin_tls_.get(), admin_callers_.get()}; }

  // All names of who makes this call to the gRPC port; nullopt where clients have none.
  std::optional<std::vector<std::string>> ClientOf(const grpc::ServerContext& call) const;
  // Of a request by HTTP, which is plain text: UNAUTHENTICATED and PERMISSION_DENIED as on the gRPC
  // port, and where tokens are wanted PERMISSION_DENIED unless it comes `from_here`.
  absl::StatusOr<std::optional<std::vector<std::string>>> ClientOfHttp(
      absl::string_view path, absl::string_view authorization, bool from_here) const;
  // `choice` with its client, by which the model manager decides who may use what.
  absl::StatusOr<ModelChoice> Identify(const grpc::ServerContext& call,
                                       absl::StatusOr<ModelChoice> choice) const;

  // Of `clients`, those who have no token although calls want one: nobody is let in as them.
  std::vector<std::string> WithoutToken(
      const google::protobuf::RepeatedPtrField<std::string>& clients) const;

  // Adds what operators want to know.
  void Collect(MetricPage& page) const;

 private:
  Security(const ServerConfig& settings, Logger& logger);
  absl::Status ReadAll();
  void Loop();
  template <typename T>
  void LookAt(const char* what, Reloaded<T>* value);

  const TlsOptions grpc_tls_options_, admin_tls_options_;
  const AuthenticationOptions authentication_;
  const bool clients_have_names_;
  Logger& logger_;
  std::unique_ptr<Reloaded<TlsMaterial>> grpc_tls_, admin_tls_;  // Null: plain text.
  std::unique_ptr<Reloaded<TokenTable>> tokens_;                 // Null: none.
  std::unique_ptr<Authenticator> grpc_callers_, admin_callers_;

  mutable Mutex mu_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;  // Last: it uses everything above.  None if there is nothing to look at.
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_RPC_LISTENER_SECURITY_H_

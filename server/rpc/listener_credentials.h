// What gRPC wants to know about the security of a port: certificates that change while the server
// runs, and the check of every call before its message is read.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_RPC_LISTENER_CREDENTIALS_H_
#define ULFD_SERVER_RPC_LISTENER_CREDENTIALS_H_

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_context.h>

#include <memory>

#include "base/tls/tls_material.h"
#include "server/security/authenticator.h"
#include "server/security/reloaded.h"

namespace ulfd::server {

// What guards one port.  Borrowed; outlives the server.
struct PortSecurity {
  const Reloaded<TlsMaterial>* tls = nullptr;  // Null: plain text.
  const Authenticator* authenticator = nullptr;
};

// Where tokens would travel in plain text, connections from other machines are refused.
// `unix_socket`: the port is one.  Must outlive the server.
std::shared_ptr<grpc::ServerCredentials> MakeCredentials(const PortSecurity& security,
                                                         bool unix_socket);

// What a call that has come in shows; borrows from `context`.
CallFacts FactsOf(const grpc::ServerContext& context);

}  // namespace ulfd::server

#endif  // ULFD_SERVER_RPC_LISTENER_CREDENTIALS_H_

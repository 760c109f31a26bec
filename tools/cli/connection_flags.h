// How a command reaches a server, as its command line says it: TLS, token, metadata.  Free of gRPC.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_CLI_CONNECTION_FLAGS_H_
#define ULFD_TOOLS_CLI_CONNECTION_FLAGS_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/flags/flag_set.h"

namespace ulfd::tools {

// Keys and values that go with a call.
using Metadata = std::vector<std::pair<std::string, std::string>>;

struct ConnectionOptions {
  bool tls = false;             // Otherwise plain text.
  std::string tls_ca;           // Who may have issued the server's certificate; "": the system's.
  std::string tls_cert;         // What the client shows; "": nothing.
  std::string tls_key;          // Of tls_cert.
  std::string tls_server_name;  // Wanted in the server's certificate; "": that of the address.
  std::string token_file;       // "": no token.
  Metadata metadata;
};

// The flags that every command has which calls a server.
class ConnectionFlags {
 public:
  // `flags` must not outlive this object.
  explicit ConnectionFlags(FlagSet& flags);
  // After FlagSet::Parse.  A usage error names flags that contradict each other, or metadata that
  // gRPC would not send.  Files are not read yet.
  absl::StatusOr<ConnectionOptions> Options() const;

 private:
  const FlagSet& flags_;
  ConnectionOptions options_;
  std::vector<std::string> metadata_;
};

inline constexpr absl::Duration kShortestTimeout = absl::Nanoseconds(1);

}  // namespace ulfd::tools

#endif  // ULFD_TOOLS_CLI_CONNECTION_FLAGS_H_

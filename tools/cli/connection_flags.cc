// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/connection_flags.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "base/status_macros.h"

namespace ulfd::tools {
namespace {

bool IsKey(absl::string_view key) {
  const auto ok = [](char c) {
    return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '_' || c == '-' || c == '.';
  };
  return std::all_of(key.begin(), key.end(), ok) && !absl::StartsWith(key, "grpc-") &&
         !absl::EndsWith(key, "-bin");
}

// gRPC would abort the program on what this refuses.
absl::StatusOr<Metadata> ParseMetadata(const std::vector<std::string>& texts) {
  Metadata metadata;
  for (const std::string& text : texts) {
    const size_t equals = text.find('=');
    const std::string key = text.substr(0, equals);
    // Command lines are for everybody to read; what stands behind the key is not repeated.
    if (absl::AsciiStrToLower(key) == "authorization") {
      return UsageError("--metadata: authorization: a token comes from --token_file");
    }
    if (equals == std::string::npos || key.empty()) {
      return UsageError("--metadata: \"", text, "\", want KEY=VALUE");
    }
    if (!IsKey(key)) {
      return UsageError("--metadata: key \"", key,
                        "\", want lower case letters, digits, \"_\", \"-\" and "
                        "\".\", neither grpc-... nor ...-bin");
    }
    const std::string value = text.substr(equals + 1);
    if (!std::all_of(value.begin(), value.end(), absl::ascii_isprint)) {
      return UsageError("--metadata: ", key, ": want a value of printable ASCII");
    }
    metadata.emplace_back(key, value);
  }
  return metadata;
}

}  // namespace

ConnectionFlags::ConnectionFlags(FlagSet& flags) : flags_(flags) {
  flags.Add("tls",
            "Calls over TLS; the server's certificate must be known to the system.  Every other "
            "--tls_... implies it.",
            &options_.tls);
  flags.Add("tls_ca", "PEM file: the server's certificate must come from one of these.",
            &options_.tls_ca);
  flags.Add("tls_cert", "PEM file: certificate of the caller (mutual TLS); wants --tls_key.",
            &options_.tls_cert);
  flags.Add("tls_key", "PEM file: private key of --tls_cert.", &options_.tls_key);
  flags.Add("tls_server_name",
            "Name that the server's certificate must have, where it is not that of the address.",
            &options_.tls_server_name);
  flags.Add("token_file",
            "File that holds the caller's token and nothing else.  Without TLS it is sent to this "
            "machine only.",
            &options_.token_file);
  flags.Add("metadata", "KEY=VALUE pairs sent with every call, separated by commas.", &metadata_);
}

absl::StatusOr<ConnectionOptions> ConnectionFlags::Options() const {
  ConnectionOptions options = options_;
  for (const char* name : {"tls_ca", "tls_cert", "tls_key", "tls_server_name"}) {
    if (!flags_.IsSet(name)) continue;
    if (flags_.IsSet("tls") && !options_.tls) {
      return UsageError("--", name, " and --notls contradict each other");
    }
    options.tls = true;
  }
  // gRPC crashes on a name that TLS cannot send.
  constexpr size_t kMaxNameBytes = 255;
  if (options.tls_server_name.size() > kMaxNameBytes) {
    return UsageError("--tls_server_name: ", options.tls_server_name.size(),
                      " bytes, want at most ", kMaxNameBytes);
  }
  if (options.tls_cert.empty() != options.tls_key.empty()) {
    return UsageError("--tls_cert and --tls_key want each other");
  }
  ASSIGN_OR_RETURN(options.metadata, ParseMetadata(metadata_));
  return options;
}

}  // namespace ulfd::tools

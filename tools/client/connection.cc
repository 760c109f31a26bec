// SPDX-License-Identifier: Apache-2.0
#include "tools/client/connection.h"

#include <openssl/crypto.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/errors.h"
#include "base/host_port.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "base/text_file.h"
#include "base/tls/tls_material.h"
#include "grpcpp/create_channel.h"

namespace ulfd::tools {
namespace {

// What is wrong with the files is said here; gRPC would only log that a channel could not be made.
absl::StatusOr<grpc::SslCredentialsOptions> ReadTlsFiles(const ConnectionOptions& options) {
  grpc::SslCredentialsOptions ssl;
  if (!options.tls_ca.empty()) {
    ASSIGN_OR_RETURN(ssl.pem_root_certs, Annotate(ReadCertificates(options.tls_ca), "--tls_ca"));
  }
  if (options.tls_cert.empty()) return ssl;
  const TlsOptions files{.certificate_file = options.tls_cert, .key_file = options.tls_key};
  ASSIGN_OR_RETURN(const TlsMaterial own,
                   Annotate(ReadTlsMaterial(files, absl::Now()), "--tls_cert and --tls_key"));
  ssl.pem_cert_chain = own.certificate_chain;
  ssl.pem_private_key = own.private_key;
  return ssl;
}

absl::StatusOr<std::string> ReadToken(const std::string& path) {
  constexpr size_t kMaxBytes = 1 << 16;  // More than a header may have.
  ASSIGN_OR_RETURN(const std::string text,
                   Annotate(ReadFileOrPipe(path, kMaxBytes), "--token_file"));
  const absl::string_view token = absl::StripAsciiWhitespace(text);
  if (!token.empty() &&
      std::all_of(token.begin(), token.end(), [](char c) { return absl::ascii_isgraph(c); })) {
    return std::string(token);
  }
  // Nothing of it is shown.
  return InvalidArgument("--token_file: ", path,
                         ": want one token of printable characters and nothing else");
}

// What the handler writes; a handler has no object.
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
std::array<char, 256> overdue = {};

void EndProgram(int) {
  const ssize_t written = write(STDERR_FILENO, overdue.data(), strnlen(overdue.data(), 256));
  _exit(written < 0 ? 2 : 1);
}

void SetAlarm(absl::Duration in) {
  const itimerval timer = {.it_interval = {}, .it_value = absl::ToTimeval(in)};
  setitimer(ITIMER_REAL, &timer, nullptr);
}

}  // namespace

CallAlarm::CallAlarm(absl::string_view call, absl::Duration timeout) {
  if (timeout > absl::Hours(24 * 365)) return;
  const std::string text =
      absl::StrCat("ulf: ", call.substr(0, 100),
                   ": no end after its deadline: ", "the server keeps sending frames\n");
  overdue.fill(0);
  std::copy_n(text.begin(), std::min(text.size(), overdue.size() - 1), overdue.begin());
  std::signal(SIGALRM, &EndProgram);
  SetAlarm(timeout + absl::Seconds(1));
}

CallAlarm::~CallAlarm() { SetAlarm(absl::ZeroDuration()); }

void Connection::Prepare(grpc::ClientContext& context, absl::Duration timeout) const {
  for (const auto& [key, value] : *metadata_) context.AddMetadata(key, value);
  if (timeout == absl::InfiniteDuration()) return;
  context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoNanoseconds(timeout));
}

absl::Status CheckTarget(const std::string& target) {
  if (IsHostAndPort(target) || absl::StartsWith(target, "unix:")) return absl::OkStatus();
  return UsageError(Quote(target), ", want HOST:PORT or unix:PATH");
}

Connector::Connector() : metadata_(std::make_shared<const Metadata>()) {}

absl::StatusOr<Connector> Connector::Create(const ConnectionOptions& options) {
  Connector connector;
  if (options.tls) {
    // gRPC's threads may connect again while the program ends: OpenSSL is to be there still.
    OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr);
    ASSIGN_OR_RETURN(const grpc::SslCredentialsOptions ssl, ReadTlsFiles(options));
    connector.tls_ = grpc::SslCredentials(ssl);
    connector.tls_server_name_ = options.tls_server_name;
  }
  Metadata metadata = options.metadata;
  if (!options.token_file.empty()) {
    ASSIGN_OR_RETURN(const std::string token, ReadToken(options.token_file));
    metadata.emplace_back("authorization", absl::StrCat("Bearer ", token));
    connector.has_token_ = true;
  }
  connector.metadata_ = std::make_shared<const Metadata>(std::move(metadata));
  return connector;
}

absl::StatusOr<Connector> Connector::Create(const ConnectionFlags& flags) {
  ASSIGN_OR_RETURN(const ConnectionOptions options, flags.Options());
  return Create(options);
}

Connection Connector::Connect(const std::string& target, grpc::ChannelArguments arguments) const {
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  std::shared_ptr<grpc::ChannelCredentials> credentials = tls_;
  if (tls_ != nullptr) {
    if (!tls_server_name_.empty()) arguments.SetSslTargetNameOverride(tls_server_name_);
  } else if (has_token_) {
    // Plain text on the wire, but no connection that leaves this machine: nobody reads the token.
    credentials =
        grpc::experimental::LocalCredentials(absl::StartsWith(target, "unix:") ? UDS : LOCAL_TCP);
  } else {
    credentials = grpc::InsecureChannelCredentials();
  }
  return {grpc::CreateCustomChannel(target, credentials, arguments), metadata_};
}

absl::Status FromGrpc(const grpc::Status& status, absl::string_view call) {
  if (status.ok()) return absl::OkStatus();
  const auto code = static_cast<absl::StatusCode>(status.error_code());
  return absl::Status(
      code, absl::StrCat(call, ": ", absl::StatusCodeToString(code), ": ", status.error_message()));
}

std::string NameOr(const std::string& name, int number) {
  return name.empty() ? absl::StrCat(number) : name;
}

}  // namespace ulfd::tools

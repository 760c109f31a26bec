// SPDX-License-Identifier: Apache-2.0
#include "engine/stores/redis_connection.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/errors.h"
#include "base/file.h"
#include "base/load_scope.h"
#include "base/status_macros.h"
#include "base/text.h"

namespace ulfd::engine {
namespace {

constexpr size_t kMaxGreetingBytes = 4096;  // Of a reply.

std::string TlsErrors() {
  char text[256] = "unknown";
  if (const unsigned long code = ERR_get_error(); code != 0) {
    ERR_error_string_n(code, text, sizeof text);
  }
  ERR_clear_error();
  return text;
}

// hiredis reserves a pointer for each element that a node says an array has, before any of them has
// come: up to 16 GB; and 64 bytes for each that comes, which may have three.  `elements`: how many
// there may be.
redisReader* NewReader(size_t* elements) {
  redisReader* const reader = redisReaderCreate();
  static const redisReplyObjectFunctions plain = *reader->fn;
  static redisReplyObjectFunctions bounded = [] {
    redisReplyObjectFunctions functions = plain;
    functions.createArray = [](const redisReadTask* task, int elements) -> void* {
      size_t& left = *static_cast<size_t*>(task->privdata);
      if (static_cast<size_t>(elements) > left) return nullptr;
      left -= static_cast<size_t>(elements);
      return plain.createArray(task, elements);
    };
    return functions;
  }();
  reader->fn = &bounded;
  reader->privdata = elements;
  return reader;
}

}  // namespace

void AppendCommand(const std::vector<absl::string_view>& words, std::string& to) {
  absl::StrAppend(&to, "*", words.size(), "\r\n");
  for (const absl::string_view word : words) {
    absl::StrAppend(&to, "$", word.size(), "\r\n", word, "\r\n");
  }
}

absl::StatusOr<std::unique_ptr<const RedisSecurity>> RedisSecurity::Create(
    const RedisOptions& options) {
  std::unique_ptr<RedisSecurity> security(new RedisSecurity(options));
  if (!options.username.empty() && options.password_file.empty()) {
    return InvalidArgument("a user without a password file");
  }
  if (options.certificate_file.empty() != options.key_file.empty()) {
    return InvalidArgument(options.key_file.empty() ? "a certificate without its key"
                                                    : "a key without its certificate");
  }
  if (options.ca_file.empty() && !options.certificate_file.empty()) {
    return InvalidArgument("a certificate, but not who issued those of the nodes");
  }
  if (options.ca_file.empty()) return security;
  security->tls_ = SSL_CTX_new(TLS_client_method());
  if (security->tls_ == nullptr) return Internal(TlsErrors());
  SSL_CTX* const tls = security->tls_;
  SSL_CTX_set_min_proto_version(tls, TLS1_2_VERSION);
  SSL_CTX_set_mode(tls, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  // A node that sends records without data must not keep OpenSSL reading past the deadline.
  SSL_CTX_clear_mode(tls, SSL_MODE_AUTO_RETRY);
  SSL_CTX_set_verify(tls, SSL_VERIFY_PEER, nullptr);
  const auto bad = [](const std::string& file) { return InvalidArgument(file, ": ", TlsErrors()); };
  if (SSL_CTX_load_verify_locations(tls, options.ca_file.c_str(), nullptr) != 1) {
    return bad(options.ca_file);
  }
  if (options.certificate_file.empty()) return security;
  if (SSL_CTX_use_certificate_chain_file(tls, options.certificate_file.c_str()) != 1) {
    return bad(options.certificate_file);
  }
  if (SSL_CTX_use_PrivateKey_file(tls, options.key_file.c_str(), SSL_FILETYPE_PEM) != 1 ||
      SSL_CTX_check_private_key(tls) != 1) {
    return bad(options.key_file);
  }
  return security;
}

RedisSecurity::~RedisSecurity() { SSL_CTX_free(tls_); }

absl::StatusOr<std::vector<std::string>> RedisSecurity::Greeting() const {
  std::vector<std::string> commands(1);
  if (!options_.password_file.empty()) {
    const LoadScope anywhere{LoadLimits()};  // A file of the configuration, not of the model.
    ASSIGN_OR_RETURN(const std::string file, ReadFile(options_.password_file, 4096));
    const std::vector<std::string> lines = absl::StrSplit(file, absl::MaxSplits('\n', 1));
    const std::string password(absl::StripTrailingAsciiWhitespace(lines[0]));
    if (options_.username.empty()) {
      AppendCommand({"AUTH", password}, commands[0]);
    } else {
      AppendCommand({"AUTH", options_.username, password}, commands[0]);
    }
    commands.emplace_back();
  }
  // Replicas answer then, too.
  AppendCommand({"READONLY"}, commands.back());
  return commands;
}

absl::Status RedisConnection::Failed(absl::string_view what) const {
  return Unavailable("Redis node ", node_, ": ", what);
}

absl::StatusOr<std::unique_ptr<RedisConnection>> RedisConnection::Start(
    const std::string& node, const RedisAddress& address, const RedisSecurity& security) {
  std::unique_ptr<RedisConnection> connection(new RedisConnection(node));
  connection->fd_ =
      socket(address.address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (connection->fd_ < 0) return connection->Failed(std::strerror(errno));
  const int on = 1;
  setsockopt(connection->fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const auto* const any = reinterpret_cast<const sockaddr*>(&address.address);
  if (connect(connection->fd_, any, address.size) != 0 && errno != EINPROGRESS) {
    return connection->Failed(std::strerror(errno));
  }
  if (security.tls() != nullptr) {
    const std::string host = SplitNode(node).first;
    connection->tls_ = SSL_new(security.tls());
    SSL_set_fd(connection->tls_, connection->fd_);
    X509_VERIFY_PARAM* const verify = SSL_get0_param(connection->tls_);
    if (X509_VERIFY_PARAM_set1_ip_asc(verify, host.c_str()) != 1) {
      SSL_set1_host(connection->tls_, host.c_str());
      SSL_set_tlsext_host_name(connection->tls_, host.c_str());
    }
    ERR_clear_error();
  }
  connection->reader_ = NewReader(&connection->elements_);
  ASSIGN_OR_RETURN(const std::vector<std::string> greeting, security.Greeting());
  for (const std::string& command : greeting)
    connection->Send(command, {.replies = 1, .bytes = kMaxGreetingBytes});
  connection->greetings_ = greeting.size();
  return connection;
}

RedisConnection::~RedisConnection() {
  if (reader_ != nullptr) redisReaderFree(reader_);
  SSL_free(tls_);
  if (fd_ >= 0) close(fd_);
}

short RedisConnection::events() const {
  if (state_ == State::kConnecting) return POLLOUT;
  if (state_ == State::kHandshake) return tls_wants_write_ ? POLLOUT : POLLIN;
  return static_cast<short>(POLLIN | (written_ < out_.size() ? POLLOUT : 0));
}

void RedisConnection::Send(absl::string_view commands, const RedisExpected& expected) {
  out_.append(commands.data(), commands.size());
  awaited_ += expected.replies;
  expected_ += expected.bytes;
  elements_ += expected.elements;
}

void RedisConnection::Abandon() { skipped_ = awaited_ - greetings_; }

absl::Status RedisConnection::Garbled() const {
  return Failed(absl::StrCat("no reply of Redis: ", reader_->err == REDIS_ERR_OOM
                                                        ? "more elements than were asked for"
                                                        : Printable(reader_->errstr, 100)));
}

absl::Status RedisConnection::FinishConnect() {
  pollfd poll_fd = {.fd = fd_, .events = POLLOUT, .revents = 0};
  if (poll(&poll_fd, 1, 0) <= 0) return absl::OkStatus();
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) return Failed(std::strerror(error));
  state_ = tls_ == nullptr ? State::kReady : State::kHandshake;
  return absl::OkStatus();
}

absl::Status RedisConnection::TlsFailed(int result, absl::string_view what, bool& again) {
  const int error = SSL_get_error(tls_, result);
  again = error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE;
  tls_wants_write_ = error == SSL_ERROR_WANT_WRITE;
  if (again) return absl::OkStatus();
  const long verified = SSL_get_verify_result(tls_);
  const std::string why = verified != X509_V_OK    ? X509_verify_cert_error_string(verified)
                          : error == SSL_ERROR_SSL ? TlsErrors()
                                                   : "the connection was closed";
  return Failed(absl::StrCat(what, ": ", why));
}

absl::Status RedisConnection::Handshake() {
  ERR_clear_error();
  const int result = SSL_connect(tls_);
  if (result == 1) {
    state_ = State::kReady;
    return absl::OkStatus();
  }
  bool again = false;
  return TlsFailed(result, "TLS", again);
}

absl::StatusOr<size_t> RedisConnection::WriteSome(absl::string_view bytes) {
  if (tls_ != nullptr) {
    ERR_clear_error();
    const int n =
        SSL_write(tls_, bytes.data(), static_cast<int>(std::min<size_t>(bytes.size(), 1 << 24)));
    if (n > 0) return static_cast<size_t>(n);
    bool again = false;
    RETURN_IF_ERROR(TlsFailed(n, "cannot be written to", again));
    return size_t{0};
  }
  const ssize_t n = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (n >= 0) return static_cast<size_t>(n);
  if (errno == EAGAIN || errno == EINTR) return size_t{0};
  return Failed(std::strerror(errno));
}

absl::StatusOr<size_t> RedisConnection::ReadSome(char* to, size_t size) {
  if (tls_ != nullptr) {
    ERR_clear_error();
    const int n = SSL_read(tls_, to, static_cast<int>(size));
    if (n > 0) return static_cast<size_t>(n);
    bool again = false;
    RETURN_IF_ERROR(TlsFailed(n, "cannot be read from", again));
    return size_t{0};
  }
  const ssize_t n = recv(fd_, to, size, 0);
  if (n > 0) return static_cast<size_t>(n);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return size_t{0};
  return Failed(n == 0 ? "the connection was closed" : std::strerror(errno));
}

absl::Status RedisConnection::Write() {
  while (written_ < out_.size()) {
    ASSIGN_OR_RETURN(const size_t n, WriteSome(absl::string_view(out_).substr(written_)));
    if (n == 0) return absl::OkStatus();
    written_ += n;
  }
  out_.clear();
  written_ = 0;
  return absl::OkStatus();
}

absl::Status RedisConnection::Read() {
  char bytes[64 << 10];
  for (;;) {
    ASSIGN_OR_RETURN(const size_t n, ReadSome(bytes, sizeof bytes));
    if (n == 0) return absl::OkStatus();
    received_ += n;
    if (received_ > expected_) {
      return Failed(absl::StrCat("more than the ", expected_, " bytes that its replies may have"));
    }
    if (redisReaderFeed(reader_, bytes, n) != REDIS_OK) {
      return Garbled();
    }
  }
}

absl::Status RedisConnection::Advance() {
  if (state_ == State::kConnecting) RETURN_IF_ERROR(FinishConnect());
  if (state_ == State::kHandshake) RETURN_IF_ERROR(Handshake());
  if (state_ != State::kReady) return absl::OkStatus();
  RETURN_IF_ERROR(Write());
  return Read();
}

absl::StatusOr<RedisReply> RedisConnection::Next() {
  // It would be taken for the reply to what is sent next.
  if (awaited_ == 0 && reader_->pos < reader_->len) return Failed("a reply to nothing");
  while (awaited_ > 0) {
    void* raw = nullptr;
    if (redisReaderGetReply(reader_, &raw) != REDIS_OK) {
      return Garbled();
    }
    RedisReply reply(static_cast<redisReply*>(raw));
    if (reply == nullptr) return reply;
    if (--awaited_ == 0) expected_ = received_ = elements_ = 0;
    if (greetings_ > 0) {
      --greetings_;
      if (reply->type != REDIS_REPLY_ERROR) continue;
      return absl::PermissionDeniedError(
          absl::StrCat("Redis node ", node_, ": ", Printable(TextOf(*reply), 200)));
    }
    if (skipped_ == 0) return reply;
    --skipped_;
  }
  return RedisReply();
}

}  // namespace ulfd::engine

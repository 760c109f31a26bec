// One connection to one Redis node, that never blocks.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_STORES_REDIS_CONNECTION_H_
#define ULFD_ENGINE_STORES_REDIS_CONNECTION_H_

#include <hiredis/hiredis.h>
#include <openssl/ssl.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/stores/redis_names.h"
#include "engine/stores/redis_options.h"

namespace ulfd::engine {

struct FreeReply {
  void operator()(redisReply* reply) const { freeReplyObject(reply); }
};
using RedisReply = std::unique_ptr<redisReply, FreeReply>;
inline absl::string_view TextOf(const redisReply& reply) { return {reply.str, reply.len}; }

// Appends a command to `to`, as Redis reads it.
void AppendCommand(const std::vector<absl::string_view>& words, std::string& to);

// What connections of one cluster share: certificates, if it speaks TLS.  Thread-safe.
class RedisSecurity {
 public:
  // INVALID_ARGUMENT, naming the file.
  static absl::StatusOr<std::unique_ptr<const RedisSecurity>> Create(const RedisOptions& options);
  ~RedisSecurity();
  SSL_CTX* tls() const { return tls_; }  // Null: plain text.
  // The commands that begin a connection; NOT_FOUND if there is no password file.
  absl::StatusOr<std::vector<std::string>> Greeting() const;

 private:
  explicit RedisSecurity(const RedisOptions& options) : options_(options) {}
  const RedisOptions options_;
  SSL_CTX* tls_ = nullptr;
};

// What the replies to some commands have together, at most; a node that sends more loses the
// connection.
struct RedisExpected {
  size_t replies = 1;  // Exactly.
  size_t bytes = 0;
  size_t elements = 0;  // Of arrays, and of those in them.
};

// Commands go out and replies come in, in the same order.  Not thread-safe.  Errors name the node.
class RedisConnection {
 public:
  // Begins to connect to a node, which is at `address`.
  static absl::StatusOr<std::unique_ptr<RedisConnection>> Start(const std::string& node,
                                                                const RedisAddress& address,
                                                                const RedisSecurity& security);
  ~RedisConnection();

  const std::string& node() const { return node_; }
  int fd() const { return fd_; }
  // What to poll for.
  short events() const;
  // Adds what AppendCommand made of commands.
  void Send(absl::string_view commands, const RedisExpected& expected);
  // Moves bytes as far as that is possible at once.  An error ends the connection.
  absl::Status Advance();
  // The next reply that is there as a whole; null: none yet.  What Abandon left is skipped.
  absl::StatusOr<RedisReply> Next();
  // Replies to what was sent so far are of no interest any more.
  void Abandon();
  // Whether the error is that the next reply is longer than all that are awaited may be.
  bool too_long() const { return received_ > expected_ && greetings_ == 0 && skipped_ == 0; }
  // Whether no reply is on its way.
  bool idle() const { return awaited_ == 0; }

 private:
  explicit RedisConnection(std::string node) : node_(std::move(node)) {}
  absl::Status Failed(absl::string_view what) const;
  absl::Status Garbled() const;  // What the reader says is wrong.
  absl::Status FinishConnect();
  absl::Status Handshake();
  absl::Status Write();
  absl::Status Read();
  absl::Status TlsFailed(int result, absl::string_view what, bool& again);
  // Bytes read; 0: none at the moment.
  absl::StatusOr<size_t> ReadSome(char* to, size_t size);
  absl::StatusOr<size_t> WriteSome(absl::string_view bytes);

  enum class State { kConnecting, kHandshake, kReady };
  const std::string node_;
  State state_ = State::kConnecting;
  int fd_ = -1;
  SSL* tls_ = nullptr;
  bool tls_wants_write_ = false;
  redisReader* reader_ = nullptr;
  std::string out_;
  size_t written_ = 0;    // Of out_.
  size_t awaited_ = 0;    // Replies.
  size_t greetings_ = 0;  // Of them, those that only may not be errors,
  size_t skipped_ = 0;    // and those after them that nobody wants.
  size_t expected_ = 0;   // Bytes since it was idle, at most,
  size_t received_ = 0;   // and those that came.
  size_t elements_ = 0;   // That may still come.
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_STORES_REDIS_CONNECTION_H_

// CallLedger: what calls hold, by connection, by caller and all together, and which connection has
// to go for it.
//
// gRPC 1.51 lets a client that does not acknowledge its settings open as many streams as it likes.
// It keeps every reply that a client does not take.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_RPC_CALL_LEDGER_H_
#define ULFD_SERVER_RPC_CALL_LEDGER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"
#include "server/system/room_share.h"

namespace ulfd::server {

// Beyond them a connection is closed.  Bytes are those of replies that wait to be sent, and
// kCallBytes for every call.
struct CallBudget {
  int64_t connection_calls = 512;
  int64_t connection_bytes = int64_t{64} << 20;
  int64_t caller_bytes = int64_t{128} << 20;  // All connections from one address.
  int64_t total_bytes = int64_t{256} << 20;
  // Memory of requests that have been parsed, all together; one more of a client is refused where
  // HasRoom leaves it none.
  int64_t request_bytes = int64_t{256} << 20;
};

// Thread-safe, never blocks.
class CallLedger {
 public:
  // What gRPC and we need for a call that is under way (measured: 14 KB), and its reply, if that is
  // small.
  static constexpr int64_t kSmallReply = 2048;
  static constexpr int64_t kCallBytes = 14336 + kSmallReply;
  // Closes the connection with that peer, because of a word: "calls", "unsent".  Any thread; must
  // not block.
  using Close = std::function<void(const std::string& peer, const char* why)>;

  class Connection;

  explicit CallLedger(const CallBudget& budget);
  ~CallLedger();
  // Before the first call.
  void set_close(Close close) { close_ = std::move(close); }

  // A call has come; `peer` as grpc::ServerContext::peer says it.  Until its End.  `closing`:
  // whether nobody will take a reply, as the connection is being closed.
  Connection* Begin(const std::string& peer, bool* closing = nullptr);
  // A reply waits to be sent.
  void Hold(Connection* connection, int64_t bytes);
  // The call is over, and so are its replies.
  void End(Connection* connection, int64_t held_bytes);

  // So many bytes of a message have come.
  void Receive(Connection* connection, int64_t bytes);
  // false: no memory is left for such a request of the connection, which has a call under way.
  bool ReserveRequest(Connection* connection, int64_t bytes);
  void ReleaseRequest(Connection* connection, int64_t bytes);

  struct Counts {
    int64_t received = 0, under_way = 0;  // Calls.
    int64_t message_bytes = 0;            // Received.
  };
  Counts CountsOf(const std::string& peer) const;
  // The connection has ended.
  void Forget(const std::string& peer);
  // Bytes of all calls, without those of connections that are being closed.
  int64_t held_bytes() const;

 private:
  struct Caller {
    int64_t bytes = 0, connections = 0;
  };
  using Connections = std::map<std::string, std::unique_ptr<Connection>>;
  // A connection that has to go, and the word for why.
  struct Verdict {
    std::string peer;
    const char* why;
  };
  void Count(Connection& connection, int64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Counts, and says who has to go for it.
  std::optional<Verdict> Add(Connection& connection, int64_t bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Of the caller, or of all; there is one.
  Connection& Largest(const Caller* caller) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Verdict Doom(Connection& connection, const char* why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Without the lock: who closes has locks of its own.
  void Execute(const std::optional<Verdict>& verdict) const;
  void MaybeErase(Connection& connection) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const CallBudget budget_;
  Close close_;
  SharedRoom requests_;
  mutable Mutex mu_;
  Connections connections_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, Caller> callers_ ABSL_GUARDED_BY(mu_);  // By address.
  int64_t total_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_RPC_CALL_LEDGER_H_

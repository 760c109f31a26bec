// ConnectionAcceptor: accepts connections and hands them over, as long as there are not too many,
// and closes those that take too much.  (gRPC 1.51 has no limits of its own.)
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_RPC_CONNECTION_ACCEPTOR_H_
#define ULFD_SERVER_RPC_CONNECTION_ACCEPTOR_H_

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "base/file_descriptor.h"
#include "base/mutex.h"
#include "server/observe/logging.h"
#include "server/rpc/call_ledger.h"
#include "server/rpc/connection_hand_over.h"
#include "server/rpc/connection_watch.h"
#include "server/system/listening_socket.h"
#include "server/system/room_share.h"

namespace ulfd::server {

struct AcceptorOptions {
  int max_connections = 10000;
  // A peer that leaves sent data unacknowledged for that long is taken for dead.
  std::chrono::milliseconds user_timeout{20000};
  WatchLimits watch;
  // With TLS, how many handshakes may begin in a second, each once its hello is there as a whole,
  // which it has to be in time.  0: no TLS, connections are handed over as they come.
  int handshakes_per_second = 0;
  std::chrono::milliseconds handshake_timeout{10000};
};

struct ConnectionStats {
  int64_t open = 0, accepted = 0;
  int64_t over_limit = 0;                 // Closed at once, because of max_connections.
  int64_t no_descriptors = 0;             // Times that the process had no file descriptor left.
  std::map<std::string, int64_t> closed;  // For what they took, by the word that says what.
};

// Thread-safe.  Has two threads of its own.
class ConnectionAcceptor {
 public:
  // `hand` takes over the file descriptor, and closes it when the connection ends; it is called on
  // a thread of its own.  `ledger` and `logger` are borrowed.
  ConnectionAcceptor(ListeningSocket socket, const AcceptorOptions& options,
                     std::function<void(int fd)> hand, CallLedger& ledger, Logger& logger);
  // Stop.
  ~ConnectionAcceptor();
  // Listens no longer; what is open stays open.  Once this returns, `hand` is not called any more.
  void Stop();
  // Closes connections as soon as they have no call under way; returns once none is open, or after
  // `patience`.  gRPC 1.51 cancels a call that arrives while the server shuts down; on a closed
  // connection it is UNAVAILABLE, which is tried again.
  void CloseIdle(std::chrono::milliseconds patience);
  ConnectionStats Stats() const;
  // Ends the connection with that peer (as grpc::ServerContext::peer says it), if it is open, and
  // counts it under that word.
  void Close(const std::string& peer, const char* why);

 private:
  // A connection that was handed over.  It is still open while its descriptor names the same
  // socket.
  struct Handed {
    int fd;
    ino_t inode;
    std::string peer, client;  // The latter: ClientOf.
  };
  void Loop();
  void AcceptAll();
  // Room for one more of the client; false: there is none.
  bool TakeRoom(const std::string& client);
  void CountOpen() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void HandOver(FileDescriptor fd, const std::string& peer);
  // Hands over those whose hello has come.
  void TakeHellos();
  // Calls act with a descriptor of the connection's socket; false: it is over already.
  bool OnSocket(const Handed& handed, absl::FunctionRef<void(int fd)> act) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Has the watch look at all connections, and closes those that have to go.
  void LookAtAll();
  // At most one line in ten seconds.
  void Warn(const char* what, int64_t limit);

  ListeningSocket socket_;
  const AcceptorOptions options_;
  CallLedger& ledger_;
  ConnectionWatch watch_;  // The thread's.
  Logger& logger_;
  FileDescriptor wake_;
  // Of the thread: connections whose hello has not come, by descriptor, and who tells when it does.
  struct Mute {
    FileDescriptor fd;
    std::chrono::steady_clock::time_point until;
  };
  std::map<int, Mute> mute_;
  FileDescriptor heard_;
  FileDescriptor spare_;  // OnSocket's, so that a connection can be closed when no other is left.
  std::chrono::steady_clock::time_point next_count_{}, next_warning_{},
      next_look_{};  // The thread's.

  mutable Mutex mu_;
  mutable std::vector<Handed> handed_ ABSL_GUARDED_BY(mu_);
  mutable SharedRoom room_;  // What `handed_` takes of it.
  ConnectionStats stats_ ABSL_GUARDED_BY(mu_);
  std::chrono::steady_clock::time_point next_close_line_ ABSL_GUARDED_BY(mu_){};
  ConnectionHandOver hand_over_;
  Mutex stop_mu_;                                 // One Stop at a time.
  std::thread thread_ ABSL_GUARDED_BY(stop_mu_);  // Last: it uses everything above.
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_RPC_CONNECTION_ACCEPTOR_H_

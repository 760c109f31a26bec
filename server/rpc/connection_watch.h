// ConnectionWatch: looks at open connections from time to time, and says which of them have to go:
// those that take what no call of ours shows (streams that never become calls, messages without
// end, TLS handshakes that do not go on).
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_RPC_CONNECTION_WATCH_H_
#define ULFD_SERVER_RPC_CONNECTION_WATCH_H_

#include <chrono>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "server/rpc/call_ledger.h"

namespace ulfd::server {

struct WatchLimits {
  // HTTP/2 streams of a connection, whether they have become calls or not; clients are told half as
  // many, gRPC 1.51 believes that they know once they say so.
  int64_t streams = 512;
  // Streams of all connections.
  int64_t all_streams = 16384;
  // Bytes that came and belong to no call that was received; twice as many of all together.
  int64_t silent_bytes = int64_t{128} << 20;
  // In ten seconds, streams that ended without becoming a call: refused for their token, or reset
  // at once.  Those that became calls may be as many.
  int64_t lost_streams = 500;
  // With TLS, places for connections.  Those that gRPC has no HTTP/2 for yet, which are in
  // their handshake, leave a sixteenth of them to newcomers.
  int64_t places = std::numeric_limits<int64_t>::max();
};

// Those that TCP received and gRPC has read, so far; 0 if the system does not say.
int64_t ReadBytes(int fd);

// Of one thread.
class ConnectionWatch {
 public:
  struct Connection {
    std::string peer;        // As grpc::ServerContext::peer says it.
    int64_t read_bytes = 0;  // See ReadBytes.
  };
  struct Verdict {
    std::string peer;
    const char* why;  // "streams", "silent", "handshakes" or "refused".
  };
  // `ledger` is borrowed.
  ConnectionWatch(const WatchLimits& limits, const CallLedger& ledger)
      : limits_(limits), ledger_(ledger) {}

  // All that are open.
  std::vector<Verdict> Look(const std::vector<Connection>& connections);

 private:
  using Clock = std::chrono::steady_clock;
  struct State {
    int64_t first_look = 0, look = 0;      // The last one.
    int64_t last_change = 0;               // The last look at which bytes had come.
    intptr_t socket_id = 0;                // Of gRPC's channelz; 0: not found yet.
    int64_t calls = 0, message_bytes = 0;  // Received, at the last look.
    int64_t bytes = 0, silent = 0;         // The latter: of no call.
    int64_t started = 0, ended = 0;        // Streams.
    Clock::time_point window;              // Its begin.
    int64_t window_lost = 0, window_calls = 0;
    bool doomed = false;
  };
  using Size = absl::FunctionRef<int64_t(const State&)>;
  // Forgets the connections that are gone, and finds the sockets of new ones.
  void Meet(const std::vector<Connection>& connections);
  void FindSockets();
  void ReadStreams(State& state) const;
  const char* Judge(const std::string& peer, State& state, Clock::time_point now) const;
  // Together too much: the largest goes, of equals the oldest, until it is not.
  void Shrink(int64_t limit, Size size, const char* why, std::vector<Verdict>& verdicts);

  const WatchLimits limits_;
  const CallLedger& ledger_;
  std::map<std::string, State> states_;  // By peer.
  int64_t look_ = 0;
  intptr_t last_socket_id_ = 0;
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_RPC_CONNECTION_WATCH_H_

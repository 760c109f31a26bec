// ConnectionWatch: looks at open connections from time to time, and says which of them have to go:
// those that take what no call of ours shows (streams that never become calls, headers without
// end).
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_RPC_CONNECTION_WATCH_H_
#define ULFD_SERVER_RPC_CONNECTION_WATCH_H_

#include <chrono>
#include <cstdint>
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
  // Bytes that came since a call was received from the connection; twice as many of all together.
  int64_t silent_bytes = int64_t{128} << 20;
  // The same of all connections together that have sent no call for a while, but for
  // kHandshakeBytes of each, while the process grows for no reason: by growth_bytes more in 0.2
  // seconds than twice that, or than four times what came, where that is at most twice
  // growth_bytes in a second.  A byte of headers may take a hundred.  Of those that have been
  // silent for a second, the growth since then counts: headers may come slowly, too.
  int64_t growing_silent_bytes = int64_t{1} << 20;
  int64_t growth_bytes = int64_t{64} << 20;
  // In ten seconds, streams that ended without becoming a call: refused for their token, or reset
  // at once.  Those that became calls may be as many.
  int64_t lost_streams = 500;
};

// By TCP, so far; 0 if the system does not say.
int64_t ReceivedBytes(int fd);

// Of one thread.
class ConnectionWatch {
 public:
  struct Connection {
    std::string peer;  // As grpc::ServerContext::peer says it.
    int64_t received_bytes = 0;
  };
  struct Verdict {
    std::string peer;
    const char* why;  // "streams", "silent", "refused" or kGrowth.
  };
  // `ledger` is borrowed.
  ConnectionWatch(const WatchLimits& limits, const CallLedger& ledger)
      : limits_(limits), ledger_(ledger) {}

  // All that are open.
  std::vector<Verdict> Look(const std::vector<Connection>& connections);
  // Whether memory grew so much, at the last look, that the next one is urgent.
  bool grows() const { return grows_; }

  // The process grows by what this connection sends.
  static constexpr char kGrowth[] = "growth";
  // What a connection needs to begin; with a stream open, it has.
  static constexpr int64_t kHandshakeBytes = 16384;

 private:
  using Clock = std::chrono::steady_clock;
  struct State {
    int64_t look = 0;         // The last one.
    int64_t last_change = 0;  // The last look at which bytes had come.
    intptr_t socket_id = 0;   // Of gRPC's channelz; 0: not found yet.
    int64_t calls = -1;       // Received, at the last look.
    int64_t bytes = 0, bytes_at_call = 0;
    int64_t memory_at_call = 0;
    Clock::time_point silent_since;
    int64_t started = 0, ended = 0;  // Streams.
    Clock::time_point window;        // Its begin.
    int64_t window_lost = 0, window_calls = 0;
    bool doomed = false;
  };
  // Forgets the connections that are gone, and finds the sockets of new ones.
  void Meet(const std::vector<Connection>& connections);
  void FindSockets();
  void ReadStreams(State& state) const;
  const char* Judge(const std::string& peer, State& state, Clock::time_point now) const;
  bool GrowsForNoReason(Clock::time_point now, int64_t all_silent);
  using Size = absl::FunctionRef<int64_t(const State&)>;
  // Of those that may stay.
  int64_t Sum(Size size) const;
  // Together too much: the largest goes, until it is not.
  void Shrink(int64_t limit, Size size, const char* why, std::vector<Verdict>& verdicts);

  const WatchLimits limits_;
  const CallLedger& ledger_;
  std::map<std::string, State> states_;  // By peer.
  int64_t look_ = 0;
  intptr_t last_socket_id_ = 0;
  int64_t came_ = 0;  // Bytes, by all connections.
  struct Seen {
    Clock::time_point time;
    int64_t memory, came;
  };
  std::vector<Seen> seen_;  // Lately.
  int64_t memory_ = 0;      // At this look.
  bool grows_ = false;
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_RPC_CONNECTION_WATCH_H_

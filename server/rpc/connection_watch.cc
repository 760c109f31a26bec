// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/connection_watch.h"

#include <grpc/grpc.h>
#include <grpc/support/alloc.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"

namespace ulfd::server {
namespace {

using std::chrono::seconds;

constexpr seconds kWindow{10};
// What a connection needs to begin; with a stream open, it has.
constexpr int64_t kHandshakeBytes = 16384;
constexpr int64_t kLooksForAll = 20;
constexpr int64_t kSpareShare = 16;
// gRPC may show a connection after others that were numbered later, so many at most.
constexpr intptr_t kOutOfOrder = 64;

using Json = std::unique_ptr<char, decltype(&gpr_free)>;

Json Own(char* text) { return {text, &gpr_free}; }

// The text of the next string named `key`, and `json` behind it; false: there is none.  Values that
// we ask for hold no quotes.
bool NextText(absl::string_view& json, absl::string_view key, absl::string_view& text) {
  const size_t at = json.find(key);
  if (at == absl::string_view::npos) return false;
  json.remove_prefix(at + key.size());
  const size_t end = json.find('"');
  if (end == absl::string_view::npos) return false;
  text = json.substr(0, end);
  json.remove_prefix(end);
  return true;
}

int64_t NumberOf(absl::string_view json, absl::string_view key) {
  absl::string_view text;
  int64_t number = 0;
  return NextText(json, key, text) && absl::SimpleAtoi(text, &number) ? number : 0;
}

}  // namespace

int64_t ReadBytes(int fd) {
  tcp_info info{};
  socklen_t size = sizeof(info);
  int unread = 0;
  if (ioctl(fd, FIONREAD, &unread) != 0) return 0;
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return 0;
  return static_cast<int64_t>(info.tcpi_bytes_received) - unread;
}

void ConnectionWatch::FindSockets() {
  const Json servers = Own(grpc_channelz_get_servers(0));
  absl::string_view rest = servers == nullptr ? "" : servers.get();
  absl::string_view server;
  const intptr_t first =
      look_ % kLooksForAll == 0 ? 1 : std::max<intptr_t>(1, last_socket_id_ + 1 - kOutOfOrder);
  while (NextText(rest, "\"serverId\":\"", server)) {
    int64_t server_id = 0;
    if (!absl::SimpleAtoi(server, &server_id)) continue;
    for (intptr_t next = first;;) {
      const Json sockets = Own(grpc_channelz_get_server_sockets(server_id, next, 0));
      absl::string_view list = sockets == nullptr ? "" : sockets.get();
      absl::string_view name, id;
      int found = 0;
      while (NextText(list, "\"name\":\"", name) && NextText(list, "\"socketId\":\"", id)) {
        int64_t socket_id = 0;
        if (!absl::SimpleAtoi(id, &socket_id)) continue;
        ++found;
        next = socket_id + 1;
        last_socket_id_ = std::max<intptr_t>(last_socket_id_, socket_id);
        // "chttp2 ipv4:127.0.0.1:4242"
        const auto it = states_.find(std::string(name.substr(name.rfind(' ') + 1)));
        if (it != states_.end()) it->second.socket_id = socket_id;
      }
      if (found == 0) break;
    }
  }
}

void ConnectionWatch::ReadStreams(State& state) const {
  const Json socket = Own(grpc_channelz_get_socket(state.socket_id));
  if (socket == nullptr) return;
  const absl::string_view json = socket.get();
  state.started = NumberOf(json, "\"streamsStarted\":\"");
  state.ended = NumberOf(json, "\"streamsSucceeded\":\"") + NumberOf(json, "\"streamsFailed\":\"");
}

const char* ConnectionWatch::Judge(const std::string& peer, State& state,
                                   Clock::time_point now) const {
  const CallLedger::Counts counts = ledger_.CountsOf(peer);
  const int64_t lost = state.ended - (counts.received - counts.under_way);
  if (counts.received != state.calls) {
    state.silent -= counts.message_bytes - state.message_bytes;
    // Headers are bytes, too: once every stream is a call, all of them belong to calls.
    if (state.started - lost <= counts.received || state.silent < 0) state.silent = 0;
    state.calls = counts.received;
    state.message_bytes = counts.message_bytes;
  }
  if (state.started - state.ended > limits_.streams) return "streams";
  if (state.silent > limits_.silent_bytes) return "silent";
  if (now - state.window > kWindow) {
    state.window = now;
    state.window_lost = lost;
    state.window_calls = counts.received;
  }
  const int64_t lost_lately = lost - state.window_lost;
  if (lost_lately > limits_.lost_streams && lost_lately > counts.received - state.window_calls) {
    return "refused";
  }
  return nullptr;
}

void ConnectionWatch::Meet(const std::vector<Connection>& connections) {
  bool unknown = false;
  for (const Connection& connection : connections) {
    State& state = states_[connection.peer];
    // A port that is used again.
    if (connection.read_bytes < state.bytes) state = State();
    if (state.look == 0) state.first_look = look_;
    state.look = look_;
    unknown |= state.socket_id == 0;
  }
  std::erase_if(states_, [&](const auto& entry) { return entry.second.look != look_; });
  if (unknown) FindSockets();
}

void ConnectionWatch::Shrink(int64_t limit, Size size, const char* why,
                             std::vector<Verdict>& verdicts) {
  using Entry = std::pair<const std::string, State>;
  std::vector<std::pair<int64_t, Entry*>> holders;
  int64_t sum = 0;
  for (Entry& entry : states_) {
    const int64_t own = entry.second.doomed ? 0 : size(entry.second);
    if (own > 0) holders.emplace_back(own, &entry);
    sum += own;
  }
  if (sum <= limit) return;
  std::sort(holders.begin(), holders.end(), [](const auto& a, const auto& b) {
    return std::pair(-a.first, a.second->second.first_look) <
           std::pair(-b.first, b.second->second.first_look);
  });
  for (const auto& [own, entry] : holders) {
    if (sum <= limit) return;
    sum -= own;
    entry->second.doomed = true;
    verdicts.push_back({entry->first, why});
  }
}

std::vector<ConnectionWatch::Verdict> ConnectionWatch::Look(
    const std::vector<Connection>& connections) {
  const auto now = Clock::now();
  ++look_;
  Meet(connections);
  std::vector<Verdict> verdicts;
  for (const Connection& connection : connections) {
    State& state = states_[connection.peer];
    if (state.doomed) continue;
    if (connection.read_bytes != state.bytes) state.last_change = look_;
    // Where nothing came, nothing began; but gRPC may read late what has come.
    const bool may_differ = look_ - state.last_change < kLooksForAll || look_ % kLooksForAll == 0 ||
                            state.started != state.ended;
    if (may_differ && state.socket_id != 0) ReadStreams(state);
    state.silent += connection.read_bytes - state.bytes;
    state.bytes = connection.read_bytes;
    const char* why = Judge(connection.peer, state, now);
    if (why == nullptr) continue;
    state.doomed = true;
    verdicts.push_back({connection.peer, why});
  }
  const auto streams = [](const State& state) { return state.started - state.ended; };
  const auto silent = [](const State& state) {
    // Of many that have a stream open, each may hold little.
    const int64_t allowed = state.started > state.ended ? 0 : kHandshakeBytes;
    return std::max<int64_t>(0, state.silent - allowed);
  };
  Shrink(limits_.all_streams, streams, "streams", verdicts);
  Shrink(2 * limits_.silent_bytes, silent, "silent", verdicts);
  const int64_t begun = std::count_if(states_.begin(), states_.end(), [](const auto& entry) {
    return entry.second.socket_id != 0;
  });
  const int64_t spare = limits_.places / kSpareShare;
  const auto handshakes = [](const State& state) { return int64_t{state.socket_id == 0}; };
  Shrink(std::max(limits_.places - spare - begun, spare), handshakes, "handshakes", verdicts);
  return verdicts;
}

}  // namespace ulfd::server

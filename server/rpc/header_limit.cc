// Functions of gRPC's own HTTP/2 that the library calls through the dynamic linker, which takes the
// program's first (decision 0088).
// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/header_limit.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <string>
#include <unordered_map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/errors.h"
#include "base/mutex.h"
#include "server/rpc/grpc_memory.h"
#include "server/rpc/of_library.h"
#include "server/system/peer.h"
#include "server/system/room_share.h"

struct grpc_chttp2_transport;  // Begins with a grpc_transport.
struct grpc_endpoint;
struct grpc_metadata_batch;
struct grpc_slice;
struct grpc_transport;

// As much of gRPC's declarations as callers need.
struct grpc_chttp2_stream {  // NOLINT(readability-identifier-naming): its name.
  ~grpc_chttp2_stream();
};
// Begins the stream whose headers are read next.
grpc_chttp2_stream* grpc_chttp2_parsing_accept_stream(grpc_chttp2_transport* transport,
                                                      uint32_t id);
grpc_endpoint* grpc_transport_get_endpoint(grpc_transport* transport);
absl::string_view grpc_endpoint_get_peer(grpc_endpoint* endpoint);

namespace grpc_core {

class Channel {
 public:
  // What a call took; the next ones of the connection have so much from their begin.
  void UpdateCallSizeEstimate(size_t size);
};

class HPackParser {
 public:
  enum class Boundary : uint8_t { kMoreFrames, kEndOfHeaders, kEndOfStream };
  enum class Priority : uint8_t;
  struct LogInfo {
    uint32_t stream_id;
    uint8_t type;
    bool is_client;
  };
  ~HPackParser();
  void BeginFrame(grpc_metadata_batch* batch, uint32_t limit, Boundary boundary, Priority priority,
                  LogInfo info);
  absl::Status Parse(const grpc_slice& slice, bool is_last);
};

}  // namespace grpc_core

// A library's functions have no object to keep anything in.
// NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables)
namespace ulfd::server {
namespace {

using grpc_core::HPackParser;

// The largest frame that peers may send, unless gRPC tells them otherwise.
constexpr int64_t kFrameBytes = 16384;

// What fits into a call's first memory, or nearly so, belongs to the call.
constexpr int64_t kUsualBytes = 1024;

// What a call has from its begin, at most: what headers take of it is not seen.
constexpr size_t kFirstBytes = 8192;

std::atomic<int64_t> most_bytes{std::numeric_limits<uint32_t>::max()};
std::atomic<int64_t> most_held{std::numeric_limits<int64_t>::max()};
std::atomic<int64_t> ended{0};

// What this thread has just begun.
struct Begun {
  grpc_chttp2_transport* transport = nullptr;
  const grpc_chttp2_stream* stream = nullptr;
};
thread_local Begun begun;

// What gRPC holds of headers, and for whom.
class Headers {
 public:
  // What is read now; one thread at a time reads a connection.
  struct Connection {
    int64_t frames = 0;   // Of headers that did not end with them.
    int64_t bytes = 0;    // Allocated for headers that are read, as far as they are usual.
    bool counts = false;  // Headers of a call that came to us, and are not skipped.
    Begun of;             // Trailers have no stream that was just begun: the connection holds them.
    std::string client;   // Who is at the other side, once that was asked.
    int64_t held = 0;     // For the stream or the connection.  The mutex guards it.
  };
  // `ends`: no other frame continues them.
  void BeginFrame(const HPackParser* parser, const Begun& of, bool counts, bool ends) {
    Connection& connection = Of(parser);
    if (connection.frames == 0 || !counts) {
      connection.bytes = 0;
      connection.counts = counts;
      connection.of.stream = of.stream;
      if (of.transport != nullptr) connection.of.transport = of.transport;
    }
    connection.frames = ends ? 0 : connection.frames + 1;
  }
  Connection& Of(const HPackParser* parser) {
    MutexLock lock(mu_);
    return connections_[parser];
  }
  // So much was allocated for what is read; false: there is no room.
  bool Add(const HPackParser* parser, Connection& connection, int64_t bytes) {
    connection.bytes += bytes;
    const int64_t more = connection.bytes - kUsualBytes;
    if (!connection.counts || more <= 0) return true;
    connection.bytes = kUsualBytes;
    if (connection.client.empty() && connection.of.transport != nullptr) {
      connection.client = ClientAt(connection.of.transport);
    }
    MutexLock lock(mu_);
    const auto own = of_clients_.find(connection.client);
    const int64_t before = own == of_clients_.end() ? 0 : own->second;
    if (!HasRoom(held_, before, more, most_held.load())) return false;
    if (connection.of.stream != nullptr) {
      Stream& stream = streams_[connection.of.stream];
      stream.parser = parser;
      stream.held += more;
      any_.store(true, std::memory_order_release);
    }
    Hold(connection, more);
    return true;
  }
  void EndStream(const grpc_chttp2_stream* stream) {
    if (!any_.load(std::memory_order_acquire)) return;
    MutexLock lock(mu_);
    const auto it = streams_.find(stream);
    if (it == streams_.end()) return;
    Hold(connections_[it->second.parser], -it->second.held);
    streams_.erase(it);
    any_.store(!streams_.empty(), std::memory_order_release);
  }
  void EndConnection(const HPackParser* parser) {
    MutexLock lock(mu_);
    const auto it = connections_.find(parser);
    if (it == connections_.end()) return;
    if (it->second.held > 0) {
      Hold(it->second, -it->second.held);
      std::erase_if(streams_, [&](const auto& entry) { return entry.second.parser == parser; });
    }
    connections_.erase(it);
  }

 private:
  struct Stream {
    const HPackParser* parser = nullptr;
    int64_t held = 0;
  };
  // One address is one client, also this machine's.
  static std::string ClientAt(grpc_chttp2_transport* transport) {
    grpc_endpoint* const endpoint =
        grpc_transport_get_endpoint(reinterpret_cast<grpc_transport*>(transport));
    return AddressOf(std::string(grpc_endpoint_get_peer(endpoint)));
  }
  void Hold(Connection& connection, int64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const auto own = of_clients_.try_emplace(connection.client).first;
    connection.held += bytes;
    own->second += bytes;
    held_ += bytes;
    if (own->second == 0) of_clients_.erase(own);
  }

  Mutex mu_;
  std::unordered_map<const HPackParser*, Connection> connections_ ABSL_GUARDED_BY(mu_);
  // Those that hold more than usual.
  std::unordered_map<const grpc_chttp2_stream*, Stream> streams_ ABSL_GUARDED_BY(mu_);
  std::unordered_map<std::string, int64_t> of_clients_ ABSL_GUARDED_BY(mu_);
  int64_t held_ ABSL_GUARDED_BY(mu_) = 0;
  std::atomic<bool> any_{false};
};

Headers& headers() {
  static auto* all = new Headers;  // gRPC's threads may outlive static objects.
  return *all;
}

// That do not end the headers: one more than they need.
int64_t MostUnended() { return (most_bytes.load() + kFrameBytes - 1) / kFrameBytes; }

absl::Status EndFor(const char* why) {
  ended.fetch_add(1, std::memory_order_relaxed);
  return ResourceExhausted(why);
}

}  // namespace

void LimitHeaders(int64_t max_header_bytes, int64_t all_header_bytes) {
  most_bytes = std::min<int64_t>(max_header_bytes, std::numeric_limits<uint32_t>::max());
  most_held = all_header_bytes;
}

int64_t EndedForHeaders() { return ended.load(std::memory_order_relaxed); }

}  // namespace ulfd::server

grpc_chttp2_stream* grpc_chttp2_parsing_accept_stream(grpc_chttp2_transport* transport,
                                                      uint32_t id) {
  static auto* const accept =
      ulfd::server::OfLibrary<grpc_chttp2_stream*(grpc_chttp2_transport*, uint32_t)>(
          "_Z33grpc_chttp2_parsing_accept_streamP21grpc_chttp2_transportj");
  grpc_chttp2_stream* const stream = accept(transport, id);
  ulfd::server::begun = {transport, stream};
  return stream;
}

grpc_chttp2_stream::~grpc_chttp2_stream() {
  static auto* const end =
      ulfd::server::OfLibrary<void(grpc_chttp2_stream*)>("_ZN18grpc_chttp2_streamD1Ev");
  ulfd::server::headers().EndStream(this);
  end(this);
}

namespace grpc_core {

void Channel::UpdateCallSizeEstimate(size_t size) {
  static auto* const update = ulfd::server::OfLibrary<void(Channel*, size_t)>(
      "_ZN9grpc_core7Channel22UpdateCallSizeEstimateEm");
  update(this, std::min(size, ulfd::server::kFirstBytes));
}

HPackParser::~HPackParser() {
  static auto* const end =
      ulfd::server::OfLibrary<void(HPackParser*)>("_ZN9grpc_core11HPackParserD1Ev");
  ulfd::server::headers().EndConnection(this);
  end(this);
}

void HPackParser::BeginFrame(grpc_metadata_batch* batch, uint32_t limit, Boundary boundary,
                             Priority priority, LogInfo info) {
  static auto* const begin = ulfd::server::OfLibrary<void(HPackParser*, grpc_metadata_batch*,
                                                          uint32_t, Boundary, Priority, LogInfo)>(
      "_ZN9grpc_core11HPackParser10BeginFrameEP19grpc_metadata_batchjNS0_8BoundaryENS0_"
      "8PriorityENS0_7LogInfoE");
  // Of frames that it skips, gRPC 1.51 says the opposite.
  if (batch == nullptr) {
    boundary = boundary == Boundary::kMoreFrames ? Boundary::kEndOfHeaders : Boundary::kMoreFrames;
  }
  ulfd::server::headers().BeginFrame(this, std::exchange(ulfd::server::begun, {}),
                                     batch != nullptr && !info.is_client,
                                     boundary != Boundary::kMoreFrames);
  const auto most = static_cast<uint32_t>(ulfd::server::most_bytes.load());
  begin(this, batch, std::min(limit, most), boundary, priority, info);
}

absl::Status HPackParser::Parse(const grpc_slice& slice, bool is_last) {
  static auto* const parse =
      ulfd::server::OfLibrary<absl::Status(HPackParser*, const grpc_slice&, bool)>(
          "_ZN9grpc_core11HPackParser5ParseERK10grpc_sliceb");
  ulfd::server::Headers& all = ulfd::server::headers();
  ulfd::server::Headers::Connection& connection = all.Of(this);
  if (connection.frames > ulfd::server::MostUnended()) {
    return ulfd::server::EndFor("headers go on over too many frames");
  }
  const int64_t before = ulfd::server::GrpcBytesOfThread();
  absl::Status parsed = parse(this, slice, is_last);
  if (parsed.ok() && !all.Add(this, connection, ulfd::server::GrpcBytesOfThread() - before)) {
    return ulfd::server::EndFor("the headers of all open calls take too much");
  }
  return parsed;
}

}  // namespace grpc_core

// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)

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
  void BeginFrame(grpc_metadata_batch* batch, uint32_t limit, Boundary boundary, Priority priority,
                  LogInfo info);
  absl::Status Parse(const grpc_slice& slice, bool is_last);
};

}  // namespace grpc_core

// A library's functions have no object to keep anything in.
// NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables)
namespace ulfd::server {
namespace {

// The largest frame that peers may send, unless gRPC tells them otherwise.
constexpr int64_t kFrameBytes = 16384;

// What fits into a call's first memory, or nearly so, belongs to the call.
constexpr int64_t kUsualBytes = 1024;

// What a call has from its begin, at most: what headers take of it is not seen.
constexpr size_t kFirstBytes = 8192;

std::atomic<int64_t> most_bytes{std::numeric_limits<uint32_t>::max()};
std::atomic<int64_t> most_held{std::numeric_limits<int64_t>::max()};
std::atomic<int64_t> ended{0};

// The connection that this thread reads.
thread_local ConnectionHeaders* reading = nullptr;

// One address is one client, also this machine's.
std::string ClientAt(grpc_chttp2_transport* transport) {
  // The transport begins with one.
  grpc_endpoint* const endpoint =
      grpc_transport_get_endpoint(reinterpret_cast<grpc_transport*>(transport));
  return AddressOf(std::string(grpc_endpoint_get_peer(endpoint)));
}

}  // namespace

// What gRPC holds of headers beyond the usual, and for whom.
class HeldHeaders {
 public:
  // false: there is no room.
  bool Add(ConnectionHeaders& connection, int64_t bytes) {
    MutexLock lock(mu_);
    const auto own = of_clients_.find(connection.client_);
    const int64_t before = own == of_clients_.end() ? 0 : own->second;
    if (!HasRoom(held_, before, bytes, most_held.load())) return false;
    if (connection.stream_ != nullptr) {
      Stream& stream = streams_.try_emplace(connection.stream_, Stream{&connection}).first->second;
      stream.held += bytes;
      any_.store(true, std::memory_order_release);
    }
    Hold(connection, bytes);
    return true;
  }
  void EndStream(const grpc_chttp2_stream* stream) {
    if (!any_.load(std::memory_order_acquire)) return;
    MutexLock lock(mu_);
    const auto it = streams_.find(stream);
    if (it == streams_.end()) return;
    Hold(*it->second.connection, -it->second.held);
    streams_.erase(it);
    any_.store(!streams_.empty(), std::memory_order_release);
  }
  void EndConnection(ConnectionHeaders& connection) {
    MutexLock lock(mu_);
    if (connection.held_ == 0) return;
    Hold(connection, -connection.held_);
    std::erase_if(streams_,
                  [&](const auto& entry) { return entry.second.connection == &connection; });
  }

 private:
  struct Stream {
    ConnectionHeaders* connection;
    int64_t held = 0;
  };
  void Hold(ConnectionHeaders& connection, int64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const auto own = of_clients_.try_emplace(connection.client_).first;
    connection.held_ += bytes;
    own->second += bytes;
    held_ += bytes;
    if (own->second == 0) of_clients_.erase(own);
  }

  Mutex mu_;
  // Those that hold more than usual.
  std::unordered_map<const grpc_chttp2_stream*, Stream> streams_ ABSL_GUARDED_BY(mu_);
  std::unordered_map<std::string, int64_t> of_clients_ ABSL_GUARDED_BY(mu_);
  int64_t held_ ABSL_GUARDED_BY(mu_) = 0;
  std::atomic<bool> any_{false};
};

namespace {

HeldHeaders& held_headers() {
  static auto* all = new HeldHeaders;  // gRPC's threads may outlive static objects.
  return *all;
}

// That do not end the headers: one more than they need.
int64_t MostUnended() { return (most_bytes.load() + kFrameBytes - 1) / kFrameBytes; }

absl::Status EndFor(const char* why) {
  ended.fetch_add(1, std::memory_order_relaxed);
  return ResourceExhausted(why);
}

}  // namespace

ConnectionHeaders::~ConnectionHeaders() { held_headers().EndConnection(*this); }

void ConnectionHeaders::BeginFrame(bool counts, bool ends) {
  const grpc_chttp2_stream* const begun = std::exchange(begun_, nullptr);
  if (frames_ == 0 || !counts) {
    bytes_ = 0;
    counts_ = counts;
    stream_ = begun;
  }
  frames_ = ends ? 0 : frames_ + 1;
}

bool ConnectionHeaders::Add(int64_t bytes) {
  bytes_ += bytes;
  const int64_t more = bytes_ - kUsualBytes;
  if (!counts_ || more <= 0) return true;
  bytes_ = kUsualBytes;
  if (client_.empty()) client_ = ClientAt(transport_);
  return held_headers().Add(*this, more);
}

HeaderReading::HeaderReading(ConnectionHeaders& headers) { reading = &headers; }
HeaderReading::~HeaderReading() { reading = nullptr; }

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
  ulfd::server::reading->BeginStream(stream);
  return stream;
}

grpc_chttp2_stream::~grpc_chttp2_stream() {
  static auto* const end =
      ulfd::server::OfLibrary<void(grpc_chttp2_stream*)>("_ZN18grpc_chttp2_streamD1Ev");
  ulfd::server::held_headers().EndStream(this);
  end(this);
}

namespace grpc_core {

void Channel::UpdateCallSizeEstimate(size_t size) {
  static auto* const update = ulfd::server::OfLibrary<void(Channel*, size_t)>(
      "_ZN9grpc_core7Channel22UpdateCallSizeEstimateEm");
  update(this, std::min(size, ulfd::server::kFirstBytes));
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
  ulfd::server::reading->BeginFrame(batch != nullptr && !info.is_client,
                                    boundary != Boundary::kMoreFrames);
  const auto most = static_cast<uint32_t>(ulfd::server::most_bytes.load());
  begin(this, batch, std::min(limit, most), boundary, priority, info);
}

absl::Status HPackParser::Parse(const grpc_slice& slice, bool is_last) {
  static auto* const parse =
      ulfd::server::OfLibrary<absl::Status(HPackParser*, const grpc_slice&, bool)>(
          "_ZN9grpc_core11HPackParser5ParseERK10grpc_sliceb");
  ulfd::server::ConnectionHeaders& headers = *ulfd::server::reading;
  if (headers.frames() > ulfd::server::MostUnended()) {
    return ulfd::server::EndFor("headers go on over too many frames");
  }
  const int64_t before = ulfd::server::GrpcBytesOfThread();
  absl::Status parsed = parse(this, slice, is_last);
  if (parsed.ok() && !headers.Add(ulfd::server::GrpcBytesOfThread() - before)) {
    return ulfd::server::EndFor("the headers of all open calls take too much");
  }
  return parsed;
}

}  // namespace grpc_core

// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)

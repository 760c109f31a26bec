// A limit for the headers that gRPC reads, and for those of all calls that are open.
//
// gRPC 1.51 bounds headers only for peers that acknowledge its SETTINGS, and within each HEADERS or
// CONTINUATION frame alone.  One byte on the wire may name a header that takes 64 in memory, and a
// header that goes on over frames is read again with each of them.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_RPC_HEADER_LIMIT_H_
#define ULFD_SERVER_RPC_HEADER_LIMIT_H_

#include <cstdint>
#include <string>

struct grpc_chttp2_stream;
struct grpc_chttp2_transport;

namespace ulfd::server {

// For all connections of the process, those to others too.  With more in one frame, or more frames
// than so much needs, the connection ends; so does one whose headers no longer fit beside those of
// all calls that are open.  Of that room one address may take some times what is left; headers of
// usual size, and those of answers to our own calls, take none.
void LimitHeaders(int64_t max_header_bytes, int64_t all_header_bytes);

// Connections that ended for it so far.
int64_t EndedForHeaders();

// What is read of one connection's headers, and what gRPC holds of them.  One thread at a time
// reads a connection.
class ConnectionHeaders {
 public:
  // The transport is borrowed.
  explicit ConnectionHeaders(grpc_chttp2_transport* transport) : transport_(transport) {}
  ConnectionHeaders(const ConnectionHeaders&) = delete;
  ConnectionHeaders& operator=(const ConnectionHeaders&) = delete;
  // Nothing is held any more.
  ~ConnectionHeaders();

  // What the next frame is of.
  void BeginStream(const grpc_chttp2_stream* stream) { begun_ = stream; }
  // `counts`: the headers are of a call that came to us, and are not skipped.  `ends`: no other
  // frame continues them.
  void BeginFrame(bool counts, bool ends);
  // Of headers that did not end with them.
  int64_t frames() const { return frames_; }
  // So much was allocated for what is read; false: there is no room.
  bool Add(int64_t bytes);

 private:
  friend class HeldHeaders;

  grpc_chttp2_transport* const transport_;
  const grpc_chttp2_stream* begun_ = nullptr;
  // Trailers have no stream that was just begun: the connection holds them.
  const grpc_chttp2_stream* stream_ = nullptr;
  int64_t frames_ = 0;
  int64_t bytes_ = 0;  // As far as they are usual.
  bool counts_ = false;
  std::string client_;  // Who is at the other side, once that was asked.
  int64_t held_ = 0;    // For its streams or itself.  The mutex of HeldHeaders guards it.
};

// While it lives, this thread reads that connection.
class HeaderReading {
 public:
  explicit HeaderReading(ConnectionHeaders& headers);
  HeaderReading(const HeaderReading&) = delete;
  HeaderReading& operator=(const HeaderReading&) = delete;
  ~HeaderReading();
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_RPC_HEADER_LIMIT_H_

// A bound on how many HTTP/2 frames a connection brings: gRPC's thread that reads a connection
// reads on as long as frames come, and each takes its time, however little it brings.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_RPC_FRAME_LIMIT_H_
#define ULFD_SERVER_RPC_FRAME_LIMIT_H_

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace ulfd::server {

// Frames of one direction of a connection.
class FrameCount {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // A frame is paid for by so many bytes in it, or by time.
  static constexpr int64_t kPaidBytes = 64;
  static constexpr int64_t kFreePerSecond = 100'000;
  // That are not paid for yet.
  static constexpr int64_t kMostOwed = 20'000;

  // The next bytes of the connection, which gRPC reads now; false: more frames than that.
  bool Add(const uint8_t* bytes, size_t size, TimePoint now);

 private:
  void Begin(size_t length);

  bool begun_ = false;
  size_t head_ = 0, length_ = 0;  // Of the next frame: what has come of its head, and of its size.
  size_t left_ = 0;               // Of the current one.
  int64_t owed_bytes_ = 0;
  TimePoint last_;
};

// Connections that brought more, so far.
int64_t EndedForFrames();

}  // namespace ulfd::server

#endif  // ULFD_SERVER_RPC_FRAME_LIMIT_H_

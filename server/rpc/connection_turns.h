// How connections take turns, and a bound on how many HTTP/2 frames one brings.
//
// gRPC 1.51 reads a connection as long as something comes, and then no other until all calls that
// came are answered.  So what goes beyond a turn is kept, and read once no call waits for the
// receiving thread, which looks at other connections before it gives the next turn.  A client's
// connection that ends takes a turn, in which all of its calls are cancelled.  Frames take
// their time, too, however little they bring.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_RPC_CONNECTION_TURNS_H_
#define ULFD_SERVER_RPC_CONNECTION_TURNS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>

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

  // What a connection may bring before others have their turn.
  struct Turn {
    int64_t calls = 16;
    size_t bytes = 512 << 10;
  };

  // The next bytes of the connection; how many of them gRPC may read in this turn.
  size_t Add(const uint8_t* bytes, size_t size, TimePoint now, Turn& turn);
  // It has brought more than that.
  bool too_many() const { return owed_bytes_ > kMostOwed * kPaidBytes; }
  // They began with a client's preface.
  bool of_client() const { return of_client_; }

 private:
  void Begin(size_t length);

  bool begun_ = false, of_client_ = false;
  size_t head_ = 0, length_ = 0;  // Of the next frame: what has come of its head, and of its size.
  size_t left_ = 0;               // Of the current one.
  int64_t owed_bytes_ = 0;
  TimePoint last_;
};

// Whether a connection waits for its turn, which a thread gives that begins to wait for calls.
bool TurnsWait();

// While it lives, `wake` is called for each connection that begins to wait on a thread that
// receives no calls: those that do may all wait for events.  Any thread; it must not block or call
// gRPC.
class TurnWaker {
 public:
  explicit TurnWaker(std::function<void()> wake);
  TurnWaker(const TurnWaker&) = delete;
  TurnWaker& operator=(const TurnWaker&) = delete;
  ~TurnWaker();

 private:
  const std::function<void()> wake_;
};

// Connections that brought more, so far.
int64_t EndedForFrames();

}  // namespace ulfd::server

#endif  // ULFD_SERVER_RPC_CONNECTION_TURNS_H_

// Replies that leave together: what a thread sends on one connection while it answers the calls that one read brought.
//
// A reply of its own costs a walk through the kernel's network code, on loopback into the client's thread, and the client a
// wake-up and a read.  gRPC 1.51 writes each reply as soon as it is finished and cannot be told to wait, so the wait is put
// where it sends: this program has a `sendmsg` of its own (send_burst.cc), which adds MSG_MORE.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SEND_BURST_H_
#define ULFD_SERVER_SEND_BURST_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace ulfd::server {

// Belongs to one thread, which flushes it before it waits for anything.
//
// The first reply on a connection leaves at once, the following ones wait for up to kLongest.  Where that gathers too little
// (calls that come one by one, or each on a connection of its own), it is tried ever less often.
class SendBurst {
 public:
  // `gathered` counts the sends that waited; borrowed.
  explicit SendBurst(std::atomic<int64_t>& gathered) : gathered_(gathered) {}
  ~SendBurst() { Flush(); }
  SendBurst(const SendBurst&) = delete;
  SendBurst& operator=(const SendBurst&) = delete;

  // While one exists, what this thread sends may join the burst.  At its end, a burst that has waited for long enough leaves.
  class Gathering {
   public:
    explicit Gathering(SendBurst& burst);
    ~Gathering();
    Gathering(const Gathering&) = delete;
    Gathering& operator=(const Gathering&) = delete;

   private:
    SendBurst& burst_;
    const int sends_before_;
  };

  // Whether anything waits to be sent.
  bool holds() const { return sends_ > 0; }
  // Sends it.
  void Flush();

  // What `sendmsg` asks: whether the thread gathers, and this send is to wait.
  static bool Take(int socket);

 private:
  // Less than clients notice, more than it takes to answer a handful of cheap calls.
  static constexpr std::chrono::microseconds kLongest{100};
  static constexpr size_t kMostSockets = 8;  // The sends on more of them do not wait.
  static constexpr int kWorthWaiting = 3;    // Sends.
  static constexpr int kMostSkipped = 64;  // Sends that could have waited, until it is tried again.

  bool Join(int socket);

  std::atomic<int64_t>& gathered_;
  int last_socket_ = -1;  // Of the last send.
  std::array<int, kMostSockets> sockets_;
  size_t held_sockets_ = 0;
  int sends_ = 0;  // That wait.
  std::chrono::steady_clock::time_point since_;
  int skip_ = 0;       // As many sends more go out at once.
  int last_skip_ = 0;  // After the last burst.
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SEND_BURST_H_

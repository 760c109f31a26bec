// Bursts of replies, and the `sendmsg` that keeps them waiting.
// SPDX-License-Identifier: Apache-2.0
#include "server/send_burst.h"

#include <dlfcn.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>

namespace ulfd::server {
namespace {

using std::chrono::steady_clock;

thread_local SendBurst* gathering = nullptr;

}  // namespace

SendBurst::Gathering::Gathering(SendBurst& burst) : burst_(burst), sends_before_(burst.sends_) {
  gathering = &burst;
}

SendBurst::Gathering::~Gathering() {
  gathering = nullptr;
  if (burst_.sends_ == sends_before_) return;
  const auto now = steady_clock::now();
  if (sends_before_ == 0) burst_.since_ = now;
  if (now - burst_.since_ >= kLongest) burst_.Flush();
}

bool SendBurst::Take(int socket) { return gathering != nullptr && gathering->Join(socket); }

bool SendBurst::Join(int socket) {
  if (last_socket_ != socket) {
    last_socket_ = socket;
    return false;
  }
  if (skip_ > 0) {
    --skip_;
    return false;
  }
  const auto end = sockets_.begin() + held_sockets_;
  if (std::find(sockets_.begin(), end, socket) == end) {
    if (held_sockets_ == kMostSockets) return false;
    sockets_[held_sockets_++] = socket;
  }
  ++sends_;
  return true;
}

void SendBurst::Flush() {
  if (!holds()) return;
  gathered_.fetch_add(sends_, std::memory_order_relaxed);
  // The option is set already on every connection of ours; setting it sends what waits (tcp(7)).  Of a socket that was closed
  // meanwhile nothing waits, and whatever has its number now loses nothing by this.
  for (size_t i = 0; i < held_sockets_; ++i) {
    const int on = 1;
    setsockopt(sockets_[i], IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  }
  last_skip_ = sends_ >= kWorthWaiting ? 0 : std::clamp(2 * last_skip_, 1, kMostSkipped);
  skip_ = last_skip_;
  held_sockets_ = 0;
  sends_ = 0;
}

}  // namespace ulfd::server

// The C library's, for every library of this process, as an allocator takes the place of malloc.
extern "C" ssize_t sendmsg(int socket, const msghdr* message, int flags) {
  using Function = ssize_t (*)(int, const msghdr*, int);
  static const auto next = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "sendmsg"));
  return next(socket, message, ulfd::server::SendBurst::Take(socket) ? flags | MSG_MORE : flags);
}

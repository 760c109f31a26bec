// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/connection_hand_over.h"

#include <poll.h>
#include <pthread.h>

#include <utility>

namespace ulfd::server {
namespace {

// The peer has gone, or will take nothing: what it has sent would be read and answered for nobody.
bool HasLeft(int fd) {
  pollfd look{fd, POLLRDHUP, 0};
  return poll(&look, 1, 0) > 0;
}

}  // namespace

ConnectionHandOver::ConnectionHandOver(std::function<void(int fd)> hand,
                                       std::chrono::nanoseconds pace)
    : hand_(std::move(hand)), pace_(pace), thread_([this] { Loop(); }) {}

ConnectionHandOver::~ConnectionHandOver() { Stop(); }

void ConnectionHandOver::Add(FileDescriptor fd) {
  MutexLock lock(mu_);
  waiting_.push_back(std::move(fd));
  changed_.NotifyAll();
}

void ConnectionHandOver::Stop() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
    waiting_.clear();
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

void ConnectionHandOver::Loop() {
  pthread_setname_np(pthread_self(), "ulfd-hand-over");
  for (auto due = std::chrono::steady_clock::now();;
       due = std::chrono::steady_clock::now() + pace_) {
    FileDescriptor next;
    {
      MutexLock lock(mu_);
      while (!stopping_ && waiting_.empty()) changed_.Wait(mu_);
      while (!stopping_ && changed_.WaitUntil(mu_, due)) {
      }
      if (stopping_) return;
      next = std::move(waiting_.front());
      waiting_.pop_front();
    }
    if (!HasLeft(next.get())) hand_(next.release());
  }
}

}  // namespace ulfd::server

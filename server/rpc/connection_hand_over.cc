// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/connection_hand_over.h"

#include <poll.h>
#include <pthread.h>

#include <utility>

#include "server/system/threads.h"

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

ConnectionHandOver::~ConnectionHandOver() {
  Stop([](const std::string&) {});
}

void ConnectionHandOver::Add(FileDescriptor fd, const std::string& peer) {
  MutexLock lock(mu_);
  waiting_.push_back({std::move(fd), peer});
  changed_.NotifyAll();
}

std::string ConnectionHandOver::Holding() {
  MutexLock lock(mu_);
  const bool holds =
      !handing_.empty() && !waiting_.empty() && CpuTimeOf(thread_) - begin_ > kLongest;
  return holds ? handing_ : "";
}

void ConnectionHandOver::Stop(const std::function<void(const std::string& peer)>& cut) {
  std::string holding;
  {
    MutexLock lock(mu_);
    stopping_ = true;
    waiting_.clear();
    changed_.NotifyAll();
    const auto end = std::chrono::steady_clock::now() + kLongest;
    while (!handing_.empty() && changed_.WaitUntil(mu_, end)) {
    }
    holding = handing_;
  }
  if (!holding.empty()) cut(holding);
  if (thread_.joinable()) thread_.join();
}

void ConnectionHandOver::Loop() {
  pthread_setname_np(pthread_self(), "ulfd-hand-over");
  for (auto due = std::chrono::steady_clock::now();;
       due = std::chrono::steady_clock::now() + pace_) {
    Waiting next;
    {
      MutexLock lock(mu_);
      handing_.clear();
      changed_.NotifyAll();
      while (!stopping_ && waiting_.empty()) changed_.Wait(mu_);
      while (!stopping_ && changed_.WaitUntil(mu_, due)) {
      }
      if (stopping_) return;
      next = std::move(waiting_.front());
      waiting_.pop_front();
      handing_ = std::move(next.peer);
      begin_ = CpuTimeOfThisThread();
    }
    if (!HasLeft(next.fd.get())) hand_(next.fd.release());
  }
}

}  // namespace ulfd::server

// SPDX-License-Identifier: Apache-2.0
#include "server/system/background_queue.h"

#include <system_error>
#include <utility>

#include "server/system/threads.h"

namespace ulfd::server {

BackgroundQueue::~BackgroundQueue() {
  std::thread thread;
  {
    MutexLock lock(mu_);
    stopping_.store(true);
    wake_.NotifyAll();
    thread.swap(thread_);
  }
  if (thread.joinable()) thread.join();
}

void BackgroundQueue::Add(std::function<void()> work) {
  MutexLock lock(mu_);
  if (stopping_.load()) return;
  waiting_.push_back(std::move(work));
  wake_.NotifyAll();
  if (thread_.joinable()) return;
  try {
    thread_ = std::thread([this] { Run(); });
  } catch (const std::system_error&) {
    // Refused; what waits goes on waiting.
  }
}

bool BackgroundQueue::SleepFor(std::chrono::nanoseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  MutexLock lock(mu_);
  while (!stopping_.load() && std::chrono::steady_clock::now() < end) wake_.WaitUntil(mu_, end);
  return !stopping_.load();
}

void BackgroundQueue::Run() {
  MakeBackgroundThread(name_);
  while (true) {
    std::function<void()> work;
    {
      MutexLock lock(mu_);
      while (!stopping_.load() && waiting_.empty()) wake_.Wait(mu_);
      if (stopping_.load()) return;
      work = std::move(waiting_.front());
      waiting_.pop_front();
    }
    work();
  }
}

}  // namespace ulfd::server

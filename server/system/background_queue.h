// BackgroundQueue: work that is done aside, one piece after another, at low priority.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SYSTEM_BACKGROUND_QUEUE_H_
#define ULFD_SERVER_SYSTEM_BACKGROUND_QUEUE_H_

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"

namespace ulfd::server {

// Has a background thread (MakeBackgroundThread) from the first piece on.  Thread-safe.
class BackgroundQueue {
 public:
  // `name`: of the thread; borrowed.
  explicit BackgroundQueue(const char* name) : name_(name) {}
  // Forgets what waits, and returns once the piece that runs has returned.
  ~BackgroundQueue();
  BackgroundQueue(const BackgroundQueue&) = delete;
  BackgroundQueue& operator=(const BackgroundQueue&) = delete;

  // Where the system refuses a thread, the piece waits for the next Add.
  void Add(std::function<void()> work);
  // For pieces, which are to end soon once it is true.
  const std::atomic<bool>& stopping() const { return stopping_; }
  // false: stopping.
  bool SleepFor(std::chrono::nanoseconds time);

 private:
  void Run();

  const char* const name_;
  std::atomic<bool> stopping_{false};
  Mutex mu_;
  CondVar wake_;
  std::deque<std::function<void()>> waiting_ ABSL_GUARDED_BY(mu_);
  std::thread thread_ ABSL_GUARDED_BY(mu_);
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SYSTEM_BACKGROUND_QUEUE_H_

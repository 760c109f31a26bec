// Sends the calls of a load when they are due, and counts what becomes of them.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_LOAD_LOAD_GENERATOR_H_
#define ULFD_TOOLS_LOAD_LOAD_GENERATOR_H_

#include <grpcpp/completion_queue.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>

#include "base/mutex.h"
#include "tools/load/arrivals.h"
#include "tools/load/load_targets.h"
#include "tools/load/request_source.h"
#include "tools/load/results.h"

namespace ulfd::tools {

struct LoadPlan {
  Arrivals arrivals;        // Null: a closed loop.
  int64_t concurrency = 1;  // Of the closed loop.
  int64_t duration_ns = 0;  // Calls due later are not sent.
  int64_t calls = 0;        // 0: no limit.
  int64_t timeout_us = 1000000;
  int64_t max_in_flight = 10000;
  Metadata metadata;
};

// Two threads suffice: one sends, sleeping until a call is due; one takes the replies.  Serialised
// requests are handed to gRPC by reference, replies are not parsed.
class LoadGenerator {
 public:
  // Everything is borrowed but the plan.
  LoadGenerator(LoadPlan plan, const RequestSource& requests, LoadTargets& targets,
                LoadResults& results);

  // Sends until the plan ends or `stop` is set, then waits for the replies: no longer than the
  // longest time-out.  Blocks; once.
  void Run(const std::atomic<bool>& stop);

  // Any thread.
  int64_t in_flight() const { return in_flight_.load(std::memory_order_relaxed); }
  // Time since the generator was made, which is when the load starts.
  int64_t NowNs() const { return (std::chrono::steady_clock::now() - start_).count(); }
  // After Run: until when calls were sent.
  int64_t sent_until_ns() const { return sent_until_ns_; }

 private:
  struct Call;
  void Send(const std::atomic<bool>& stop);
  // When the next call is due; nothing: no more calls.  Returns when it is due.
  std::optional<int64_t> AwaitNext(const std::atomic<bool>& stop);
  std::optional<int64_t> AwaitPlace(const std::atomic<bool>& stop);
  // False: stopped.
  bool SleepUntil(int64_t ns, const std::atomic<bool>& stop) const;
  void Start(int64_t intended_ns, int target, const LoadRequest& request);
  void TakeReplies();

  LoadPlan plan_;
  const RequestSource& requests_;
  LoadTargets& targets_;
  LoadResults& results_;
  const std::chrono::steady_clock::time_point start_;
  int64_t sent_until_ns_ = 0;
  grpc::CompletionQueue queue_;
  std::atomic<int64_t> in_flight_{0};
  Mutex mu_;
  CondVar ended_;  // A call has ended.
};

}  // namespace ulfd::tools

#endif  // ULFD_TOOLS_LOAD_LOAD_GENERATOR_H_

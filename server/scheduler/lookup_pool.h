// LookupPool: the threads on which calls wait for rows of tables that are not in memory, before
// they queue for a worker.  Knows nothing of gRPC, models or stores.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SCHEDULER_LOOKUP_POOL_H_
#define ULFD_SERVER_SCHEDULER_LOOKUP_POOL_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "base/mutex.h"
#include "server/scheduler/clock.h"

namespace ulfd::server {

// A call whose rows are to be fetched.
class Lookup {
 public:
  virtual ~Lookup() = default;
  // Who is to get a share of the threads; constant.
  virtual const std::string& client() const = 0;
  // Until when it waits for rows; constant.
  virtual TimePoint fetch_deadline() const = 0;
  // Blocks, not for long beyond fetch_deadline.  On a lookup thread; left out if none is free in
  // time.
  virtual void FetchRows() = 0;
  // Goes on with the rows that are there; may destroy the call.  Must not block.
  virtual void RowsEnded() = 0;
};

// Thread-safe.  Clients take turns; of one the call with the least time left goes first.
class LookupPool {
 public:
  // `max_waiting`: calls that wait for a thread; of one client no more than HasRoom allows.
  LookupPool(int threads, int64_t max_waiting);
  // Ends all calls as if their time were over, then joins the threads.
  ~LookupPool();

  // Borrows the call until RowsEnded.  RESOURCE_EXHAUSTED (see refusal.h): the call was not taken.
  absl::Status Submit(Lookup* call);
  int64_t waiting() const;
  // True every few seconds at most: whether to log what a fetch ended with.
  bool MayReport(TimePoint now);

 private:
  using Waiting = std::set<std::pair<TimePoint, Lookup*>>;  // The one with the least time first.
  struct Client {
    Waiting waiting;   // One at least.
    int64_t turn = 0;  // The least comes next.
  };

  void FetchLoop();
  // Lets calls go on for which no thread is free in time.
  void ExpireLoop();
  // The first of those of the client whose turn it is; there is one.
  Lookup* TakeNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The first one of `queue`, which has one, waits no longer.
  Lookup* TakeFirst(const Waiting& queue) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const int64_t max_waiting_;
  mutable Mutex mu_;
  CondVar work_;     // For FetchLoop.
  CondVar earlier_;  // For ExpireLoop: another call has the least time left.
  Waiting waiting_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, Client> clients_ ABSL_GUARDED_BY(mu_);  // The same.
  int64_t last_turn_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  TimePoint next_report_ ABSL_GUARDED_BY(mu_);
  std::vector<std::thread> threads_;  // Last: they use everything above.
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SCHEDULER_LOOKUP_POOL_H_

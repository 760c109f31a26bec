// JobQueue: which piece of work comes next.  Only decisions: no threads, no locks, no clock of its
// own, so that tests replay any situation.
//
// - Rows are the unit.  What is predicted to take longer than a tile (1 ms, or as many rows as the
//   lane wants at once) is cut, so that a job of 2000 ads holds a worker no longer than one of 10.
// - Order: priority class; then the client that got the least so far (weighted fair queueing:
//   Demers, Keshav and Shenker, SIGCOMM 1989), so that who asks for much waits for itself,
//   whatever models it asks; then its lane (model generation) that got the least, both by the
//   lanes' weights; then the job whose virtual deadline is the earliest: its deadline less what it
//   needs, or its arrival plus a few times what it needs, whichever comes first.  Under equal
//   deadlines small jobs thus pass large ones, but none starves.  What a client gets is charged as
//   predicted, and what took a tile longer than that when it is done.
// - Small jobs of one lane that already wait are merged when a worker pulls; nothing ever waits for
//   company while a worker is idle.
// - A job that cannot make its deadline is refused on arrival; one that expired or whose caller
//   left is dropped before it costs anything (more).  CoDel is the net below.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SCHEDULER_JOB_QUEUE_H_
#define ULFD_SERVER_SCHEDULER_JOB_QUEUE_H_

#include <array>
#include <chrono>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/scheduler/job.h"
#include "server/scheduler/overload.h"

namespace ulfd::server {

struct JobQueueOptions {
  int workers = 1;
  // Jobs that nobody has started.  Of this limit and the next ones a client may take eight times
  // the room that is left, so that none fills the queue alone.
  int64_t max_queued_requests = 1000;
  int64_t max_queued_rows = 200000;  // Their rows together.
  // Of a job these count at most: one that is dearer than any with so many rows must not close the
  // queue for others.
  int64_t max_job_rows = std::numeric_limits<int64_t>::max();
  // While the jobs of a lane that have begun hold so much memory, none of its large ones begins.
  int64_t max_held_bytes = std::numeric_limits<int64_t>::max();
  // Predicted work in hand, divided by the workers: how long a newcomer would wait at most.
  std::chrono::nanoseconds max_queued_work = std::chrono::seconds(10);
  std::chrono::nanoseconds tile = std::chrono::milliseconds(1);
  int64_t max_batch_rows = 1024;
  int max_batch_requests = 64;
  std::chrono::nanoseconds codel_target = std::chrono::milliseconds(20);
  std::chrono::nanoseconds codel_interval = std::chrono::milliseconds(200);
};

class JobQueue {
 public:
  // A job in the queue's hands.
  struct Entry;

  // One piece of work for one worker.
  struct Work {
    enum class Kind : uint8_t { kNone, kTogether, kBegin, kRows, kEnd };
    Kind kind = Kind::kNone;
    std::vector<Job*> jobs;      // kTogether: all of them; otherwise one.
    Entry* entry = nullptr;      // Of the job, or the first of them.
    std::vector<Entry*> others;  // kTogether: of the jobs behind the first.
    int64_t begin = 0, end = 0;  // kRows: which; kTogether: how many in all.
    std::chrono::nanoseconds predicted{0};
  };
  // A job that ends without being computed.
  struct Dropped {
    Job* job;
    absl::Status why;
  };

  explicit JobQueue(const JobQueueOptions& options);
  ~JobQueue();

  // Takes the job, or says why not (see refusal.h): queue_full, deadline, codel, quota; CANCELLED
  // and DEADLINE_EXCEEDED for what is too late already.
  absl::Status Admit(Job* job, TimePoint now);
  // The same without taking it.
  absl::Status Check(Job* job, TimePoint now);
  // As Admit, for a caller who computes the whole job at once if it is predicted to take at most
  // that: `work` is that, and goes to Done; kNone: it waits as any other.  REQUIRES: !HasWork().
  absl::Status AdmitTaken(Job* job, TimePoint now, std::chrono::nanoseconds at_most, Work& work);
  // The next piece of work; kNone if there is none now.  Jobs that expired, left or are shed on the
  // way are appended to `dropped`: the caller drops them.  `idle`: other workers that wait for
  // work.
  Work Take(TimePoint now, int idle, std::vector<Dropped>& dropped);
  // The piece is done, and kept its worker for `took`.  `alive` is what Begin returned (true for
  // other kinds).  Returns what is due at once on the same worker: kEnd after the last range, kNone
  // otherwise.  A job that was given up while others computed is appended to `dropped` by the last
  // of them.  The job of kEnd stays in the queue's hands until that is done, too.
  Work Done(const Work& work, bool alive, std::chrono::nanoseconds took,
            std::vector<Dropped>& dropped);

  bool empty() const { return entries_ == 0; }   // Nothing waits and nothing runs.
  bool HasWork() const { return waiting_ > 0; }  // Take may find something.
  int64_t queued_requests() const { return queued_requests_; }
  int64_t queued_rows() const { return queued_rows_; }
  // Predicted work in hand, of one worker.
  std::chrono::nanoseconds pending() const { return waiting_work_ + running_work_; }
  // The queue stands (overload.h).
  bool overloaded() const { return !unstarted_.empty() && overload_.overloaded(); }

 private:
  struct ByKey {
    bool operator()(const Entry* a, const Entry* b) const;
  };
  struct ByAge {
    bool operator()(const Entry* a, const Entry* b) const;
  };
  using Ordered = std::set<Entry*, ByKey>;
  // What one client has of one lane.
  struct Flow {
    std::shared_ptr<Lane> lane;
    std::array<Ordered, kPriorities> waiting;  // Not started, or started with rows left.
    int64_t jobs = 0;                          // In the queue's hands.
    int64_t queued_rows = 0;                   // Of jobs that nobody has started.
    double virtual_time_ns = 0;                // Work handed out, by weight: the least goes first.
  };
  struct Client {
    // One without jobs stays until the others have got as much: it does not begin anew.
    std::map<Lane*, Flow> flows;
    int64_t jobs = 0;             // In the queue's hands.
    int64_t queued_requests = 0;  // Jobs that nobody has started.
    int64_t queued_rows = 0;
    std::chrono::nanoseconds work{0};  // Predicted, of what nobody has started yet.
    double virtual_time_ns = 0;        // Work handed out, by weight: the least goes first.
    double flow_time_ns = 0;           // Of the flow that was served last.
  };
  using Clients = std::map<std::string, Client>;

  // The job's entry, if it can be taken.
  absl::StatusOr<std::unique_ptr<Entry>> Examine(Job* job, TimePoint now);
  // Checks and books the job, which is neither waiting nor running yet.
  absl::StatusOr<Entry*> Accept(Job* job, TimePoint now);
  absl::Status CheckLimits(const Entry& entry, const Client& client) const;
  // Whether what is ahead of `entry` lets it make its deadline, and is not too much for a queue
  // that stands.
  absl::Status CheckWait(const Entry& entry, const Client& client) const;
  bool MakesDeadline(const Entry& entry, std::chrono::nanoseconds wait) const;
  // How long it may wait without that being a sign of overload, at least.
  static std::chrono::nanoseconds Takes(const Entry& entry);
  // What waits in one class, of that only up to a key.
  static std::chrono::nanoseconds Waiting(const Flow& flow, int priority,
                                          TimePoint until = TimePoint::max());
  // What is to be done before `entry`, of one worker.
  std::chrono::nanoseconds Ahead(const Entry& entry, const Client& client) const;
  // How long `entry` takes if nothing is ahead of it.
  std::chrono::nanoseconds Alone(const Entry& entry) const;
  // The work of one piece of what is cut, and the most that is merged.
  std::chrono::nanoseconds Tile(const Lane& lane) const;
  bool Large(const Entry& entry) const;
  std::chrono::milliseconds RetryAfter(std::chrono::nanoseconds work) const;
  // Not so if its lane holds too much memory for it to begin.
  bool MayGoOn(const Entry& entry) const;
  // The first that may; null: none.
  Entry* First(const Ordered& waiting) const;
  Entry* Pick();
  // An empty status: go on with it.
  absl::Status StillWanted(const Entry& entry, TimePoint now) const;
  // Drops what is too old while the queue stands.
  void Shed(TimePoint now, std::vector<Dropped>& dropped);
  Work TakeTogether(Entry* first, TimePoint now, int idle, std::vector<Dropped>& dropped);
  // Adds what fits to a batch, and to `dropped` what nobody wants any more.
  void FillBatch(std::vector<Entry*>& batch, int64_t& rows, TimePoint now,
                 std::vector<Dropped>& dropped);
  Work TakeBegin(Entry* entry);
  Work TakeRows(Entry* entry);
  // The part of the entry's cost that a worker starts now.
  void HandOut(Entry* entry, std::chrono::nanoseconds part);
  // What was accepted waits.  Half of it cannot be: want of memory here ends the process.
  void Enqueue(Entry* entry) noexcept;
  void Insert(Entry* entry);
  void Erase(Entry* entry);
  void Unqueue(Entry* entry);  // It starts, or goes.
  void Forget(Entry* entry);
  // Its last job has ended.
  void Leave(Clients::iterator client);
  void Charge(Entry& entry, std::chrono::nanoseconds work);
  // What took far longer than predicted has got more than was charged.
  void ChargeExcess(const Work& work, std::chrono::nanoseconds took);

  const JobQueueOptions options_;
  Clients clients_;                    // Those that have jobs.
  Clients idle_;                       // Some of those that have none, and had more than others.
  std::set<Entry*, ByAge> unstarted_;  // The oldest first.
  OverloadDetector overload_;
  uint64_t next_sequence_ = 0;
  int64_t entries_ = 0;
  int64_t waiting_ = 0;                                        // In some flow's `waiting`.
  absl::flat_hash_map<Entry*, std::unique_ptr<Entry>> owned_;  // Waiting or running.
  int64_t queued_requests_ = 0, queued_rows_ = 0;
  std::chrono::nanoseconds waiting_work_{0}, running_work_{0};  // Predicted, of one worker.
  double client_time_ns_ = 0;  // Where a client begins: what each got on average.
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SCHEDULER_JOB_QUEUE_H_

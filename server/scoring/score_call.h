// ScoreCall: the life of one scoring call, the same for both APIs and free of gRPC: admission,
// queue, decode, run, encode, and what is counted, timed and logged on the way.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SCORING_SCORE_CALL_H_
#define ULFD_SERVER_SCORING_SCORE_CALL_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/models/model_lookup.h"
#include "server/models/model_types.h"
#include "server/observe/call_log.h"
#include "server/observe/logging.h"
#include "server/observe/metrics.h"
#include "server/recorder/recorder.h"
#include "server/scheduler/client_quota.h"
#include "server/scheduler/clock.h"
#include "server/scheduler/lookup_pool.h"
#include "server/scheduler/worker_pool.h"
#include "server/scoring/call_summary.h"
#include "server/scoring/decoded_request.h"

namespace ulfd::server {

class Shadow;     // server/scoring/shadow.h
class UserStore;  // server/scoring/user_store.h

// What all calls share.  Everything is borrowed and outlives them.
struct ServingContext {
  const ModelLookup& models;
  WorkerPool& scheduler;
  Metrics& metrics;
  Logger& logger;
  const Clock& clock;
  RequestLimits limits;
  // Set when a shutdown is in a hurry: calls end with UNAVAILABLE at their next check.
  const std::atomic<bool>& abandon;
  ClientQuota* client_quota = nullptr;  // Null: no limits.
  std::string client_key;               // The metadata key that names the client.
  Shadow* shadow = nullptr;             // Null: no shadow traffic.
  Recorder* recorder = nullptr;         // Null: nothing is recorded.
  UserStore* users = nullptr;           // Not null where requests of the native API come in.
  CallLog* call_log = nullptr;          // Null: no lines about single calls.
  Tracer* tracer = nullptr;             // Null: no spans.
  SlowCalls* slow_calls = nullptr;      // Null: nobody asks for them.
  LookupPool* lookups = nullptr;        // Not null where models have tables in stores.
  LineLimit* missing_ids = nullptr;     // Of calls whose missing ids are logged; null: of none.
};

// What the caller says about a call beside the request.
struct CallTerms {
  TimePoint deadline = TimePoint::max();
  Priority priority = Priority::kNormal;
  // Who is to get a share of the workers, and has a quota where the server has one: what the
  // caller's metadata names (ServingContext::client_key), else who it proved to be, else
  // ClientOf its peer.
  std::string client;
  TraceContext trace;
};

// "high", "normal" or "low"; INVALID_ARGUMENT for anything else.
absl::StatusOr<Priority> ParsePriority(absl::string_view word);

// One call.  The subclass owns itself: it lives until Finish has been called, which happens exactly
// once after Start.
class ScoreCall : public Job, private Lookup {
 public:
  ScoreCall(const ServingContext& context, CallTerms terms);
  ~ScoreCall() override;

  // On the thread that received the call; never blocks.
  void Start(const absl::StatusOr<ModelChoice>& choice);

  // Job; its client is the Lookup's, too.
  const std::shared_ptr<Lane>& lane() const override { return handle_->lane; }
  const std::string& client() const override { return terms_.client; }
  int64_t rows() const override { return rows_; }
  TimePoint deadline() const override { return terms_.deadline; }
  Priority priority() const override { return terms_.priority; }
  bool divisible() const override { return handle_->model->row_separable(); }
  void RunTogether(Worker& worker, absl::Span<Job* const> jobs) override;
  bool Begin(Worker& worker) override;
  int64_t held_bytes() const override;
  void RunRows(Worker& worker, int64_t begin, int64_t end) override;
  void End(Worker& worker) override;
  void Drop(const absl::Status& why) override;

 protected:
  TimePoint arrival() const { return arrival_; }
  // How many ads the request seems to cost; on the receiving thread.
  virtual int64_t CountRows(const engine::Model& model, const RequestLimits& limits) const = 0;
  // Checks the request and maps it to tensors; on a worker or, if the model has tables in stores,
  // on the receiving thread.
  virtual absl::Status Decode(const engine::Model& model, const RequestLimits& limits,
                              DecodedRequest& decoded) = 0;
  // Fills the reply; on a worker.
  virtual absl::Status Encode(const DecodedRequest& decoded, const engine::ModelInfo& info,
                              const engine::RunResult& result) = 0;
  // When the reply has its scores: records it and adds the times, if either is wanted.
  virtual void Complete(const engine::ModelInfo& info, int64_t ads, const CallTimes& times) = 0;
  // What the caller calls the request, and its address, for the log.
  virtual const std::string& request_id() const = 0;
  virtual std::string peer() const = 0;
  // Sends the reply or the error.  The call may be gone when this returns.
  virtual void Finish(const absl::Status& status) = 0;

 private:
  using Calls = std::vector<ScoreCall*>;
  struct Parallel;  // What a call that is cut keeps from Begin to End.

  // Lookup
  TimePoint fetch_deadline() const override { return fetch_deadline_; }
  void FetchRows() override;
  void RowsEnded() override;

  absl::Status Admit(const absl::StatusOr<ModelChoice>& choice);
  // Decodes, and queues the call once the rows of its tables in stores are there.
  absl::Status StartLookup();
  absl::Status Queue();
  absl::Status DecodeOnce();
  // Decodes on a worker, unless that is done.  An error: the call is to end with it.
  absl::Status Prepare();
  // An error: nobody waits for the call any more, or nobody may.
  absl::Status StillWanted() const { return StillWanted(context_.clock.Now()); }
  absl::Status StillWanted(TimePoint now) const;
  // The calls as one batch.  false: they are to be run one by one; no call has ended.
  static bool RunMerged(Worker& worker, const Calls& calls);
  // Whether it ran to its end; ended it has in any case.
  bool RunAlone(Worker& worker);
  // With the limits of the server; stops once nobody waits for the call any more.
  engine::RunOptions RunOptionsOfCall() const;
  // Whether such outputs go into a message.
  absl::Status CheckReplySize(absl::Span<const engine::Tensor> outputs) const;
  // What the run of the call's model says, put in the words of the call, and counted.
  absl::Status Explain(const absl::Status& run) const;
  // What `step` returns; if memory is not to be had for it, that, counted.
  template <typename Step>
  absl::Status OrShed(Step step) const;
  // Encodes, observes, ends.
  void Reply(Worker& worker, const engine::RunResult& result);
  absl::Status EncodeReply(Worker& worker, const engine::RunResult& result);
  void CountShed(ShedReason reason) const;
  void CountRefusal(const absl::Status& why);
  // Counts a run of the model, be it of one call or of a batch.
  void CountRun(const engine::RunStats& stats);
  void AddToTables(const std::vector<int64_t>& counts, Counter TableSeries::*counter);
  // Some of the ids that tables lack.
  void LogMissingIds(const std::vector<int64_t>& counts);
  void Observe(Worker& worker, const engine::RunResult& result);
  // Tells the log, the tracer and the list of the slowest, as far as they want to know.
  void Report(const absl::Status& status, int64_t took_ns);
  // Counts, logs and finishes.  `shard` is that of the calling thread (see Metrics).
  void Conclude(const absl::Status& status, int shard);
  int64_t SinceNs(TimePoint begin) const;

  const ServingContext& context_;
  const TimePoint arrival_;
  const CallTerms terms_;
  const std::function<bool()> stop_ = [this] { return !StillWanted().ok(); };
  absl::Status too_large_;  // Not OK: why its run was refused.
  const std::function<absl::Status(absl::Span<const engine::Tensor>)> check_outputs_ =
      [this](absl::Span<const engine::Tensor> outputs) {
        return too_large_ = CheckReplySize(outputs);
      };
  int64_t rows_ = 1;  // What it seems to cost: at least as many as it has ads, if it is as stated.
  int64_t booked_rows_ = 0;  // Of the client's quota.
  ModelHandle handle_;
  std::shared_ptr<const VersionSeries> series_;
  DecodedRequest decoded_;
  std::unique_ptr<engine::FetchedRows> fetched_;  // Null: no table lies in a store.
  TimePoint fetch_deadline_;
  TimePoint queued_;
  std::unique_ptr<Parallel> parallel_;
  CallTimes times_;
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SCORING_SCORE_CALL_H_

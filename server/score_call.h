// ScoreCall: the life of one scoring call, the same for both APIs and free of gRPC: admission,
// queue, decode, run, encode, and what is counted, timed and logged on the way.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SCORE_CALL_H_
#define ULFD_SERVER_SCORE_CALL_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/logging.h"
#include "server/metrics.h"
#include "server/model_manager.h"
#include "server/request_decoder.h"
#include "server/scheduler/clock.h"
#include "server/scheduler/scheduler.h"

namespace ulfd::server {

// What all calls share.  Everything is borrowed and outlives them.
struct ServingContext {
  const ModelManager& models;
  Scheduler& scheduler;
  Metrics& metrics;
  Logger& logger;
  const Clock& clock;
  RequestLimits limits;
  // Set when a shutdown is in a hurry: calls end with UNAVAILABLE at their next check.
  const std::atomic<bool>& abandon;
};

// Where the time of a call went.  Unit: nanoseconds.
struct CallTimes {
  int64_t queue_ns = 0, decode_ns = 0, embed_ns = 0, user_ns = 0, dense_ns = 0, encode_ns = 0;
  int64_t total_ns = 0;
};

// One call.  The subclass owns itself: it lives until Finish has been called, which happens exactly
// once after Start.
class ScoreCall : public Task {
 public:
  ScoreCall(const ServingContext& context, TimePoint deadline);

  // On the thread that received the call; never blocks.
  void Start(const absl::StatusOr<ModelChoice>& choice);
  // The caller went away.  Any thread, any time before Finish returns.
  void Cancel() { cancelled_.store(true, std::memory_order_relaxed); }

  // Task
  int64_t rows() const override { return rows_; }
  TimePoint deadline() const override { return deadline_; }
  bool cancelled() const override { return cancelled_.load(std::memory_order_relaxed); }
  void Run(Worker& worker) override;
  void Drop(const absl::Status& why) override;

 protected:
  // How many ads the request seems to have; on the receiving thread.
  virtual int64_t CountRows(const engine::Model& model) const = 0;
  // Checks the request and maps it to tensors; on a worker.
  virtual absl::Status Decode(const engine::Model& model, const RequestLimits& limits,
                              DecodedRequest& decoded) = 0;
  // Fills the reply; on a worker.
  virtual absl::Status Encode(const DecodedRequest& decoded, const engine::ModelInfo& info,
                              const engine::RunResult& result) = 0;
  // Adds the times to the reply, if they are wanted.
  virtual void AddTimes(const CallTimes& times) = 0;
  // What the caller calls the request, for the log.
  virtual const std::string& request_id() const = 0;
  // Sends the reply or the error.  The call may be gone when this returns.
  virtual void Finish(const absl::Status& status) = 0;

 private:
  absl::Status Admit(const absl::StatusOr<ModelChoice>& choice);
  absl::Status Score(Worker& worker);
  absl::Status RunModel(Worker& worker, const DecodedRequest& decoded);
  void CountRefusal(const absl::Status& why);
  void Observe(Worker& worker, const DecodedRequest& decoded);
  // Counts, logs and finishes.  `shard` is that of the calling thread (see Metrics).
  void End(const absl::Status& status, int shard);
  int64_t SinceNs(TimePoint begin) const;

  const ServingContext& context_;
  const TimePoint arrival_;
  const TimePoint deadline_;
  std::atomic<bool> cancelled_{false};
  int64_t rows_ = 1;
  ModelHandle handle_;
  std::shared_ptr<const VersionSeries> series_;
  CallTimes times_;
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SCORE_CALL_H_

// Shadow traffic: requests that were answered are scored once more by another version, off the
// reply path, to see how far its scores are from those that callers got.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SCORING_SHADOW_H_
#define ULFD_SERVER_SCORING_SHADOW_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"
#include "proto/recording.pb.h"
#include "server/models/model_lookup.h"
#include "server/models/model_types.h"
#include "server/observe/logging.h"
#include "server/observe/metrics.h"
#include "server/scoring/decoded_request.h"
#include "server/scoring/recorded_run.h"

namespace ulfd::server {

// Requests and outputs that wait may have that many bytes, of all models together: requests may be
// large.  A larger one waits alone.
inline constexpr int64_t kMaxShadowBytes = int64_t{64} << 20;

// Thread-safe.  One thread at low priority scores what is queued; what does not fit into the queue
// of its model is dropped and counted, so that calls never wait for it.
class Shadow {
 public:
  Shadow(const ModelLookup& models, const RequestLimits& limits, Logger& logger);
  // The same without a thread: ScoreQueued does its work.  For tests.
  struct WithoutThread {};
  Shadow(const ModelLookup& models, const RequestLimits& limits, Logger& logger, WithoutThread);
  // Drops what is queued.
  ~Shadow();

  // Where a call that this version of the model scored is to be scored again; nullopt: nowhere.
  // Cheap.
  std::optional<ShadowTarget> Choose(const std::string& model, int64_t version);
  // Queues a call that was chosen: its request and the outputs of its reply.
  void Add(ShadowTarget target, recording::v1::Recording call);

  // A call that was just answered: Choose, and Add if it is chosen.
  void Offer(recording::v1::Api api, const google::protobuf::MessageLite& request,
             const DecodedRequest& decoded, const engine::ModelInfo& info,
             const engine::RunResult& result);

  // Series of the versions that have been chosen for a call.
  void Collect(MetricPage& page) const;

  // Scores what is queued; one step of the thread, which only one thread may take.
  void ScoreQueued();

 private:
  // What became of chosen calls of one version.
  struct Series {
    Series();
    Counter scored, failed, dropped;
    Histogram difference;  // In units of 1e-9.
  };
  struct Task {
    ShadowTarget target;
    recording::v1::Recording call;
    int64_t bytes = 0;  // Of the call.
    std::shared_ptr<Series> series;
  };
  using Key = std::pair<std::string, int64_t>;  // Model, version.

  void Run();
  void Score(const Task& task);
  // Whether a call of that many bytes may wait.
  bool HasPlace(const ShadowTarget& target, int64_t bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Counts a call that may not.
  void Drop(const ShadowTarget& target) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  const std::shared_ptr<Series>& SeriesOf(const ShadowTarget& target)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const ModelLookup& models_;
  const RequestLimits limits_;
  Logger& logger_;
  std::atomic<int64_t> calls_seen_{0};

  mutable Mutex mu_;
  CondVar work_;
  std::deque<Task> queue_ ABSL_GUARDED_BY(mu_);
  // By model and of all; what runs counts as well.
  std::map<std::string, int> queued_ ABSL_GUARDED_BY(mu_);
  int64_t queued_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<Key, std::shared_ptr<Series>> series_ ABSL_GUARDED_BY(mu_);
  std::atomic<bool> stopping_{false};  // Set with mu_ held.

  RecordedRun run_;     // The scoring thread's.
  std::thread thread_;  // Last: it uses everything above.
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SCORING_SHADOW_H_

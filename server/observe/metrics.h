// Metrics: the counters and histograms of the serving path.  Counting is an atomic addition on
// memory that the counting worker hardly shares with others; names, labels and sums are put
// together when somebody scrapes.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_OBSERVE_METRICS_H_
#define ULFD_SERVER_OBSERVE_METRICS_H_

#include <prometheus/client_metric.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "server/models/model_types.h"
#include "server/observe/metric_page.h"
#include "server/observe/step_profile.h"
#include "server/observe/tracer.h"
#include "server/scheduler/refusal.h"

namespace ulfd::server {

// A count that only grows.  Any thread.
class Counter {
 public:
  void Add(int64_t n = 1) { value_.fetch_add(n, std::memory_order_relaxed); }
  int64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> value_{0};
};

// A histogram over integers (nanoseconds, rows) with fixed bounds.  One shard per worker, so that
// observing is not contended.
class Histogram {
 public:
  // `bounds` ascend and outlive the histogram.  Exported values are observed ones divided by `unit`
  // (1e9: seconds from nanoseconds).
  Histogram(absl::Span<const int64_t> bounds, double unit, int shards);
  // 0 <= shard < shards; two threads may use the same one.
  void Observe(int shard, int64_t value);
  // Keeps the trace of an observation until the next one of its bucket; for sampled calls, because
  // it takes a lock.
  void Keep(int64_t value, const TraceId& trace);
  prometheus::ClientMetric::Histogram Collect() const;
  // Per bound, and one for what is above.
  std::vector<Exemplar> Exemplars() const;

 private:
  struct alignas(64) Shard {
    explicit Shard(size_t buckets) : counts(buckets) {}
    std::vector<std::atomic<uint64_t>> counts;  // Per bound, and one for what is above.
    std::atomic<int64_t> sum{0};
  };
  size_t BucketOf(int64_t value) const;

  const absl::Span<const int64_t> bounds_;
  const double unit_;
  std::vector<std::unique_ptr<Shard>> shards_;
  mutable Mutex mu_;
  std::vector<Exemplar> exemplars_ ABSL_GUARDED_BY(mu_);  // Empty before the first.
};

enum class Stage : uint8_t { kDecode, kFetch, kQueue, kUser, kEmbed, kDense, kEncode };
inline constexpr int kStages = 7;
// Where a call was when its caller went away: not yet taken by a worker, or computing.
enum class CancelStage : uint8_t { kQueue, kCompute };
inline constexpr int kCancelStages = 2;

// A counter for each of the first N values of an enumeration.
template <typename Key, size_t N>
class CountersOf {
 public:
  void Add(Key key) { counts_[static_cast<size_t>(key) % N].Add(); }
  const std::array<Counter, N>& counts() const { return counts_; }

 private:
  std::array<Counter, N> counts_;
};
using CodeCounters = CountersOf<absl::StatusCode, 17>;
// Calls that were refused before any computing.
using ShedCounters = CountersOf<ShedReason, kShedReasons>;

// Calls of one version.
struct CallSeries {
  explicit CallSeries(int shards);
  CodeCounters codes;
  // Of those that ended with OK: refusals are quick, and would hide the others.
  Histogram duration;
  // The same calls, as sums only.  Unit: nanoseconds.
  Histogram queue, input, infer, output;
  Counter failed_ns;  // Of the others, from arrival to end.
  Counter runs;       // Of the model, be it for one call or for several.
  // When the last one ended with OK.  Unit: milliseconds since 1970.
  std::atomic<int64_t> last_ms{0};
};

// Ids that were looked up in one table of a model.
struct TableSeries {
  Counter looked_up, missing, late;
};

// The series of one model.
struct ModelSeries {
  ModelSeries(std::string model_name, int shards);
  const std::string name;
  ShedCounters shed;
  std::deque<Histogram> stages;  // Per Stage.
  Histogram candidates_per_request;
  Counter candidates;
  Counter nonfinite_scores;
  Counter unproved_runs;    // Computed in one piece by numpy's rules (RunStats::unproved).
  Counter users_run_alone;  // Calls of batches that ran one by one.
  Counter tiled_inputs;     // DecodedRequest::tiled_inputs
};

// The series of one published content of one version.
struct VersionSeries {
  std::shared_ptr<ModelSeries> model;
  int64_t version = 0;
  int64_t generation = 0;
  std::shared_ptr<CallSeries> calls;                 // Goes on over the contents of a version.
  std::vector<std::shared_ptr<TableSeries>> tables;  // Per ModelInfo::tables.
  const std::shared_ptr<StepProfile> steps = std::make_shared<StepProfile>();
};

// Calls of one version so far.
struct VersionTraffic {
  std::string model, version;  // Both empty: of calls that never had a model.
  int64_t ok = 0, failed = 0;
  std::vector<uint64_t> counts;  // Per bound of Metrics::DurationBounds, and of all; cumulative.
};

// Thread-safe.  Labels are bounded: a model is a label from its first publication until its last
// version is gone, and what a request calls itself never is one.
class Metrics {
 public:
  // Shard 0 is for threads that are not workers; worker i has shard i + 1.
  explicit Metrics(int workers);

  // The series of this content; takes a short lock, so once per call.
  std::shared_ptr<const VersionSeries> For(const ServedModel& model);
  // A call that ended before it had a model.
  void CountWithoutModel(absl::StatusCode code) { without_model_.Add(code); }
  void CountShedWithoutModel(ShedReason reason) { shed_without_model_.Add(reason); }
  void CountCancelled(CancelStage stage) { cancelled_[static_cast<size_t>(stage)].Add(); }
  void AddInFlight(int64_t n) { in_flight_.Add(n); }
  // One piece of work of worker `shard` - 1: how many calls and ads it computed.
  void ObserveBatch(int shard, int64_t requests, int64_t rows) {
    batch_requests_.Observe(shard, requests);
    batch_rows_.Observe(shard, rows);
  }

  void CountPublished(const ServedModel& model, std::chrono::nanoseconds load_time);
  void CountLoadFailed(const std::string& name, absl::string_view reason);
  // Removes the series of the version if no newer content of it was published, and those of the
  // model with its last version.
  void CountUnloaded(const std::string& name, int64_t version, int64_t generation);

  void Collect(MetricPage& page) const;
  // What is there now, and what ulfd_requests_total and ulfd_request_duration_seconds say.
  int64_t in_flight() const { return in_flight_.value(); }
  std::vector<VersionTraffic> Traffic() const;
  // Unit: seconds.
  static std::vector<double> DurationBounds();

 private:
  using VersionKey = std::pair<std::string, int64_t>;
  std::shared_ptr<const VersionSeries> Make(const ServedModel& model)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CollectCalls(MetricPage& page) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CollectModels(MetricPage& page) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CollectLoads(MetricPage& page) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const int shards_;
  CodeCounters without_model_;
  ShedCounters shed_without_model_;
  std::array<Counter, kCancelStages> cancelled_;
  Counter in_flight_;
  Histogram batch_requests_, batch_rows_;

  mutable Mutex mu_;
  std::map<std::string, std::shared_ptr<ModelSeries>> models_ ABSL_GUARDED_BY(mu_);
  // The newest content of each version.
  std::map<VersionKey, std::shared_ptr<const VersionSeries>> versions_ ABSL_GUARDED_BY(mu_);
  // Generation whose unloading was reported last: a late call must not bring its series back.
  std::map<VersionKey, int64_t> unloaded_ ABSL_GUARDED_BY(mu_);
  // By model and table.
  std::map<std::pair<std::string, std::string>, std::shared_ptr<TableSeries>> tables_
      ABSL_GUARDED_BY(mu_);
  // By model.
  std::map<std::string, std::unique_ptr<Histogram>> load_durations_ ABSL_GUARDED_BY(mu_);
  // By model and reason.
  std::map<std::pair<std::string, std::string>, int64_t> load_failures_ ABSL_GUARDED_BY(mu_);
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_OBSERVE_METRICS_H_

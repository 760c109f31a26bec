// SPDX-License-Identifier: Apache-2.0
#include "server/observe/metrics.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace ulfd::server {
namespace {

using prometheus::ClientMetric;

// Nanoseconds; 0.25 ms .. 2 s.
constexpr int64_t kDurationBounds[] = {
    250'000,     500'000,     750'000,     1'000'000,    1'500'000,   2'000'000,
    3'000'000,   4'000'000,   5'000'000,   7'500'000,    10'000'000,  15'000'000,
    20'000'000,  30'000'000,  40'000'000,  50'000'000,   75'000'000,  100'000'000,
    150'000'000, 250'000'000, 500'000'000, 1000'000'000, 2000'000'000};
// Nanoseconds; 0.1 ms .. 1 s.  Few, because each is a line for every stage of every model, and a
// stage is read by its mean.
constexpr int64_t kStageBounds[] = {100'000, 1'000'000, 10'000'000, 100'000'000, 1000'000'000};
constexpr int64_t kCandidateBounds[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096};
constexpr int64_t kBatchRequestBounds[] = {1, 2, 4, 8, 16, 32, 64, 128, 256};
// Nanoseconds; 0.1 s .. 10 min.
constexpr int64_t kLoadBounds[] = {100'000'000, 1'000'000'000, 10'000'000'000, 60'000'000'000,
                                   600'000'000'000};
constexpr double kSecond = 1e9;  // In nanoseconds.

constexpr absl::string_view kStageNames[kStages] = {"decode", "fetch", "queue", "user",
                                                    "embed",  "dense", "encode"};
constexpr absl::string_view kCancelNames[kCancelStages] = {"queue", "compute"};

void AddCodes(const CodeCounters& codes, const std::string& model, const std::string& version,
              MetricPage& page) {
  for (size_t code = 0; code < codes.counts().size(); ++code) {
    const int64_t n = codes.counts()[code].value();
    // Only OK is there from the start: 17 codes for each version would be mostly zeros.
    if (n == 0 && (code != 0 || model.empty())) continue;
    page.AddCounter("ulfd_requests_total",
                    "Calls that ended, by status code; without model: unknown or unloaded ones", n,
                    {{"model", model},
                     {"version", version},
                     {"code", absl::StatusCodeToString(static_cast<absl::StatusCode>(code))}});
  }
}

void AddShed(const ShedCounters& shed, const std::string& model, MetricPage& page) {
  for (int i = 0; i < kShedReasons; ++i) {
    page.AddCounter("ulfd_shed_total",
                    "Calls refused before any computing; without model: before it was known",
                    shed.counts()[i].value(),
                    {{"model", model}, {"reason", std::string(Name(static_cast<ShedReason>(i)))}});
  }
}

// Hundreds of models that nobody calls would be megabytes of zeros.
void AddIfObserved(const char* name, const char* help, const Histogram& histogram,
                   MetricPage::Labels labels, MetricPage& page) {
  ClientMetric::Histogram collected = histogram.Collect();
  if (collected.sample_count == 0) return;
  page.AddHistogram(name, help, std::move(collected), std::move(labels));
}

}  // namespace

Histogram::Histogram(absl::Span<const int64_t> bounds, double unit, int shards)
    : bounds_(bounds), unit_(unit) {
  for (int i = 0; i < shards; ++i) shards_.push_back(std::make_unique<Shard>(bounds.size() + 1));
}

size_t Histogram::BucketOf(int64_t value) const {
  // About twenty bounds: counting is faster than searching, whose branches nobody can predict.
  size_t bucket = 0;
  for (const int64_t bound : bounds_) bucket += bound < value ? 1 : 0;
  return bucket;
}

void Histogram::Keep(int64_t value, const TraceId& trace) {
  Exemplar exemplar = {.trace_id = TraceIdText(trace),
                       .value = static_cast<double>(value) / unit_,
                       .time = absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch())};
  MutexLock lock(mu_);
  exemplars_.resize(bounds_.size() + 1);
  exemplars_[BucketOf(value)] = std::move(exemplar);
}

std::vector<Exemplar> Histogram::Exemplars() const {
  MutexLock lock(mu_);
  std::vector<Exemplar> exemplars = exemplars_;
  exemplars.resize(bounds_.size() + 1);
  return exemplars;
}

void Histogram::Observe(int shard, int64_t value) {
  shards_[shard]->counts[BucketOf(value)].fetch_add(1, std::memory_order_relaxed);
  shards_[shard]->sum.fetch_add(value, std::memory_order_relaxed);
}

ClientMetric::Histogram Histogram::Collect() const {
  ClientMetric::Histogram out;
  std::vector<uint64_t> counts(bounds_.size() + 1);
  double sum = 0;
  for (const auto& shard : shards_) {
    for (size_t i = 0; i < counts.size(); ++i) {
      counts[i] += shard->counts[i].load(std::memory_order_relaxed);
    }
    sum += static_cast<double>(shard->sum.load(std::memory_order_relaxed));
  }
  for (size_t i = 0; i < bounds_.size(); ++i) {
    out.sample_count += counts[i];
    out.bucket.push_back({out.sample_count, static_cast<double>(bounds_[i]) / unit_});
  }
  out.sample_count += counts.back();  // The serialiser adds the bucket "+Inf" from it.
  out.sample_sum = sum / unit_;
  return out;
}

CallSeries::CallSeries(int shards)
    : duration(kDurationBounds, kSecond, shards),
      queue({}, 1, shards),
      input({}, 1, shards),
      infer({}, 1, shards),
      output({}, 1, shards) {}

ModelSeries::ModelSeries(std::string model_name, int shards)
    : name(std::move(model_name)), candidates_per_request(kCandidateBounds, 1, shards) {
  for (int i = 0; i < kStages; ++i) stages.emplace_back(kStageBounds, kSecond, shards);
}

Metrics::Metrics(int workers)
    : shards_(workers + 1),
      batch_requests_(kBatchRequestBounds, 1, shards_),
      batch_rows_(kCandidateBounds, 1, shards_) {}

std::shared_ptr<const VersionSeries> Metrics::Make(const ServedModel& model) {
  const VersionKey key(model.name, model.version);
  const std::vector<engine::TableInfo>& tables = model.model->info().tables;
  auto series = std::make_shared<VersionSeries>();
  series->version = model.version;
  series->generation = model.generation;
  const auto gone = unloaded_.find(key);
  if (gone != unloaded_.end() && gone->second >= model.generation) {  // Counts, but into nothing.
    series->model = std::make_shared<ModelSeries>(model.name, shards_);
    series->calls = std::make_shared<CallSeries>(shards_);
    for (size_t i = 0; i < tables.size(); ++i) {
      series->tables.push_back(std::make_shared<TableSeries>());
    }
    return series;
  }
  auto& by_name = models_[model.name];
  if (by_name == nullptr) by_name = std::make_shared<ModelSeries>(model.name, shards_);
  series->model = by_name;
  for (const engine::TableInfo& table : tables) {
    auto& counts = tables_[{model.name, table.name}];
    if (counts == nullptr) counts = std::make_shared<TableSeries>();
    series->tables.push_back(counts);
  }
  auto& newest = versions_[key];
  series->calls = newest == nullptr ? std::make_shared<CallSeries>(shards_) : newest->calls;
  if (newest == nullptr || newest->generation < model.generation) newest = series;
  return series;
}

std::shared_ptr<const VersionSeries> Metrics::For(const ServedModel& model) {
  MutexLock lock(mu_);
  const auto it = versions_.find(VersionKey(model.name, model.version));
  if (it != versions_.end() && it->second->generation == model.generation) return it->second;
  return Make(model);
}

void Metrics::CountPublished(const ServedModel& model, std::chrono::nanoseconds load_time) {
  MutexLock lock(mu_);
  Make(model);
  auto& histogram = load_durations_[model.name];
  if (histogram == nullptr) histogram = std::make_unique<Histogram>(kLoadBounds, kSecond, 1);
  histogram->Observe(0, load_time.count());
}

void Metrics::CountLoadFailed(const std::string& name, absl::string_view reason) {
  // Who writes to the repository can make up names without end; those beyond count without one.
  constexpr size_t kMost = 1000;
  MutexLock lock(mu_);
  std::pair key(name, std::string(reason));
  if (load_failures_.size() >= kMost && !load_failures_.contains(key)) key.first.clear();
  ++load_failures_[std::move(key)];
}

void Metrics::CountUnloaded(const std::string& name, int64_t version, int64_t generation) {
  MutexLock lock(mu_);
  const VersionKey key(name, version);
  int64_t& gone = unloaded_[key];
  gone = std::max(gone, generation);
  // No call is under way for that long.
  constexpr size_t kMost = 1000;
  if (unloaded_.size() > kMost) {
    unloaded_.erase(
        std::min_element(unloaded_.begin(), unloaded_.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; }));
  }
  const auto it = versions_.find(key);
  if (it == versions_.end() || it->second->generation > generation) return;
  versions_.erase(it);
  const auto next = versions_.lower_bound(VersionKey(name, INT64_MIN));
  if (next != versions_.end() && next->first.first == name) return;
  models_.erase(name);
  load_durations_.erase(name);
  const auto of_model = [&](const auto& entry) { return entry.first.first == name; };
  std::erase_if(tables_, of_model);
}

void Metrics::CollectCalls(MetricPage& page) const {
  for (const auto& [key, series] : versions_) {
    AddCodes(series->calls->codes, key.first, absl::StrCat(key.second), page);
  }
  AddCodes(without_model_, "", "", page);
  AddShed(shed_without_model_, "", page);
  for (const auto& [name, series] : models_) AddShed(series->shed, name, page);
  for (int i = 0; i < kCancelStages; ++i) {
    page.AddCounter("ulfd_cancelled_total",
                    "Calls whose caller went away or whose deadline passed while computing",
                    cancelled_[i].value(), {{"stage", std::string(kCancelNames[i])}});
  }
  page.AddHistogram("ulfd_batch_requests", "Calls in a piece of work of one worker",
                    batch_requests_.Collect());
  page.AddHistogram("ulfd_batch_rows", "Ads in a piece of work of one worker",
                    batch_rows_.Collect());
  page.AddGauge("ulfd_inflight_requests", "Scoring calls that have not ended", in_flight_.value());
}

void Metrics::CollectModels(MetricPage& page) const {
  for (const auto& [key, series] : versions_) {
    page.AddHistogram("ulfd_request_duration_seconds",
                      "From the arrival of a call to its reply, of calls that ended with OK",
                      series->calls->duration.Collect(),
                      {{"model", key.first}, {"version", absl::StrCat(key.second)}},
                      series->calls->duration.Exemplars());
  }
  for (const auto& [name, series] : models_) {
    for (int i = 0; i < kStages; ++i) {
      AddIfObserved("ulfd_stage_duration_seconds", "Time of each stage of a call",
                    series->stages[i], {{"model", name}, {"stage", std::string(kStageNames[i])}},
                    page);
    }
    const MetricPage::Labels labels = {{"model", name}};
    page.AddCounter("ulfd_candidates_total", "Ads scored", series->candidates.value(), labels);
    AddIfObserved("ulfd_candidates_per_request", "Ads per scored request",
                  series->candidates_per_request, labels, page);
    page.AddCounter("ulfd_score_nonfinite_total", "Output values that are NaN or infinite",
                    series->nonfinite_scores.value(), labels);
    page.AddCounter("ulfd_unproved_runs_total",
                    "Runs in one piece, because the rows are not proved to be independent",
                    series->unproved_runs.value(), labels);
    page.AddCounter("ulfd_users_run_alone_total", "Calls of a batch that were computed one by one",
                    series->users_run_alone.value(), labels);
    page.AddCounter("ulfd_tiled_inputs_total",
                    "Inputs of the user that came once per ad and were taken once",
                    series->tiled_inputs.value(), labels);
  }
  for (const auto& [key, series] : tables_) {
    const MetricPage::Labels labels = {{"model", key.first}, {"table", key.second}};
    page.AddCounter("ulfd_embedding_lookups_total", "Ids that were looked up",
                    series->looked_up.value(), labels);
    page.AddCounter("ulfd_embedding_missing_keys_total", "Looked-up ids that the table lacks",
                    series->missing.value(), labels);
    page.AddCounter("ulfd_embedding_late_ids_total",
                    "Ids of requests whose rows did not come in time from the table's store",
                    series->late.value(), labels);
  }
}

void Metrics::CollectLoads(MetricPage& page) const {
  for (const auto& [name, histogram] : load_durations_) {
    page.AddHistogram("ulfd_model_load_duration_seconds",
                      "From the start of a load to its publication", histogram->Collect(),
                      {{"model", name}});
  }
  for (const auto& [key, n] : load_failures_) {
    page.AddCounter("ulfd_model_load_failures_total", "Contents that were not published", n,
                    {{"model", key.first}, {"reason", key.second}});
  }
}

std::vector<double> Metrics::DurationBounds() {
  std::vector<double> bounds;
  for (const int64_t bound : kDurationBounds)
    bounds.push_back(static_cast<double>(bound) / kSecond);
  return bounds;
}

std::vector<VersionTraffic> Metrics::Traffic() const {
  std::vector<VersionTraffic> all;
  const auto add = [&all](VersionTraffic of, const CodeCounters& codes) -> VersionTraffic& {
    of.ok = codes.counts()[0].value();
    for (const Counter& count : codes.counts()) of.failed += count.value();
    of.failed -= of.ok;
    return all.emplace_back(std::move(of));
  };
  MutexLock lock(mu_);
  add({}, without_model_);
  for (const auto& [key, series] : versions_) {
    VersionTraffic& of =
        add({.model = key.first, .version = absl::StrCat(key.second)}, series->calls->codes);
    const ClientMetric::Histogram durations = series->calls->duration.Collect();
    for (const auto& bucket : durations.bucket) of.counts.push_back(bucket.cumulative_count);
    of.counts.push_back(durations.sample_count);
  }
  return all;
}

void Metrics::Collect(MetricPage& page) const {
  MutexLock lock(mu_);
  CollectCalls(page);
  CollectModels(page);
  CollectLoads(page);
}

}  // namespace ulfd::server

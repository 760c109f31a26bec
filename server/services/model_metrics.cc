// SPDX-License-Identifier: Apache-2.0
#include "server/services/model_metrics.h"

#include <chrono>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/embedding/table.h"

namespace ulfd::server {
namespace {

using Labels = MetricPage::Labels;

Labels With(Labels labels, const char* name, std::string value) {
  labels.push_back({name, std::move(value)});
  return labels;
}

// A page whose counters do not go back where their source does.
class GrowingPage {
 public:
  GrowingPage(const std::map<std::string, GrowingSeries>& before, MetricPage& page)
      : before_(before), page_(page) {}

  void AddGauge(const char* name, const char* help, double value, const Labels& labels = {}) {
    page_.AddGauge(name, help, value, labels);
  }
  void AddCounter(const char* name, const char* help, double value, const Labels& labels) {
    page_.AddCounter(name, help, Grown(name, labels, {value})[0], labels);
  }
  void AddHistogram(const char* name, const char* help,
                    prometheus::ClientMetric::Histogram histogram, const Labels& labels) {
    std::vector<double> numbers = {histogram.sample_sum};
    for (const auto& bucket : histogram.bucket) {
      numbers.push_back(static_cast<double>(bucket.cumulative_count));
    }
    numbers = Grown(name, labels, std::move(numbers));
    histogram.sample_sum = numbers[0];
    for (size_t b = 0; b < histogram.bucket.size(); ++b) {
      histogram.bucket[b].cumulative_count = static_cast<uint64_t>(numbers[b + 1]);
    }
    histogram.sample_count = static_cast<uint64_t>(numbers.back());
    page_.AddHistogram(name, help, std::move(histogram), labels);
  }
  // What there was on this page.
  std::map<std::string, GrowingSeries> Take() { return std::move(now_); }

 private:
  // `numbers`: the last one counts all events.
  std::vector<double> Grown(const char* name, const Labels& labels, std::vector<double> numbers) {
    std::string key = name;
    for (const auto& label : labels) absl::StrAppend(&key, "\n", label.name, "\n", label.value);
    const auto known = before_.find(key);
    GrowingSeries& series = now_[key];
    series.before.resize(numbers.size());
    if (known != before_.end()) series.before = known->second.before;
    if (known != before_.end() && numbers.back() < known->second.last.back()) {
      for (size_t i = 0; i < numbers.size(); ++i) series.before[i] += known->second.last[i];
    }
    series.last = numbers;
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] += series.before[i];
    return numbers;
  }

  const std::map<std::string, GrowingSeries>& before_;
  std::map<std::string, GrowingSeries> now_;
  MetricPage& page_;
};

// How many there are in each state.
void AddShapePlans(const engine::Model& model, const Labels& labels, GrowingPage& page) {
  std::map<absl::string_view, int> states;
  for (const engine::ShapePlanInfo& plan : model.shape_plans()) ++states[engine::Name(plan.state)];
  for (const auto& [state, plans] : states) {
    page.AddGauge("ulfd_shape_plans", "Plans for shapes that requests showed and nothing states",
                  plans, With(labels, "state", std::string(state)));
  }
}

void AddSavedFlops(double flops, const char* cache, const Labels& labels, GrowingPage& page) {
  page.AddCounter("ulfd_cache_saved_flops_total",
                  "Floating-point operations that computing what was found would have taken", flops,
                  With(labels, "cache", cache));
}

void AddUserCache(const engine::Model& model, const Labels& labels, GrowingPage& page) {
  if (model.info().user_cache_bytes == 0) return;
  const CacheStats cache = model.user_cache();
  page.AddGauge("ulfd_user_cache_bytes", "What the cache of users holds", cache.bytes, labels);
  AddSavedFlops(static_cast<double>(cache.hits) * model.info().user_hit_flops, "user", labels,
                page);
  for (const auto& [found, users] :
       {std::pair("hit", cache.hits), std::pair("miss", cache.misses)}) {
    page.AddCounter("ulfd_user_cache_users_total",
                    "Users whose part was found in the cache, or computed for it", users,
                    With(labels, "result", found));
  }
}

void AddAdCache(const engine::Model& model, const Labels& labels, GrowingPage& page) {
  if (model.info().ad_cache_bytes == 0) return;
  const engine::AdCacheStats cache = model.ad_cache();
  page.AddGauge("ulfd_ad_cache_bytes", "What the cache of ads holds", cache.bytes, labels);
  AddSavedFlops(static_cast<double>(cache.hits) * model.info().ad_hit_flops, "ad", labels, page);
  for (const auto& [result, ads] : {std::pair("hit", cache.hits), std::pair("miss", cache.misses),
                                    std::pair("passed", cache.passed)}) {
    page.AddCounter("ulfd_ad_cache_ads_total",
                    "Ads whose part was found in the cache, or not, or not looked for", ads,
                    With(labels, "result", result));
  }
}

void AddCost(const CostModel::Parts& parts, const Labels& labels, GrowingPage& page) {
  for (const auto& [part, ns] : {std::pair("base", parts.base_ns), std::pair("user", parts.user_ns),
                                 std::pair("row", parts.row_ns)}) {
    page.AddGauge("ulfd_model_cost_seconds",
                  "What a call is predicted to take: once, per user, per ad", ns / 1e9,
                  With(labels, "part", part));
  }
}

void AddDeltas(const engine::ModelInfo& info, const Labels& labels, GrowingPage& page) {
  if (info.epoch == 0) return;
  page.AddGauge("ulfd_model_epoch", "Epoch of the last delta that a served version has", info.epoch,
                labels);
  const std::chrono::duration<double> when = info.event_time.time_since_epoch();
  page.AddGauge("ulfd_model_event_timestamp_seconds",
                "Unix time up to which the tables of a served version are true, by its deltas",
                when.count(), labels);
  page.AddCounter("ulfd_model_folds_total", "Tables folded with their deltas", info.folds, labels);
  for (const engine::TableInfo& table : info.tables) {
    const Labels of_table = With(labels, "table", table.name);
    if (!table.stored) {
      page.AddGauge("ulfd_table_rows", "Rows of a table that deltas are folded into", table.rows,
                    of_table);
    }
    page.AddGauge("ulfd_table_overlay_rows", "Rows of deltas that are not folded yet",
                  table.overlay_rows, of_table);
    page.AddGauge("ulfd_table_overlay_bytes", "Memory of deltas that are not folded yet",
                  table.overlay_bytes, of_table);
  }
}

void AddDamage(const engine::Model& model, const Labels& labels, GrowingPage& page) {
  for (const auto& table : model.tables()) {
    if (table->mapped_bytes() == 0) continue;
    page.AddGauge("ulfd_table_damaged",
                  "1: bytes of the table's file are not those that were written, or cannot be read",
                  table->Check().ok() ? 0 : 1, With(labels, "table", table->name()));
  }
}

prometheus::ClientMetric::Histogram FetchTimes(const engine::RowTierStats& stats) {
  prometheus::ClientMetric::Histogram histogram;
  uint64_t sum = 0;
  for (size_t b = 0; b < stats.fetch_counts.size(); ++b) {
    sum += static_cast<uint64_t>(stats.fetch_counts[b]);
    const bool last = b == stats.kFetchBounds.size();
    const double bound = last ? std::numeric_limits<double>::infinity() : stats.kFetchBounds[b];
    histogram.bucket.push_back({.cumulative_count = sum, .upper_bound = bound});
  }
  histogram.sample_count = sum;
  histogram.sample_sum = stats.fetch_seconds;
  return histogram;
}

// Of a table whose rows lie in a store.
void AddTier(const engine::RowTierStats& stats, const Labels& labels, GrowingPage& page) {
  for (const auto& [result, ids] :
       {std::pair("hit", stats.hits), std::pair("miss", stats.misses)}) {
    page.AddCounter("ulfd_embedding_cache_ids_total",
                    "Ids of requests, by whether their rows were in memory (hit) or had to be "
                    "fetched (miss)",
                    ids, With(labels, "result", result));
  }
  page.AddGauge("ulfd_embedding_cache_bytes", "What rows in memory take", stats.cached_bytes,
                labels);
  page.AddHistogram("ulfd_embedding_fetch_duration_seconds",
                    "What requests waited for rows from the table's store", FetchTimes(stats),
                    labels);
  page.AddCounter("ulfd_embedding_hedges_total",
                  "Reads sent to a second node of the table's store because the first was slow, "
                  "for all tables of the store",
                  stats.hedges, labels);
  page.AddCounter("ulfd_embedding_fetch_failures_total",
                  "Fetches that an error of the table's store left without rows", stats.failures,
                  labels);
}

void AddServed(const ServedModel& served, const std::vector<std::string>& names,
               const Labels& labels, GrowingPage& page) {
  const engine::Model& model = *served.model;
  const engine::ModelInfo& info = model.info();
  page.AddGauge("ulfd_model_info", "1 for each version that serves", 1,
                With(With(labels, "label", absl::StrJoin(names, ",")), "sha", info.content_hash));
  const std::chrono::duration<double> when = served.published_at.time_since_epoch();
  page.AddGauge("ulfd_model_published_timestamp_seconds",
                "Unix time at which what serves was published", when.count(), labels);
  page.AddGauge("ulfd_model_memory_bytes", "What a served version holds", model.memory_bytes(),
                labels);
  AddCost(served.lane->cost().parts(), labels, page);
  AddShapePlans(model, labels, page);
  AddUserCache(model, labels, page);
  AddAdCache(model, labels, page);
  AddDeltas(info, labels, page);
  AddDamage(model, labels, page);
  const auto tiers = model.TierStats();
  for (size_t t = 0; t < tiers.size(); ++t) {
    if (tiers[t].has_value()) AddTier(*tiers[t], With(labels, "table", info.tables[t].name), page);
  }
}

}  // namespace

void ModelMetrics::Collect(MetricPage& collected) {
  MutexLock lock(mu_);  // What is read later counts later.
  GrowingPage page(series_, collected);
  for (const ModelStatus& model : models_.List()) {
    if (model.unreadable) {
      page.AddGauge("ulfd_model_unreadable", "1 for each model whose directory cannot be looked at",
                    1, {{"model", model.name}});
    }
    for (const VersionStatus& version : model.versions) {
      const Labels labels = {{"model", model.name}, {"version", absl::StrCat(version.version)}};
      const bool unwanted = version.quarantine.has_value() && version.quarantine->by_operator;
      if (version.state == VersionState::kFailed && !unwanted) {
        page.AddGauge(
            "ulfd_model_version_failed",
            "1 for each version whose newest content cannot be served, unless an operator "
            "rejected it",
            1, labels);
      }
      if (version.delta_refused) {
        page.AddGauge("ulfd_model_delta_refused",
                      "1 for each version that serves without its next delta, which was refused", 1,
                      labels);
      }
      if (version.quarantine.has_value()) {
        page.AddGauge("ulfd_model_quarantined",
                      "1 for each version whose newest content is in quarantine", 1, labels);
      }
      if (version.serving != nullptr) AddServed(*version.serving, version.labels, labels, page);
    }
  }
  page.AddGauge("ulfd_model_generation", "Publications of the whole server so far",
                models_.generation());
  page.AddGauge("ulfd_ready", "1 if the server can be called: /readyz says 200 unless it drains",
                models_.Ready() ? 1 : 0);
  series_ = page.Take();
}

void CollectScheduler(const SchedulerStats& stats, MetricPage& page) {
  page.AddGauge("ulfd_queue_rows", "Ads in requests that wait for a worker", stats.queued_rows);
  page.AddGauge("ulfd_queue_requests", "Requests that wait for a worker", stats.queued_requests);
  page.AddGauge("ulfd_queue_predicted_seconds",
                "Time that the workers need for what they have in hand",
                std::chrono::duration<double>(stats.pending).count() / stats.workers);
  page.AddGauge("ulfd_queue_overloaded",
                "1 while the queue stands and newcomers that would wait for long are refused",
                stats.overloaded ? 1 : 0);
  page.AddGauge("ulfd_workers", "Threads that score", stats.workers);
  page.AddGauge("ulfd_workers_busy", "Workers that score a request now", stats.busy_workers);
  page.AddCounter("ulfd_calls_at_once_total", "Calls computed by the thread that received them",
                  stats.at_once);
  page.AddCounter("ulfd_computed_rows_total",
                  "Ads that workers computed, also for callers who then left", stats.rows);
  page.AddCounter("ulfd_worker_busy_seconds_total",
                  "Time that workers spent on requests, all together",
                  std::chrono::duration<double>(stats.busy).count());
}

void CollectRecorder(const RecorderStats& stats, MetricPage& page) {
  page.AddCounter("ulfd_recorder_records_total", "Calls written to the recordings", stats.records);
  page.AddCounter("ulfd_recorder_bytes_total", "Bytes written to the recordings", stats.bytes);
  constexpr const char* kReasons[kRecorderDrops] = {"rate", "queue_full", "too_large", "disk"};
  for (int i = 0; i < kRecorderDrops; ++i) {
    page.AddCounter("ulfd_recorder_dropped_total",
                    "Calls that were chosen but not recorded: more than max_per_second (rate), "
                    "the disk too slow (queue_full), larger than a file (too_large), or "
                    "writing fails (disk)",
                    stats.dropped[i], {{"reason", kReasons[i]}});
  }
  page.AddGauge("ulfd_recorder_queued_bytes", "Recordings that wait to be written",
                stats.queued_bytes);
  page.AddGauge("ulfd_recorder_failing", "1 if writing failed and has not succeeded since",
                stats.failing ? 1 : 0);
}

}  // namespace ulfd::server

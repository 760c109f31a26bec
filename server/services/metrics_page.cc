// Collects and serialises.
// SPDX-License-Identifier: Apache-2.0
#include "server/services/metrics_page.h"

#include <prometheus/text_serializer.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/observe/process_metrics.h"
#include "server/services/status_report.h"

namespace ulfd::server {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;

// How many there are in each state.
void AddShapePlans(const engine::Model& model,
                   const std::vector<prometheus::ClientMetric::Label>& labels,
                   MetricFamily& family) {
  std::map<absl::string_view, int> states;
  for (const engine::ShapePlanInfo& plan : model.shape_plans()) ++states[engine::Name(plan.state)];
  for (const auto& [state, plans] : states) {
    std::vector<prometheus::ClientMetric::Label> of_state = labels;
    of_state.push_back({"state", std::string(state)});
    family.metric.push_back(GaugeSample(plans, of_state));
  }
}

void AddModels(const ModelLookup& models, std::vector<MetricFamily>& families) {
  auto info = Family("ulfd_model_info", "1 for each version that serves", MetricType::Gauge);
  auto memory = Family("ulfd_model_memory_bytes", "What a served version holds", MetricType::Gauge);
  auto cost = Family("ulfd_model_cost_seconds",
                     "What a call is predicted to take: once, per user, per ad", MetricType::Gauge);
  auto quarantined =
      Family("ulfd_model_quarantined", "1 for each version whose newest content is in quarantine",
             MetricType::Gauge);
  auto published = Family("ulfd_model_published_timestamp_seconds",
                          "Unix time at which what serves was published", MetricType::Gauge);
  auto failed =
      Family("ulfd_model_version_failed",
             "1 for each version whose newest content cannot be served", MetricType::Gauge);
  auto shape_plans =
      Family("ulfd_shape_plans", "Plans for shapes that requests showed and nothing states",
             MetricType::Gauge);
  auto cached_users =
      Family("ulfd_user_cache_users_total",
             "Users whose part was found in the cache, or computed for it", MetricType::Counter);
  auto cache_bytes =
      Family("ulfd_user_cache_bytes", "What the cache of users holds", MetricType::Gauge);
  for (const ModelStatus& model : models.List()) {
    for (const VersionStatus& version : model.versions) {
      const std::string number = absl::StrCat(version.version);
      const std::vector<prometheus::ClientMetric::Label> labels = {{"model", model.name},
                                                                   {"version", number}};
      if (version.state == VersionState::kFailed) failed.metric.push_back(GaugeSample(1, labels));
      if (version.quarantine.has_value()) quarantined.metric.push_back(GaugeSample(1, labels));
      if (version.serving == nullptr) continue;
      const engine::ModelInfo& facts = version.serving->model->info();
      info.metric.push_back(GaugeSample(1, {{"model", model.name},
                                            {"version", number},
                                            {"label", absl::StrJoin(version.labels, ",")},
                                            {"sha", facts.content_hash}}));
      const std::chrono::duration<double> when = version.serving->published_at.time_since_epoch();
      published.metric.push_back(GaugeSample(when.count(), labels));
      memory.metric.push_back(
          GaugeSample(static_cast<double>(version.serving->model->memory_bytes()), labels));
      AddShapePlans(*version.serving->model, labels, shape_plans);
      if (facts.user_cache_bytes > 0) {
        const CacheStats cache = version.serving->model->user_cache();
        cache_bytes.metric.push_back(GaugeSample(static_cast<double>(cache.bytes), labels));
        for (const auto& [found, users] :
             {std::pair("hit", cache.hits), std::pair("miss", cache.misses)}) {
          cached_users.metric.push_back(
              CounterSample(static_cast<double>(users),
                            {{"model", model.name}, {"version", number}, {"result", found}}));
        }
      }
      const CostModel::Parts parts = version.serving->lane->cost().parts();
      for (const auto& [part, ns] :
           {std::pair("base", parts.base_ns), std::pair("user", parts.user_ns),
            std::pair("row", parts.row_ns)}) {
        cost.metric.push_back(
            GaugeSample(ns / 1e9, {{"model", model.name}, {"version", number}, {"part", part}}));
      }
    }
  }
  families.push_back(Family("ulfd_model_generation", "Publications of the whole server so far",
                            MetricType::Gauge,
                            {GaugeSample(static_cast<double>(models.generation()))}));
  families.push_back(Family("ulfd_ready",
                            "1 if the server can be called: /readyz says 200 unless it drains",
                            MetricType::Gauge, {GaugeSample(models.Ready() ? 1 : 0)}));
  families.push_back(std::move(info));
  families.push_back(std::move(published));
  families.push_back(std::move(failed));
  families.push_back(std::move(memory));
  families.push_back(std::move(cost));
  families.push_back(std::move(quarantined));
  families.push_back(std::move(shape_plans));
  families.push_back(std::move(cached_users));
  families.push_back(std::move(cache_bytes));
}

void AddDeltas(const ModelLookup& models, std::vector<MetricFamily>& families) {
  auto epochs = Family("ulfd_model_epoch", "Epoch of the last delta that a served version has",
                       MetricType::Gauge);
  auto times =
      Family("ulfd_model_event_timestamp_seconds",
             "Unix time up to which the tables of a served version are true, by its deltas",
             MetricType::Gauge);
  auto folds =
      Family("ulfd_model_folds_total",
             "Tables folded with their deltas since the version was loaded", MetricType::Counter);
  auto rows = Family("ulfd_table_overlay_rows", "Rows of deltas that are not folded yet",
                     MetricType::Gauge);
  auto bytes = Family("ulfd_table_overlay_bytes", "Memory of deltas that are not folded yet",
                      MetricType::Gauge);
  for (const ModelStatus& model : models.List()) {
    for (const VersionStatus& version : model.versions) {
      if (version.serving == nullptr) continue;
      const engine::ModelInfo& info = version.serving->model->info();
      if (info.epoch == 0) continue;
      const std::string number = absl::StrCat(version.version);
      const std::vector<prometheus::ClientMetric::Label> labels = {{"model", model.name},
                                                                   {"version", number}};
      epochs.metric.push_back(GaugeSample(static_cast<double>(info.epoch), labels));
      const std::chrono::duration<double> when = info.event_time.time_since_epoch();
      times.metric.push_back(GaugeSample(when.count(), labels));
      folds.metric.push_back(CounterSample(static_cast<double>(info.folds), labels));
      for (const engine::TableInfo& table : info.tables) {
        const std::vector<prometheus::ClientMetric::Label> of_table = {
            {"model", model.name}, {"version", number}, {"table", table.name}};
        rows.metric.push_back(GaugeSample(static_cast<double>(table.overlay_rows), of_table));
        bytes.metric.push_back(GaugeSample(static_cast<double>(table.overlay_bytes), of_table));
      }
    }
  }
  for (MetricFamily* family : {&epochs, &times, &folds, &rows, &bytes}) {
    families.push_back(std::move(*family));
  }
}

prometheus::ClientMetric FetchTimes(const engine::RowTierStats& stats) {
  prometheus::ClientMetric metric;
  uint64_t sum = 0;
  for (size_t b = 0; b < stats.fetch_counts.size(); ++b) {
    sum += static_cast<uint64_t>(stats.fetch_counts[b]);
    const bool last = b == stats.kFetchBounds.size();
    const double bound = last ? std::numeric_limits<double>::infinity() : stats.kFetchBounds[b];
    metric.histogram.bucket.push_back({.cumulative_count = sum, .upper_bound = bound});
  }
  metric.histogram.sample_count = sum;
  metric.histogram.sample_sum = stats.fetch_seconds;
  return metric;
}

// Of tables whose rows lie in stores.
void AddTiers(const ModelLookup& models, std::vector<MetricFamily>& families) {
  auto found = Family("ulfd_embedding_cache_ids_total",
                      "Ids of requests, by whether their rows were in memory (hit) or had to be "
                      "fetched (miss)",
                      MetricType::Counter);
  auto bytes = Family("ulfd_embedding_cache_bytes", "What rows in memory take", MetricType::Gauge);
  auto fetches =
      Family("ulfd_embedding_fetch_duration_seconds",
             "What requests waited for rows from the table's store", MetricType::Histogram);
  auto hedges = Family("ulfd_embedding_hedges_total",
                       "Reads sent to a second node of the table's store because the first was "
                       "slow, for all tables of the store",
                       MetricType::Counter);
  auto failures =
      Family("ulfd_embedding_fetch_failures_total",
             "Fetches that an error of the table's store left without rows", MetricType::Counter);
  for (const ModelStatus& model : models.List()) {
    for (const VersionStatus& version : model.versions) {
      if (version.serving == nullptr) continue;
      const engine::Model& served = *version.serving->model;
      const auto tiers = served.TierStats();
      for (size_t t = 0; t < tiers.size(); ++t) {
        if (!tiers[t].has_value()) continue;
        std::vector<prometheus::ClientMetric::Label> labels = {
            {"model", model.name},
            {"version", absl::StrCat(version.version)},
            {"table", served.info().tables[t].name}};
        const engine::RowTierStats& stats = *tiers[t];
        bytes.metric.push_back(GaugeSample(static_cast<double>(stats.cached_bytes), labels));
        hedges.metric.push_back(CounterSample(static_cast<double>(stats.hedges), labels));
        failures.metric.push_back(CounterSample(static_cast<double>(stats.failures), labels));
        fetches.metric.push_back(FetchTimes(stats));
        fetches.metric.back().label = labels;
        for (const auto& [result, ids] :
             {std::pair("hit", stats.hits), std::pair("miss", stats.misses)}) {
          auto with_result = labels;
          with_result.push_back({"result", result});
          found.metric.push_back(CounterSample(static_cast<double>(ids), with_result));
        }
      }
    }
  }
  for (auto* family : {&found, &bytes, &fetches, &hedges, &failures}) {
    families.push_back(std::move(*family));
  }
}

void AddScheduler(const SchedulerStats& stats, std::vector<MetricFamily>& families) {
  const auto gauge = [&](const char* name, const char* help, double value) {
    families.push_back(Family(name, help, MetricType::Gauge, {GaugeSample(value)}));
  };
  gauge("ulfd_queue_rows", "Ads in requests that wait for a worker",
        static_cast<double>(stats.queued_rows));
  gauge("ulfd_queue_requests", "Requests that wait for a worker",
        static_cast<double>(stats.queued_requests));
  gauge("ulfd_queue_predicted_seconds", "Time that the workers need for what they have in hand",
        std::chrono::duration<double>(stats.pending).count() / stats.workers);
  gauge("ulfd_queue_overloaded",
        "1 while the queue stands and newcomers that would wait for long are refused",
        stats.overloaded ? 1 : 0);
  gauge("ulfd_workers", "Threads that score", stats.workers);
  gauge("ulfd_workers_busy", "Workers that score a request now", stats.busy_workers);
  families.push_back(Family("ulfd_calls_at_once_total",
                            "Calls computed by the thread that received them", MetricType::Counter,
                            {CounterSample(static_cast<double>(stats.at_once))}));
  families.push_back(Family("ulfd_computed_rows_total",
                            "Ads that workers computed, also for callers who then left",
                            MetricType::Counter, {CounterSample(static_cast<double>(stats.rows))}));
  families.push_back(Family(
      "ulfd_worker_busy_seconds_total", "Time that workers spent on requests, all together",
      MetricType::Counter, {CounterSample(std::chrono::duration<double>(stats.busy).count())}));
}

}  // namespace

std::string MetricsPage(const Metrics& metrics, const ModelLookup& models,
                        const Scheduler& scheduler, std::vector<MetricFamily> more) {
  std::vector<MetricFamily> families = metrics.Collect();
  std::move(more.begin(), more.end(), std::back_inserter(families));
  AddModels(models, families);
  AddDeltas(models, families);
  AddTiers(models, families);
  AddScheduler(scheduler.Stats(), families);
  const BuildFacts build = ThisBuild();
  families.push_back(
      Family("ulfd_build_info", "1; what runs", MetricType::Gauge,
             {GaugeSample(1, {{"version", build.version}, {"build", build.build}})}));
  std::vector<MetricFamily> process = CollectProcessMetrics();
  std::move(process.begin(), process.end(), std::back_inserter(families));
  families.erase(std::remove_if(families.begin(), families.end(),
                                [](const MetricFamily& f) { return f.metric.empty(); }),
                 families.end());
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace ulfd::server

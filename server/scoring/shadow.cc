// SPDX-License-Identifier: Apache-2.0
#include "server/scoring/shadow.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "engine/tensor/onednn.h"
#include "server/system/share.h"
#include "server/system/threads.h"

namespace ulfd::server {
namespace {

// Differences are counted in units of 1e-9; scores are mostly probabilities.
constexpr double kUnit = 1e9;
constexpr int64_t kBounds[] = {10,        100,        1'000,       10'000,        100'000,
                               1'000'000, 10'000'000, 100'000'000, 1'000'000'000, 10'000'000'000};
constexpr double kLargest = 1e18;

}  // namespace

Shadow::Series::Series() : difference(kBounds, kUnit, /*shards=*/1) {}

Shadow::Shadow(const ModelLookup& models, const RequestLimits& limits, Logger& logger)
    : models_(models), limits_(limits), logger_(logger), thread_([this] { Run(); }) {}

Shadow::Shadow(const ModelLookup& models, const RequestLimits& limits, Logger& logger,
               WithoutThread)
    : models_(models), limits_(limits), logger_(logger) {}

Shadow::~Shadow() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
    work_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

std::optional<ShadowTarget> Shadow::Choose(const std::string& model, int64_t version) {
  std::optional<ShadowTarget> target = models_.FindShadow(model);
  if (!target.has_value() || target->handle->version == version) return std::nullopt;
  if (!IsAmongShare(calls_seen_.fetch_add(1, std::memory_order_relaxed), target->share)) {
    return std::nullopt;
  }
  return target;
}

const std::shared_ptr<Shadow::Series>& Shadow::SeriesOf(const ShadowTarget& target) {
  const std::string& name = target.handle->name;
  const Key key(name, target.handle->version);
  if (!series_.contains(key)) {  // Others shadow the model no longer.
    std::erase_if(series_, [&](const auto& entry) { return entry.first.first == name; });
  }
  std::shared_ptr<Series>& series = series_[key];
  if (series == nullptr) series = std::make_shared<Series>();
  return series;
}

bool Shadow::HasPlace(const ShadowTarget& target, int64_t bytes) const {
  const auto queued = queued_.find(target.handle->name);
  const bool fits = queued_bytes_ == 0 || queued_bytes_ + bytes <= kMaxShadowBytes;
  return fits && (queued == queued_.end() ? 0 : queued->second) < target.max_queued && !stopping_;
}

void Shadow::Drop(const ShadowTarget& target) { SeriesOf(target)->dropped.Add(); }

void Shadow::Add(ShadowTarget target, recording::v1::Recording call) {
  const auto bytes = static_cast<int64_t>(call.ByteSizeLong());
  MutexLock lock(mu_);
  if (!HasPlace(target, bytes)) return Drop(target);
  ++queued_[target.handle->name];
  queued_bytes_ += bytes;
  const std::shared_ptr<Series> series = SeriesOf(target);
  queue_.push_back({std::move(target), std::move(call), bytes, series});
  work_.NotifyOne();
}

void Shadow::Offer(recording::v1::Api api, const google::protobuf::MessageLite& request,
                   const DecodedRequest& decoded, const engine::ModelInfo& info,
                   const engine::RunResult& result) {
  if (decoded.late_ids > 0) return;  // Late rows would count as a difference of the versions.
  std::optional<ShadowTarget> target = Choose(info.name, info.version);
  if (!target.has_value()) return;
  // The caller is not to wait for a copy of what has no place.
  const auto bytes = static_cast<int64_t>(request.ByteSizeLong());
  {
    MutexLock lock(mu_);
    if (!HasPlace(*target, bytes)) return Drop(*target);
  }
  Add(*std::move(target), MakeRecording(api, request, decoded, info, result));
}

void Shadow::Run() {
  MakeBackgroundThread("ulfd-shadow");
  engine::UseOneThread();
  while (true) {
    {
      MutexLock lock(mu_);
      while (queue_.empty() && !stopping_) work_.Wait(mu_);
      if (stopping_) return;
    }
    ScoreQueued();
  }
}

void Shadow::ScoreQueued() {
  while (true) {
    Task task;
    {
      MutexLock lock(mu_);
      if (queue_.empty() || stopping_) return;
      task = std::move(queue_.front());
      queue_.pop_front();
    }
    Score(task);
    MutexLock lock(mu_);
    --queued_[task.target.handle->name];
    queued_bytes_ -= task.bytes;
  }
}

void Shadow::Score(const Task& task) {
  Series& series = *task.series;
  const std::function<bool()> stop = [this] { return stopping_.load(); };
  const absl::Status status = run_.Run(
      task.call, *task.target.handle->model, limits_, {.stop = &stop}, [&](const ScorePair& pair) {
        const double apart = std::abs(pair.found - pair.recorded);
        // Not a number on one side only is as far apart as can be; on both it is no difference.
        const bool both = std::isnan(pair.found) && std::isnan(pair.recorded);
        const bool same = both || pair.found == pair.recorded;
        const double scaled = same ? 0 : std::isfinite(apart) ? apart * kUnit : kLargest;
        series.difference.Observe(0, static_cast<int64_t>(std::min(scaled, kLargest)));
        return absl::OkStatus();
      });
  if (status.ok()) return series.scored.Add();
  series.failed.Add();
  // The 1st, 2nd, 4th, ...: a version that is no good must not fill the log.
  const auto failed = static_cast<uint64_t>(series.failed.value());
  if (!std::has_single_bit(failed)) return;
  logger_.Warning("shadow call failed",
                  {{"model", task.target.handle->name},
                   {"version", task.target.handle->version},
                   {"failed", static_cast<int64_t>(failed)},
                   {"error", Printable(status.message(), kMaxKeptErrorBytes)}});
}

void Shadow::Collect(MetricPage& page) const {
  MutexLock lock(mu_);
  for (const auto& [key, series] : series_) {
    const std::string version = absl::StrCat(key.second);
    const std::pair<const char*, const Counter*> results[] = {
        {"scored", &series->scored}, {"failed", &series->failed}, {"dropped", &series->dropped}};
    for (const auto& [result, counter] : results) {
      page.AddCounter("ulfd_shadow_requests_total",
                      "Calls chosen to be scored by a shadow version, by what became of them",
                      counter->value(),
                      {{"model", key.first}, {"version", version}, {"result", result}});
    }
    page.AddHistogram("ulfd_shadow_score_difference",
                      "How far scores of the shadow version are from those of the reply",
                      series->difference.Collect(), {{"model", key.first}, {"version", version}});
  }
}

}  // namespace ulfd::server

// SPDX-License-Identifier: Apache-2.0
#include "server/services/traffic_history.h"

#include <new>
#include <nlohmann/json.hpp>
#include <utility>

namespace ulfd::server {
namespace {

using Json = nlohmann::ordered_json;
using std::chrono::milliseconds;

constexpr milliseconds kEvery{2000};
constexpr size_t kMostLooks = 150;
constexpr size_t kMostVersions = 20000;  // Of all looks; each takes about 300 bytes.

double CpuSeconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

}  // namespace

TrafficHistory::TrafficHistory(const Metrics& metrics, const WorkerPool& scheduler)
    : metrics_(metrics), scheduler_(scheduler) {
  queue_.Add([this] { Loop(); });
}

TrafficHistory::Look TrafficHistory::Take() const {
  const SchedulerStats stats = scheduler_.Stats();
  return {.at = Clock::now(),
          .waiting = stats.queued_requests,
          .in_flight = metrics_.in_flight(),
          .busy = stats.busy_workers,
          .cpu = CpuSeconds(),
          .versions = metrics_.Traffic()};
}

void TrafficHistory::Keep(Look look) {
  MutexLock lock(mu_);
  kept_versions_ += look.versions.size();
  looks_.push_back(std::move(look));
  while (looks_.size() > kMostLooks || (looks_.size() > 1 && kept_versions_ > kMostVersions)) {
    kept_versions_ -= looks_.front().versions.size();
    looks_.pop_front();
  }
}

void TrafficHistory::Loop() {
  Clock::time_point next = Clock::now();
  do {
    try {
      Keep(Take());
    } catch (const std::bad_alloc&) {
      // A gap of two seconds.
    }
    next += kEvery;
  } while (queue_.SleepFor(next - Clock::now()));
}

std::string TrafficHistory::ToJson() const {
  Json bounds = metrics_.DurationBounds();
  bounds.push_back(nullptr);
  Json looks = Json::array();
  const Clock::time_point now = Clock::now();
  MutexLock lock(mu_);
  for (const Look& look : looks_) {
    Json versions = Json::array();
    for (const VersionTraffic& of : look.versions) {
      versions.push_back({{"model", of.model},
                          {"version", of.version},
                          {"ok", of.ok},
                          {"failed", of.failed},
                          {"counts", of.counts}});
    }
    looks.push_back({{"age_ms", std::chrono::duration_cast<milliseconds>(now - look.at).count()},
                     {"waiting", look.waiting},
                     {"in_flight", look.in_flight},
                     {"busy", look.busy},
                     {"cpu", look.cpu},
                     {"versions", std::move(versions)}});
  }
  return Json{{"bounds", std::move(bounds)}, {"looks", std::move(looks)}}.dump(
      -1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace ulfd::server

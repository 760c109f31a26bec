// ModelEvents: passes on what the manager reports to the log, the metrics and the health service,
// and remembers the last of it.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SERVICES_MODEL_EVENTS_H_
#define ULFD_SERVER_SERVICES_MODEL_EVENTS_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"
#include "proto/admin.pb.h"
#include "server/models/model_observer.h"
#include "server/models/model_types.h"
#include "server/observe/logging.h"
#include "server/observe/metrics.h"
#include "server/observe/tracer.h"
#include "server/services/health_service.h"
#include "server/services/readiness.h"

namespace ulfd::server {

// What names labels that no version has, so that no call gets there: `canary: no version has the
// label "next" (`ulf admin label` can give it one)`.
std::vector<std::string> LabelsOfNoVersion(const ModelStatus& model);

// Thread-safe; called on the manager's threads.
class ModelEvents final : public ModelObserver {
 public:
  // Null: no spans.
  ModelEvents(Logger& logger, Metrics& metrics, Tracer* tracer)
      : logger_(logger), metrics_(metrics), tracer_(tracer) {}

  // The manager is made with its observer, and these with the manager: so the observer learns of
  // them last.  Null: none.
  void set_listeners(HealthService* health, const Readiness* readiness, const ModelLookup* models) {
    models_.store(models);
    readiness_.store(readiness);
    health_.store(health);
  }

  static constexpr size_t kRecent = 32;
  // The last kRecent events, the newest first.
  std::vector<ulfd::admin::v1::ModelEvent> Recent() const;

  void OnPublished(const ServedModel& model, std::chrono::nanoseconds load_time) override;
  void OnLoadFailed(const std::string& name, int64_t version, absl::string_view reason,
                    const absl::Status& error) override;
  void OnUnloaded(const std::string& name, int64_t version, int64_t generation) override;
  void OnReadinessChanged() override;
  void OnShapePlan(const std::string& name, int64_t version,
                   const engine::ShapePlanInfo& plan) override;
  void OnNotice(const std::string& name, int64_t version, const std::string& notice) override;

 private:
  void RefreshHealth();
  // With the time of now.
  void Remember(ulfd::admin::v1::ModelEvent event);
  // A span of a trace of its own.
  void TraceLoad(const std::string& name, int64_t version, std::chrono::nanoseconds took,
                 const absl::Status& status);
  // Of labels and version policies that name what is not there.
  void WarnOfMissing(const ModelLookup& models);
  Logger& logger_;
  Metrics& metrics_;
  Tracer* const tracer_;
  std::atomic<HealthService*> health_{nullptr};
  std::atomic<const Readiness*> readiness_{nullptr};
  std::atomic<const ModelLookup*> models_{nullptr};
  enum class Said : uint8_t { kNothing, kNotReady, kReady };
  std::atomic<Said> said_{Said::kNothing};
  mutable Mutex mu_;
  std::deque<ulfd::admin::v1::ModelEvent> recent_ ABSL_GUARDED_BY(mu_);  // The newest first.
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SERVICES_MODEL_EVENTS_H_

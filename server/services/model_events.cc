// SPDX-License-Identifier: Apache-2.0
#include "server/services/model_events.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/rpc/grpc_status.h"
#include "server/services/model_description.h"

namespace ulfd::server {
namespace {

using Event = ulfd::admin::v1::ModelEvent;

Event EventOf(const std::string& name, int64_t version, Event::Kind kind) {
  Event event;
  event.set_model(name);
  event.set_version(version);
  event.set_kind(kind);
  return event;
}

}  // namespace

void ModelEvents::Remember(Event event) {
  FillTime(std::chrono::system_clock::now(), *event.mutable_at());
  MutexLock lock(mu_);
  recent_.push_front(std::move(event));
  if (recent_.size() > kRecent) recent_.pop_back();
}

std::vector<Event> ModelEvents::Recent() const {
  MutexLock lock(mu_);
  return {recent_.begin(), recent_.end()};
}

void ModelEvents::RefreshHealth() {
  if (HealthService* health = health_.load()) health->Refresh();
}

void ModelEvents::TraceLoad(const std::string& name, int64_t version, std::chrono::nanoseconds took,
                            const absl::Status& status) {
  if (tracer_ == nullptr) return;
  const int64_t now =
      std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
  std::vector<Span> spans(1);
  spans[0] = {.trace_id = Tracer::NewTraceId(),
              .span_id = Tracer::NewSpanId(),
              .name = "load model",
              .start_ns = now - took.count(),
              .end_ns = now,
              .attributes = {{"model", name}, {"version", version}},
              .status = status};
  tracer_->Add(std::move(spans));
}

void ModelEvents::OnPublished(const ServedModel& model, std::chrono::nanoseconds load_time) {
  metrics_.CountPublished(model, load_time);
  TraceLoad(model.name, model.version, load_time, absl::OkStatus());
  Event event = EventOf(model.name, model.version, Event::KIND_PUBLISHED);
  constexpr int64_t kNsPerSecond = 1'000'000'000;
  event.mutable_took()->set_seconds(load_time.count() / kNsPerSecond);
  event.mutable_took()->set_nanos(static_cast<int32_t>(load_time.count() % kNsPerSecond));
  Remember(std::move(event));
  const engine::ModelInfo& info = model.model->info();
  logger_.Info("model published",
               {{"model", model.name},
                {"version", model.version},
                {"generation", model.generation},
                {"sha", info.content_hash},
                {"memory_bytes", model.model->memory_bytes()},
                {"epoch", info.epoch},
                {"load_seconds", std::chrono::duration<double>(load_time).count()}});
  for (const std::string& notice : info.notices) {
    logger_.Warning("model notice",
                    {{"model", model.name}, {"version", model.version}, {"notice", notice}});
  }
  RefreshHealth();
}

void ModelEvents::OnLoadFailed(const std::string& name, int64_t version, absl::string_view reason,
                               const absl::Status& error) {
  metrics_.CountLoadFailed(name, reason);
  // How long it took is in no event of the manager's.
  TraceLoad(name, version, std::chrono::nanoseconds(0), error);
  Event event = EventOf(name, version, Event::KIND_REFUSED);
  event.set_reason(std::string(reason));
  event.set_error(ClipError(error.message()));
  Remember(std::move(event));
  logger_.Error("model refused",
                {{"model", name},
                 {"version", version},
                 {"reason", reason},
                 {"error", error.ToString(absl::StatusToStringMode::kWithNoExtraData)}});
}

void ModelEvents::OnUnloaded(const std::string& name, int64_t version, int64_t generation) {
  metrics_.CountUnloaded(name, version, generation);
  Remember(EventOf(name, version, Event::KIND_UNLOADED));
  logger_.Info("model unloaded",
               {{"model", name}, {"version", version}, {"generation", generation}});
  RefreshHealth();
}

std::vector<std::string> LabelsOfNoVersion(const ModelStatus& model) {
  std::vector<std::string> texts;
  const auto check = [&](absl::string_view setting, const std::string& label) {
    for (const VersionStatus& version : model.versions) {
      if (absl::c_linear_search(version.labels, label)) return;
    }
    texts.push_back(absl::StrCat(setting, ": no version has the label \"", label,
                                 "\" (`ulf admin label` can give it one)"));
  };
  if (model.canary.has_value()) check("canary", model.canary->label);
  if (model.shadow.has_value()) check("shadow", model.shadow->label);
  return texts;
}

void ModelEvents::WarnOfMissing(const ModelLookup& models) {
  for (const ModelStatus& model : models.List()) {
    for (const VersionStatus& version : model.versions) {
      if (!version.missing) continue;
      const std::string named =
          version.labels.empty() ? "version_policy" : absl::StrJoin(version.labels, ",");
      logger_.Warning("a version that is configured does not exist",
                      {{"model", model.name}, {"version", version.version}, {"named_by", named}});
    }
    for (const std::string& text : LabelsOfNoVersion(model)) OnNotice(model.name, 0, text);
  }
}

void ModelEvents::OnReadinessChanged() {
  RefreshHealth();
  const Readiness* readiness = readiness_.load();
  if (readiness == nullptr) return;
  const std::string why = readiness->WhyNotReady();
  const Said now = why.empty() ? Said::kReady : Said::kNotReady;
  const Said before = said_.exchange(now);
  const ModelLookup* models = models_.load();
  if (before == Said::kNothing && models != nullptr) WarnOfMissing(*models);
  if (before == now) return;
  if (now == Said::kReady) {
    logger_.Info("ready");
  } else if (before == Said::kNothing) {  // Every start begins so.
    logger_.Info("not ready yet", {{"why", why}});
  } else {
    logger_.Warning("not ready", {{"why", why}});
  }
}

void ModelEvents::OnShapePlan(const std::string& name, int64_t version,
                              const engine::ShapePlanInfo& plan) {
  const std::string shapes = engine::ShapesText(plan.inputs);
  if (plan.state == engine::ShapePlanInfo::State::kServing) {
    logger_.Info(
        "plan made for shapes of requests",
        {{"model", name}, {"version", version}, {"shapes", shapes}, {"bytes", plan.bytes}});
  } else {
    logger_.Warning(
        "plan refused for shapes of requests",
        {{"model", name}, {"version", version}, {"shapes", shapes}, {"why", plan.why_refused}});
  }
}

void ModelEvents::OnNotice(const std::string& name, int64_t version, const std::string& notice) {
  logger_.Warning("model notice", {{"model", name}, {"version", version}, {"notice", notice}});
}

}  // namespace ulfd::server

// Health checks.
// SPDX-License-Identifier: Apache-2.0
#include "server/health_service.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/grpc_call.h"

namespace ulfd::server {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

// One stream.  Writes one status at a time; of those that come in between, only the last one is
// sent.
class HealthService::Watcher final : public grpc::ServerWriteReactor<HealthCheckResponse> {
 public:
  Watcher(HealthService& service, std::string name) : service_(service), name_(std::move(name)) {}
  const std::string& name() const { return name_; }

  // Sends the status unless it is the one sent last.
  void Notify(ServingStatus status) {
    MutexLock lock(mu_);
    wanted_ = status;
    MaybeWrite();
  }
  void End(const grpc::Status& status) {
    MutexLock lock(mu_);
    if (finished_) return;
    finished_ = true;
    Finish(status);
  }

 private:
  void MaybeWrite() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (finished_ || writing_ || sent_ == static_cast<int>(wanted_)) return;
    writing_ = true;
    sent_ = static_cast<int>(wanted_);
    message_.set_status(wanted_);
    StartWrite(&message_);
  }
  void OnWriteDone(bool ok) override {
    if (!ok) {
      End(grpc::Status(grpc::StatusCode::CANCELLED, "the watcher went away"));
      return;
    }
    MutexLock lock(mu_);
    writing_ = false;
    MaybeWrite();
  }
  void OnCancel() override {
    End(grpc::Status(grpc::StatusCode::CANCELLED, "the watcher went away"));
  }
  void OnDone() override {
    service_.Remove(this);
    delete this;
  }

  HealthService& service_;
  const std::string name_;
  Mutex mu_;
  ServingStatus wanted_ ABSL_GUARDED_BY(mu_) = HealthCheckResponse::UNKNOWN;
  int sent_ ABSL_GUARDED_BY(mu_) = -1;  // A ServingStatus, or nothing yet.
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  HealthCheckResponse message_;  // Of the write that is under way.
};

HealthService::HealthService(const ModelManager& models, const Readiness& readiness,
                             std::vector<std::string> services)
    : models_(models), readiness_(readiness), services_(std::move(services)) {
  Refresh();
}

std::map<std::string, HealthService::ServingStatus> HealthService::Look() const {
  std::map<std::string, ServingStatus> statuses;
  const ServingStatus server =
      readiness_.ServerReady() ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING;
  statuses[""] = server;
  for (const std::string& service : services_) statuses[service] = server;
  for (const ModelStatus& model : models_.List()) {
    bool serving = false;
    for (const VersionStatus& version : model.versions) serving |= version.serving != nullptr;
    statuses[absl::StrCat("model/", model.name)] = serving && !readiness_.draining()
                                                       ? HealthCheckResponse::SERVING
                                                       : HealthCheckResponse::NOT_SERVING;
  }
  return statuses;
}

void HealthService::Refresh() {
  MutexLock refresh_lock(refresh_mu_);
  std::map<std::string, ServingStatus> statuses = Look();
  MutexLock lock(mu_);
  statuses_ = std::move(statuses);
  for (Watcher* watcher : watchers_) watcher->Notify(StatusOf(watcher->name()));
}

HealthService::ServingStatus HealthService::StatusOf(const std::string& service) const {
  const auto it = statuses_.find(service);
  return it == statuses_.end() ? HealthCheckResponse::SERVICE_UNKNOWN : it->second;
}

void HealthService::EndWatches() {
  MutexLock lock(mu_);
  ended_ = true;
  for (Watcher* watcher : watchers_) {
    watcher->End(
        grpc::Status(grpc::StatusCode::UNAVAILABLE, "draining: the server is shutting down"));
  }
}

void HealthService::Remove(Watcher* watcher) {
  MutexLock lock(mu_);
  watchers_.erase(watcher);
}

grpc::ServerUnaryReactor* HealthService::Check(grpc::CallbackServerContext* call,
                                               const HealthCheckRequest* request,
                                               HealthCheckResponse* response) {
  ServingStatus status;
  {
    MutexLock lock(mu_);
    status = StatusOf(request->service());
  }
  if (status == HealthCheckResponse::SERVICE_UNKNOWN) {
    return Answer(call, absl::NotFoundError(
                            absl::StrCat("health: unknown service \"", request->service(), "\"")));
  }
  response->set_status(status);
  return Answer(call, absl::OkStatus());
}

grpc::ServerWriteReactor<HealthCheckResponse>* HealthService::Watch(
    grpc::CallbackServerContext*, const HealthCheckRequest* request) {
  auto* watcher = new Watcher(*this, request->service());
  MutexLock lock(mu_);
  if (ended_) {
    watcher->End(
        grpc::Status(grpc::StatusCode::UNAVAILABLE, "draining: the server is shutting down"));
  } else if (watchers_.size() >= kMaxWatches) {
    watcher->End(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED,
                              absl::StrCat("health: ", kMaxWatches, " watches are open already")));
  } else {
    watchers_.insert(watcher);
    watcher->Notify(StatusOf(watcher->name()));
  }
  return watcher;
}

}  // namespace ulfd::server

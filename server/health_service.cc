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

// One stream, or one that is to come.  Writes one status at a time; of those that come in between, only the last one is
// sent.
class HealthService::Watcher final {
 public:
  // Waits for one stream; each that comes waits for the next one.
  static void Await(HealthService& service, CallReceiver& receiver) {
    if (!receiver.Enter()) return;
    auto* watcher = new Watcher(service, receiver);
    watcher->context_.AsyncNotifyWhenDone(static_cast<CallEvent*>(&watcher->closed_));
    service.methods_.RequestWatch(&watcher->context_, &watcher->request_, &watcher->writer_,
                                  receiver.queue(), receiver.queue(),
                                  static_cast<CallEvent*>(&watcher->received_));
  }

  const std::string& name() const { return request_.service(); }

  // Sends the status unless it is the one sent last.
  void Notify(ServingStatus status) {
    MutexLock lock(mu_);
    wanted_ = status;
    MaybeWrite();
  }
  void End(const grpc::Status& status) {
    MutexLock lock(mu_);
    EndLocked(status);
  }

 private:
  Watcher(HealthService& service, CallReceiver& receiver)
      : service_(service), receiver_(receiver), writer_(&context_) {}

  void OnReceived(bool ok) {
    if (!ok) return Release();  // The server shuts down.
    Await(service_, receiver_);
    if (const grpc::Status checked = receiver_.CheckHeaders(context_); !checked.ok()) {
      End(checked);
    } else {
      service_.Add(this);
    }
    EventDone();
  }
  void OnClosed(bool) {
    {
      MutexLock lock(mu_);
      EndLocked(Gone());  // Unless it has ended already.
    }
    EventDone();
  }
  void OnWritten(bool ok) {
    {
      MutexLock lock(mu_);
      writing_ = false;
      if (ok) {
        MaybeWrite();
      } else {
        EndLocked(Gone());
      }
    }
    EventDone();
  }
  void OnFinished(bool) { EventDone(); }

  static grpc::Status Gone() {
    return grpc::Status(grpc::StatusCode::CANCELLED, "the watcher went away");
  }
  void MaybeWrite() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (finished_ || writing_ || sent_ == static_cast<int>(wanted_)) return;
    writing_ = true;
    ++events_;
    sent_ = static_cast<int>(wanted_);
    HealthCheckResponse message;
    message.set_status(wanted_);
    writer_.Write(message, static_cast<CallEvent*>(&written_));
  }
  void EndLocked(const grpc::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (finished_) return;
    finished_ = true;
    writer_.Finish(status, static_cast<CallEvent*>(&done_));
  }
  // The stream is over when nothing of it is under way any more.
  void EventDone() {
    {
      MutexLock lock(mu_);
      if (--events_ > 0) return;
    }
    service_.Remove(this);
    Release();
  }
  void Release() {
    CallReceiver& receiver = receiver_;
    delete this;
    receiver.Leave();
  }

  HealthService& service_;
  CallReceiver& receiver_;
  grpc::ServerContext context_;
  HealthCheckRequest request_;
  grpc::ServerAsyncWriter<HealthCheckResponse> writer_;
  StepEvent<Watcher, &Watcher::OnReceived> received_{*this};
  StepEvent<Watcher, &Watcher::OnClosed> closed_{*this};
  StepEvent<Watcher, &Watcher::OnWritten> written_{*this};
  StepEvent<Watcher, &Watcher::OnFinished> done_{*this};

  Mutex mu_;
  ServingStatus wanted_ ABSL_GUARDED_BY(mu_) = HealthCheckResponse::UNKNOWN;
  int sent_ ABSL_GUARDED_BY(mu_) = -1;  // A ServingStatus, or nothing yet.
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  // Still to come: it is received, closed and finished, and a write that was begun.
  int events_ ABSL_GUARDED_BY(mu_) = 3;
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

void HealthService::AwaitCalls(CallReceiver& receiver) {
  Await(receiver, &grpc::health::v1::Health::AsyncService::RequestCheck, &HealthService::Check);
  for (int i = 0; i < kAwaitedCalls; ++i) Watcher::Await(*this, receiver);
}

void HealthService::Check(UnaryCall<HealthCheckRequest, HealthCheckResponse>& call) {
  const std::string& service = call.request().service();
  ServingStatus status;
  {
    MutexLock lock(mu_);
    status = StatusOf(service);
  }
  if (status == HealthCheckResponse::SERVICE_UNKNOWN) {
    return call.Finish(ToGrpcStatus(
        absl::NotFoundError(absl::StrCat("health: unknown service \"", service, "\""))));
  }
  call.response().set_status(status);
  call.Finish(grpc::Status::OK);
}

void HealthService::Add(Watcher* watcher) {
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
}

}  // namespace ulfd::server

// Admin calls.
// SPDX-License-Identifier: Apache-2.0
#include "server/admin_service.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/status_macros.h"
#include "server/change_calls.h"
#include "server/grpc_call.h"
#include "server/model_description.h"

namespace ulfd::server {

// A reload that waits or runs; deletes itself when gRPC is done with it.
class AdminService::Reload final : public grpc::ServerUnaryReactor {
 public:
  Reload(TimePoint until, ulfd::admin::v1::ReloadRepositoryResponse& reply)
      : deadline(until), response(reply) {}
  void OnCancel() override { cancelled.store(true); }
  void OnDone() override { delete this; }

  const TimePoint deadline;
  ulfd::admin::v1::ReloadRepositoryResponse& response;
  std::atomic<bool> cancelled{false};
};

// A change that the manager carries out.  Shared by the manager, which answers it, and the service,
// which may have to answer before; the call itself belongs to gRPC.
class AdminService::Change {
 public:
  // The reactor of a call; deletes itself when gRPC is done with it.
  class Reactor final : public grpc::ServerUnaryReactor {
    void OnDone() override { delete this; }
  };

  Change() : reactor_(new Reactor()) {}
  // For gRPC, before anybody can answer.
  grpc::ServerUnaryReactor* reactor() {
    MutexLock lock(mu_);
    return reactor_;
  }
  // Answers once; later answers are dropped.  `fill` runs while the reply is still there.
  void Answer(const absl::Status& status, const std::function<void()>& fill) {
    MutexLock lock(mu_);
    if (reactor_ == nullptr) return;
    if (status.ok()) fill();
    std::exchange(reactor_, nullptr)->Finish(ToGrpcStatus(status));
  }

 private:
  Mutex mu_;
  Reactor* reactor_ ABSL_GUARDED_BY(mu_);
};

namespace {

// PollNow is asked in steps, so that a caller who leaves and a shutdown are noticed.
constexpr std::chrono::milliseconds kStep{200};

absl::Status Draining() { return absl::UnavailableError("draining: the server is shutting down"); }

}  // namespace

AdminService::AdminService(ModelManager& models, const StatusReport& report, const Clock& clock,
                           ReadConfigure read_configure)
    : models_(models),
      report_(report),
      clock_(clock),
      read_configure_(std::move(read_configure)),
      thread_([this] { Loop(); }) {}

AdminService::~AdminService() {
  Stop();
  thread_.join();
}

void AdminService::Stop() {
  MutexLock lock(mu_);
  stopping_ = true;
  for (Reload* reload : waiting_) reload->Finish(ToGrpcStatus(Draining()));
  waiting_.clear();
  for (const std::weak_ptr<Change>& weak : changes_) {
    if (const auto change = weak.lock()) change->Answer(Draining(), [] {});
  }
  changes_.clear();
  changed_.NotifyAll();
}

grpc::ServerUnaryReactor* AdminService::GetStatus(grpc::CallbackServerContext* call,
                                                  const ulfd::admin::v1::GetStatusRequest*,
                                                  ulfd::admin::v1::GetStatusResponse* response) {
  report_.Fill(*response);
  return Answer(call, absl::OkStatus());
}

grpc::ServerUnaryReactor* AdminService::ReloadRepository(
    grpc::CallbackServerContext* call, const ulfd::admin::v1::ReloadRepositoryRequest*,
    ulfd::admin::v1::ReloadRepositoryResponse* response) {
  auto* reload = new Reload(DeadlineOf(*call, clock_.Now()), *response);
  MutexLock lock(mu_);
  if (stopping_) {
    reload->Finish(ToGrpcStatus(Draining()));
  } else if (waiting_.size() >= kMaxWaiting) {
    reload->Finish(ToGrpcStatus(absl::ResourceExhaustedError(
        absl::StrCat(waiting_.size(), " reloads wait already, limit ", kMaxWaiting))));
  } else {
    waiting_.push_back(reload);
    changed_.NotifyAll();
  }
  return reload;
}

template <typename Reply>
grpc::ServerUnaryReactor* AdminService::Apply(grpc::CallbackServerContext* call,
                                              absl::StatusOr<ModelChange> change, Reply* reply) {
  if (!change.ok()) return ulfd::server::Answer(call, change.status());
  const auto pending = std::make_shared<Change>();
  grpc::ServerUnaryReactor* reactor = pending->reactor();
  {
    MutexLock lock(mu_);
    if (stopping_) {
      pending->Answer(Draining(), [] {});
      return reactor;
    }
    std::erase_if(changes_, [](const auto& weak) { return weak.expired(); });
    changes_.push_back(pending);
  }
  // Nothing of the service: it may be gone by then, unlike the manager.
  models_.Apply(*std::move(change), [pending, reply](const ModelChangeResult& result) {
    pending->Answer(result.status, [&] { FillReply(result, *reply); });
  });
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::LoadModel(grpc::CallbackServerContext* call,
                                                  const ulfd::admin::v1::LoadModelRequest* request,
                                                  ulfd::admin::v1::LoadModelResponse* response) {
  return Apply(call, ChangeOf(*request), response);
}

grpc::ServerUnaryReactor* AdminService::UnloadModel(
    grpc::CallbackServerContext* call, const ulfd::admin::v1::UnloadModelRequest* request,
    ulfd::admin::v1::UnloadModelResponse* response) {
  return Apply(call, ChangeOf(*request), response);
}

grpc::ServerUnaryReactor* AdminService::SetLabel(grpc::CallbackServerContext* call,
                                                 const ulfd::admin::v1::SetLabelRequest* request,
                                                 ulfd::admin::v1::SetLabelResponse* response) {
  return Apply(call, ChangeOf(*request), response);
}

grpc::ServerUnaryReactor* AdminService::Rollback(grpc::CallbackServerContext* call,
                                                 const ulfd::admin::v1::RollbackRequest* request,
                                                 ulfd::admin::v1::RollbackResponse* response) {
  return Apply(call, ChangeOf(*request), response);
}

grpc::ServerUnaryReactor* AdminService::ReloadConfig(
    grpc::CallbackServerContext* call, const ulfd::admin::v1::ReloadConfigRequest* request,
    ulfd::admin::v1::ReloadConfigResponse* response) {
  absl::StatusOr<ModelChange> change = read_configure_();
  if (change.ok()) change->dry_run = request->dry_run();
  return Apply(call, std::move(change), response);
}

void AdminService::Loop() {
  while (true) {
    Reload* reload = nullptr;
    {
      MutexLock lock(mu_);
      while (waiting_.empty() && !stopping_) changed_.Wait(mu_);
      if (stopping_) return;
      reload = waiting_.front();
      waiting_.pop_front();
    }
    reload->Finish(ToGrpcStatus(Run(*reload)));
  }
}

absl::Status AdminService::Run(Reload& reload) {
  reload.response.set_generation_before(models_.generation());
  while (true) {
    const TimePoint now = clock_.Now();
    const absl::Status polled = models_.PollNow(std::min(reload.deadline, now + kStep));
    if (!absl::IsDeadlineExceeded(polled)) {
      RETURN_IF_ERROR(polled);
      break;
    }
    if (clock_.Now() >= reload.deadline) {
      return absl::DeadlineExceededError(
          "the deadline passed while models load; they go on loading");
    }
    if (reload.cancelled.load()) return absl::CancelledError("the caller went away");
    MutexLock lock(mu_);
    if (stopping_) return Draining();
  }
  reload.response.set_generation_after(models_.generation());
  DescribeModels(models_, *reload.response.mutable_models());
  return absl::OkStatus();
}

}  // namespace ulfd::server

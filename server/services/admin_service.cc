// SPDX-License-Identifier: Apache-2.0
#include "server/services/admin_service.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/rpc/call_context.h"
#include "server/rpc/grpc_status.h"
#include "server/scheduler/refusal.h"
#include "server/services/admin_messages.h"
#include "server/services/model_description.h"

namespace ulfd::server {

// A change that the manager carries out.  Shared by the manager, which answers it, and the service,
// which may have to answer before; the call itself belongs to its receiver.
class AdminService::Change {
 public:
  explicit Change(RpcCall& call) : call_(&call) {}
  // Answers once; later answers are dropped.  `fill` runs while the reply is still there.
  void Answer(const absl::Status& status, const std::function<void()>& fill) {
    MutexLock lock(mu_);
    if (call_ == nullptr) return;
    if (status.ok()) fill();
    std::exchange(call_, nullptr)->Finish(ToGrpcStatus(status));
  }

 private:
  Mutex mu_;
  RpcCall* call_ ABSL_GUARDED_BY(mu_);
};

namespace {

// PollNow is asked in steps, so that a caller who leaves and a shutdown are noticed.
constexpr std::chrono::milliseconds kStep{200};

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
  for (const Reload& reload : waiting_) reload.call->Finish(ToGrpcStatus(ShuttingDown()));
  waiting_.clear();
  for (const std::weak_ptr<Change>& weak : changes_) {
    if (const auto change = weak.lock()) change->Answer(ShuttingDown(), [] {});
  }
  changes_.clear();
  changed_.NotifyAll();
}

void AdminService::AwaitCalls(CallReceiver& receiver) {
  namespace v1 = ulfd::admin::v1;
  Await(receiver, "GetStatus", &AdminService::GetStatus);
  Await(receiver, "ReloadRepository", &AdminService::ReloadRepository);
  Await(receiver, "LoadModel",
        &AdminService::ChangeModels<v1::LoadModelRequest, v1::LoadModelResponse>);
  Await(receiver, "UnloadModel",
        &AdminService::ChangeModels<v1::UnloadModelRequest, v1::UnloadModelResponse>);
  Await(receiver, "SetLabel",
        &AdminService::ChangeModels<v1::SetLabelRequest, v1::SetLabelResponse>);
  Await(receiver, "Rollback",
        &AdminService::ChangeModels<v1::RollbackRequest, v1::RollbackResponse>);
  Await(receiver, "ReloadConfig", &AdminService::ReloadConfig);
}

void AdminService::GetStatus(
    Call<ulfd::admin::v1::GetStatusRequest, ulfd::admin::v1::GetStatusResponse>& call) {
  report_.Fill(call.response());
  call.Finish(grpc::Status::OK);
}

void AdminService::ReloadRepository(ReloadCall& call) {
  const TimePoint deadline = DeadlineOf(call.context(), clock_.Now());
  MutexLock lock(mu_);
  if (stopping_) {
    call.Finish(ToGrpcStatus(ShuttingDown()));
  } else if (waiting_.size() >= kMaxWaiting) {
    call.Finish(ToGrpcStatus(absl::ResourceExhaustedError(
        absl::StrCat(waiting_.size(), " reloads wait already, limit ", kMaxWaiting))));
  } else {
    waiting_.push_back({&call, deadline});
    changed_.NotifyAll();
  }
}

template <typename Request, typename Response>
void AdminService::Apply(Call<Request, Response>& call,
                         std::function<absl::StatusOr<ModelChange>()> make) {
  const auto pending = std::make_shared<Change>(call);
  {
    MutexLock lock(mu_);
    if (stopping_) return pending->Answer(ShuttingDown(), [] {});
    std::erase_if(changes_, [](const auto& weak) { return weak.expired(); });
    changes_.push_back(pending);
  }
  // Nothing of the service: it may be gone by then, unlike the manager.
  models_.Apply(std::move(make),
                [pending, reply = &call.response()](const ModelChangeResult& result) {
                  pending->Answer(result.status, [&] { FillReply(result, *reply); });
                });
}

template <typename Request, typename Response>
void AdminService::ChangeModels(Call<Request, Response>& call) {
  absl::StatusOr<ModelChange> change = ChangeOf(call.request());
  if (!change.ok()) return call.Finish(ToGrpcStatus(change.status()));
  Apply(call, [change = *std::move(change)] { return change; });
}

void AdminService::ReloadConfig(
    Call<ulfd::admin::v1::ReloadConfigRequest, ulfd::admin::v1::ReloadConfigResponse>& call) {
  // Nothing of the service or of the call: they may be gone by then.
  Apply(call, [read = read_configure_, dry_run = call.request().dry_run()] {
    absl::StatusOr<ModelChange> change = read();
    if (change.ok()) change->dry_run = dry_run;
    return change;
  });
}

void AdminService::Loop() {
  while (true) {
    Reload reload{};
    {
      MutexLock lock(mu_);
      while (waiting_.empty() && !stopping_) changed_.Wait(mu_);
      if (stopping_) return;
      reload = waiting_.front();
      waiting_.pop_front();
    }
    reload.call->Finish(ToGrpcStatus(Run(reload)));
  }
}

absl::Status AdminService::Run(const Reload& reload) {
  ulfd::admin::v1::ReloadRepositoryResponse& response = reload.call->response();
  response.set_generation_before(models_.generation());
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
    if (reload.call->cancelled()) return absl::CancelledError("the caller went away");
    MutexLock lock(mu_);
    if (stopping_) return ShuttingDown();
  }
  response.set_generation_after(models_.generation());
  DescribeModels(models_, *response.mutable_models());
  return absl::OkStatus();
}

}  // namespace ulfd::server

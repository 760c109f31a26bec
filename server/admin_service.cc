// Admin calls.
// SPDX-License-Identifier: Apache-2.0
#include "server/admin_service.h"

#include <algorithm>
#include <atomic>

#include "absl/strings/str_cat.h"
#include "engine/status_macros.h"
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

namespace {

// PollNow is asked in steps, so that a caller who leaves and a shutdown are noticed.
constexpr std::chrono::milliseconds kStep{200};

absl::Status Draining() { return absl::UnavailableError("draining: the server is shutting down"); }

}  // namespace

AdminService::AdminService(ModelManager& models, const StatusReport& report, const Clock& clock)
    : models_(models), report_(report), clock_(clock), thread_([this] { Loop(); }) {}

AdminService::~AdminService() {
  Stop();
  thread_.join();
}

void AdminService::Stop() {
  MutexLock lock(mu_);
  stopping_ = true;
  for (Reload* reload : waiting_) reload->Finish(ToGrpcStatus(Draining()));
  waiting_.clear();
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

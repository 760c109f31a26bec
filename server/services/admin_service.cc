// SPDX-License-Identifier: Apache-2.0
#include "server/services/admin_service.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "server/config/settings.h"
#include "server/rpc/call_context.h"
#include "server/rpc/grpc_status.h"
#include "server/scheduler/refusal.h"
#include "server/services/model_description.h"

namespace ulfd::server {
namespace {

namespace v1 = ulfd::admin::v1;
using google::protobuf::RepeatedPtrField;

// Checks what all of them have.
absl::StatusOr<ModelChange> Begin(ModelChange::Kind kind, const std::string& name,
                                  std::optional<int64_t> version) {
  if (name.empty()) return InvalidArgument("name: empty, want a model's name");
  if (version.has_value() && *version < 1) {
    return InvalidArgument("version: ", *version, ", want a positive number");
  }
  ModelChange change{.kind = kind, .name = name};
  change.version = version;
  return change;
}

template <typename Request>
std::optional<int64_t> VersionOf(const Request& request) {
  return request.has_version() ? std::optional<int64_t>(request.version()) : std::nullopt;
}

v1::VersionChange::Outcome OutcomeOf(VersionChange::Outcome outcome) {
  static constexpr v1::VersionChange::Outcome kOutcomes[] = {
      v1::VersionChange::OUTCOME_LOADED, v1::VersionChange::OUTCOME_ALREADY_SERVING,
      v1::VersionChange::OUTCOME_UNLOADED, v1::VersionChange::OUTCOME_DISCARDED,
      v1::VersionChange::OUTCOME_FAILED};
  return kOutcomes[static_cast<size_t>(outcome)];
}

void FillVersions(const std::vector<VersionChange>& versions,
                  RepeatedPtrField<v1::VersionChange>& out) {
  for (const VersionChange& version : versions) {
    v1::VersionChange& change = *out.Add();
    change.set_version(version.version);
    change.set_outcome(OutcomeOf(version.outcome));
    change.set_error(ClipError(version.error.message()));
  }
}

std::string WhyNotKept(const ModelChangeResult& result) {
  if (!result.kept.has_value() || result.kept->ok()) return "";
  return absl::StrCat("  ", result.kept->message());
}

// How long a change lasts.
std::string NoticeOf(const ModelChangeResult& result) {
  if (result.end != ModelChangeResult::End::kReload) {
    const bool kept = result.kept.has_value() && result.kept->ok();
    return absl::StrCat(
        result.end == ModelChangeResult::End::kLoad
            ? "The versions above stay out until their content changes, until LoadModel or a "
              "roll-back names them"
            : "Later epochs stay out until LoadModel or a roll-back to one of them",
        kept ? "; this outlasts a restart."
             : ", or until the daemon ends; with state_file not even then.",
        WhyNotKept(result));
  }
  if (result.kept.has_value() && result.kept->ok()) {
    return "This outlasts a restart.  It ends with ReloadConfig, or with other labels or another "
           "version_policy of the model in the configuration file.";
  }
  return absl::StrCat(
      "This lasts until the daemon ends or ReloadConfig is called; labels and "
      "version_policy in the configuration file last, and with state_file this would.",
      WhyNotKept(result));
}

// What changes of one model have in common.
template <typename Reply>
void FillCommon(const ModelChangeResult& result, Reply& reply) {
  for (const ModelOutcome& model : result.models) {
    FillVersions(model.versions, *reply.mutable_versions());
  }
  reply.set_generation(result.generation);
  reply.set_notice(NoticeOf(result));
}

// What a call asks for.  INVALID_ARGUMENT: an empty name or label, a version below 1.
absl::StatusOr<ModelChange> ChangeOf(const v1::LoadModelRequest& request) {
  return Begin(ModelChange::Kind::kLoad, request.name(), VersionOf(request));
}
absl::StatusOr<ModelChange> ChangeOf(const v1::UnloadModelRequest& request) {
  return Begin(ModelChange::Kind::kUnload, request.name(), VersionOf(request));
}
absl::StatusOr<ModelChange> ChangeOf(const v1::RollbackRequest& request) {
  ASSIGN_OR_RETURN(ModelChange change,
                   Begin(ModelChange::Kind::kRollback, request.name(), VersionOf(request)));
  if (!request.has_epoch()) return change;
  if (request.epoch() < 0) {
    return InvalidArgument("epoch is ", request.epoch(), ", want 0 or more");
  }
  change.epoch = request.epoch();
  return change;
}
absl::StatusOr<ModelChange> ChangeOf(const v1::SetLabelRequest& request) {
  ASSIGN_OR_RETURN(ModelChange change,
                   Begin(ModelChange::Kind::kSetLabel, request.name(), VersionOf(request)));
  RETURN_IF_ERROR(CheckName("label", request.label()));
  change.label = request.label();
  return change;
}

// The reply to a change whose status is OK; error texts clipped to what the wire takes.
void FillReply(const ModelChangeResult& result, v1::LoadModelResponse& reply) {
  FillCommon(result, reply);
}
void FillReply(const ModelChangeResult& result, v1::UnloadModelResponse& reply) {
  FillCommon(result, reply);
}
void FillReply(const ModelChangeResult& result, v1::SetLabelResponse& reply) {
  FillCommon(result, reply);
  if (result.from_version.has_value()) reply.set_previous_version(*result.from_version);
}
void FillReply(const ModelChangeResult& result, v1::RollbackResponse& reply) {
  FillCommon(result, reply);
  reply.set_from_version(result.from_version.value_or(0));
  reply.set_to_version(result.to_version.value_or(0));
}
void FillReply(const ModelChangeResult& result, v1::ReloadConfigResponse& reply) {
  reply.set_applied(result.applied);
  for (const ModelOutcome& model : result.models) {
    v1::ModelChange& change = *reply.add_models();
    change.set_name(model.name);
    change.set_error(ClipError(model.error.message()));
    FillVersions(model.versions, *change.mutable_versions());
    change.set_removed(model.removed);
  }
  reply.set_generation(result.generation);
}

// PollNow is asked in steps, so that a caller who leaves and a shutdown are noticed.
constexpr std::chrono::milliseconds kStep{200};

}  // namespace

// A call that waits for a change or a reload.  Shared by who answers it, the manager or the thread
// of the reloads, and the service, which may have to answer before; the call itself belongs to its
// receiver.
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
  // Whether somebody waits for an answer.
  bool Wanted() {
    MutexLock lock(mu_);
    return call_ != nullptr && !call_->cancelled();
  }

 private:
  Mutex mu_;
  RpcCall* call_ ABSL_GUARDED_BY(mu_);
};

AdminService::AdminService(ModelManager& models, const StatusReport& report, const Clock& clock,
                           ReadConfigure read_configure)
    : models_(models), report_(report), clock_(clock), read_configure_(std::move(read_configure)) {
  reloads_.Add([] {});  // From now on it has a thread, which the system may refuse later.
}

AdminService::~AdminService() { Stop(); }

void AdminService::Stop() {
  MutexLock lock(mu_);
  stopping_ = true;
  for (const std::weak_ptr<Change>& weak : changes_) {
    if (const auto change = weak.lock()) change->Answer(ShuttingDown(), [] {});
  }
  changes_.clear();
}

void AdminService::AwaitCalls(CallReceiver& receiver) {
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

std::shared_ptr<AdminService::Change> AdminService::Track(RpcCall& call) {
  auto change = std::make_shared<Change>(call);
  MutexLock lock(mu_);
  if (stopping_) {
    change->Answer(ShuttingDown(), [] {});
    return nullptr;
  }
  std::erase_if(changes_, [](const auto& weak) { return weak.expired(); });
  changes_.push_back(change);
  return change;
}

void AdminService::ReloadRepository(ReloadCall& call) {
  const TimePoint deadline = DeadlineOf(call.context(), clock_.Now());
  const auto reload = Track(call);
  if (reload == nullptr) return;
  if (waiting_.load() >= kMaxWaiting) {
    return reload->Answer(
        ResourceExhausted(kMaxWaiting, " reloads wait already, limit ", kMaxWaiting), [] {});
  }
  reloads_.Add([this, reload, deadline, reply = &call.response()] {
    waiting_.fetch_sub(1);
    const int64_t before = models_.generation();
    reload->Answer(WaitForLoads(*reload, deadline), [&] {
      reply->set_generation_before(before);
      reply->set_generation_after(models_.generation());
      DescribeModels(models_, *reply->mutable_models());
    });
  });
  waiting_.fetch_add(1);  // Behind what may find no memory.
}

absl::Status AdminService::WaitForLoads(Change& reload, TimePoint deadline) const {
  while (reload.Wanted()) {
    absl::Status polled = models_.PollNow(std::min(deadline, clock_.Now() + kStep));
    if (!absl::IsDeadlineExceeded(polled)) return polled;
    if (clock_.Now() >= deadline) {
      return absl::DeadlineExceededError(
          "the deadline passed while models load; they go on loading");
    }
  }
  return absl::CancelledError("the caller went away");
}

template <typename Request, typename Response>
void AdminService::Apply(Call<Request, Response>& call,
                         // NOLINTNEXTLINE(performance-unnecessary-value-param): it is moved.
                         std::function<absl::StatusOr<ModelChange>()> make) {
  const auto pending = Track(call);
  if (pending == nullptr) return;
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

}  // namespace ulfd::server

// SPDX-License-Identifier: Apache-2.0
#include "server/services/admin_messages.h"

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/config/settings.h"
#include "server/rpc/grpc_status.h"

namespace ulfd::server {
namespace {

namespace v1 = ulfd::admin::v1;
using google::protobuf::RepeatedPtrField;

// Checks what all of them have.
absl::StatusOr<ModelChange> Begin(ModelChange::Kind kind, const std::string& name,
                                  std::optional<int64_t> version) {
  if (name.empty()) return absl::InvalidArgumentError("name: empty, want a model's name");
  if (version.has_value() && *version < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("version: ", *version, ", want a positive number"));
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

}  // namespace

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
    return absl::InvalidArgumentError(
        absl::StrCat("epoch is ", request.epoch(), ", want 0 or more"));
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

}  // namespace ulfd::server

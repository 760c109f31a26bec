// SPDX-License-Identifier: Apache-2.0
#include "server/services/tf_serving_service.h"

#include <string>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "server/rpc/grpc_status.h"
#include "server/scoring/kserve_codec.h"
#include "server/scoring/tf_serving_codec.h"
#include "server/services/scoring_rpc.h"

namespace ulfd::server {
namespace {

namespace tfs = tensorflow::serving;

constexpr char kField[] = "signature_def";

absl::Status CheckFields(const tfs::GetModelMetadataRequest& request) {
  for (const std::string& field : request.metadata_field()) {
    if (field == kField) continue;
    return InvalidArgument("metadata_field: \"", Printable(field, 40), "\", want \"", kField, "\"");
  }
  if (!request.metadata_field().empty()) return absl::OkStatus();
  return InvalidArgument("metadata_field: none, want \"", kField, "\"");
}

void FillMetadata(const ServedModel& served, tfs::GetModelMetadataResponse& response) {
  response.mutable_model_spec()->set_name(served.name);
  response.mutable_model_spec()->mutable_version()->set_value(served.version);
  inference::ModelMetadataResponse model;
  DescribeModel(served.model->info(), model);
  tfs::SignatureDefMap signatures;
  DescribeModel(model, signatures);
  (*response.mutable_metadata())[kField].PackFrom(signatures);
}

tfs::ModelVersionStatus::State StateOf(const VersionStatus& version) {
  if (version.serving != nullptr) return tfs::ModelVersionStatus::AVAILABLE;
  switch (version.state) {
    case VersionState::kLoading:
      return tfs::ModelVersionStatus::LOADING;
    case VersionState::kUnloading:
      return tfs::ModelVersionStatus::UNLOADING;
    case VersionState::kFailed:
      return tfs::ModelVersionStatus::END;
    default:
      return tfs::ModelVersionStatus::START;
  }
}

absl::Status FillStatus(const ModelLookup& models, const ModelChoice& choice,
                        tfs::GetModelStatusResponse& response) {
  RETURN_IF_ERROR(models.CheckAccess(choice));
  for (const ModelStatus& model : models.List(choice.name)) {
    for (const VersionStatus& version : model.versions) {
      if (choice.version.has_value() && *choice.version != version.version) continue;
      tfs::ModelVersionStatus& out = *response.add_model_version_status();
      out.set_version(version.version);
      out.set_state(StateOf(version));
      if (version.serving != nullptr || version.state != VersionState::kFailed) continue;
      out.mutable_status()->set_error_code(static_cast<int>(absl::StatusCode::kUnavailable));
      out.mutable_status()->set_error_message(ClipError(version.error));
    }
  }
  // Says what there is instead.
  return response.model_version_status_size() > 0 ? absl::OkStatus() : models.Find(choice).status();
}

}  // namespace

void TfPredictionService::AwaitCalls(CallReceiver& receiver) {
  Await(receiver, "Predict", &TfPredictionService::Predict);
  Await(receiver, "GetModelMetadata", &TfPredictionService::GetModelMetadata);
}

void TfPredictionService::Predict(UnaryCall<tfs::PredictRequest, tfs::PredictResponse>& call) {
  StartScoring(call, context_, security_);
}

void TfPredictionService::GetModelMetadata(
    UnaryCall<tfs::GetModelMetadataRequest, tfs::GetModelMetadataResponse>& call) {
  const auto choice = security_.Identify(call.context(), ChoiceOf(call.request().model_spec()));
  if (!choice.ok()) return call.Finish(ToGrpcStatus(choice.status()));
  if (const absl::Status checked = CheckFields(call.request()); !checked.ok()) {
    return call.Finish(ToGrpcStatus(checked));
  }
  const auto handle = context_.models.Find(*choice);
  if (!handle.ok()) return call.Finish(ToGrpcStatus(handle.status()));
  metadata_.Finish(call, (*handle)->generation, "",
                   [&](tfs::GetModelMetadataResponse& reply) { FillMetadata(**handle, reply); });
}

void TfModelService::AwaitCalls(CallReceiver& receiver) {
  Await(receiver, "GetModelStatus", &TfModelService::GetModelStatus);
}

void TfModelService::GetModelStatus(
    UnaryCall<tfs::GetModelStatusRequest, tfs::GetModelStatusResponse>& call) {
  const auto choice = security_.Identify(call.context(), ChoiceOf(call.request().model_spec()));
  if (!choice.ok()) return call.Finish(ToGrpcStatus(choice.status()));
  call.Finish(ToGrpcStatus(FillStatus(context_.models, *choice, call.response())));
}

}  // namespace ulfd::server

// KServe v2.
// SPDX-License-Identifier: Apache-2.0
#include "server/services/open_inference_service.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/rpc/grpc_status.h"
#include "server/scoring/open_inference_codec.h"
#include "server/services/scoring_rpc.h"

namespace ulfd::server {
namespace {

absl::Status Describe(const ModelLookup& models, const absl::StatusOr<ModelChoice>& choice,
                      inference::ModelMetadataResponse& response) {
  RETURN_IF_ERROR(choice.status());
  ASSIGN_OR_RETURN(const ModelHandle handle, models.Find(*choice));
  DescribeModel(handle->model->info(), response);
  for (const ModelStatus& model : models.List()) {
    if (model.name != choice->name) continue;
    for (const VersionStatus& version : model.versions) {
      if (version.serving != nullptr) response.add_versions(absl::StrCat(version.version));
    }
  }
  return absl::OkStatus();
}

}  // namespace

void OpenInferenceService::AwaitCalls(CallReceiver& receiver) {
  using Self = OpenInferenceService;
  Await(receiver, "ServerLive", &Self::ServerLive);
  Await(receiver, "ServerReady", &Self::ServerReady);
  Await(receiver, "ModelReady", &Self::ModelReady);
  Await(receiver, "ServerMetadata", &Self::ServerMetadata);
  Await(receiver, "ModelMetadata", &Self::ModelMetadata);
  Await(receiver, "ModelInfer", &Self::ModelInfer);
}

void OpenInferenceService::ServerLive(
    UnaryCall<inference::ServerLiveRequest, inference::ServerLiveResponse>& call) {
  call.response().set_live(true);
  call.Finish(grpc::Status::OK);
}

void OpenInferenceService::ServerReady(
    UnaryCall<inference::ServerReadyRequest, inference::ServerReadyResponse>& call) {
  call.response().set_ready(readiness_.ServerReady());
  call.Finish(grpc::Status::OK);
}

void OpenInferenceService::ModelReady(
    UnaryCall<inference::ModelReadyRequest, inference::ModelReadyResponse>& call) {
  const auto choice =
      security_.Identify(call.context(), ChoiceOf(call.request().name(), call.request().version()));
  if (!choice.ok()) return call.Finish(ToGrpcStatus(choice.status()));
  call.response().set_ready(readiness_.ModelReady(*choice));
  call.Finish(ToGrpcStatus(context_.models.CheckAccess(*choice)));
}

void OpenInferenceService::ServerMetadata(
    UnaryCall<inference::ServerMetadataRequest, inference::ServerMetadataResponse>& call) {
  call.response().set_name("ulfd");
  call.response().set_version(server_version_);
  call.Finish(grpc::Status::OK);
}

void OpenInferenceService::ModelMetadata(
    UnaryCall<inference::ModelMetadataRequest, inference::ModelMetadataResponse>& call) {
  const auto choice =
      security_.Identify(call.context(), ChoiceOf(call.request().name(), call.request().version()));
  call.Finish(ToGrpcStatus(Describe(context_.models, choice, call.response())));
}

void OpenInferenceService::ModelInfer(
    UnaryCall<inference::ModelInferRequest, inference::ModelInferResponse>& call) {
  StartScoring(call, context_, security_);
}

}  // namespace ulfd::server

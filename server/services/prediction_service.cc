// The native API.
// SPDX-License-Identifier: Apache-2.0
#include "server/services/prediction_service.h"

#include <algorithm>

#include "base/status_macros.h"
#include "server/rpc/grpc_status.h"
#include "server/scoring/request_decoder.h"
#include "server/services/model_description.h"
#include "server/services/scoring_rpc.h"

namespace ulfd::server {
namespace {

namespace v1 = ulfd::v1;

absl::Status Describe(const ModelLookup& models, const absl::StatusOr<ModelChoice>& choice,
                      v1::GetModelMetadataResponse& response) {
  RETURN_IF_ERROR(choice.status());
  ASSIGN_OR_RETURN(const ModelHandle handle, models.Find(*choice));
  DescribeModel(*handle, models.LabelsOf(handle->name, handle->version), response);
  return absl::OkStatus();
}

}  // namespace

void PredictionService::AwaitCalls(CallReceiver& receiver) {
  using Self = PredictionService;
  Await(receiver, "Predict", &Self::Predict);
  Await(receiver, "GetModelMetadata", &Self::GetModelMetadata);
  Await(receiver, "ListModels", &Self::ListModels);
}

void PredictionService::Predict(UnaryCall<v1::PredictRequest, v1::PredictResponse>& call) {
  StartScoring(call, context_, security_);
}

void PredictionService::GetModelMetadata(
    UnaryCall<v1::GetModelMetadataRequest, v1::GetModelMetadataResponse>& call) {
  const auto choice = security_.Identify(call.context(), ChoiceOf(call.request().model()));
  call.Finish(ToGrpcStatus(Describe(context_.models, choice, call.response())));
}

void PredictionService::ListModels(UnaryCall<v1::ListModelsRequest, v1::ListModelsResponse>& call) {
  auto& models = *call.response().mutable_models();
  DescribeModels(context_.models, models);
  ModelChoice choice{.client = security_.ClientOf(call.context())};
  models.erase(std::remove_if(models.begin(), models.end(),
                              [&](const v1::ModelStatus& model) {
                                choice.name = model.name();
                                return !context_.models.CheckAccess(choice).ok();
                              }),
               models.end());
  call.response().set_generation(context_.models.generation());
  call.Finish(grpc::Status::OK);
}

}  // namespace ulfd::server

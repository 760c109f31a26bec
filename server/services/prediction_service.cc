// SPDX-License-Identifier: Apache-2.0
#include "server/services/prediction_service.h"

#include <algorithm>

#include "absl/strings/str_join.h"
#include "server/rpc/grpc_status.h"
#include "server/scoring/request_decoder.h"
#include "server/services/model_description.h"
#include "server/services/scoring_rpc.h"

namespace ulfd::server {
namespace v1 = ulfd::v1;

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
  const auto handle = FindModel(context_.models, choice);
  if (!handle.ok()) return call.Finish(ToGrpcStatus(handle.status()));
  const ServedModel& served = **handle;
  const auto labels = context_.models.LabelsOf(served.name, served.version);
  metadata_.Finish(
      call, served.generation, absl::StrJoin(labels, "\n"),
      [&](v1::GetModelMetadataResponse& reply) { DescribeModel(served, labels, reply); });
}

void PredictionService::ListModels(UnaryCall<v1::ListModelsRequest, v1::ListModelsResponse>& call) {
  const ModelChoice caller{.client = security_.ClientOf(call.context())};
  lists_.FinishList(call, context_.models, caller, context_.clock.Now(),
                    [&](v1::ListModelsResponse& reply) { ListFor(caller, reply); });
}

void PredictionService::ListFor(ModelChoice choice, v1::ListModelsResponse& reply) const {
  auto& models = *reply.mutable_models();
  DescribeModels(context_.models, models);
  models.erase(std::remove_if(models.begin(), models.end(),
                              [&](const v1::ModelStatus& model) {
                                choice.name = model.name();
                                return !context_.models.CheckAccess(choice).ok();
                              }),
               models.end());
  reply.set_generation(context_.models.generation());
}

}  // namespace ulfd::server

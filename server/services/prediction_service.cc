// The native API.
// SPDX-License-Identifier: Apache-2.0
#include "server/services/prediction_service.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "server/recorder/call_record.h"
#include "server/rpc/grpc_call.h"
#include "server/scoring/canary_hash.h"
#include "server/scoring/request_decoder.h"
#include "server/scoring/response_encoder.h"
#include "server/scoring/shadow.h"
#include "server/services/model_description.h"

namespace ulfd::server {
namespace {

namespace v1 = ulfd::v1;

class PredictCall : public ScoreCall {
 public:
  PredictCall(const ServingContext& context, CallTerms terms, const v1::PredictRequest& request,
              v1::PredictResponse& response)
      : ScoreCall(context, std::move(terms)),
        shadow_(context.shadow),
        request_(request),
        response_(response),
        record_(context.recorder, arrival(), ScoreCall::deadline()) {}

 protected:
  int64_t CountRows(const engine::Model& model, const RequestLimits& limits) const override {
    return server::CountRows(request_, model, limits);
  }
  absl::Status Decode(const engine::Model& model, const RequestLimits& limits,
                      DecodedRequest& decoded) override {
    return DecodePredict(request_, model, limits, decoded);
  }
  absl::Status Encode(const DecodedRequest& decoded, const engine::ModelInfo& info,
                      const engine::RunResult& result) override {
    RETURN_IF_ERROR(EncodePredict(request_, decoded, info, result, response_));
    if (shadow_ != nullptr) {
      shadow_->Offer(recording::v1::API_NATIVE, request_, decoded, info, result);
    }
    record_.Choose(info, decoded.ads);
    return absl::OkStatus();
  }
  void AddTimes(const CallTimes& times) override {
    record_.Add(request_, response_, times.total_ns);
    if (!request_.return_timings()) return;
    constexpr int64_t kNsPerUs = 1000;
    v1::Timings& out = *response_.mutable_timings();
    out.set_queue_us(times.queue_ns / kNsPerUs);
    out.set_decode_us(times.decode_ns / kNsPerUs);
    out.set_embed_us(times.embed_ns / kNsPerUs);
    out.set_user_us(times.user_ns / kNsPerUs);
    out.set_dense_us(times.dense_ns / kNsPerUs);
    out.set_encode_us(times.encode_ns / kNsPerUs);
    out.set_total_us(times.total_ns / kNsPerUs);
  }
  const std::string& request_id() const override { return request_.request_id(); }

 private:
  Shadow* const shadow_;
  const v1::PredictRequest& request_;
  v1::PredictResponse& response_;
  CallRecord record_;
};

absl::Status Describe(const ModelManager& models, const absl::StatusOr<ModelChoice>& choice,
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
  absl::StatusOr<ModelChoice> choice =
      security_.Identify(call.context(), ChoiceOf(call.request().model()));
  const RequestCaller caller(call.context(), call.request());
  if (choice.ok()) choice->caller = &caller;
  StartScoring<PredictCall>(call, context_, choice);
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

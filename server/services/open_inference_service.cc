// KServe v2.
// SPDX-License-Identifier: Apache-2.0
#include "server/services/open_inference_service.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/recorder/call_record.h"
#include "server/rpc/grpc_call.h"
#include "server/scoring/canary_hash.h"
#include "server/scoring/open_inference_codec.h"
#include "server/scoring/shadow.h"

namespace ulfd::server {
namespace {

class InferCall : public ScoreCall {
 public:
  InferCall(const ServingContext& context, CallTerms terms,
            const inference::ModelInferRequest& request, inference::ModelInferResponse& response)
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
    return DecodeInfer(request_, model, limits, decoded);
  }
  absl::Status Encode(const DecodedRequest& decoded, const engine::ModelInfo& info,
                      const engine::RunResult& result) override {
    EncodeInfer(request_, decoded, info, result, response_);
    if (shadow_ != nullptr) {
      shadow_->Offer(recording::v1::API_KSERVE, request_, decoded, info, result);
    }
    record_.Choose(info, decoded.ads);
    return absl::OkStatus();
  }
  // The protocol has no place for them.
  void AddTimes(const CallTimes& times) override {
    record_.Add(request_, response_, times.total_ns);
  }
  const std::string& request_id() const override { return request_.id(); }

 private:
  Shadow* const shadow_;
  const inference::ModelInferRequest& request_;
  inference::ModelInferResponse& response_;
  CallRecord record_;
};

absl::Status Describe(const ModelManager& models, const absl::StatusOr<ModelChoice>& choice,
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
  const inference::ModelInferRequest& request = call.request();
  absl::StatusOr<ModelChoice> choice =
      security_.Identify(call.context(), ChoiceOf(request.model_name(), request.model_version()));
  const RequestCaller caller(call.context(), request);
  if (choice.ok()) choice->caller = &caller;
  StartScoring<InferCall>(call, context_, choice);
}

}  // namespace ulfd::server

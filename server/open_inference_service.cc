// KServe v2.
// SPDX-License-Identifier: Apache-2.0
#include "server/open_inference_service.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/status_macros.h"
#include "server/callers.h"
#include "server/grpc_call.h"
#include "server/open_inference_codec.h"
#include "server/recorder/call_record.h"
#include "server/shadow/shadow.h"

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
        record_(context.recorder, context.clock.Now(), ScoreCall::deadline()) {}

 protected:
  int64_t CountRows(const engine::Model& model) const override { return CountAds(request_, model); }
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

grpc::ServerUnaryReactor* OpenInferenceService::ServerLive(
    grpc::CallbackServerContext* call, const inference::ServerLiveRequest*,
    inference::ServerLiveResponse* response) {
  response->set_live(true);
  return Answer(call, absl::OkStatus());
}

grpc::ServerUnaryReactor* OpenInferenceService::ServerReady(
    grpc::CallbackServerContext* call, const inference::ServerReadyRequest*,
    inference::ServerReadyResponse* response) {
  response->set_ready(readiness_.ServerReady());
  return Answer(call, absl::OkStatus());
}

grpc::ServerUnaryReactor* OpenInferenceService::ModelReady(
    grpc::CallbackServerContext* call, const inference::ModelReadyRequest* request,
    inference::ModelReadyResponse* response) {
  const auto choice = security_.Identify(*call, ChoiceOf(request->name(), request->version()));
  if (!choice.ok()) return Answer(call, choice.status());
  response->set_ready(readiness_.ModelReady(*choice));
  return Answer(call, context_.models.CheckAccess(*choice));
}

grpc::ServerUnaryReactor* OpenInferenceService::ServerMetadata(
    grpc::CallbackServerContext* call, const inference::ServerMetadataRequest*,
    inference::ServerMetadataResponse* response) {
  response->set_name("ulfd");
  response->set_version(server_version_);
  return Answer(call, absl::OkStatus());
}

grpc::ServerUnaryReactor* OpenInferenceService::ModelMetadata(
    grpc::CallbackServerContext* call, const inference::ModelMetadataRequest* request,
    inference::ModelMetadataResponse* response) {
  const auto choice = security_.Identify(*call, ChoiceOf(request->name(), request->version()));
  return Answer(call, Describe(context_.models, choice, *response));
}

grpc::ServerUnaryReactor* OpenInferenceService::ModelInfer(
    grpc::CallbackServerContext* call, const inference::ModelInferRequest* request,
    inference::ModelInferResponse* response) {
  absl::StatusOr<ModelChoice> choice =
      security_.Identify(*call, ChoiceOf(request->model_name(), request->model_version()));
  const RequestCaller caller(*call, *request);
  if (choice.ok()) choice->caller = &caller;
  return StartScoring<InferCall>(call, context_, choice, *request, *response);
}

}  // namespace ulfd::server

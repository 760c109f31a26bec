// One scoring call for both APIs; what differs between them are the overloads for their messages.
// SPDX-License-Identifier: Apache-2.0
#include "server/services/scoring_rpc.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "server/recorder/call_record.h"
#include "server/rpc/call_context.h"
#include "server/rpc/grpc_status.h"
#include "server/scheduler/refusal.h"
#include "server/scoring/canary_hash.h"
#include "server/scoring/open_inference_codec.h"
#include "server/scoring/request_decoder.h"
#include "server/scoring/response_encoder.h"
#include "server/scoring/shadow.h"
#include "server/scoring/user_store.h"

namespace ulfd::server {
namespace {

namespace v1 = ulfd::v1;

// The metadata keys of priorities ("high", "normal", "low"; default "normal") and of the time after
// which a refused caller may try again, which clients of gRPC with a retry policy obey.
constexpr char kPriorityKey[] = "ulfd-priority";
constexpr char kPushbackKey[] = "grpc-retry-pushback-ms";
// The caller's span (W3C Trace Context).
constexpr char kTraceKey[] = "traceparent";

absl::StatusOr<ModelChoice> ChoiceOf(const v1::PredictRequest& request) {
  return server::ChoiceOf(request.model());
}
absl::StatusOr<ModelChoice> ChoiceOf(const inference::ModelInferRequest& request) {
  return server::ChoiceOf(request.model_name(), request.model_version());
}

const std::string& IdOf(const v1::PredictRequest& request) { return request.request_id(); }
const std::string& IdOf(const inference::ModelInferRequest& request) { return request.id(); }

recording::v1::Api ApiOf(const v1::PredictRequest&) { return recording::v1::API_NATIVE; }
recording::v1::Api ApiOf(const inference::ModelInferRequest&) { return recording::v1::API_KSERVE; }

void AddTimings(const CallTimes& times, const v1::PredictRequest& request,
                v1::PredictResponse& response) {
  if (!request.return_timings()) return;
  FillTimings(times, *response.mutable_timings());
}
// KServe's protocol has no place for them.
void AddTimings(const CallTimes&, const inference::ModelInferRequest&,
                inference::ModelInferResponse&) {}

// Deletes itself when it has answered.
template <typename Request, typename Response>
class ScoringRpc final : public ScoreCall {
 public:
  ScoringRpc(UnaryCall<Request, Response>& rpc, const ServingContext& context, CallTerms terms)
      : ScoreCall(context, std::move(terms)),
        rpc_(rpc),
        shadow_(context.shadow),
        record_(context.recorder, arrival(), ScoreCall::deadline()) {}

 private:
  bool cancelled() const override { return rpc_.cancelled(); }
  const std::string& request_id() const override { return IdOf(rpc_.request()); }
  std::string peer() const override { return rpc_.context().peer(); }
  int64_t CountRows(const engine::Model& model, const RequestLimits& limits) const override {
    return server::CountRows(rpc_.request(), model, limits);
  }
  absl::Status Decode(const engine::Model& model, const RequestLimits& limits,
                      DecodedRequest& decoded) override {
    return DecodeRequest(rpc_.request(), model, limits, decoded);
  }
  absl::Status Encode(const DecodedRequest& decoded, const engine::ModelInfo& info,
                      const engine::RunResult& result) override {
    const Request& request = rpc_.request();
    RETURN_IF_ERROR(EncodeResponse(request, decoded, info, result, rpc_.response()));
    if (shadow_ != nullptr) shadow_->Offer(ApiOf(request), request, decoded, info, result);
    record_.Choose(info, decoded.ads);
    return absl::OkStatus();
  }
  void AddTimes(const CallTimes& times) override {
    record_.Add(rpc_.request(), rpc_.response(), times.total_ns);
    AddTimings(times, rpc_.request(), rpc_.response());
  }
  void Finish(const absl::Status& status) override {
    RpcCall& rpc = rpc_;
    if (const auto pushback = RetryAfter(status); pushback.has_value()) {
      rpc.context().AddTrailingMetadata(kPushbackKey, absl::StrCat(pushback->count()));
    }
    const grpc::Status answer = ToGrpcStatus(status);
    delete this;  // It refers to the request, which may go as soon as the call has ended.
    rpc.Finish(answer);
  }

  UnaryCall<Request, Response>& rpc_;
  Shadow* const shadow_;
  CallRecord record_;
};

// `client`: its names, all of them, are one client.
absl::Status CompleteUser(const ServingContext& context,
                          const std::optional<std::vector<std::string>>& client,
                          UnaryCall<v1::PredictRequest, v1::PredictResponse>& rpc) {
  const std::string names = client.has_value() ? absl::StrJoin(*client, "\n") : "";
  return context.users->Complete(names, rpc.mutable_request());
}
// KServe's protocol has no place for keys.
absl::Status CompleteUser(const ServingContext&, const std::optional<std::vector<std::string>>&,
                          UnaryCall<inference::ModelInferRequest, inference::ModelInferResponse>&) {
  return absl::OkStatus();
}

// INVALID_ARGUMENT: a priority that is none.
absl::StatusOr<CallTerms> TermsOf(const grpc::ServerContext& call, const ServingContext& context) {
  CallTerms terms;
  terms.deadline = DeadlineOf(call, context.clock.Now());
  const absl::string_view trace = MetadataOf(call, kTraceKey);
  terms.trace = context.tracer != nullptr ? context.tracer->ContextOf(trace)
                                          : ParseTraceparent(trace).value_or(TraceContext());
  if (const absl::string_view word = MetadataOf(call, kPriorityKey); !word.empty()) {
    ASSIGN_OR_RETURN(terms.priority, ParsePriority(word));
  }
  if (context.client_quota != nullptr) {
    terms.client = std::string(MetadataOf(call, context.client_key));
  }
  return terms;
}

template <typename Request, typename Response>
void Start(UnaryCall<Request, Response>& rpc, const ServingContext& context,
           const Security& security) {
  absl::StatusOr<ModelChoice> choice = security.Identify(rpc.context(), ChoiceOf(rpc.request()));
  const RequestCaller caller(rpc.context(), rpc.request());
  if (choice.ok()) choice->caller = &caller;
  absl::StatusOr<CallTerms> terms = TermsOf(rpc.context(), context);
  if (choice.ok() && terms.ok()) {
    const absl::Status complete = CompleteUser(context, choice->client, rpc);
    if (!complete.ok()) choice = complete;
  }
  auto* call = new ScoringRpc(rpc, context, terms.ok() ? *terms : CallTerms());
  call->Start(terms.ok() ? choice : terms.status());
}

}  // namespace

void StartScoring(UnaryCall<v1::PredictRequest, v1::PredictResponse>& rpc,
                  const ServingContext& context, const Security& security) {
  Start(rpc, context, security);
}

void StartScoring(UnaryCall<inference::ModelInferRequest, inference::ModelInferResponse>& rpc,
                  const ServingContext& context, const Security& security) {
  Start(rpc, context, security);
}

}  // namespace ulfd::server

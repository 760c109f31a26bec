// One scoring call for both APIs; what differs between them are the overloads for their messages.
// SPDX-License-Identifier: Apache-2.0
#include "server/services/scoring_rpc.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/load_scope.h"
#include "base/status_macros.h"
#include "server/recorder/call_record.h"
#include "server/rpc/call_context.h"
#include "server/rpc/grpc_status.h"
#include "server/scheduler/refusal.h"
#include "server/scoring/canary_hash.h"
#include "server/scoring/kserve_codec.h"
#include "server/scoring/kserve_rows.h"
#include "server/scoring/response_encoder.h"
#include "server/scoring/shadow.h"
#include "server/scoring/tf_serving_codec.h"
#include "server/scoring/user_store.h"
#include "server/system/peer.h"

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

// Ends a call of gRPC.
void FinishRpc(RpcCall& rpc, const absl::Status& status) {
  if (const auto pushback = RetryAfter(status); pushback.has_value()) {
    rpc.context().AddTrailingMetadata(kPushbackKey, absl::StrCat(pushback->count()));
  }
  rpc.Finish(ToGrpcStatus(status));
}

template <typename RequestType, typename ResponseType>
class RpcCarrier : public Carrier<RequestType, ResponseType> {
 public:
  explicit RpcCarrier(UnaryCall<RequestType, ResponseType>& rpc) : rpc_(rpc) {}
  const RequestType& request() const override { return rpc_.request(); }
  ResponseType& response() override { return rpc_.response(); }
  bool cancelled() const override { return rpc_.cancelled(); }
  std::string peer() const override { return rpc_.peer(); }
  void Finish(const absl::Status& status) override { FinishRpc(rpc_, status); }

 private:
  UnaryCall<RequestType, ResponseType>& rpc_;
};

// Of the native API, whose requests may leave their user's features behind.
class NativeCarrier final : public RpcCarrier<v1::PredictRequest, v1::PredictResponse> {
 public:
  NativeCarrier(UnaryCall<v1::PredictRequest, v1::PredictResponse>& rpc, UserStore& users,
                UserStore::Completed user)
      : RpcCarrier(rpc), users_(users), user_(std::move(user)) {}
  absl::Status Decoded(absl::Status status) override {
    return users_.Decoded(user_, request(), std::move(status));
  }
  void Finish(const absl::Status& status) override {
    user_.lent.reset();
    RpcCarrier::Finish(status);
  }

 private:
  UserStore& users_;
  UserStore::Completed user_;
};

// A call of TensorFlow Serving's API.
using TfCall = UnaryCall<tensorflow::serving::PredictRequest, tensorflow::serving::PredictResponse>;
class TfCarrier final : public InferCarrier {
 public:
  explicit TfCarrier(TfCall& rpc) : rpc_(rpc) {}
  int64_t CountRows(const engine::Model& model, const RequestLimits& limits) const override {
    return CountRowsByShapes(request(), model, limits);
  }
  absl::Status Complete(const engine::Model& model, const RequestLimits& limits) override {
    return FillInputs(rpc_.mutable_request(), model, limits, mutable_request());
  }
  bool cancelled() const override { return rpc_.cancelled(); }
  std::string peer() const override { return rpc_.peer(); }
  void Finish(const absl::Status& status) override {
    if (status.ok()) MakePredictResponse(response(), rpc_.response());
    FinishRpc(rpc_, status);
  }

 private:
  TfCall& rpc_;
};

// Deletes itself when it has answered.
template <typename CarrierType>
class ScoringRpc final : public ScoreCall {
 public:
  ScoringRpc(std::unique_ptr<CarrierType> carrier, const ServingContext& context, CallTerms terms)
      : ScoreCall(context, std::move(terms)),
        carrier_(std::move(carrier)),
        shadow_(context.shadow),
        recorder_(context.recorder) {}

 private:
  bool cancelled() const override { return carrier_->cancelled(); }
  const std::string& request_id() const override { return IdOf(carrier_->request()); }
  std::string peer() const override { return carrier_->peer(); }
  int64_t CountRows(const engine::Model& model, const RequestLimits& limits) const override {
    return carrier_->CountRows(model, limits);
  }
  absl::Status Decode(const engine::Model& model, const RequestLimits& limits,
                      DecodedRequest& decoded) override {
    RETURN_IF_ERROR(carrier_->Complete(model, limits));
    return carrier_->Decoded(DecodeRequest(carrier_->request(), model, limits, decoded));
  }
  absl::Status Encode(const DecodedRequest& decoded, const engine::ModelInfo& info,
                      const engine::RunResult& result) override {
    const auto& request = carrier_->request();
    RETURN_IF_ERROR(EncodeResponse(request, decoded, info, result, carrier_->response()));
    if (shadow_ != nullptr) shadow_->Offer(ApiOf(request), request, decoded, info, result);
    return absl::OkStatus();
  }
  void Complete(const engine::ModelInfo& info, int64_t ads, const CallTimes& times) override {
    RecordCall({info, ads, arrival(), ScoreCall::deadline(), times.total_ns}, carrier_->request(),
               carrier_->response(), recorder_);
    AddTimings(times, carrier_->request(), carrier_->response());
  }
  void Finish(const absl::Status& status) override {
    const auto carrier = std::move(carrier_);
    // NOLINTNEXTLINE(performance-unnecessary-copy-initialization): `status` may be of what goes.
    const absl::Status answer = status;
    delete this;  // It refers to the request, which may go as soon as the call has ended.
    carrier->Finish(answer);
  }

  std::unique_ptr<CarrierType> carrier_;
  Shadow* const shadow_;
  Recorder* const recorder_;
};

// The names of a client, all of them, are one client.
std::string NameOf(const ModelChoice& choice) {
  return choice.client.has_value() ? absl::StrJoin(*choice.client, "\n") : "";
}

// INVALID_ARGUMENT: a priority that is none.
absl::StatusOr<CallTerms> TermsOf(std::string client, const MetadataLookup& metadata,
                                  TimePoint deadline, const ServingContext& context) {
  CallTerms terms;
  terms.deadline = deadline;
  const absl::string_view trace = metadata(kTraceKey);
  terms.trace = context.tracer != nullptr ? context.tracer->ContextOf(trace)
                                          : ParseTraceparent(trace).value_or(TraceContext());
  if (const absl::string_view word = metadata(kPriorityKey); !word.empty()) {
    ASSIGN_OR_RETURN(terms.priority, ParsePriority(word));
  }
  terms.client = context.client_quota == nullptr ? std::move(client)
                                                 : std::string(metadata(context.client_key));
  return terms;
}

// `asked`: what the caller sent.
template <typename CarrierType, typename Asked>
void Start(std::unique_ptr<CarrierType> carrier, const Asked& asked,
           absl::StatusOr<ModelChoice> choice, const MetadataLookup& metadata, TimePoint deadline,
           const ServingContext& context) {
  if (choice.ok()) {
    choice->user_hash = [&](const CanaryConfig& canary) {
      return HashUser(canary, metadata, asked);
    };
  }
  std::string client = choice.ok() ? NameOf(*choice) : "";
  if (client.empty()) client = ClientOf(carrier->peer());
  absl::StatusOr<CallTerms> terms = TermsOf(std::move(client), metadata, deadline, context);
  auto* call = new ScoringRpc(std::move(carrier), context, terms.ok() ? *terms : CallTerms());
  call->Start(terms.ok() ? choice : terms.status());
}

template <typename CarrierType, typename Request, typename Response>
void StartRpc(std::unique_ptr<CarrierType> carrier, UnaryCall<Request, Response>& rpc,
              absl::StatusOr<ModelChoice> choice, const ServingContext& context) {
  const MetadataLookup metadata = [&rpc](const std::string& key) {
    return MetadataOf(rpc.context(), key);
  };
  Start(std::move(carrier), rpc.request(), std::move(choice), metadata,
        DeadlineOf(rpc.context(), context.clock.Now()), context);
}

// Whether requests for the model may bring something of the user.
bool MayHaveUserFeatures(const engine::ModelInfo& info) {
  return std::any_of(info.inputs.begin(), info.inputs.end(), [&](const engine::InputInfo& input) {
    const engine::Level level =
        input.feature < 0 ? input.level : info.features[input.feature].level;
    return input.used && level != engine::Level::kAd;
  });
}

// UserStore::Complete.  A key alone is all that a model without user features can be given.
absl::StatusOr<UserStore::Completed> CompleteUser(const ModelChoice& choice,
                                                  const std::string& peer,
                                                  const ServingContext& context,
                                                  v1::PredictRequest& request) {
  std::string client = NameOf(choice);
  if (client.empty()) client = AddressOf(peer);
  absl::StatusOr<UserStore::Completed> user = context.users->Complete(client, request);
  if (!absl::IsFailedPrecondition(user.status())) return user;
  const absl::StatusOr<ModelHandle> model = context.models.Find(choice);
  // Where there is none, the call says why.
  const bool wanted = model.ok() && MayHaveUserFeatures((*model)->model->info());
  return wanted ? std::move(user) : UserStore::Completed();
}

}  // namespace

void StartScoring(UnaryCall<v1::PredictRequest, v1::PredictResponse>& rpc,
                  const ServingContext& context, const Security& security) {
  absl::StatusOr<ModelChoice> choice = security.Identify(rpc.context(), ChoiceOf(rpc.request()));
  UserStore::Completed user;
  if (choice.ok()) {
    auto completed = CompleteUser(*choice, rpc.peer(), context, rpc.mutable_request());
    if (completed.ok()) {
      user = *std::move(completed);
    } else {
      choice = completed.status();
    }
  }
  StartRpc(std::make_unique<NativeCarrier>(rpc, *context.users, std::move(user)), rpc,
           std::move(choice), context);
}

void StartScoring(UnaryCall<inference::ModelInferRequest, inference::ModelInferResponse>& rpc,
                  const ServingContext& context, const Security& security) {
  StartRpc(
      std::make_unique<RpcCarrier<inference::ModelInferRequest, inference::ModelInferResponse>>(
          rpc),
      rpc, security.Identify(rpc.context(), ChoiceOf(rpc.request())), context);
}

void StartScoring(TfCall& rpc, const ServingContext& context, const Security& security) {
  absl::StatusOr<ModelChoice> choice =
      security.Identify(rpc.context(), ChoiceOf(rpc.request().model_spec()));
  auto carrier = std::make_unique<TfCarrier>(rpc);
  const absl::Status described =
      WithinMemory([&] { return DescribeInputs(rpc.request(), carrier->mutable_request()); });
  if (choice.ok() && !described.ok()) choice = described;
  StartRpc(std::move(carrier), rpc, std::move(choice), context);
}

void StartScoring(std::unique_ptr<InferCarrier> carrier, absl::StatusOr<ModelChoice> choice,
                  const MetadataLookup& metadata, TimePoint deadline,
                  const ServingContext& context) {
  const inference::ModelInferRequest& request = carrier->request();
  Start(std::move(carrier), request, std::move(choice), metadata, deadline, context);
}

}  // namespace ulfd::server

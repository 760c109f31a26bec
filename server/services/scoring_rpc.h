// Scoring requests of all APIs as calls of gRPC: who asks, for which model, until when.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SERVICES_SCORING_RPC_H_
#define ULFD_SERVER_SERVICES_SCORING_RPC_H_

#include <memory>
#include <string>

#include "proto/open_inference.pb.h"
#include "proto/predict.pb.h"
#include "proto/tf_serving.pb.h"
#include "server/rpc/call_receiver.h"
#include "server/rpc/listener_security.h"
#include "server/scoring/canary_hash.h"
#include "server/scoring/kserve_codec.h"
#include "server/scoring/kserve_rows.h"
#include "server/scoring/request_decoder.h"
#include "server/scoring/score_call.h"

namespace ulfd::server {

// Starts the scoring of a request that has come in; never blocks.  `context` and `security` are
// borrowed until the call has ended.
void StartScoring(UnaryCall<ulfd::v1::PredictRequest, ulfd::v1::PredictResponse>& rpc,
                  const ServingContext& context, const Security& security);
void StartScoring(UnaryCall<inference::ModelInferRequest, inference::ModelInferResponse>& rpc,
                  const ServingContext& context, const Security& security);
// The request becomes one of KServe's.
void StartScoring(
    UnaryCall<tensorflow::serving::PredictRequest, tensorflow::serving::PredictResponse>& rpc,
    const ServingContext& context, const Security& security);

// What carries a request in and its answer out.
template <typename RequestType, typename ResponseType>
class Carrier {
 public:
  virtual ~Carrier() = default;
  virtual const RequestType& request() const = 0;
  virtual ResponseType& response() = 0;
  // What the request seems to cost, as of ScoreCall.
  virtual int64_t CountRows(const engine::Model& model, const RequestLimits& limits) const {
    return server::CountRows(request(), model, limits);
  }
  // Makes the request whole where it was admitted without its values.
  virtual absl::Status Complete(const engine::Model&, const RequestLimits&) {
    return absl::OkStatus();
  }
  // The request was decoded, so that it is one, or was not; what its caller is told of that.
  virtual absl::Status Decoded(absl::Status status) { return status; }
  // As of RpcCall.
  virtual bool cancelled() const = 0;
  virtual std::string peer() const = 0;
  // Once, from any thread.
  virtual void Finish(const absl::Status& status) = 0;
};

// Of a KServe request that is no call of gRPC.
class InferCarrier : public Carrier<inference::ModelInferRequest, inference::ModelInferResponse> {
 public:
  const inference::ModelInferRequest& request() const override { return request_; }
  inference::ModelInferRequest& mutable_request() { return request_; }
  inference::ModelInferResponse& response() override { return response_; }

 private:
  inference::ModelInferRequest request_;
  inference::ModelInferResponse response_;
};

// `choice`: with its client; `metadata` is borrowed for the call of this function.
void StartScoring(std::unique_ptr<InferCarrier> carrier, absl::StatusOr<ModelChoice> choice,
                  const MetadataLookup& metadata, TimePoint deadline,
                  const ServingContext& context);

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SERVICES_SCORING_RPC_H_

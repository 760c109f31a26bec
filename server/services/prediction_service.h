// ulfd.v1.PredictionService: the native API.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SERVICES_PREDICTION_SERVICE_H_
#define ULFD_SERVER_SERVICES_PREDICTION_SERVICE_H_

#include "proto/predict.grpc.pb.h"
#include "server/rpc/call_receiver.h"
#include "server/rpc/listener_security.h"
#include "server/scoring/score_call.h"
#include "server/services/shared_replies.h"

namespace ulfd::server {

// Nothing here blocks: Predict only queues, the other two only look.
class PredictionService final
    : public RpcServiceOf<PredictionService, ulfd::v1::PredictionService> {
 public:
  // Both are borrowed.
  PredictionService(const ServingContext& context, const Security& security)
      : context_(context), security_(security) {}

  void AwaitCalls(CallReceiver& receiver) override;

 private:
  void Predict(UnaryCall<ulfd::v1::PredictRequest, ulfd::v1::PredictResponse>& call);
  void GetModelMetadata(
      UnaryCall<ulfd::v1::GetModelMetadataRequest, ulfd::v1::GetModelMetadataResponse>& call);
  void ListModels(UnaryCall<ulfd::v1::ListModelsRequest, ulfd::v1::ListModelsResponse>& call);
  // Models that who asks may use.
  void ListFor(ModelChoice choice, ulfd::v1::ListModelsResponse& reply) const;

  const ServingContext& context_;
  const Security& security_;
  SharedReplies metadata_, lists_;
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SERVICES_PREDICTION_SERVICE_H_

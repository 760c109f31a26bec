// tensorflow.serving.PredictionService and ModelService.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SERVICES_TF_SERVING_SERVICE_H_
#define ULFD_SERVER_SERVICES_TF_SERVING_SERVICE_H_

#include "proto/tf_serving.grpc.pb.h"
#include "server/rpc/call_receiver.h"
#include "server/rpc/listener_security.h"
#include "server/scoring/score_call.h"
#include "server/services/shared_replies.h"

namespace ulfd::server {

// Nothing here blocks: Predict only queues, the others only look.
class TfPredictionService final
    : public RpcServiceOf<TfPredictionService, tensorflow::serving::PredictionService> {
 public:
  // Borrows both.
  TfPredictionService(const ServingContext& context, const Security& security)
      : context_(context), security_(security) {}

  void AwaitCalls(CallReceiver& receiver) override;

 private:
  void Predict(
      UnaryCall<tensorflow::serving::PredictRequest, tensorflow::serving::PredictResponse>& call);
  void GetModelMetadata(UnaryCall<tensorflow::serving::GetModelMetadataRequest,
                                  tensorflow::serving::GetModelMetadataResponse>& call);

  const ServingContext& context_;
  const Security& security_;
  SharedReplies metadata_;
};

class TfModelService final
    : public RpcServiceOf<TfModelService, tensorflow::serving::ModelService> {
 public:
  TfModelService(const ServingContext& context, const Security& security)
      : context_(context), security_(security) {}

  void AwaitCalls(CallReceiver& receiver) override;

 private:
  void GetModelStatus(UnaryCall<tensorflow::serving::GetModelStatusRequest,
                                tensorflow::serving::GetModelStatusResponse>& call);

  const ServingContext& context_;
  const Security& security_;
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SERVICES_TF_SERVING_SERVICE_H_

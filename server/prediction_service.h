// ulfd.v1.PredictionService: the native API over gRPC's callback API.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_PREDICTION_SERVICE_H_
#define ULFD_SERVER_PREDICTION_SERVICE_H_

#include "proto/predict.grpc.pb.h"
#include "server/score_call.h"
#include "server/security/security.h"

namespace ulfd::server {

// Nothing here blocks: Predict only queues, the other two only look.
class PredictionService final : public ulfd::v1::PredictionService::CallbackService {
 public:
  // Both are borrowed.
  PredictionService(const ServingContext& context, const Security& security)
      : context_(context), security_(security) {}

  grpc::ServerUnaryReactor* Predict(grpc::CallbackServerContext* call,
                                    const ulfd::v1::PredictRequest* request,
                                    ulfd::v1::PredictResponse* response) override;
  grpc::ServerUnaryReactor* GetModelMetadata(grpc::CallbackServerContext* call,
                                             const ulfd::v1::GetModelMetadataRequest* request,
                                             ulfd::v1::GetModelMetadataResponse* response) override;
  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* call,
                                       const ulfd::v1::ListModelsRequest* request,
                                       ulfd::v1::ListModelsResponse* response) override;

 private:
  const ServingContext& context_;
  const Security& security_;
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_PREDICTION_SERVICE_H_

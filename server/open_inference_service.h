// inference.GRPCInferenceService: KServe v2 over gRPC's callback API.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_OPEN_INFERENCE_SERVICE_H_
#define ULFD_SERVER_OPEN_INFERENCE_SERVICE_H_

#include <string>

#include "proto/open_inference.grpc.pb.h"
#include "server/readiness.h"
#include "server/score_call.h"
#include "server/security/security.h"

namespace ulfd::server {

// Nothing here blocks: ModelInfer only queues, the others only look.
class OpenInferenceService final : public inference::GRPCInferenceService::CallbackService {
 public:
  // `server_version`: what ServerMetadata says.  The others are borrowed.
  OpenInferenceService(const ServingContext& context, const Security& security,
                       const Readiness& readiness, std::string server_version)
      : context_(context),
        security_(security),
        readiness_(readiness),
        server_version_(std::move(server_version)) {}

  grpc::ServerUnaryReactor* ServerLive(grpc::CallbackServerContext* call,
                                       const inference::ServerLiveRequest* request,
                                       inference::ServerLiveResponse* response) override;
  grpc::ServerUnaryReactor* ServerReady(grpc::CallbackServerContext* call,
                                        const inference::ServerReadyRequest* request,
                                        inference::ServerReadyResponse* response) override;
  grpc::ServerUnaryReactor* ModelReady(grpc::CallbackServerContext* call,
                                       const inference::ModelReadyRequest* request,
                                       inference::ModelReadyResponse* response) override;
  grpc::ServerUnaryReactor* ServerMetadata(grpc::CallbackServerContext* call,
                                           const inference::ServerMetadataRequest* request,
                                           inference::ServerMetadataResponse* response) override;
  grpc::ServerUnaryReactor* ModelMetadata(grpc::CallbackServerContext* call,
                                          const inference::ModelMetadataRequest* request,
                                          inference::ModelMetadataResponse* response) override;
  grpc::ServerUnaryReactor* ModelInfer(grpc::CallbackServerContext* call,
                                       const inference::ModelInferRequest* request,
                                       inference::ModelInferResponse* response) override;

 private:
  const ServingContext& context_;
  const Security& security_;
  const Readiness& readiness_;
  const std::string server_version_;
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_OPEN_INFERENCE_SERVICE_H_

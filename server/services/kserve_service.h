// inference.GRPCInferenceService: KServe v2.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SERVICES_KSERVE_SERVICE_H_
#define ULFD_SERVER_SERVICES_KSERVE_SERVICE_H_

#include <string>

#include "proto/open_inference.grpc.pb.h"
#include "server/rpc/call_receiver.h"
#include "server/rpc/listener_security.h"
#include "server/scoring/score_call.h"
#include "server/services/readiness.h"
#include "server/services/shared_replies.h"

namespace ulfd::server {

// Nothing here blocks: ModelInfer only queues, the others only look.
class KserveService final : public RpcServiceOf<KserveService, inference::GRPCInferenceService> {
 public:
  // `server_version`: what ServerMetadata says.  The others are borrowed.
  KserveService(const ServingContext& context, const Security& security, const Readiness& readiness,
                std::string server_version)
      : context_(context),
        security_(security),
        readiness_(readiness),
        server_version_(std::move(server_version)) {}

  void AwaitCalls(CallReceiver& receiver) override;

 private:
  void ServerLive(UnaryCall<inference::ServerLiveRequest, inference::ServerLiveResponse>& call);
  void ServerReady(UnaryCall<inference::ServerReadyRequest, inference::ServerReadyResponse>& call);
  void ModelReady(UnaryCall<inference::ModelReadyRequest, inference::ModelReadyResponse>& call);
  void ServerMetadata(
      UnaryCall<inference::ServerMetadataRequest, inference::ServerMetadataResponse>& call);
  void ModelMetadata(
      UnaryCall<inference::ModelMetadataRequest, inference::ModelMetadataResponse>& call);
  void ModelConfig(UnaryCall<inference::ModelConfigRequest, inference::ModelConfigResponse>& call);
  void ModelStatistics(
      UnaryCall<inference::ModelStatisticsRequest, inference::ModelStatisticsResponse>& call);
  void RepositoryIndex(
      UnaryCall<inference::RepositoryIndexRequest, inference::RepositoryIndexResponse>& call);
  void ModelInfer(UnaryCall<inference::ModelInferRequest, inference::ModelInferResponse>& call);

  const ServingContext& context_;
  const Security& security_;
  const Readiness& readiness_;
  const std::string server_version_;
  SharedReplies metadata_, config_;
  SharedReplies statistics_;  // Of all models.
  SharedReplies indices_[2];  // Of all versions, and of those that are ready.
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SERVICES_KSERVE_SERVICE_H_

// SPDX-License-Identifier: Apache-2.0
#include "server/services/kserve_service.h"

#include <vector>

#include "absl/strings/str_join.h"
#include "server/rpc/grpc_status.h"
#include "server/scoring/kserve_codec.h"
#include "server/services/kserve_models.h"
#include "server/services/scoring_rpc.h"

namespace ulfd::server {
void KserveService::AwaitCalls(CallReceiver& receiver) {
  using Self = KserveService;
  Await(receiver, "ServerLive", &Self::ServerLive);
  Await(receiver, "ServerReady", &Self::ServerReady);
  Await(receiver, "ModelReady", &Self::ModelReady);
  Await(receiver, "ServerMetadata", &Self::ServerMetadata);
  Await(receiver, "ModelMetadata", &Self::ModelMetadata);
  Await(receiver, "ModelInfer", &Self::ModelInfer);
  Await(receiver, "ModelConfig", &Self::ModelConfig);
  Await(receiver, "ModelStatistics", &Self::ModelStatistics);
  Await(receiver, "RepositoryIndex", &Self::RepositoryIndex);
}

void KserveService::ServerLive(
    UnaryCall<inference::ServerLiveRequest, inference::ServerLiveResponse>& call) {
  call.response().set_live(true);
  call.Finish(grpc::Status::OK);
}

void KserveService::ServerReady(
    UnaryCall<inference::ServerReadyRequest, inference::ServerReadyResponse>& call) {
  call.response().set_ready(readiness_.ServerReady());
  call.Finish(grpc::Status::OK);
}

void KserveService::ModelReady(
    UnaryCall<inference::ModelReadyRequest, inference::ModelReadyResponse>& call) {
  const auto choice =
      security_.Identify(call.context(), ChoiceOf(call.request().name(), call.request().version()));
  if (!choice.ok()) return call.Finish(ToGrpcStatus(choice.status()));
  call.response().set_ready(readiness_.ModelReady(*choice));
  call.Finish(ToGrpcStatus(context_.models.CheckAccess(*choice)));
}

void KserveService::ServerMetadata(
    UnaryCall<inference::ServerMetadataRequest, inference::ServerMetadataResponse>& call) {
  call.response().set_name("ulfd");
  call.response().set_version(server_version_);
  for (const char* extension : {"model_configuration", "statistics", "model_repository"}) {
    call.response().add_extensions(extension);
  }
  call.Finish(grpc::Status::OK);
}

void KserveService::ModelMetadata(
    UnaryCall<inference::ModelMetadataRequest, inference::ModelMetadataResponse>& call) {
  const auto choice =
      security_.Identify(call.context(), ChoiceOf(call.request().name(), call.request().version()));
  const auto handle = FindModel(context_.models, choice);
  if (!handle.ok()) return call.Finish(ToGrpcStatus(handle.status()));
  const std::vector<int64_t> versions = context_.models.VersionsOf((*handle)->name);
  metadata_.Finish(call, (*handle)->generation, absl::StrJoin(versions, ","),
                   [&](inference::ModelMetadataResponse& reply) {
                     DescribeServed((*handle)->model->info(), versions, reply);
                   });
}

void KserveService::ModelConfig(
    UnaryCall<inference::ModelConfigRequest, inference::ModelConfigResponse>& call) {
  const auto choice =
      security_.Identify(call.context(), ChoiceOf(call.request().name(), call.request().version()));
  const auto handle = FindModel(context_.models, choice);
  if (!handle.ok()) return call.Finish(ToGrpcStatus(handle.status()));
  config_.Finish(call, (*handle)->generation, "", [&](inference::ModelConfigResponse& reply) {
    DescribeConfig((*handle)->model->info(), *reply.mutable_config());
  });
}

void KserveService::ModelStatistics(
    UnaryCall<inference::ModelStatisticsRequest, inference::ModelStatisticsResponse>& call) {
  const inference::ModelStatisticsRequest& request = call.request();
  if (request.name().empty() && request.version().empty()) {
    const ModelChoice all{.client = security_.ClientOf(call.context())};
    return statistics_.FinishList(call, context_.models, all, context_.clock.Now(),
                                  [&](inference::ModelStatisticsResponse& reply) {
                                    CollectStatistics(context_.models, context_.metrics, all,
                                                      reply);
                                  });
  }
  const auto choice =
      security_.Identify(call.context(), ChoiceOf(request.name(), request.version()));
  // Whether there is such a model; which version calls would get does not matter.
  const absl::Status found = FindModel(context_.models, choice).status();
  if (found.ok()) CollectStatistics(context_.models, context_.metrics, *choice, call.response());
  call.Finish(ToGrpcStatus(found));
}

void KserveService::RepositoryIndex(
    UnaryCall<inference::RepositoryIndexRequest, inference::RepositoryIndexResponse>& call) {
  const ModelChoice caller{.client = security_.ClientOf(call.context())};
  const bool only_ready = call.request().ready();
  indices_[only_ready ? 1 : 0].FinishList(call, context_.models, caller, context_.clock.Now(),
                                          [&](inference::RepositoryIndexResponse& reply) {
                                            ListRepository(context_.models, caller, only_ready,
                                                           reply);
                                          });
}

void KserveService::ModelInfer(
    UnaryCall<inference::ModelInferRequest, inference::ModelInferResponse>& call) {
  StartScoring(call, context_, security_);
}

}  // namespace ulfd::server

// Scoring requests of both APIs as calls of gRPC: who asks, for which model, until when.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SERVICES_SCORING_RPC_H_
#define ULFD_SERVER_SERVICES_SCORING_RPC_H_

#include "proto/open_inference.pb.h"
#include "proto/predict.pb.h"
#include "server/rpc/call_receiver.h"
#include "server/rpc/listener_security.h"
#include "server/scoring/score_call.h"

namespace ulfd::server {

// Starts the scoring of a request that has come in; never blocks.  `context` and `security` are
// borrowed until the call has ended.
void StartScoring(UnaryCall<ulfd::v1::PredictRequest, ulfd::v1::PredictResponse>& rpc,
                  const ServingContext& context, const Security& security);
void StartScoring(UnaryCall<inference::ModelInferRequest, inference::ModelInferResponse>& rpc,
                  const ServingContext& context, const Security& security);

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SERVICES_SCORING_RPC_H_

// Runs a recorded request on a model and sets its scores beside the recorded ones: for golden
// checks and for shadow traffic.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SCORING_RECORDED_RUN_H_
#define ULFD_SERVER_SCORING_RECORDED_RUN_H_

#include <google/protobuf/message_lite.h>

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "engine/runtime/model.h"
#include "proto/recording.pb.h"
#include "server/scoring/decoded_request.h"

namespace ulfd::server {

// One value of an output, as it was recorded and as it is now.
struct ScorePair {
  absl::string_view output;
  int64_t row = 0, column = 0;  // Row of the request.
  double recorded = 0, found = 0;
};

// What is recorded of a call that was answered: its request, and every row of the outputs that it
// wanted (also where the reply has only the best ones).
recording::v1::Recording MakeRecording(recording::v1::Api api,
                                       const google::protobuf::MessageLite& request,
                                       const DecodedRequest& decoded, const engine::ModelInfo& info,
                                       const engine::RunResult& result);

// Not thread-safe; reused from request to request.
class RecordedRun {
 public:
  // A status that is not OK ends the comparison, which returns it.
  using Visit = std::function<absl::Status(const ScorePair& pair)>;

  // Decodes the request as a call's, limits included, runs it, and visits every recorded value.
  // Errors: those of decoding and running; DATA_LOSS for a record that cannot be read;
  // FAILED_PRECONDITION for an output that the model does not have, or that has another shape.
  // REQUIRES: UsesOneThread().
  absl::Status Run(const recording::v1::Recording& record, const engine::Model& model,
                   const RequestLimits& limits, const engine::RunOptions& run, const Visit& visit);

 private:
  engine::Workspace workspace_;
  engine::RunResult result_;
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SCORING_RECORDED_RUN_H_

// Answered calls -> records for the recorder.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_RECORDER_CALL_RECORD_H_
#define ULFD_SERVER_RECORDER_CALL_RECORD_H_

#include <cstdint>

#include "engine/runtime/model.h"
#include "proto/open_inference.pb.h"
#include "proto/predict.pb.h"
#include "server/recorder/recorder.h"
#include "server/scheduler/clock.h"

namespace ulfd::server {

// A call whose reply is complete.
struct AnsweredCall {
  const engine::ModelInfo& info;
  int64_t ads = 0;
  TimePoint arrival, deadline;
  int64_t duration_ns = 0;
};

// Hands the call to the recorder, if it is chosen or among the slowest, which costs a copy of its
// request and scores; others a few nanoseconds.  `recorder`: null for none.
void RecordCall(const AnsweredCall& call, const ulfd::v1::PredictRequest& request,
                const ulfd::v1::PredictResponse& response, Recorder* recorder);
void RecordCall(const AnsweredCall& call, const inference::ModelInferRequest& request,
                const inference::ModelInferResponse& response, Recorder* recorder);

}  // namespace ulfd::server

#endif  // ULFD_SERVER_RECORDER_CALL_RECORD_H_

// What one call keeps for the recorder, from the choice until its reply is complete.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_RECORDER_CALL_RECORD_H_
#define ULFD_SERVER_RECORDER_CALL_RECORD_H_

#include <cstdint>
#include <memory>

#include "engine/runtime/model.h"
#include "proto/open_inference.pb.h"
#include "proto/predict.pb.h"
#include "proto/recording.pb.h"
#include "server/recorder/recorder.h"
#include "server/scheduler/clock.h"

namespace ulfd::server {

// Costs a call that is not chosen a few nanoseconds, one that is chosen a copy of its request and
// scores.  Used by one thread at a time.
class CallRecord {
 public:
  // `recorder`: null for none; borrowed.
  CallRecord(Recorder* recorder, TimePoint arrival, TimePoint deadline)
      : recorder_(recorder), arrival_(arrival), deadline_(deadline) {}

  // When the scores are there.
  void Choose(const engine::ModelInfo& info, int64_t ads);
  // When the reply is complete: hands a chosen call over.
  void Add(const ulfd::v1::PredictRequest& request, const ulfd::v1::PredictResponse& response,
           int64_t duration_ns);
  void Add(const inference::ModelInferRequest& request,
           const inference::ModelInferResponse& response, int64_t duration_ns);

 private:
  void Finish(recording::v1::Api api, int64_t duration_ns);

  Recorder* const recorder_;
  const TimePoint arrival_, deadline_;
  std::unique_ptr<recording::v1::Recording> record_;  // Null: not chosen.
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_RECORDER_CALL_RECORD_H_

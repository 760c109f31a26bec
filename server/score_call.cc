// The life of a call.
// SPDX-License-Identifier: Apache-2.0
#include "server/score_call.h"

#include <algorithm>
#include <functional>

#include "absl/strings/str_cat.h"
#include "engine/status_macros.h"
#include "server/response_encoder.h"

namespace ulfd::server {
namespace {

// Codes that mean a bug of ours rather than of the caller.
bool IsOurFault(absl::StatusCode code) {
  return code == absl::StatusCode::kInternal || code == absl::StatusCode::kUnknown ||
         code == absl::StatusCode::kDataLoss;
}

}  // namespace

ScoreCall::ScoreCall(const ServingContext& context, TimePoint deadline)
    : context_(context), arrival_(context.clock.Now()), deadline_(deadline) {
  context_.metrics.AddInFlight(1);
}

int64_t ScoreCall::SinceNs(TimePoint begin) const {
  return std::chrono::nanoseconds(context_.clock.Now() - begin).count();
}

absl::Status ScoreCall::Admit(const absl::StatusOr<ModelChoice>& choice) {
  RETURN_IF_ERROR(choice.status());
  ASSIGN_OR_RETURN(handle_, context_.models.Find(*choice));
  series_ = context_.metrics.For(*handle_);
  // A request beyond the limit is refused by the decoder, with a better text than the queue's.
  rows_ = std::clamp<int64_t>(CountRows(*handle_->model), 1, context_.limits.max_ads);
  const absl::Status submitted = context_.scheduler.Submit(this);
  if (!submitted.ok()) CountRefusal(submitted);
  return submitted;
}

void ScoreCall::Start(const absl::StatusOr<ModelChoice>& choice) {
  // After a Submit that succeeded the call may be gone already.
  const absl::Status admitted = Admit(choice);
  if (!admitted.ok()) End(admitted, 0);
}

void ScoreCall::CountRefusal(const absl::Status& why) {
  switch (why.code()) {
    case absl::StatusCode::kResourceExhausted:
      context_.metrics.CountShed(ShedReason::kQueueFull);
      break;
    case absl::StatusCode::kUnavailable:
      context_.metrics.CountShed(ShedReason::kDraining);
      break;
    case absl::StatusCode::kCancelled:
      context_.metrics.CountCancelled(CancelStage::kQueue);
      break;
    default:
      context_.metrics.CountShed(ShedReason::kDeadline);
  }
}

void ScoreCall::Drop(const absl::Status& why) {
  CountRefusal(why);
  End(why, 0);
}

void ScoreCall::Run(Worker& worker) {
  times_.queue_ns = SinceNs(arrival_);
  const absl::Status status = Score(worker);
  End(status, worker.index + 1);
}

absl::Status ScoreCall::Score(Worker& worker) {
  const engine::Model& model = *handle_->model;
  TimePoint begin = context_.clock.Now();
  DecodedRequest decoded;
  RETURN_IF_ERROR(Decode(model, context_.limits, decoded));
  times_.decode_ns = SinceNs(begin);

  RETURN_IF_ERROR(RunModel(worker, decoded));
  const engine::RunStats& stats = worker.result.stats;
  times_.embed_ns = stats.embed_ns;
  times_.user_ns = stats.user_ns;
  times_.dense_ns = stats.ad_ns;

  begin = context_.clock.Now();
  RETURN_IF_ERROR(Encode(decoded, model.info(), worker.result));
  times_.encode_ns = SinceNs(begin);
  times_.total_ns = SinceNs(arrival_);
  AddTimes(times_);
  Observe(worker, decoded);
  return absl::OkStatus();
}

absl::Status ScoreCall::RunModel(Worker& worker, const DecodedRequest& decoded) {
  const std::function<bool()> stop = [this] {
    return cancelled() || context_.clock.Now() >= deadline_ ||
           context_.abandon.load(std::memory_order_relaxed);
  };
  engine::RunOptions options;
  options.stop = &stop;
  const absl::Status status =
      handle_->model->Run(decoded.inputs, options, worker.workspace, worker.result);
  if (!absl::IsCancelled(status)) return status;
  context_.metrics.CountCancelled(CancelStage::kCompute);
  if (context_.clock.Now() >= deadline_) {
    return absl::DeadlineExceededError("the deadline passed while the model ran");
  }
  if (cancelled()) return absl::CancelledError("the caller went away");
  return absl::UnavailableError("draining: the server is shutting down in a hurry");
}

void ScoreCall::Observe(Worker& worker, const DecodedRequest& decoded) {
  const int shard = worker.index + 1;
  ModelSeries& model = *series_->model;
  const auto stage = [&](Stage s, int64_t ns) {
    model.stages[static_cast<size_t>(s)].Observe(shard, ns);
  };
  stage(Stage::kDecode, times_.decode_ns);
  stage(Stage::kQueue, times_.queue_ns);
  stage(Stage::kUser, times_.user_ns);
  stage(Stage::kEmbed, times_.embed_ns);
  stage(Stage::kDense, times_.dense_ns);
  stage(Stage::kEncode, times_.encode_ns);
  model.candidates.Add(decoded.ads);
  model.candidates_per_request.Observe(shard, decoded.ads);
  if (const int64_t n = CountNonFinite(worker.result, decoded.outputs); n > 0) {
    model.nonfinite_scores.Add(n);
  }
  const std::vector<int64_t>& missing = worker.result.stats.missing_ids;
  for (size_t i = 0; i < missing.size() && i < series_->missing_keys.size(); ++i) {
    if (missing[i] > 0) series_->missing_keys[i]->Add(missing[i]);
  }
}

void ScoreCall::End(const absl::Status& status, int shard) {
  if (series_ != nullptr) {
    series_->codes->Add(status.code());
    series_->model->duration.Observe(shard, SinceNs(arrival_));
  } else {
    context_.metrics.CountWithoutModel(status.code());
  }
  context_.metrics.AddInFlight(-1);
  if (IsOurFault(status.code())) {
    context_.logger.Error("call failed",
                          {{"request_id", request_id()},
                           {"model", handle_ == nullptr ? "" : handle_->name},
                           {"version", handle_ == nullptr ? 0 : handle_->version},
                           {"error", status.ToString(absl::StatusToStringMode::kWithNoExtraData)}});
  }
  // The model is given back before the caller can see the answer, so that a reload is not held up
  // by slow readers.
  handle_.reset();
  Finish(status);
}

}  // namespace ulfd::server

// SPDX-License-Identifier: Apache-2.0
#include "server/scoring/score_call.h"

#include <algorithm>
#include <functional>
#include <new>
#include <numeric>
#include <optional>
#include <type_traits>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "server/models/merged_request.h"
#include "server/scheduler/refusal.h"
#include "server/scoring/response_encoder.h"

namespace ulfd::server {
namespace {

// Codes that mean a bug of ours rather than of the caller.
bool IsOurFault(absl::StatusCode code) {
  return code == absl::StatusCode::kInternal || code == absl::StatusCode::kUnknown ||
         code == absl::StatusCode::kDataLoss;
}

int64_t Ns(std::chrono::nanoseconds time) { return time.count(); }

// When memory may be there again.
constexpr std::chrono::milliseconds kMemoryRetry(1000);

// Made once, while there is memory for it.
const absl::Status& NoMemory() {
  static const absl::Status& refusal = *new absl::Status(
      Refuse(ShedReason::kMemory, "the system has no memory left for the request", kMemoryRetry));
  return refusal;
}

// What `step` returns, OK if that is nothing; NoMemory() if memory is not to be had for it.  One
// request must not end the process for that.
template <typename Step>
absl::Status OrNoMemory(Step step) {
  const absl::Status& no_memory = NoMemory();
  try {
    if constexpr (std::is_void_v<decltype(step())>) {
      step();
      return absl::OkStatus();
    } else {
      return step();
    }
  } catch (const std::bad_alloc&) {
    return no_memory;
  }
}

// What each part of a merged request has of the run of all.
absl::Status CutResults(const engine::Model& model, const MergedRequest& merged,
                        absl::Span<const MergedRequest::Part> parts, const engine::RunResult& all,
                        std::vector<engine::RunResult>& results) {
  results.resize(parts.size());
  std::vector<std::vector<int64_t>> missing;
  ShareMissingIds(model, parts, merged.fetched(), all.stats.missing_ids, missing);
  for (size_t i = 0; i < parts.size(); ++i) {
    RETURN_IF_ERROR(merged.Cut(model.info(), all, static_cast<int64_t>(i), results[i]));
    results[i].stats.missing_ids = std::move(missing[i]);
  }
  results[0].stats.looked_up_ids = all.stats.looked_up_ids;  // Of all calls.
  return absl::OkStatus();
}

}  // namespace

struct ScoreCall::Parallel {
  engine::SharedUserPart user_part;
  engine::RunResult result;
  bool timed = false;  // Whether steps are wanted.
  std::chrono::nanoseconds begin_took{0};
  TimePoint rows_begin;
  std::atomic<bool> failed{false};
  Mutex mu;
  absl::Status status ABSL_GUARDED_BY(mu);  // The first error of the rows.
  engine::RunStats rows_stats ABSL_GUARDED_BY(mu);
  // Of the user's part, then of all; its size stays.
  engine::StepTimes steps;
  std::chrono::nanoseconds rows_took ABSL_GUARDED_BY(mu){0};  // On all workers together.
};

absl::StatusOr<Priority> ParsePriority(absl::string_view word) {
  if (word == "high") return Priority::kHigh;
  if (word == "normal") return Priority::kNormal;
  if (word == "low") return Priority::kLow;
  return InvalidArgument("priority \"", absl::CHexEscape(word.substr(0, 32)),
                         "\", want high, normal or low");
}

ScoreCall::ScoreCall(const ServingContext& context, CallTerms terms)
    : context_(context),
      arrival_(context.clock.Now()),
      terms_(std::move(terms)),
      queued_(arrival_) {
  context_.metrics.AddInFlight(1);
}

ScoreCall::~ScoreCall() = default;

int64_t ScoreCall::SinceNs(TimePoint begin) const { return Ns(context_.clock.Now() - begin); }

absl::Status ScoreCall::Admit(const absl::StatusOr<ModelChoice>& choice) {
  RETURN_IF_ERROR(choice.status());
  ASSIGN_OR_RETURN(handle_, context_.models.Find(*choice));
  series_ = context_.metrics.For(*handle_);
  rows_ = CountRows(*handle_->model, context_.limits);
  if (context_.client_quota != nullptr) {
    absl::Status booked = context_.client_quota->Acquire(terms_.client, rows_);
    if (!booked.ok()) {
      CountRefusal(booked);
      return booked;
    }
    booked_rows_ = rows_;
  }
  return handle_->model->info().fetch_timeout.count() > 0 ? StartLookup() : Queue();
}

absl::Status ScoreCall::Queue() {
  absl::Status submitted = context_.scheduler.Submit(this);
  if (!submitted.ok()) CountRefusal(submitted);
  return submitted;
}

absl::Status ScoreCall::StartLookup() {
  const engine::Model& model = *handle_->model;
  // What would be refused is not decoded.
  absl::Status may_queue = context_.scheduler.Check(this);
  if (!may_queue.ok()) {
    CountRefusal(may_queue);
    return may_queue;
  }
  RETURN_IF_ERROR(DecodeOnce());
  RETURN_IF_ERROR(Explain(OrNoMemory([&] {
    fetched_ = std::make_unique<engine::FetchedRows>();
    return model.FindRows(decoded_.inputs, context_.limits.max_memory_bytes, *fetched_);
  })));
  queued_ = context_.clock.Now();
  if (fetched_->CountLate() == 0) return Queue();
  fetch_deadline_ = queued_ + model.info().fetch_timeout;
  if (terms_.deadline != TimePoint::max()) {
    // The other half is for the queue and the run.
    const auto left = terms_.deadline - queued_ - lane()->cost().Predict(1, rows_);
    fetch_deadline_ = std::min(fetch_deadline_, queued_ + left / 2);
  }
  absl::Status submitted = context_.lookups->Submit(this);
  if (!submitted.ok()) CountRefusal(submitted);
  return submitted;
}

void ScoreCall::FetchRows() {
  if (!StillWanted().ok()) return;
  const absl::Status fetched =
      OrNoMemory([&] { return handle_->model->FetchRows(fetch_deadline_, *fetched_); });
  if (fetched.ok() || !context_.lookups->MayReport(context_.clock.Now())) return;
  // If that was for want of memory, there may be none for the line.
  OrNoMemory([&] {
    context_.logger.Warning("rows are late", {{"error", fetched.ToString()}});
  }).IgnoreError();
}

template <typename Step>
absl::Status ScoreCall::OrShed(Step step) const {
  try {
    return step();
  } catch (const std::bad_alloc&) {
    CountShed(ShedReason::kMemory);
    return NoMemory();
  }
}

void ScoreCall::RowsEnded() {
  const TimePoint now = context_.clock.Now();
  times_.fetch_ns = Ns(now - queued_);
  queued_ = now;
  decoded_.late_ids = fetched_->CountLate();
  absl::Status status;
  if (decoded_.late_ids > 0) {
    status = Explain(OrNoMemory([&] {
      std::vector<int64_t> late;
      for (const engine::RowSet& rows : fetched_->tables) late.push_back(rows.CountLate());
      AddToTables(late, &TableSeries::late);
      return handle_->model->CheckRows(*fetched_);
    }));
  }
  if (status.ok()) status = OrShed([&] { return Queue(); });
  if (!status.ok()) Conclude(status, 0);
}

void ScoreCall::Start(const absl::StatusOr<ModelChoice>& choice) {
  // After a Submit that succeeded the call may be gone already.
  const absl::Status admitted = OrShed([&] { return Admit(choice); });
  if (!admitted.ok()) Conclude(admitted, 0);
}

void ScoreCall::CountShed(ShedReason reason) const {
  if (series_ != nullptr) {
    series_->model->shed.Add(reason);
  } else {
    context_.metrics.CountShedWithoutModel(reason);
  }
}

void ScoreCall::CountRefusal(const absl::Status& why) {
  if (const std::optional<ShedReason> reason = ReasonOf(why); reason.has_value()) {
    CountShed(*reason);
  } else if (absl::IsUnavailable(why)) {
    CountShed(ShedReason::kDraining);
  } else if (absl::IsCancelled(why)) {
    context_.metrics.CountCancelled(CancelStage::kQueue);
  } else {
    CountShed(ShedReason::kDeadline);
  }
}

void ScoreCall::Drop(const absl::Status& why) {
  if (parallel_ != nullptr) {
    context_.metrics.CountCancelled(CancelStage::kCompute);
  } else {
    CountRefusal(why);
  }
  Conclude(why, 0);
}

absl::Status ScoreCall::StillWanted(TimePoint now) const {
  if (now >= terms_.deadline) {
    return absl::DeadlineExceededError("the deadline passed while the model ran");
  }
  if (cancelled()) return absl::CancelledError("the caller went away");
  if (context_.abandon.load(std::memory_order_relaxed)) {
    return Unavailable("draining: the server is shutting down in a hurry");
  }
  return absl::OkStatus();
}

absl::Status ScoreCall::Explain(const absl::Status& run) const {
  if (!too_large_.ok()) return too_large_;
  if (ReasonOf(run) == ShedReason::kMemory) {
    CountShed(ShedReason::kMemory);
    return run;
  }
  if (absl::IsResourceExhausted(run)) {
    CountShed(ShedReason::kMemory);
    return ResourceExhausted(Name(ShedReason::kMemory), ": ", run.message(),
                             " (limits.max_request_memory_bytes)");
  }
  if (!absl::IsCancelled(run)) return run;
  context_.metrics.CountCancelled(CancelStage::kCompute);
  const absl::Status why = StillWanted();
  return why.ok() ? run : why;
}

absl::Status ScoreCall::DecodeOnce() {
  const TimePoint begin = context_.clock.Now();
  const absl::Status decoded =
      OrNoMemory([&] { return Decode(*handle_->model, context_.limits, decoded_); });
  // What the decoder refuses has its own text.
  if (!decoded.ok()) return ReasonOf(decoded).has_value() ? Explain(decoded) : decoded;
  if (decoded_.tiled_inputs > 0) series_->model->tiled_inputs.Add(decoded_.tiled_inputs);
  times_.decode_ns = SinceNs(begin);
  return absl::OkStatus();
}

absl::Status ScoreCall::Prepare() {
  times_.queue_ns = SinceNs(queued_);
  if (fetched_ == nullptr) RETURN_IF_ERROR(DecodeOnce());
  return StillWanted().ok() ? absl::OkStatus() : Explain(absl::CancelledError());
}

engine::RunOptions ScoreCall::RunOptionsOfCall() const {
  engine::RunOptions options;
  options.max_memory_bytes = context_.limits.max_memory_bytes;
  options.stop = &stop_;
  options.check_outputs = &check_outputs_;
  options.fetched = fetched_.get();
  return options;
}

void ScoreCall::RunTogether(Worker& worker, absl::Span<Job* const> jobs) {
  // This call, being one of them, may be gone before the others are.
  const ServingContext& context = context_;
  const std::shared_ptr<Lane> shared_lane = lane();
  const TimePoint begin = context.clock.Now();
  Calls calls;
  int64_t rows = 0;
  for (Job* job : jobs) {
    auto* call = static_cast<ScoreCall*>(job);  // Lanes hold nothing else.
    const absl::Status prepared = call->Prepare();
    if (!prepared.ok()) {
      call->Conclude(prepared, worker.index + 1);
      continue;
    }
    calls.push_back(call);
    rows += call->rows_;
  }
  if (calls.empty()) return;
  bool ran = calls.size() == jobs.size();
  if (calls.size() == 1 || !RunMerged(worker, calls)) {
    if (calls.size() > 1) {
      calls[0]->series_->model->users_run_alone.Add(static_cast<int64_t>(calls.size()));
    }
    for (ScoreCall* call : calls) ran &= call->RunAlone(worker);
  }
  // What was refused on the way says nothing about what ads cost.
  if (!ran) return;
  shared_lane->cost().Observe(static_cast<int64_t>(calls.size()), rows,
                              context.clock.Now() - begin);
}

bool ScoreCall::RunMerged(Worker& worker, const Calls& calls) {
  const engine::Model& model = *calls[0]->handle_->model;
  std::vector<MergedRequest::Part> parts;
  MergedRequest merged;
  const absl::Status joined = OrNoMemory([&] {
    for (const ScoreCall* call : calls) {
      parts.push_back({.inputs = call->decoded_.inputs,
                       .ads = call->decoded_.ads,
                       .fetched = call->fetched_.get()});
    }
    return merged.Join(model, parts);
  });
  if (!joined.ok()) return false;
  // The batch goes on as long as somebody waits for it.
  const std::function<bool()> stop = [&calls] {
    return std::all_of(calls.begin(), calls.end(),
                       [](const ScoreCall* call) { return !call->StillWanted().ok(); });
  };
  engine::RunOptions options = calls[0]->RunOptionsOfCall();
  options.stop = &stop;
  // Alone, each is told whether it is its reply that would be too large.
  const std::function<absl::Status(absl::Span<const engine::Tensor>)> check_outputs =
      [&calls](absl::Span<const engine::Tensor> outputs) -> absl::Status {
    for (const ScoreCall* call : calls) RETURN_IF_ERROR(call->CheckReplySize(outputs));
    return absl::OkStatus();
  };
  options.check_outputs = &check_outputs;
  options.ads_per_user = merged.ads_per_user();
  options.fetched = merged.fetched();
  StepProfile& profile = *calls[0]->series_->steps;
  engine::StepTimes steps;
  if (profile.Wants(calls[0]->arrival_)) options.steps = &steps;
  const absl::Status status = OrNoMemory(
      [&] { return model.Run(merged.inputs(), options, worker.workspace, worker.result); });
  if (absl::IsCancelled(status)) {
    for (ScoreCall* call : calls) call->Conclude(call->Explain(status), worker.index + 1);
    return true;
  }
  // One request's error must not become that of the others: alone, each gets its own.
  if (!status.ok()) return false;
  if (options.steps != nullptr) {
    const absl::Span<const int64_t> ads = merged.ads_per_user();
    profile.Add(steps, std::accumulate(ads.begin(), ads.end(), int64_t{0}));
  }
  calls[0]->CountRun(worker.result.stats);
  std::vector<engine::RunResult> results;
  const absl::Status cut =
      OrNoMemory([&] { return CutResults(model, merged, parts, worker.result, results); });
  if (!cut.ok()) {
    if (cut != NoMemory()) calls[0]->lane()->SetMerges(false);
    return false;
  }
  for (size_t i = 0; i < calls.size(); ++i) calls[i]->Reply(worker, results[i]);
  return true;
}

bool ScoreCall::RunAlone(Worker& worker) {
  engine::RunOptions options = RunOptionsOfCall();
  engine::StepTimes steps;
  if (series_->steps->Wants(arrival_)) options.steps = &steps;
  const absl::Status status = OrNoMemory([&] {
    return handle_->model->Run(decoded_.inputs, options, worker.workspace, worker.result);
  });
  if (!status.ok()) {
    Conclude(Explain(status), worker.index + 1);
    return false;
  }
  if (options.steps != nullptr) series_->steps->Add(steps, decoded_.ads);
  CountRun(worker.result.stats);
  Reply(worker, worker.result);
  return true;
}

bool ScoreCall::Begin(Worker& worker) {
  const TimePoint begin = context_.clock.Now();
  parallel_ = std::make_unique<Parallel>();
  Parallel& parallel = *parallel_;
  absl::Status status = Prepare();
  engine::RunOptions options = RunOptionsOfCall();
  const engine::Model& model = *handle_->model;
  parallel.timed = series_->steps->Wants(arrival_);
  if (parallel.timed) options.steps = &parallel.steps;
  if (status.ok()) {
    status = Explain(OrNoMemory([&] {
      return model.RunUserPart(decoded_.inputs, options, worker.workspace, parallel.user_part,
                               parallel.result);
    }));
  }
  const int64_t ads = parallel.user_part.ads();
  // The decoder may find more rows than the queue was told.
  const bool whole = status.ok() && (ads == 0 || ads > rows_);
  if (whole && ads > 0) {
    status = Explain(OrNoMemory([&] {
      return model.RunAds(parallel.user_part, options, 0, ads, worker.workspace,
                          parallel.result.outputs, parallel.result.stats);
    }));
  }
  if (!status.ok()) {
    Conclude(status, worker.index + 1);
    return false;
  }
  CountRun(parallel.result.stats);
  parallel.rows_begin = context_.clock.Now();
  parallel.begin_took = parallel.rows_begin - begin;
  if (!whole) return true;
  if (parallel.timed) series_->steps->Add(parallel.steps, decoded_.ads);
  lane()->cost().Observe(1, rows_, parallel.begin_took);
  Reply(worker, parallel.result);
  return false;
}

int64_t ScoreCall::held_bytes() const { return parallel_->user_part.bytes(); }

void ScoreCall::RunRows(Worker& worker, int64_t begin, int64_t end) {
  Parallel& parallel = *parallel_;
  // What it costs beyond its ads has no rows.
  end = std::min(end, parallel.user_part.ads());
  if (begin >= end || parallel.failed.load(std::memory_order_relaxed)) return;
  const TimePoint start = context_.clock.Now();
  engine::RunOptions options = RunOptionsOfCall();
  engine::RunStats stats;
  engine::StepTimes steps;
  if (parallel.timed) {
    steps.ns.resize(parallel.steps.ns.size());
    steps.runs.resize(steps.ns.size());
    options.steps = &steps;
  }
  const absl::Status status = OrNoMemory([&] {
    return handle_->model->RunAds(parallel.user_part, options, begin, end, worker.workspace,
                                  parallel.result.outputs, stats);
  });
  MutexLock lock(parallel.mu);
  parallel.rows_took += context_.clock.Now() - start;
  engine::AddAds(stats, parallel.rows_stats);
  for (size_t s = 0; s < steps.ns.size(); ++s) parallel.steps.ns[s] += steps.ns[s];
  if (status.ok()) return;
  if (parallel.status.ok()) parallel.status = status;
  parallel.failed.store(true, std::memory_order_relaxed);
}

void ScoreCall::End(Worker& worker) {
  Parallel& parallel = *parallel_;
  engine::RunStats& stats = parallel.result.stats;
  absl::Status status;
  {
    MutexLock lock(parallel.mu);
    status = parallel.status;
    // Several workers' time becomes wall time, by what each kind of work took of it.
    engine::RunStats& rows = parallel.rows_stats;
    const double sum = static_cast<double>(std::max<int64_t>(1, rows.embed_ns + rows.ad_ns));
    const double scale = static_cast<double>(SinceNs(parallel.rows_begin)) / sum;
    rows.embed_ns = static_cast<int64_t>(static_cast<double>(rows.embed_ns) * scale);
    rows.ad_ns = static_cast<int64_t>(static_cast<double>(rows.ad_ns) * scale);
    engine::AddAds(rows, stats);
    if (status.ok()) {
      lane()->cost().Observe(1, rows_, parallel.begin_took + parallel.rows_took);
      if (parallel.timed) series_->steps->Add(parallel.steps, decoded_.ads);
    }
  }
  if (!status.ok()) return Conclude(Explain(status), worker.index + 1);
  Reply(worker, parallel.result);
}

void ScoreCall::Reply(Worker& worker, const engine::RunResult& result) {
  Conclude(EncodeReply(worker, result), worker.index + 1);
}

absl::Status ScoreCall::EncodeReply(Worker& worker, const engine::RunResult& result) {
  const TimePoint begin = context_.clock.Now();
  if (!StillWanted(begin).ok()) return Explain(absl::CancelledError());
  times_.embed_ns = result.stats.embed_ns;
  times_.user_ns = result.stats.user_ns;
  times_.dense_ns = result.stats.ad_ns;
  RETURN_IF_ERROR(
      Explain(OrNoMemory([&] { return Encode(decoded_, handle_->model->info(), result); })));
  const TimePoint end = context_.clock.Now();
  times_.encode_ns = Ns(end - begin);
  times_.total_ns = Ns(end - arrival_);
  RETURN_IF_ERROR(
      Explain(OrNoMemory([&] { Complete(handle_->model->info(), decoded_.ads, times_); })));
  Observe(worker, result);
  return absl::OkStatus();
}

absl::Status ScoreCall::CheckReplySize(absl::Span<const engine::Tensor> outputs) const {
  const int64_t bytes = ReplyBytes(decoded_, handle_->model->info(), outputs);
  if (bytes <= context_.limits.max_message_bytes) return absl::OkStatus();
  return ResourceExhausted("the reply would have ", bytes, " bytes of outputs, want at most ",
                           context_.limits.max_message_bytes, " (limits.max_message_bytes)");
}

void ScoreCall::CountRun(const engine::RunStats& stats) {
  ModelSeries& model = *series_->model;
  series_->calls->runs.Add();
  if (stats.unproved) model.unproved_runs.Add();
  if (stats.wants_plan) context_.models.PlansWanted();
}

void ScoreCall::AddToTables(const std::vector<int64_t>& counts, Counter TableSeries::*counter) {
  for (size_t i = 0; i < counts.size() && i < series_->tables.size(); ++i) {
    if (counts[i] > 0) (*series_->tables[i].*counter).Add(counts[i]);
  }
}

void ScoreCall::LogMissingIds(const std::vector<int64_t>& counts) {
  int64_t left_out = 0;
  if (std::all_of(counts.begin(), counts.end(), [](int64_t count) { return count == 0; }) ||
      !context_.missing_ids->Take(context_.clock.Now(), left_out)) {
    return;
  }
  constexpr size_t kMost = 10;
  std::vector<std::vector<int64_t>> ids(counts.size());  // Per table.
  handle_->model->ForEachMissingId(decoded_.inputs, fetched_.get(), [&](size_t table, int64_t id) {
    if (ids[table].size() < kMost) ids[table].push_back(id);
  });
  for (size_t t = 0; t < ids.size(); ++t) {
    if (ids[t].empty()) continue;
    context_.logger.Info("missing ids", {{"model", handle_->name},
                                         {"version", handle_->version},
                                         {"table", handle_->model->info().tables[t].name},
                                         {"missing", counts[t]},
                                         {"ids", absl::StrJoin(ids[t], " ")}});
  }
}

void ScoreCall::Observe(Worker& worker, const engine::RunResult& result) {
  const int shard = worker.index + 1;
  ModelSeries& model = *series_->model;
  const auto stage = [&](Stage s, int64_t ns) {
    model.stages[static_cast<size_t>(s)].Observe(shard, ns);
  };
  stage(Stage::kDecode, times_.decode_ns);
  if (fetched_ != nullptr) stage(Stage::kFetch, times_.fetch_ns);
  stage(Stage::kQueue, times_.queue_ns);
  stage(Stage::kUser, times_.user_ns);
  stage(Stage::kEmbed, times_.embed_ns);
  stage(Stage::kDense, times_.dense_ns);
  stage(Stage::kEncode, times_.encode_ns);
  CallSeries& calls = *series_->calls;
  calls.queue.Observe(shard, times_.queue_ns);
  calls.input.Observe(shard, times_.decode_ns);
  calls.infer.Observe(shard, times_.user_ns + times_.embed_ns + times_.dense_ns);
  calls.output.Observe(shard, times_.encode_ns);
  const int64_t now_ms = absl::ToUnixMillis(absl::Now());
  if (calls.last_ms.load(std::memory_order_relaxed) != now_ms) calls.last_ms.store(now_ms);
  model.candidates.Add(decoded_.ads);
  model.candidates_per_request.Observe(shard, decoded_.ads);
  if (const int64_t n = CountNonFinite(result, decoded_); n > 0) {
    model.nonfinite_scores.Add(n);
  }
  AddToTables(result.stats.looked_up_ids, &TableSeries::looked_up);
  AddToTables(result.stats.missing_ids, &TableSeries::missing);
  if (context_.missing_ids == nullptr) return;
  // What there is no memory for is not logged.
  OrNoMemory([&] { LogMissingIds(result.stats.missing_ids); }).IgnoreError();
}

void ScoreCall::Report(const absl::Status& status, int64_t took_ns) {
  if (status.ok() && terms_.trace.sampled) {
    series_->calls->duration.Keep(took_ns, terms_.trace.trace_id);
  }
  const TimePoint now = context_.clock.Now();
  const bool ours = IsOurFault(status.code());
  // Whoever numbers requests will look for those that had no answer.
  const bool looked_for = !status.ok() && !request_id().empty();
  const bool line = !ours && context_.call_log != nullptr && context_.call_log->Wants(looked_for);
  const bool traced = context_.tracer != nullptr && terms_.trace.sampled;
  const bool slow = context_.slow_calls != nullptr && context_.slow_calls->Among(took_ns, now);
  if (!ours && !line && !traced && !slow) return;
  CallSummary call{
      .request_id = request_id().substr(0, kMaxRequestIdBytes),  // Not looked at yet, maybe.
      .peer = peer(),
      .model = handle_ == nullptr ? "" : handle_->name,
      .version = handle_ == nullptr ? 0 : handle_->version,
      .ads = decoded_.ads,
      .times = times_,
      .ended_at = std::chrono::system_clock::now(),
      .status = Clip(status, kMaxKeptErrorBytes),
      .trace = terms_.trace};
  call.times.total_ns = took_ns;
  for (const engine::NamedTensor& input : decoded_.inputs) call.values += input.tensor.elements();
  if (ours) LogFailure(call, context_.logger);
  if (line) LogCall(call, *context_.call_log);
  if (traced) context_.tracer->Add(SpansOf(call));
  if (slow) context_.slow_calls->Add(std::move(call), now);
}

void ScoreCall::Conclude(const absl::Status& status, int shard) {
  const int64_t took_ns = SinceNs(arrival_);
  if (series_ != nullptr) {
    series_->calls->codes.Add(status.code());
    if (status.ok()) {
      series_->calls->duration.Observe(shard, took_ns);
    } else {
      series_->calls->failed_ns.Add(took_ns);
    }
  } else {
    context_.metrics.CountWithoutModel(status.code());
  }
  context_.metrics.AddInFlight(-1);
  if (booked_rows_ > 0) context_.client_quota->Release(terms_.client, booked_rows_);
  OrNoMemory([&] { Report(status, took_ns); }).IgnoreError();
  // The model is given back before the caller can see the answer, so that a reload is not held up
  // by slow readers.
  parallel_.reset();
  handle_.reset();
  Finish(status);
}

}  // namespace ulfd::server

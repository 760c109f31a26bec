// Completeness, quarantine, memory, load, checks, and whether the files stood still meanwhile.
// SPDX-License-Identifier: Apache-2.0
#include "server/models/version_loader.h"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "engine/runtime/load_reason.h"
#include "engine/tensor/onednn.h"
#include "server/models/memory_budget.h"
#include "server/models/model_lane.h"
#include "server/models/warm_up.h"
#include "server/system/pacer.h"

namespace ulfd::server {
namespace {

using engine::LoadReason;
using std::chrono::steady_clock;
using std::chrono::system_clock;

// Of a CPU, for the runs before publication: most of what a load of a small model computes.
constexpr double kShareBesideCalls = 0.2;

// Same code and reason, with the model's name in front.
absl::Status Named(const LoadJob& job, const absl::Status& status, LoadReason reason) {
  absl::Status named(status.code(), absl::StrCat("model \"", job.name, "\" v", job.version, ": ",
                                                 status.message()));
  return engine::WithLoadReason(std::move(named), reason);
}

LoadOutcome RefusedFor(const absl::Status& error) {
  LoadOutcome outcome;
  outcome.error = Clip(error, kMaxLoadErrorBytes);
  return outcome;
}

}  // namespace

absl::StatusOr<std::unique_ptr<const engine::Model>> VersionLoader::LoadModel(
    const LoadJob& job, bool gives_way) const {
  const engine::LoadOptions load{.directory = job.directory,
                                 .name = job.name,
                                 .version = job.version,
                                 .layer_types = options_.layer_types};
  if (options_.load) return options_.load(load);
  Pacer pacer(gives_way ? kShareBesideCalls : 1);
  const std::function<bool()> stop = [&pacer] {
    pacer.Pace();
    return !LoadScope::Check().ok();
  };
  engine::RunOptions run;
  run.max_memory_bytes = options_.max_request_memory_bytes;
  run.stop = &stop;
  std::vector<std::string> notices;
  absl::StatusOr<std::unique_ptr<const engine::Model>> model = LoadAndWarmUp(load, run, notices);
  if (model.ok() && options_.check) {
    const absl::Status checked = options_.check(**model, job.directory, run, notices);
    if (!checked.ok()) model = Named(job, checked, LoadReason::kWarmup);
  }
  if (model.ok()) MakeFirstPlans(job, **model, run);
  ClipNotices(notices);
  for (const std::string& notice : notices) observer_.OnNotice(job.name, job.version, notice);
  return model;
}

int64_t VersionLoader::MemoryLeft(int64_t staged_bytes) const {
  return std::max<int64_t>(options_.memory_budget_bytes - reaper_.held_bytes() - staged_bytes, 0);
}

int64_t VersionLoader::Report(const std::string& name, int64_t version,
                              const std::vector<engine::ShapePlanInfo>& plans) const {
  int64_t bytes = 0;
  for (const engine::ShapePlanInfo& plan : plans) {
    if (plan.state == engine::ShapePlanInfo::State::kServing) bytes += plan.bytes;
    observer_.OnShapePlan(name, version, plan);
  }
  return bytes;
}

void VersionLoader::MakeFirstPlans(const LoadJob& job, const engine::Model& model,
                                   const engine::RunOptions& run) const {
  engine::Workspace workspace;
  engine::RunResult result;
  if (job.before != nullptr && job.before->model != nullptr) {
    model.WantPlansOf(*job.before->model, run, workspace, result);
  }
  const int64_t left = MemoryLeft(job.staged_bytes) - model.memory_bytes();
  Report(job.name, job.version, model.MakePlans(run, left));
}

int64_t VersionLoader::MakePlans(const ServedModel& served) const {
  engine::UseOneThread();
  const LoadScope scope({.owner = served.name,
                         .max_memory_bytes = MaxMemory(MemoryLeft(0)),
                         .deadline = steady_clock::now() + options_.load_bounds.max_time,
                         .cancelled = &cancelled_});
  Pacer pacer(kShareBesideCalls);
  const std::function<bool()> stop = [&pacer] {
    pacer.Pace();
    return !LoadScope::Check().ok();
  };
  engine::RunOptions run;
  run.max_memory_bytes = options_.max_request_memory_bytes;
  run.stop = &stop;
  return Report(served.name, served.version, served.model->MakePlans(run, MemoryLeft(0)));
}

absl::StatusOr<std::unique_ptr<ServedModel>> VersionLoader::LoadChecked(
    const LoadJob& job, bool gives_way, const engine::DirectoryRules& rules) const {
  auto served = std::make_unique<ServedModel>();
  // Where the sizes cannot be told, the load itself says why.
  const auto estimate = EstimateMemory(job.directory, rules, job.bytes_per_file_byte);
  const int64_t held = reaper_.held_bytes() + job.staged_bytes,
                budget = options_.memory_budget_bytes;
  if (estimate.ok()) {
    served->file_bytes = estimate->file_bytes;
    const absl::Status fits = CheckMemory(estimate->bytes, /*about=*/true, held, budget);
    if (!fits.ok()) return Named(job, fits, LoadReason::kMemory);
  }
  ASSIGN_OR_RETURN(served->model, LoadModel(job, gives_way));
  if (served->model != nullptr) {
    const int64_t needed = served->model->memory_bytes();
    const absl::Status fits = CheckMemory(needed, /*about=*/false, held, budget);
    if (!fits.ok()) return Named(job, fits, LoadReason::kMemory);
  }
  if (served->model == nullptr) {
    served->lane = std::make_shared<Lane>(job.name, job.limits);
  } else {
    served->lane = MakeLane(*served->model, job.name, job.limits,
                            job.cost.has_value() ? *job.cost : MeasureCost(*served->model));
  }
  served->name = job.name;
  served->version = job.version;
  return served;
}

std::optional<LoadOutcome> VersionLoader::KnownBad(const LoadJob& job,
                                                   const engine::DirectoryRules& rules) const {
  if (job.quarantine.empty()) return std::nullopt;
  const absl::StatusOr<std::string> hash = HashVersionDirectory(job.directory, rules);
  if (!hash.ok()) return std::nullopt;  // Whatever it is, the load finds it as well.
  const QuarantinedContent* bad = job.quarantine.Find(*hash);
  if (bad == nullptr) return std::nullopt;
  LoadOutcome outcome = RefusedFor(engine::WithLoadReason(
      absl::Status(
          bad->error.code(),
          absl::StrCat("model \"", job.name, "\" v", job.version,
                       ": in quarantine, the same content was refused as v", bad->version, " at ",
                       absl::FormatTime(absl::FromChrono(bad->since)), ": ", bad->error.message())),
      engine::LoadReasonOf(bad->error)));
  outcome.known_bad = true;
  outcome.quarantined = *bad;
  return outcome;
}

int64_t VersionLoader::MaxMemory(int64_t left) const {
  constexpr int64_t kLeastBuffers = int64_t{64} << 20;
  const int64_t chosen = options_.load_bounds.max_memory_bytes;
  return chosen > 0 ? chosen : left + std::max(options_.memory_budget_bytes / 8, kLeastBuffers);
}

LoadLimits VersionLoader::LimitsOf(const LoadJob& job, const engine::DirectoryRules& rules) const {
  return {.owner = job.name,
          .roots = rules.roots,
          .max_memory_bytes = MaxMemory(MemoryLeft(job.staged_bytes)),
          .deadline = steady_clock::now() + options_.load_bounds.max_time,
          .cancelled = &cancelled_};
}

absl::Status VersionLoader::LimitReached(const LoadJob& job) const {
  const absl::Status why = LoadScope::Check();
  if (absl::IsFailedPrecondition(why)) return Named(job, why, LoadReason::kTime);
  if (!absl::IsResourceExhausted(why)) return why.ok() ? why : Named(job, why, LoadReason::kIo);
  // Where other models leave too little, there may be enough later; otherwise there never is.
  const bool always = options_.load_bounds.max_memory_bytes > 0 ||
                      (reaper_.held_bytes() == 0 && job.staged_bytes == 0);
  return Named(job, always ? absl::FailedPreconditionError(why.message()) : why,
               LoadReason::kMemory);
}

std::optional<LoadOutcome> VersionLoader::EndWithoutLoad(
    const LoadJob& job, const engine::DirectoryRules& rules) const {
  const absl::StatusOr<engine::DirectoryState> state =
      engine::InspectDirectory(job.directory, rules);
  // Changed since the look that made the job: the next look decides.
  if (absl::IsNotFound(state.status()) || (state.ok() && state->fingerprint != job.fingerprint)) {
    return LoadOutcome{.kind = LoadOutcome::Kind::kMoved, .state = state};
  }
  if (!state.ok()) return RefusedFor(state.status());
  if (!state->fault.ok()) return RefusedFor(Named(job, state->fault, LoadReason::kContent));
  if (!state->complete) {
    return RefusedFor(
        Named(job,
              absl::FailedPreconditionError(absl::StrCat(
                  "not complete, and no ", engine::kSuccessFile, ": ", state->missing)),
              LoadReason::kIncomplete));
  }
  return KnownBad(job, rules);
}

LoadOutcome VersionLoader::Load(const LoadJob& job, bool gives_way) const {
  const steady_clock::time_point start = steady_clock::now();
  const engine::DirectoryRules rules = rules_.Of(job.directory);
  const LoadLimits limits = LimitsOf(job, rules);
  std::optional<LoadOutcome> ended;
  absl::StatusOr<std::unique_ptr<ServedModel>> served = nullptr;
  {
    const LoadScope scope(limits);
    const absl::Status memory = WithinMemory([&] {
      ended = EndWithoutLoad(job, rules);
      if (!ended.has_value()) served = LoadChecked(job, gives_way, rules);
      return absl::OkStatus();
    });
    const LoadScope::WithoutRefusals for_the_messages;
    if (!memory.ok()) served = Named(job, memory, LoadReason::kMemory);
    // A step that had to end says less than why it had to.
    if (ended.has_value() || !served.ok()) {
      if (const absl::Status why = LimitReached(job); !why.ok()) {
        served = why;
        ended.reset();
      }
    }
  }
  if (ended.has_value()) return *std::move(ended);
  LoadOutcome outcome;
  // Known before the last look at the files, so that it is the hash of what was tried.
  absl::StatusOr<std::string> hash = absl::NotFoundError("");
  if (engine::IsContentError(served.status())) {
    const LoadScope scope(limits);
    hash = WithinMemory([&] { return HashVersionDirectory(job.directory, rules); });
  }
  outcome.state = engine::FingerprintDirectory(job.directory, rules);
  if (!outcome.state.ok() && !absl::IsNotFound(outcome.state.status())) {
    return RefusedFor(outcome.state.status());
  }
  if (!outcome.state.ok() || outcome.state->fingerprint != job.fingerprint) {
    outcome.kind = LoadOutcome::Kind::kChanged;
    outcome.error = Named(job,
                          absl::AbortedError("the files changed while they were loaded; they are "
                                             "loaded again when they have settled"),
                          LoadReason::kChanged);
    return outcome;
  }
  if (!served.ok()) {
    outcome = RefusedFor(served.status());
    if (hash.ok()) {
      outcome.quarantined = {*std::move(hash), job.version, outcome.error, system_clock::now()};
    }
    return outcome;
  }
  outcome.kind = LoadOutcome::Kind::kLoaded;
  outcome.served = *std::move(served);
  outcome.load_time = steady_clock::now() - start;
  return outcome;
}

}  // namespace ulfd::server

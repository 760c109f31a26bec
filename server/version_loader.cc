// Completeness, quarantine, memory, load, checks, and whether the files stood still meanwhile.
// SPDX-License-Identifier: Apache-2.0
#include "server/version_loader.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "engine/runtime/load_reason.h"
#include "engine/status_macros.h"
#include "server/memory_budget.h"
#include "server/model_lane.h"
#include "server/model_loader.h"
#include "server/pacer.h"

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
  outcome.error = error;
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
  engine::RunOptions run;
  run.stop = &pacer.stop();
  std::vector<std::string> notices;
  absl::StatusOr<std::unique_ptr<const engine::Model>> model = LoadAndWarmUp(load, run, notices);
  if (model.ok() && options_.check) {
    const absl::Status checked = options_.check(**model, job.directory, run, notices);
    if (!checked.ok()) model = Named(job, checked, LoadReason::kWarmup);
  }
  for (const std::string& notice : notices) observer_.OnNotice(job.name, job.version, notice);
  return model;
}

absl::StatusOr<std::unique_ptr<ServedModel>> VersionLoader::LoadChecked(const LoadJob& job,
                                                                        bool gives_way) const {
  auto served = std::make_unique<ServedModel>();
  // Where the sizes cannot be told, the load itself says why.
  const auto estimate = EstimateMemory(job.directory, job.bytes_per_file_byte);
  const int64_t held = reaper_.held_bytes() + job.staged_bytes,
                budget = options_.memory_budget_bytes;
  if (estimate.ok()) {
    served->file_bytes = estimate->file_bytes;
    const absl::Status fits = CheckMemory(estimate->bytes, /*about=*/true, held, budget);
    if (!fits.ok()) return Named(job, fits, LoadReason::kMemory);
  }
  ASSIGN_OR_RETURN(served->model, LoadModel(job, gives_way));
  if (served->model != nullptr) {
    const int64_t needed = served->model->info().memory_bytes;
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

std::optional<LoadOutcome> VersionLoader::KnownBad(const LoadJob& job) const {
  if (job.quarantine.empty()) return std::nullopt;
  const absl::StatusOr<std::string> hash = HashVersionDirectory(job.directory);
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

LoadOutcome VersionLoader::Load(const LoadJob& job, bool gives_way) const {
  const steady_clock::time_point start = steady_clock::now();
  LoadOutcome outcome;
  outcome.state = engine::InspectDirectory(job.directory);
  // Changed since the look that made the job: the next look decides.
  if (!outcome.state.ok() || outcome.state->fingerprint != job.fingerprint) {
    if (outcome.state.ok() || absl::IsNotFound(outcome.state.status())) {
      outcome.kind = LoadOutcome::Kind::kMoved;
      return outcome;
    }
    return RefusedFor(outcome.state.status());
  }
  if (!outcome.state->complete) {
    return RefusedFor(
        Named(job,
              absl::FailedPreconditionError(absl::StrCat(
                  "not complete, and no ", engine::kSuccessFile, ": ", outcome.state->missing)),
              LoadReason::kIncomplete));
  }
  if (std::optional<LoadOutcome> bad = KnownBad(job); bad.has_value()) return *std::move(bad);

  absl::StatusOr<std::unique_ptr<ServedModel>> served = LoadChecked(job, gives_way);
  // Known before the last look at the files, so that it is the hash of what was tried.
  absl::StatusOr<std::string> hash = absl::NotFoundError("");
  if (engine::IsContentError(served.status())) hash = HashVersionDirectory(job.directory);
  outcome.state = engine::FingerprintDirectory(job.directory);
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
    outcome.error = served.status();
    if (hash.ok()) {
      outcome.quarantined = {*std::move(hash), job.version, served.status(), system_clock::now()};
    }
    return outcome;
  }
  outcome.kind = LoadOutcome::Kind::kLoaded;
  outcome.served = *std::move(served);
  outcome.load_time = steady_clock::now() - start;
  return outcome;
}

}  // namespace ulfd::server

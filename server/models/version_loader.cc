// Completeness, quarantine, memory, load, checks, and whether the files stood still meanwhile.
// SPDX-License-Identifier: Apache-2.0
#include "server/models/version_loader.h"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "engine/directory/delta_directory.h"
#include "engine/directory/load_reason.h"
#include "engine/directory/onnx_directory.h"
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
constexpr std::chrono::seconds kMostReadAhead(30);

// Same code and reason, with the model's name in front.
absl::Status Named(const LoadJob& job, const absl::Status& status, LoadReason reason) {
  absl::Status named(status.code(), absl::StrCat("model \"", job.name, "\" v", job.version, ": ",
                                                 status.message()));
  return engine::WithLoadReason(std::move(named), reason);
}

// How runs before publication are done, and what they leave to say.
class Warming {
 public:
  Warming(const ModelManagerOptions& options, bool gives_way)
      : pacer_(gives_way ? kShareBesideCalls : 1), stop_([this] {
          pacer_.Pace();
          return !LoadScope::Check().ok();
        }) {
    run_.max_memory_bytes = options.max_request_memory_bytes;
    run_.stop = &stop_;
  }
  Warming(const Warming&) = delete;
  Warming& operator=(const Warming&) = delete;
  const engine::RunOptions& run() const { return run_; }
  std::vector<std::string>& notices() { return notices_; }

 private:
  Pacer pacer_;
  const std::function<bool()> stop_;
  engine::RunOptions run_;
  std::vector<std::string> notices_;
};

LoadOutcome RefusedFor(const absl::Status& error) {
  LoadOutcome outcome;
  outcome.error = Clip(error, kMaxKeptErrorBytes);
  return outcome;
}

// A feature that is none of the user's tells no users apart: each request is then drawn by itself.
void CheckCanary(const std::string& feature, const engine::ModelInfo& info,
                 std::vector<std::string>& notices) {
  const auto is_users = [&](const auto& input) {
    return input.name == feature &&
           (input.level == engine::Level::kUser || input.level == engine::Level::kUnknown);
  };
  if (feature.empty() || absl::c_any_of(info.features, is_users) ||
      absl::c_any_of(info.inputs, is_users)) {
    return;
  }
  notices.push_back(absl::StrCat("canary.sticky_feature: \"", feature,
                                 "\" is no feature of the user, so one user gets both versions"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<const engine::Model>> VersionLoader::LoadModel(
    const LoadJob& job, const std::string& directory, bool gives_way) const {
  const engine::LoadOptions load{.directory = directory,
                                 .name = job.name,
                                 .version = job.version,
                                 .layer_types = options_.layer_types,
                                 .redis = options_.redis};
  if (options_.load) return options_.load(load);
  Warming warming(options_, gives_way);
  absl::StatusOr<std::unique_ptr<const engine::Model>> model =
      LoadAndWarmUp(load, warming.run(), warming.notices());
  if (model.ok() && options_.check) {
    const absl::Status checked =
        options_.check(**model, job.directory, warming.run(), warming.notices());
    if (!checked.ok()) model = Named(job, checked, LoadReason::kWarmup);
  }
  if (model.ok()) {
    CheckCanary(job.canary_feature, (*model)->info(), warming.notices());
    const engine::Model* before = job.before == nullptr ? nullptr : job.before->model.get();
    hot_ids_.ReadAhead(job.name, **model, before, kMostReadAhead, warming.notices());
    MakeFirstPlans(job, before, **model, warming.run());
  }
  Report(job, warming.notices());
  return model;
}

void VersionLoader::Report(const LoadJob& job, std::vector<std::string>& notices) const {
  ClipNotices(notices);
  for (const std::string& notice : notices) observer_.OnNotice(job.name, job.version, notice);
}

int64_t VersionLoader::MemoryLeft(int64_t staged_bytes) const {
  return std::max<int64_t>(options_.memory_budget_bytes - reaper_.held_bytes() - staged_bytes, 0);
}

void VersionLoader::ReportPlans(const std::string& name, int64_t version,
                                const std::vector<engine::ShapePlanInfo>& plans) const {
  for (const engine::ShapePlanInfo& plan : plans) {
    observer_.OnShapePlan(name, version, plan);
  }
}

void VersionLoader::MakeFirstPlans(const LoadJob& job, const engine::Model* before,
                                   const engine::Model& model,
                                   const engine::RunOptions& run) const {
  engine::Workspace workspace;
  engine::RunResult result;
  if (before != nullptr) model.WantPlansOf(*before, run, workspace, result);
  const int64_t left = MemoryLeft(job.staged_bytes) - model.memory_bytes();
  ReportPlans(job.name, job.version, model.MakePlans(run, left));
}

void VersionLoader::MakePlans(const ServedModel& served) const {
  engine::UseOneThread();
  const Warming warming(options_, /*gives_way=*/true);
  std::vector<engine::ShapePlanInfo> plans;
  {
    const LoadScope scope(Limits(served.name, /*staged_bytes=*/0));
    plans = served.model->MakePlans(warming.run(), MemoryLeft(0));
  }
  ReportPlans(served.name, served.version, plans);
}

absl::Status VersionLoader::CheckFits(const LoadJob& job, const engine::Model& model) const {
  const absl::Status fits =
      CheckMemory(reaper_.BytesBeyondHeld(model), /*about=*/false,
                  reaper_.held_bytes() + job.staged_bytes, options_.memory_budget_bytes);
  return fits.ok() ? fits : Named(job, fits, LoadReason::kMemory);
}

bool VersionLoader::Converts(const LoadJob& job) const {
  return options_.convert && engine::IsOnnxDirectory(job.directory);
}

absl::StatusOr<std::unique_ptr<const engine::Model>> VersionLoader::LoadBase(
    const LoadJob& job, bool gives_way, const engine::DirectoryRules& rules,
    ServedModel& served) const {
  std::string directory = job.directory;
  if (Converts(job)) {
    absl::StatusOr<std::string> converted = options_.convert(directory, rules);
    if (!converted.ok()) {
      return Named(job, converted.status(), engine::LoadReasonOf(converted.status()));
    }
    directory = *std::move(converted);
  }
  // Where the sizes cannot be told, the load itself says why.
  const auto estimate = EstimateMemory(directory, rules, job.bytes_per_file_byte);
  if (estimate.ok()) {
    served.file_bytes = estimate->file_bytes;
    // Whether tables can be shared shows once they are read; the limits see to it that a load which
    // shares none ends in time.
    const int64_t least = std::max<int64_t>(estimate->bytes - job.shared_bytes, 0);
    const absl::Status fits =
        CheckMemory(least, /*about=*/true, reaper_.held_bytes() + job.staged_bytes,
                    options_.memory_budget_bytes);
    if (!fits.ok()) return Named(job, fits, LoadReason::kMemory);
  }
  ASSIGN_OR_RETURN(std::unique_ptr<const engine::Model> model,
                   LoadModel(job, directory, gives_way));
  RETURN_IF_ERROR(CheckFits(job, *model));
  return model;
}

void VersionLoader::ApplyDeltas(const LoadJob& job, bool gives_way,
                                absl::Span<const engine::EpochMark> epochs, ServedModel& served,
                                LoadOutcome& outcome) const {
  engine::UseOneThread();
  const engine::Model& base = served.model == nullptr ? *job.base->model : *served.model;
  std::vector<engine::DeltaSource> deltas;
  for (const engine::EpochMark& epoch : epochs) {
    deltas.push_back({epoch.epoch, engine::EpochDirectory(job.directory, epoch.epoch)});
  }
  engine::DeltasResult result = base.WithDeltas(deltas);
  if (result.model != nullptr) {
    absl::Status usable = CheckFits(job, *result.model);
    if (usable.ok() && result.model->info().weights_file != base.info().weights_file) {
      Warming warming(options_, gives_way);
      usable = WarmUp(*result.model, warming.run(), warming.notices());
      Report(job, warming.notices());
    }
    if (!usable.ok() && epochs.size() > 1) {  // Find out whose fault it is.
      result.model = nullptr;
      const size_t half = epochs.size() / 2;
      ApplyDeltas(job, gives_way, epochs.subspan(0, half), served, outcome);
      return ApplyDeltas(job, gives_way, epochs.subspan(half), served, outcome);
    }
    if (!usable.ok()) {
      result.model = nullptr;
      result.statuses = {usable};
    }
  }
  for (size_t i = 0; i < result.statuses.size(); ++i) {
    if (result.statuses[i].ok()) {
      served.epochs.push_back(epochs[i]);
    } else {
      outcome.refused_epochs.emplace_back(epochs[i], result.statuses[i]);
    }
  }
  if (result.model == nullptr) return;
  MakeFirstPlans(job, &base, *result.model, Warming(options_, gives_way).run());
  served.model = std::move(result.model);
}

absl::StatusOr<std::unique_ptr<ServedModel>> VersionLoader::LoadChecked(
    const LoadJob& job, bool gives_way, const engine::DirectoryRules& rules,
    LoadOutcome& outcome) const {
  auto served = std::make_unique<ServedModel>();
  if (job.base == nullptr) {
    ASSIGN_OR_RETURN(served->model, LoadBase(job, gives_way, rules, *served));
    outcome.content = served->model->info().content_hash;
  } else {
    served->file_bytes = job.base->file_bytes;
    served->epochs = job.base->epochs;
  }
  if (!job.epochs.empty()) ApplyDeltas(job, gives_way, job.epochs, *served, outcome);
  if (served->model == nullptr) return outcome.refused_epochs.front().second;
  if (job.want_epoch.has_value() && served->model->info().epoch != *job.want_epoch) {
    if (!outcome.refused_epochs.empty()) return outcome.refused_epochs.front().second;
    return Named(job,
                 FailedPrecondition("epoch ", *job.want_epoch, " cannot be reached from ",
                                    served->model->info().epoch),
                 LoadReason::kContent);
  }
  served->lane = MakeLane(*served->model, job.name, job.limits,
                          job.cost.has_value() ? *job.cost : MeasureCost(*served->model));
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
  // What an operator rejected is good.
  const bool wanted = job.version < bad->version || (job.named && job.version > bad->version);
  if (bad->by_operator && wanted) return std::nullopt;
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

LoadLimits VersionLoader::Limits(const std::string& owner, int64_t staged_bytes) const {
  constexpr int64_t kLeastBuffers = int64_t{64} << 20;
  const int64_t chosen = options_.load_bounds.max_memory_bytes;
  return {.owner = owner,
          .max_memory_bytes = chosen > 0
                                  ? chosen
                                  : MemoryLeft(staged_bytes) +
                                        std::max(options_.memory_budget_bytes / 8, kLeastBuffers),
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
  return Named(job, always ? FailedPrecondition(why.message()) : why, LoadReason::kMemory);
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
  if (!options_.convert && engine::IsOnnxDirectory(job.directory)) {
    return RefusedFor(
        Named(job,
              FailedPrecondition(
                  "model.onnx: is converted where the configuration has a converted_directory"),
              LoadReason::kIncomplete));
  }
  if (!state->complete && !Converts(job)) {
    return RefusedFor(Named(
        job,
        FailedPrecondition("not complete, and no ", engine::kSuccessFile, ": ", state->missing),
        LoadReason::kIncomplete));
  }
  return job.base == nullptr ? KnownBad(job, rules) : std::nullopt;
}

LoadOutcome VersionLoader::Load(const LoadJob& job, bool gives_way) const {
  const steady_clock::time_point start = steady_clock::now();
  const engine::DirectoryRules rules = rules_.Of(job.directory);
  LoadLimits limits = Limits(job.name, job.staged_bytes);
  limits.roots = rules.roots;
  std::optional<LoadOutcome> ended;
  LoadOutcome outcome;
  absl::StatusOr<std::unique_ptr<ServedModel>> served = nullptr;
  {
    const LoadScope scope(limits);
    const absl::Status memory = WithinMemory([&] {
      ended = EndWithoutLoad(job, rules);
      if (!ended.has_value()) served = LoadChecked(job, gives_way, rules, outcome);
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
  // Known before the last look at the files, so that it is the hash of what was tried.
  absl::StatusOr<std::string> hash = NotFound("");
  const bool of_base = job.base == nullptr;
  if (of_base && engine::IsContentError(served.status())) {
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
    outcome.error = Clip(served.status(), kMaxKeptErrorBytes);
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

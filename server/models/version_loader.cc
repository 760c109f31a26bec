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

// One load, from beginning to end.
class VersionLoader::Attempt {
 public:
  // Borrows both.
  Attempt(const VersionLoader& loader, const LoadJob& job, bool gives_way)
      : loader_(loader),
        options_(loader.options_),
        job_(job),
        gives_way_(gives_way),
        rules_(loader.rules_.Of(job.directory)) {}

  LoadOutcome Run() {
    const steady_clock::time_point start = steady_clock::now();
    LoadLimits limits = loader_.Limits(job_.name, job_.staged_bytes);
    limits.roots = rules_.roots;
    std::optional<LoadOutcome> ended;
    absl::StatusOr<std::unique_ptr<ServedModel>> served = nullptr;
    {
      const LoadScope scope(limits);
      const absl::Status memory = WithinMemory([&] {
        ended = EndWithoutLoad();
        if (!ended.has_value()) served = LoadChecked();
      });
      const LoadScope::WithoutRefusals for_the_messages;
      if (!memory.ok()) served = Named(memory, LoadReason::kMemory);
      // A step that had to end says less than why it had to.
      if (ended.has_value() || !served.ok()) {
        if (const absl::Status why = LimitReached(); !why.ok()) {
          served = why;
          ended.reset();
        }
      }
    }
    if (ended.has_value()) return *std::move(ended);
    // Known before the last look at the files, so that it is the hash of what was tried.
    absl::StatusOr<std::string> hash = NotFound("");
    const bool of_base = job_.base == nullptr;
    if (of_base && engine::IsContentError(served.status())) {
      const LoadScope scope(limits);
      hash = WithinMemory([&] { return HashVersionDirectory(job_.directory, rules_); });
    }
    outcome_.state = engine::FingerprintDirectory(job_.directory, rules_);
    if (!outcome_.state.ok() && !absl::IsNotFound(outcome_.state.status())) {
      return RefusedFor(outcome_.state.status());
    }
    if (!outcome_.state.ok() || outcome_.state->fingerprint != job_.fingerprint) {
      outcome_.kind = LoadOutcome::Kind::kChanged;
      outcome_.error =
          Named(absl::AbortedError("the files changed while they were loaded; they are "
                                   "loaded again when they have settled"),
                LoadReason::kChanged);
      return std::move(outcome_);
    }
    if (!served.ok()) {
      outcome_.error = Clip(served.status(), kMaxKeptErrorBytes);
      if (hash.ok()) {
        outcome_.quarantined = {*std::move(hash), job_.version, outcome_.error,
                                system_clock::now()};
      }
      return std::move(outcome_);
    }
    outcome_.kind = LoadOutcome::Kind::kLoaded;
    outcome_.served = *std::move(served);
    outcome_.load_time = steady_clock::now() - start;
    return std::move(outcome_);
  }

 private:
  // Same code and reason, with the model's name in front.
  absl::Status Named(const absl::Status& status, LoadReason reason) const {
    absl::Status named(status.code(), absl::StrCat("model \"", job_.name, "\" v", job_.version,
                                                   ": ", status.message()));
    return engine::WithLoadReason(std::move(named), reason);
  }

  // The outcome, where the files themselves tell it: they have moved on, or cannot be tried.
  std::optional<LoadOutcome> EndWithoutLoad() const {
    const absl::StatusOr<engine::DirectoryState> state =
        engine::InspectDirectory(job_.directory, rules_);
    // Changed since the look that made the job: the next look decides.
    if (absl::IsNotFound(state.status()) ||
        (state.ok() && state->fingerprint != job_.fingerprint)) {
      return LoadOutcome{.kind = LoadOutcome::Kind::kMoved, .state = state};
    }
    if (!state.ok()) return RefusedFor(state.status());
    if (!state->fault.ok()) return RefusedFor(Named(state->fault, LoadReason::kContent));
    if (!options_.convert && engine::IsOnnxDirectory(job_.directory)) {
      return RefusedFor(
          Named(FailedPrecondition(
                    "model.onnx: is converted where the configuration has a converted_directory"),
                LoadReason::kIncomplete));
    }
    if (!state->complete && !Converts()) {
      return RefusedFor(Named(
          FailedPrecondition("not complete, and no ", engine::kSuccessFile, ": ", state->missing),
          LoadReason::kIncomplete));
    }
    return job_.base == nullptr ? KnownBad() : std::nullopt;
  }

  // Content that is known to be bad, without trying it.
  std::optional<LoadOutcome> KnownBad() const {
    if (job_.quarantine.empty()) return std::nullopt;
    const absl::StatusOr<std::string> hash = HashVersionDirectory(job_.directory, rules_);
    if (!hash.ok()) return std::nullopt;  // Whatever it is, the load finds it as well.
    const QuarantinedContent* bad = job_.quarantine.Find(*hash);
    if (bad == nullptr) return std::nullopt;
    // What an operator rejected is good.
    const bool wanted = job_.version < bad->version || (job_.named && job_.version > bad->version);
    if (bad->by_operator && wanted) return std::nullopt;
    LoadOutcome outcome = RefusedFor(engine::WithLoadReason(
        absl::Status(
            bad->error.code(),
            absl::StrCat("model \"", job_.name, "\" v", job_.version,
                         ": in quarantine, the same content was refused as v", bad->version, " at ",
                         absl::FormatTime(absl::FromChrono(bad->since)), ": ",
                         bad->error.message())),
        engine::LoadReasonOf(bad->error)));
    outcome.known_bad = true;
    outcome.quarantined = *bad;
    return outcome;
  }

  absl::StatusOr<std::unique_ptr<ServedModel>> LoadChecked() {
    auto served = std::make_unique<ServedModel>();
    if (job_.base == nullptr) {
      ASSIGN_OR_RETURN(served->model, LoadBase(*served));
      outcome_.content = served->model->info().content_hash;
    } else {
      served->file_bytes = job_.base->file_bytes;
      served->epochs = job_.base->epochs;
    }
    if (!job_.epochs.empty()) ApplyDeltas(job_.epochs, *served);
    if (served->model == nullptr) return outcome_.refused_epochs.front().second;
    if (job_.want_epoch.has_value() && served->model->info().epoch != *job_.want_epoch) {
      if (!outcome_.refused_epochs.empty()) return outcome_.refused_epochs.front().second;
      return Named(FailedPrecondition("epoch ", *job_.want_epoch, " cannot be reached from ",
                                      served->model->info().epoch),
                   LoadReason::kContent);
    }
    served->lane = MakeLane(*served->model, job_.name, job_.limits,
                            job_.cost.has_value() ? *job_.cost : MeasureCost(*served->model));
    served->name = job_.name;
    served->version = job_.version;
    return served;
  }

  // The model of a job that loads everything, without deltas.
  absl::StatusOr<std::unique_ptr<const engine::Model>> LoadBase(ServedModel& served) const {
    std::string directory = job_.directory;
    if (Converts()) {
      absl::StatusOr<std::string> converted = options_.convert(directory, rules_);
      if (!converted.ok()) {
        return Named(converted.status(), engine::LoadReasonOf(converted.status()));
      }
      directory = *std::move(converted);
    }
    // Where the sizes cannot be told, the load itself says why.
    const auto estimate = EstimateMemory(directory, rules_, job_.bytes_per_file_byte);
    if (estimate.ok()) {
      served.file_bytes = estimate->file_bytes;
      // Whether tables can be shared shows once they are read; the limits see to it that a load
      // which shares none ends in time.
      const int64_t least = std::max<int64_t>(estimate->bytes - job_.shared_bytes, 0);
      const absl::Status fits =
          CheckMemory(least, /*about=*/true, loader_.reaper_.held_bytes() + job_.staged_bytes,
                      options_.memory_budget_bytes);
      if (!fits.ok()) return Named(fits, LoadReason::kMemory);
    }
    ASSIGN_OR_RETURN(std::unique_ptr<const engine::Model> model, LoadModel(directory));
    RETURN_IF_ERROR(CheckFits(*model));
    return model;
  }

  // `directory`: the job's, or what was converted of it.
  absl::StatusOr<std::unique_ptr<const engine::Model>> LoadModel(
      const std::string& directory) const {
    const engine::LoadOptions load{.directory = directory,
                                   .name = job_.name,
                                   .version = job_.version,
                                   .layer_types = options_.layer_types,
                                   .redis = options_.redis};
    if (options_.load) return options_.load(load);
    Warming warming(options_, gives_way_);
    absl::StatusOr<std::unique_ptr<const engine::Model>> model =
        LoadAndWarmUp(load, warming.run(), warming.notices());
    if (model.ok() && options_.check) {
      const absl::Status checked =
          options_.check(**model, job_.directory, warming.run(), warming.notices());
      if (!checked.ok()) model = Named(checked, LoadReason::kWarmup);
    }
    if (model.ok()) {
      CheckCanary(job_.canary_feature, (*model)->info(), warming.notices());
      const engine::Model* before = job_.before == nullptr ? nullptr : job_.before->model.get();
      loader_.hot_ids_.ReadAhead(job_.name, **model, before, kMostReadAhead, warming.notices());
      MakeFirstPlans(before, **model, warming.run());
    }
    Report(warming.notices());
    return model;
  }

  // Plans for the shapes that the model before (null: none) and recorded requests show.
  void MakeFirstPlans(const engine::Model* before, const engine::Model& model,
                      const engine::RunOptions& run) const {
    engine::Workspace workspace;
    engine::RunResult result;
    if (before != nullptr) model.WantPlansOf(*before, run, workspace, result);
    const int64_t left = loader_.MemoryLeft(job_.staged_bytes) - model.memory_bytes();
    loader_.ReportPlans(job_.name, job_.version, model.MakePlans(run, left));
  }

  // Puts these deltas of the job on top of `served.model` (null: of the job's base); what could not
  // be applied goes into the outcome.
  void ApplyDeltas(absl::Span<const engine::EpochMark> epochs, ServedModel& served) {
    engine::UseOneThread();
    const engine::Model& base = served.model == nullptr ? *job_.base->model : *served.model;
    std::vector<engine::DeltaSource> deltas;
    for (const engine::EpochMark& epoch : epochs) {
      deltas.push_back({epoch.epoch, engine::EpochDirectory(job_.directory, epoch.epoch)});
    }
    engine::DeltasResult result = base.WithDeltas(deltas);
    if (result.model != nullptr) {
      absl::Status usable = CheckFits(*result.model);
      if (usable.ok() && result.model->info().weights_file != base.info().weights_file) {
        Warming warming(options_, gives_way_);
        usable = WarmUp(*result.model, warming.run(), warming.notices());
        Report(warming.notices());
      }
      if (!usable.ok() && epochs.size() > 1) {  // Find out whose fault it is.
        result.model = nullptr;
        const size_t half = epochs.size() / 2;
        ApplyDeltas(epochs.subspan(0, half), served);
        return ApplyDeltas(epochs.subspan(half), served);
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
        outcome_.refused_epochs.emplace_back(epochs[i], result.statuses[i]);
      }
    }
    if (result.model == nullptr) return;
    MakeFirstPlans(&base, *result.model, Warming(options_, gives_way_).run());
    served.model = std::move(result.model);
  }

  absl::Status CheckFits(const engine::Model& model) const {
    const absl::Status fits =
        CheckMemory(loader_.reaper_.BytesBeyondHeld(model), /*about=*/false,
                    loader_.reaper_.held_bytes() + job_.staged_bytes, options_.memory_budget_bytes);
    return fits.ok() ? fits : Named(fits, LoadReason::kMemory);
  }

  // Whether the version is one that has to be converted first, and can be.
  bool Converts() const { return options_.convert && engine::IsOnnxDirectory(job_.directory); }

  // Why the load of this thread had to end, as an error of the version; OK: it had not.
  absl::Status LimitReached() const {
    const absl::Status why = LoadScope::Check();
    if (absl::IsFailedPrecondition(why)) return Named(why, LoadReason::kTime);
    if (!absl::IsResourceExhausted(why)) return why.ok() ? why : Named(why, LoadReason::kIo);
    // Where other models leave too little, there may be enough later; otherwise there never is.
    const bool always = options_.load_bounds.max_memory_bytes > 0 ||
                        (loader_.reaper_.held_bytes() == 0 && job_.staged_bytes == 0);
    return Named(always ? FailedPrecondition(why.message()) : why, LoadReason::kMemory);
  }

  void Report(std::vector<std::string>& notices) const {
    ClipNotices(notices);
    for (const std::string& notice : notices)
      loader_.observer_.OnNotice(job_.name, job_.version, notice);
  }

  const VersionLoader& loader_;
  const ModelManagerOptions& options_;
  const LoadJob& job_;
  const bool gives_way_;
  const engine::DirectoryRules rules_;
  LoadOutcome outcome_;
};

int64_t VersionLoader::MemoryLeft(int64_t staged_bytes) const {
  return std::max<int64_t>(options_.memory_budget_bytes - reaper_.held_bytes() - staged_bytes, 0);
}

void VersionLoader::ReportPlans(const std::string& name, int64_t version,
                                const std::vector<engine::ShapePlanInfo>& plans) const {
  for (const engine::ShapePlanInfo& plan : plans) {
    observer_.OnShapePlan(name, version, plan);
  }
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

LoadOutcome VersionLoader::Load(const LoadJob& job, bool gives_way) const {
  return Attempt(*this, job, gives_way).Run();
}

}  // namespace ulfd::server

// The model manager: what operators ask for.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/load_scope.h"
#include "base/status_macros.h"
#include "server/models/model_manager.h"

namespace ulfd::server {

using std::chrono::system_clock;

namespace {

// Changes that wait; one more is refused.
constexpr size_t kMaxChanges = 64;

}  // namespace

void ModelManager::Apply(std::function<absl::StatusOr<ModelChange>()> make,
                         std::function<void(ModelChangeResult)> done) {
  if (!started_) {
    ModelChangeResult result;
    {
      MutexLock step(step_mu_);
      result = RunChange(make());
    }
    return done(std::move(result));
  }
  absl::Status refused;
  {
    MutexLock lock(mu_);
    if (stopping_) {
      refused = Stopping();
    } else if (changes_.size() >= kMaxChanges) {
      refused = ResourceExhausted(changes_.size(), " changes wait already, limit ", kMaxChanges);
    } else {
      changes_.push_back({std::move(make), std::move(done)});
      work_.NotifyAll();
      return;
    }
  }
  done({.status = refused, .generation = generation()});
}

absl::Status ModelManager::CheckConfigure(ModelChange& change) const {
  ModelManagerOptions options = options_;
  options.models = std::move(change.models);
  options.default_policy = change.default_policy;
  RETURN_IF_ERROR(CompleteOptions(options));
  change.models = std::move(options.models);
  return absl::OkStatus();
}

absl::StatusOr<RepositoryScan> ModelManager::ScanFor(const ModelChange& change) const {
  // A configuration may move models, also into the repository.
  ModelPlaces places;
  std::optional<std::string> only;
  if (change.kind != ModelChange::Kind::kConfigure) {
    MutexLock lock(mu_);
    places = table_.Places();
    only = change.name;  // However many models there are, changes that wait take no longer.
  }
  for (const ModelConfig& model : change.models) {
    const ModelEntry as_configured(model, /*configured=*/true, {});
    places[model.name] = {model.base_path, as_configured.NamedVersions()};
  }
  const auto changed = places.find(change.name);
  if (change.version.has_value() && changed != places.end()) {
    changed->second.named.insert(*change.version);
  }
  return Scan(places, only);
}

void ModelManager::Remember(const RepositoryScan& scan, const StagedLoad& load) {
  MutexLock lock(mu_);
  const ModelEntry* entry = table_.Find(load.job.name);
  const std::string directory =
      entry == nullptr ? load.job.directory
                       : absl::StrCat(entry->config().base_path, "/", load.job.version);
  if (directory != load.job.directory) return;  // A base path that was not taken over.
  table_.Merge(scan.Only(load.job.name), options_.now(), system_clock::now());
  table_.Refused(load.job, load.outcome, options_.now());
  Republish();
}

bool ModelManager::LoadGoals(const RepositoryScan& scan, std::vector<StagedLoad>& loads,
                             ChangePlan& plan) {
  bool all = true;
  int64_t staged_bytes = 0;
  for (StagedLoad& load : loads) {
    load.job.staged_bytes = staged_bytes;
    load.outcome = loader_.Load(load.job, Ready());
    LoadOutcome& outcome = load.outcome;
    auto model = std::find_if(plan.models.begin(), plan.models.end(),
                              [&](const ModelOutcome& m) { return m.name == load.job.name; });
    VersionChange change{.version = load.job.version};
    if (outcome.kind != LoadOutcome::Kind::kLoaded) {
      all = false;
      if (outcome.kind == LoadOutcome::Kind::kMoved) {
        outcome.error =
            absl::AbortedError(absl::StrCat("model \"", load.job.name, "\" v", load.job.version,
                                            ": its files changed or went away meanwhile"));
      }
      change.outcome = VersionChange::Outcome::kFailed;
      change.error = outcome.error;
      if (model->error.ok()) model->error = outcome.error;
      Remember(scan, load);
      ReportFailure(load.job, outcome);
    } else {
      staged_bytes += outcome.served->model->memory_bytes();
    }
    model->versions.push_back(std::move(change));
  }
  return all;
}

void ModelManager::QuarantineRejected(const ChangePlan& plan) {
  for (const ChangePlan::Goal& rejected : plan.rejected) {
    LoadJob job;
    {
      MutexLock lock(mu_);
      if (table_.FindWatch(rejected.name, rejected.version) == nullptr) continue;
      job = table_.JobFor(rejected.name, rejected.version);
    }
    const LoadScope scope({.cancelled = &loader_.cancelled()});
    absl::StatusOr<std::string> hash =
        WithinMemory([&] { return HashVersionDirectory(job.directory, rules_.Of(job.directory)); });
    if (!hash.ok()) continue;  // Gone: what comes instead is new content.
    const QuarantinedContent content = {.content_hash = *std::move(hash),
                                        .version = rejected.version,
                                        .error = RolledBack(),
                                        .since = system_clock::now(),
                                        .by_operator = true};
    MutexLock lock(mu_);
    VersionWatch* watch = table_.FindWatch(rejected.name, rejected.version);
    if (watch == nullptr || !watch->rejected()) continue;  // Other content was seen meanwhile.
    table_.Find(rejected.name)->quarantine().Add(content);
    watch->Quarantined(content);
  }
}

absl::Status ModelManager::Commit(const ModelChange& change, const RepositoryScan& scan,
                                  std::vector<StagedLoad>& loads, ChangePlan& plan) {
  std::vector<std::pair<ModelHandle, std::chrono::nanoseconds>> published;
  std::vector<ModelHandle> withdrawn;  // Dropped at the end, after the snapshot that had them.
  {
    MutexLock lock(mu_);
    ModelTable next = table_;
    auto again = PlanChange(change, scan, options_.now(), system_clock::now(), next);
    if (!again.ok()) return again.status();
    withdrawn = std::move(again->withdrawn);
    std::swap(table_, next);  // `next` keeps the handles that were dropped until the end.
    if (change.kind == ModelChange::Kind::kConfigure) ++configurations_;
    for (StagedLoad& load : loads) {
      published.emplace_back(Adopt(load.job, load.outcome), load.outcome.load_time);
    }
    PublishTable();
    for (ModelOutcome& model : plan.models) {
      const ModelEntry* before = next.Find(model.name);
      if (before == nullptr) continue;
      for (const auto& [version, watch] : before->versions()) {
        if (watch.serving() == nullptr) continue;
        const VersionWatch* after = table_.FindWatch(model.name, version);
        if (after != nullptr && after->serving() != nullptr) continue;
        model.versions.push_back({version, VersionChange::Outcome::kUnloaded, absl::OkStatus()});
      }
    }
  }
  if (change.published) change.published();
  for (const auto& [handle, load_time] : published) observer_->OnPublished(*handle, load_time);
  for (size_t i = 0; i < loads.size(); ++i) {
    ReportRefusedEpochs(loads[i].job, loads[i].outcome);
    OfferTables(published[i].first, loads[i].job.directory);
  }
  observer_->OnReadinessChanged();
  return absl::OkStatus();
}

std::optional<absl::Status> ModelManager::KeepStates() const {
  if (options_.keep == nullptr) return std::nullopt;
  OperatorStates states;
  {
    MutexLock lock(mu_);
    states = table_.operator_states();
  }
  const absl::Status kept = options_.keep(states);
  if (!kept.ok()) {
    observer_->OnNotice("", 0, absl::StrCat("a restart would forget the change: ", kept.message()));
  }
  return kept;
}

ModelChangeResult ModelManager::RunChange(absl::StatusOr<ModelChange> made) {
  ModelChangeResult result{.status = made.status(), .generation = generation()};
  if (!made.ok()) return result;
  ModelChange& change = *made;
  const bool configure = change.kind == ModelChange::Kind::kConfigure;
  if (configure) {
    result.status = CheckConfigure(change);
    if (!result.status.ok()) return result;
  }
  const absl::StatusOr<RepositoryScan> scan = ScanFor(change);
  if (!scan.ok()) {
    result.status = scan.status();
    return result;
  }
  std::vector<StagedLoad> loads;
  absl::StatusOr<ChangePlan> plan;
  {
    MutexLock lock(mu_);
    ModelTable draft = table_;
    plan = PlanChange(change, *scan, options_.now(), system_clock::now(), draft);
    if (!plan.ok()) {
      result.status = plan.status();
      return result;
    }
    for (const ChangePlan::Goal& goal : plan->goals) {
      StagedLoad& load = loads.emplace_back();
      load.job = draft.JobFor(goal.name, goal.version);
      if (change.kind == ModelChange::Kind::kLoad || change.kind == ModelChange::Kind::kRollback) {
        load.job.quarantine = Quarantine();
      }
      load.job.want_epoch = change.epoch;
    }
  }
  result.applied = LoadGoals(*scan, loads, *plan);
  for (const ModelOutcome& model : plan->models) result.applied &= model.error.ok();
  if (result.applied && !change.dry_run) {
    result.status = Commit(change, *scan, loads, *plan);
    result.applied = result.status.ok();
    if (result.applied) {
      // Once others serve: to read a version of a terabyte takes its time.
      QuarantineRejected(*plan);
      result.kept = KeepStates();
    }
  }
  if (!result.applied || change.dry_run) {
    for (ModelOutcome& model : plan->models) {
      for (VersionChange& version : model.versions) {
        if (version.outcome != VersionChange::Outcome::kLoaded) continue;
        version.outcome = VersionChange::Outcome::kDiscarded;
      }
      if (!configure && result.status.ok()) result.status = model.error;
    }
  }
  result.generation = generation();
  result.models = std::move(plan->models);
  result.from_version = plan->from_version;
  result.to_version = plan->to_version;
  if (!plan->rejected.empty()) result.end = ModelChangeResult::End::kLoad;
  if (change.epoch.has_value()) result.end = ModelChangeResult::End::kLoadEpochs;
  return result;
}

}  // namespace ulfd::server

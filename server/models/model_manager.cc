// The model manager's threads: poll looks, loader loads and carries out changes, reaper (its own
// file) frees.
//
// What blocks on what: mu_ guards the bookkeeping and is held for short computations only, never
// during I/O, a load, or a call of the observer.  snapshot_mu_ guards one pointer.  Find takes only
// snapshot_mu_.  Order: mu_ before snapshot_mu_.
// SPDX-License-Identifier: Apache-2.0
#include "server/models/model_manager.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "engine/runtime/load_reason.h"
#include "server/models/change_plan.h"
#include "server/models/model_change.h"
#include "server/models/model_manager_options.h"
#include "server/models/model_observer.h"
#include "server/models/model_table.h"
#include "server/models/model_types.h"
#include "server/models/reaper.h"
#include "server/models/repository_scan.h"
#include "server/models/served_models.h"
#include "server/models/version_loader.h"
#include "server/models/version_rules.h"
#include "server/system/memory_release.h"
#include "server/system/thread_priority.h"

namespace ulfd::server {
namespace {

using std::chrono::steady_clock;
using std::chrono::system_clock;

// Changes that wait; one more is refused.
constexpr size_t kMaxChanges = 64;

absl::Status Stopping() { return absl::UnavailableError("the model manager is stopping"); }

class ModelManagerImpl final : public ModelManager {
 public:
  ModelManagerImpl(ModelManagerOptions options, ModelObserver* observer);
  ~ModelManagerImpl() override;

  void Start() override;
  void Poll() override;
  absl::Status PollNow(steady_clock::time_point deadline) override;
  void Apply(std::function<absl::StatusOr<ModelChange>()> make,
             std::function<void(ModelChangeResult)> done) override;
  absl::StatusOr<ModelHandle> Find(const ModelChoice& choice) const override {
    return snapshot()->Find(choice);
  }
  std::optional<ShadowTarget> FindShadow(const std::string& name) const override {
    return snapshot()->FindShadow(name);
  }
  absl::Status CheckAccess(const ModelChoice& choice) const override {
    return snapshot()->CheckAccess(choice);
  }
  std::vector<ModelStatus> List() const override;
  std::vector<std::string> LabelsOf(const std::string& name, int64_t version) const override;
  bool Ready() const override { return ready_.load(std::memory_order_acquire); }
  int64_t generation() const override { return generation_.load(std::memory_order_acquire); }
  void PlansWanted() const override {
    MutexLock lock(mu_);
    work_.NotifyAll();
  }

 private:
  struct PendingChange {
    std::function<absl::StatusOr<ModelChange>()> make;
    std::function<void(ModelChangeResult)> done;
  };
  // A load for a change, and what became of it.
  struct StagedLoad {
    LoadJob job;
    LoadOutcome outcome;
  };

  std::shared_ptr<const ServedModels> snapshot() const {
    MutexLock lock(snapshot_mu_);
    return snapshot_;
  }
  void PollLoop();
  void LoaderLoop();
  void Look();
  void RunJob(const LoadJob& job);
  void MakePlans(const ModelHandle& handle);
  void Publish(const LoadJob& job, LoadOutcome outcome);
  void ReportFailure(const LoadJob& job, const LoadOutcome& outcome);

  ModelChangeResult RunChange(absl::StatusOr<ModelChange> made);
  // Fills in what CompleteOptions fills in, and checks it.
  absl::Status CheckConfigure(ModelChange& change) const;
  RepositoryScan ScanFor(const ModelChange& change);
  // Loads what the plan wants; outcomes go to `plan.models`.  Whether all went well.
  bool LoadGoals(const RepositoryScan& scan, std::vector<StagedLoad>& loads, ChangePlan& plan);
  // Remembers that the content was refused, so that the next look does not try it again.
  void Remember(const RepositoryScan& scan, const StagedLoad& load);
  absl::Status Commit(const ModelChange& change, const RepositoryScan& scan,
                      std::vector<StagedLoad>& loads, ChangePlan& plan);
  // Marks content that an operator rejected as in quarantine.
  std::vector<QuarantinedContent> HashRejected(const ChangePlan& plan);
  // Puts a loaded model into the table.
  ModelHandle Adopt(const LoadJob& job, LoadOutcome& outcome, int64_t generation)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Unloads what is due, makes the snapshot, and returns whether readiness changed.
  bool Republish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  const ModelManagerOptions options_;
  ModelObserver silent_;  // For a null observer.
  ModelObserver* const observer_;
  const VersionRules rules_;
  const RepositoryScanner scanner_;
  std::unique_ptr<Reaper> reaper_;
  VersionLoader loader_;

  mutable Mutex mu_;
  mutable CondVar work_;  // Something may be due for the loader, or stopping.
  CondVar done_;          // A look or a load has ended.
  CondVar look_;          // A look is wanted, or stopping.
  ModelTable table_ ABSL_GUARDED_BY(mu_);
  std::deque<PendingChange> changes_ ABSL_GUARDED_BY(mu_);
  int64_t configurations_ ABSL_GUARDED_BY(mu_) = 0;  // How often the set of models was changed.
  int64_t looks_wanted_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t looks_done_ ABSL_GUARDED_BY(mu_) = 0;
  bool looked_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::string readiness_ ABSL_GUARDED_BY(mu_);
  bool complete_once_ ABSL_GUARDED_BY(mu_) = false;  // Every model that is waited for served.
  std::atomic<bool> ready_ = false;
  std::atomic<int64_t> generation_ = 0;

  mutable Mutex snapshot_mu_;
  std::shared_ptr<const ServedModels> snapshot_ ABSL_GUARDED_BY(snapshot_mu_);

  Mutex step_mu_;  // Serialises steps by hand.
  bool started_ = false;
  std::thread poll_thread_, loader_thread_;
};

ModelManagerImpl::ModelManagerImpl(ModelManagerOptions options, ModelObserver* observer)
    : options_(std::move(options)),
      observer_(observer != nullptr ? observer : &silent_),
      rules_(options_.repository, options_.link_targets, options_.load_bounds.max_files),
      scanner_(options_.repository, rules_),
      reaper_(std::make_unique<Reaper>(
          [this](const std::string& name, int64_t version, int64_t generation) {
            observer_->OnUnloaded(name, version, generation);
          })),
      loader_(options_, rules_, *reaper_, *observer_),
      table_(options_) {
  MutexLock lock(mu_);
  Republish();
}

ModelManagerImpl::~ModelManagerImpl() {
  std::deque<PendingChange> changes;
  {
    MutexLock lock(mu_);
    stopping_ = true;
    loader_.Cancel();
    changes.swap(changes_);
    work_.NotifyAll();
    done_.NotifyAll();
    look_.NotifyAll();
  }
  for (PendingChange& pending : changes) pending.done({.status = Stopping()});
  if (poll_thread_.joinable()) poll_thread_.join();
  if (loader_thread_.joinable()) loader_thread_.join();
  {
    MutexLock lock(mu_);
    table_ = ModelTable({});
    MutexLock snapshot_lock(snapshot_mu_);
    snapshot_.reset();
  }
  reaper_.reset();  // Frees what nobody holds any more.
}

void ModelManagerImpl::Start() {
  if (started_ || options_.poll_interval.count() < 0) return;
  started_ = true;
  poll_thread_ = std::thread([this] { PollLoop(); });
  loader_thread_ = std::thread([this] { LoaderLoop(); });
}

void ModelManagerImpl::PollLoop() {
  MakeBackgroundThread("ulfd-poll");
  while (true) {
    int64_t wanted;
    {
      MutexLock lock(mu_);
      if (stopping_) return;
      wanted = looks_wanted_;
    }
    Look();
    {
      MutexLock lock(mu_);
      looks_done_ = wanted;
      work_.NotifyAll();
      done_.NotifyAll();
      const auto next = steady_clock::now() + options_.poll_interval;
      while (!stopping_ && looks_wanted_ == wanted && look_.WaitUntil(mu_, next)) {
      }
    }
  }
}

void ModelManagerImpl::LoaderLoop() {
  MakeBackgroundThread("ulfd-loader");
  while (true) {
    std::optional<LoadJob> job;
    std::optional<PendingChange> change;
    ModelHandle wants_plans;
    {
      MutexLock lock(mu_);
      while (!stopping_ && changes_.empty() &&
             !(job = table_.NextJob(options_.now())).has_value() &&
             (wants_plans = snapshot()->WantsPlans()) == nullptr) {
        const auto due = table_.NextDueAt(options_.now());
        if (due.has_value()) {
          work_.WaitUntil(mu_, *due);
        } else {
          work_.Wait(mu_);
        }
      }
      if (stopping_) return;
      if (!job.has_value() && wants_plans == nullptr) {
        change = std::move(changes_.front());
        changes_.pop_front();
      }
    }
    if (job.has_value()) {
      RunJob(*job);
    } else if (wants_plans != nullptr) {
      MakePlans(wants_plans);
    } else {
      change->done(RunChange(change->make()));
    }
    ReleaseFreeMemory();
    MutexLock lock(mu_);
    done_.NotifyAll();
  }
}

void ModelManagerImpl::Poll() {
  if (started_) return;
  MutexLock step(step_mu_);
  Look();
  while (true) {
    std::optional<LoadJob> job;
    {
      MutexLock lock(mu_);
      job = table_.NextJob(options_.now());
    }
    if (!job.has_value()) break;
    RunJob(*job);
  }
  while (const ModelHandle handle = snapshot()->WantsPlans()) MakePlans(handle);
}

absl::Status ModelManagerImpl::PollNow(steady_clock::time_point deadline) {
  if (!started_) {
    Poll();
    return absl::OkStatus();
  }
  MutexLock lock(mu_);
  const int64_t ticket = ++looks_wanted_;
  look_.NotifyAll();
  while (true) {
    if (stopping_) return Stopping();
    const std::vector<std::string> unfinished = table_.Unfinished(options_.now());
    if (looks_done_ >= ticket && unfinished.empty()) return absl::OkStatus();
    if (!done_.WaitUntil(mu_, deadline) && steady_clock::now() >= deadline) {
      return absl::DeadlineExceededError(
          looks_done_ < ticket
              ? std::string("the repository was not looked at in time")
              : absl::StrCat("not loaded in time: ", absl::StrJoin(unfinished, ", ")));
    }
  }
}

void ModelManagerImpl::Look() {
  RepositoryScan scan;
  bool changed;
  while (true) {
    std::map<std::string, std::string> base_paths;
    int64_t configurations;
    {
      MutexLock lock(mu_);
      base_paths = table_.BasePaths();
      configurations = configurations_;
    }
    scan = scanner_.Scan(base_paths);
    MutexLock lock(mu_);
    if (configurations != configurations_) continue;  // A look at the wrong places.
    table_.Merge(scan, options_.now(), system_clock::now());
    looked_ = true;
    changed = Republish();
    break;
  }
  if (changed) observer_->OnReadinessChanged();
}

bool ModelManagerImpl::Republish() {
  std::vector<ModelHandle> withdrawn;  // Dropped after the snapshot that had them.
  std::shared_ptr<ServedModels> served = table_.Serve(options_.now(), withdrawn);
  const ModelTable::Readiness now = table_.ReadinessOf(*served);
  complete_once_ = complete_once_ || (looked_ && now.any && now.complete);
  ready_.store(complete_once_ && now.any, std::memory_order_release);
  const std::string readiness =
      absl::StrCat(looked_ ? "looked;" : "", ready_ ? "ready;" : "", now.callable);
  std::shared_ptr<const ServedModels> old = std::move(served);
  {
    MutexLock lock(snapshot_mu_);
    old.swap(snapshot_);
  }
  return readiness != std::exchange(readiness_, readiness);
}

void ModelManagerImpl::ReportFailure(const LoadJob& job, const LoadOutcome& outcome) {
  observer_->OnLoadFailed(job.name, job.version,
                          engine::LoadReasonName(engine::LoadReasonOf(outcome.error)),
                          outcome.error);
}

void ModelManagerImpl::RunJob(const LoadJob& job) {
  LoadOutcome outcome = loader_.Load(job, Ready());
  if (outcome.kind == LoadOutcome::Kind::kLoaded) return Publish(job, std::move(outcome));
  bool changed = false;
  {
    MutexLock lock(mu_);
    table_.Refused(job, outcome, options_.now());
    changed = Republish();  // The reason goes into what Find says.
  }
  if (changed) observer_->OnReadinessChanged();
  if (outcome.kind != LoadOutcome::Kind::kMoved) ReportFailure(job, outcome);
}

void ModelManagerImpl::MakePlans(const ModelHandle& handle) {
  const int64_t bytes = loader_.MakePlans(*handle);
  if (bytes == 0) return;
  reaper_->Grew(bytes);
  handle->lane->ResumeMerging();
}

ModelHandle ModelManagerImpl::Adopt(const LoadJob& job, LoadOutcome& outcome, int64_t generation) {
  outcome.served->generation = generation;
  outcome.served->published_at = system_clock::now();
  ModelHandle handle = reaper_->Own(std::move(outcome.served));
  table_.Published(job, handle);
  return handle;
}

void ModelManagerImpl::Publish(const LoadJob& job, LoadOutcome outcome) {
  ModelHandle handle;
  {
    MutexLock lock(mu_);
    const int64_t generation = generation_.load(std::memory_order_relaxed) + 1;
    handle = Adopt(job, outcome, generation);
    generation_.store(generation, std::memory_order_release);
    Republish();
  }
  observer_->OnPublished(*handle, outcome.load_time);
  observer_->OnReadinessChanged();
}

void ModelManagerImpl::Apply(std::function<absl::StatusOr<ModelChange>()> make,
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
      refused = absl::ResourceExhaustedError(
          absl::StrCat(changes_.size(), " changes wait already, limit ", kMaxChanges));
    } else {
      changes_.push_back({std::move(make), std::move(done)});
      work_.NotifyAll();
      return;
    }
  }
  done({.status = refused, .generation = generation()});
}

absl::Status ModelManagerImpl::CheckConfigure(ModelChange& change) const {
  ModelManagerOptions options = options_;
  options.models = std::move(change.models);
  options.default_policy = change.default_policy;
  RETURN_IF_ERROR(CompleteOptions(options));
  change.models = std::move(options.models);
  return absl::OkStatus();
}

RepositoryScan ModelManagerImpl::ScanFor(const ModelChange& change) {
  std::map<std::string, std::string> base_paths;
  {
    MutexLock lock(mu_);
    base_paths = table_.BasePaths();
  }
  for (const ModelConfig& model : change.models) base_paths[model.name] = model.base_path;
  return scanner_.Scan(base_paths);
}

void ModelManagerImpl::Remember(const RepositoryScan& scan, const StagedLoad& load) {
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

bool ModelManagerImpl::LoadGoals(const RepositoryScan& scan, std::vector<StagedLoad>& loads,
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
    } else if (outcome.served->model != nullptr) {
      staged_bytes += outcome.served->model->memory_bytes();
    }
    model->versions.push_back(std::move(change));
  }
  return all;
}

std::vector<QuarantinedContent> ModelManagerImpl::HashRejected(const ChangePlan& plan) {
  std::vector<QuarantinedContent> contents;
  for (const ChangePlan::Goal& rejected : plan.rejected) {
    LoadJob job;
    {
      MutexLock lock(mu_);
      if (table_.FindWatch(rejected.name, rejected.version) == nullptr) continue;
      job = table_.JobFor(rejected.name, rejected.version);
    }
    absl::StatusOr<std::string> hash =
        HashVersionDirectory(job.directory, rules_.Of(job.directory));
    if (!hash.ok()) continue;  // Gone: what comes instead is new content.
    contents.push_back({*std::move(hash), rejected.version,
                        absl::FailedPreconditionError("rolled back by an operator"),
                        system_clock::now()});
  }
  return contents;
}

absl::Status ModelManagerImpl::Commit(const ModelChange& change, const RepositoryScan& scan,
                                      std::vector<StagedLoad>& loads, ChangePlan& plan) {
  const std::vector<QuarantinedContent> rejected = HashRejected(plan);
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
    for (const QuarantinedContent& content : rejected) {
      table_.Find(change.name)->quarantine().Add(content);
      VersionWatch* watch = table_.FindWatch(change.name, content.version);
      if (watch != nullptr && watch->rejected()) watch->Quarantined(content);
    }
    const int64_t generation = generation_.load(std::memory_order_relaxed) + 1;
    for (StagedLoad& load : loads) {
      published.emplace_back(Adopt(load.job, load.outcome, generation), load.outcome.load_time);
    }
    generation_.store(generation, std::memory_order_release);
    Republish();
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
  observer_->OnReadinessChanged();
  return absl::OkStatus();
}

ModelChangeResult ModelManagerImpl::RunChange(absl::StatusOr<ModelChange> made) {
  ModelChangeResult result{.status = made.status(), .generation = generation()};
  if (!made.ok()) return result;
  ModelChange& change = *made;
  const bool configure = change.kind == ModelChange::Kind::kConfigure;
  if (configure) {
    result.status = CheckConfigure(change);
    if (!result.status.ok()) return result;
  }
  const RepositoryScan scan = ScanFor(change);
  std::vector<StagedLoad> loads;
  absl::StatusOr<ChangePlan> plan;
  {
    MutexLock lock(mu_);
    ModelTable draft = table_;
    plan = PlanChange(change, scan, options_.now(), system_clock::now(), draft);
    if (!plan.ok()) {
      result.status = plan.status();
      return result;
    }
    for (const ChangePlan::Goal& goal : plan->goals) {
      StagedLoad& load = loads.emplace_back();
      load.job = draft.JobFor(goal.name, goal.version);
      if (change.kind == ModelChange::Kind::kLoad) load.job.quarantine = Quarantine();
    }
  }
  result.applied = LoadGoals(scan, loads, *plan);
  for (const ModelOutcome& model : plan->models) result.applied &= model.error.ok();
  if (result.applied && !change.dry_run) {
    result.status = Commit(change, scan, loads, *plan);
    result.applied = result.status.ok();
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
  return result;
}

std::vector<ModelStatus> ModelManagerImpl::List() const {
  MutexLock lock(mu_);
  return table_.List(options_.now());
}

std::vector<std::string> ModelManagerImpl::LabelsOf(const std::string& name,
                                                    int64_t version) const {
  MutexLock lock(mu_);
  return table_.LabelsOf(name, version);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ModelManager>> ModelManager::Create(ModelManagerOptions options,
                                                                   ModelObserver* observer) {
  RETURN_IF_ERROR(CompleteOptions(options));
  return std::unique_ptr<ModelManager>(new ModelManagerImpl(std::move(options), observer));
}

}  // namespace ulfd::server

// SPDX-License-Identifier: Apache-2.0
#include "server/models/model_manager.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/load_scope.h"
#include "base/status_macros.h"
#include "engine/directory/load_reason.h"
#include "server/models/merged_request.h"
#include "server/models/model_lane.h"
#include "server/system/memory_release.h"
#include "server/system/threads.h"

namespace ulfd::server {

using std::chrono::steady_clock;
using std::chrono::system_clock;

ModelManager::ModelManager(ModelManagerOptions options, ModelObserver* observer)
    : options_(std::move(options)),
      observer_(observer),
      rules_(options_.repository, options_.link_targets, options_.load_bounds.max_files),
      scanner_(options_.repository, rules_),
      reaper_(std::make_unique<Reaper>(
          [this](const std::string& name, int64_t version, int64_t generation) {
            observer_->OnUnloaded(name, version, generation);
          })),
      hot_ids_(options_.hot_ids_directory),
      loader_(options_, rules_, *reaper_, hot_ids_, *observer_),
      folder_(std::make_unique<TableFolder>(options_.fold,
                                            [this](TableFold fold) {
                                              MutexLock lock(mu_);
                                              folds_.push_back(std::move(fold));
                                              work_.NotifyAll();
                                            })),
      checker_(std::make_unique<TableChecker>(
          [this](const std::string& name, int64_t version, const absl::Status& damage) {
            observer_->OnNotice(name, version, std::string(damage.message()));
          })),
      table_(options_) {
  MutexLock lock(mu_);
  Republish();
}

ModelManager::~ModelManager() {
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
  folder_.reset();
  checker_.reset();
  KeepHotIds();
  {
    MutexLock lock(mu_);
    table_ = ModelTable({});
    MutexLock snapshot_lock(snapshot_mu_);
    snapshot_.reset();
  }
  reaper_.reset();  // Frees what nobody holds any more.
}

void ModelManager::Start() {
  if (started_ || options_.poll_interval.count() < 0) return;
  started_ = true;
  poll_thread_ = std::thread([this] { PollLoop(); });
  loader_thread_ = std::thread([this] { LoaderLoop(); });
}

void ModelManager::KeepHotIds() const {
  for (const auto& [name, versions] : snapshot()->models) {
    const ModelHandle* const handle = versions.Default();
    if (handle == nullptr) continue;
    const absl::Status status = hot_ids_.Keep(name, *(*handle)->model);
    if (!status.ok()) {
      observer_->OnNotice(name, (*handle)->version, std::string(status.message()));
    }
  }
}

void ModelManager::PollLoop() {
  MakeBackgroundThread("ulfd-poll");
  // One that is killed has those of some minutes before.
  constexpr std::chrono::minutes kKeepInterval(5);
  steady_clock::time_point keep_at = steady_clock::now() + kKeepInterval;
  while (true) {
    int64_t wanted;
    {
      MutexLock lock(mu_);
      if (stopping_) return;
      wanted = looks_wanted_;
    }
    const bool looked = Look();
    if (steady_clock::now() >= keep_at) {
      WithinMemory([this] { KeepHotIds(); }).IgnoreError();
      keep_at = steady_clock::now() + kKeepInterval;
    }
    {
      MutexLock lock(mu_);
      if (looked) looks_done_ = wanted;
      work_.NotifyAll();
      done_.NotifyAll();
      const auto next = steady_clock::now() + options_.poll_interval;
      while (!stopping_ && looks_wanted_ == wanted && look_.WaitUntil(mu_, next)) {
      }
    }
  }
}

void ModelManager::LoaderLoop() {
  MakeBackgroundThread("ulfd-loader");
  while (true) {
    std::optional<LoadJob> job;
    std::optional<PendingChange> change;
    std::optional<TableFold> fold;
    ModelHandle wants_plans;
    {
      MutexLock lock(mu_);
      while (!stopping_ && changes_.empty() && folds_.empty() &&
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
      loading_ = job.has_value();
      const bool found = loading_ || wants_plans != nullptr;
      if (!changes_.empty() && !found) {
        change = std::move(changes_.front());
        changes_.pop_front();
      } else if (!found) {
        fold = std::move(folds_.front());
        folds_.pop_front();
      }
    }
    if (job.has_value()) {
      RunJob(*job);
    } else if (wants_plans != nullptr) {
      MakePlans(wants_plans);
    } else if (fold.has_value()) {
      RunFold(*fold);
    } else {
      change->done(RunChange(change->make()));
    }
    ReleaseFreeMemory();
    MutexLock lock(mu_);
    loading_ = false;
    done_.NotifyAll();
  }
}

void ModelManager::Poll() {
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

absl::Status ModelManager::PollNow(steady_clock::time_point deadline) {
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
    const bool ended = looks_done_ >= ticket && unfinished.empty();
    if (ended && !loading_) return absl::OkStatus();
    if (!done_.WaitUntil(mu_, deadline) && steady_clock::now() >= deadline) {
      if (ended) return absl::OkStatus();
      return absl::DeadlineExceededError(
          looks_done_ < ticket
              ? std::string("the repository was not looked at in time")
              : absl::StrCat("not loaded in time: ", absl::StrJoin(unfinished, ", ")));
    }
  }
}

bool ModelManager::Look() {
  // A repository has as many folders as whoever writes it likes.
  const absl::Status looked = WithinMemory([this] { return LookOnce(); });
  if (looked.ok()) return true;
  if (absl::IsCancelled(looked)) return false;
  WithinMemory([&] {
    observer_->OnNotice("", 0,
                        absl::StrCat("the repository was not looked at: ", looked.message()));
  }).IgnoreError();  // There may be no memory for that either.
  return false;
}

absl::StatusOr<RepositoryScan> ModelManager::Scan(const ModelPlaces& places,
                                                  const std::optional<std::string>& only) const {
  const LoadScope scope({.cancelled = &loader_.cancelled()});
  return WithinMemory(
      [&]() -> absl::StatusOr<RepositoryScan> { return scanner_.Scan(places, only); });
}

namespace {

constexpr size_t kMaxReported = 20;  // There may be as many as there are names.

// What `now` has and `before` had not; `now` takes its place.
template <typename Map>
Map NewOnes(Map now, Map& before) {
  before.swap(now);
  Map added;
  for (const auto& [which, what] : before) {
    if (!now.contains(which)) added[which] = what;
  }
  return added;
}

}  // namespace

absl::Status ModelManager::LookOnce() {
  ModelTable::Unreadables unreadable;
  std::map<std::string, std::string> left_out;
  bool changed;
  while (true) {
    ModelPlaces places;
    int64_t configurations;
    {
      MutexLock lock(mu_);
      places = table_.Places();
      configurations = configurations_;
    }
    ASSIGN_OR_RETURN(const RepositoryScan scan, Scan(places, std::nullopt));
    MutexLock lock(mu_);
    if (configurations != configurations_) continue;  // A look at the wrong places.
    table_.Merge(scan, options_.now(), system_clock::now());
    unreadable = NewOnes(table_.Unreadable(), unreadable_);
    left_out = NewOnes(table_.LeftOut(), left_out_);
    looked_ = true;
    changed = Republish();
    break;
  }
  size_t reported = 0;
  for (const auto& [which, why] : unreadable) {
    if (reported++ == kMaxReported) {
      observer_->OnNotice("", 0,
                          absl::StrCat(unreadable.size() - kMaxReported,
                                       " more models or versions cannot be read"));
      break;
    }
    observer_->OnLoadFailed(which.first, which.second,
                            engine::LoadReasonName(engine::LoadReasonOf(why)), why);
  }
  if (!left_out.empty()) {
    const auto& [name, text] = *left_out.begin();
    const size_t more = left_out.size() - 1;
    observer_->OnNotice(name, 0,
                        more == 0 ? text : absl::StrCat(text, "; so of ", more, " more models"));
  }
  if (changed) observer_->OnReadinessChanged();
  return absl::OkStatus();
}

bool ModelManager::Republish() {
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
  snapshots_.fetch_add(1);
  return readiness != std::exchange(readiness_, readiness);
}

void ModelManager::ReportRefusedEpochs(const LoadJob& job, const LoadOutcome& outcome) {
  if (outcome.refused_epochs.empty()) return;
  // There may be as many as names fit into a directory, and they mostly fail alike.
  const absl::Status& first = outcome.refused_epochs.front().second;
  const size_t more = outcome.refused_epochs.size() - 1;
  const absl::Status error =
      more == 0 ? first
                : absl::Status(first.code(), absl::StrCat(first.message(), "; and ", more,
                                                          " more epochs are refused"));
  observer_->OnLoadFailed(job.name, job.version,
                          engine::LoadReasonName(engine::LoadReasonOf(first)), error);
}

void ModelManager::ReportFailure(const LoadJob& job, const LoadOutcome& outcome) {
  if (!outcome.refused_epochs.empty()) return ReportRefusedEpochs(job, outcome);
  observer_->OnLoadFailed(job.name, job.version,
                          engine::LoadReasonName(engine::LoadReasonOf(outcome.error)),
                          outcome.error);
}

void ModelManager::RunJob(const LoadJob& job) {
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

void ModelManager::MakePlans(const ModelHandle& handle) {
  loader_.MakePlans(*handle);
  reaper_->Grew(*handle->model);
  handle->lane->SetMerges(CanMerge(*handle->model));
}

ModelHandle ModelManager::Own(std::unique_ptr<ServedModel> served) const {
  served->generation = generation() + 1;
  served->published_at = system_clock::now();
  return reaper_->Own(std::move(served));
}

ModelHandle ModelManager::Adopt(const LoadJob& job, LoadOutcome& outcome) {
  ModelHandle handle = Own(std::move(outcome.served));
  table_.Published(job, handle, outcome, options_.now());
  return handle;
}

void ModelManager::PublishTable() {
  generation_.fetch_add(1);
  Republish();
}

void ModelManager::Publish(const LoadJob& job, LoadOutcome outcome) {
  ModelHandle handle;
  {
    MutexLock lock(mu_);
    handle = Adopt(job, outcome);
    PublishTable();
  }
  observer_->OnPublished(*handle, outcome.load_time);
  ReportRefusedEpochs(job, outcome);
  observer_->OnReadinessChanged();
  OfferTables(handle, job.directory);
}

void ModelManager::OfferTables(const ModelHandle& handle, const std::string& directory) {
  if (started_) {
    checker_->Offer(*handle);
    return folder_->Offer(handle, directory);
  }
  if (const std::optional<TableFold> fold = folder_->FoldOne(*handle, directory)) RunFold(*fold);
}

void ModelManager::RunFold(const TableFold& fold) {
  if (!fold.rows.ok()) {
    return observer_->OnNotice(fold.name, fold.version, std::string(fold.rows.status().message()));
  }
  const steady_clock::time_point start = steady_clock::now();
  LoadJob job;  // Of what serves, whose directory may hold something else by now.
  ModelHandle before;
  {
    MutexLock lock(mu_);
    const VersionWatch* watch = table_.FindWatch(fold.name, fold.version);
    if (watch == nullptr || watch->serving() == nullptr) return;
    before = watch->serving();
    job = table_.JobFor(fold.name, fold.version);
  }
  auto served = std::make_unique<ServedModel>();
  served->model = before->model->WithFolded(*fold.table, *fold.rows);
  if (served->model == nullptr) return;  // Something else serves.
  served->name = before->name;
  served->version = before->version;
  served->file_bytes = before->file_bytes;
  served->epochs = before->epochs;
  served->lane = MakeLane(*served->model, job.name, job.limits, before->lane->cost().parts());
  ModelHandle handle;
  {
    MutexLock lock(mu_);
    handle = Own(std::move(served));
    table_.Replaced(before, handle);
    PublishTable();
  }
  observer_->OnPublished(*handle, steady_clock::now() - start);
  OfferTables(handle, job.directory);
}

std::vector<ModelStatus> ModelManager::List(const std::string& name) const {
  MutexLock lock(mu_);
  return table_.List(options_.now(), name);
}

std::vector<int64_t> ModelManager::VersionsOf(const std::string& name) const {
  const std::shared_ptr<const ServedModels> served = snapshot();
  std::vector<int64_t> versions;
  if (const auto model = served->models.find(name); model != served->models.end()) {
    for (const ModelHandle& handle : model->second.versions) versions.push_back(handle->version);
  }
  return versions;
}

std::vector<std::string> ModelManager::LabelsOf(const std::string& name, int64_t version) const {
  MutexLock lock(mu_);
  return table_.LabelsOf(name, version);
}

absl::StatusOr<std::unique_ptr<ModelManager>> ModelManager::Create(ModelManagerOptions options,
                                                                   ModelObserver* observer) {
  RETURN_IF_ERROR(CompleteOptions(options));
  const std::vector<std::string> dropped = DropOutdatedStates(options);
  // For good: the configuration may come back to what it was.
  if (!dropped.empty() && options.keep) RETURN_IF_ERROR(options.keep(options.operator_states));
  for (const std::string& name : dropped) {
    observer->OnNotice(name, 0,
                       "what operators changed before the start is dropped: the configuration says "
                       "something else of the model now");
  }
  return std::unique_ptr<ModelManager>(new ModelManager(std::move(options), observer));
}

}  // namespace ulfd::server

// The model manager's threads: poll looks, loader loads, reaper (its own file) frees.
//
// What blocks on what: mu_ guards the bookkeeping and is held for short computations only, never
// during I/O, a load, or a call of the observer.  snapshot_mu_ guards one pointer.  Find takes only
// snapshot_mu_.  Order: mu_ before snapshot_mu_.
// SPDX-License-Identifier: Apache-2.0
#include "server/model_manager.h"

#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/runtime/load_reason.h"
#include "engine/status_macros.h"
#include "engine/tensor/mutex.h"
#include "server/directory_watcher.h"
#include "server/model_entry.h"
#include "server/model_lane.h"
#include "server/model_loader.h"
#include "server/model_manager_options.h"
#include "server/reaper.h"
#include "server/repository.h"
#include "server/served_models.h"
#include "server/thread_priority.h"

namespace ulfd::server {
namespace {

using engine::LoadReason;
using std::chrono::steady_clock;
using std::chrono::system_clock;

// ListVersions, but NOT_FOUND only where the directory above is there: else a volume may be
// missing, which is no wish to unload.
absl::StatusOr<VersionList> ListVersionsOrWhy(const std::string& base_path) {
  absl::StatusOr<VersionList> list = ListVersions(base_path);
  struct stat info;
  const std::string above(base_path, 0, std::max<size_t>(base_path.find_last_of('/') + 1, 1) - 1);
  if (absl::IsNotFound(list.status()) && !above.empty() && stat(above.c_str(), &info) != 0) {
    return absl::UnavailableError(absl::StrCat("directory ", above, " does not exist"));
  }
  return list;
}

class ModelManagerImpl final : public ModelManager {
 public:
  ModelManagerImpl(ModelManagerOptions options, ModelObserver* observer,
                   std::unique_ptr<DirectoryWatcher> watcher);
  ~ModelManagerImpl() override;

  void Start() override;
  void Poll() override;
  absl::Status PollNow(steady_clock::time_point deadline) override;
  absl::StatusOr<ModelHandle> Find(const ModelChoice& choice) const override;
  std::vector<ModelStatus> List() const override;
  std::vector<std::string> LabelsOf(const std::string& name, int64_t version) const override;
  bool Ready() const override { return ready_.load(std::memory_order_acquire); }
  int64_t generation() const override { return generation_.load(std::memory_order_acquire); }

 private:
  struct Job {
    std::string name;
    int64_t version = 0;
    std::string directory, fingerprint;
  };
  // Fingerprints of everything the repository holds.
  struct Scan {
    absl::Status repository;  // Not OK: models of the repository stay as they are.
    std::vector<std::string> found;
    std::map<std::string, ModelScan> models;
    std::vector<std::string> directories;  // To watch.
  };

  void PollLoop();
  void LoaderLoop();

  void Look();
  Scan ScanAll(const std::map<std::string, std::string>& base_paths) const;
  absl::StatusOr<std::vector<std::string>> ListRepository() const;
  void Merge(const Scan& scan) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // The next load that is due, marked as running; models of which nothing serves come first.
  std::optional<Job> NextJob() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RunJob(const Job& job);
  absl::StatusOr<std::unique_ptr<const engine::Model>> Load(const Job& job);
  void Abandon(const Job& job, const absl::StatusOr<engine::DirectoryState>& state);
  void Refuse(const Job& job, const absl::Status& error);
  void Discard(const Job& job, const absl::StatusOr<engine::DirectoryState>& state);
  void Publish(const Job& job, std::unique_ptr<const engine::Model> model,
               std::chrono::nanoseconds load_time);
  VersionWatch* WatchOf(const Job& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Unloads what is due, makes the snapshot, and returns whether readiness changed.
  bool Republish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::shared_ptr<Lane> NewLane(const std::string& name, const engine::Model& model) const;
  std::string Readiness(const ServedModels& served) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::vector<std::string> Unfinished() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  VersionWatch::Options watch_options() const {
    return {options_.settle_time, options_.retry_backoff};
  }

  const ModelManagerOptions options_;
  ModelObserver silent_;  // For a null observer.
  ModelObserver* const observer_;
  dev_t repository_device_ = 0;
  std::unique_ptr<Reaper> reaper_;
  const std::unique_ptr<DirectoryWatcher> watcher_;  // Wait and Watch: the poll thread's.
  std::string watcher_notice_;                       // The poll thread's.

  mutable Mutex mu_;
  CondVar work_;  // Something may be due for the loader, or stopping.
  CondVar done_;  // A look or a load has ended.
  std::map<std::string, ModelEntry> entries_ ABSL_GUARDED_BY(mu_);
  int64_t looks_wanted_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t looks_done_ ABSL_GUARDED_BY(mu_) = 0;
  bool looked_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::string readiness_ ABSL_GUARDED_BY(mu_);
  std::atomic<bool> ready_ = false;
  std::atomic<int64_t> generation_ = 0;

  mutable Mutex snapshot_mu_;
  std::shared_ptr<const ServedModels> snapshot_ ABSL_GUARDED_BY(snapshot_mu_);

  Mutex step_mu_;  // Serialises steps by hand.
  bool started_ = false;
  std::thread poll_thread_, loader_thread_;
};

ModelManagerImpl::ModelManagerImpl(ModelManagerOptions options, ModelObserver* observer,
                                   std::unique_ptr<DirectoryWatcher> watcher)
    : options_(std::move(options)),
      observer_(observer != nullptr ? observer : &silent_),
      reaper_(std::make_unique<Reaper>(
          [this](const std::string& name, int64_t version, int64_t generation) {
            observer_->OnUnloaded(name, version, generation);
          })),
      watcher_(std::move(watcher)) {
  struct stat info;
  if (stat(options_.repository.c_str(), &info) == 0) repository_device_ = info.st_dev;
  MutexLock lock(mu_);
  for (const ModelConfig& model : options_.models) {
    entries_.try_emplace(model.name, model, /*configured=*/true, watch_options());
  }
  Republish();
}

ModelManagerImpl::~ModelManagerImpl() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
    work_.NotifyAll();
    done_.NotifyAll();
  }
  watcher_->Wake();
  if (poll_thread_.joinable()) poll_thread_.join();
  if (loader_thread_.joinable()) loader_thread_.join();
  {
    MutexLock lock(mu_);
    entries_.clear();
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
    }
    watcher_->Wait(options_.poll_interval);
  }
}

void ModelManagerImpl::LoaderLoop() {
  MakeBackgroundThread("ulfd-loader");
  while (true) {
    std::optional<Job> job;
    {
      MutexLock lock(mu_);
      while (!stopping_ && !(job = NextJob()).has_value()) {
        std::optional<steady_clock::time_point> due;
        for (const auto& [name, entry] : entries_) {
          const auto at = entry.NextDueAt(options_.now());
          if (at.has_value() && (!due.has_value() || *at < *due)) due = at;
        }
        if (due.has_value()) {
          work_.WaitUntil(mu_, *due);
        } else {
          work_.Wait(mu_);
        }
      }
      if (stopping_) return;
    }
    RunJob(*job);
    MutexLock lock(mu_);
    done_.NotifyAll();
  }
}

void ModelManagerImpl::Poll() {
  if (started_) return;
  MutexLock step(step_mu_);
  Look();
  while (true) {
    std::optional<Job> job;
    {
      MutexLock lock(mu_);
      job = NextJob();
    }
    if (!job.has_value()) return;
    RunJob(*job);
  }
}

absl::Status ModelManagerImpl::PollNow(steady_clock::time_point deadline) {
  if (!started_) {
    Poll();
    return absl::OkStatus();
  }
  MutexLock lock(mu_);
  const int64_t ticket = ++looks_wanted_;
  watcher_->Wake();
  while (true) {
    if (stopping_) return absl::UnavailableError("the model manager is stopping");
    const std::vector<std::string> unfinished = Unfinished();
    if (looks_done_ >= ticket && unfinished.empty()) return absl::OkStatus();
    if (!done_.WaitUntil(mu_, deadline) && steady_clock::now() >= deadline) {
      return absl::DeadlineExceededError(
          looks_done_ < ticket
              ? std::string("the repository was not looked at in time")
              : absl::StrCat("not loaded in time: ", absl::StrJoin(unfinished, ", ")));
    }
  }
}

std::vector<std::string> ModelManagerImpl::Unfinished() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) {
    const std::optional<int64_t> version = entry.Loading();
    const std::optional<int64_t> next =
        version.has_value() ? version : entry.NextToLoad(options_.now());
    if (next.has_value()) names.push_back(absl::StrCat("model \"", name, "\" v", *next));
  }
  return names;
}

absl::StatusOr<std::vector<std::string>> ModelManagerImpl::ListRepository() const {
  if (options_.repository.empty()) return std::vector<std::string>();
  ASSIGN_OR_RETURN(std::vector<std::string> names, ListModelDirectories(options_.repository));
  struct stat info;
  if (names.empty() && stat(options_.repository.c_str(), &info) == 0 &&
      info.st_dev != repository_device_) {
    return absl::UnavailableError(
        absl::StrCat("model repository ", options_.repository,
                     " is empty and on another device than at the start: not mounted?"));
  }
  return names;
}

ModelManagerImpl::Scan ModelManagerImpl::ScanAll(
    const std::map<std::string, std::string>& base_paths) const {
  Scan scan;
  std::map<std::string, std::string> to_scan = base_paths;
  if (absl::StatusOr<std::vector<std::string>> found = ListRepository(); found.ok()) {
    scan.found = *std::move(found);
  } else {
    scan.repository = found.status();
  }
  for (const std::string& name : scan.found) {
    to_scan.try_emplace(name, absl::StrCat(options_.repository, "/", name));
  }
  if (!options_.repository.empty()) scan.directories.push_back(options_.repository);
  for (const auto& [name, base_path] : to_scan) {
    ModelScan model{.listing = ListVersionsOrWhy(base_path)};
    scan.directories.push_back(base_path);
    if (model.listing.ok()) {
      for (const int64_t version : model.listing->versions) {
        const std::string path = absl::StrCat(base_path, "/", version);
        model.versions.emplace(version, engine::FingerprintDirectory(path));
        scan.directories.push_back(path);
      }
    }
    scan.models.emplace(name, std::move(model));
  }
  return scan;
}

void ModelManagerImpl::Merge(const Scan& scan) {
  const steady_clock::time_point now = options_.now();
  const system_clock::time_point wall_now = system_clock::now();
  for (const std::string& name : scan.found) {
    if (entries_.contains(name)) continue;
    ModelConfig config{.name = name,
                       .base_path = absl::StrCat(options_.repository, "/", name),
                       .policy = options_.default_policy};
    entries_.try_emplace(name, std::move(config), /*configured=*/false, watch_options());
  }
  for (const auto& [name, model] : scan.models) {
    const auto entry = entries_.find(name);
    if (entry == entries_.end()) continue;  // Forgotten by the loader since the scan began.
    // With the whole repository out of reach, a model that is not there says nothing.
    if (!scan.repository.ok() &&
        absl::StartsWith(entry->second.config().base_path, options_.repository + "/")) {
      entry->second.SetError(scan.repository);
    } else {
      entry->second.Update(model, now, wall_now);
    }
  }
  looked_ = true;
}

void ModelManagerImpl::Look() {
  std::map<std::string, std::string> base_paths;
  {
    MutexLock lock(mu_);
    for (const auto& [name, entry] : entries_) base_paths[name] = entry.config().base_path;
  }
  const Scan scan = ScanAll(base_paths);
  bool changed;
  {
    MutexLock lock(mu_);
    Merge(scan);
    changed = Republish();
  }
  if (changed) observer_->OnReadinessChanged();
  watcher_->Watch(scan.directories);
  const std::string notice(watcher_->status().message());
  if (notice != std::exchange(watcher_notice_, notice) && !notice.empty()) {
    observer_->OnNotice("", 0, notice);
  }
}

std::string ModelManagerImpl::Readiness(const ServedModels& served) {
  // Which models can be called, as text that is compared with the last one.
  std::string readiness = looked_ ? "looked;" : "";
  bool any = false, all = true;
  for (const auto& [name, entry] : entries_) {
    if (!entry.configured() && !entry.has_versions()) continue;
    const bool callable = served.models.at(name).Default() != nullptr;
    any = true;
    if (entry.config().required && !callable) all = false;
    absl::StrAppend(&readiness, name, callable ? "=1;" : "=0;");
  }
  if (looked_ && any && all) ready_.store(true, std::memory_order_release);
  return readiness;
}

bool ModelManagerImpl::Republish() {
  const steady_clock::time_point now = options_.now();
  auto served = std::make_shared<ServedModels>();
  std::vector<ModelHandle> withdrawn;  // Dropped after the snapshot that had them.
  for (auto it = entries_.begin(); it != entries_.end();) {
    for (ModelHandle& handle : it->second.TakeUnwanted(now)) withdrawn.push_back(std::move(handle));
    if (it->second.Forgettable(now)) {
      it = entries_.erase(it);
      continue;
    }
    served->models[it->first] = it->second.Served();
    ++it;
  }
  std::string readiness = Readiness(*served);
  std::shared_ptr<const ServedModels> old = std::move(served);
  {
    MutexLock lock(snapshot_mu_);
    old.swap(snapshot_);
  }
  return readiness != std::exchange(readiness_, readiness);
}

std::optional<ModelManagerImpl::Job> ModelManagerImpl::NextJob() {
  const steady_clock::time_point now = options_.now();
  std::optional<Job> best;
  bool best_serves = false;
  for (const auto& [name, entry] : entries_) {
    const std::optional<int64_t> version = entry.NextToLoad(now);
    if (!version.has_value()) continue;
    const bool serves = entry.serves();
    if (best.has_value() && (serves || !best_serves)) continue;
    best = Job{.name = name,
               .version = *version,
               .directory = absl::StrCat(entry.config().base_path, "/", *version)};
    best_serves = serves;
  }
  if (best.has_value()) {
    VersionWatch* watch = WatchOf(*best);
    watch->LoadStarted();
    best->fingerprint = watch->fingerprint();
  }
  return best;
}

VersionWatch* ModelManagerImpl::WatchOf(const Job& job) {
  const auto entry = entries_.find(job.name);
  return entry == entries_.end() ? nullptr : entry->second.FindWatch(job.version);
}

absl::StatusOr<std::unique_ptr<const engine::Model>> ModelManagerImpl::Load(const Job& job) {
  const engine::LoadOptions load{.directory = job.directory,
                                 .name = job.name,
                                 .version = job.version,
                                 .layer_types = options_.layer_types};
  if (options_.load) return options_.load(load);
  std::vector<std::string> notices;
  auto model = LoadAndWarmUp(load, notices);
  for (const std::string& notice : notices) observer_->OnNotice(job.name, job.version, notice);
  return model;
}

void ModelManagerImpl::RunJob(const Job& job) {
  const steady_clock::time_point start = steady_clock::now();
  const absl::StatusOr<engine::DirectoryState> before = engine::InspectDirectory(job.directory);
  // Changed since the look that made the job: the next look decides.
  if (!before.ok() || before->fingerprint != job.fingerprint) return Abandon(job, before);
  if (!before->complete) {
    return Refuse(job, engine::WithLoadReason(
                           absl::FailedPreconditionError(absl::StrCat(
                               "model \"", job.name, "\" v", job.version, ": not complete, and no ",
                               engine::kSuccessFile, ": ", before->missing)),
                           LoadReason::kIncomplete));
  }
  absl::StatusOr<std::unique_ptr<const engine::Model>> model = Load(job);
  const absl::StatusOr<engine::DirectoryState> after = engine::FingerprintDirectory(job.directory);
  if (!after.ok() || after->fingerprint != job.fingerprint) return Discard(job, after);
  if (!model.ok()) return Refuse(job, model.status());
  Publish(job, *std::move(model), steady_clock::now() - start);
}

void ModelManagerImpl::Abandon(const Job& job,
                               const absl::StatusOr<engine::DirectoryState>& state) {
  if (!state.ok() && !absl::IsNotFound(state.status())) return Refuse(job, state.status());
  MutexLock lock(mu_);
  VersionWatch* watch = WatchOf(job);
  watch->LoadAbandoned();
  if (state.ok()) {
    watch->Seen(*state, options_.now(), system_clock::now() - state->newest_change);
  } else {
    watch->Gone(options_.now());
  }
}

void ModelManagerImpl::Refuse(const Job& job, const absl::Status& error) {
  {
    MutexLock lock(mu_);
    WatchOf(job)->Refused(job.fingerprint, error, options_.now());
    Republish();  // The reason goes into what Find says.
  }
  observer_->OnLoadFailed(job.name, job.version,
                          engine::LoadReasonName(engine::LoadReasonOf(error)), error);
}

void ModelManagerImpl::Discard(const Job& job,
                               const absl::StatusOr<engine::DirectoryState>& state) {
  if (!state.ok() && !absl::IsNotFound(state.status())) return Refuse(job, state.status());
  const absl::Status error = engine::WithLoadReason(
      absl::AbortedError(absl::StrCat("model \"", job.name, "\" v", job.version,
                                      ": the files changed while they were loaded; they are loaded "
                                      "again when they have settled")),
      LoadReason::kChanged);
  {
    MutexLock lock(mu_);
    VersionWatch* watch = WatchOf(job);
    if (state.ok()) {
      watch->ChangedDuringLoad(*state, options_.now(), system_clock::now() - state->newest_change,
                               error);
    } else {
      watch->LoadAbandoned();
      watch->Gone(options_.now());
    }
    Republish();
  }
  observer_->OnLoadFailed(job.name, job.version,
                          engine::LoadReasonName(engine::LoadReasonOf(error)), error);
}

std::shared_ptr<Lane> ModelManagerImpl::NewLane(const std::string& name,
                                                const engine::Model& model) const {
  std::shared_ptr<Lane> before;
  Lane::Limits limits;
  {
    MutexLock lock(mu_);
    const ModelEntry& entry = entries_.at(name);
    limits = entry.config().limits;
    // The contents of one model cost about the same.
    const ServedVersions others = entry.Served();
    if (!others.versions.empty()) before = others.versions.back()->lane;
  }
  return MakeLane(model, name, limits,
                  before == nullptr ? MeasureCost(model) : before->cost().parts());
}

void ModelManagerImpl::Publish(const Job& job, std::unique_ptr<const engine::Model> model,
                               std::chrono::nanoseconds load_time) {
  auto served = std::make_unique<ServedModel>();
  served->model = std::move(model);
  served->name = job.name;
  served->version = job.version;
  served->lane = NewLane(job.name, *served->model);
  served->published_at = system_clock::now();
  ModelHandle handle;
  {
    MutexLock lock(mu_);
    served->generation = generation_.load(std::memory_order_relaxed) + 1;
    handle = reaper_->Own(std::move(served));
    generation_.store(handle->generation, std::memory_order_release);
    ModelEntry& entry = entries_.at(job.name);
    VersionWatch& watch = entry.watch(job.version);
    if (watch.serving() != nullptr) entry.Retired(watch.serving());
    watch.Published(job.fingerprint, handle);
    Republish();
  }
  observer_->OnPublished(*handle, load_time);
  observer_->OnReadinessChanged();
}

absl::StatusOr<ModelHandle> ModelManagerImpl::Find(const ModelChoice& choice) const {
  std::shared_ptr<const ServedModels> snapshot;
  {
    MutexLock lock(snapshot_mu_);
    snapshot = snapshot_;
  }
  return snapshot->Find(choice);
}

std::vector<ModelStatus> ModelManagerImpl::List() const {
  MutexLock lock(mu_);
  std::vector<ModelStatus> list;
  for (const auto& [name, entry] : entries_) list.push_back(entry.Status(options_.now()));
  return list;
}

std::vector<std::string> ModelManagerImpl::LabelsOf(const std::string& name,
                                                    int64_t version) const {
  MutexLock lock(mu_);
  std::vector<std::string> labels;
  const auto entry = entries_.find(name);
  if (entry == entries_.end()) return labels;
  for (const auto& [label, labelled] : entry->second.config().labels) {
    if (labelled == version) labels.push_back(label);
  }
  return labels;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ModelManager>> ModelManager::Create(ModelManagerOptions options,
                                                                   ModelObserver* observer) {
  RETURN_IF_ERROR(CompleteOptions(options));
  ASSIGN_OR_RETURN(std::unique_ptr<DirectoryWatcher> watcher,
                   DirectoryWatcher::Create(options.use_inotify));
  return std::unique_ptr<ModelManager>(
      new ModelManagerImpl(std::move(options), observer, std::move(watcher)));
}

}  // namespace ulfd::server

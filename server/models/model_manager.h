// The model manager: watches the repository, loads what is wanted, publishes it atomically, frees
// what is not.
//
// The source of truth is the directory tree; the manager alone decides what is loaded.  No load,
// check or free ever runs on a calling thread: poll looks, loader loads and carries out changes,
// reaper, folder and checker (their own files) free, fold and compare checksums; a ModelHandle
// dropped elsewhere only queues its model.  There is no spontaneous unloading: a version that
// serves goes on serving until its replacement is published or its directory is gone for good and
// the policy no longer wants it.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_MODELS_MODEL_MANAGER_H_
#define ULFD_SERVER_MODELS_MODEL_MANAGER_H_

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/errors.h"
#include "base/mutex.h"
#include "server/models/change_plan.h"
#include "server/models/hot_ids.h"
#include "server/models/model_change.h"
#include "server/models/model_lookup.h"
#include "server/models/model_manager_options.h"
#include "server/models/model_observer.h"
#include "server/models/model_table.h"
#include "server/models/model_types.h"
#include "server/models/reaper.h"
#include "server/models/repository.h"
#include "server/models/served_models.h"
#include "server/models/table_checker.h"
#include "server/models/table_folder.h"
#include "server/models/version_loader.h"
#include "server/models/version_rules.h"

namespace ulfd::server {

// What blocks on what: mu_ guards the bookkeeping and is held for short computations only, never
// during I/O, a load, or a call of the observer.  snapshot_mu_ guards one pointer.  Find takes only
// snapshot_mu_.  Order: mu_ before snapshot_mu_.
class ModelManager final : public ModelLookup {
 public:
  // NOT_FOUND / INVALID_ARGUMENT if the repository or a base_path does not exist, or a label names
  // a version that the policy excludes.  Does not load anything yet.
  static absl::StatusOr<std::unique_ptr<ModelManager>> Create(ModelManagerOptions options,
                                                              ModelObserver* observer);
  // Stops the threads (ends the load that runs); handles that are still held stay valid until
  // dropped, and whoever drops the last one then frees the model.
  ~ModelManager() override;

  // Starts the threads (none if poll_interval < 0).
  void Start();
  // One step by hand: looks at the repository, loads what is due, publishes, unloads.  Only without
  // threads.
  void Poll();
  // Looks at the repository now instead of at the next poll and returns when everything that was
  // due is loaded or refused and the observer has heard of it, or with DEADLINE_EXCEEDED at the
  // deadline, naming what is not.
  // Content that has to settle first is not due.  Any thread; without threads it is Poll.
  absl::Status PollNow(std::chrono::steady_clock::time_point deadline);

  // Carries out the change that `make` returns, after those that were asked for before it; both
  // that and `done` are called on the loader thread, where `make` may read files.  Without threads
  // it is done when this returns.  An error of `make` is the result.  UNAVAILABLE once the manager
  // stops.  RESOURCE_EXHAUSTED if too many wait already; `done` is then called at once.  Any
  // thread.
  void Apply(std::function<absl::StatusOr<ModelChange>()> make,
             std::function<void(ModelChangeResult)> done);

  absl::StatusOr<ModelHandle> Find(const ModelChoice& choice) const override {
    return snapshot()->Find(choice);
  }
  std::optional<ShadowTarget> FindShadow(const std::string& name) const override {
    return snapshot()->FindShadow(name);
  }
  absl::Status CheckAccess(const ModelChoice& choice) const override {
    return snapshot()->CheckAccess(choice);
  }
  std::vector<ModelStatus> List(const std::string& name = "") const override;
  std::vector<int64_t> VersionsOf(const std::string& name) const override;
  std::vector<std::string> LabelsOf(const std::string& name, int64_t version) const override;
  bool Ready() const override { return ready_.load(std::memory_order_acquire); }
  int64_t generation() const override { return generation_.load(std::memory_order_acquire); }
  int64_t changes() const override { return snapshots_.load(std::memory_order_acquire); }
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

  ModelManager(ModelManagerOptions options, ModelObserver* observer);
  std::shared_ptr<const ServedModels> snapshot() const {
    MutexLock lock(snapshot_mu_);
    return snapshot_;
  }
  static absl::Status Stopping() { return Unavailable("the model manager is stopping"); }
  void PollLoop();
  void LoaderLoop();
  // At the repository.  Whether it was possible: there may be no memory for all that lies there.
  bool Look();
  absl::Status LookOnce();
  // CANCELLED when the manager stops; RESOURCE_EXHAUSTED if there is no memory for it.
  absl::StatusOr<RepositoryScan> Scan(const ModelPlaces& places,
                                      const std::optional<std::string>& only) const;
  // Of every model that serves.
  void KeepHotIds() const;
  void RunJob(const LoadJob& job);
  void MakePlans(const ModelHandle& handle);
  void Publish(const LoadJob& job, LoadOutcome outcome);
  void ReportFailure(const LoadJob& job, const LoadOutcome& outcome);
  void ReportRefusedEpochs(const LoadJob& job, const LoadOutcome& outcome);

  // What the folder made, published in the place of what serves.
  void RunFold(const TableFold& fold);
  // Tables of a model that serves from now on, some to be checked or folded.
  void OfferTables(const ModelHandle& handle, const std::string& directory);

  ModelChangeResult RunChange(absl::StatusOr<ModelChange> made);
  // Fills in what CompleteOptions fills in, and checks it.
  absl::Status CheckConfigure(ModelChange& change) const;
  absl::StatusOr<RepositoryScan> ScanFor(const ModelChange& change) const;
  // Loads what the plan wants; outcomes go to `plan.models`.  Whether all went well.
  bool LoadGoals(const RepositoryScan& scan, std::vector<StagedLoad>& loads, ChangePlan& plan);
  // Remembers that the content was refused, so that the next look does not try it again.
  void Remember(const RepositoryScan& scan, const StagedLoad& load);
  absl::Status Commit(const ModelChange& change, const RepositoryScan& scan,
                      std::vector<StagedLoad>& loads, ChangePlan& plan);
  // Hands on what operators changed.
  std::optional<absl::Status> KeepStates() const;
  // Marks content that an operator rejected as in quarantine.  Reads all of it.
  void QuarantineRejected(const ChangePlan& plan);
  // Makes the model one of the next generation.
  ModelHandle Own(std::unique_ptr<ServedModel> served) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Puts a loaded model into the table.
  ModelHandle Adopt(const LoadJob& job, LoadOutcome& outcome) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Publishes what the table holds as the next generation.
  void PublishTable() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Unloads what is due, makes the snapshot, and returns whether readiness changed.
  bool Republish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  const ModelManagerOptions options_;
  ModelObserver* const observer_;
  const VersionRules rules_;
  const RepositoryScanner scanner_;
  std::unique_ptr<Reaper> reaper_;
  const HotIds hot_ids_;
  VersionLoader loader_;
  std::unique_ptr<TableFolder> folder_;
  std::unique_ptr<TableChecker> checker_;

  mutable Mutex mu_;
  mutable CondVar work_;  // Something may be due for the loader, or stopping.
  CondVar done_;          // A look or a load has ended.
  CondVar look_;          // A look is wanted, or stopping.
  ModelTable table_ ABSL_GUARDED_BY(mu_);
  std::deque<PendingChange> changes_ ABSL_GUARDED_BY(mu_);
  std::deque<TableFold> folds_ ABSL_GUARDED_BY(mu_);
  int64_t configurations_ ABSL_GUARDED_BY(mu_) = 0;  // How often the set of models was changed.
  int64_t looks_wanted_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t looks_done_ ABSL_GUARDED_BY(mu_) = 0;
  bool looked_ ABSL_GUARDED_BY(mu_) = false;
  // As the last look found them.
  ModelTable::Unreadables unreadable_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, std::string> left_out_ ABSL_GUARDED_BY(mu_);
  bool loading_ ABSL_GUARDED_BY(mu_) = false;  // Also while observers hear of a load's end.
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::string readiness_ ABSL_GUARDED_BY(mu_);
  bool complete_once_ ABSL_GUARDED_BY(mu_) = false;  // Every model that is waited for served.
  std::atomic<bool> ready_ = false;
  std::atomic<int64_t> generation_ = 0;
  std::atomic<int64_t> snapshots_ = 0;  // Made so far.

  mutable Mutex snapshot_mu_;
  std::shared_ptr<const ServedModels> snapshot_ ABSL_GUARDED_BY(snapshot_mu_);

  Mutex step_mu_;  // Serialises steps by hand.
  bool started_ = false;
  std::thread poll_thread_, loader_thread_;
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_MODELS_MODEL_MANAGER_H_

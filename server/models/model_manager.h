// The model manager: watches the repository, loads what is wanted, publishes it atomically, frees
// what is not.
//
// The source of truth is the directory tree; the manager alone decides what is loaded.  No load,
// check or free ever runs on a calling thread: loads run on the manager's loader thread, frees on
// its reaper thread (a ModelHandle dropped elsewhere only queues the model).  There is no
// spontaneous unloading: a version that serves goes on serving until its replacement is published
// or its directory is gone for good and the policy no longer wants it.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_MODELS_MODEL_MANAGER_H_
#define ULFD_SERVER_MODELS_MODEL_MANAGER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/layers/layer.h"
#include "engine/runtime/model.h"
#include "server/models/quarantine.h"
#include "server/scheduler/lane.h"

namespace ulfd::server {

// One published content of one version.  Immutable.
struct ServedModel {
  std::unique_ptr<const engine::Model> model;
  std::string name;
  int64_t version = 0;
  int64_t generation = 0;  // Which publication of the whole server put it in place.
  int64_t file_bytes = 0;  // Of the directory that it was loaded from.
  std::chrono::system_clock::time_point published_at;
  std::shared_ptr<Lane> lane;  // Where its calls queue; never null once published.
};
// Keeps a model alive during a request.  Dropping the last handle never frees on the dropping
// thread.
using ModelHandle = std::shared_ptr<const ServedModel>;

// Sends a share of the requests without version and label to the version of a label.
struct CanaryConfig {
  std::string label;
  double share = 0;      // 0..1
  std::string metadata;  // Metadata key that tells users apart, or
  std::string feature;   // the user feature that does; both empty: every request by itself.
  bool operator==(const CanaryConfig&) const = default;
};

// Scores a share of the requests again with the version of a label.
struct ShadowConfig {
  std::string label;
  double share = 0;  // 0..1
  int max_queued = 16;
  bool operator==(const ShadowConfig&) const = default;
};

// Who asks, as far as a canary has to know.
class Caller {
 public:
  virtual ~Caller() = default;
  // Equal for requests of one user; random where the user cannot be told.
  virtual int64_t Hash(const CanaryConfig& canary) const = 0;
};

// Which model a request wants; at most one of version and label is set.
struct ModelChoice {
  std::string name;
  std::optional<int64_t> version;
  std::string label;
  const Caller* caller = nullptr;  // Borrowed for the look-up; null: never a canary's.
  // All names of the client that asks; nullopt: nobody whose access has to be checked.
  std::optional<std::vector<std::string>> client;
};

// Which versions of a model are wanted.
struct VersionPolicy {
  int latest = 1;                 // The highest n versions, if `specific` is empty.
  std::vector<int64_t> specific;  // Exactly these.
  bool operator==(const VersionPolicy&) const = default;
};

struct ModelConfig {
  std::string name;
  // Holds the version directories.  Empty: the repository's directory of that name.
  std::string base_path;
  VersionPolicy policy;
  // label -> version.  A labelled version is wanted in addition to those of the policy.  "stable"
  // is what requests without version and label get; without it they get the highest version that
  // serves.
  std::map<std::string, int64_t> labels;
  bool required = true;  // Ready() waits for it.
  Lane::Limits limits;   // Of each generation, for the scheduler.
  std::optional<CanaryConfig> canary;
  std::optional<ShadowConfig> shadow;
  // Names of clients that may use it; empty: ModelManagerOptions::default_clients.
  std::vector<std::string> allowed_clients;
  // Share of its calls that is recorded; nullopt: the recorder's.  The manager only reports changes.
  std::optional<double> record_share;
  bool operator==(const ModelConfig&) const = default;
};

// What one load may take.
struct LoadBounds {
  int64_t max_memory_bytes = 0;  // At a time; 0: what memory_budget_bytes leaves, and an eighth.
  std::chrono::milliseconds max_time{900000};
  int64_t max_files = 10000;  // In a version directory and below.
};

struct ModelManagerOptions {
  // Every subdirectory is a model (required for Ready() once it holds a version directory), except
  // where `models` has an entry of the same name.  Empty: only `models`.
  std::string repository;
  std::vector<ModelConfig> models;
  VersionPolicy default_policy;
  // Clients that may use models which name none; "*": every one.
  std::vector<std::string> default_clients = {"*"};
  std::chrono::milliseconds poll_interval{1000};  // < 0: never; the tests step by hand with Poll().
  bool use_inotify = true;  // Wakes the poll early.  Polling goes on either way.
  // For how long nothing in a version directory may have changed before it is loaded without
  // _SUCCESS (version_watch.h has the rules), and for how long a model or version must be gone
  // before that counts.
  std::chrono::milliseconds settle_time{2000};
  // After an I/O error; doubles up to a minute.  Bad content is not retried until it changes
  // (engine::IsContentError says which codes are which).
  std::chrono::milliseconds retry_backoff{1000};
  // Layer types of plug-ins; borrowed, they outlive every model.
  absl::Span<const engine::LayerType* const> layer_types = {};
  // What all models together may hold while one is loaded aside; 0: DefaultMemoryBudget().
  int64_t memory_budget_bytes = 0;
  LoadBounds load_bounds;
  // Directories that symbolic links among the files of a version may lead into, too
  // (version_rules.h).
  std::vector<std::string> link_targets;
  // What a run before publication may take; 0: no limit.  Unit: bytes.
  int64_t max_request_memory_bytes = 0;
  // Called on the loader thread with a model that is loaded and warm, before it is published: a last
  // check of its own, such as of recorded scores, whose runs are to be done with `run`.  An error,
  // which names neither model nor version, refuses the version; `notices` go to the observer.  Null:
  // none.
  std::function<absl::Status(const engine::Model& model, const std::string& directory,
                             const engine::RunOptions& run, std::vector<std::string>& notices)>
      check;
  // Injected for tests; defaults: LoadAndWarmUp of warm_up.h, the steady clock.
  std::function<absl::StatusOr<std::unique_ptr<const engine::Model>>(const engine::LoadOptions&)>
      load;
  std::function<std::chrono::steady_clock::time_point()> now;
};

enum class VersionState { kWaiting, kLoading, kServing, kFailed, kUnloading };

struct VersionStatus {
  int64_t version = 0;
  VersionState state = VersionState::kWaiting;
  std::string
      error;  // Why the newest content is not served; clipped to 1 KiB on the wire by the service.
  ModelHandle serving;  // Null if no content of this version is published.
  std::vector<std::string> labels;
  std::optional<QuarantinedContent> quarantine;  // Of the newest content.
};

struct ModelStatus {
  std::string name;
  bool required = false;
  std::string error;
  std::vector<VersionStatus> versions;  // Ascending.
};

// What the manager reports as it happens; called from the poll, loader and reaper threads (or from
// Poll), possibly at the same time, never with a lock held.  Must outlive the manager.
class ModelObserver {
 public:
  virtual ~ModelObserver() = default;
  virtual void OnPublished(const ServedModel& model, std::chrono::nanoseconds load_time) {}
  // reason: a word of engine::LoadReason, for a metric label; error: the whole text.
  virtual void OnLoadFailed(const std::string& name, int64_t version, absl::string_view reason,
                            const absl::Status& error) {}
  // One published content is gone: withdrawn or replaced, dropped by its last request, and freed.
  virtual void OnUnloaded(const std::string& name, int64_t version, int64_t generation) {}
  // After every publication, when a model goes away, and at the end of the first poll: whether each
  // model can be called, and the whole.
  virtual void OnReadinessChanged() {}
  // Something an operator should read that stops nothing.  `name` is empty and `version` 0 if it
  // concerns the repository.
  virtual void OnNotice(const std::string& name, int64_t version, const std::string& notice) {}
};

struct ModelChange;        // server/models/model_change.h
struct ModelChangeResult;  // server/models/model_change.h

// Where calls of a model are to be scored again.
struct ShadowTarget {
  ModelHandle handle;
  double share = 0;    // Of the calls that another version answered.
  int max_queued = 0;  // Calls of the model that may wait.
};

class ModelManager {
 public:
  // NOT_FOUND / INVALID_ARGUMENT if the repository or a base_path does not exist, a name repeats, a
  // label names a version that the policy excludes.  Does not load anything yet.
  static absl::StatusOr<std::unique_ptr<ModelManager>> Create(ModelManagerOptions options,
                                                              ModelObserver* observer);
  // Stops the threads (ends the load that runs); handles that are still held stay valid until
  // dropped, and whoever drops the last one then frees the model.
  virtual ~ModelManager() = default;

  // Starts the threads (none if poll_interval < 0).
  virtual void Start() = 0;
  // One step by hand: looks at the repository, loads what is due, publishes, unloads.  Only without
  // threads.
  virtual void Poll() = 0;
  // Looks at the repository now instead of at the next poll and returns when everything that was
  // due is loaded or refused, or with DEADLINE_EXCEEDED at the deadline, naming what is not.
  // Content that has to settle first is not due.  Any thread; without threads it is Poll.
  virtual absl::Status PollNow(std::chrono::steady_clock::time_point deadline) = 0;

  // Carries out the change that `make` returns, after those that were asked for before it; both that
  // and `done` are called on the loader thread, where `make` may read files.  Without threads it is
  // done when this returns.  An error of `make` is the result.  UNAVAILABLE once the manager stops.
  // RESOURCE_EXHAUSTED if too many wait already; `done` is then called at once.  Any thread.
  virtual void Apply(std::function<absl::StatusOr<ModelChange>()> make,
                     std::function<void(ModelChangeResult)> done) = 0;

  // The model that a request wants.  Any thread; takes no lock that a load holds.  PERMISSION_DENIED if
  // choice.client may not use the model, by the rules that were published together with what would
  // be found; NOT_FOUND names what is unknown (model, version, label) and what exists; UNAVAILABLE if
  // the model is known but nothing of it is published yet.
  virtual absl::StatusOr<ModelHandle> Find(const ModelChoice& choice) const = 0;
  // The version that shadows the model, if it is configured and published.  Any thread; as cheap as
  // Find.
  virtual std::optional<ShadowTarget> FindShadow(const std::string& name) const = 0;
  // PERMISSION_DENIED if choice.client may not use the model, whether it is there or not.
  virtual absl::Status CheckAccess(const ModelChoice& choice) const = 0;
  // Every model and version known, sorted.
  virtual std::vector<ModelStatus> List() const = 0;
  // Labels that name this version of the model.
  virtual std::vector<std::string> LabelsOf(const std::string& name, int64_t version) const = 0;
  // True once every required model could be called (without version and label), and from then on.
  // False before the first look, and while a repository holds no model at all.
  virtual bool Ready() const = 0;
  // Publications so far.
  virtual int64_t generation() const = 0;
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_MODELS_MODEL_MANAGER_H_

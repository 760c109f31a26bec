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
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/models/model_change.h"
#include "server/models/model_lookup.h"
#include "server/models/model_manager_options.h"
#include "server/models/model_observer.h"

namespace ulfd::server {

class ModelManager : public ModelLookup {
 public:
  // NOT_FOUND / INVALID_ARGUMENT if the repository or a base_path does not exist, a name repeats, a
  // label names a version that the policy excludes.  Does not load anything yet.
  static absl::StatusOr<std::unique_ptr<ModelManager>> Create(ModelManagerOptions options,
                                                              ModelObserver* observer);
  // Stops the threads (ends the load that runs); handles that are still held stay valid until
  // dropped, and whoever drops the last one then frees the model.
  ~ModelManager() override = default;

  // Starts the threads (none if poll_interval < 0).
  virtual void Start() = 0;
  // One step by hand: looks at the repository, loads what is due, publishes, unloads.  Only without
  // threads.
  virtual void Poll() = 0;
  // Looks at the repository now instead of at the next poll and returns when everything that was
  // due is loaded or refused and the observer has heard of it, or with DEADLINE_EXCEEDED at the
  // deadline, naming what is not.
  // Content that has to settle first is not due.  Any thread; without threads it is Poll.
  virtual absl::Status PollNow(std::chrono::steady_clock::time_point deadline) = 0;

  // Carries out the change that `make` returns, after those that were asked for before it; both
  // that and `done` are called on the loader thread, where `make` may read files.  Without threads
  // it is done when this returns.  An error of `make` is the result.  UNAVAILABLE once the manager
  // stops.  RESOURCE_EXHAUSTED if too many wait already; `done` is then called at once.  Any
  // thread.
  virtual void Apply(std::function<absl::StatusOr<ModelChange>()> make,
                     std::function<void(ModelChangeResult)> done) = 0;
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_MODELS_MODEL_MANAGER_H_

// The bookkeeping of every model: what was seen, what is wanted, what serves.  Pure state without
// I/O or thread; the manager guards it, and tries changes on a copy first.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_MODELS_MODEL_TABLE_H_
#define ULFD_SERVER_MODELS_MODEL_TABLE_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/models/model_entry.h"
#include "server/models/model_manager_options.h"
#include "server/models/model_types.h"
#include "server/models/repository.h"
#include "server/models/served_models.h"
#include "server/models/version_loader.h"

namespace ulfd::server {

class ModelTable {
 public:
  using TimePoint = VersionWatch::TimePoint;

  explicit ModelTable(const ModelManagerOptions& options);

  // Where to look, for RepositoryScanner.
  ModelPlaces Places() const;
  // Takes in what a look found.
  void Merge(const RepositoryScan& scan, TimePoint now,
             std::chrono::system_clock::time_point wall_now);
  // Models (version 0) and versions that could not be looked at.
  using Unreadables = std::map<std::pair<std::string, int64_t>, absl::Status>;
  Unreadables Unreadable() const;
  // Of models, by name: what a look leaves out.
  std::map<std::string, std::string> LeftOut() const;

  // The next load that is due, marked as running; models of which nothing serves come first.
  std::optional<LoadJob> NextJob(TimePoint now);
  // The load of this content, whether due or not.  REQUIRES: the version is known.
  LoadJob JobFor(const std::string& name, int64_t version);
  // When NextJob may answer differently without a change.
  std::optional<TimePoint> NextDueAt(TimePoint now) const;
  // What loads or is due, as text.
  std::vector<std::string> Unfinished(TimePoint now) const;

  // Null if unknown.
  ModelEntry* Find(const std::string& name);
  VersionWatch* FindWatch(const std::string& name, int64_t version);
  const std::map<std::string, ModelEntry>& entries() const { return entries_; }

  // The result of a load that was not published: the version keeps what it has.
  void Refused(const LoadJob& job, const LoadOutcome& outcome, TimePoint now);
  void Published(const LoadJob& job, const ModelHandle& handle, const LoadOutcome& outcome,
                 TimePoint now);

  // Puts `after`, the same content in another form, in the place of `before`, which serves.
  void Replaced(const ModelHandle& before, const ModelHandle& after);

  // Takes out of service what no longer has to serve, into `withdrawn`, forgets what is gone, and
  // tells what serves now; versions that serve get the limits that are configured now.
  std::shared_ptr<ServedModels> Serve(TimePoint now, std::vector<ModelHandle>& withdrawn);
  struct Readiness {
    std::string callable;  // Which models can be called, as text to compare.
    bool any = false;      // One at least can be called.
    bool complete = true;  // Every required one can, and no first load of another is pending.
  };
  Readiness ReadinessOf(const ServedModels& served) const;

  // What operators changed, of models that are not there (yet), too.
  OperatorStates operator_states() const;

  std::vector<ModelStatus> List(TimePoint now, const std::string& name) const;
  std::vector<std::string> LabelsOf(const std::string& name, int64_t version) const;

  // Changes of the set of models; see change_plan.h.
  void set_default_policy(const VersionPolicy& policy) { default_policy_ = policy; }
  // How a model that is only found in the repository is configured.
  ModelConfig FoundConfig(const std::string& name) const;
  // An entry that knows nothing yet; the handles of the one that it replaces go to `withdrawn`.
  ModelEntry& Replace(const ModelConfig& config, bool configured,
                      std::vector<ModelHandle>& withdrawn);
  void Erase(const std::string& name, std::vector<ModelHandle>& withdrawn);

 private:
  // With what operators changed before the start.
  ModelEntry& Add(const ModelConfig& config, bool configured);

  std::string repository_;
  VersionPolicy default_policy_;
  std::vector<std::string> default_clients_;
  bool found_required_;
  VersionWatch::Options watch_;
  OperatorStates states_;  // From before the start, of models without an entry.
  std::map<std::string, ModelEntry> entries_;
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_MODELS_MODEL_TABLE_H_

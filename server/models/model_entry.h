// One model of the repository: its versions, which of them its policy wants, what to load next and
// what to unload.  Pure state like VersionWatch; the manager guards it.
//
// The rules, for latest(n).  Wanted are the n highest versions whose directory exists, and those
// that a label names.
//  - Wanted versions are loaded, the highest first; so is changed content of any version that
//    serves.  While nothing of the model serves and no wanted version can be loaded at this
//    moment (refused, half-copied, waiting), the next lower one that can is loaded instead.
//  - A version that is not wanted any more is unloaded once n wanted ones serve.  So an older one
//    serves on when the newest is broken, and one whose directory was deleted serves on until
//    another version is published in its place.
//  - Deleting the directory of the newest version under latest(1) therefore rolls back to the one
//    below, without a gap.
// For specific versions: exactly those are loaded, without a fall-back, and none is ever unloaded
// while the model exists.  A model whose whole directory is gone for settle_time is unloaded.
//
// What an operator says goes before the policy: a version may be pinned (wanted in addition), held
// (not to be served) or rejected (this content of it is not to be served).
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_MODELS_MODEL_ENTRY_H_
#define ULFD_SERVER_MODELS_MODEL_ENTRY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "server/models/model_manager_options.h"
#include "server/models/model_types.h"
#include "server/models/operator_state.h"
#include "server/models/quarantine.h"
#include "server/models/repository.h"
#include "server/models/served_models.h"
#include "server/models/version_watch.h"

namespace ulfd::server {

class ModelEntry {
 public:
  using TimePoint = VersionWatch::TimePoint;

  // `configured`: from ModelManagerOptions::models rather than found in the repository.
  ModelEntry(ModelConfig config, bool configured, const VersionWatch::Options& options)
      : config_(std::move(config)),
        configured_labels_(config_.labels),
        configured_(configured),
        options_(options) {}

  // Takes in what a look found.  `wall_now`: the clock of file times.
  void Update(const ModelScan& scan, TimePoint now, std::chrono::system_clock::time_point wall_now);
  // The directory could not be looked at: everything stays as it is.
  void Unreadable(const absl::Status& why);
  const absl::Status& unreadable() const { return unreadable_; }
  // Says that the last look left out versions, if it did.
  const std::string& left_out() const { return left_out_; }

  // The version to load next, if one is due.
  std::optional<int64_t> NextToLoad(TimePoint now) const;
  // Nothing serves yet, but a version that is wanted loads or will soon.  Content that still
  // changes settle_time after the first look is not waited for.
  bool FirstLoadPending() const;
  // The same of a version that the configuration names, whatever serves.
  bool NamedLoadPending() const;
  // The version that is being loaded.
  std::optional<int64_t> Loading() const;
  // When NextToLoad may answer differently without a change.
  std::optional<TimePoint> NextDueAt(TimePoint now) const;
  // Takes out of service what no longer has to serve and returns it; forgets versions without
  // directory and handle.
  std::vector<ModelHandle> TakeUnwanted(TimePoint now);
  // Remembers a handle that was replaced, to report it as long as somebody holds it.
  void Retired(const ModelHandle& handle);

  // What operators ask for; each stays until the opposite, or Reconfigure.
  void Pin(int64_t version, TimePoint now);  // Unless the policy wants it anyway.  Ends its hold.
  void Unpin(int64_t version) { pinned_.erase(version); }
  void Hold(int64_t version);
  void HoldAll();
  void EndHold(int64_t version);
  void EndHolds();
  void SetLabel(const std::string& label, int64_t version) { config_.labels[label] = version; }
  void RemoveLabel(const std::string& label) { config_.labels.erase(label); }
  // What they did ask for, and the same again in an entry that knows nothing yet.
  OperatorState operator_state() const;
  void Restore(const OperatorState& state);
  // A new configuration with the same base_path: ends pins and holds.
  void Reconfigure(ModelConfig config, bool configured);
  // Whether Reconfigure would change anything.
  bool Differs(const ModelConfig& config) const;
  // Versions that have to serve for the model to be as it is configured, ascending; of latest(n)
  // only those that exist.
  std::vector<int64_t> Wanted(TimePoint now) const;
  // Those that a look must not leave out: named, held or serving ones.
  std::set<int64_t> NamedVersions() const;
  // Wanted by a label or an operator.
  bool Named(int64_t version) const;

  // Tells which version requests get that say nothing; keeps their history.
  void NoteDefault(int64_t version);
  // The version to go back to: the default before the present one if it is still there, else the
  // highest one below that is.
  std::optional<int64_t> Previous() const;

  Quarantine& quarantine() { return quarantine_; }

  // REQUIRES: known.
  VersionWatch& watch(int64_t version) { return versions_.at(version); }
  const std::map<int64_t, VersionWatch>& versions() const { return versions_; }
  VersionWatch* FindWatch(int64_t version);
  const ModelConfig& config() const { return config_; }
  bool configured() const { return configured_; }
  bool has_versions() const { return !versions_.empty(); }
  bool serves() const;
  // Nothing is left of it: not configured, no directory, nothing that serves or loads.
  bool Forgettable(TimePoint now) const;

  ServedVersions Served() const;
  ModelStatus Status(TimePoint now) const;

 private:
  bool GoneForGood(TimePoint now) const {
    return gone_since_.has_value() && now - *gone_since_ >= options_.settle_time;
  }
  // Wanted by the policy itself (not by labels or operators), among those that are not gone for
  // good.
  std::set<int64_t> WantedByPolicy(TimePoint now) const;
  bool Held(int64_t version) const { return all_held_ || held_.contains(version); }

  ModelConfig config_;
  std::map<std::string, int64_t> configured_labels_;  // Before operators changed them.
  bool configured_;
  VersionWatch::Options options_;
  std::optional<TimePoint> first_seen_;
  std::string error_, left_out_;
  absl::Status unreadable_;
  std::optional<TimePoint> gone_since_;  // No directory of the model.
  std::map<int64_t, VersionWatch> versions_;
  std::map<int64_t, EpochLimit> restored_epochs_;  // Limits of versions that were not seen yet.
  std::set<int64_t> pinned_, held_;
  bool all_held_ = false;
  Quarantine quarantine_;
  std::vector<int64_t> defaults_;  // The last one is the present one.
  std::vector<std::weak_ptr<const ServedModel>> retired_;
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_MODELS_MODEL_ENTRY_H_

// One model of the repository: its versions, which of them its policy wants, what to load next and
// what to unload.  Pure state like VersionWatch; the manager guards it.
//
// The rules, for latest(n).  Wanted are the n highest versions whose directory exists, and those
// that a label names.
//  - Wanted versions are loaded, the highest first; so is changed content of any version that
//  serves.  While nothing of the model serves and no wanted version can be loaded at this
//    moment (refused, half-copied, waiting), the next lower one that can is loaded instead.
//  - A version that is not wanted any more is unloaded once n wanted ones serve: so an older
//  version serves on when the
//    newest is broken, and one whose directory was deleted serves on until another version is
//    published in its place.
//  - Deleting the directory of the newest version under latest(1) therefore rolls back to the one
//  below, without a gap.
// For specific versions: exactly those are loaded, without a fall-back, and none is ever unloaded
// while the model exists. A model whose whole directory is gone for settle_time is unloaded.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_MODEL_ENTRY_H_
#define ULFD_SERVER_MODEL_ENTRY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/runtime/model_directory.h"
#include "server/model_manager.h"
#include "server/repository.h"
#include "server/served_models.h"
#include "server/version_watch.h"

namespace ulfd::server {

// What one look found of one model.
struct ModelScan {
  absl::StatusOr<VersionList> listing;  // NOT_FOUND: its directory does not exist.
  std::map<int64_t, absl::StatusOr<engine::DirectoryState>> versions;
};

class ModelEntry {
 public:
  using TimePoint = VersionWatch::TimePoint;

  // `configured`: from ModelManagerOptions::models rather than found in the repository.
  ModelEntry(ModelConfig config, bool configured, const VersionWatch::Options& options)
      : config_(std::move(config)), configured_(configured), options_(options) {}

  // Takes in what a look found.  `wall_now`: the clock of file times.
  void Update(const ModelScan& scan, TimePoint now, std::chrono::system_clock::time_point wall_now);
  // The directory could not be looked at: everything stays as it is.
  void SetError(const absl::Status& error) { error_ = std::string(error.message()); }

  // The version to load next, if one is due.
  std::optional<int64_t> NextToLoad(TimePoint now) const;
  // The version that is being loaded.
  std::optional<int64_t> Loading() const;
  // When NextToLoad may answer differently without a change.
  std::optional<TimePoint> NextDueAt(TimePoint now) const;
  // Takes out of service what no longer has to serve and returns it; forgets versions without
  // directory and handle.
  std::vector<ModelHandle> TakeUnwanted(TimePoint now);
  // Remembers a handle that was replaced, to report it as long as somebody holds it.
  void Retired(const ModelHandle& handle);

  // REQUIRES: known.
  VersionWatch& watch(int64_t version) { return versions_.at(version); }
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
  // Wanted by the policy itself (not by labels), among those that are not gone for good.
  std::set<int64_t> WantedByPolicy(TimePoint now) const;
  bool Labelled(int64_t version) const;

  ModelConfig config_;
  bool configured_;
  VersionWatch::Options options_;
  std::string error_;
  std::optional<TimePoint> gone_since_;  // No directory of the model.
  std::map<int64_t, VersionWatch> versions_;
  std::vector<std::weak_ptr<const ServedModel>> retired_;
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_MODEL_ENTRY_H_

// Loads one version aside: everything between "this directory is to be loaded" and "this model can
// be published".  Reads files and computes; decides nothing about what serves.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_MODELS_VERSION_LOADER_H_
#define ULFD_SERVER_MODELS_VERSION_LOADER_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/load_scope.h"
#include "engine/directory/model_directory.h"
#include "engine/runtime/model.h"
#include "server/models/hot_ids.h"
#include "server/models/model_manager_options.h"
#include "server/models/model_observer.h"
#include "server/models/model_types.h"
#include "server/models/quarantine.h"
#include "server/models/reaper.h"
#include "server/models/version_rules.h"

namespace ulfd::server {

struct LoadJob {
  std::string name;
  int64_t version = 0;
  std::string directory;
  std::string fingerprint;  // What was seen there.
  // What serves, if only deltas are to be put on top; null: everything is loaded.
  ModelHandle base;
  std::vector<engine::EpochMark> epochs;  // Deltas to apply, ascending.
  // What is loaded has to have this epoch.
  std::optional<int64_t> want_epoch;
  // What is not tried again; empty where an operator asks for the load.
  Quarantine quarantine;
  bool named = false;  // By a label or an operator.
  Lane::Limits limits;
  std::string canary_feature;  // That tells users apart, if the canary goes by one.
  // What calls of another version of the model cost, if one serves.
  std::optional<CostModel::Parts> cost;
  ModelHandle before;        // That version; null: none.
  int64_t staged_bytes = 0;  // Held by models that the same change has loaded already.
  // What a version of this model needed, if one was loaded.
  std::optional<double> bytes_per_file_byte;
  // Of tables that what serves holds and that the new content may share.
  int64_t shared_bytes = 0;
};

struct LoadOutcome {
  enum class Kind : uint8_t {
    kLoaded,
    kRefused,  // `error`; bad content also has `quarantined`.
    kChanged,  // The files changed under the load: `error` and `state`.
    kMoved,    // They had changed before it, or were gone: nothing was tried; `state`.
  };
  Kind kind = Kind::kRefused;
  std::unique_ptr<ServedModel> served;  // kLoaded; without generation.
  std::string content;                  // Its content_hash without deltas; empty: that of the base.
  std::chrono::nanoseconds load_time{0};
  absl::Status error;
  std::optional<QuarantinedContent> quarantined;
  // Deltas that could not be applied; kLoaded and kRefused.
  std::vector<std::pair<engine::EpochMark, absl::Status>> refused_epochs;
  bool known_bad = false;  // kRefused: it was in quarantine already, and was not tried.
  // What is there now; NOT_FOUND: nothing.
  absl::StatusOr<engine::DirectoryState> state = engine::DirectoryState();
};

class VersionLoader {
 public:
  // Borrows everything.  `options` is complete.
  VersionLoader(const ModelManagerOptions& options, const VersionRules& rules, const Reaper& reaper,
                const HotIds& hot_ids, ModelObserver& observer)
      : options_(options), rules_(rules), reaper_(reaper), hot_ids_(hot_ids), observer_(observer) {}

  // On a background thread: takes as long as loading takes.  `gives_way`: calls are served
  // meanwhile, and are not to notice what is computed here.
  LoadOutcome Load(const LoadJob& job, bool gives_way) const;

  // Makes the plans that the model wants, within the limits of a load, and reports them.  On a
  // background thread.
  void MakePlans(const ServedModel& served) const;

  // Ends the load that runs, and every later one, with CANCELLED.  Any thread.
  void Cancel() { cancelled_.store(true); }
  const std::atomic<bool>& cancelled() const { return cancelled_; }

 private:
  class Attempt;
  // The limits of a load that begins now, of which models of `staged_bytes` are held already.
  LoadLimits Limits(const std::string& owner, int64_t staged_bytes) const;
  // What the budget leaves beside what models hold.
  int64_t MemoryLeft(int64_t staged_bytes) const;
  void ReportPlans(const std::string& name, int64_t version,
                   const std::vector<engine::ShapePlanInfo>& plans) const;

  const ModelManagerOptions& options_;
  const VersionRules& rules_;
  const Reaper& reaper_;
  const HotIds& hot_ids_;
  ModelObserver& observer_;
  std::atomic<bool> cancelled_ = false;
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_MODELS_VERSION_LOADER_H_

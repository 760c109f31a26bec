// A change of what is served that an operator asks for, and what became of it.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_MODELS_MODEL_CHANGE_H_
#define ULFD_SERVER_MODELS_MODEL_CHANGE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/models/model_types.h"

namespace ulfd::server {

// The rules are in proto/admin.proto, at the call of the same name.
struct ModelChange {
  enum class Kind : uint8_t { kLoad, kUnload, kSetLabel, kRollback, kConfigure };
  Kind kind = Kind::kLoad;
  std::string name;                 // Of the model; not for kConfigure.
  std::optional<int64_t> version;   // kSetLabel: nullopt takes the label away.
  std::optional<int64_t> epoch;     // kRollback
  std::string label;                // kSetLabel
  std::vector<ModelConfig> models;  // kConfigure: as in ModelManagerOptions.
  VersionPolicy default_policy;     // kConfigure
  bool dry_run = false;             // kConfigure: load and check, but publish nothing.
  // Called where the change is carried out, once it is in force; not for one that is refused, nor
  // for a dry run.  Null: nothing.
  std::function<void()> published;
};

// What became of one version.
struct VersionChange {
  enum class Outcome : uint8_t { kLoaded, kAlreadyServing, kUnloaded, kDiscarded, kFailed };
  int64_t version = 0;
  Outcome outcome = Outcome::kLoaded;
  absl::Status error;  // kFailed
};

// What became of one model.
struct ModelOutcome {
  std::string name;
  absl::Status error;
  std::vector<VersionChange> versions;
  bool removed = false;
};

struct ModelChangeResult {
  // Whether the change could be carried out; nothing has changed if not.  OK for a kConfigure whose
  // models cannot be loaded: see `applied`.
  absl::Status status;
  bool applied = false;
  int64_t generation = 0;            // Publications so far.
  std::vector<ModelOutcome> models;  // Sorted by name.
  // kRollback and kSetLabel: the version before (none: a new label); kRollback: the version after.
  std::optional<int64_t> from_version, to_version;
  // What ends what was changed: ReloadConfig; LoadModel, of versions in quarantine or of epochs
  // that stay out.
  enum class End : uint8_t { kReload, kLoad, kLoadEpochs };
  End end = End::kReload;
  // Whether what changed was kept for the next start; nullopt: nobody keeps it, or nothing changed.
  std::optional<absl::Status> kept;
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_MODELS_MODEL_CHANGE_H_

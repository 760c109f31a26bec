// What the model manager is told to do, checked.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_MODELS_MODEL_MANAGER_OPTIONS_H_
#define ULFD_SERVER_MODELS_MODEL_MANAGER_OPTIONS_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/directory/directory_tree.h"
#include "engine/layers/layer.h"
#include "engine/runtime/model.h"
#include "server/models/model_types.h"
#include "server/models/operator_state.h"
#include "server/models/table_folder.h"

namespace ulfd::server {

// What one load may take.
struct LoadBounds {
  int64_t max_memory_bytes = 0;  // At a time; 0: what memory_budget_bytes leaves, and an eighth.
  std::chrono::milliseconds max_time{900000};
  int64_t max_files = 10000;  // In a version directory and below.
};

// Ranges and defaults of what a file can set are those of ulfd.config.v1.
struct ModelManagerOptions {
  // Every subdirectory is a model, except where `models` has an entry of the same name.  Empty:
  // only `models`.
  std::string repository;
  // Whether models that are only found there are required (ModelConfig::required).
  bool found_required = false;
  std::vector<ModelConfig> models;
  VersionPolicy default_policy;
  // Clients that may use models which name none; "*": every one.
  std::vector<std::string> default_clients = {"*"};
  std::chrono::milliseconds poll_interval{0};  // < 0: never; the tests step by hand with Poll().
  // For how long nothing in a version directory may have changed before it is loaded without
  // _SUCCESS (version_watch.h has the rules), and for how long a model or version must be gone
  // before that counts.
  std::chrono::milliseconds settle_time{0};
  // After an I/O error; doubles up to a minute.  Bad content is not retried until it changes
  // (engine::IsContentError says which codes are which).
  std::chrono::milliseconds retry_backoff{0};
  // Layer types of plug-ins; borrowed, they outlive every model.
  absl::Span<const engine::LayerType* const> layer_types = {};
  // Where tables in Redis are; borrowed, they outlive every model.  Null: nowhere.
  const engine::RedisClusters* redis = nullptr;
  // What all models together may hold while one is loaded aside; 0: DefaultMemoryBudget().
  int64_t memory_budget_bytes = 0;
  LoadBounds load_bounds;
  FoldOptions fold;
  // Where ids of stored rows that are asked for most are kept for the next start; empty: nowhere.
  std::string hot_ids_directory;
  // Directories that symbolic links among the files of a version may lead into, too
  // (version_rules.h).
  std::vector<std::string> link_targets;
  // What a run before publication may take; 0: no limit.  Unit: bytes.
  int64_t max_request_memory_bytes = 0;
  // Called on the loader thread with a model that is loaded and warm, before it is published: a
  // last check of its own, such as of recorded scores, whose runs are to be done with `run`.  An
  // error, which names neither model nor version, refuses the version; `notices` go to the
  // observer.  Null: none.
  std::function<absl::Status(const engine::Model& model, const std::string& directory,
                             const engine::RunOptions& run, std::vector<std::string>& notices)>
      check;
  // Called on the loader thread with a version directory: the one to load instead, if it has
  // something that must be converted first (onnx_conversion.h).  Null: nothing is converted.
  std::function<absl::StatusOr<std::string>(const std::string& directory,
                                            const engine::DirectoryRules& rules)>
      convert;
  // What operators changed before the start.  It holds where the configuration still says the same
  // of a model; elsewhere it is dropped with a notice.
  OperatorStates operator_states;
  // Called on the loader thread after a change, with all that operators changed so far, for the
  // next start.  Null: a restart forgets it.
  std::function<absl::Status(const OperatorStates& states)> keep;
  // Injected for tests; defaults: LoadAndWarmUp of warm_up.h, the steady clock.
  std::function<absl::StatusOr<std::unique_ptr<const engine::Model>>(const engine::LoadOptions&)>
      load;
  std::function<std::chrono::steady_clock::time_point()> now;
};

// Fills in defaults (base_path, now), and checks the repository and the labels.  Directories of
// models may come later.  REQUIRES: models with names, policies, labels and shares that the
// configuration's own checks found good.
absl::Status CompleteOptions(ModelManagerOptions& options);

// Forgets what operators changed of models of which the configuration says something else by now,
// and returns their names.  REQUIRES: complete.
std::vector<std::string> DropOutdatedStates(ModelManagerOptions& options);

}  // namespace ulfd::server

#endif  // ULFD_SERVER_MODELS_MODEL_MANAGER_OPTIONS_H_

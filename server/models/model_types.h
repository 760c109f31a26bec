// What is served, what is asked for and what is configured: the types that the model manager, its
// callers and its configuration share.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_MODELS_MODEL_TYPES_H_
#define ULFD_SERVER_MODELS_MODEL_TYPES_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/directory/model_directory.h"
#include "engine/runtime/model.h"
#include "server/models/quarantine.h"
#include "server/scheduler/lane.h"

namespace ulfd::server {

// One published content of one version.  Immutable.
struct ServedModel {
  std::unique_ptr<const engine::Model> model;  // Never null once published.
  std::string name;
  int64_t version = 0;
  int64_t generation = 0;                 // Which publication of the whole server put it in place.
  int64_t file_bytes = 0;                 // Of the directory that it was loaded from.
  std::vector<engine::EpochMark> epochs;  // Deltas that it has, ascending.
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

// Who asks, as far as a canary has to know: equal for requests of one user; random where the user
// cannot be told.
using UserHash = std::function<int64_t(const CanaryConfig& canary)>;

// Which model a request wants; at most one of version and label is set.
struct ModelChoice {
  std::string name;
  std::optional<int64_t> version;
  std::string label;
  UserHash user_hash;  // For the look-up; null: never a canary's.
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
  // Share of its calls that is recorded; nullopt: the recorder's.  The manager only reports
  // changes.
  std::optional<double> record_share;
  bool operator==(const ModelConfig&) const = default;
};

// Where calls of a model are to be scored again.
struct ShadowTarget {
  ModelHandle handle;
  double share = 0;    // Of the calls that another version answered.
  int max_queued = 0;  // Calls of the model that may wait.
};

enum class VersionState { kWaiting, kLoading, kServing, kFailed, kUnloading };

struct VersionStatus {
  int64_t version = 0;
  VersionState state = VersionState::kWaiting;
  // Why the newest content, or a delta, is not served; clipped to 1 KiB on the wire by the service.
  std::string error;
  ModelHandle serving;  // Null if no content of this version is published.
  std::vector<std::string> labels;
  std::optional<QuarantinedContent> quarantine;  // Of the newest content.
  bool delta_refused = false;                    // The next one.
  // A label or the version policy names it, and it has no directory.
  bool missing = false;
};

struct ModelStatus {
  std::string name;
  bool required = false;
  std::string error;
  bool unreadable = false;              // Its directory cannot be looked at.
  std::vector<VersionStatus> versions;  // Ascending.
  // Calls that labels get without being named.
  std::optional<CanaryConfig> canary;
  std::optional<ShadowConfig> shadow;
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_MODELS_MODEL_TYPES_H_

// What operators changed of what is served, so that it can outlast a restart.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_MODELS_OPERATOR_STATE_H_
#define ULFD_SERVER_MODELS_OPERATOR_STATE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "server/models/model_types.h"
#include "server/models/quarantine.h"

namespace ulfd::server {

// Deltas of a version above this epoch are not served.
struct EpochLimit {
  int64_t epoch = 0;
  // LoadOutcome::content that it was set for, as it ends with that; empty: what is loaded next.
  std::string content;
  bool operator==(const EpochLimit&) const = default;
};

// Of one model.
struct OperatorState {
  // What the configuration said of its versions (ConfiguredVersions) when this was so.
  std::string configured;
  // All of them, if they are not as configured.
  std::optional<std::map<std::string, int64_t>> labels;
  std::set<int64_t> pinned, held;
  bool all_held = false;
  std::vector<QuarantinedContent> rejected;
  std::map<int64_t, EpochLimit> last_epochs;  // By version.

  // As configured.
  bool empty() const {
    return !labels.has_value() && pinned.empty() && held.empty() && !all_held && rejected.empty() &&
           last_epochs.empty();
  }
};
using OperatorStates = std::map<std::string, OperatorState>;  // By model.

// Directory, policy and labels, as a line.
std::string ConfiguredVersions(const ModelConfig& config);

}  // namespace ulfd::server

#endif  // ULFD_SERVER_MODELS_OPERATOR_STATE_H_

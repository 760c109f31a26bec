// What a change asked for by an operator means for the bookkeeping: which versions must serve, and
// how entries change.  Pure: the manager applies it to a copy of the table to learn what has to be
// loaded, and to the table itself once everything is.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_MODELS_CHANGE_PLAN_H_
#define ULFD_SERVER_MODELS_CHANGE_PLAN_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/models/model_change.h"
#include "server/models/model_table.h"
#include "server/models/model_types.h"
#include "server/models/repository.h"

namespace ulfd::server {

struct ChangePlan {
  struct Goal {
    std::string name;
    int64_t version = 0;
  };
  std::vector<Goal> goals;           // To load, then to publish.
  std::vector<ModelOutcome> models;  // Those that the change is about, sorted by name.
  std::vector<Goal> rejected;        // Content that an operator does not want to see again.
  std::optional<int64_t> from_version, to_version;
  std::vector<ModelHandle> withdrawn;  // Of models that the change takes away.
};

// Applies `change` to `table`; `scan` is a fresh look at the repository and the base paths of
// `change.models`.  An error leaves the table in between: apply to a copy.  Models that cannot be
// served as configured are no error, but ModelOutcome::error of the plan.
absl::StatusOr<ChangePlan> PlanChange(const ModelChange& change, const RepositoryScan& scan,
                                      ModelTable::TimePoint now,
                                      std::chrono::system_clock::time_point wall_now,
                                      ModelTable& table);

}  // namespace ulfd::server

#endif  // ULFD_SERVER_MODELS_CHANGE_PLAN_H_

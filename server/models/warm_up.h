// How the manager loads a model by default: engine::Model::Load, then warm-up calls.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_MODELS_WARM_UP_H_
#define ULFD_SERVER_MODELS_WARM_UP_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/runtime/model.h"

namespace ulfd::server {

// Loads (which leaves every page of tables and weights present) and runs made-up requests of 1 to
// 600 ads, which touches weights and code before the first real request does and shows that scores
// come out.  Not finite ones are a notice, not an error: a made-up request may well divide by zero.
// Neither are requests of several ads that need more memory than `run` allows; one of a single ad
// is (FAILED_PRECONDITION). `run`: for these runs.  Errors carry a LoadReason.
absl::StatusOr<std::unique_ptr<const engine::Model>> LoadAndWarmUp(
    const engine::LoadOptions& options, const engine::RunOptions& run,
    std::vector<std::string>& notices);

// The second half of it: the runs.
absl::Status WarmUp(const engine::Model& model, const engine::RunOptions& run,
                    std::vector<std::string>& notices);

}  // namespace ulfd::server

#endif  // ULFD_SERVER_MODELS_WARM_UP_H_

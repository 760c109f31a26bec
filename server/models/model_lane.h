// The scheduler's lane of a model generation.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_MODELS_MODEL_LANE_H_
#define ULFD_SERVER_MODELS_MODEL_LANE_H_

#include <memory>
#include <string>

#include "engine/runtime/model.h"
#include "server/scheduler/lane.h"

namespace ulfd::server {

// `guess`: what its calls cost until runs tell: what another generation of the model learned, or
// MeasureCost.
std::shared_ptr<Lane> MakeLane(const engine::Model& model, const std::string& name,
                               const Lane::Limits& limits, const CostModel::Parts& guess);

// What made-up requests take, some milliseconds in all; CostModel::kGuess if none can be made up.
// Restricts the calling thread to one OpenMP thread.
CostModel::Parts MeasureCost(const engine::Model& model);

}  // namespace ulfd::server

#endif  // ULFD_SERVER_MODELS_MODEL_LANE_H_

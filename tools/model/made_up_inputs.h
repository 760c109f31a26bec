// A request made up for a model, where no recorded one is at hand.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_MODEL_MADE_UP_INPUTS_H_
#define ULFD_TOOLS_MODEL_MADE_UP_INPUTS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "engine/runtime/model.h"
#include "engine/weights/npz.h"

namespace ulfd::tools {

// One user and `ads` ads, always the same for a model: ids that the tables hold (`user_ids` for
// each feature of the user, one for each ad), integers 1, floats between -1 and 1.
// FAILED_PRECONDITION names a dense input whose shape is not known.
absl::StatusOr<engine::NpzArrays> MakeUpInputs(const engine::Model& model, int64_t ads,
                                               int64_t user_ids);

// The number of ads that the arrays hold: rows of an input at ad level; 1 if there is none.
int64_t AdsOf(const engine::ModelInfo& info, const engine::NpzArrays& arrays);

}  // namespace ulfd::tools

#endif  // ULFD_TOOLS_MODEL_MADE_UP_INPUTS_H_

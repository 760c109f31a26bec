// What belongs to a user, once for each of the user's ads.  Made by the optimiser, not a type of
// the format.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_LAYERS_FUSED_REPEAT_ROWS_H_
#define ULFD_ENGINE_LAYERS_FUSED_REPEAT_ROWS_H_

#include <memory>

#include "engine/layers/layer.h"

namespace ulfd::engine {

// Inputs x [users, ...] and any tensor of the ads; gives [ads, ...], x in each row.
std::unique_ptr<Layer> MakeRepeatRows();

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_LAYERS_FUSED_REPEAT_ROWS_H_

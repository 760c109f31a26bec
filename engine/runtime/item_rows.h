// The ads of a tile by what is computed from them alone: which are the same, and which are new.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_RUNTIME_ITEM_ROWS_H_
#define ULFD_ENGINE_RUNTIME_ITEM_ROWS_H_

#include <cstdint>

#include "engine/runtime/workspace.h"

namespace ulfd::engine {

// Sets `items.keys` of `ads` ads from `items.columns`: of all that steps of items read.
void KeyAds(const Schedule& schedule, int64_t ads, ItemState& items);

// Lists in `items.missing` the ads that are not in `items.found`, each key once; `items.source`
// says where each of them is there.
void ListMissing(ItemState& items);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_RUNTIME_ITEM_ROWS_H_

// SPDX-License-Identifier: Apache-2.0
#include "engine/runtime/item_rows.h"

#include <bit>

namespace ulfd::engine {

void KeyAds(const Schedule& schedule, int64_t ads, ItemState& items) {
  items.keys.resize(ads);
  for (int64_t i = 0; i < ads; ++i) {
    KeptHasher hasher;
    for (size_t c = 0; c < items.columns.size(); ++c) {
      const int64_t bytes = schedule.item_inputs[c].row_bytes;
      hasher.Add(items.columns[c] + i * bytes, bytes);
    }
    items.keys[i] = hasher.key();
  }
}

void ListMissing(ItemState& items) {
  const size_t ads = items.keys.size();
  items.missing.clear();
  items.source.assign(ads, -1);
  // Open addressing, less than half of it taken.
  const size_t mask = std::bit_ceil(2 * ads + 1) - 1;
  items.places.assign(mask + 1, -1);
  for (size_t i = 0; i < ads; ++i) {
    if (items.found[i] != 0) continue;
    size_t p = items.keys[i].hash() & mask;
    while (items.places[p] >= 0 && items.keys[items.missing[items.places[p]]] != items.keys[i]) {
      p = (p + 1) & mask;
    }
    if (items.places[p] < 0) {
      items.places[p] = static_cast<int32_t>(items.missing.size());
      items.missing.push_back(static_cast<int32_t>(i));
    }
    items.source[i] = items.places[p];
  }
}

}  // namespace ulfd::engine

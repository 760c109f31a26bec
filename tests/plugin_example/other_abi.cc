// A plug-in of a version that does not exist.
// SPDX-License-Identifier: Apache-2.0
#include "engine/layers/plugin.h"

extern "C" const ulfd::engine::LayerPluginTable* ULFD_LAYER_PLUGIN_SYMBOL() {
  static constexpr ulfd::engine::LayerPluginTable kTable = {.abi_version = 9999};
  return &kTable;
}

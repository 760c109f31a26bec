// Layer types from shared libraries: what a plug-in exports, and how the engine takes it in.
//
// A plug-in is a shared library, built from this repository's headers with the compiler and the
// build type of the program that loads it, and linked with nothing of ours: it finds the engine in
// that program.  It has a table of LayerType rows like those of the families, and
//
//   namespace {
//   constexpr ulfd::engine::LayerType kTypes[] = {{.name = "acme_swish_layer", ...}};
//   }
//   ULFD_LAYER_PLUGIN("acme layers 1.2", kTypes)
//
// Layers of plug-ins have no message of their own in ulf.proto: they take plugin_param, named
// numbers and texts.  tests/plugin_example is a complete one.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_LAYERS_PLUGIN_H_
#define ULFD_ENGINE_LAYERS_PLUGIN_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/layers/layer.h"

namespace ulfd::engine {

// Goes up whenever layer.h or tensor.h change what a compiled layer relies on.
inline constexpr uint32_t kLayerPluginAbi = 2;

// What the exported function returns.  The first three fields never move.
struct LayerPluginTable {
  static constexpr uint64_t kMagic = 0x67756c7064666c75;  // "ulfdplug"
  uint64_t magic = kMagic;
  uint32_t abi_version = kLayerPluginAbi;
  // Sizes of what crosses the border, to tell other compilers and settings apart.
  uint32_t layout = LayoutOf();
  const char* name = "";
  const LayerType* types = nullptr;
  size_t type_count = 0;

  static constexpr uint32_t LayoutOf() {
    uint32_t layout = 0;
    for (size_t size : {sizeof(LayerType), sizeof(TensorSpec), sizeof(TensorSpecs), sizeof(Tensor),
                        sizeof(ParseContext), sizeof(RunContext), sizeof(ulf::LayerParameter)}) {
      layout = layout * 4099 + static_cast<uint32_t>(size);
    }
    return layout;
  }
};

// The name of the exported function.
#define ULFD_LAYER_PLUGIN_SYMBOL ulfd_layer_plugin

#define ULFD_LAYER_PLUGIN(plugin_name, plugin_types)                              \
  extern "C" const ::ulfd::engine::LayerPluginTable* ULFD_LAYER_PLUGIN_SYMBOL() { \
    static constexpr ::ulfd::engine::LayerPluginTable kTable = {                  \
        .name = (plugin_name),                                                    \
        .types = (plugin_types),                                                  \
        .type_count = sizeof(plugin_types) / sizeof((plugin_types)[0])};          \
    return &kTable;                                                               \
  }

// The plug-ins of a program.  Libraries stay loaded until it ends: models may outlive this object.
// Thread-compatible.
class LayerPlugins {
 public:
  // Loads the library at `path`.  Errors name it: it does not load, exports no table, is of another
  // ABI version or layout, has an incomplete row, or a type that is built in or was there before.
  absl::Status Add(const std::string& path);
  // For LoadOptions::layer_types.
  absl::Span<const LayerType* const> types() const { return types_; }

 private:
  std::vector<const LayerType*> types_;
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_LAYERS_PLUGIN_H_

// --layer_plugins of the commands that load models.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_MODEL_PLUGINS_H_
#define ULFD_TOOLS_MODEL_PLUGINS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/layers/plugin.h"
#include "tools/cli/command.h"

namespace ulfd::tools {

// The flag and what it loads.  Lives as long as the models that use its types.
class PluginFlag {
 public:
  // `flags` must not outlive this object.
  explicit PluginFlag(FlagSet& flags) {
    flags.Add("layer_plugins", "Shared libraries with further layer types, separated by commas.",
              &paths_);
  }
  // After FlagSet::Parse.
  absl::Status Load() {
    for (const std::string& path : paths_) {
      if (absl::Status status = plugins_.Add(path); !status.ok()) return status;
    }
    return absl::OkStatus();
  }
  absl::Span<const engine::LayerType* const> types() const { return plugins_.types(); }

 private:
  std::vector<std::string> paths_;
  engine::LayerPlugins plugins_;
};

}  // namespace ulfd::tools

#endif  // ULFD_TOOLS_MODEL_PLUGINS_H_

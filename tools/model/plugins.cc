// Plug-ins and version directories of the command line.
// SPDX-License-Identifier: Apache-2.0
#include "tools/model/plugins.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <system_error>

#include "base/model_version.h"
#include "base/status_macros.h"

namespace ulfd::tools {

std::string VersionDirectory(const std::string& directory) {
  std::string highest = directory;
  int64_t most = 0;
  std::error_code error;
  std::filesystem::directory_iterator it(directory, error);
  for (; !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    std::error_code gone;
    if (!it->is_directory(gone)) return directory;
    const std::optional<int64_t> version = ParseVersion(it->path().filename().string());
    if (!version.has_value() || *version <= most) continue;
    most = *version;
    highest = it->path().string();
  }
  return highest;
}

absl::Status PluginFlag::Load() {
  for (const std::string& path : paths_) RETURN_IF_ERROR(plugins_.Add(path));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<const engine::Model>> PluginFlag::LoadModel(
    const std::string& directory, std::vector<engine::InputShape> inputs,
    std::optional<engine::PrecisionChoice> precision) {
  RETURN_IF_ERROR(Load());
  engine::LoadOptions options{.directory = VersionDirectory(directory),
                              .precision = std::move(precision),
                              .inputs = std::move(inputs),
                              .layer_types = types()};
  if (!backend_.empty()) {
    ASSIGN_OR_RETURN(options.backend, engine::ParseBackend(backend_));
  }
  if (!precision_.empty()) {
    options.precision.emplace();
    ASSIGN_OR_RETURN(options.precision->model, engine::ParsePrecision(precision_));
  }
  return engine::Model::Load(options);
}

}  // namespace ulfd::tools

// ulf layers: the layer types that the engine knows, from its registry.
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/text_file.h"
#include "engine/layers/registry.h"
#include "tools/cli/commands.h"
#include "tools/model/layer_docs.h"
#include "tools/model/model_flags.h"

namespace ulfd::tools {

namespace {

constexpr char kDescription[] =
    "Lists the layer types that the engine knows, or says everything about one: formula, inputs,\n"
    "parameters with their defaults, weights, source, and an example that loads.";

absl::Status WriteExample(const engine::LayerType& type, const std::string& directory) {
  const std::filesystem::path path(directory);
  std::error_code error;
  if (std::filesystem::exists(path, error)) {
    return AlreadyExists(directory, ": exists, want a new directory");
  }
  std::filesystem::create_directories(path, error);
  if (error) return Unavailable(directory, ": ", error.message());
  for (const ExampleFile& file : LayerExample(type)) {
    RETURN_IF_ERROR(WriteTextFile(path / file.name, file.content));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RunLayers(Args args) {
  std::string example;
  FlagSet flags("ulf layers [NAME] [--example=DIR]", kDescription);
  flags.Add("example", "Writes the example of NAME as a version directory.", &example);
  ModelFlags model_flags(flags);
  ASSIGN_OR_RETURN(const std::vector<std::string> positional, flags.Parse(args, 0, 1));
  RETURN_IF_ERROR(model_flags.Load());
  if (positional.empty()) {
    if (!example.empty()) return UsageError("--example wants a NAME");
    std::fputs(LayerList(model_flags.types()).c_str(), stdout);
    return absl::OkStatus();
  }
  engine::Notices notices;
  ASSIGN_OR_RETURN(const engine::LayerType* type,
                   engine::FindLayerType(positional[0], notices, model_flags.types()));
  if (!example.empty()) return WriteExample(*type, example);
  std::fputs(LayerPage(*type).c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace ulfd::tools

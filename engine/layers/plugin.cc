// SPDX-License-Identifier: Apache-2.0
#include "engine/layers/plugin.h"

#include <dlfcn.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "engine/layers/registry.h"

namespace ulfd::engine {

namespace {

constexpr char kSymbol[] = "ulfd_layer_plugin";

absl::Status CheckRow(const LayerType& type, absl::Span<const LayerType* const> known) {
  if (type.name.empty() || type.parse == nullptr || type.outputs.min < 1 || type.summary.empty()) {
    return InvalidArgument("layer type \"", type.name,
                           "\": want a name, a summary, at least one output and parse");
  }
  Notices notices;
  if (FindLayerType(type.name, notices).ok()) {
    return AlreadyExists("layer type \"", type.name, "\": is built in, want another name");
  }
  for (const LayerType* other : known) {
    if (other->name != type.name) continue;
    return AlreadyExists("layer type \"", type.name, "\": another plug-in has it");
  }
  constexpr int kPluginParam = ulf::LayerParameter::kPluginParamFieldNumber;
  if ((type.param_field != 0 && type.param_field != kPluginParam) || type.other_param_field != 0) {
    return InvalidArgument("layer type \"", type.name, "\": param_field ", type.param_field,
                           ", want 0 or ", kPluginParam, " (plugin_param)");
  }
  return absl::OkStatus();
}

absl::Status CheckTable(const LayerPluginTable* table) {
  if (table == nullptr || table->magic != LayerPluginTable::kMagic) {
    return InvalidArgument("its table is none of ours");
  }
  if (table->abi_version != kLayerPluginAbi) {
    return FailedPrecondition("built for plug-in ABI ", table->abi_version, ", want ",
                              kLayerPluginAbi);
  }
  if (table->layout != LayerPluginTable::LayoutOf()) {
    return FailedPrecondition(
        "built with another compiler or other settings (sizes of structs differ)");
  }
  return absl::OkStatus();
}

absl::Status AddTypes(const LayerPluginTable& table, std::vector<const LayerType*>& types) {
  std::vector<const LayerType*> all = types;
  for (size_t i = 0; i < table.type_count; ++i) {
    RETURN_IF_ERROR(CheckRow(table.types[i], all));
    all.push_back(&table.types[i]);
  }
  types = std::move(all);
  return absl::OkStatus();
}

}  // namespace

absl::Status LayerPlugins::Add(const std::string& path) {
  const std::string about = absl::StrCat("plug-in ", path);
  // dlopen searches system directories for a name without a slash; a path is meant here.
  const std::string file = path.find('/') == std::string::npos ? absl::StrCat("./", path) : path;
  // What is no regular file would hang it.
  RETURN_IF_ERROR(Annotate(InputFile::Open(file).status(), about));
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = dlerror();
    return Annotate(NotFound(reason == nullptr ? "does not load" : reason), about);
  }
  using TableFn = const LayerPluginTable*();
  auto* const function = reinterpret_cast<TableFn*>(dlsym(library, kSymbol));
  absl::Status status =
      function == nullptr ? InvalidArgument("exports no ", kSymbol) : CheckTable(function());
  if (status.ok()) status = AddTypes(*function(), types_);
  if (status.ok()) return absl::OkStatus();
  dlclose(library);  // Nothing of it is in use.
  return Annotate(status, about);
}

}  // namespace ulfd::engine

// SPDX-License-Identifier: Apache-2.0
#include "server/models/model_manager_options.h"

#include <sys/stat.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "server/models/memory_budget.h"

namespace ulfd::server {
namespace {

// Labels of versions that the model never serves.
absl::Status CheckLabels(const ModelConfig& model, const std::string& what) {
  const std::vector<int64_t>& specific = model.policy.specific;
  for (const auto& [label, version] : model.labels) {
    if (!specific.empty() && std::count(specific.begin(), specific.end(), version) == 0) {
      return InvalidArgument(what, ": label \"", label, "\" names version ", version,
                             ", which is not among the specific versions ",
                             absl::StrJoin(specific, ", "));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CompleteOptions(ModelManagerOptions& options) {
  if (options.repository.empty() && options.models.empty()) {
    return InvalidArgument("neither a model repository nor a model is given");
  }
  while (options.repository.size() > 1 && options.repository.back() == '/') {
    options.repository.pop_back();
  }
  struct stat info;
  if (!options.repository.empty() &&
      (stat(options.repository.c_str(), &info) != 0 || !S_ISDIR(info.st_mode))) {
    return NotFound("model repository: directory ", options.repository, " does not exist");
  }
  for (ModelConfig& model : options.models) {
    const std::string what = absl::StrCat("model \"", model.name, "\"");
    if (model.base_path.empty()) {
      if (options.repository.empty()) {
        return InvalidArgument(what, " has no base_path, and there is no model repository");
      }
      model.base_path = absl::StrCat(options.repository, "/", model.name);
    }
    while (model.base_path.size() > 1 && model.base_path.back() == '/') model.base_path.pop_back();
    RETURN_IF_ERROR(CheckLabels(model, what));
  }
  if (options.memory_budget_bytes == 0) options.memory_budget_bytes = DefaultMemoryBudget();
  if (!options.now) options.now = [] { return std::chrono::steady_clock::now(); };
  return absl::OkStatus();
}

std::vector<std::string> DropOutdatedStates(ModelManagerOptions& options) {
  std::vector<std::string> dropped;
  std::erase_if(options.operator_states, [&](const auto& entry) {
    const std::string& name = entry.first;
    const auto found = std::find_if(options.models.begin(), options.models.end(),
                                    [&](const ModelConfig& model) { return model.name == name; });
    const ModelConfig config =
        found != options.models.end()
            ? *found
            : ModelConfig{.name = name,
                          .base_path = absl::StrCat(options.repository, "/", name),
                          .policy = options.default_policy};
    if (entry.second.configured == ConfiguredVersions(config)) return false;
    dropped.push_back(name);
    return true;
  });
  return dropped;
}

}  // namespace ulfd::server

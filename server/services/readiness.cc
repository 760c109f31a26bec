// Why a server is not ready.
// SPDX-License-Identifier: Apache-2.0
#include "server/services/readiness.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ulfd::server {

std::string Readiness::WhyNotReady() const {
  if (draining()) return "draining";
  if (models_.Ready()) return "";
  std::vector<std::string> lines;
  for (const ModelStatus& model : models_.List()) {
    const auto serves = [](const VersionStatus& version) { return version.serving != nullptr; };
    if (std::any_of(model.versions.begin(), model.versions.end(), serves)) continue;
    std::string why = model.error;
    if (why.empty())
      why = model.versions.empty() ? "it has no version" : model.versions.back().error;
    if (why.empty()) why = "not tried yet";
    lines.push_back(absl::StrCat("not loaded: model \"", model.name, "\": ", why));
  }
  if (lines.empty()) return "not loaded: no model found yet";
  return absl::StrJoin(lines, "\n");
}

}  // namespace ulfd::server

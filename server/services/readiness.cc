// SPDX-License-Identifier: Apache-2.0
#include "server/services/readiness.h"

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ulfd::server {

constexpr size_t kMostLines = 100;

std::string Readiness::WhyNotReady() const {
  if (draining()) return "draining";
  if (models_.Ready()) return "";
  std::vector<std::string> lines;
  for (const ModelStatus& model : models_.List()) {
    const absl::Status callable = models_.Find({.name = model.name}).status();
    if (callable.ok()) continue;
    if (lines.size() == kMostLines) {  // Of thousands: the log and anybody's /readyz have it.
      lines.push_back("and more");
      break;
    }
    lines.push_back(absl::StrCat("not loaded: ", callable.message()));
  }
  if (lines.empty()) return "not loaded: no model found yet";
  return absl::StrJoin(lines, "\n");
}

}  // namespace ulfd::server

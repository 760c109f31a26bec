// The ordered list of rewrites between loading a graph and planning it.
// SPDX-License-Identifier: Apache-2.0
#include "engine/graph/passes.h"

#include "absl/strings/str_cat.h"
#include "engine/status_macros.h"

namespace ulfd::engine {

namespace {

struct Pass {
  absl::string_view name;
  absl::Status (*run)(Graph& graph);
};

constexpr Pass kPasses[] = {
    {"lower", &LowerComposites},
};

}  // namespace

absl::Status RunPasses(Graph& graph) {
  for (const Pass& pass : kPasses) {
    const absl::Status status = pass.run(graph);
    if (!status.ok()) {
      return absl::Status(status.code(), absl::StrCat("pass ", pass.name, ": ", status.message()));
    }
  }
  return absl::OkStatus();
}

}  // namespace ulfd::engine

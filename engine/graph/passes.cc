// The ordered list of rewrites between loading a graph and planning it.
// SPDX-License-Identifier: Apache-2.0
#include "engine/graph/passes.h"

#include "absl/strings/str_cat.h"
#include "engine/status_macros.h"
#include "engine/weights/file.h"

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
    RETURN_IF_ERROR(Annotate(pass.run(graph), absl::StrCat("pass ", pass.name)));
  }
  return absl::OkStatus();
}

}  // namespace ulfd::engine

// SPDX-License-Identifier: Apache-2.0
#include "engine/runtime/step_run.h"

#include "base/errors.h"
#include "base/status_macros.h"

namespace ulfd::engine {

absl::Status RunStep(const Executable& executable, const RunOptions& options, const Plan& plan,
                     const Step& step, absl::Span<const Tensor> in, absl::Span<Tensor> out,
                     WorkspaceState& ws, RunStats& stats) {
  const Kernel& kernel = *step.kernel;
  RETURN_IF_ERROR(ws.scratch.Reserve(static_cast<int64_t>(kernel.ScratchBytes(in))));
  RunContext context{.in = in,
                     .out = out,
                     .scratch = ws.scratch.data(),
                     .counters = &ws.counters,
                     .tables = executable.tables,
                     .pace = Pace(options.stop),
                     .fetched = options.fetched};
  const bool timed = step.embedding || options.steps != nullptr;
  const int64_t start = timed ? NowNs() : 0;
  absl::Status status = kernel.Run(context);
  status.Update(context.pace.status());
  const int64_t ns = timed ? NowNs() - start : 0;
  if (step.embedding) stats.embed_ns += ns;
  if (options.steps != nullptr) {
    const size_t index = &step - plan.steps.data();
    options.steps->ns[index] += ns;
    ++options.steps->runs[index];
  }
  if (!status.ok()) return Annotate(status, step.node->Label());
  if (options.count_layers) {
    RunStats::LayerCount& count = stats.layers[step.node->file_index];
    ++count.runs;
    count.rows += out[0].dims.empty() ? 1 : out[0].dims[0];
  }
  return absl::OkStatus();
}

}  // namespace ulfd::engine

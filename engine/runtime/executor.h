// Runs a plan for one request.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_RUNTIME_EXECUTOR_H_
#define ULFD_ENGINE_RUNTIME_EXECUTOR_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/runtime/model.h"
#include "engine/runtime/plan.h"
#include "engine/runtime/workspace.h"

namespace ulfd::engine {

// Everything of a model that a run reads; owned by the model.
struct Executable {
  std::unique_ptr<const Plan> plan;  // The graph as written: for every request.
  // The rewritten graph: for requests whose shapes are those of its specs.  May be null.
  std::unique_ptr<const Plan> optimised;
  const ModelInfo* info = nullptr;
  std::vector<bool> free_length;  // Per input: ids and values read by embedding layers only; their
                                  // length is no part of any shape.
  std::vector<ValueId> input_values;  // Per input.
  std::shared_ptr<const void> token;  // Alive as long as the model.
};

// See Model::Run.  `given`: per input of the model, nullptr where the request gives nothing.
absl::Status Execute(const Executable& executable, const RunOptions& options,
                     WorkspaceState& workspace, RunResult& result);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_RUNTIME_EXECUTOR_H_

// Runs one of the two plans of a model, whatever the executor would choose.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TESTS_TESTING_PLAN_RUNNER_H_
#define ULFD_TESTS_TESTING_PLAN_RUNNER_H_

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/runtime/model_loader.h"
#include "engine/runtime/workspace.h"

namespace ulfd::testing {

// A loaded model of which only the rewritten plan, or only the one as written, is left.
class PlanRunner {
 public:
  // REQUIRES: !optimised or the model has an optimised plan.
  PlanRunner(std::unique_ptr<engine::LoadedModel> model, bool optimised)
      : model_(std::move(model)) {
    engine::Executable& executable = model_->executable;
    if (optimised) {
      executable.schedule = std::move(executable.optimised_schedule);
      executable.plan = std::move(executable.optimised);
    }
    executable.optimised_schedule = nullptr;
    executable.optimised = nullptr;
  }

  const engine::Plan& plan() const { return *model_->executable.plan; }
  const engine::ModelInfo& info() const { return model_->info; }

  // As Model::Run; the result is valid until the next call.
  absl::Status Run(absl::Span<const engine::NamedTensor> inputs, const engine::RunOptions& options,
                   engine::RunResult& result) {
    workspace_.user.request.given.assign(info().inputs.size(), nullptr);
    for (const engine::NamedTensor& input : inputs) {
      for (size_t i = 0; i < info().inputs.size(); ++i) {
        if (info().inputs[i].name == input.name) workspace_.user.request.given[i] = &input.tensor;
      }
    }
    return engine::Execute(model_->executable, options, workspace_, result);
  }

 private:
  const std::unique_ptr<engine::LoadedModel> model_;
  engine::WorkspaceState workspace_;
};

}  // namespace ulfd::testing

#endif  // ULFD_TESTS_TESTING_PLAN_RUNNER_H_

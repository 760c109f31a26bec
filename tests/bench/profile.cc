// Where the time of a request goes.
// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/profile.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "tests/bench/turns.h"

namespace ulfd::bench {
namespace {

constexpr size_t kShown = 15;  // Steps.
constexpr size_t kLeastRuns = 20;

// The least of the runs, in microseconds on the wall: steps are too short for a clock of CPU time,
// and what disturbs a run only ever adds.
struct Profile {
  bool optimised = false;
  double around = 0, total = 0;  // What is no step, and the sum.
  std::vector<double> steps;
};

absl::StatusOr<Profile> Measure(const engine::Model& model,
                                absl::Span<const engine::NamedTensor> inputs, double seconds) {
  using Clock = std::chrono::steady_clock;
  engine::Workspace workspace;
  engine::RunResult result;
  engine::StepTimes times;
  std::vector<double> around;
  std::vector<std::vector<double>> steps;
  RETURN_IF_ERROR(model.Run(inputs, {.steps = &times}, workspace, result));
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  do {
    const auto begin = Clock::now();
    RETURN_IF_ERROR(model.Run(inputs, {.steps = &times}, workspace, result));
    const std::chrono::duration<double, std::micro> took = Clock::now() - begin;
    around.push_back(took.count() - 1e-3 * std::accumulate(times.ns.begin(), times.ns.end(), 0.0));
    steps.resize(times.ns.size());
    for (size_t s = 0; s < steps.size(); ++s) {
      steps[s].push_back(static_cast<double>(times.ns[s]) * 1e-3);
    }
  } while (Clock::now() < end || around.size() < kLeastRuns);
  Profile profile{.optimised = times.optimised, .around = SpreadOf(std::move(around)).low};
  for (std::vector<double>& step : steps) {
    profile.steps.push_back(SpreadOf(std::move(step)).low);
  }
  profile.total = std::accumulate(profile.steps.begin(), profile.steps.end(), profile.around);
  return profile;
}

std::string Line(const engine::PlanStep& step, double us, double total, int64_t ads) {
  const double flops = step.cost.flops.At(static_cast<double>(ads));
  return absl::StrFormat("| %s | %s | %s | %.1f | %.1f %% | %s | %s | %s |\n", step.name, step.type,
                         std::string(engine::Name(step.part)), us, 100 * us / total,
                         us > 0 ? absl::StrFormat("%.1f", flops / us * 1e-3) : "", step.backend,
                         step.precision);
}

}  // namespace

absl::StatusOr<std::string> ProfileTable(const engine::Model& model,
                                         absl::Span<const engine::NamedTensor> inputs, int64_t ads,
                                         double seconds) {
  ASSIGN_OR_RETURN(const Profile profile, Measure(model, inputs, seconds));
  const auto optimised = model.OptimisedPlan();
  const engine::PlanInfo plan =
      profile.optimised && optimised.has_value() ? *optimised : model.WrittenPlan();
  std::vector<size_t> order(profile.steps.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return profile.steps[a] > profile.steps[b]; });
  std::string text = absl::StrFormat(
      "%s plan, %.1f us, %d ads per tile\n\n| step | type | part | us | share | GFLOP/s "
      "| backend | precision |\n|---|---|---|---|---|---|---|---|\n",
      profile.optimised ? "optimised" : "written", profile.total, plan.tile_rows);
  double shown = 0;
  for (size_t i = 0; i < std::min(order.size(), kShown); ++i) {
    const double us = profile.steps[order[i]];
    absl::StrAppend(&text, Line(plan.steps[order[i]], us, profile.total, ads));
    shown += us;
  }
  const double others = profile.total - profile.around - shown;
  absl::StrAppendFormat(&text, "| other steps | | | %.1f | %.1f %% | |\n", others,
                        100 * others / profile.total);
  absl::StrAppendFormat(&text, "| around the steps | | | %.1f | %.1f %% | |\n", profile.around,
                        100 * profile.around / profile.total);
  return text;
}

}  // namespace ulfd::bench

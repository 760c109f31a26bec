// SPDX-License-Identifier: Apache-2.0
#include "tools/explain/profile.h"

#include <algorithm>
#include <chrono>

#include "base/status_macros.h"
#include "engine/tensor/fma_peak.h"

namespace ulfd::tools {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int64_t kMinRuns = 10, kMaxRuns = 20000, kWarmUpRuns = 3;

double NsBetween(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double, std::nano>(end - begin).count();
}

// The middle value; reorders.
double Median(std::vector<double>& values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double ClockNs() {
  std::vector<double> readings;
  Clock::time_point last = Clock::now();
  for (int i = 0; i < 1001; ++i) {
    const Clock::time_point now = Clock::now();
    readings.push_back(NsBetween(last, now));
    last = now;
  }
  return Median(readings);
}

// Per step, the time of each run.
struct Samples {
  std::vector<std::vector<double>> step_ns;
  std::vector<double> request_ns;
  bool optimised = false;
};

// Runs with and without timing of steps take turns, so that both see the same machine.
absl::StatusOr<Samples> Measure(const engine::Model& model,
                                absl::Span<const engine::NamedTensor> inputs,
                                const ProfileOptions& options) {
  engine::Workspace workspace;
  engine::RunResult result;
  engine::StepTimes times;
  // Layers are counted so that caches spare none of them.
  const engine::RunOptions plain{
      .count_layers = true, .reference = options.reference, .made_up = options.made_up};
  engine::RunOptions timed = plain;
  timed.steps = &times;
  for (int64_t i = 0; i < kWarmUpRuns; ++i) {
    RETURN_IF_ERROR(model.Run(inputs, timed, workspace, result));
  }
  const double clock_ns = ClockNs();
  Samples samples{.step_ns = std::vector<std::vector<double>>(times.ns.size()),
                  .optimised = times.optimised};
  const Clock::time_point start = Clock::now();
  for (int64_t run = 0; run < kMaxRuns; ++run) {
    if (run >= kMinRuns && NsBetween(start, Clock::now()) > options.seconds * 1e9) break;
    RETURN_IF_ERROR(model.Run(inputs, timed, workspace, result));
    for (size_t s = 0; s < times.ns.size(); ++s) {
      const double readings = clock_ns * static_cast<double>(times.runs[s]);
      samples.step_ns[s].push_back(std::max(0.0, static_cast<double>(times.ns[s]) - readings));
    }
    const Clock::time_point begin = Clock::now();
    RETURN_IF_ERROR(model.Run(inputs, plain, workspace, result));
    samples.request_ns.push_back(NsBetween(begin, Clock::now()));
  }
  return samples;
}

}  // namespace

absl::StatusOr<Profile> MeasureProfile(const engine::Model& model,
                                       absl::Span<const engine::NamedTensor> inputs,
                                       const ProfileOptions& options) {
  Profile profile{.ads = options.ads};
  profile.peak_gflops = engine::MeasureFmaPeakGflops();
  ASSIGN_OR_RETURN(Samples samples, Measure(model, inputs, options));
  profile.peak_gflops = std::max(profile.peak_gflops, engine::MeasureFmaPeakGflops());
  profile.optimised = samples.optimised;
  profile.runs = static_cast<int64_t>(samples.request_ns.size());
  profile.request_us = Median(samples.request_ns) / 1e3;
  const engine::PlanInfo plan = samples.optimised ? *model.OptimisedPlan() : model.WrittenPlan();
  for (size_t s = 0; s < samples.step_ns.size(); ++s) {
    Profile::Step step{.us = Median(samples.step_ns[s]) / 1e3};
    const double flops = plan.steps[s].cost.flops.At(static_cast<double>(options.ads));
    if (step.us > 0) step.gflops = flops / step.us / 1e3;
    if (profile.peak_gflops > 0) step.share_of_peak = step.gflops / profile.peak_gflops;
    if (profile.request_us > 0) step.share_of_request = step.us / profile.request_us;
    profile.steps_us += step.us;
    profile.steps.push_back(step);
  }
  return profile;
}

}  // namespace ulfd::tools

// SPDX-License-Identifier: Apache-2.0
#include "engine/runtime/executor.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/errors.h"
#include "base/status_macros.h"
#include "engine/runtime/general_run.h"
#include "engine/runtime/row_run.h"
#include "engine/runtime/shape_plans.h"

namespace ulfd::engine {

void AddEach(const std::vector<int64_t>& from, std::vector<int64_t>& to) {
  to.resize(std::max(to.size(), from.size()), 0);
  for (size_t i = 0; i < from.size(); ++i) to[i] += from[i];
}

namespace {

void ResetCounters(const ModelInfo& info, WorkspaceState& ws) {
  ws.counters.looked_up_ids.assign(info.tables.size(), 0);
  ws.counters.missing_ids.assign(info.tables.size(), 0);
}

void ResetStats(const ModelInfo& info, const RunOptions& options, WorkspaceState& ws,
                RunStats& stats) {
  stats.embed_ns = stats.user_ns = stats.ad_ns = 0;
  stats.optimised = stats.unproved = stats.wants_plan = false;
  stats.layers.clear();
  if (options.count_layers) stats.layers.resize(info.layers.size());
  ResetCounters(info, ws);
}

// How to run a request by rows; without a schedule it runs by numpy's rules.
struct Choice {
  const Executable* executable = nullptr;  // Whose the schedule is.
  const Schedule* schedule = nullptr;
  int64_t ads = 0;
  std::shared_ptr<const ShapePlan> of_shape;  // Whose the executable is, or null.

  bool optimised() const { return schedule == executable->optimised_schedule.get(); }
};

// The number of ads if every input has the shape that the schedule expects.
std::optional<int64_t> MatchShapes(const Schedule& schedule, const Request& request) {
  const int64_t users = request.users();
  int64_t ads = request.user_begin.empty() ? -1 : request.user_begin.back();
  for (const ExpectedInput& expected : schedule.inputs) {
    if (expected.free_length) continue;
    const Tensor& tensor = request.inputs[expected.input];
    const size_t rank = expected.dims.size();
    if (tensor.dims.size() != rank) return std::nullopt;
    for (size_t d = 1; d < rank; ++d) {
      if (tensor.dims[d] != expected.dims[d]) return std::nullopt;
    }
    int64_t wanted = users;
    if (expected.rows == Level::kAd) wanted = ads < 0 ? ads = tensor.dims[0] : ads;
    if (tensor.dims[0] != wanted) return std::nullopt;
  }
  return ads < 0 ? 1 : ads;  // A model without ad inputs scores the user alone.
}

// Among the plans that are there without shape plans.
Choice ChooseSchedule(const Executable& executable, const RunOptions& options,
                      const Request& request) {
  Choice choice{.executable = &executable};
  const Schedule* const written = executable.schedule.get();
  if (written == nullptr || options.keep_all) return choice;
  if (request.users() > 1 && !written->one_user_only.empty()) return choice;
  const std::optional<int64_t> matched = MatchShapes(*written, request);
  if (!matched.has_value()) return choice;
  choice.ads = *matched;
  const Schedule* const optimised = executable.optimised_schedule.get();
  const bool as_written = options.reference || optimised == nullptr ||
                          (request.users() > 1 && !optimised->one_user_only.empty());
  choice.schedule = as_written ? written : optimised;
  return choice;
}

Choice Choose(const Executable& executable, const RunOptions& options, const Request& request) {
  Choice choice = ChooseSchedule(executable, options, request);
  if (choice.schedule != nullptr || executable.shape_plans == nullptr) return choice;
  Choice of_shape;
  auto plan = executable.shape_plans->Find([&](const ShapePlan& known) {
    of_shape = ChooseSchedule(known.executable, options, request);
    return of_shape.schedule != nullptr;
  });
  if (plan == nullptr) return choice;
  of_shape.of_shape = std::move(plan);
  return of_shape;
}

void ResetTimes(const RunOptions& options, const Plan& plan, bool optimised) {
  if (options.steps == nullptr) return;
  options.steps->optimised = optimised;
  options.steps->ns.assign(plan.steps.size(), 0);
  options.steps->runs.assign(plan.steps.size(), 0);
}

absl::Status RunRows(const RunOptions& options, const Choice& choice, UserPart& part,
                     WorkspaceState& ws, RunResult& result) {
  result.stats.optimised = choice.optimised();
  ResetTimes(options, *choice.schedule->plan, result.stats.optimised);
  RETURN_IF_ERROR(
      BeginRows(options, *choice.executable, *choice.schedule, choice.ads, part, result));
  for (int64_t u = 0; u < part.users; u += Schedule::kMaxUsers) {
    const int64_t last = std::min(part.users, u + Schedule::kMaxUsers);
    RETURN_IF_ERROR(ComputeUsers(options, u, last, part, ws, result));
    RETURN_IF_ERROR(ComputeAds(options, part, part.begins[u], part.begins[last], ws, result.outputs,
                               result.stats));
  }
  return absl::OkStatus();
}

absl::Status RunWhole(const Executable& executable, const RunOptions& options, UserPart& part,
                      WorkspaceState& ws, RunResult& result) {
  result.stats.optimised = false;
  ResetTimes(options, *executable.plan, false);
  result.stats.unproved |= !options.keep_all;
  return RunGenerally(executable, options, part, ws, result);
}

// One user's request that no plan fits.
absl::Status RunUnplanned(const Executable& executable, const RunOptions& options, UserPart& part,
                          WorkspaceState& ws, RunResult& result) {
  RETURN_IF_ERROR(RunWhole(executable, options, part, ws, result));
  if (executable.shape_plans != nullptr && !options.keep_all && !options.made_up) {
    result.stats.wants_plan |= executable.shape_plans->Show(executable, part.request);
  }
  return absl::OkStatus();
}

// FAILED_PRECONDITION if the model refuses NaN and infinity and rows [begin, end) of the output
// (end < 0: all of it) hold one.  Requests that nobody made may well divide by zero.
absl::Status CheckFinite(const Executable& executable, const RunOptions& options, size_t o,
                         const Tensor& output, int64_t begin, int64_t end) {
  if (!executable.refuse_non_finite || options.made_up) return absl::OkStatus();
  if (output.dtype != DType::kFloat32 || output.elements() == 0) return absl::OkStatus();
  const int64_t row = output.dims.empty() ? 1 : output.elements() / output.dims[0];
  if (end < 0) end = output.elements() / row;
  const float* const values = output.f32() + begin * row;
  const float* const stop = output.f32() + end * row;
  const float* const first = std::find_if(values, stop, [](float v) { return !std::isfinite(v); });
  if (first == stop) return absl::OkStatus();
  return FailedPrecondition("output \"", executable.info->outputs[o].name, "\": row ",
                            begin + (first - values) / row, " has ", *first,
                            ", and the manifest's non_finite is REFUSE");
}

absl::Status CheckAllFinite(const Executable& executable, const RunOptions& options,
                            const RunResult& result) {
  for (size_t o = 0; o < result.outputs.size(); ++o) {
    RETURN_IF_ERROR(CheckFinite(executable, options, o, result.outputs[o], 0, -1));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Execute(const Executable& executable, const RunOptions& options, WorkspaceState& ws,
                     RunResult& result) {
  UserPart& part = ws.user;
  RETURN_IF_ERROR(FillRequest(*executable.info, options.ads_per_user, part.request));
  ResetStats(*executable.info, options, ws, result.stats);
  const bool several = part.request.users() > 1;
  if (several && options.keep_all) {
    return InvalidArgument("keep_all takes a request of one user");
  }
  const Choice choice = Choose(executable, options, part.request);
  if (choice.schedule != nullptr) {
    RETURN_IF_ERROR(RunRows(options, choice, part, ws, result));
  } else if (several) {
    return Unimplemented("no plan computes several users of these shapes together");
  } else {
    RETURN_IF_ERROR(RunUnplanned(executable, options, part, ws, result));
  }
  result.stats.looked_up_ids = ws.counters.looked_up_ids;
  result.stats.missing_ids = ws.counters.missing_ids;
  return CheckAllFinite(executable, options, result);
}

absl::Status ExecuteGenerally(const Executable& executable, const RunOptions& options,
                              WorkspaceState& ws, RunResult& result) {
  RETURN_IF_ERROR(FillRequest(*executable.info, {}, ws.user.request));
  ResetStats(*executable.info, options, ws, result.stats);
  return RunWhole(executable, options, ws.user, ws, result);
}

absl::Status ExecuteUserPart(const Executable& executable, const RunOptions& options,
                             UserPart& part, WorkspaceState& ws, RunResult& result, bool& cut) {
  RETURN_IF_ERROR(FillRequest(*executable.info, options.ads_per_user, part.request));
  const Choice choice = Choose(executable, options, part.request);
  part.of_shape = choice.of_shape;
  cut = choice.schedule != nullptr && choice.ads > 0 && part.request.users() <= Schedule::kMaxUsers;
  if (!cut) return absl::OkStatus();
  ResetStats(*executable.info, options, ws, result.stats);
  result.stats.optimised = choice.optimised();
  ResetTimes(options, *choice.schedule->plan, result.stats.optimised);
  RETURN_IF_ERROR(
      BeginRows(options, *choice.executable, *choice.schedule, choice.ads, part, result));
  RETURN_IF_ERROR(ComputeUsers(options, 0, part.users, part, ws, result));
  result.stats.looked_up_ids = ws.counters.looked_up_ids;
  result.stats.missing_ids = ws.counters.missing_ids;
  for (size_t o = 0; o < result.outputs.size(); ++o) {
    if (choice.schedule->outputs[o].place == Operand::Place::kAd) continue;
    RETURN_IF_ERROR(CheckFinite(executable, options, o, result.outputs[o], 0, -1));
  }
  return absl::OkStatus();
}

absl::Status ExecuteAds(const UserPart& part, const RunOptions& options, int64_t begin, int64_t end,
                        WorkspaceState& ws, absl::Span<const Tensor> outputs, RunStats& stats) {
  const ModelInfo& info = *part.executable->info;
  if (options.count_layers) stats.layers.resize(info.layers.size());
  ResetCounters(info, ws);
  RETURN_IF_ERROR(ComputeAds(options, part, begin, end, ws, outputs, stats));
  AddEach(ws.counters.looked_up_ids, stats.looked_up_ids);
  AddEach(ws.counters.missing_ids, stats.missing_ids);
  for (size_t o = 0; o < outputs.size(); ++o) {
    if (part.schedule->outputs[o].place != Operand::Place::kAd) continue;
    RETURN_IF_ERROR(CheckFinite(*part.executable, options, o, outputs[o], begin, end));
  }
  return absl::OkStatus();
}

}  // namespace ulfd::engine

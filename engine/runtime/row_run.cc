// Runs a schedule.
// SPDX-License-Identifier: Apache-2.0
#include "engine/runtime/row_run.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/status_macros.h"
#include "base/text.h"
#include "engine/embedding/pooling.h"
#include "engine/runtime/largest_tensor.h"
#include "engine/runtime/run_clock.h"

namespace ulfd::engine {

namespace {

using Place = Operand::Place;

// The rows that a step works on.
struct Rows {
  int64_t first_user = 0, last_user = 0;
  int64_t first_ad = 0, last_ad = 0;
  int64_t tile = 0, inner = 0;  // The first ads of the tile and of the inner tile.
};

class Runner {
 public:
  Runner(const RunOptions& options, const UserPart& part, WorkspaceState& ws, RunStats& stats)
      : options_(options), part_(part), schedule_(*part.schedule), ws_(ws), stats_(stats) {
    state_ = &StateOf();
    ws_.cursors.assign(part.executable->info->features.size(), IdCursor{});
  }

  absl::Status RunUserSteps(int64_t first_user, int64_t last_user) {
    for (size_t s = 0; s < schedule_.user_steps.size(); ++s) {
      const RowStep& step = schedule_.user_steps[s];
      Tensor* tensors = &state_->tensors[state_->user_first[s]];
      if (!step.one_user || last_user - first_user == 1) {
        RETURN_IF_ERROR(RunStep(step, {first_user, last_user}, nullptr, tensors));
        continue;
      }
      for (int64_t u = first_user; u < last_user; ++u) {
        RETURN_IF_ERROR(RunStep(step, {u, u + 1}, nullptr, tensors));
      }
    }
    return absl::OkStatus();
  }

  // Everything that the user's part is computed from.
  std::string KeyOf(int64_t user) {
    std::string key(reinterpret_cast<const char*>(&part_.schedule), sizeof(part_.schedule));
    for (const Operand& in : schedule_.user_inputs) {
      Tensor tensor = in.form;
      Point(in, {user, user + 1}, nullptr, tensor);
      const int64_t bytes = tensor.data == nullptr ? -1 : static_cast<int64_t>(tensor.bytes());
      key.append(reinterpret_cast<const char*>(&bytes), sizeof(bytes));
      if (bytes > 0) key.append(static_cast<const char*>(tensor.data), bytes);
    }
    return key;
  }

  // RunUserSteps, but for users that the cache has.
  absl::Status RunOrFindUsers(UserCache& cache, int64_t first_user, int64_t last_user) {
    std::vector<std::shared_ptr<const CachedUser>> users;
    for (int64_t u = first_user; u < last_user; ++u) {
      bool computed = false;
      ASSIGN_OR_RETURN(std::shared_ptr<const CachedUser> user, cache.FindOrCompute(KeyOf(u), [&] {
        computed = true;
        return ComputeUser(u);
      }));
      if (!computed) {
        AddEach(user->looked_up_ids, ws_.counters.looked_up_ids);
        AddEach(user->missing_ids, ws_.counters.missing_ids);
      }
      users.push_back(std::move(user));
    }
    // Afterwards: computing one user writes where the rows of others lie.
    for (int64_t u = first_user; u < last_user; ++u) {
      const char* from = users[u - first_user]->values.data();
      for (const Operand& operand : schedule_.kept) {
        std::memcpy(KeptRow(operand, u), from, operand.row_bytes);
        from += operand.row_bytes;
      }
    }
    return absl::OkStatus();
  }

  absl::Status RunTile(int64_t begin, int64_t end) {
    const ArenaLayout& layout = Schedule::For(schedule_.ad_layouts, end - begin);
    RETURN_IF_ERROR(ws_.ads.Reserve(layout.bytes));
    for (const Stage& stage : schedule_.stages) {
      const int64_t rows = stage.rows > 0 ? std::min(stage.rows, end - begin) : end - begin;
      for (int64_t at = begin; at < end; at += rows) {
        RETURN_IF_ERROR(RunStage(stage, layout, begin, at, std::min(end, at + rows)));
      }
    }
    return absl::OkStatus();
  }

  // Ads [begin, end) of the outputs, from the tile that they are.
  void CopyAds(int64_t begin, int64_t end, absl::Span<const Tensor> outputs) {
    const ArenaLayout& layout = Schedule::For(schedule_.ad_layouts, end - begin);
    const Rows rows{.first_ad = begin, .last_ad = end, .tile = begin, .inner = begin};
    for (size_t o = 0; o < outputs.size(); ++o) {
      const Operand& operand = schedule_.outputs[o];
      if (operand.place != Place::kAd) continue;
      const int64_t bytes = (end - begin) * operand.row_bytes;
      if (bytes == 0) continue;
      std::memcpy(static_cast<char*>(outputs[o].data) + begin * operand.row_bytes,
                  AdRow(operand, rows, layout), bytes);
    }
  }

 private:
  char* KeptRow(const Operand& operand, int64_t user) const {
    const bool fixed = operand.place == Place::kFixed;
    return part_.base[operand.root] + (fixed ? 0 : user - part_.first_user) * operand.row_bytes;
  }

  absl::StatusOr<std::shared_ptr<const CachedUser>> ComputeUser(int64_t user) {
    auto cached = std::make_shared<CachedUser>();
    RunCounters before = ws_.counters;
    RETURN_IF_ERROR(RunUserSteps(user, user + 1));
    cached->looked_up_ids = ws_.counters.looked_up_ids;
    cached->missing_ids = ws_.counters.missing_ids;
    for (size_t t = 0; t < before.missing_ids.size(); ++t) {
      cached->looked_up_ids[t] -= before.looked_up_ids[t];
      cached->missing_ids[t] -= before.missing_ids[t];
    }
    for (const Operand& operand : schedule_.kept) {
      cached->values.append(KeptRow(operand, user), operand.row_bytes);
    }
    return cached;
  }

  ScheduleState& StateOf() {
    std::vector<std::unique_ptr<ScheduleState>>& states = ws_.schedules;
    const std::shared_ptr<const void>& token = part_.executable->token;
    for (auto it = states.begin(); it != states.end(); ++it) {
      // A new model may get the address of one that is gone.
      if ((*it)->schedule != &schedule_ || (*it)->model.owner_before(token) ||
          token.owner_before((*it)->model)) {
        continue;
      }
      std::rotate(states.begin(), it, it + 1);
      return *states.front();
    }
    if (states.size() >= WorkspaceState::kMaxSchedules) states.pop_back();
    states.insert(states.begin(), MakeState());
    return *states.front();
  }

  std::unique_ptr<ScheduleState> MakeState() const {
    auto state = std::make_unique<ScheduleState>();
    state->schedule = &schedule_;
    state->model = part_.executable->token;
    const auto add = [&](const std::vector<RowStep>& steps, std::vector<int>& first) {
      for (const RowStep& step : steps) {
        first.push_back(static_cast<int>(state->tensors.size()));
        for (const Operand& in : step.in) state->tensors.push_back(in.form);
        for (const Operand& out : step.out) state->tensors.push_back(out.form);
      }
    };
    add(schedule_.user_steps, state->user_first);
    add(schedule_.ad_steps, state->ad_first);
    return state;
  }

  absl::Status RunStage(const Stage& stage, const ArenaLayout& layout, int64_t tile, int64_t begin,
                        int64_t end) {
    Rows rows{.first_ad = begin, .last_ad = end, .tile = tile, .inner = begin};
    const auto after = std::upper_bound(part_.begins.begin() + part_.first_user,
                                        part_.begins.begin() + part_.last_user, begin);
    const int64_t first_user = after - part_.begins.begin() - 1;
    const bool one_user = part_.begins[first_user + 1] >= end;
    for (int s = stage.begin; s < stage.end; ++s) {
      const RowStep& step = schedule_.ad_steps[s];
      Tensor* tensors = &state_->tensors[state_->ad_first[s]];
      rows.first_user = first_user;
      rows.last_user = first_user + 1;
      rows.first_ad = begin;
      if (!step.one_user || one_user) {
        rows.last_ad = end;
        RETURN_IF_ERROR(RunStep(step, rows, &layout, tensors));
        continue;
      }
      for (int64_t u = first_user; rows.first_ad < end; ++u, rows.first_ad = rows.last_ad) {
        rows.last_ad = std::min(end, part_.begins[u + 1]);
        if (rows.last_ad <= rows.first_ad) continue;
        rows.first_user = u;
        rows.last_user = u + 1;
        RETURN_IF_ERROR(RunStep(step, rows, &layout, tensors));
      }
    }
    return absl::OkStatus();
  }

  char* AdRow(const Operand& operand, const Rows& rows, const ArenaLayout& layout) const {
    if (operand.of_request) {
      char* const data = part_.base[operand.root];
      return data == nullptr ? nullptr : data + rows.first_ad * operand.row_bytes;
    }
    return static_cast<char*>(ws_.ads.data()) + layout.offsets[operand.root] +
           (rows.first_ad - (operand.inner ? rows.inner : rows.tile)) * operand.row_bytes;
  }

  void Point(const Operand& operand, const Rows& rows, const ArenaLayout* layout, Tensor& tensor) {
    switch (operand.place) {
      case Place::kFixed:
        tensor.data = part_.base[operand.root];
        return;
      case Place::kUser: {
        // Row 0 of an input is user 0's, of anything else that of the group's first user.
        const int64_t origin = operand.of_request ? 0 : part_.first_user;
        tensor.dims[0] = rows.last_user - rows.first_user;
        tensor.data = part_.base[operand.root] + (rows.first_user - origin) * operand.row_bytes;
        return;
      }
      case Place::kAd:
        tensor.dims[0] = rows.last_ad - rows.first_ad;
        tensor.data = AdRow(operand, rows, *layout);
        return;
      case Place::kIds:
        PointIds(operand, rows, tensor);
        return;
    }
  }

  // The ids of the rows; the cursor goes along, as rows come in order but for the stages of a tile.
  void PointIds(const Operand& operand, const Rows& rows, Tensor& tensor) {
    const FeatureInfo& feature = part_.executable->info->features[operand.feature];
    const Tensor& segments = part_.request.inputs[feature.segments];
    const int64_t first = operand.of_users ? rows.first_user : rows.first_ad;
    const int64_t last = operand.of_users ? rows.last_user : rows.last_ad;
    const int32_t* counts = segments.i32();
    int64_t id = first, count = last - first;
    if (counts != part_.request.ones.data()) {
      IdCursor& cursor = ws_.cursors[operand.feature];
      if (cursor.row > first) cursor = IdCursor{};
      for (; cursor.row < first; ++cursor.row) cursor.id += counts[cursor.row];
      id = cursor.id;
      if (first == 0 && last == segments.dims[0]) {
        count = part_.request.inputs[feature.ids].dims[0];
      } else {
        count = 0;
        for (int64_t r = first; r < last; ++r) count += counts[r];
      }
    }
    tensor.dims[0] = count;
    char* const data = part_.base[operand.root];
    tensor.data = data == nullptr ? nullptr : data + id * operand.row_bytes;
  }

  absl::Status RunStep(const RowStep& step, const Rows& rows, const ArenaLayout* layout,
                       Tensor* tensors) {
    RETURN_IF_ERROR(CheckStop(options_.stop));
    const Kernel& kernel = *step.step->kernel;
    Tensor* tensor = tensors;
    for (const Operand& in : step.in) Point(in, rows, layout, *tensor++);
    const absl::Span<Tensor> out(tensor, step.out.size());
    for (const Operand& operand : step.out) Point(operand, rows, layout, *tensor++);
    const absl::Span<const Tensor> in(tensors, step.in.size());
    RETURN_IF_ERROR(ws_.scratch.Reserve(static_cast<int64_t>(kernel.ScratchBytes(in))));
    RunContext context{.in = in,
                       .out = out,
                       .scratch = ws_.scratch.data(),
                       .counters = &ws_.counters,
                       .tables = part_.executable->tables,
                       .stop = options_.stop,
                       .fetched = options_.fetched};
    const bool embedding = step.step->embedding;
    const bool timed = embedding || options_.steps != nullptr;
    const int64_t start = timed ? NowNs() : 0;
    const absl::Status status = kernel.Run(context);
    const int64_t ns = timed ? NowNs() - start : 0;
    if (embedding) stats_.embed_ns += ns;
    if (options_.steps != nullptr) {
      const size_t index = step.step - schedule_.plan->steps.data();
      options_.steps->ns[index] += ns;
      ++options_.steps->runs[index];
    }
    if (!status.ok()) return Annotate(status, step.step->node->Label());
    if (options_.count_layers) {
      RunStats::LayerCount& count = stats_.layers[step.step->node->file_index];
      ++count.runs;
      count.rows += out[0].dims.empty() ? 1 : out[0].dims[0];
    }
    return absl::OkStatus();
  }

  const RunOptions& options_;
  const UserPart& part_;
  const Schedule& schedule_;
  WorkspaceState& ws_;
  RunStats& stats_;
  ScheduleState* state_;
};

// Addresses of what does not depend on the ads.
absl::Status SetBases(UserPart& part) {
  const Schedule& schedule = *part.schedule;
  const std::vector<Value>& values = schedule.plan->graph.values;
  const ArenaLayout& layout =
      Schedule::For(schedule.user_layouts, part.last_user - part.first_user);
  RETURN_IF_ERROR(part.arena.Reserve(layout.bytes));
  char* const arena = static_cast<char*>(part.arena.data());
  part.base.resize(values.size());
  for (size_t id = 0; id < values.size(); ++id) {
    if (layout.offsets[id] >= 0) {
      part.base[id] = arena + layout.offsets[id];
    } else if (values[id].kind == Value::Kind::kConstant) {
      part.base[id] = reinterpret_cast<char*>(const_cast<float*>(values[id].constant.data()));
    } else {
      part.base[id] = nullptr;
    }
  }
  const Executable& executable = *part.executable;
  for (size_t i = 0; i < part.request.inputs.size(); ++i) {
    part.base[executable.input_values[i]] = static_cast<char*>(part.request.inputs[i].data);
  }
  return absl::OkStatus();
}

// What the outputs have of the group's users, and what they have of nobody.
void CopyUsers(const UserPart& part, absl::Span<const Tensor> outputs) {
  const int64_t users = part.last_user - part.first_user;
  for (size_t o = 0; o < outputs.size(); ++o) {
    const Operand& operand = part.schedule->outputs[o];
    if (operand.place != Place::kUser && operand.place != Place::kFixed) continue;
    const bool fixed = operand.place == Place::kFixed;
    const int64_t to = fixed ? 0 : part.first_user * operand.row_bytes;
    const int64_t from = operand.of_request && !fixed ? to : 0;
    const int64_t bytes = operand.row_bytes * (fixed ? 1 : users);
    if (bytes == 0) continue;
    std::memcpy(static_cast<char*>(outputs[o].data) + to, part.base[operand.root] + from, bytes);
  }
}

// Scratch that embeddings take for the request's ids.
int64_t IdScratch(const UserPart& part) {
  int64_t ids = 0;
  for (const FeatureInfo& feature : part.executable->info->features) {
    ids = SaturatingAdd(ids, part.request.inputs[feature.ids].elements());
  }
  return SaturatingMultiply(ids, kPoolingScratchBytes);
}

// Whether the arenas, the scratch and so many bytes of outputs are within the limit.
absl::Status CheckMemory(const RunOptions& options, const UserPart& part, int64_t output_bytes) {
  if (options.max_memory_bytes == 0) return absl::OkStatus();
  const Schedule& schedule = *part.schedule;
  const int64_t users = std::min(part.users, Schedule::kMaxUsers);
  const int64_t ads = std::min(part.ads, schedule.tile_rows);
  const int64_t arenas = SaturatingAdd(Schedule::For(schedule.user_layouts, users).bytes,
                                       Schedule::For(schedule.ad_layouts, ads).bytes);
  const int64_t scratch = std::max({Schedule::For(schedule.user_scratch, users),
                                    Schedule::For(schedule.ad_scratch, ads), IdScratch(part)});
  const int64_t needed = SaturatingAdd(output_bytes, SaturatingAdd(arenas, scratch));
  if (needed <= options.max_memory_bytes) return absl::OkStatus();
  LargestTensor largest;
  for (const auto* steps : {&schedule.user_steps, &schedule.ad_steps}) {
    for (const RowStep& step : *steps) {
      for (size_t o = 0; o < step.out.size(); ++o) {
        Tensor tensor = step.out[o].form;
        if (step.out[o].place == Place::kUser) tensor.dims[0] = users;
        if (step.out[o].place == Place::kAd) tensor.dims[0] = ads;
        largest.Offer(schedule.plan->graph.values[step.step->node->outputs[o]].name, tensor);
      }
    }
  }
  return largest.TooMuch(needed, options.max_memory_bytes);
}

}  // namespace

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

absl::Status BeginRows(const RunOptions& options, const Executable& executable,
                       const Schedule& schedule, int64_t ads, UserPart& part, RunResult& result) {
  part.executable = &executable;
  part.schedule = &schedule;
  part.users = part.request.users();
  part.ads = ads;
  if (part.request.user_begin.empty()) {
    part.begins.assign({0, ads});
  } else {
    part.begins = part.request.user_begin;
  }
  result.outputs.resize(schedule.outputs.size());
  int64_t bytes = 0;
  for (size_t o = 0; o < schedule.outputs.size(); ++o) {
    const Operand& operand = schedule.outputs[o];
    Tensor& tensor = result.outputs[o];
    tensor = operand.form;
    if (operand.place == Place::kUser) tensor.dims[0] = part.users;
    if (operand.place == Place::kAd) tensor.dims[0] = ads;
    RETURN_IF_ERROR(CheckDims(tensor.dims));
    bytes = SaturatingAdd(bytes, Aligned(static_cast<int64_t>(tensor.bytes())));
  }
  RETURN_IF_ERROR(CheckMemory(options, part, bytes));
  RETURN_IF_ERROR(part.outputs.Reserve(bytes));
  char* data = static_cast<char*>(part.outputs.data());
  for (Tensor& tensor : result.outputs) {
    tensor.data = data;
    data += Aligned(static_cast<int64_t>(tensor.bytes()));
  }
  return absl::OkStatus();
}

absl::Status ComputeUsers(const RunOptions& options, int64_t first_user, int64_t last_user,
                          UserPart& part, WorkspaceState& ws, RunResult& result) {
  const int64_t start = NowNs();
  const int64_t embed_ns = result.stats.embed_ns;
  part.first_user = first_user;
  part.last_user = last_user;
  RETURN_IF_ERROR(SetBases(part));
  Runner runner(options, part, ws, result.stats);
  UserCache* const cache = part.executable->user_cache.get();
  // Who looks at single steps wants them run.  What is computed without rows that are late is not
  // to be kept.
  const bool cached = cache != nullptr && !part.schedule->user_steps.empty() &&
                      options.steps == nullptr && !options.count_layers && !options.reference &&
                      (options.fetched == nullptr || options.fetched->CountLate() == 0);
  RETURN_IF_ERROR(cached ? runner.RunOrFindUsers(*cache, first_user, last_user)
                         : runner.RunUserSteps(first_user, last_user));
  CopyUsers(part, result.outputs);
  result.stats.user_ns += NowNs() - start - (result.stats.embed_ns - embed_ns);
  return absl::OkStatus();
}

absl::Status ComputeAds(const RunOptions& options, const UserPart& part, int64_t begin, int64_t end,
                        WorkspaceState& ws, absl::Span<const Tensor> outputs, RunStats& stats) {
  if (begin >= end) return absl::OkStatus();
  const int64_t start = NowNs();
  const int64_t embed_ns = stats.embed_ns;
  int64_t most = part.schedule->tile_rows;
  if (options.tile_rows > 0) most = std::min(most, options.tile_rows);
  // Tiles of about the same size: a small one at the end would cost as much as a large one.
  const int64_t tiles = (end - begin + most - 1) / most;
  const int64_t rows = (end - begin + tiles - 1) / tiles;
  Runner runner(options, part, ws, stats);
  for (int64_t at = begin; at < end; at += rows) {
    RETURN_IF_ERROR(runner.RunTile(at, std::min(end, at + rows)));
    runner.CopyAds(at, std::min(end, at + rows), outputs);
  }
  stats.ad_ns += NowNs() - start - (stats.embed_ns - embed_ns);
  return absl::OkStatus();
}

}  // namespace ulfd::engine

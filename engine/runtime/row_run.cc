// SPDX-License-Identifier: Apache-2.0
#include "engine/runtime/row_run.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/status_macros.h"
#include "engine/runtime/item_rows.h"
#include "engine/runtime/run_memory.h"
#include "engine/runtime/step_run.h"

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
  // `ads`, `cursors`: where the ads' values and the places of their ids are to be.
  Runner(const RunOptions& options, const UserPart& part, Arena& ads,
         std::vector<IdCursor>& cursors, WorkspaceState& ws, RunStats& stats)
      : options_(options),
        part_(part),
        schedule_(*part.schedule),
        ads_(ads),
        cursors_(cursors),
        ws_(ws),
        stats_(stats) {
    state_ = &StateOf();
    cursors_.assign(part.executable->info->features.size(), IdCursor{});
  }
  Runner(const RunOptions& options, const UserPart& part, WorkspaceState& ws, RunStats& stats)
      : Runner(options, part, ws.ads, ws.cursors, ws, stats) {}

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

  // Of everything that the user's part is computed from.
  KeptKey KeyOf(int64_t user) {
    KeptHasher hasher;
    hasher.AddCount(schedule_.id);
    for (const Operand& in : schedule_.user_inputs) {
      Tensor tensor = in.form;
      Point(in, {user, user + 1}, nullptr, tensor);
      const size_t bytes = tensor.data == nullptr ? 0 : tensor.bytes();
      hasher.AddCount(tensor.data == nullptr ? UINT64_MAX : bytes);
      hasher.Add(tensor.data, bytes);
    }
    return hasher.key();
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

  // `cache`: where to look for what is of items, or null.
  absl::Status RunTile(int64_t begin, int64_t end, AdCache* cache) {
    RETURN_IF_ERROR(ads_.Reserve(Schedule::For(schedule_.ad_layouts, end - begin).bytes));
    if (cache == nullptr) return RunStages(0, schedule_.stages.size(), begin, end);
    RETURN_IF_ERROR(RunStages(0, schedule_.first_item_stage, begin, end));
    RETURN_IF_ERROR(RunOrFindItems(*cache, begin, end));
    return RunStages(schedule_.last_item_stage, schedule_.stages.size(), begin, end);
  }

  // Of a tile for which there is room.
  absl::Status RunStages(size_t first, size_t last, int64_t begin, int64_t end) {
    const ArenaLayout& layout = Schedule::For(schedule_.ad_layouts, end - begin);
    for (size_t s = first; s < last; ++s) {
      const Stage& stage = schedule_.stages[s];
      const int64_t rows = stage.rows > 0 ? std::min(stage.rows, end - begin) : end - begin;
      for (int64_t at = begin; at < end; at += rows) {
        RETURN_IF_ERROR(RunStage(stage, layout, begin, at, std::min(end, at + rows)));
      }
    }
    return absl::OkStatus();
  }

  absl::Status RunItems(int64_t begin, int64_t end) {
    return RunStages(schedule_.first_item_stage, schedule_.last_item_stage, begin, end);
  }

  // The same, but for ads that the cache has; those of one key once.
  absl::Status RunOrFindItems(AdCache& cache, int64_t begin, int64_t end) {
    ItemState& items = ws_.items;
    const int64_t ads = end - begin;
    FindColumns(begin, ads);
    KeyAds(schedule_, ads, items);
    items.found.assign(ads, 0);
    cache.Find(items.keys, items.work, [&](size_t i, const char* row) {
      items.found[i] = 1;
      for (const Operand& kept : schedule_.item_kept) {
        std::memcpy(ItemRow(kept, ads, i), row, kept.row_bytes);
        row += kept.row_bytes;
      }
    });
    ListMissing(items);
    const auto missing = static_cast<int64_t>(items.missing.size());
    if (missing == 0) return absl::OkStatus();
    if (missing == ads) {
      RETURN_IF_ERROR(RunItems(begin, end));
      Keep(cache, ads);
      return absl::OkStatus();
    }
    // Ids begin again from the front: no step of items reads any.
    Runner few(options_, items.part, items.ads, cursors_, ws_, stats_);
    RETURN_IF_ERROR(few.GatherMissing(part_, items));
    RETURN_IF_ERROR(few.RunItems(0, missing));
    few.Keep(cache, missing);
    for (const Operand& kept : schedule_.item_kept) {
      for (int64_t i = 0; i < ads; ++i) {
        if (items.source[i] < 0) continue;
        std::memcpy(ItemRow(kept, ads, i), few.ItemRow(kept, missing, items.source[i]),
                    kept.row_bytes);
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
  // Of ad `i` of a tile of `ads`.
  char* ItemRow(const Operand& kept, int64_t ads, int64_t i) const {
    const ArenaLayout& layout = Schedule::For(schedule_.ad_layouts, ads);
    return static_cast<char*>(ads_.data()) + layout.offsets[kept.root] + i * kept.row_bytes;
  }

  // Where the tile's rows of what steps of items read are.
  void FindColumns(int64_t begin, int64_t ads) {
    ws_.items.columns.clear();
    for (const Operand& in : schedule_.item_inputs) {
      ws_.items.columns.push_back(in.of_request ? part_.base[in.root] + begin * in.row_bytes
                                                : ItemRow(in, ads, 0));
    }
  }

  // Makes this runner's part, which is `items.part`, a request of the missing ads of `from`.
  absl::Status GatherMissing(const UserPart& from, ItemState& items) {
    UserPart& part = items.part;
    const auto missing = static_cast<int64_t>(items.missing.size());
    part.users = part.last_user = 1;
    part.ads = missing;
    part.begins.assign({0, missing});
    part.base = from.base;  // Constants.
    items.gathered.resize(std::max(items.gathered.size(), schedule_.item_inputs.size()));
    RETURN_IF_ERROR(ads_.Reserve(Schedule::For(schedule_.ad_layouts, missing).bytes));
    for (size_t c = 0; c < schedule_.item_inputs.size(); ++c) {
      const Operand& in = schedule_.item_inputs[c];
      char* to = nullptr;
      if (in.of_request) {
        items.gathered[c].resize(missing * in.row_bytes);
        to = part.base[in.root] = items.gathered[c].data();
      } else {
        to = ItemRow(in, missing, 0);
      }
      for (int64_t j = 0; j < missing; ++j, to += in.row_bytes) {
        if (in.row_bytes == 0) continue;
        std::memcpy(to, items.columns[c] + items.missing[j] * in.row_bytes, in.row_bytes);
      }
    }
    return absl::OkStatus();
  }

  // Puts what was computed of the missing ads, which are the tile, into the cache.
  void Keep(AdCache& cache, int64_t ads) const {
    ItemState& items = ws_.items;
    items.missing_keys.clear();
    for (const int32_t i : items.missing) items.missing_keys.push_back(items.keys[i]);
    cache.Insert(items.missing_keys, items.work, [&](size_t i, char* row) {
      for (const Operand& kept : schedule_.item_kept) {
        std::memcpy(row, ItemRow(kept, ads, static_cast<int64_t>(i)), kept.row_bytes);
        row += kept.row_bytes;
      }
    });
  }

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
    for (auto it = states.begin(); it != states.end(); ++it) {
      if ((*it)->schedule != schedule_.id) continue;
      std::rotate(states.begin(), it, it + 1);
      return *states.front();
    }
    if (states.size() >= WorkspaceState::kMaxSchedules) states.pop_back();
    states.insert(states.begin(), MakeState());
    return *states.front();
  }

  std::unique_ptr<ScheduleState> MakeState() const {
    auto state = std::make_unique<ScheduleState>();
    state->schedule = schedule_.id;
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
    return static_cast<char*>(ads_.data()) + layout.offsets[operand.root] +
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
      IdCursor& cursor = cursors_[operand.feature];
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
    Tensor* tensor = tensors;
    for (const Operand& in : step.in) Point(in, rows, layout, *tensor++);
    const absl::Span<Tensor> out(tensor, step.out.size());
    for (const Operand& operand : step.out) Point(operand, rows, layout, *tensor++);
    return engine::RunStep(*part_.executable, options_, *schedule_.plan, *step.step,
                           absl::MakeConstSpan(tensors, step.in.size()), out, ws_, stats_);
  }

  const RunOptions& options_;
  const UserPart& part_;
  const Schedule& schedule_;
  Arena& ads_;
  std::vector<IdCursor>& cursors_;
  WorkspaceState& ws_;
  RunStats& stats_;
  ScheduleState* state_;
};

// Whether what is computed may be kept for other requests, and taken from others.  Who counts
// layers wants them run, what nobody asked for is no hit of anybody, and what is computed without
// rows that are late is not to be kept.
bool MayKeep(const RunOptions& options) {
  return !options.count_layers && !options.made_up && !options.reference &&
         (options.fetched == nullptr || options.fetched->CountLate() == 0);
}

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
    part.base[executable.info->inputs[i].value] = static_cast<char*>(part.request.inputs[i].data);
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

}  // namespace

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
  RETURN_IF_ERROR(CheckRunMemory(options, part, bytes));
  if (options.check_outputs != nullptr) RETURN_IF_ERROR((*options.check_outputs)(result.outputs));
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
  const bool cached = cache != nullptr && !part.schedule->user_steps.empty() && MayKeep(options);
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
  const bool cut = part.schedule->last_item > part.schedule->first_item;
  AdCache* cache = cut ? part.executable->ad_cache.get() : nullptr;
  if (cache != nullptr && !(MayKeep(options) && cache->Wants(end - begin))) cache = nullptr;
  ws.items.part.executable = part.executable;
  ws.items.part.schedule = part.schedule;
  Runner runner(options, part, ws, stats);
  for (int64_t at = begin; at < end; at += rows) {
    RETURN_IF_ERROR(runner.RunTile(at, std::min(end, at + rows), cache));
    runner.CopyAds(at, std::min(end, at + rows), outputs);
  }
  stats.ad_ns += NowNs() - start - (stats.embed_ns - embed_ns);
  return absl::OkStatus();
}

namespace {

// Writes a number for each ad, as the first float of its row.
void NumberRows(int64_t ads, int64_t row_bytes, char* rows) {
  std::memset(rows, 0, ads * row_bytes);
  for (int64_t i = 0; row_bytes >= static_cast<int64_t>(sizeof(float)) && i < ads; ++i) {
    const auto number = static_cast<float>(i + 1);
    std::memcpy(rows + i * row_bytes, &number, sizeof number);
  }
}

}  // namespace

absl::StatusOr<ItemTimes> TimeItems(const Executable& executable, const Schedule& schedule) {
  constexpr int kRuns = 7;
  const int64_t ads = std::min<int64_t>(schedule.tile_rows, 64);
  WorkspaceState ws;
  RunStats stats;
  const RunOptions options;
  UserPart& part = ws.user;
  part.executable = ws.items.part.executable = &executable;
  part.schedule = ws.items.part.schedule = &schedule;
  part.users = part.last_user = 1;
  part.begins = {0, ads};
  part.request.inputs.resize(executable.info->inputs.size());
  RETURN_IF_ERROR(SetBases(part));
  if (part.arena.bytes() > 0) std::memset(part.arena.data(), 0, part.arena.bytes());
  const ArenaLayout& layout = Schedule::For(schedule.ad_layouts, ads);
  RETURN_IF_ERROR(ws.ads.Reserve(layout.bytes));
  std::vector<std::vector<char>> data;
  for (const Operand& in : schedule.item_inputs) {
    char* rows = static_cast<char*>(ws.ads.data()) + std::max<int64_t>(layout.offsets[in.root], 0);
    if (in.of_request) rows = data.emplace_back(ads * in.row_bytes + 1).data();
    if (in.of_request) part.base[in.root] = rows;
    NumberRows(ads, in.row_bytes, rows);
  }
  int64_t row_bytes = 0;
  for (const Operand& kept : schedule.item_kept) row_bytes += kept.row_bytes;
  // Room for all in any shard.
  AdCache cache(ads * 64 * (row_bytes + static_cast<int64_t>(AdCache::kEntryBytes)), row_bytes, 0);
  Runner runner(options, part, ws, stats);
  RETURN_IF_ERROR(runner.RunOrFindItems(cache, 0, ads));  // Fills it.
  ItemTimes best{.compute = HUGE_VAL, .read = HUGE_VAL};
  for (int run = 0; run < kRuns; ++run) {
    const int64_t start = NowNs();
    RETURN_IF_ERROR(runner.RunItems(0, ads));
    const int64_t computed = NowNs();
    RETURN_IF_ERROR(runner.RunOrFindItems(cache, 0, ads));
    const int64_t read = NowNs();
    best.compute = std::min(best.compute, static_cast<double>(computed - start));
    best.read = std::min(best.read, static_cast<double>(read - computed));
  }
  return ItemTimes{best.compute / static_cast<double>(ads), best.read / static_cast<double>(ads)};
}

}  // namespace ulfd::engine

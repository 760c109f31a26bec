// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/schedule.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/load_scope.h"
#include "base/status_macros.h"

namespace ulfd::engine {

namespace {

// GEMMs over fewer rows than this waste most of what they load; the second: of weights that do not
// stay in the cache, where 200 ads are two tiles.
constexpr int64_t kGemmRows = 48, kHeavyGemmRows = 100;
constexpr int64_t kMaxTileRows = 512;
// Light steps that may stand between heavy ones of a stage.
constexpr int kMaxGap = 2;

// "512K"; 0 if the file is not there or says something else.
int64_t FromSysfs() {
  std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index2/size");
  int64_t size = 0;
  char unit = '\0';
  file >> size;
  if (!file || size <= 0) return 0;
  file >> unit;
  if (unit == 'K') return size << 10;
  return unit == 'M' ? size << 20 : size;
}

// Of a core; 512 KiB where the machine does not say.
int64_t SecondLevelCacheBytes() {
  constexpr int64_t kDefault = 512 << 10;
  // Beyond these a figure is a virtual machine's invention, or shared by many cores.
  constexpr int64_t kLeast = 128 << 10, kMost = 4 << 20;
  int64_t bytes = 0;
#ifdef _SC_LEVEL2_CACHE_SIZE
  bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
#endif
  if (bytes <= 0) bytes = FromSysfs();
  return bytes <= 0 ? kDefault : std::clamp(bytes, kLeast, kMost);
}

// Whether `shape` is [rows of that level, numbers...].
bool RowsLead(const Shape& shape, Level level) {
  if (!shape.ranked() || shape.rank() == 0) return false;
  if (shape[0] != (level == Level::kUser ? Dim::Users() : Dim::Ads())) return false;
  return std::all_of(shape.dims().begin() + 1, shape.dims().end(),
                     [](Dim d) { return d.IsConst(); });
}

// Kernels may loop over what an empty tensor would hold, and here only bytes have a price.
bool IsWideAndEmpty(const Shape& shape) {
  constexpr int64_t kWide = 1 << 20;
  TensorDims dims;
  for (const Dim& d : shape.dims()) dims.push_back(d.value());
  return std::find(dims.begin(), dims.end(), 0) != dims.end() && Volume(dims) > kWide;
}

absl::Status ProveStep(const Plan& plan, const Step& step) {
  const auto fail = [&](ValueId id, const auto&... why) {
    return FailedPrecondition(step.node->Label(), ": \"", plan.graph.values[id].name, "\" ",
                              why...);
  };
  Level joined = Level::kConstant;
  for (ValueId id : step.node->inputs) {
    const Level level = plan.specs[id].level;
    if (level == Level::kUnknown) return fail(id, "has rows of unknown owners");
    joined = Join(joined, level);
  }
  for (ValueId id : step.node->outputs) {
    const auto& [dtype, shape, level] = plan.specs[id];
    if (level == Level::kUnknown) {
      return fail(id, "has rows that are not proved to belong to one user or ad each: shape ",
                  shape.ToString());
    }
    // A feature read at both levels, say.
    if (joined == Level::kAd && level != Level::kAd) {
      return fail(id, "is ", Name(level), " level, but computed from ads");
    }
    if (!(level == Level::kConstant ? shape.IsConcrete() : RowsLead(shape, level))) {
      return fail(id, "has shape ", shape.ToString(), ", which the request must tell");
    }
    if (IsWideAndEmpty(shape)) {
      return fail(id, "has shape ", shape.ToString(), ": empty, but not short");
    }
  }
  return absl::OkStatus();
}

class Builder {
 public:
  Builder(const Plan& plan, const ModelInfo& info, bool cut_items)
      : plan_(plan),
        graph_(plan.graph),
        info_(info),
        cut_items_(cut_items),
        roots_(StorageRoots(plan)) {}

  absl::StatusOr<std::unique_ptr<const Schedule>> Build() {
    static std::atomic<uint64_t> made = 0;
    schedule_ = std::make_unique<Schedule>();
    schedule_->id = ++made;
    schedule_->plan = &plan_;
    AddInputs();
    AddSteps();
    for (const NamedValue& output : graph_.outputs) {
      schedule_->outputs.push_back(OperandOf(output.value));
    }
    RETURN_IF_ERROR(LayOutUsers());
    ListUserInputs();
    RETURN_IF_ERROR(ChooseTiles());
    return std::unique_ptr<const Schedule>(std::move(schedule_));
  }

 private:
  const TensorSpec& spec(ValueId id) const { return plan_.specs[id]; }

  void AddInputs() {
    input_of_.assign(graph_.values.size(), -1);
    for (size_t i = 0; i < info_.inputs.size(); ++i) {
      const ValueId id = info_.inputs[i].value;
      input_of_[id] = static_cast<int>(i);
      if (!info_.inputs[i].used) continue;
      ExpectedInput expected{.input = static_cast<int>(i), .rows = spec(id).level};
      expected.free_length = info_.inputs[i].free_length;
      if (!expected.free_length) {
        expected.dims.push_back(0);
        for (int d = 1; d < spec(id).shape.rank(); ++d) {
          expected.dims.push_back(spec(id).shape[d].value());
        }
      }
      schedule_->inputs.push_back(std::move(expected));
    }
  }

  Operand OperandOf(ValueId id) const {
    const TensorSpec& s = spec(id);
    Operand operand{.root = roots_[id], .form = {.dtype = s.dtype}};
    const int input = input_of_[operand.root];
    operand.of_request = input >= 0;
    if (input >= 0 && !info_.inputs[input].used) {  // Whatever the request has of it.
      operand.form.dims = {0};
      return operand;
    }
    if (input >= 0 && info_.inputs[input].free_length) {
      operand.place = Operand::Place::kIds;
      operand.feature = info_.inputs[input].feature;
      operand.of_users = OfUsers(operand.feature);
      operand.row_bytes = static_cast<int64_t>(SizeOf(s.dtype));
      operand.form.dims = {0};
      return operand;
    }
    if (s.level == Level::kUser) operand.place = Operand::Place::kUser;
    if (s.level == Level::kAd) operand.place = Operand::Place::kAd;
    for (int d = 0; d < s.shape.rank(); ++d) {
      operand.form.dims.push_back(s.shape[d].IsConst() ? s.shape[d].value() : 1);
    }
    operand.row_bytes = static_cast<int64_t>(operand.form.bytes());
    return operand;
  }

  void AddSteps() {
    using Part = ItemValues::Part;
    std::vector<Part> parts(plan_.steps.size(), Part::kOther);
    if (cut_items_) parts = ItemParts(plan_);
    const auto add = [&](bool of_users, Part part) {
      for (size_t s = 0; s < plan_.steps.size(); ++s) {
        if (plan_.steps[s].view || of_users != (static_cast<int>(s) < plan_.user_steps)) continue;
        if (of_users || parts[s] == part) AddStep(plan_.steps[s], of_users);
      }
      return static_cast<int>(schedule_->ad_steps.size());
    };
    add(true, Part::kOther);
    schedule_->first_item = add(false, Part::kLookup);
    schedule_->last_item = add(false, Part::kItem);
    add(false, Part::kOther);
  }

  void AddStep(const Step& step, bool of_users) {
    RowStep row_step{.step = &step};
    for (ValueId id : step.node->inputs) row_step.in.push_back(OperandOf(id));
    for (ValueId id : step.node->outputs) row_step.out.push_back(OperandOf(id));
    if (of_users) {
      row_step.one_user = !RunsOverUsers(*step.node);
    } else {
      for (const Operand& in : row_step.in) {
        row_step.one_user |= in.place == Operand::Place::kUser;
        if (in.place == Operand::Place::kIds && in.of_users) {
          schedule_->one_user_only =
              absl::StrCat(step.node->Label(), " reads features of the user and of the ads");
        }
      }
    }
    for (const Operand& in : row_step.in) {
      if (of_users && row_step.one_user && in.place == Operand::Place::kIds) {
        schedule_->one_user_only = absl::StrCat(step.node->Label(), " takes one user at a time");
      }
    }
    (of_users ? schedule_->user_steps : schedule_->ad_steps).push_back(std::move(row_step));
  }

  bool OfUsers(int feature) const {
    return spec(info_.inputs[info_.features[feature].segments].value).level == Level::kUser;
  }

  // Whether the node computes M users' rows at once as it computes one user's.  Infer says so by
  // numpy's rules alone if M is a number that occurs nowhere else: the rows then meet nothing but
  // rows and what one row repeats for all of them.  (For a symbolic user it also takes a literal 1,
  // or a tensor of lower rank, for "this user's".)
  bool RunsOverUsers(const Node& node) {
    constexpr int64_t kUsers = 1000003;
    const auto rows = [&](ValueId id) {
      Shape shape = plan_.specs[id].shape;
      if (plan_.specs[id].level == Level::kUser && shape.ranked() && shape[0].IsUsers()) {
        shape[0] = Dim::Of(kUsers);
      }
      return shape;
    };
    if (trial_.empty()) trial_ = plan_.specs;
    for (ValueId id : node.inputs) trial_[id].shape = rows(id);
    bool runs = InferNode(graph_, node, trial_).ok();
    for (ValueId id : node.outputs) {
      runs = runs && trial_[id].shape == rows(id);
      trial_[id] = plan_.specs[id];
    }
    for (ValueId id : node.inputs) trial_[id] = plan_.specs[id];
    return runs;
  }

  // When each value is made and read last, by steps of one part.
  struct Life {
    int first = -1, last = -1;
    int64_t row_bytes = 0;
    Operand::Place place = Operand::Place::kFixed;
  };
  std::vector<Life> Lives(const std::vector<RowStep>& steps) const {
    std::vector<Life> lives(graph_.values.size());
    for (int s = 0; s < static_cast<int>(steps.size()); ++s) {
      for (const Operand& out : steps[s].out) lives[out.root] = {s, s, out.row_bytes, out.place};
      for (const Operand& in : steps[s].in) lives[in.root].last = s;
    }
    for (const Operand& output : schedule_->outputs) {
      lives[output.root].last = static_cast<int>(steps.size());
    }
    return lives;
  }

  absl::Status LayOutUsers() {
    std::vector<Life> lives = Lives(schedule_->user_steps);
    const int end = static_cast<int>(schedule_->user_steps.size());
    for (const RowStep& step : schedule_->ad_steps) {
      for (const Operand& in : step.in) lives[in.root].last = end;
    }
    for (int64_t users = 1; users <= Schedule::kMaxUsers; users *= 2) {
      RETURN_IF_ERROR(LoadScope::Check());
      std::vector<Lifetime> lifetimes;
      for (size_t id = 0; id < lives.size(); ++id) {
        const Life& life = lives[id];
        if (life.first < 0) continue;
        const int64_t rows = life.place == Operand::Place::kUser ? users : 1;
        lifetimes.push_back({static_cast<int>(id), life.first, life.last, rows * life.row_bytes});
        if (users > 1 || life.last < end) continue;
        schedule_->kept.push_back(
            {.root = static_cast<ValueId>(id), .place = life.place, .row_bytes = life.row_bytes});
      }
      schedule_->user_layouts.push_back(LayOut(std::move(lifetimes), lives.size()));
      schedule_->user_scratch.push_back(Scratch(schedule_->user_steps, 0, end, users, 1));
    }
    return absl::OkStatus();
  }

  void ListUserInputs() {
    std::set<ValueId> listed;
    for (const RowStep& step : schedule_->user_steps) {
      for (const Operand& in : step.in) {
        if (in.of_request && listed.insert(in.root).second) schedule_->user_inputs.push_back(in);
      }
    }
  }

  // What steps of items read and what of theirs is read.  All of it is there throughout them, so
  // that rows of one may be put where they belong while others are still to be read.
  void CutItems(std::vector<Life>& lives) {
    const int begin = schedule_->first_item, end = schedule_->last_item;
    std::set<ValueId> listed;
    for (int s = begin; s < end; ++s) {
      for (const Operand& in : schedule_->ad_steps[s].in) {
        Life& life = lives[in.root];
        const bool made_here = life.first >= begin && life.first < end;
        if (in.place != Operand::Place::kAd || made_here) continue;
        if (listed.insert(in.root).second) schedule_->item_inputs.push_back(in);
        life.last = std::max(life.last, end - 1);
      }
    }
    for (size_t id = 0; id < lives.size(); ++id) {
      Life& life = lives[id];
      if (life.first < begin || life.first >= end || life.last < end) continue;
      life.first = begin;
      schedule_->item_kept.push_back(
          {.root = static_cast<ValueId>(id), .place = life.place, .row_bytes = life.row_bytes});
    }
  }

  // The most scratch that one of steps [begin, end) takes for so many rows.  What embeddings take
  // grows with the ids, of which only the request knows how many there are.
  static int64_t Scratch(const std::vector<RowStep>& steps, int begin, int end, int64_t users,
                         int64_t ads) {
    int64_t most = 0;
    for (int s = begin; s < end; ++s) {
      const RowStep& step = steps[s];
      if (step.step->embedding) continue;
      std::vector<Tensor> in;
      for (const Operand& operand : step.in) {
        in.push_back(operand.form);
        if (operand.place == Operand::Place::kUser) in.back().dims[0] = step.one_user ? 1 : users;
        if (operand.place == Operand::Place::kAd) in.back().dims[0] = ads;
      }
      most = std::max(most, static_cast<int64_t>(step.step->kernel->ScratchBytes(in)));
    }
    return most;
  }

  // ------------------------------------------------------------------------------------- tiles

  // Per-ad bytes that step s reads and writes.
  int64_t Touched(int s) const {
    int64_t bytes = 0;
    for (const Operand& in : schedule_->ad_steps[s].in) {
      if (in.place == Operand::Place::kAd) bytes += in.row_bytes;
    }
    for (const Operand& out : schedule_->ad_steps[s].out) bytes += out.row_bytes;
    return bytes;
  }

  // What step s reads anew for each tile, unless it stays in the cache.
  int64_t WeightBytes(int s) const {
    int64_t bytes = 0;
    for (const Product* product : schedule_->ad_steps[s].step->kernel->products()) {
      bytes += product->k() * product->n() * static_cast<int64_t>(sizeof(float));
    }
    return bytes;
  }

  // The largest sum of rows alive at a step of [begin, end), of those values that `counts` takes.
  template <class Counts>
  static int64_t Peak(const std::vector<Life>& lives, int begin, int end, Counts counts) {
    std::vector<int64_t> change(static_cast<size_t>(end - begin) + 1, 0);  // At each step.
    for (const Life& life : lives) {
      const int first = std::max(life.first, begin), last = std::min(life.last, end - 1);
      if (life.first < 0 || first > last || !counts(life)) continue;
      change[first - begin] += life.row_bytes;
      change[last - begin + 1] -= life.row_bytes;
    }
    int64_t peak = 1, bytes = 0;
    for (const int64_t more : change) peak = std::max(peak, bytes += more);
    return peak;
  }

  // Runs of steps that work on so much per ad that a tile of kGemmRows ads would not stay in the
  // cache.  None has weights that do not stay there: they would be read anew for ever fewer ads.
  std::vector<Stage> FindHeavy(int64_t budget) const {
    std::vector<Stage> heavy;
    bool joins = false;
    for (int s = 0; s < static_cast<int>(schedule_->ad_steps.size()); ++s) {
      if (s == schedule_->first_item || s == schedule_->last_item) joins = false;
      if (WeightBytes(s) > budget) {
        joins = false;
      } else if (Touched(s) > budget / kGemmRows) {
        if (joins && s - heavy.back().end <= kMaxGap) {
          heavy.back().end = s + 1;
        } else {
          heavy.push_back({s, s + 1, 1});
        }
        joins = true;
      }
    }
    return heavy;
  }

  absl::Status ChooseTiles() {
    const int64_t budget = SecondLevelCacheBytes() / 2;
    const int end = static_cast<int>(schedule_->ad_steps.size());
    std::vector<Life> lives = Lives(schedule_->ad_steps);
    CutItems(lives);
    std::vector<bool> inner(lives.size(), false);
    int done = 0;
    for (Stage stage : FindHeavy(budget)) {
      RETURN_IF_ERROR(LoadScope::Check());
      const auto within = [&](const Life& life) {
        return life.first >= stage.begin && life.last < stage.end;
      };
      for (size_t id = 0; id < lives.size(); ++id) {
        if (lives[id].first >= 0 && within(lives[id])) inner[id] = true;
      }
      const int64_t peak = Peak(lives, stage.begin, stage.end, within);
      stage.rows = std::clamp<int64_t>(budget / peak, 1, kMaxTileRows);
      AddStages(done, stage.begin);
      schedule_->stages.push_back(stage);
      done = stage.end;
    }
    AddStages(done, end);
    for (const Stage& stage : schedule_->stages) {
      schedule_->first_item_stage += stage.end <= schedule_->first_item;
      schedule_->last_item_stage += stage.end <= schedule_->last_item;
    }
    // What lives at the size of the whole tile.
    std::vector<Life> outer = lives;
    for (size_t id = 0; id < lives.size(); ++id) {
      if (inner[id]) outer[id] = Life{};
    }
    const int64_t rows = budget / Peak(outer, 0, end, [](const Life&) { return true; });
    for (int s = 0; s < end; ++s) schedule_->heavy_weights |= WeightBytes(s) > budget;
    const int64_t least = schedule_->heavy_weights ? kHeavyGemmRows : kGemmRows;
    schedule_->tile_rows = std::clamp(rows / 16 * 16, least, kMaxTileRows);
    MarkInner(inner);
    return LayOutAds(std::move(lives), inner);
  }

  // Steps [begin, end) over the whole tile at once, those of items apart.
  void AddStages(int begin, int end) {
    for (const int cut : {schedule_->first_item, schedule_->last_item, end}) {
      const int to = std::clamp(cut, begin, end);
      if (to > begin) schedule_->stages.push_back({begin, to, 0});
      begin = to;
    }
  }

  void MarkInner(const std::vector<bool>& inner) {
    for (RowStep& step : schedule_->ad_steps) {
      for (Operand& in : step.in) in.inner = inner[in.root];
      for (Operand& out : step.out) out.inner = inner[out.root];
    }
  }

  // How many rows each value has at a time.  A stage runs several times for the tile: what it reads
  // or makes of the whole tile lives all the while.
  absl::StatusOr<std::vector<int64_t>> KeepThroughStages(std::vector<Life>& lives,
                                                         const std::vector<bool>& inner) {
    std::vector<int64_t> rows(lives.size(), schedule_->tile_rows);
    for (const Stage& stage : schedule_->stages) {
      RETURN_IF_ERROR(LoadScope::Check());
      if (stage.rows == 0) continue;
      for (size_t id = 0; id < lives.size(); ++id) {
        Life& life = lives[id];
        if (life.first < 0) continue;
        if (inner[id]) {
          if (life.first >= stage.begin && life.first < stage.end) rows[id] = stage.rows;
          continue;
        }
        if (life.first >= stage.begin && life.first < stage.end) life.first = stage.begin;
        if (life.last >= stage.begin && life.last < stage.end) life.last = stage.end - 1;
      }
    }
    return rows;
  }

  absl::Status LayOutAds(std::vector<Life> lives, const std::vector<bool>& inner) {
    ASSIGN_OR_RETURN(const std::vector<int64_t> rows, KeepThroughStages(lives, inner));
    for (int64_t tile = 1;; tile *= 2) {
      RETURN_IF_ERROR(LoadScope::Check());
      std::vector<Lifetime> lifetimes;
      for (size_t id = 0; id < lives.size(); ++id) {
        const Life& life = lives[id];
        if (life.first < 0) continue;
        const int64_t bytes = life.row_bytes * std::min(tile, rows[id]);
        lifetimes.push_back({static_cast<int>(id), life.first, life.last, bytes});
      }
      schedule_->ad_layouts.push_back(LayOut(std::move(lifetimes), lives.size()));
      int64_t scratch = 0;
      for (const Stage& stage : schedule_->stages) {
        const int64_t ads = std::min(tile, stage.rows > 0 ? stage.rows : schedule_->tile_rows);
        scratch = std::max(scratch, Scratch(schedule_->ad_steps, stage.begin, stage.end, 1, ads));
      }
      schedule_->ad_scratch.push_back(scratch);
      if (tile >= schedule_->tile_rows) return absl::OkStatus();
    }
  }

  const Plan& plan_;
  const Graph& graph_;
  const ModelInfo& info_;
  const bool cut_items_;
  const std::vector<ValueId> roots_;
  GraphSpecs trial_;           // plan_.specs, but for RunsOverUsers.
  std::vector<int> input_of_;  // Per value: the model's input that it is, or -1.
  std::unique_ptr<Schedule> schedule_;
};

}  // namespace

absl::Status ProveRows(const Plan& plan, const ModelInfo& info) {
  for (const InputInfo& input : info.inputs) {
    const TensorSpec& spec = plan.specs[input.value];
    if (!input.used || input.free_length || RowsLead(spec.shape, spec.level)) continue;
    return FailedPrecondition("input \"", input.name, "\": ", Name(spec.level), " level, shape ",
                              spec.shape.ToString(), " are not known well enough");
  }
  for (const Step& step : plan.steps) RETURN_IF_ERROR(ProveStep(plan, step));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<const Schedule>> MakeSchedule(const Plan& plan,
                                                             const ModelInfo& info,
                                                             bool cut_items) {
  return Builder(plan, info, cut_items).Build();
}

}  // namespace ulfd::engine

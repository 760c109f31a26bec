// Runs a plan for one request.
// SPDX-License-Identifier: Apache-2.0
#include "engine/runtime/executor.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/status_macros.h"
#include "engine/weights/file.h"

namespace ulfd::engine {

namespace {

int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

bool IsAdLevel(const Plan& plan, ValueId id) { return plan.specs[id].level == Level::kAd; }

// One run: the request's inputs, then the user's part, then the ads' part tile by tile.
class Execution {
 public:
  Execution(const Executable& executable, const RunOptions& options, WorkspaceState& ws,
            RunResult& result)
      : exe_(executable),
        plan_(executable.plan.get()),
        options_(options),
        ws_(ws),
        result_(result) {}

  absl::Status Run() {
    RETURN_IF_ERROR(FillInputs());
    ads_ = MatchSpecs();
    ChoosePlan();
    const bool tiled = ads_.has_value() && plan_->separable && !options_.keep_all;
    const int64_t rows = ads_.value_or(0);
    int64_t tile = options_.tile_rows > 0 ? options_.tile_rows : plan_->tile_rows;
    if (!tiled || tile > rows) tile = rows;
    ResetStats();

    const int64_t start = NowNs();
    Binding* binding = nullptr;
    ASSIGN_OR_RETURN(binding, Bind(tile));
    RETURN_IF_ERROR(RunSteps(*binding, 0, plan_->user_steps, 0, tile));
    const int64_t user_end = NowNs();
    const int64_t user_embed_ns = result_.stats.embed_ns;
    result_.stats.user_ns = user_end - start - user_embed_ns;
    PrepareOutputs(*binding, tiled);
    const int end = static_cast<int>(plan_->steps.size());
    int64_t begin = 0;
    do {
      const int64_t count = tiled ? std::min(tile, rows - begin) : tile;
      if (count != tile) {
        ASSIGN_OR_RETURN(binding, Bind(count));
        tile = count;
      }
      RETURN_IF_ERROR(RunSteps(*binding, plan_->user_steps, end, begin, count));
      CopyOutputs(*binding, begin, count);
      AdvanceIds(begin, count);
      begin += count;
    } while (tiled && begin < rows);
    result_.stats.ad_ns = NowNs() - user_end - (result_.stats.embed_ns - user_embed_ns);
    result_.stats.missing_ids = ws_.counters.missing_ids;
    if (options_.keep_all) CollectTensors(*binding);
    return absl::OkStatus();
  }

 private:
  const InputInfo& input(size_t i) const { return exe_.info->inputs[i]; }

  // Fills in the defaults (all values 1, one id per row) and checks what does not depend on the
  // graph.
  absl::Status FillInputs() {
    const size_t n = exe_.info->inputs.size();
    ws_.inputs.assign(n, Tensor{});
    ws_.segments.resize(std::max(ws_.segments.size(), n));
    ws_.id_offset.assign(n, 0);
    for (size_t i = 0; i < n; ++i) {
      if (input(i).feature >= 0) continue;
      if (ws_.given[i] != nullptr) {
        ws_.inputs[i] = *ws_.given[i];
      } else if (input(i).used) {
        return absl::InvalidArgumentError(absl::StrCat("input \"", input(i).name, "\" is missing"));
      }
    }
    for (const FeatureInfo& feature : exe_.info->features) RETURN_IF_ERROR(FillFeature(feature));
    return absl::OkStatus();
  }

  absl::Status FillFeature(const FeatureInfo& feature) {
    const Tensor* ids = ws_.given[feature.ids];
    if (ids == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("input \"", input(feature.ids).name, "\" is missing"));
    }
    const int64_t count = ids->elements();
    Tensor& flat_ids = ws_.inputs[feature.ids];
    flat_ids = {ids->dtype, {count}, ids->data};
    // A tensor without data stands for "all ones".
    ws_.inputs[feature.values] = {DType::kFloat32, {count}, nullptr};
    if (const Tensor* values = ws_.given[feature.values]; values != nullptr) {
      if (values->elements() != count) {
        return absl::InvalidArgumentError(absl::StrCat(
            "input \"", input(feature.values).name, "\": ", values->elements(), " values, want ",
            count, ", one per id of \"", input(feature.ids).name, "\""));
      }
      // An empty array has no address of its own, and nothing to read either.
      if (count > 0) ws_.inputs[feature.values].data = values->data;
    }
    return FillSegments(feature, count);
  }

  absl::Status FillSegments(const FeatureInfo& feature, int64_t count) {
    const std::string& name = input(feature.segments).name;
    const Tensor* given = ws_.given[feature.segments];
    if (given == nullptr) {
      std::vector<int32_t>& made = ws_.segments[feature.segments];
      if (feature.level == Level::kUser) {
        made.assign(1, static_cast<int32_t>(count));
      } else {
        made.assign(count, 1);
      }
      ws_.inputs[feature.segments] = {
          DType::kInt32, {static_cast<int64_t>(made.size())}, made.data()};
      return absl::OkStatus();
    }
    const int64_t rows = given->elements();
    int64_t sum = 0;
    for (int64_t r = 0; r < rows; ++r) {
      if (given->i32()[r] < 0) {
        return absl::InvalidArgumentError(absl::StrCat("input \"", name, "\": row ", r, " has ",
                                                       given->i32()[r], " ids, want 0 or more"));
      }
      sum += given->i32()[r];
    }
    if (sum != count) {
      return absl::InvalidArgumentError(absl::StrCat("input \"", name, "\": rows add up to ", sum,
                                                     " ids, want ", count, ", the length of \"",
                                                     input(feature.ids).name, "\""));
    }
    ws_.inputs[feature.segments] = {DType::kInt32, {rows}, given->data};
    return absl::OkStatus();
  }

  void ChoosePlan() {
    const bool optimised =
        ads_.has_value() && exe_.optimised != nullptr && !options_.keep_all && !options_.reference;
    if (optimised) plan_ = exe_.optimised.get();
    result_.stats.optimised = optimised;
  }

  const Graph& graph() const { return plan_->graph; }

  // The number of ads if every input has the shape that the plan expects; otherwise nothing, and
  // numpy's rules decide.
  std::optional<int64_t> MatchSpecs() const {
    int64_t ads = -1;
    for (size_t i = 0; i < ws_.inputs.size(); ++i) {
      if (!input(i).used) continue;
      const Shape& shape = plan_->specs[exe_.input_values[i]].shape;
      const TensorDims& dims = ws_.inputs[i].dims;
      if (!shape.ranked() || shape.rank() != static_cast<int>(dims.size())) return std::nullopt;
      for (int d = 0; d < shape.rank(); ++d) {
        if (shape[d].IsUnknown()) continue;
        if (shape[d] == Dim::Ads()) {
          if (ads < 0) ads = dims[d];
          if (ads != dims[d]) return std::nullopt;
        } else if (!shape[d].IsAds() && shape[d].value() != dims[d]) {
          return std::nullopt;
        }
      }
    }
    return ads < 0 ? 1 : ads;  // A model without ad inputs scores the user alone.
  }

  void ResetStats() {
    result_.stats.embed_ns = result_.stats.user_ns = result_.stats.ad_ns = 0;
    result_.stats.layers.clear();
    if (options_.count_layers) result_.stats.layers.resize(exe_.info->layers.size());
    ws_.counters.missing_ids.assign(exe_.info->tables.size(), 0);
    if (options_.steps == nullptr) return;
    options_.steps->optimised = result_.stats.optimised;
    options_.steps->ns.assign(plan_->steps.size(), 0);
    options_.steps->runs.assign(plan_->steps.size(), 0);
  }

  // Dimensions of input i in a tile of `rows` ads.
  TensorDims TileDims(size_t i, int64_t rows) const {
    TensorDims dims = ws_.inputs[i].dims;
    if (Sliced(i) && !dims.empty()) dims[0] = rows;
    return dims;
  }

  // Whether a tile reads only its own rows of input i.
  bool Sliced(size_t i) const {
    return ads_.has_value() && plan_->separable && !options_.keep_all &&
           IsAdLevel(*plan_, exe_.input_values[i]) && !exe_.free_length[i];
  }

  absl::StatusOr<Binding*> Bind(int64_t rows) {
    MakeKey(rows);
    for (auto it = ws_.bindings.begin(); it != ws_.bindings.end(); ++it) {
      if (it->key != ws_.key || it->model.owner_before(exe_.token) ||
          exe_.token.owner_before(it->model)) {
        continue;
      }
      ws_.bindings.splice(ws_.bindings.begin(), ws_.bindings, it);
      Reserve(*it);
      return &*it;
    }
    Binding binding;
    binding.key = ws_.key;
    binding.model = exe_.token;
    RETURN_IF_ERROR(ResolveDims(rows, binding));
    PlaceValues(binding);
    while (ws_.bindings.size() >= WorkspaceState::kMaxBindings) ws_.bindings.pop_back();
    ws_.bindings.push_front(std::move(binding));
    Reserve(ws_.bindings.front());
    return &ws_.bindings.front();
  }

  void MakeKey(int64_t rows) {
    ws_.key.clear();
    ws_.key.push_back((options_.keep_all ? 1 : 0) + (result_.stats.optimised ? 2 : 0));
    ws_.key.push_back(ads_.has_value() ? rows : -1);
    for (size_t i = 0; i < ws_.inputs.size(); ++i) {
      if (!input(i).used || exe_.free_length[i]) continue;
      const TensorDims dims = TileDims(i, rows);
      ws_.key.push_back(static_cast<int64_t>(dims.size()));
      ws_.key.insert(ws_.key.end(), dims.begin(), dims.end());
    }
  }

  // Shapes of all values: read off the plan where it knows them, inferred with numbers otherwise.
  absl::Status ResolveDims(int64_t rows, Binding& binding) const {
    const size_t n = graph().values.size();
    binding.dims.resize(n);
    const bool symbolic = ads_.has_value() && plan_->shapes_known;
    GraphSpecs specs(n);
    for (size_t id = 0; id < n; ++id) {
      specs[id].dtype = graph().values[id].dtype;
      if (graph().values[id].kind == Value::Kind::kConstant) {
        specs[id].shape = Shape::Of(graph().values[id].constant_dims);
      }
    }
    for (size_t i = 0; i < ws_.inputs.size(); ++i) {
      if (!input(i).used) continue;
      specs[exe_.input_values[i]].shape =
          exe_.free_length[i] ? Shape{Dim::Unknown()} : Shape::Of(TileDims(i, rows));
    }
    for (const Step& step : plan_->steps) {
      if (symbolic) {
        for (ValueId id : step.node->outputs) {
          specs[id].dtype = plan_->specs[id].dtype;
          Shape::Dims dims;
          for (Dim d : plan_->specs[id].shape.dims()) dims.push_back(Dim::Of(Resolve(d, rows)));
          specs[id].shape = Shape(std::move(dims));
        }
      } else {
        RETURN_IF_ERROR(InferNode(graph(), *step.node, specs));
      }
    }
    return FixDims(specs, binding);
  }

  absl::Status FixDims(const GraphSpecs& specs, Binding& binding) const {
    const auto tensor_of = [&](ValueId id) {
      return Tensor{specs[id].dtype, binding.dims[id], nullptr};
    };
    for (size_t id = 0; id < specs.size(); ++id) {
      if (!specs[id].shape.ranked()) continue;  // An input that nothing reads.
      for (Dim d : specs[id].shape.dims()) {
        binding.dims[id].push_back(d.IsUnknown() ? 0 : d.value());
      }
    }
    for (const Step& step : plan_->steps) {
      Binding::StepTensors& tensors = binding.steps.emplace_back();
      for (ValueId id : step.node->inputs) tensors.in.push_back(tensor_of(id));
      for (ValueId id : step.node->outputs) {
        tensors.out.push_back(tensor_of(id));
        if (!specs[id].shape.IsConcrete()) {
          return absl::InternalError(absl::StrCat(step.node->Label(), ": shape of \"",
                                                  graph().values[id].name, "\" is ",
                                                  specs[id].shape.ToString()));
        }
      }
      binding.scratch_bytes = std::max(binding.scratch_bytes,
                                       static_cast<int64_t>(step.kernel->ScratchBytes(tensors.in)));
    }
    return absl::OkStatus();
  }

  void PlaceValues(Binding& binding) const {
    const size_t n = graph().values.size();
    std::vector<int64_t> bytes(n, 0);
    for (const Binding::StepTensors& tensors : binding.steps) {
      const size_t s = static_cast<size_t>(&tensors - binding.steps.data());
      for (size_t o = 0; o < tensors.out.size(); ++o) {
        bytes[plan_->steps[s].node->outputs[o]] = static_cast<int64_t>(tensors.out[o].bytes());
      }
    }
    // What the ads' part or the reply reads must outlive the user's part.
    std::vector<bool> keep(n, false), keep_user(n, false);
    for (const NamedValue& output : graph().outputs) keep[output.value] = true;
    keep_user = keep;
    const int end = static_cast<int>(plan_->steps.size());
    for (int s = plan_->user_steps; s < end; ++s) {
      for (ValueId id : plan_->steps[s].node->inputs) keep_user[id] = true;
    }
    const bool reuse = !options_.keep_all;
    binding.user = LayOut(*plan_, 0, plan_->user_steps, bytes, keep_user, reuse);
    binding.ads = LayOut(*plan_, plan_->user_steps, end, bytes, keep, reuse);
  }

  // Arenas never move once a run has begun: the first tile is the largest.
  void Reserve(const Binding& binding) {
    ws_.user.Reserve(binding.user.bytes);
    ws_.ads.Reserve(binding.ads.bytes);
    ws_.scratch.Reserve(binding.scratch_bytes);
    ws_.data.resize(graph().values.size());
    for (size_t id = 0; id < graph().values.size(); ++id) {
      void*& data = ws_.data[id];
      if (binding.user.offsets[id] >= 0) {
        data = static_cast<char*>(ws_.user.data()) + binding.user.offsets[id];
      } else if (binding.ads.offsets[id] >= 0) {
        data = static_cast<char*>(ws_.ads.data()) + binding.ads.offsets[id];
      } else if (graph().values[id].kind == Value::Kind::kConstant) {
        data = const_cast<float*>(graph().values[id].constant.data());
      } else {
        data = nullptr;
      }
    }
  }

  // Points the inputs at the rows of a tile, and views at what they show.
  void PointInputs(int64_t begin) {
    for (size_t i = 0; i < ws_.inputs.size(); ++i) {
      if (!input(i).used) continue;
      const Tensor& tensor = ws_.inputs[i];
      char* data = static_cast<char*>(tensor.data);
      if (data != nullptr && exe_.free_length[i]) {
        data += ws_.id_offset[i] * static_cast<int64_t>(SizeOf(tensor.dtype));
      } else if (data != nullptr && Sliced(i) && tensor.dims[0] > 0) {
        data += static_cast<int64_t>(tensor.bytes()) / tensor.dims[0] * begin;
      }
      ws_.data[exe_.input_values[i]] = data;
    }
    for (const Step& step : plan_->steps) {
      if (step.view) ws_.data[step.node->outputs[0]] = ws_.data[step.node->inputs[0]];
    }
  }

  // Ids of feature `feature` within the tile.
  int64_t TileIds(const FeatureInfo& feature, int64_t begin, int64_t rows) const {
    if (!Sliced(feature.segments)) return ws_.inputs[feature.ids].dims[0];
    const int32_t* counts = ws_.inputs[feature.segments].i32() + begin;
    int64_t ids = 0;
    for (int64_t r = 0; r < rows; ++r) ids += counts[r];
    return ids;
  }

  void AdvanceIds(int64_t begin, int64_t rows) {
    for (const FeatureInfo& feature : exe_.info->features) {
      if (!Sliced(feature.segments)) continue;
      const int64_t ids = TileIds(feature, begin, rows);
      ws_.id_offset[feature.ids] += ids;
      ws_.id_offset[feature.values] += ids;
    }
  }

  // Lengths of ids and values change from tile to tile; everything else is in the binding.
  void SetIdLengths(const Step& step, Binding::StepTensors& tensors, int64_t begin, int64_t rows) {
    for (const FeatureInfo& feature : exe_.info->features) {
      const ValueId ids = exe_.input_values[feature.ids];
      const ValueId values = exe_.input_values[feature.values];
      for (size_t i = 0; i < tensors.in.size(); ++i) {
        const ValueId id = step.node->inputs[i];
        if (id == ids || id == values) tensors.in[i].dims[0] = TileIds(feature, begin, rows);
      }
    }
  }

  absl::Status RunSteps(Binding& binding, int from, int to, int64_t begin, int64_t rows) {
    PointInputs(begin);
    StepTimes* const times = options_.steps;
    int64_t last = times != nullptr ? NowNs() : 0;
    for (int s = from; s < to; ++s) {
      if (options_.stop != nullptr && (*options_.stop)()) {
        return absl::CancelledError("the call was cancelled or its deadline has passed");
      }
      RETURN_IF_ERROR(RunStep(plan_->steps[s], binding.steps[s], begin, rows));
      if (times == nullptr) continue;
      const int64_t now = NowNs();
      times->ns[s] += now - last;
      ++times->runs[s];
      last = now;
    }
    return absl::OkStatus();
  }

  absl::Status RunStep(const Step& step, Binding::StepTensors& tensors, int64_t begin,
                       int64_t rows) {
    if (step.view) return absl::OkStatus();
    for (size_t i = 0; i < tensors.in.size(); ++i) {
      tensors.in[i].data = ws_.data[step.node->inputs[i]];
    }
    for (size_t o = 0; o < tensors.out.size(); ++o) {
      tensors.out[o].data = ws_.data[step.node->outputs[o]];
    }
    if (step.embedding) {
      SetIdLengths(step, tensors, begin, rows);
      ws_.scratch.Reserve(static_cast<int64_t>(step.kernel->ScratchBytes(tensors.in)));
    }
    RunContext context{.in = tensors.in,
                       .out = absl::MakeSpan(tensors.out),
                       .scratch = ws_.scratch.data(),
                       .counters = &ws_.counters};
    const int64_t start = step.embedding ? NowNs() : 0;
    const absl::Status status = step.kernel->Run(context);
    if (step.embedding) result_.stats.embed_ns += NowNs() - start;
    if (!status.ok()) return Annotate(status, step.node->Label());
    if (options_.count_layers) {
      RunStats::LayerCount& count = result_.stats.layers[step.node->file_index];
      ++count.runs;
      const TensorDims& dims = tensors.out[0].dims;
      count.rows += dims.empty() ? 1 : dims[0];
    }
    return absl::OkStatus();
  }

  // Outputs are copied out of the arena, so that tiles can be put together.
  void PrepareOutputs(const Binding& binding, bool tiled) {
    const size_t n = graph().outputs.size();
    result_.outputs.resize(n);
    int64_t bytes = 0;
    for (size_t o = 0; o < n; ++o) {
      const ValueId id = graph().outputs[o].value;
      Tensor& tensor = result_.outputs[o];
      tensor.dtype = DTypeOf(binding, id);
      tensor.dims = binding.dims[id];
      if (tiled && IsAdLevel(*plan_, id)) tensor.dims[0] = *ads_;
      bytes += (static_cast<int64_t>(tensor.bytes()) + 63) / 64 * 64;
    }
    char* data = static_cast<char*>(ws_.outputs.Reserve(bytes));
    for (Tensor& tensor : result_.outputs) {
      tensor.data = data;
      data += (static_cast<int64_t>(tensor.bytes()) + 63) / 64 * 64;
    }
  }

  DType DTypeOf(const Binding& binding, ValueId id) const {
    for (size_t s = 0; s < plan_->steps.size(); ++s) {
      const std::vector<ValueId>& outputs = plan_->steps[s].node->outputs;
      const auto it = std::find(outputs.begin(), outputs.end(), id);
      if (it != outputs.end()) return binding.steps[s].out[it - outputs.begin()].dtype;
    }
    return graph().values[id].dtype;
  }

  void CopyOutputs(const Binding& binding, int64_t begin, int64_t rows) {
    for (size_t o = 0; o < graph().outputs.size(); ++o) {
      const ValueId id = graph().outputs[o].value;
      const Tensor tile{result_.outputs[o].dtype, binding.dims[id], ws_.data[id]};
      const bool partial = tile.bytes() != result_.outputs[o].bytes();
      const int64_t offset =
          partial && rows > 0 ? static_cast<int64_t>(tile.bytes()) / rows * begin : 0;
      if (tile.bytes() == 0) continue;
      std::memcpy(static_cast<char*>(result_.outputs[o].data) + offset, tile.data, tile.bytes());
    }
  }

  void CollectTensors(const Binding& binding) {
    result_.tensors.clear();
    for (const NamedValue& tensor : graph().tensors) {
      result_.tensors.push_back(
          {tensor.name,
           {DTypeOf(binding, tensor.value), binding.dims[tensor.value], ws_.data[tensor.value]}});
    }
  }

  const Executable& exe_;
  const Plan* plan_;
  const RunOptions& options_;
  WorkspaceState& ws_;
  RunResult& result_;
  std::optional<int64_t> ads_;
};

}  // namespace

void* Arena::Reserve(int64_t bytes) {
  if (bytes > bytes_) {
    const int64_t size = (bytes + 4095) / 4096 * 4096;
    data_.reset(std::aligned_alloc(64, static_cast<size_t>(size)));
    bytes_ = data_ ? size : 0;
    if (!data_) std::abort();  // As operator new does where exceptions end the process.
  }
  return data_.get();
}

void Arena::Release() {
  data_.reset();
  bytes_ = 0;
}

absl::Status Execute(const Executable& executable, const RunOptions& options,
                     WorkspaceState& workspace, RunResult& result) {
  return Execution(executable, options, workspace, result).Run();
}

}  // namespace ulfd::engine

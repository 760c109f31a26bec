// SPDX-License-Identifier: Apache-2.0
#include "engine/runtime/general_run.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "engine/runtime/run_memory.h"
#include "engine/runtime/step_run.h"

namespace ulfd::engine {

namespace {

class GeneralRun {
 public:
  GeneralRun(const Executable& executable, const RunOptions& options, UserPart& part,
             WorkspaceState& ws, RunResult& result)
      : exe_(executable),
        plan_(*executable.plan),
        graph_(executable.plan->graph),
        options_(options),
        part_(part),
        request_(part.request),
        ws_(ws),
        result_(result) {}

  absl::Status Run() {
    Binding* binding = nullptr;
    ASSIGN_OR_RETURN(binding, Bind());
    RETURN_IF_ERROR(CheckMemory(*binding));
    RETURN_IF_ERROR(DescribeOutputs(*binding));
    RETURN_IF_ERROR(PointValues(*binding));
    const int end = static_cast<int>(plan_.steps.size());
    for (const bool users : {true, false}) {
      const int64_t start = NowNs();
      const int64_t embed_ns = result_.stats.embed_ns;
      const int from = users ? 0 : plan_.user_steps, to = users ? plan_.user_steps : end;
      for (int s = from; s < to; ++s) RETURN_IF_ERROR(RunStep(plan_.steps[s], binding->steps[s]));
      (users ? result_.stats.user_ns : result_.stats.ad_ns) +=
          NowNs() - start - (result_.stats.embed_ns - embed_ns);
    }
    RETURN_IF_ERROR(CopyOutputs(*binding));
    if (options_.keep_all) CollectTensors(*binding);
    return absl::OkStatus();
  }

 private:
  bool used(size_t i) const { return exe_.info->inputs[i].used; }

  absl::StatusOr<Binding*> Bind() {
    MakeKey();
    for (auto it = ws_.bindings.begin(); it != ws_.bindings.end(); ++it) {
      if (it->key != ws_.key || it->model.owner_before(exe_.token) ||
          exe_.token.owner_before(it->model)) {
        continue;
      }
      ws_.bindings.splice(ws_.bindings.begin(), ws_.bindings, it);
      return &*it;
    }
    Binding binding;
    binding.key = ws_.key;
    binding.model = exe_.token;
    RETURN_IF_ERROR(InferDims(binding));
    PlaceValues(binding);
    return &ws_.Keep(std::move(binding));
  }

  void MakeKey() {
    ws_.key.clear();
    ws_.key.push_back(options_.keep_all ? 1 : 0);
    for (size_t i = 0; i < request_.inputs.size(); ++i) {
      if (!used(i) || exe_.info->inputs[i].free_length) continue;
      const TensorDims& dims = request_.inputs[i].dims;
      ws_.key.push_back(static_cast<int64_t>(dims.size()));
      ws_.key.insert(ws_.key.end(), dims.begin(), dims.end());
    }
  }

  absl::Status InferDims(Binding& binding) const {
    const size_t n = graph_.values.size();
    binding.values.resize(n);
    GraphSpecs specs(n);
    for (size_t id = 0; id < n; ++id) {
      specs[id].dtype = graph_.values[id].dtype;
      if (graph_.values[id].kind == Value::Kind::kConstant) {
        specs[id].shape = Shape::Of(graph_.values[id].constant_dims);
      }
    }
    for (size_t i = 0; i < request_.inputs.size(); ++i) {
      // A feature that no block reads is an input of its layer all the same.
      const bool any_length =
          exe_.info->inputs[i].free_length || (!used(i) && exe_.info->inputs[i].feature >= 0);
      if (!used(i) && !any_length) continue;
      specs[exe_.info->inputs[i].value].shape =
          any_length ? Shape{Dim::Unknown()} : Shape::Of(request_.inputs[i].dims);
    }
    for (const Step& step : plan_.steps) RETURN_IF_ERROR(InferNode(graph_, *step.node, specs));
    return FixDims(specs, binding);
  }

  absl::Status FixDims(const GraphSpecs& specs, Binding& binding) const {
    for (size_t id = 0; id < specs.size(); ++id) {
      binding.values[id].dtype = specs[id].dtype;
      if (!specs[id].shape.ranked()) continue;  // An input that nothing reads.
      for (Dim d : specs[id].shape.dims()) {
        binding.values[id].dims.push_back(d.IsUnknown() ? 0 : d.value());
      }
    }
    // Before anything is computed of them, scratch included.
    RETURN_IF_ERROR(CheckTensors(binding));
    for (const Step& step : plan_.steps) {
      Binding::StepTensors& tensors = binding.steps.emplace_back();
      for (ValueId id : step.node->inputs) tensors.in.push_back(binding.values[id]);
      for (ValueId id : step.node->outputs) {
        tensors.out.push_back(binding.values[id]);
        if (!specs[id].shape.IsConcrete()) {
          return Internal(step.node->Label(), ": shape of \"", graph_.values[id].name, "\" is ",
                          specs[id].shape.ToString());
        }
      }
      binding.scratch_bytes = std::max(binding.scratch_bytes,
                                       static_cast<int64_t>(step.kernel->ScratchBytes(tensors.in)));
    }
    return absl::OkStatus();
  }

  // Every tensor by itself, also those that are empty: kernels may loop over what they would hold.
  absl::Status CheckTensors(const Binding& binding) const {
    const int64_t limit = options_.max_memory_bytes;
    if (limit == 0) return absl::OkStatus();
    for (size_t id = 0; id < graph_.values.size(); ++id) {
      const Tensor& tensor = binding.values[id];
      const int64_t bytes =
          SaturatingMultiply(Volume(tensor.dims), static_cast<int64_t>(SizeOf(tensor.dtype)));
      if (bytes <= limit || graph_.values[id].kind == Value::Kind::kConstant) continue;
      return ResourceExhausted("tensor \"", graph_.values[id].name, "\" of ", ToString(tensor.dims),
                               ": ", bytes, " bytes, want at most ", limit,
                               " (limits.max_request_memory_bytes)");
    }
    return absl::OkStatus();
  }

  // All of them together.
  absl::Status CheckMemory(const Binding& binding) const {
    const int64_t limit = options_.max_memory_bytes;
    const int64_t needed = SaturatingAdd(
        binding.layout.bytes, SaturatingAdd(binding.scratch_bytes, binding.output_bytes));
    if (limit == 0 || needed <= limit) return absl::OkStatus();
    LargestTensor largest;
    for (size_t s = 0; s < binding.steps.size(); ++s) {
      for (size_t o = 0; o < binding.steps[s].out.size(); ++o) {
        largest.Offer(graph_.values[plan_.steps[s].node->outputs[o]].name, binding.steps[s].out[o]);
      }
    }
    return largest.TooMuch(needed, limit);
  }

  absl::Status DescribeOutputs(const Binding& binding) {
    result_.outputs.resize(graph_.outputs.size());
    for (size_t o = 0; o < graph_.outputs.size(); ++o) {
      result_.outputs[o] = binding.values[graph_.outputs[o].value];
    }
    if (options_.check_outputs == nullptr) return absl::OkStatus();
    return (*options_.check_outputs)(result_.outputs);
  }

  // What the ads' part or the reply reads outlives the user's part as any other value does that is
  // read later.
  void PlaceValues(Binding& binding) const {
    std::vector<int64_t> bytes;
    for (const Tensor& value : binding.values) {
      bytes.push_back(static_cast<int64_t>(value.bytes()));
    }
    binding.layout = LayOut(plan_, bytes, !options_.keep_all);
    for (const NamedValue& output : graph_.outputs) {
      const auto taken = static_cast<int64_t>(binding.values[output.value].bytes());
      binding.output_bytes = SaturatingAdd(binding.output_bytes, Aligned(taken));
    }
  }

  absl::Status PointValues(const Binding& binding) {
    RETURN_IF_ERROR(ws_.general.Reserve(binding.layout.bytes));
    RETURN_IF_ERROR(ws_.scratch.Reserve(binding.scratch_bytes));
    char* const arena = static_cast<char*>(ws_.general.data());
    ws_.data.assign(graph_.values.size(), nullptr);
    for (size_t id = 0; id < graph_.values.size(); ++id) {
      if (binding.layout.offsets[id] >= 0) {
        ws_.data[id] = arena + binding.layout.offsets[id];
      } else if (graph_.values[id].kind == Value::Kind::kConstant) {
        ws_.data[id] = const_cast<float*>(graph_.values[id].constant.data());
      }
    }
    for (size_t i = 0; i < request_.inputs.size(); ++i) {
      if (used(i)) ws_.data[exe_.info->inputs[i].value] = request_.inputs[i].data;
    }
    for (const Step& step : plan_.steps) {
      if (step.view) ws_.data[step.node->outputs[0]] = ws_.data[step.node->inputs[0]];
    }
    return absl::OkStatus();
  }

  // Lengths of ids and values are not in the binding.
  void SetIdLengths(const Step& step, Binding::StepTensors& tensors) {
    for (const FeatureInfo& feature : exe_.info->features) {
      const ValueId ids = exe_.info->inputs[feature.ids].value;
      const ValueId values = exe_.info->inputs[feature.values].value;
      for (size_t i = 0; i < tensors.in.size(); ++i) {
        const ValueId id = step.node->inputs[i];
        if (id == ids || id == values) tensors.in[i].dims[0] = request_.inputs[feature.ids].dims[0];
      }
    }
  }

  absl::Status RunStep(const Step& step, Binding::StepTensors& tensors) {
    RETURN_IF_ERROR(CheckStop(options_.stop));
    if (step.view) return absl::OkStatus();
    for (size_t i = 0; i < tensors.in.size(); ++i) {
      tensors.in[i].data = ws_.data[step.node->inputs[i]];
    }
    for (size_t o = 0; o < tensors.out.size(); ++o) {
      tensors.out[o].data = ws_.data[step.node->outputs[o]];
    }
    if (step.embedding) SetIdLengths(step, tensors);
    return engine::RunStep(exe_, options_, plan_, step, tensors.in, absl::MakeSpan(tensors.out),
                           ws_, result_.stats);
  }

  absl::Status CopyOutputs(const Binding& binding) {
    RETURN_IF_ERROR(part_.outputs.Reserve(binding.output_bytes));
    char* data = static_cast<char*>(part_.outputs.data());
    for (size_t o = 0; o < graph_.outputs.size(); ++o) {
      const ValueId id = graph_.outputs[o].value;
      Tensor& tensor = result_.outputs[o];
      tensor.data = data;
      data += Aligned(static_cast<int64_t>(tensor.bytes()));
      if (tensor.bytes() == 0) continue;
      std::memcpy(tensor.data, ws_.data[id], tensor.bytes());
    }
    return absl::OkStatus();
  }

  void CollectTensors(const Binding& binding) {
    result_.tensors.clear();
    for (const NamedValue& tensor : graph_.tensors) {
      result_.tensors.push_back({tensor.name, binding.values[tensor.value]});
      result_.tensors.back().tensor.data = ws_.data[tensor.value];
    }
  }

  const Executable& exe_;
  const Plan& plan_;
  const Graph& graph_;
  const RunOptions& options_;
  UserPart& part_;
  const Request& request_;
  WorkspaceState& ws_;
  RunResult& result_;
};

}  // namespace

absl::Status RunGenerally(const Executable& executable, const RunOptions& options, UserPart& part,
                          WorkspaceState& ws, RunResult& result) {
  return GeneralRun(executable, options, part, ws, result).Run();
}

}  // namespace ulfd::engine

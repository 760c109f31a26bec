// SPDX-License-Identifier: Apache-2.0
#include "engine/graph/double_layers.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "engine/layers/common/double_math.h"

namespace ulfd::engine {

namespace {

// One layer of a group.  Its inputs are numbered: first those of the group, then the outputs of the
// members before it.
struct DoubleMember {
  std::shared_ptr<const Layer> layer;
  std::vector<int> inputs;
};

using Members = std::vector<DoubleMember>;
// Of the group's inputs and its members' outputs.
using LocalSpecs = absl::InlinedVector<TensorSpec, 16>;

// Runs Infer of every member.
absl::StatusOr<LocalSpecs> InferAll(const Members& members, absl::Span<const TensorSpec> in) {
  LocalSpecs specs(in.begin(), in.end());
  for (const DoubleMember& member : members) {
    absl::InlinedVector<TensorSpec, 8> inputs;
    for (int i : member.inputs) inputs.push_back(specs[i]);
    ASSIGN_OR_RETURN(TensorSpecs out, member.layer->Infer(inputs));
    specs.push_back(std::move(out[0]));
  }
  return specs;
}

class DoubleGroupKernel final : public Kernel {
 public:
  explicit DoubleGroupKernel(std::shared_ptr<const Members> members)
      : members_(std::move(members)) {
    for (const DoubleMember& member : *members_) {
      functions_.push_back(MakeDoubleFunction(member.layer->semantics()));
    }
  }

  int64_t bytes() const override {
    int64_t bytes = 0;
    for (const DoubleFunction& function : functions_) bytes += function.bytes;
    return bytes;
  }

  size_t ScratchBytes(absl::Span<const Tensor> in) const override {
    const absl::StatusOr<LocalSpecs> specs = InferAll(*members_, SpecsOf(in));
    if (!specs.ok()) return 0;  // Run says why.
    size_t bytes = 0;
    for (const TensorSpec& spec : *specs) bytes += BytesOf(spec.shape.Elements().value());
    return bytes;
  }

  absl::Status Run(RunContext& ctx) const override {
    ASSIGN_OR_RETURN(const LocalSpecs specs, InferAll(*members_, SpecsOf(ctx.in)));
    absl::InlinedVector<DoubleTensor, 16> values;
    char* free = static_cast<char*>(ctx.scratch);
    for (const TensorSpec& spec : specs) {
      DoubleTensor& value = values.emplace_back();
      for (Dim d : spec.shape.dims()) value.dims.push_back(d.value());
      value.data = reinterpret_cast<double*>(free);
      free += BytesOf(value.elements());
    }
    for (size_t i = 0; i < ctx.in.size(); ++i) {
      std::copy_n(ctx.in[i].f32(), ctx.in[i].elements(), values[i].data);
    }
    for (size_t m = 0; m < members_->size() && !ctx.pace.Stops(0); ++m) {
      absl::InlinedVector<DoubleTensor, 8> inputs;
      for (int i : (*members_)[m].inputs) inputs.push_back(values[i]);
      DoubleTensor& value = values[ctx.in.size() + m];
      functions_[m].run(inputs, value, ctx.pace);
      float* out = ctx.out[m].f32();
      const int64_t n = value.elements();
      for (int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(value.data[i]);
    }
    return absl::OkStatus();
  }

 private:
  static size_t BytesOf(int64_t elements) {
    return (static_cast<size_t>(elements) * sizeof(double) + 63) / 64 * 64;
  }
  static LocalSpecs SpecsOf(absl::Span<const Tensor> in) {
    LocalSpecs specs;
    for (const Tensor& tensor : in) {
      specs.push_back({tensor.dtype, Shape::Of(tensor.dims), Level::kUnknown});
    }
    return specs;
  }

  const std::shared_ptr<const Members> members_;
  std::vector<DoubleFunction> functions_;
};

// Inputs and outputs are float32; output i is that of member i.  REQUIRES: every member has one
// output and a double version (MakeDoubleFunction).
class DoubleGroup final : public Layer {
 public:
  DoubleGroup(int inputs, Members members)
      : inputs_(inputs), members_(std::make_shared<const Members>(std::move(members))) {}

  absl::StatusOr<TensorSpecs> Infer(absl::Span<const TensorSpec> in) const override {
    ASSIGN_OR_RETURN(const LocalSpecs specs, InferAll(*members_, in));
    return TensorSpecs(specs.begin() + inputs_, specs.end());
  }

  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(absl::Span<const TensorSpec>) const override {
    return std::unique_ptr<Kernel>(new DoubleGroupKernel(members_));
  }

  double Flops(absl::Span<const TensorSpec> in, absl::Span<const TensorSpec> out) const override {
    double flops = 0;
    for (size_t m = 0; m < members_->size(); ++m) {
      const DoubleMember& member = (*members_)[m];
      absl::InlinedVector<TensorSpec, 8> inputs;
      for (int i : member.inputs) inputs.push_back(i < inputs_ ? in[i] : out[i - inputs_]);
      flops += member.layer->Flops(inputs, out.subspan(m, 1));
    }
    return flops;
  }

 private:
  const int inputs_;
  const std::shared_ptr<const Members> members_;
};

// Which layers go together.  Each node of the graph is in a group, most of them alone.
class Grouping {
 public:
  Grouping(const Graph& graph, const GraphSpecs& specs, const std::vector<bool>& chosen)
      : graph_(graph), producers_(graph.values.size(), -1), group_(graph.nodes.size()) {
    std::iota(group_.begin(), group_.end(), 0);
    const int n = static_cast<int>(graph.nodes.size());
    for (int i = 0; i < n; ++i) {
      for (ValueId id : graph.nodes[i].outputs) producers_[id] = i;
    }
    for (int i = 0; i < n; ++i) {
      if (!chosen[i]) continue;
      for (ValueId id : graph.nodes[i].inputs) {
        const int source = producers_[id];
        // What belongs to the user is not computed again for each tile of ads.
        if (source < 0 || !chosen[source] ||
            specs[id].level != specs[graph.nodes[i].outputs[0]].level) {
          continue;
        }
        Merge(source, i);
      }
    }
  }

  // Groups in an order in which every value is computed before it is read, each with its nodes in
  // the order of the file.
  std::vector<std::vector<int>> Ordered() const {
    std::vector<std::vector<int>> order;
    Sort(&order);
    return order;
  }

 private:
  // Puts both groups together, unless something outside would then have to be computed both before
  // and after them.
  void Merge(int a, int b) {
    if (group_[a] == group_[b]) return;
    const std::vector<int> before = group_;
    const int from = group_[b], to = group_[a];
    std::replace(group_.begin(), group_.end(), from, to);
    if (!Sort(nullptr)) group_ = before;
  }

  // False: some groups wait for each other.
  bool Sort(std::vector<std::vector<int>>* order) const {
    const int n = static_cast<int>(group_.size());
    std::vector<std::vector<int>> members(n);
    for (int i = 0; i < n; ++i) members[group_[i]].push_back(i);
    std::vector<bool> done(n, false);
    const auto ready = [&](int g) {
      for (int i : members[g]) {
        for (ValueId id : graph_.nodes[i].inputs) {
          const int source = producers_[id];
          if (source >= 0 && group_[source] != g && !done[group_[source]]) return false;
        }
      }
      return true;
    };
    // Passes over the file until nothing moves: one, where no group reaches ahead.
    size_t placed = 0;
    const size_t groups = std::count_if(members.begin(), members.end(),
                                        [](const std::vector<int>& m) { return !m.empty(); });
    for (bool moved = true; moved && placed < groups;) {
      moved = false;
      for (int g = 0; g < n; ++g) {
        if (members[g].empty() || done[g] || !ready(g)) continue;
        done[g] = moved = true;
        ++placed;
        if (order != nullptr) order->push_back(members[g]);
      }
    }
    return placed == groups;
  }

  const Graph& graph_;
  std::vector<int> producers_;  // Per value.
  std::vector<int> group_;      // Per node.
};

// One node for the layers of a group.
Node MakeNode(const std::vector<int>& group, std::vector<Node>& nodes) {
  Node result{.type = "double"};
  Members members;
  std::vector<ValueId> made;
  for (int i : group) {
    for (ValueId id : nodes[i].outputs) made.push_back(id);
  }
  for (int i : group) {
    for (ValueId id : nodes[i].inputs) {
      if (std::find(made.begin(), made.end(), id) != made.end()) continue;
      if (std::find(result.inputs.begin(), result.inputs.end(), id) != result.inputs.end())
        continue;
      result.inputs.push_back(id);
    }
  }
  const int inputs = static_cast<int>(result.inputs.size());
  for (int i : group) {
    Node& node = nodes[i];
    DoubleMember member{.layer = node.layer};
    for (ValueId id : node.inputs) {
      const auto own = std::find(made.begin(), made.end(), id);
      const auto given = std::find(result.inputs.begin(), result.inputs.end(), id);
      member.inputs.push_back(own != made.end() ? inputs + static_cast<int>(own - made.begin())
                                                : static_cast<int>(given - result.inputs.begin()));
    }
    members.push_back(std::move(member));
    result.members.push_back(node.file_index);
  }
  result.outputs = std::move(made);
  result.file_index = result.members.front();
  result.name = nodes[group.front()].name;
  if (group.size() > 1) absl::StrAppend(&result.name, "..", nodes[group.back()].name);
  result.layer = std::make_shared<DoubleGroup>(inputs, std::move(members));
  return result;
}

absl::Status CheckMember(const Node& node, const GraphSpecs& specs) {
  const std::string label = absl::StrCat("manifest: double_layers names ", node.Label());
  if (node.composite || MakeDoubleFunction(node.layer->semantics()).run == nullptr) {
    return InvalidArgument(label,
                           ", a type that is not computed in double; these are: ", DoubleTypes());
  }
  for (const std::vector<ValueId>* ids : {&node.inputs, &node.outputs}) {
    for (ValueId id : *ids) {
      if (specs[id].dtype == DType::kFloat32) continue;
      return InvalidArgument(label, ", which has a tensor of type ", Name(specs[id].dtype),
                             ", want float32 only");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<bool>> Choose(absl::Span<const std::string> names, const Graph& graph,
                                         const GraphSpecs& specs) {
  std::vector<bool> chosen(graph.nodes.size(), false);
  for (size_t n = 0; n < names.size(); ++n) {
    if (std::find(names.begin(), names.begin() + n, names[n]) != names.begin() + n) {
      return InvalidArgument("manifest: double_layers names \"", names[n], "\" twice");
    }
    bool found = false;
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      if (names[n].empty() || graph.nodes[i].name != names[n]) continue;
      RETURN_IF_ERROR(CheckMember(graph.nodes[i], specs));
      chosen[i] = found = true;
    }
    if (!found) {
      return InvalidArgument("manifest: double_layers names \"", names[n],
                             "\", which is no layer of the graph");
    }
  }
  return chosen;
}

}  // namespace

absl::Status ComputeInDouble(absl::Span<const std::string> names, const GraphSpecs& specs,
                             Graph& graph, std::vector<Rewrite>& rewrites) {
  if (names.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<bool> chosen, Choose(names, graph, specs));
  std::vector<Node> nodes;
  for (const std::vector<int>& group : Grouping(graph, specs, chosen).Ordered()) {
    if (!chosen[group.front()]) {
      nodes.push_back(std::move(graph.nodes[group.front()]));
      continue;
    }
    const auto name = [&](std::string* out, int i) { *out += graph.nodes[i].name; };
    std::string text = absl::StrCat("computed in double: ", absl::StrJoin(group, ", ", name));
    nodes.push_back(MakeNode(group, graph.nodes));
    rewrites.push_back({"double_layers", std::move(text), nodes.back().members, {}});
  }
  graph.nodes = std::move(nodes);
  return absl::OkStatus();
}

}  // namespace ulfd::engine

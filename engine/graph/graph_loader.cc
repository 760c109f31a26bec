// SPDX-License-Identifier: Apache-2.0
#include "engine/graph/graph_loader.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/errors.h"
#include "base/hash_map.h"
#include "base/load_scope.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "engine/layers/registry.h"
#include "engine/layers/types/nhwc.h"

namespace ulfd::engine {

std::string LayerLabel(int index, absl::string_view name, absl::string_view type) {
  return absl::StrCat("layer ", index, " \"", name, "\" (", type, ")");
}

std::string Node::Label() const { return LayerLabel(file_index, name, type); }

DType InputDType(absl::string_view name) {
  if (absl::EndsWith(name, ".ids")) return DType::kInt64;
  if (absl::EndsWith(name, ".segments") || name == "mask") return DType::kInt32;
  return DType::kFloat32;
}

namespace {

// Follows the file: which value each name means at the layer being read.
class Builder {
 public:
  Builder(const ulf::NetParameter& net, const std::vector<std::vector<Weight>>& weights,
          const GraphOptions& options, ModelResources& resources, Notices& notices)
      : net_(net), weights_(weights), options_(options), resources_(resources), notices_(notices) {}

  absl::StatusOr<Graph> Build() {
    if (net_.layer_params_size() == 0) {
      return InvalidArgument("the graph has no layers");
    }
    for (int i = 0; i < net_.layer_params_size(); ++i) {
      RETURN_IF_ERROR(LoadScope::Check());
      const ulf::LayerParameter& param = net_.layer_params(i);
      const absl::Status status =
          param.type() == "input_layer" ? AddInputs(i, param) : AddLayer(i, param);
      RETURN_IF_ERROR(Annotate(status, LayerLabel(i, param.name(), param.type())));
    }
    for (const std::string& name : made_) graph_.tensors.push_back({name, current_.at(name)});
    RETURN_IF_ERROR(SetOutputs());
    return std::move(graph_);
  }

 private:
  absl::Status AddInputs(int index, const ulf::LayerParameter& param) {
    if (param.bottom_size() != 0) {
      return InvalidArgument("reads \"", param.bottom(0), "\", want no bottoms");
    }
    const auto& names = param.input_param().param();
    const std::vector<Weight>& blobs = weights_[index];
    if (static_cast<int>(blobs.size()) != names.size()) {
      return InvalidArgument("has ", blobs.size(), " weights, want ", names.size(),
                             ", one per input_param.param");
    }
    for (int k = 0; k < names.size(); ++k) {
      Value value{.name = names[k], .kind = Value::Kind::kConstant};
      value.constant_dims.push_back(1);
      for (int64_t d : blobs[k].dims) value.constant_dims.push_back(d);
      value.constant = blobs[k].data;
      RETURN_IF_ERROR(Declare(names[k], graph_.AddValue(std::move(value))));
    }
    const HashSet<absl::string_view> constants(names.begin(), names.end());
    for (const std::string& name : param.top()) {
      if (constants.contains(name)) continue;
      Value value{.name = name, .kind = Value::Kind::kInput, .dtype = InputDType(name)};
      const auto& wide = options_.int64_inputs;
      if (value.dtype == DType::kFloat32 &&
          std::find(wide.begin(), wide.end(), name) != wide.end()) {
        value.dtype = DType::kInt64;
      }
      const ValueId id = graph_.AddValue(std::move(value));
      graph_.inputs.push_back(id);
      RETURN_IF_ERROR(Declare(name, id));
    }
    return absl::OkStatus();
  }

  absl::Status Declare(const std::string& name, ValueId id) {
    if (!current_.try_emplace(name, id).second) {
      return InvalidArgument("declares \"", name, "\" a second time");
    }
    return absl::OkStatus();
  }

  absl::Status AddLayer(int index, const ulf::LayerParameter& param) {
    Notices notices;
    ASSIGN_OR_RETURN(const LayerType* type,
                     FindLayerType(param.type(), notices, options_.layer_types));
    notices.clear();  // ParseLayer gives them again.
    Node node{.file_index = index,
              .name = param.name(),
              .type = std::string(type->name),
              .composite = type->composite};
    for (const std::string& bottom : param.bottom()) {
      const auto it = current_.find(bottom);
      if (it == current_.end()) return UndefinedBottom(index, bottom);
      node.inputs.push_back(it->second);
      unread_.erase(bottom);
    }
    const ParseContext context{.param = param,
                               .weights = weights_[index],
                               .resources = resources_,
                               .notices = notices,
                               .guide_eps = options_.guide_eps,
                               .trunc_all = options_.trunc_all,
                               .more_types = options_.layer_types,
                               .packed = options_.packed};
    ASSIGN_OR_RETURN(node.layer, ParseLayer(context));
    if (options_.nhwc && type->image_inputs != 0) {
      node.layer = MakeNhwc(*type, std::move(node.layer));
      node.composite = true;
    }
    node.function = FunctionOf(param, weights_[index]);
    for (const std::string& notice : notices) {
      notices_.push_back(absl::StrCat(LayerLabel(index, param.name(), param.type()), ": ", notice));
    }
    for (const std::string& top : param.top()) {
      const ValueId id = graph_.AddValue({.name = top});
      node.outputs.push_back(id);
      if (made_set_.insert(top).second) made_.push_back(top);
      current_[top] = id;
      unread_.insert(top);
    }
    graph_.nodes.push_back(std::move(node));
    return absl::OkStatus();
  }

  // Layers with the same parameters and the very same weights compute the same function.
  static std::string FunctionOf(const ulf::LayerParameter& param, LayerWeights weights) {
    ulf::LayerParameter function = param;
    function.clear_name();
    function.clear_bottom();
    function.clear_top();
    function.clear_arg_names();
    std::string text = function.SerializeAsString();
    for (const Weight& weight : weights) {
      absl::StrAppend(&text, "|", absl::Hex(reinterpret_cast<uintptr_t>(weight.data.data())), ":",
                      absl::StrJoin(weight.dims, "x"));
    }
    return text;
  }

  // A forward reference is an error, not a reason to sort: the order of a file is part of its
  // meaning (in-place layers).
  absl::Status UndefinedBottom(int index, const std::string& bottom) const {
    for (int i = index; i < net_.layer_params_size(); ++i) {
      const ulf::LayerParameter& later = net_.layer_params(i);
      if (std::find(later.top().begin(), later.top().end(), bottom) != later.top().end()) {
        return InvalidArgument("reads \"", bottom, "\", which only ",
                               i == index ? std::string("the layer itself")
                                          : LayerLabel(i, later.name(), later.type()),
                               " makes; a layer reads what stands before it");
      }
    }
    return InvalidArgument("reads \"", bottom, "\", which no layer makes and no input declares");
  }

  absl::Status SetOutputs() {
    if (options_.outputs.empty()) {
      for (const std::string& name : unread_) {
        graph_.outputs.push_back({name, current_.at(name)});
      }
      if (graph_.outputs.empty()) {
        return InvalidArgument("the graph has no output: every tensor is read");
      }
      return absl::OkStatus();
    }
    HashSet<std::string> seen;
    for (const std::string& name : options_.outputs) {
      if (!made_set_.contains(name)) {
        return InvalidArgument("manifest: outputs names ", Quote(name), ", which no layer makes");
      }
      if (!seen.insert(name).second) {
        return InvalidArgument("manifest: outputs names ", Quote(name), " twice");
      }
      graph_.outputs.push_back({name, current_.at(name)});
    }
    return absl::OkStatus();
  }

  const ulf::NetParameter& net_;
  const std::vector<std::vector<Weight>>& weights_;
  const GraphOptions& options_;
  ModelResources& resources_;
  Notices& notices_;
  Graph graph_;
  HashMap<std::string, ValueId> current_;
  std::vector<std::string> made_;
  HashSet<std::string> made_set_;
  std::set<std::string> unread_;
};

}  // namespace

absl::StatusOr<Graph> BuildGraph(const ulf::NetParameter& net,
                                 const std::vector<std::vector<Weight>>& weights,
                                 const GraphOptions& options, ModelResources& resources,
                                 Notices& notices) {
  return Builder(net, weights, options, resources, notices).Build();
}

}  // namespace ulfd::engine

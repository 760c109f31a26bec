// Functions of an ONNX model, replaced by their nodes.
// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/onnx_functions.h"

#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/text.h"

namespace ulfd::convert {
namespace {

constexpr int kMaxNodes = 100000, kMaxDepth = 32;
using Nodes = google::protobuf::RepeatedPtrField<onnx::NodeProto>;
using Functions = std::map<std::pair<std::string, std::string>, const onnx::FunctionProto*>;

class Inliner {
 public:
  explicit Inliner(const Functions& functions) : functions_(functions) {}

  absl::Status Expand(const Nodes& from, int depth, Nodes& to) {
    for (const onnx::NodeProto& node : from) {
      const auto found = functions_.find({node.domain(), node.op_type()});
      if (found == functions_.end()) {
        if (to.size() >= kMaxNodes) return TooMany();
        *to.Add() = node;
        continue;
      }
      RETURN_IF_ERROR(Annotate(Call(*found->second, node, depth, to),
                               absl::StrCat("function \"", node.op_type(), "\"")));
    }
    return absl::OkStatus();
  }

 private:
  static absl::Status TooMany() {
    return absl::ResourceExhaustedError(
        absl::StrCat("functions make more than ", kMaxNodes, " nodes"));
  }
  absl::Status Call(const onnx::FunctionProto& function, const onnx::NodeProto& call, int depth,
                    Nodes& to);

  const Functions& functions_;
  int calls_ = 0;
};

// The attribute that a call gives to a node of the function.
absl::Status Bind(const onnx::NodeProto& call, onnx::NodeProto& node) {
  for (onnx::AttributeProto& attribute : *node.mutable_attribute()) {
    if (attribute.ref_attr_name().empty()) continue;
    const std::string name = attribute.name();
    bool given = false;
    for (const onnx::AttributeProto& value : call.attribute()) {
      if (value.name() != attribute.ref_attr_name()) continue;
      const onnx::AttributeProto copy = value;
      attribute = copy;
      attribute.set_name(name);
      given = true;
      break;
    }
    if (!given) {
      return absl::UnimplementedError(
          absl::StrCat("attribute \"", attribute.ref_attr_name(), "\" is left to a default"));
    }
  }
  return absl::OkStatus();
}

absl::Status Inliner::Call(const onnx::FunctionProto& function, const onnx::NodeProto& call,
                           int depth, Nodes& to) {
  if (depth >= kMaxDepth) return absl::InvalidArgumentError("calls itself, or is nested too deep");
  if (++calls_ > kMaxNodes) return TooMany();
  if (call.input_size() > function.input_size() || call.output_size() > function.output_size()) {
    return absl::InvalidArgumentError("is called with more values than it has");
  }
  std::map<std::string, std::string> names;
  for (int i = 0; i < function.input_size(); ++i) {
    names[function.input(i)] = i < call.input_size() ? call.input(i) : "";
  }
  for (int i = 0; i < call.output_size(); ++i) {
    if (!call.output(i).empty()) names[function.output(i)] = call.output(i);
  }
  const std::string prefix =
      absl::StrCat(call.name().empty() ? function.name() : call.name(), ".", calls_, "/");
  const auto rename = [&](const std::string& name) -> std::string {
    if (name.empty()) return name;
    const auto [it, added] = names.try_emplace(name, absl::StrCat(prefix, name));
    return it->second;
  };
  Nodes body;
  for (const onnx::NodeProto& node : function.node()) {
    onnx::NodeProto& copy = *body.Add();
    copy = node;
    copy.set_name(absl::StrCat(prefix, node.name()));
    for (std::string& name : *copy.mutable_input()) name = rename(name);
    for (std::string& name : *copy.mutable_output()) name = rename(name);
    RETURN_IF_ERROR(Bind(call, copy));
  }
  return Expand(body, depth + 1, to);
}

}  // namespace

absl::Status InlineFunctions(onnx::ModelProto& model) {
  if (model.functions_size() == 0) return absl::OkStatus();
  std::map<std::string, int64_t> versions;
  for (const onnx::OperatorSetIdProto& set : model.opset_import()) {
    versions[set.domain() == "ai.onnx" ? "" : set.domain()] = set.version();
  }
  Functions functions;
  for (const onnx::FunctionProto& function : model.functions()) {
    if (!functions.emplace(std::pair(function.domain(), function.name()), &function).second) {
      return absl::UnimplementedError(
          absl::StrCat("function \"", function.name(), "\" is there twice"));
    }
    for (const onnx::OperatorSetIdProto& set : function.opset_import()) {
      const auto known = versions.find(set.domain() == "ai.onnx" ? "" : set.domain());
      if (known == versions.end() || known->second == set.version()) continue;
      return absl::UnimplementedError(
          absl::StrCat("function \"", function.name(), "\" is of operator set ", set.version(),
                       " of \"", set.domain(), "\", the model of ", known->second));
    }
  }
  Nodes nodes;
  RETURN_IF_ERROR(Inliner(functions).Expand(model.graph().node(), 0, nodes));
  model.mutable_graph()->mutable_node()->Swap(&nodes);
  model.clear_functions();
  return absl::OkStatus();
}

absl::Status TakeBranches(onnx::GraphProto& graph, const Branches& branches) {
  Nodes nodes;
  for (onnx::NodeProto& node : *graph.mutable_node()) {
    const auto taken = node.output_size() > 0 ? branches.find(node.output(0)) : branches.end();
    if (node.op_type() != "If" || taken == branches.end()) {
      nodes.Add()->Swap(&node);
      continue;
    }
    const char* const wanted = taken->second ? "then_branch" : "else_branch";
    const auto attribute =
        std::find_if(node.mutable_attribute()->begin(), node.mutable_attribute()->end(),
                     [&](const onnx::AttributeProto& a) { return a.name() == wanted; });
    if (attribute == node.mutable_attribute()->end() ||
        attribute->g().output_size() != node.output_size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("node \"", node.name(), "\" (If): no ", wanted, " with its outputs"));
    }
    onnx::GraphProto& branch = *attribute->mutable_g();
    if (nodes.size() + branch.node_size() + branch.output_size() > kMaxNodes) {
      return absl::ResourceExhaustedError(absl::StrCat("more than ", kMaxNodes, " nodes"));
    }
    for (onnx::TensorProto& tensor : *branch.mutable_initializer()) {
      graph.add_initializer()->Swap(&tensor);
    }
    for (onnx::NodeProto& inner : *branch.mutable_node()) nodes.Add()->Swap(&inner);
    for (int i = 0; i < node.output_size(); ++i) {
      onnx::NodeProto& same = *nodes.Add();
      same.set_op_type("Identity");
      same.set_name(absl::StrCat(node.name(), "/", i));
      same.add_input(branch.output(i).name());
      same.add_output(node.output(i));
    }
  }
  graph.mutable_node()->Swap(&nodes);
  return absl::OkStatus();
}

}  // namespace ulfd::convert

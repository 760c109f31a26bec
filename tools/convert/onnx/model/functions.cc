// Functions of an ONNX model, replaced by their nodes.
// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/onnx/model/functions.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "google/protobuf/unknown_field_set.h"

namespace ulfd::convert {
namespace {

constexpr int kMaxNodes = 100000, kMaxDepth = 32;
using Nodes = google::protobuf::RepeatedPtrField<onnx::NodeProto>;
using Functions = std::map<std::pair<std::string, std::string>, const onnx::FunctionProto*>;

// Calls rename(std::string&) for every name that the nodes read or make, in their branches, too.
template <typename Fn>
void RenameAll(const Fn& rename, Nodes& nodes) {
  for (onnx::NodeProto& node : nodes) {
    for (std::string& name : *node.mutable_input()) rename(name);
    for (std::string& name : *node.mutable_output()) rename(name);
    for (onnx::AttributeProto& attribute : *node.mutable_attribute()) {
      if (!attribute.has_g()) continue;
      onnx::GraphProto& graph = *attribute.mutable_g();
      graph.clear_value_info();
      for (onnx::TensorProto& tensor : *graph.mutable_initializer()) rename(*tensor.mutable_name());
      RenameAll(rename, *graph.mutable_node());
      for (onnx::ValueInfoProto& value : *graph.mutable_output()) rename(*value.mutable_name());
    }
  }
}

// What a call gives to the attributes of a function's nodes: its own attributes, or else the
// function's defaults.
class Attributes {
 public:
  static absl::StatusOr<Attributes> Of(const onnx::FunctionProto& function,
                                       const onnx::NodeProto& call) {
    Attributes attributes;
    // A field that ONNX's library does not know yet.
    constexpr int kDefaults = 11;
    const google::protobuf::UnknownFieldSet& fields = function.unknown_fields();
    for (int i = 0; i < fields.field_count(); ++i) {
      const google::protobuf::UnknownField& field = fields.field(i);
      if (field.number() != kDefaults) continue;
      onnx::AttributeProto attribute;
      if (field.type() != google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED ||
          !attribute.ParseFromString(field.length_delimited())) {
        return absl::InvalidArgumentError("its attributes' defaults cannot be read");
      }
      attributes.given_[attribute.name()] = attribute;
    }
    for (const onnx::AttributeProto& own : call.attribute()) attributes.given_[own.name()] = own;
    return attributes;
  }

  // An attribute that is not given is left out.
  void Bind(Nodes& nodes) const {
    for (onnx::NodeProto& node : nodes) {
      google::protobuf::RepeatedPtrField<onnx::AttributeProto> bound;
      for (onnx::AttributeProto& attribute : *node.mutable_attribute()) {
        if (attribute.has_g()) Bind(*attribute.mutable_g()->mutable_node());
        if (attribute.ref_attr_name().empty()) {
          bound.Add()->Swap(&attribute);
          continue;
        }
        const auto given = given_.find(attribute.ref_attr_name());
        if (given == given_.end()) continue;
        onnx::AttributeProto& own = *bound.Add();
        own = given->second;
        own.set_name(attribute.name());
      }
      node.mutable_attribute()->Swap(&bound);
    }
  }

 private:
  std::map<std::string, onnx::AttributeProto> given_;
};

class Inliner {
 public:
  explicit Inliner(const Functions& functions) : functions_(functions) {}

  // The nodes with every call replaced, in their branches, too.
  absl::Status Expand(int depth, Nodes& nodes) {
    if (depth >= kMaxDepth)
      return absl::InvalidArgumentError("calls itself, or is nested too deep");
    Nodes expanded;
    for (onnx::NodeProto& node : nodes) {
      if (++nodes_ > kMaxNodes) {
        return absl::ResourceExhaustedError(
            absl::StrCat("functions make more than ", kMaxNodes, " nodes"));
      }
      const auto found = functions_.find({node.domain(), node.op_type()});
      if (found != functions_.end()) {
        const std::string text = absl::StrCat("function \"", node.op_type(), "\"");
        absl::StatusOr<Nodes> body = Call(*found->second, node);
        RETURN_IF_ERROR(Annotate(body.status(), text));
        RETURN_IF_ERROR(Annotate(Expand(depth + 1, *body), text));
        for (onnx::NodeProto& inner : *body) expanded.Add()->Swap(&inner);
        continue;
      }
      for (onnx::AttributeProto& attribute : *node.mutable_attribute()) {
        if (!attribute.has_g()) continue;
        RETURN_IF_ERROR(Expand(depth + 1, *attribute.mutable_g()->mutable_node()));
      }
      expanded.Add()->Swap(&node);
    }
    nodes.Swap(&expanded);
    return absl::OkStatus();
  }

 private:
  // The function's nodes with the call's values and attributes.
  absl::StatusOr<Nodes> Call(const onnx::FunctionProto& function, const onnx::NodeProto& call);

  const Functions& functions_;
  int nodes_ = 0;
};

absl::StatusOr<Nodes> Inliner::Call(const onnx::FunctionProto& function,
                                    const onnx::NodeProto& call) {
  if (call.input_size() > function.input_size() || call.output_size() > function.output_size()) {
    return absl::InvalidArgumentError("is called with more values than it has");
  }
  std::map<std::string, std::string> names = {{"", ""}};
  for (int i = 0; i < function.input_size(); ++i) {
    names[function.input(i)] = i < call.input_size() ? call.input(i) : "";
  }
  Nodes body = function.node();
  const std::string prefix =
      absl::StrCat(call.name().empty() ? function.name() : call.name(), ".", nodes_, "/");
  Nodes given_back;
  for (int i = 0; i < call.output_size(); ++i) {
    if (call.output(i).empty()) continue;
    const auto [name, added] = names.try_emplace(function.output(i), call.output(i));
    if (added) continue;
    onnx::NodeProto& same = *given_back.Add();
    same.set_op_type("Identity");
    same.add_input(name->second);
    same.add_output(call.output(i));
  }
  RenameAll(
      [&](std::string& name) {
        name = names.try_emplace(name, absl::StrCat(prefix, name)).first->second;
      },
      body);
  for (onnx::NodeProto& node : body) node.set_name(absl::StrCat(prefix, node.name()));
  ASSIGN_OR_RETURN(const Attributes attributes, Attributes::Of(function, call));
  attributes.Bind(body);
  body.MergeFrom(given_back);
  return body;
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
  RETURN_IF_ERROR(Inliner(functions).Expand(0, *model.mutable_graph()->mutable_node()));
  model.clear_functions();
  return absl::OkStatus();
}

namespace {

// Branches of several nodes may have the same names for what they make.
void MakeNamesUnique(const std::string& prefix, onnx::GraphProto& branch) {
  std::map<std::string, std::string> own;
  const auto add = [&](const std::string& name) {
    if (!name.empty()) own[name] = absl::StrCat(prefix, "/", name);
  };
  for (const onnx::TensorProto& tensor : branch.initializer()) add(tensor.name());
  for (const onnx::NodeProto& node : branch.node()) {
    for (const std::string& output : node.output()) add(output);
  }
  const auto rename = [&](std::string& name) {
    if (const auto it = own.find(name); it != own.end()) name = it->second;
  };
  for (onnx::TensorProto& tensor : *branch.mutable_initializer()) rename(*tensor.mutable_name());
  RenameAll(rename, *branch.mutable_node());
  for (onnx::ValueInfoProto& output : *branch.mutable_output()) rename(*output.mutable_name());
}

}  // namespace

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
    MakeNamesUnique(node.output(0), branch);
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

void DropUnread(onnx::GraphProto& graph) {
  std::set<std::string> read;
  const auto read_all = [&](const auto& self, const onnx::NodeProto& node) -> void {
    read.insert(node.input().begin(), node.input().end());
    for (const onnx::AttributeProto& attribute : node.attribute()) {
      for (const onnx::NodeProto& inner : attribute.g().node()) self(self, inner);
      for (const onnx::ValueInfoProto& output : attribute.g().output()) read.insert(output.name());
    }
  };
  for (const onnx::ValueInfoProto& output : graph.output()) read.insert(output.name());
  Nodes kept;
  for (int i = graph.node_size(); i-- > 0;) {
    onnx::NodeProto& node = *graph.mutable_node(i);
    if (std::none_of(node.output().begin(), node.output().end(),
                     [&](const std::string& output) { return read.contains(output); })) {
      continue;
    }
    read_all(read_all, node);
    kept.Add()->Swap(&node);
  }
  std::reverse(kept.begin(), kept.end());
  graph.mutable_node()->Swap(&kept);
}

}  // namespace ulfd::convert

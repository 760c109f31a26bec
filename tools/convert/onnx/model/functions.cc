// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/onnx/model/functions.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "google/protobuf/unknown_field_set.h"
#include "tools/convert/onnx/model/budget.h"

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
        return InvalidArgument("its attributes' defaults cannot be read");
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
    if (depth >= kMaxDepth) return InvalidArgument("calls itself, or is nested too deep");
    Nodes expanded;
    for (onnx::NodeProto& node : nodes) {
      if (++nodes_ > kMaxNodes) {
        return ResourceExhausted("functions make more than ", kMaxNodes, " nodes");
      }
      const auto found = functions_.find({node.domain(), node.op_type()});
      if (found != functions_.end()) {
        const std::string text = absl::StrCat("function \"", node.op_type(), "\"");
        Nodes body;
        RETURN_IF_ERROR(
            WithinBudget(text, [&] { return Annotate(Call(*found->second, node, body), text); }));
        RETURN_IF_ERROR(Annotate(Expand(depth + 1, body), text));
        for (onnx::NodeProto& inner : body) expanded.Add()->Swap(&inner);
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
  absl::Status Call(const onnx::FunctionProto& function, const onnx::NodeProto& call, Nodes& body);

  const Functions& functions_;
  int nodes_ = 0;
};

absl::Status Inliner::Call(const onnx::FunctionProto& function, const onnx::NodeProto& call,
                           Nodes& body) {
  if (call.input_size() > function.input_size() || call.output_size() > function.output_size()) {
    return InvalidArgument("is called with more values than it has");
  }
  std::map<std::string, std::string> names = {{"", ""}};
  for (int i = 0; i < function.input_size(); ++i) {
    names[function.input(i)] = i < call.input_size() ? call.input(i) : "";
  }
  body = function.node();
  const std::string prefix =
      absl::StrCat(call.name().empty() ? function.name() : call.name(), ".", nodes_, "/");
  Nodes given_back;
  for (int i = 0; i < call.output_size(); ++i) {
    if (call.output(i).empty()) continue;
    const auto [name, added] = names.try_emplace(function.output(i), call.output(i));
    if (added) continue;
    AddNode("Identity", "", {name->second}, call.output(i), given_back);
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
  return absl::OkStatus();
}

}  // namespace

onnx::NodeProto& AddNode(const std::string& op, const std::string& name,
                         const std::vector<std::string>& inputs, const std::string& output,
                         google::protobuf::RepeatedPtrField<onnx::NodeProto>& nodes) {
  onnx::NodeProto& node = *nodes.Add();
  node.set_op_type(op);
  if (!name.empty()) node.set_name(name);
  for (const std::string& input : inputs) node.add_input(input);
  node.add_output(output);
  return node;
}

namespace {

onnx::AttributeProto& AddAttribute(onnx::NodeProto& node, const char* name,
                                   onnx::AttributeProto::AttributeType type) {
  onnx::AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(type);
  return attribute;
}

}  // namespace

void SetInt(onnx::NodeProto& node, const char* name, int64_t value) {
  AddAttribute(node, name, onnx::AttributeProto::INT).set_i(value);
}
void SetInts(onnx::NodeProto& node, const char* name, const std::vector<int64_t>& values) {
  AddAttribute(node, name, onnx::AttributeProto::INTS)
      .mutable_ints()
      ->Assign(values.begin(), values.end());
}
void SetFloat(onnx::NodeProto& node, const char* name, float value) {
  AddAttribute(node, name, onnx::AttributeProto::FLOAT).set_f(value);
}
void SetString(onnx::NodeProto& node, const char* name, const std::string& value) {
  AddAttribute(node, name, onnx::AttributeProto::STRING).set_s(value);
}

absl::Status InlineFunctions(onnx::ModelProto& model) {
  if (model.functions_size() == 0) return absl::OkStatus();
  std::map<std::string, int64_t> versions;
  for (const onnx::OperatorSetIdProto& set : model.opset_import()) {
    versions[set.domain() == "ai.onnx" ? "" : set.domain()] = set.version();
  }
  Functions functions;
  for (const onnx::FunctionProto& function : model.functions()) {
    if (!functions.emplace(std::pair(function.domain(), function.name()), &function).second) {
      return Unimplemented("function \"", function.name(), "\" is there twice");
    }
    for (const onnx::OperatorSetIdProto& set : function.opset_import()) {
      const auto known = versions.find(set.domain() == "ai.onnx" ? "" : set.domain());
      if (known == versions.end() || known->second == set.version()) continue;
      return Unimplemented("function \"", function.name(), "\" is of operator set ", set.version(),
                           " of \"", set.domain(), "\", the model of ", known->second);
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

namespace {

// Whether the body goes on whenever it began: it gives the condition back that it was given.
bool GoesOn(const onnx::NodeProto& loop, const onnx::GraphProto& body) {
  std::string name = body.output(0).name();
  for (int i = body.node_size(); i-- > 0;) {
    const onnx::NodeProto& node = body.node(i);
    const bool same = node.op_type() == "Identity" || node.op_type() == "Cast";
    const bool one = node.input_size() == 1 && node.output_size() == 1;
    if (same && one && node.output(0) == name) name = node.input(0);
  }
  return name == body.input(1).name() || name == loop.input(1);
}

// The body as often as it runs; what it carries goes from pass to pass.
absl::Status UnrollLoop(const onnx::NodeProto& loop, int64_t passes, onnx::GraphProto& graph,
                        Nodes& nodes) {
  const onnx::GraphProto& body = loop.attribute(0).g();
  std::vector<std::string> carried(loop.input().begin() + 2, loop.input().end());
  const auto states = static_cast<int>(carried.size());
  std::vector<std::vector<std::string>> stacked(
      static_cast<size_t>(body.output_size() - 1 - states));
  if (passes == 0 && !stacked.empty()) return Unimplemented("a loop without a pass");
  if (!GoesOn(loop, body)) return Unimplemented("a loop that may end early");
  if (nodes.size() + (body.node_size() + body.output_size()) * passes > kMaxNodes) {
    return ResourceExhausted("more than ", kMaxNodes, " nodes");
  }
  for (int64_t pass = 0; pass < passes; ++pass) {
    onnx::GraphProto copy = body;
    const std::string prefix = absl::StrCat(loop.output(0), "/", pass);
    MakeNamesUnique(prefix, copy);
    onnx::TensorProto& number = *graph.add_initializer();
    number.set_name(absl::StrCat(prefix, "/pass"));
    number.set_data_type(onnx::TensorProto::INT64);
    number.add_int64_data(pass);
    std::map<std::string, std::string> given = {{body.input(0).name(), number.name()},
                                                {body.input(1).name(), loop.input(1)}};
    for (size_t i = 0; i < carried.size(); ++i) {
      given[body.input(static_cast<int>(i) + 2).name()] = carried[i];
    }
    const auto rename = [&](std::string& name) {
      if (const auto it = given.find(name); it != given.end()) name = it->second;
    };
    RenameAll(rename, *copy.mutable_node());
    graph.mutable_initializer()->MergeFrom(copy.initializer());
    nodes.MergeFrom(copy.node());
    for (size_t i = 0; i < carried.size(); ++i) {
      carried[i] = copy.output(static_cast<int>(i) + 1).name();
      rename(carried[i]);
    }
    for (size_t i = 0; i < stacked.size(); ++i) {
      stacked[i].push_back(copy.output(static_cast<int>(i) + 1 + states).name());
      rename(stacked[i].back());
    }
  }
  for (int i = 0; i < loop.output_size(); ++i) {
    if (loop.output(i).empty()) continue;
    const std::string name = absl::StrCat(loop.name(), "/", i);
    const auto at = static_cast<size_t>(i);
    if (i < states) {
      AddNode("Identity", name, {carried[at]}, loop.output(i), nodes);
    } else {
      const std::string items = absl::StrCat(loop.output(i), "/items");
      AddNode("SequenceConstruct", name, stacked[at - carried.size()], items, nodes);
      onnx::NodeProto& stack = AddNode("ConcatFromSequence", name, {items}, loop.output(i), nodes);
      SetInt(stack, "axis", 0);
      SetInt(stack, "new_axis", 1);
    }
  }
  return absl::OkStatus();
}

// Whether the If node squeezes a value or leaves it as it is: x.squeeze(axis), where the exporter
// knew no size.
bool OnlySqueezes(const onnx::NodeProto& node) {
  const onnx::NodeProto *squeeze = nullptr, *same = nullptr;
  for (const onnx::AttributeProto& branch : node.attribute()) {
    for (const onnx::NodeProto& inner : branch.g().node()) {
      if (inner.op_type() == "Constant") continue;
      const bool then = branch.name() == "then_branch";
      const onnx::NodeProto*& only = then ? squeeze : same;
      if (only != nullptr || inner.op_type() != (then ? "Squeeze" : "Identity") ||
          inner.input_size() == 0) {
        return false;
      }
      only = &inner;
    }
  }
  return squeeze != nullptr && same != nullptr && squeeze->input(0) == same->input(0);
}

// Whether the Loop node begins with a condition, and has a body of its inputs and outputs.
bool IsWhole(const onnx::NodeProto& loop) {
  if (loop.input_size() < 2 || loop.attribute_size() != 1 || !loop.attribute(0).has_g()) {
    return false;
  }
  const onnx::GraphProto& body = loop.attribute(0).g();
  return body.input_size() == loop.input_size() && body.output_size() >= loop.input_size() - 1 &&
         loop.output_size() < body.output_size() && !loop.input(1).empty();
}

}  // namespace

std::optional<int64_t> DecisionOf(
    const onnx::NodeProto& node,
    absl::FunctionRef<std::optional<int64_t>(const std::string&)> known) {
  constexpr int64_t kMostPasses = 1024;
  if (node.op_type() == "If" && node.input_size() == 1) {
    const std::optional<int64_t> condition = known(node.input(0));
    if (condition.has_value()) return *condition != 0;
    // It is the number of rows, and one row has the same elements either way.
    return OnlySqueezes(node) ? std::optional<int64_t>(0) : std::nullopt;
  }
  if (node.op_type() != "Loop" || !IsWhole(node)) return std::nullopt;
  const std::optional<int64_t> passes = known(node.input(0)), begins = known(node.input(1));
  if (!passes.has_value() || *passes < 0 || *passes > kMostPasses || begins.value_or(0) == 0) {
    return std::nullopt;
  }
  return passes;
}

absl::Status TakeBranches(onnx::GraphProto& graph, const Branches& branches) {
  Nodes nodes;
  for (onnx::NodeProto& node : *graph.mutable_node()) {
    const auto taken = node.output_size() > 0 ? branches.find(node.output(0)) : branches.end();
    if (taken == branches.end()) {
      nodes.Add()->Swap(&node);
      continue;
    }
    if (node.op_type() == "Loop") {
      const std::string text = NodeText(node);
      RETURN_IF_ERROR(WithinBudget(
          text, [&] { return Annotate(UnrollLoop(node, taken->second, graph, nodes), text); }));
      continue;
    }
    const char* const wanted = taken->second != 0 ? "then_branch" : "else_branch";
    const auto attribute =
        std::find_if(node.mutable_attribute()->begin(), node.mutable_attribute()->end(),
                     [&](const onnx::AttributeProto& a) { return a.name() == wanted; });
    if (attribute == node.mutable_attribute()->end() ||
        attribute->g().output_size() != node.output_size()) {
      return InvalidArgument("node \"", node.name(), "\" (If): no ", wanted, " with its outputs");
    }
    onnx::GraphProto& branch = *attribute->mutable_g();
    MakeNamesUnique(node.output(0), branch);
    if (nodes.size() + branch.node_size() + branch.output_size() > kMaxNodes) {
      return ResourceExhausted("more than ", kMaxNodes, " nodes");
    }
    for (onnx::TensorProto& tensor : *branch.mutable_initializer()) {
      graph.add_initializer()->Swap(&tensor);
    }
    for (onnx::NodeProto& inner : *branch.mutable_node()) nodes.Add()->Swap(&inner);
    for (int i = 0; i < node.output_size(); ++i) {
      AddNode("Identity", absl::StrCat(node.name(), "/", i), {branch.output(i).name()},
              node.output(i), nodes);
    }
  }
  graph.mutable_node()->Swap(&nodes);
  SkipCopies(graph);
  return absl::OkStatus();
}

std::vector<onnx::ValueInfoProto*> RequestInputs(onnx::GraphProto& graph) {
  std::set<std::string> constants;
  for (const onnx::TensorProto& tensor : graph.initializer()) constants.insert(tensor.name());
  std::vector<onnx::ValueInfoProto*> inputs;
  for (onnx::ValueInfoProto& input : *graph.mutable_input()) {
    if (!constants.contains(input.name())) inputs.push_back(&input);
  }
  return inputs;
}

void RenameValue(const std::string& from, const std::string& to, onnx::GraphProto& graph) {
  const auto rename = [&](std::string& name) {
    if (name == from) name = to;
  };
  RenameAll(rename, *graph.mutable_node());
}

void SkipCopies(onnx::GraphProto& graph) {
  std::map<std::string, std::string> originals;
  for (onnx::NodeProto& node : *graph.mutable_node()) {
    for (std::string& input : *node.mutable_input()) {
      if (const auto it = originals.find(input); it != originals.end()) input = it->second;
    }
    const std::string& op = node.op_type();
    const bool trains = node.input_size() > 2 && !node.input(2).empty();
    const bool copies = op == "Identity" || (op == "Dropout" && !trains);
    if (copies && node.domain().empty() && node.input_size() > 0 && node.output_size() > 0) {
      originals[node.output(0)] = node.input(0);
    }
  }
  if (!originals.empty()) DropUnread(graph);
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

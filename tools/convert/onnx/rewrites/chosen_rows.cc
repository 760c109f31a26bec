// Rows of a request that a mask of the model chooses, computes with, and puts back.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tools/convert/onnx/model/constant.h"
#include "tools/convert/onnx/model/functions.h"
#include "tools/convert/onnx/model/types.h"
#include "tools/convert/onnx/rewrites/rewrites.h"

namespace ulfd::convert {
namespace {

using Nodes = google::protobuf::RepeatedPtrField<onnx::NodeProto>;
// Masks and orders that rows went through, the latest last.
using Way = std::vector<std::string>;

// What the node reads, in its branches, too.
void AddReads(const onnx::NodeProto& node, std::vector<std::string>& names) {
  names.insert(names.end(), node.input().begin(), node.input().end());
  for (const onnx::AttributeProto& attribute : node.attribute()) {
    if (!attribute.has_g()) continue;
    std::vector<std::string> reads;
    std::set<std::string> made;
    for (const onnx::NodeProto& inner : attribute.g().node()) {
      AddReads(inner, reads);
      made.insert(inner.output().begin(), inner.output().end());
    }
    for (const std::string& name : reads) {
      if (!made.contains(name)) names.push_back(name);
    }
  }
}

class RowKeeper {
 public:
  explicit RowKeeper(onnx::GraphProto& graph) : graph_(graph) {
    for (const onnx::ValueInfoProto& input : graph.input()) computed_.insert(input.name());
    for (const onnx::TensorProto& tensor : graph.initializer()) {
      computed_.erase(tensor.name());
      constexpr size_t kSmall = 64;
      if (tensor.ByteSizeLong() > kSmall + tensor.name().size()) continue;
      onnx::TensorProto unnamed = tensor;
      unnamed.clear_name();
      same_[tensor.name()] =
          first_.try_emplace(unnamed.SerializeAsString(), tensor.name()).first->second;
    }
    for (const onnx::NodeProto& node : graph.node()) {
      onnx::NodeProto unnamed = node;
      unnamed.clear_name();
      unnamed.clear_doc_string();
      unnamed.clear_output();
      for (std::string& input : *unnamed.mutable_input()) input = First(input);
      const std::string text = unnamed.SerializeAsString();
      for (int i = 0; i < node.output_size(); ++i) {
        maker_[node.output(i)] = &node;
        same_[node.output(i)] =
            first_.try_emplace(absl::StrCat(text, "/", i), node.output(i)).first->second;
      }
    }
  }

  bool Run() {
    for (const onnx::NodeProto& node : graph_.node()) {
      onnx::NodeProto copy = node;
      if (!Follow(node, copy)) return false;
      *nodes_.Add() = std::move(copy);
    }
    for (const onnx::ValueInfoProto& output : graph_.output()) {
      if (!WayOf(output.name()).empty()) return false;
    }
    if (!changed_) return false;
    graph_.mutable_node()->Swap(&nodes_);
    DropUnread(graph_);  // What computed the indices.
    return true;
  }

 private:
  struct Indices {
    std::string mask, expanded;  // As it is, and as the indices are of it.
  };

  const Way& WayOf(const std::string& name) const {
    static const Way kNone;
    const auto found = ways_.find(name);
    return found == ways_.end() ? kNone : found->second;
  }
  const onnx::NodeProto* MakerOf(const std::string& name, const char* op) const {
    const auto found = maker_.find(name);
    return found != maker_.end() && found->second->op_type() == op ? found->second : nullptr;
  }

  // The first tensor that is computed in the same way.
  const std::string& First(const std::string& name) const {
    const auto found = same_.find(name);
    return found == same_.end() ? name : found->second;
  }

  // The mask [rows] behind what a mask has become to fit a tensor.
  std::string Root(std::string name) const {
    for (;;) {
      const auto found = maker_.find(name);
      if (found == maker_.end() ||
          !IsOneOf(found->second->op_type(), {"Reshape", "Unsqueeze", "Expand"})) {
        return First(name);
      }
      name = found->second->input(0);
    }
  }

  // The integers before their type was stated once more.
  std::string Uncast(std::string name) const {
    while (const onnx::NodeProto* cast = MakerOf(name, "Cast")) name = cast->input(0);
    return name;
  }

  // Whether the node makes of an order what puts sorted rows back: it sorts the order, or scatters
  // numbers by it.
  bool Inverts(const onnx::NodeProto& node, const std::string& order) const {
    if (IsOneOf(node.op_type(), {"ScatterElements", "Scatter"})) {
      return node.input_size() == 3 && Uncast(node.input(1)) == order &&
             MakerOf(node.input(2), "Range") != nullptr;
    }
    return node.op_type() == "TopK" && node.output_size() == 2 && Uncast(node.input(0)) == order &&
           IntAttribute(node, "largest", 1) == 0;
  }
  // Whether rows are sorted by it, and put back.
  bool IsOrder(const std::string& name) const {
    const auto any = [&](const auto& holds) {
      return std::any_of(graph_.node().begin(), graph_.node().end(), holds);
    };
    return any([&](const auto& node) { return Inverts(node, name); }) && any([&](const auto& node) {
             return node.op_type() == "Gather" && node.input_size() == 2 &&
                    Uncast(node.input(1)) == name;
           });
  }

  // The values that a Scatter of a flattened mask puts in places: flat, and as many as there are.
  std::string Unflattened(std::string name) const {
    for (const char* op : {"Slice", "Reshape"}) {
      if (const onnx::NodeProto* node = MakerOf(name, op)) name = node->input(0);
    }
    return name;
  }

  static void MakeIdentity(onnx::NodeProto& node, const std::string& of) {
    const std::string output = node.output(0);
    node.clear_input();
    node.clear_output();
    node.clear_attribute();
    node.set_op_type("Identity");
    node.add_input(of);
    node.add_output(output);
  }

  // Notes where the node's outputs come from, and changes `copy`; false: rows meet others.
  bool Follow(const onnx::NodeProto& node, onnx::NodeProto& copy) {
    const std::string& op = node.op_type();
    const std::string out = node.output_size() > 0 ? node.output(0) : "";
    const std::string in = node.input_size() > 0 ? node.input(0) : "";
    if (op == "Shape" || op == "Size") return true;
    if (op == "NonZero" && computed_.contains(Root(in))) {
      if (MeetsPlaces(out)) return NumberAll(node, copy);
      indices_[out] = {Root(in), in};
      return true;
    }
    if (IsOneOf(op, {"Add", "Cast", "Concat", "Expand", "Reshape", "Unsqueeze"}) &&
        CarriesNumbers(node)) {
      return true;
    }
    if (indices_.contains(in) && IsOneOf(op, {"Transpose", "Squeeze", "Reshape", "Cast"})) {
      indices_[out] = indices_[in];
      return true;
    }
    if (op == "Cast") {
      for (auto* const places : {&orders_, &back_}) {
        if (!places->contains(in)) continue;
        (*places)[out] = (*places)[in];
        return true;
      }
    }
    if (op == "TopK" && node.output_size() > 1 && IsOrder(node.output(1))) return Sort(node, copy);
    for (const std::string& input : node.input()) {
      if (!orders_.contains(input) || !Inverts(node, Uncast(input))) continue;
      back_[node.output(op == "TopK" ? 1 : 0)] = orders_[input];
      return true;
    }
    if (IsOneOf(op, {"Gather", "GatherND"})) {
      const std::string& index = node.input(1);
      if (indices_.contains(index)) return Choose(in, indices_[index], copy);
      if (orders_.contains(index)) return Permute(in, orders_[index], copy);
      if (back_.contains(index)) return PermuteBack(in, back_[index], copy);
    }
    if (op == "ScatterND" && indices_.contains(node.input(1))) return PutBack(node, copy);
    if (op == "ScatterND" && numbers_.contains(node.input(1))) return PutInPlaces(node, copy);
    return FollowOther(node);
  }

  bool Sort(const onnx::NodeProto& node, onnx::NodeProto& copy) {
    orders_[node.output(1)] = First(node.output(1));
    return Permute(node.input(0), First(node.output(1)), copy);
  }

  bool Permute(const std::string& from, const std::string& order, onnx::NodeProto& copy) {
    Way way = WayOf(from);
    way.push_back(order);
    ways_[copy.output(0)] = std::move(way);
    MakeIdentity(copy, from);
    changed_ = true;
    return true;
  }

  bool PermuteBack(const std::string& from, const std::string& order, onnx::NodeProto& copy) {
    Way way = WayOf(from);
    if (way.empty() || way.back() != order) return false;
    way.pop_back();
    ways_[copy.output(0)] = std::move(way);
    computed_.insert(copy.output(0));
    MakeIdentity(copy, from);
    return true;
  }

  // All rows, of which those of a mask of steps are in one axis.
  bool Choose(const std::string& from, const Indices& of, onnx::NodeProto& copy) {
    if (WayOf(from) != WayOf(of.mask)) return false;
    const std::string out = copy.output(0), name = copy.name();
    if (!Permute(from, of.mask, copy)) return false;
    const auto made = [&](const char* what) { return absl::StrCat(out, "/", what); };
    AddInteger(name, -1, {1}, made("all"));
    AddNode("Shape", name, {of.expanded}, made("chosen"), nodes_);
    AddNode("Shape", name, {made("chosen")}, made("begin"), nodes_);
    AddNode("Shape", name, {from}, made("sizes"), nodes_);
    AddNode("Shape", name, {made("sizes")}, made("end"), nodes_);
    AddNode("Slice", name, {made("sizes"), made("begin"), made("end")}, made("rest"), nodes_);
    SetInt(AddNode("Concat", name, {made("all"), made("rest")}, made("shape"), nodes_), "axis", 0);
    copy.set_op_type("Reshape");
    copy.add_input(made("shape"));
    return true;
  }

  bool PutBack(const onnx::NodeProto& node, onnx::NodeProto& copy) {
    const std::string& mask = indices_[node.input(1)].mask;
    const std::string& base = node.input(0);
    std::string values = node.input(2);
    Way way = WayOf(base);
    way.push_back(mask);
    if (WayOf(values) != way) return false;
    const bool flat = MakerOf(values, "Slice") != nullptr || MakerOf(values, "Reshape") != nullptr;
    if (flat && WayOf(Unflattened(values)) == way && IsExpanded(mask, node.input(1))) {
      values = Unflattened(values);
    }
    const std::string sizes = absl::StrCat(node.output(0), "/sizes");
    const std::string apart = absl::StrCat(node.output(0), "/apart");
    AddNode("Shape", node.name(), {base}, sizes, nodes_);
    AddNode("Reshape", node.name(), {values, sizes}, apart, nodes_);
    MakeWhere(copy, {mask, apart, base});
    return true;
  }

  // Makes rows of `base` of the node's, but for those of the mask.
  void MakeWhere(onnx::NodeProto& node, const std::vector<std::string>& mask_values_base) {
    ways_[node.output(0)] = WayOf(mask_values_base[2]);
    computed_.insert(node.output(0));
    node.set_op_type(kWhereRows);
    node.clear_input();
    node.clear_attribute();
    for (const std::string& input : mask_values_base) node.add_input(input);
  }

  // Whether the rows that a mask chooses are broadcast with other indices: x[mask, 2] = y.
  bool MeetsPlaces(const std::string& rows) const {
    return std::any_of(graph_.node().begin(), graph_.node().end(), [&](const auto& node) {
      return node.op_type() == "Add" && (node.input(0) == rows || node.input(1) == rows);
    });
  }

  void AddInteger(const std::string& name, int64_t value, const std::vector<int64_t>& dims,
                  const std::string& out) {
    onnx::NodeProto& constant = AddNode("Constant", name, {}, out, nodes_);
    onnx::AttributeProto& attribute = *constant.add_attribute();
    attribute.set_name("value");
    attribute.set_type(onnx::AttributeProto::TENSOR);
    attribute.mutable_t()->set_data_type(onnx::TensorProto::INT64);
    attribute.mutable_t()->mutable_dims()->Add(dims.begin(), dims.end());
    attribute.mutable_t()->add_int64_data(value);
  }

  // The numbers of all rows in the place of those that the mask chooses.  Here torch.onnx.export
  // writes NonZero of a mask [rows, 1], whose zeros of the second axis become rows, too.
  bool NumberAll(const onnx::NodeProto& node, onnx::NodeProto& copy) {
    const std::string mask = Root(node.input(0));
    const auto made = [&](const char* what) { return absl::StrCat(node.output(0), "/", what); };
    for (const int64_t number : {0, 1}) {
      AddInteger(node.name(), number, {}, made(number == 0 ? "first" : "step"));
    }
    AddNode("Shape", node.name(), {mask}, made("count"), nodes_);
    AddNode("Squeeze", node.name(), {made("count")}, made("end"), nodes_);
    AddNode("Range", node.name(), {made("first"), made("end"), made("step")}, made("all"), nodes_);
    AddNode("Shape", node.name(), {node.input(0)}, made("shape"), nodes_);
    copy = onnx::NodeProto();
    copy.set_name(node.name());
    copy.set_op_type("Reshape");
    for (const char* input : {"all", "shape"}) copy.add_input(made(input));
    copy.add_output(node.output(0));
    numbers_[node.output(0)] = mask;
    changed_ = true;
    return true;
  }

  // Whether the node moves numbers of all rows, or puts constants beside them.
  bool CarriesNumbers(const onnx::NodeProto& node) {
    const std::string* mask = nullptr;
    for (const std::string& input : node.input()) {
      const auto found = numbers_.find(input);
      if (found == numbers_.end() ? computed_.contains(input) : mask != nullptr) return false;
      if (found != numbers_.end()) mask = &found->second;
    }
    if (mask != nullptr) numbers_[node.output(0)] = *mask;
    return mask != nullptr;
  }

  // All rows get their values, and those outside the mask keep what they had.
  bool PutInPlaces(const onnx::NodeProto& node, onnx::NodeProto& copy) {
    const std::string &base = node.input(0), &values = node.input(2);
    const std::string mask = numbers_[node.input(1)];
    Way way = WayOf(base);
    way.push_back(mask);
    const Way& of_values = WayOf(values);
    if (of_values != way && (!of_values.empty() || computed_.contains(values))) return false;
    copy.set_output(0, absl::StrCat(node.output(0), "/all"));
    *nodes_.Add() = copy;
    const std::string all = copy.output(0);
    copy.set_output(0, node.output(0));
    MakeWhere(copy, {mask, all, base});
    return true;
  }

  // Whether the indices are of a mask that was repeated to the shape of a tensor.
  bool IsExpanded(const std::string& mask, std::string index) const {
    while (!index.empty() && maker_.contains(index)) {
      const onnx::NodeProto& node = *maker_.at(index);
      if (node.op_type() == "Expand") return true;
      if (index == mask || node.input_size() == 0) return false;
      index = node.input(0);
    }
    return false;
  }

  bool FollowOther(const onnx::NodeProto& node) {
    const Way* way = nullptr;
    bool others = false, computes = false;
    std::vector<std::string> reads;
    AddReads(node, reads);
    for (const std::string& input : reads) {
      if (indices_.contains(input) || numbers_.contains(input) || orders_.contains(input) ||
          back_.contains(input)) {
        return false;
      }
      const Way& own = WayOf(input);
      computes |= computed_.contains(input) || !own.empty();
      if (own.empty()) {
        others |= computed_.contains(input);
      } else if (way == nullptr) {
        way = &own;
      } else if (*way != own) {
        return false;
      }
    }
    if (way != nullptr && (others || node.op_type() == "Loop")) return false;
    for (const std::string& output : node.output()) {
      if (way != nullptr) ways_[output] = *way;
      if (computes) computed_.insert(output);
    }
    return true;
  }

  onnx::GraphProto& graph_;
  std::map<std::string, const onnx::NodeProto*> maker_;
  std::map<std::string, std::string> first_, same_;  // By what computes a tensor, and by its name.
  std::set<std::string> computed_;  // From inputs, and not from their shapes alone.
  std::map<std::string, Way> ways_;
  std::map<std::string, Indices> indices_;            // Of rows of a mask.
  std::map<std::string, std::string> numbers_;        // Of all rows, for those of a mask: its name.
  std::map<std::string, std::string> orders_, back_;  // That sort rows, and the other way round.
  Nodes nodes_;
  bool changed_ = false;
};

}  // namespace

bool ChoosesRows(const onnx::GraphProto& graph) {
  return std::any_of(graph.node().begin(), graph.node().end(), [](const onnx::NodeProto& node) {
    return IsOneOf(node.op_type(), {"NonZero", "ScatterElements", "Scatter", "TopK"});
  });
}

bool KeepAllRows(onnx::GraphProto& graph) { return RowKeeper(graph).Run(); }

}  // namespace ulfd::convert

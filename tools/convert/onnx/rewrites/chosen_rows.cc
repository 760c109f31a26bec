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
#include "tools/convert/onnx/rewrites/rewriter.h"
#include "tools/convert/onnx/rewrites/rewrites.h"

namespace ulfd::convert {
namespace {

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

class RowKeeper : public Rewriter {
 public:
  RowKeeper(onnx::GraphProto& graph, int64_t opset) : Rewriter(graph, opset), graph_(graph) {
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

 private:
  using Node = onnx::NodeProto;
  struct Indices {
    std::string mask, expanded;  // As it is, and as the indices are of it.
  };

  bool Fits() const override {
    return !meet_ && std::all_of(graph_.output().begin(), graph_.output().end(),
                                 [&](const auto& output) { return WayOf(output.name()).empty(); });
  }
  // Rows meet others.
  bool Meet() {
    meet_ = true;
    return false;
  }

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

  // Notes where the node's outputs come from.
  bool Replace(const Node& node) override {
    if (meet_) return false;
    const std::string& op = node.op_type();
    const std::string& out = node.output(0);
    const std::string in = node.input_size() > 0 ? node.input(0) : "";
    if (op == "Shape" || op == "Size") return false;
    if (op == "NonZero" && computed_.contains(Root(in))) {
      if (MeetsPlaces(out)) return NumberAll(node);
      indices_[out] = {Root(in), in};
      return false;
    }
    if (IsOneOf(op, {"Add", "Cast", "Concat", "Expand", "Reshape", "Unsqueeze"}) &&
        CarriesNumbers(node)) {
      return false;
    }
    if (indices_.contains(in) && IsOneOf(op, {"Transpose", "Squeeze", "Reshape", "Cast"})) {
      indices_[out] = indices_[in];
      return false;
    }
    if (op == "Cast") {
      for (auto* const places : {&orders_, &back_}) {
        if (!places->contains(in)) continue;
        (*places)[out] = (*places)[in];
        return false;
      }
    }
    if (op == "TopK" && node.output_size() > 1 && IsOrder(node.output(1))) return Sort(node);
    for (const std::string& input : node.input()) {
      if (!orders_.contains(input) || !Inverts(node, Uncast(input))) continue;
      back_[node.output(op == "TopK" ? 1 : 0)] = orders_[input];
      return false;
    }
    if (IsOneOf(op, {"Gather", "GatherND"})) {
      const std::string& index = node.input(1);
      if (indices_.contains(index)) return Choose(node, indices_[index]);
      if (orders_.contains(index)) return Permute(node, orders_[index]);
      if (back_.contains(index)) return PermuteBack(node, back_[index]);
    }
    if (op == "ScatterND" && indices_.contains(node.input(1))) return PutBack(node);
    if (op == "ScatterND" && numbers_.contains(node.input(1))) return PutInPlaces(node);
    return FollowOther(node);
  }

  bool Sort(const Node& node) {
    orders_[node.output(1)] = First(node.output(1));
    return Permute(node, First(node.output(1)));
  }

  void GoBy(const Node& node, const std::string& order) {
    Way way = WayOf(node.input(0));
    way.push_back(order);
    ways_[node.output(0)] = std::move(way);
  }

  bool Permute(const Node& node, const std::string& order) {
    GoBy(node, order);
    Add(node, "Identity", {node.input(0)}, node.output(0));
    return true;
  }

  bool PermuteBack(const Node& node, const std::string& order) {
    Way way = WayOf(node.input(0));
    if (way.empty() || way.back() != order) return Meet();
    way.pop_back();
    ways_[node.output(0)] = std::move(way);
    computed_.insert(node.output(0));
    Add(node, "Identity", {node.input(0)}, node.output(0));
    return true;
  }

  // All rows, of which those of a mask of steps are in one axis.
  bool Choose(const Node& node, const Indices& of) {
    const std::string &from = node.input(0), &out = node.output(0);
    if (WayOf(from) != WayOf(of.mask)) return Meet();
    GoBy(node, of.mask);
    const std::string chosen = Make(node, "Shape", {of.expanded}),
                      sizes = Make(node, "Shape", {from});
    const std::string rest =
        Make(node, "Slice", {sizes, Make(node, "Shape", {chosen}), Make(node, "Shape", {sizes})});
    const std::string shape = Fresh(out);
    SetInt(Add(node, "Concat", {Integers(out, {-1}), rest}, shape), "axis", 0);
    Add(node, "Reshape", {from, shape}, out);
    return true;
  }

  bool PutBack(const Node& node) {
    const std::string& mask = indices_[node.input(1)].mask;
    const std::string& base = node.input(0);
    std::string values = node.input(2);
    Way way = WayOf(base);
    way.push_back(mask);
    if (WayOf(values) != way) return Meet();
    const bool flat = MakerOf(values, "Slice") != nullptr || MakerOf(values, "Reshape") != nullptr;
    if (flat && WayOf(Unflattened(values)) == way && IsExpanded(mask, node.input(1))) {
      values = Unflattened(values);
    }
    const std::string sizes = Make(node, "Shape", {base});
    return AddWhere(node, mask, Make(node, "Reshape", {values, sizes}));
  }

  // The rows of the node's first input, but for those of the mask.
  bool AddWhere(const Node& node, const std::string& mask, const std::string& values) {
    ways_[node.output(0)] = WayOf(node.input(0));
    computed_.insert(node.output(0));
    Add(node, kWhereRows, {mask, values, node.input(0)}, node.output(0));
    return true;
  }

  // Whether the rows that a mask chooses are broadcast with other indices: x[mask, 2] = y.
  bool MeetsPlaces(const std::string& rows) const {
    return std::any_of(graph_.node().begin(), graph_.node().end(), [&](const auto& node) {
      return node.op_type() == "Add" && (node.input(0) == rows || node.input(1) == rows);
    });
  }

  // The numbers of all rows in the place of those that the mask chooses.  Here torch.onnx.export
  // writes NonZero of a mask [rows, 1], whose zeros of the second axis become rows, too.
  bool NumberAll(const Node& node) {
    const std::string& mask = numbers_[node.output(0)] = Root(node.input(0));
    const std::string all = NumbersBelow(node, Make(node, "Shape", {mask}));
    Add(node, "Reshape", {all, Make(node, "Shape", {node.input(0)})}, node.output(0));
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
  bool PutInPlaces(const Node& node) {
    const std::string& values = node.input(2);
    const std::string mask = numbers_[node.input(1)];
    Way way = WayOf(node.input(0));
    way.push_back(mask);
    const Way& of_values = WayOf(values);
    if (of_values != way && (!of_values.empty() || computed_.contains(values))) return Meet();
    Node all = node;
    all.set_output(0, Fresh(node.output(0)));
    Add(all);
    return AddWhere(node, mask, all.output(0));
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
        return Meet();
      }
      const Way& own = WayOf(input);
      computes |= computed_.contains(input) || !own.empty();
      if (own.empty()) {
        others |= computed_.contains(input);
      } else if (way == nullptr) {
        way = &own;
      } else if (*way != own) {
        return Meet();
      }
    }
    if (way != nullptr && (others || node.op_type() == "Loop")) return Meet();
    for (const std::string& output : node.output()) {
      if (way != nullptr) ways_[output] = *way;
      if (computes) computed_.insert(output);
    }
    return false;
  }

  const onnx::GraphProto& graph_;
  std::map<std::string, const onnx::NodeProto*> maker_;
  std::map<std::string, std::string> first_, same_;  // By what computes a tensor, and by its name.
  std::set<std::string> computed_;  // From inputs, and not from their shapes alone.
  std::map<std::string, Way> ways_;
  std::map<std::string, Indices> indices_;            // Of rows of a mask.
  std::map<std::string, std::string> numbers_;        // Of all rows, for those of a mask: its name.
  std::map<std::string, std::string> orders_, back_;  // That sort rows, and the other way round.
  bool meet_ = false;
};

}  // namespace

bool ChoosesRows(const onnx::GraphProto& graph) {
  return std::any_of(graph.node().begin(), graph.node().end(), [](const onnx::NodeProto& node) {
    return IsOneOf(node.op_type(), {"NonZero", "ScatterElements", "Scatter", "TopK"});
  });
}

bool KeepAllRows(onnx::GraphProto& graph, int64_t opset) { return RowKeeper(graph, opset).Run(); }

}  // namespace ulfd::convert

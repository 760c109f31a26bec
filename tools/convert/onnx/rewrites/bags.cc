// Embedding bags of an ONNX model: loops over slices of ids, as exporters write them.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>

#include "tools/convert/onnx/model/constant.h"
#include "tools/convert/onnx/model/functions.h"
#include "tools/convert/onnx/rewrites/rewriter.h"
#include "tools/convert/onnx/rewrites/rewrites.h"

namespace ulfd::convert {
namespace {

using Makers = std::map<std::string, const onnx::NodeProto*>;

Makers MakersOf(const onnx::GraphProto& graph) {
  Makers makers;
  for (const onnx::NodeProto& node : graph.node()) {
    for (const std::string& output : node.output()) makers[output] = &node;
  }
  return makers;
}

// The node that makes the name, if it is of this kind and has as many inputs.
const onnx::NodeProto* Find(const Makers& makers, const std::string& name, const char* op,
                            int inputs) {
  const auto found = makers.find(name);
  return found != makers.end() && found->second->op_type() == op &&
                 found->second->input_size() >= inputs
             ? found->second
             : nullptr;
}

// The node behind those of these kinds, of which each is the first input of the one before.
const onnx::NodeProto* FindBehind(const Makers& makers, const std::string& name,
                                  std::initializer_list<const char*> ops) {
  const onnx::NodeProto* node = nullptr;
  for (const char* op : ops) {
    node = Find(makers, node == nullptr ? name : node->input(0), op, 1);
    if (node == nullptr) return nullptr;
  }
  return node;
}

const onnx::GraphProto* BodyOf(const onnx::NodeProto& node) {
  const bool has_one = node.op_type() == "Loop" && node.attribute_size() == 1 &&
                       node.attribute(0).has_g() && node.input_size() == 2 &&
                       node.output_size() == 1;
  const onnx::GraphProto* const body = has_one ? &node.attribute(0).g() : nullptr;
  return body != nullptr && body->input_size() == 2 && body->output_size() == 2 ? body : nullptr;
}

// What the loop reduces: ids [rows, n] (or [rows], one in each bag), table and operator.
struct Bag {
  std::string ids, table, reduction;
  std::string weights;  // Of the ids; empty: none.
  bool one = false;
  std::string flat, flat_weights;  // All ids behind each other.
  std::string begins, ends;        // Of the bags among them.
};

// The offsets, all or all but the first, of which the name is the entry of this pass.
std::string OffsetsOf(const Makers& inside, const Makers& outside, const std::string& name,
                      const std::string& pass) {
  const onnx::NodeProto* const vector = Find(inside, name, "Unsqueeze", 1);
  const onnx::NodeProto* const entry =
      vector == nullptr ? nullptr : Find(inside, vector->input(0), "Gather", 2);
  const bool is = entry != nullptr && entry->input(1) == pass &&
                  (Find(outside, entry->input(0), "Slice", 1) != nullptr ||
                   Find(outside, entry->input(0), "Concat", 1) != nullptr);
  return is ? entry->input(0) : "";
}

bool ReadBag(const onnx::GraphProto& body, const Makers& outside, Bag& bag) {
  const Makers inside = MakersOf(body);
  for (const char* op : {"ReduceSum", "ReduceMean", "ReduceMax"}) {
    const onnx::NodeProto* const reduced = Find(inside, body.output(1).name(), op, 1);
    if (reduced == nullptr || IntAttribute(*reduced, "keepdims", 1) != 0) continue;
    const onnx::NodeProto* const weighted = Find(inside, reduced->input(0), "Mul", 2);
    const onnx::NodeProto* const gather =
        Find(inside, weighted == nullptr ? reduced->input(0) : weighted->input(0), "Gather", 2);
    if (gather == nullptr || IntAttribute(*gather, "axis", 0) != 0) return false;
    const onnx::NodeProto* const slice = Find(inside, gather->input(1), "Slice", 3);
    const std::string& pass = body.input(0).name();
    if (slice == nullptr) return false;
    const std::string begins = OffsetsOf(inside, outside, slice->input(1), pass);
    const std::string ends = OffsetsOf(inside, outside, slice->input(2), pass);
    if (begins.empty() || ends.empty()) return false;
    const onnx::NodeProto* const flat = Find(outside, slice->input(0), "Reshape", 2);
    const auto whole = [&](const onnx::NodeProto& part) {
      const onnx::NodeProto* const of = Find(outside, part.input(0), "Reshape", 2);
      return of == nullptr || flat == nullptr ? part.input(0) : of->input(0);
    };
    bag = {.ids = whole(*slice),
           .table = gather->input(0),
           .reduction = op,
           .one = flat == nullptr,
           .flat = slice->input(0),
           .begins = begins,
           .ends = ends};
    if (weighted == nullptr) return true;
    const onnx::NodeProto* const wide = Find(inside, weighted->input(1), "Unsqueeze", 1);
    const onnx::NodeProto* const part =
        wide == nullptr ? nullptr : Find(inside, wide->input(0), "Slice", 3);
    if (part == nullptr || part->input(1) != slice->input(1) || part->input(2) != slice->input(2)) {
      return false;
    }
    bag.weights = whole(*part);
    bag.flat_weights = part->input(0);
    return true;
  }
  return false;
}

// Rows of values [rows, n, width] that a mask [k, rows, n] of 0 and 1 chooses: those of each
// [rows, n] where it is not 0, which end where the sums of the mask do.
struct ChosenRows {
  std::string mask, values;
};

bool ReadChosenRows(const onnx::GraphProto& body, const Makers& outside, ChosenRows& chosen) {
  const Makers inside = MakersOf(body);
  const onnx::NodeProto* const gather =
      FindBehind(inside, body.output(1).name(), {"ReduceSum", "Gather"});
  const onnx::NodeProto* const slice = gather == nullptr || gather->input_size() < 2
                                           ? nullptr
                                           : Find(inside, gather->input(1), "Slice", 3);
  if (slice == nullptr) return false;
  const onnx::NodeProto* const values = Find(outside, gather->input(0), "Reshape", 1);
  const onnx::NodeProto* const flat =
      FindBehind(outside, slice->input(0), {"Squeeze", "Split", "Transpose", "NonZero", "Flatten"});
  const onnx::NodeProto* const begin = FindBehind(inside, slice->input(1), {"Unsqueeze", "Gather"});
  const onnx::NodeProto* const ends =
      begin == nullptr ? nullptr : FindBehind(outside, begin->input(0), {"Cast", "Concat"});
  if (values == nullptr || flat == nullptr || ends == nullptr || ends->input_size() != 2) {
    return false;
  }
  const onnx::NodeProto* const sums =
      FindBehind(outside, ends->input(1), {"CumSum", "Reshape", "ReduceSum"});
  chosen = {.mask = flat->input(0), .values = values->input(0)};
  return sums != nullptr && sums->input(0) == chosen.mask;
}

class BagWriter : public Rewriter {
 public:
  // fixed: of bags of ids only those that begin where constants say.
  BagWriter(onnx::GraphProto& graph, int64_t opset, bool fixed)
      : Rewriter(graph, opset), makers_(MakersOf(graph)), fixed_(fixed) {}

 private:
  bool Replace(const onnx::NodeProto& node) override {
    if (node.op_type() == "Reshape") return Choose(node);
    const onnx::GraphProto* const body = BodyOf(node);
    Bag bag;
    if (body == nullptr || !ReadBag(*body, makers_, bag) || (fixed_ && !FixBag(node, bag))) {
      return false;
    }
    const std::string& out = node.output(0);
    const std::string bagged = bag.one ? out : Fresh(out);
    const std::string rows = bag.weights.empty() ? bagged : Fresh(out);
    Add(node, "Gather", {bag.table, bag.ids}, rows);
    if (!bag.weights.empty()) {
      const std::string weights = Fresh(out);
      AddOnAxis(node, "Unsqueeze", bag.weights, -1, weights);
      Add(node, "Mul", {rows, weights}, bagged);
    }
    if (bag.one) return true;
    const std::string axis = Integers(out, {1});
    onnx::NodeProto& reduced = Add(node, bag.reduction.c_str(), {bagged}, out);
    SetInt(reduced, "keepdims", 0);
    if (opset_ >= (bag.reduction == "ReduceSum" ? kAxesAreInputs : kAxesOfOthersAreInputs)) {
      reduced.add_input(axis);
    } else {
      SetInts(reduced, "axes", {1});
    }
    return true;
  }

  // Bags of one size, one behind the other, are rows: [0, n, 2 n, ..] is where they begin, and the
  // last ends with the ids.
  bool FixBag(const onnx::NodeProto& node, Bag& bag) {
    const onnx::NodeProto* const every = Find(makers_, bag.begins, "Concat", 2);
    const onnx::NodeProto* const total =
        every == nullptr ? nullptr : FindBehind(makers_, every->input(1), {"Unsqueeze", "Gather"});
    const onnx::NodeProto* const size =
        total == nullptr ? nullptr : Find(makers_, total->input(0), "Shape", 1);
    const onnx::NodeProto* const behind = Find(makers_, bag.ends, "Slice", 2);
    if (size == nullptr || size->input(0) != bag.flat || every->input_size() != 2 ||
        behind == nullptr || behind->input(0) != bag.begins || Int(*behind, 1) != 1) {
      return false;
    }
    const std::optional<std::vector<int64_t>> begins = Ints(every->input(0));
    if (!begins.has_value() || begins->empty()) return false;
    const auto rows = static_cast<int64_t>(begins->size());
    const int64_t each = rows == 1 ? -1 : (*begins)[1];  // All there are.
    for (int64_t i = 0; i < rows; ++i) {
      if ((*begins)[static_cast<size_t>(i)] != i * each) return false;
    }
    const auto in_rows = [&](const std::string& flat) {
      return Make(node, "Reshape", {flat, Integers(flat, {rows, each})});
    };
    bag.ids = in_rows(bag.flat);
    if (!bag.weights.empty()) bag.weights = in_rows(bag.flat_weights);
    bag.one = false;
    return each != 0;
  }

  // Sums of chosen rows as [k, -1, width]: a product.
  bool Choose(const onnx::NodeProto& node) {
    const onnx::NodeProto* const loop =
        node.input_size() == 2 ? Find(makers_, node.input(0), "Loop", 2) : nullptr;
    const onnx::GraphProto* const body = loop == nullptr ? nullptr : BodyOf(*loop);
    ChosenRows chosen;
    if (body == nullptr || !InEach(node.input(1)) || !ReadChosenRows(*body, makers_, chosen)) {
      return false;
    }
    const std::string mask = Fresh(node.output(0));
    AddOnAxis(node, "Unsqueeze", chosen.mask, 2, mask);
    AddOnAxis(node, "Squeeze", Make(node, "MatMul", {mask, chosen.values}), 2, node.output(0));
    return true;
  }

  // Whether sizes are [k, -1, width].
  bool InEach(const std::string& sizes) const {
    const onnx::NodeProto* const parts = Find(makers_, sizes, "Concat", 3);
    if (parts != nullptr) return Int(*parts, 1) == -1;
    const std::optional<std::vector<int64_t>> ints = Ints(sizes);
    return ints.has_value() && ints->size() == 3 && (*ints)[1] == -1;
  }

  static constexpr int64_t kAxesOfOthersAreInputs = 18;
  const Makers makers_;
  const bool fixed_;
};

}  // namespace

bool HasLoops(const onnx::GraphProto& graph) {
  return std::any_of(graph.node().begin(), graph.node().end(),
                     [](const onnx::NodeProto& node) { return node.op_type() == "Loop"; });
}

bool UnrollBags(onnx::GraphProto& graph, int64_t opset) {
  return BagWriter(graph, opset, false).Run();
}

void UnrollFixedBags(onnx::GraphProto& graph, int64_t opset) {
  BagWriter(graph, opset, true).Run();
}

}  // namespace ulfd::convert

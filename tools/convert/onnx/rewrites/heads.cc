// Heads of attention that are stacked in front of the rows, stacked beside each row instead.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "tools/convert/onnx/model/constant.h"
#include "tools/convert/onnx/model/functions.h"
#include "tools/convert/onnx/model/types.h"
#include "tools/convert/onnx/rewrites/rewriter.h"
#include "tools/convert/onnx/rewrites/rewrites.h"

namespace ulfd::convert {
namespace {

// Whether it splits the first axis in equal parts, as many as there may be.
bool CutsRows(const onnx::NodeProto& node) {
  const bool sized =
      (node.input_size() > 1 && !node.input(1).empty()) || FindAttribute(node, "split") != nullptr;
  return node.op_type() == "Split" && IntAttribute(node, "axis", 0) == 0 && !sized &&
         node.input_size() > 0 && node.output_size() > 1;
}

class HeadStacker : public Rewriter {
 public:
  HeadStacker(onnx::GraphProto& graph, int64_t opset) : Rewriter(graph, opset) {
    for (const onnx::NodeProto& node : graph.node()) {
      if (node.output_size() == 1) Note(node);
    }
  }

 private:
  bool Fits() const override { return stacks_ && cuts_; }

  // Where the part `number` of `heads` of x ends; its number 1: what a part has.
  struct End {
    std::string of;
    int64_t heads = 0, number = 1;
  };

  // chunk() computes the size of a part: (x.size(0) + h - 1) / h, and times 2, 3, ...
  void Note(const onnx::NodeProto& node) {
    const std::string &op = node.op_type(), &out = node.output(0);
    // Weights have no rows: nn.MultiheadAttention cuts its own in three.
    const bool data = node.input_size() > 0 && FindTensor(node.input(0)) == nullptr;
    if (op == "Shape" && node.attribute_size() == 0 && data) shapes_[out] = node.input(0);
    if (node.input_size() != 2) return;
    const std::string& in = node.input(0);
    const std::optional<int64_t> by = Int(node, 1);
    if (!by.has_value()) return;
    if (op == "Gather" && shapes_.contains(in) && *by == 0) rows_[out] = shapes_[in];
    if (op == "Add" && rows_.contains(in)) more_[out] = {rows_[in], *by + 1};
    if (op == "Div" && more_.contains(in) && more_[in].heads == *by && *by > 1) {
      parts_[out] = ends_[out] = more_[in];
    }
    if (op == "Mul" && parts_.contains(in)) ends_[out] = {parts_[in].of, parts_[in].heads, *by};
  }

  bool Replace(const onnx::NodeProto& node) override {
    if (node.op_type() == "Concat") return Stack(node);
    if (node.op_type() == "Tile") return Repeat(node);
    if (node.op_type() == "Split") return CutAll(node);
    return node.op_type() == "Slice" && Cut(node);
  }

  bool Stack(const onnx::NodeProto& node) {
    const auto is_data = [&](const std::string& input) {
      return IsPlainFloat(types_.TypeOf(input)) && FindTensor(input) == nullptr;
    };
    if (IntAttribute(node, "axis", -1) != 0 || node.input_size() < 2 ||
        !std::all_of(node.input().begin(), node.input().end(), is_data)) {
      return false;
    }
    AddBesideRows(node, {node.input().begin(), node.input().end()}, node.output(0));
    stacks_ = true;
    return true;
  }

  bool Repeat(const onnx::NodeProto& node) {
    constexpr int64_t kMost = 64;
    const std::optional<std::vector<int64_t>> times =
        node.input_size() == 2 ? Ints(node.input(1)) : std::nullopt;
    if (!times.has_value() || times->empty() || times->front() < 2 || times->front() > kMost ||
        std::any_of(times->begin() + 1, times->end(), [](int64_t t) { return t != 1; })) {
      return false;
    }
    AddBesideRows(node,
                  std::vector<std::string>(static_cast<size_t>(times->front()), node.input(0)),
                  node.output(0));
    stacks_ = true;
    return true;
  }

  // All parts of x, which are equal.
  bool CutAll(const onnx::NodeProto& node) {
    if (!CutsRows(node) || FindTensor(node.input(0)) != nullptr) return false;
    const std::string apart = Apart(node, node.input(0), node.output_size());
    for (int i = 0; i < node.output_size(); ++i) TakePart(node, apart, i, node.output(i));
    return true;
  }

  bool Cut(const onnx::NodeProto& node) {
    if (node.input_size() < 4 || Int(node, 3) != 0) return false;
    const auto end = ends_.find(node.input(2));
    if (end == ends_.end() || end->second.of != node.input(0)) return false;
    const auto& [x, heads, number] = end->second;
    const auto begin = ends_.find(node.input(1));
    if (begin == ends_.end() ? number != 1 || Int(node, 1) != 0
                             : begin->second.of != x || begin->second.number != number - 1) {
      return false;
    }
    TakePart(node, Apart(node, x, heads), number - 1, node.output(0));
    return true;
  }

  // [rows * heads, ...] as [rows, heads, ...].
  std::string Apart(const onnx::NodeProto& node, const std::string& x, int64_t heads) {
    cuts_ = true;
    const std::string row = Fresh(x), shape = Fresh(x);
    AddSlice(node, Make(node, "Shape", {x}), 0, 1, std::numeric_limits<int64_t>::max(), row);
    SetInt(Add(node, "Concat", {Integers(shape, {-1, heads}), row}, shape), "axis", 0);
    return Make(node, "Reshape", {x, shape});
  }
  void TakePart(const onnx::NodeProto& node, const std::string& apart, int64_t at,
                const std::string& out) {
    const std::string part = Fresh(out);
    AddSlice(node, apart, 1, at, at + 1, part);
    AddOnAxis(node, "Squeeze", part, 1, out);
  }

  std::map<std::string, std::string> shapes_, rows_;  // Of what.
  std::map<std::string, End> more_, parts_, ends_;
  bool stacks_ = false, cuts_ = false;
};

}  // namespace

bool CutsParts(const onnx::GraphProto& graph) {
  constexpr absl::string_view kSteps[] = {"Shape", "Gather", "Add", "Div"};
  std::map<absl::string_view, size_t> steps;  // How many of these made it, one after another.
  for (const onnx::NodeProto& node : graph.node()) {
    if (CutsRows(node)) return true;
    if (node.input_size() == 0 || node.output_size() != 1) continue;
    const auto before = steps.find(node.input(0));
    const size_t done = before == steps.end() ? 0 : before->second;
    if (node.op_type() != kSteps[done]) continue;
    if (done + 1 == std::size(kSteps)) return true;
    steps[node.output(0)] = done + 1;
  }
  return false;
}

bool StackBesideRows(onnx::GraphProto& graph, int64_t opset) {
  return HeadStacker(graph, opset).Run();
}

}  // namespace ulfd::convert

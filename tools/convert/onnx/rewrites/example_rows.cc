// Numbers that stand for the rows of an export's example.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tools/convert/onnx/model/constant.h"
#include "tools/convert/onnx/model/functions.h"
#include "tools/convert/onnx/model/types.h"
#include "tools/convert/onnx/rewrites/rewriter.h"
#include "tools/convert/onnx/rewrites/rewrites.h"

namespace ulfd::convert {
namespace {

using Node = onnx::NodeProto;

class RowsWriter : public Rewriter {
 public:
  RowsWriter(onnx::GraphProto& graph, int64_t opset, int64_t rows,
             const std::vector<std::string>& inputs)
      : Rewriter(graph, opset), rows_(rows), inputs_(inputs) {
    for (size_t i = 0; i < inputs.size(); ++i) source_[inputs[i]] = i;
  }

 private:
  bool Replace(const Node& node) override {
    const std::string& op = node.op_type();
    if (op == "ConstantOfShape") return Fill(node);
    std::optional<size_t> source;
    for (const std::string& input : node.input()) {
      const auto found = source_.find(input);
      if (found != source_.end()) source = std::max(source.value_or(0), found->second);
    }
    if (!source.has_value()) return false;
    for (const std::string& output : node.output()) source_[output] = *source;
    if (op == "Reshape" || op == "Expand") return Resize(node, op == "Reshape");
    if (IsOneOf(op, {"GRU", "LSTM", "RNN"})) return DropStates(node);
    const bool joins = op == "Concat" && IntAttribute(node, "axis", 0) != 0;
    const bool repeats = IsOneOf(op, {"Add", "Sub", "Mul", "Div", "Where", "Max", "Min"});
    return (joins || repeats) && TakeOneRow(node, joins ? inputs_[*source] : "");
  }

  // [rows] of the input.
  std::string RowsOf(const Node& of, const std::string& input) {
    const std::string rows = Fresh(of.output(0));
    AddSlice(of, Make(of, "Shape", {input}), 0, 0, 1, rows);
    return rows;
  }

  std::string SizesBehind(const Node& of, const std::string& rows,
                          const std::vector<int64_t>& sizes, size_t at) {
    const auto place = sizes.begin() + static_cast<std::ptrdiff_t>(at);
    std::vector<std::string> parts = {rows};
    const std::vector<int64_t> before(sizes.begin(), place), behind(place + 1, sizes.end());
    if (!before.empty()) parts.insert(parts.begin(), Integers(rows, before));
    if (!behind.empty()) parts.push_back(Integers(rows, behind));
    const std::string all = Fresh(of.output(0));
    SetInt(Add(of, "Concat", parts, all), "axis", 0);
    return all;
  }

  bool Fill(const Node& node) {
    const std::optional<std::vector<int64_t>> sizes =
        node.input_size() == 1 ? Ints(node.input(0)) : std::nullopt;
    if (rows_ == 1 || !sizes.has_value()) return false;
    const auto found = std::find(sizes->begin(), sizes->end(), rows_);
    if (found == sizes->end()) return false;
    source_[node.output(0)] = inputs_.size() - 1;
    Node changed = node;
    changed.set_input(0, SizesBehind(node, RowsOf(node, inputs_.back()), *sizes,
                                     static_cast<size_t>(found - sizes->begin())));
    Add(changed);
    return true;
  }

  bool Resize(const Node& node, bool reshapes) {
    const std::optional<std::vector<int64_t>> given =
        node.input_size() == 2 ? Ints(node.input(1)) : std::nullopt;
    const auto source = source_.find(node.input(0));
    if (!given.has_value() || given->empty() || source == source_.end()) return false;
    std::vector<int64_t> sizes = *given;
    // One row tells no other axis from a size of 1.
    const auto is_rows = [&](int64_t size) { return size > 0 && size % rows_ == 0; };
    const auto end = rows_ > 1 && sizes[0] > 0 ? sizes.end() : sizes.begin() + 1;
    const auto found = std::find_if(sizes.begin(), end, is_rows);
    if (found == end || (rows_ == 1 && *found != 1)) return false;
    const auto at = static_cast<size_t>(found - sizes.begin());
    std::string to;
    if (reshapes && std::find(sizes.begin(), sizes.end(), -1) == sizes.end()) {
      sizes[at] = -1;
      to = Integers(node.output(0), sizes);
    } else if (sizes[at] == rows_) {
      to = SizesBehind(node, RowsOf(node, inputs_[source->second]), sizes, at);
    } else {
      return false;
    }
    Node changed = node;
    changed.set_input(1, to);
    Add(changed);
    return true;
  }

  // Whether all entries along the axis are the same, as many as the example has rows.
  bool IsRepeated(const std::string& name, int axis) const {
    const onnx::TensorProto* const tensor = FindTensor(name);
    if (rows_ == 1 || tensor == nullptr || tensor->dims_size() < 2 || tensor->dims(axis) != rows_) {
      return false;
    }
    const absl::StatusOr<Constant> constant = ReadTensor(*tensor);
    const absl::StatusOr<std::vector<float>> values =
        constant.ok() ? constant->ToFloats() : constant.status();
    if (!values.ok() || values->empty()) return false;
    size_t behind = 1;
    for (int d = axis + 1; d < tensor->dims_size(); ++d) {
      behind *= static_cast<size_t>(tensor->dims(d));
    }
    const size_t block = behind * static_cast<size_t>(rows_);
    for (size_t i = 0; i < values->size(); ++i) {
      if ((*values)[i] != (*values)[i / block * block + i % behind]) return false;
    }
    return true;
  }

  // Constants of a row that is repeated: the row, which is repeated by the input's rows if it is
  // joined to something.
  bool TakeOneRow(const Node& node, const std::string& joined_to) {
    Node changed = node;
    bool any = false;
    for (std::string& input : *changed.mutable_input()) {
      if (!IsRepeated(input, 0)) continue;
      const onnx::TensorProto& tensor = *FindTensor(input);
      std::vector<int64_t> sizes(tensor.dims().begin(), tensor.dims().end());
      const std::string row = Fresh(node.output(0));
      AddSlice(node, input, 0, 0, 1, row);
      input = joined_to.empty() ? row
                                : Make(node, "Expand",
                                       {row, SizesBehind(node, RowsOf(node, joined_to), sizes, 0)});
      any = true;
    }
    if (any) Add(changed);
    return any;
  }

  // Zeros are what there is without a state.
  bool DropStates(const Node& node) {
    constexpr int kFirstState = 5;
    Node changed = node;
    bool any = false;
    for (int i = kFirstState; i < std::min(node.input_size(), kFirstState + 2); ++i) {
      if (!IsRepeated(node.input(i), 1)) continue;
      const absl::StatusOr<Constant> state = ReadTensor(*FindTensor(node.input(i)));
      const absl::StatusOr<std::vector<float>> values =
          state.ok() ? state->ToFloats() : state.status();
      if (!values.ok() ||
          std::any_of(values->begin(), values->end(), [](float value) { return value != 0; })) {
        continue;
      }
      changed.set_input(i, "");
      any = true;
    }
    if (any) Add(changed);
    return any;
  }

  const int64_t rows_;
  const std::vector<std::string> inputs_;
  std::map<std::string, size_t> source_;  // What has an input's rows: the last such input.
};

}  // namespace

void FollowRows(onnx::GraphProto& graph, int64_t opset, int64_t rows,
                const std::vector<std::string>& inputs) {
  RowsWriter(graph, opset, rows, inputs).Run();
}

}  // namespace ulfd::convert

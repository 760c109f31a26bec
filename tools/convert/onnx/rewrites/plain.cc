// Operators that others say as well, written as those.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/string_view.h"
#include "tools/convert/onnx/model/constant.h"
#include "tools/convert/onnx/model/functions.h"
#include "tools/convert/onnx/model/types.h"
#include "tools/convert/onnx/rewrites/rewriter.h"
#include "tools/convert/onnx/rewrites/rewrites.h"

namespace ulfd::convert {
namespace {

constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();

// Tensors that are known one by one, or the parts of one tensor, of which there may be any number.
struct Sequence {
  std::vector<std::string> items;
  std::string whole;  // Of which these are parts; empty: `items` are all.
  int64_t axis = 0, size = 1;
  std::string sizes;  // What computes them, a vector; empty: all parts have `size`.
  bool keep_axis = true;
  int64_t times = 1;  // Each part this often in a row.
};

class PlainWriter : public Rewriter {
 public:
  PlainWriter(onnx::GraphProto& graph, int64_t opset) : Rewriter(graph, opset) {
    for (const onnx::NodeProto& node : graph.node()) {
      if (node.op_type() == "Concat" && node.output_size() == 1) joins_[node.output(0)] = node;
    }
    for (const onnx::ValueInfoProto& input : graph.input()) inputs_[input.name()] = &input;
  }

 private:
  // A sequence stays for what is not replaced.
  bool Stays(const onnx::NodeProto& node) const override {
    return sequences_.contains(node.output(0));
  }
  const Sequence* Find(const onnx::NodeProto& node) const {
    const auto found = node.input_size() > 0 ? sequences_.find(node.input(0)) : sequences_.end();
    return found == sequences_.end() ? nullptr : &found->second;
  }

  bool Replace(const onnx::NodeProto& node) override {
    const std::string& op = node.op_type();
    if (!node.domain().empty() && node.domain() != "ai.onnx") return false;
    if (op == "CastLike") return PlainCast(node);
    if (op == "Expand") return NoteZeros(node);
    if (op == "Gather") return NotePart(node) || LookUpParts(node);
    if (op == "GatherElements") return PlainGather(node);
    if (op == "Shape") return ShapeOfPart(node);
    if (op == "GRU" || op == "LSTM" || op == "RNN") return DropStates(node);
    if (op == "ReduceMax") return NoteMaximum(node);
    if (op == "Sub") return NoteShift(node);
    if (op == "Where") return MaskBeforeShift(node);
    if (op == "Softmax" || op == "LogSoftmax") return DropShift(node);
    if (op == "SplitToSequence") return SplitUp(node);
    if (op == "SequenceConstruct") {
      sequences_[node.output(0)] = {.items = {node.input().begin(), node.input().end()}};
      return true;
    }
    if (op == "SequenceEmpty") {
      sequences_[node.output(0)] = {};
      return true;
    }
    if (op == "ConstantOfShape") return NoteOnes(node);
    if (op == "NonZero" || op == "Transpose") return NotePlaces(node);
    if (op == "Squeeze") return PlainRange(node);
    if (op == "Loop") return RepeatParts(node);
    const Sequence* const sequence = Find(node);
    if (sequence == nullptr) return false;
    if (op == "SequenceAt") return At(node, *sequence);
    if (op == "SequenceInsert") return Insert(node, *sequence);
    return op == "ConcatFromSequence" && Join(node, *sequence);
  }

  bool PlainCast(const onnx::NodeProto& node) {
    const int type = node.input_size() == 2 ? types_.TypeOf(node.input(1)) : 0;
    if (type == 0) return false;
    SetInt(Add(node, "Cast", {node.input(0)}, node.output(0)), "to", type);
    return true;
  }

  // Of a vector both take the same entries.
  bool PlainGather(const onnx::NodeProto& node) {
    const onnx::TensorProto* const vector =
        node.input_size() == 2 ? FindTensor(node.input(0)) : nullptr;
    if (vector == nullptr || vector->dims_size() != 1) return false;
    Add(node, "Gather", {node.input(0), node.input(1)}, node.output(0));
    return true;
  }

  bool NotePart(const onnx::NodeProto& node) {
    const onnx::TensorProto* const at =
        node.input_size() == 2 ? FindTensor(node.input(1)) : nullptr;
    if (at != nullptr && at->dims_size() == 0 && IntAttribute(node, "axis", 0) == 0) {
      parts_[node.output(0)] = node.input(0);
      const auto shape = shapes_.find(node.input(0));
      if (shape != shapes_.end()) NoteSize(node, *shape->second, Int(node, 1).value_or(-1));
    }
    return false;
  }
  // x.size(k) of an input that states it.
  void NoteSize(const onnx::NodeProto& node, const onnx::ValueInfoProto& input, int64_t k) {
    const auto& shape = input.type().tensor_type().shape();
    if (k < 0 || k >= shape.dim_size()) return;
    const int64_t size = shape.dim(static_cast<int>(k)).dim_value();
    if (size > 0) sizes_[node.output(0)] = size;
  }
  // Rows of a table for ids side by side: those of each, side by side.  Some may be the user's,
  // some constant, and what is only looked up is never computed with.
  bool LookUpParts(const onnx::NodeProto& node) {
    const onnx::TensorProto* const table =
        node.input_size() == 2 ? FindTensor(node.input(0)) : nullptr;
    const auto join = table != nullptr ? joins_.find(node.input(1)) : joins_.end();
    if (join == joins_.end() || IntAttribute(node, "axis", 0) != 0) return false;
    std::vector<std::string> rows;
    for (const std::string& ids : join->second.input()) {
      rows.push_back(Make(node, "Gather", {node.input(0), ids}));
    }
    const int64_t axis = IntAttribute(join->second, "axis", 0);
    const int64_t behind = axis < 0 ? table->dims_size() - 1 : 0;
    SetInt(Add(node, "Concat", rows, node.output(0)), "axis", axis - behind);
    return true;
  }
  // The shape of x[k] is what that of x has behind the first: masks are made of ones_like(x[0]),
  // where x has rows of the request, of which nothing takes one.
  bool ShapeOfPart(const onnx::NodeProto& node) {
    if (node.input_size() != 1 || node.attribute_size() > 0) return false;
    const auto input = inputs_.find(node.input(0));
    if (input != inputs_.end()) shapes_[node.output(0)] = input->second;
    const auto part = parts_.find(node.input(0));
    if (part == parts_.end()) return false;
    AddSlice(node, Make(node, "Shape", {part->second}), 0, 1, kEnd, node.output(0));
    return true;
  }

  bool NoteOnes(const onnx::NodeProto& node) {
    const onnx::AttributeProto* const attribute = FindAttribute(node, "value");
    if (attribute == nullptr) return false;
    const absl::StatusOr<Constant> value = ReadTensor(attribute->t());
    if (value.ok() && !value->is_float && value->elements() == 1 && value->number(0) == 1) {
      ones_[node.output(0)] = node.input(0);
    }
    return false;
  }
  // arange(n) before operator set 11: the places of n ones, [1, n], turned and squeezed.
  bool NotePlaces(const onnx::NodeProto& node) {
    auto& of = node.op_type() == "NonZero" ? ones_ : places_;
    const auto found = node.input_size() == 1 ? of.find(node.input(0)) : of.end();
    if (found != of.end()) places_[node.output(0)] = found->second;
    return false;
  }
  bool PlainRange(const onnx::NodeProto& node) {
    const auto places = node.input_size() > 0 ? places_.find(node.input(0)) : places_.end();
    if (places == places_.end()) return false;
    const auto number = [&](const std::string& vector) {
      std::string scalar = Fresh(node.output(0));
      AddOnAxis(node, "Squeeze", vector, 0, scalar);
      return scalar;
    };
    const std::string first = number(Integers(node.output(0), {0})), end = number(places->second);
    const std::string step = number(Integers(node.output(0), {1}));
    Add(node, "Range", {first, end, step}, node.output(0));
    return true;
  }
  // repeat_interleave(k, dim=0): part by part, each is repeated as often as one of a sequence says.
  bool RepeatParts(const onnx::NodeProto& loop) {
    const auto state = loop.input_size() == 3 && loop.attribute_size() == 1
                           ? sequences_.find(loop.input(2))
                           : sequences_.end();
    if (state == sequences_.end() || !state->second.items.empty() || !state->second.whole.empty()) {
      return false;
    }
    constexpr absl::string_view kBody[] = {
        "SequenceAt", "Unsqueeze", "Concat",  "Shape", "ConstantOfShape", "Mul",           "Equal",
        "Where",      "Expand",    "Reshape", "Cast",  "Identity",        "SequenceInsert"};
    std::map<absl::string_view, int> seen;
    std::optional<int64_t> times;
    const Sequence* parts = nullptr;
    for (const onnx::NodeProto& node : loop.attribute(0).g().node()) {
      if (node.op_type() == "Constant") continue;
      if (!absl::c_linear_search(kBody, node.op_type())) return false;
      ++seen[node.op_type()];
      if (node.op_type() != "SequenceAt") continue;
      const Sequence* const sequence = Find(node);
      if (sequence == nullptr || sequence->whole.empty() || sequence->axis != 0 ||
          sequence->size != 1) {
        return false;
      }
      const auto number = repeated_.find(sequence->whole);
      if (number != repeated_.end() && number->second.second == loop.input(0)) {
        times = number->second.first;
      } else {
        parts = sequence;
      }
    }
    constexpr int64_t kMost = 1024;
    if (seen["SequenceAt"] != 2 || seen["Expand"] != 1 || seen["Reshape"] != 1 ||
        seen["SequenceInsert"] != 1 || parts == nullptr || times.value_or(0) < 1 ||
        *times > kMost) {
      return false;
    }
    Sequence repeated = *parts;
    repeated.times = *times;
    sequences_[loop.output(0)] = std::move(repeated);
    return true;
  }

  // Never replaces it: others may read it.
  bool NoteZeros(const onnx::NodeProto& node) {
    const auto size = node.input_size() == 2 ? sizes_.find(node.input(0)) : sizes_.end();
    if (size != sizes_.end()) repeated_[node.output(0)] = {size->second, node.input(1)};
    const onnx::TensorProto* const tensor =
        node.input_size() == 2 ? FindTensor(node.input(0)) : nullptr;
    if (tensor == nullptr) return false;
    const absl::StatusOr<Constant> constant = ReadTensor(*tensor);
    if (!constant.ok()) return false;
    if (!constant->is_float) {
      if (const auto number = Int(node, 0)) repeated_[node.output(0)] = {*number, node.input(1)};
      return false;
    }
    if (absl::c_all_of(*constant->floats, [](float value) { return value == 0; })) {
      zeros_.insert(node.output(0));
    }
    return false;
  }
  // A state of zeros is what there is without one.  Exporters repeat one of as many rows as they
  // saw, which other numbers of rows do not fit.
  bool DropStates(const onnx::NodeProto& node) {
    constexpr int kFirstState = 5;
    onnx::NodeProto plain = node;
    bool changed = false;
    for (int i = kFirstState; i < std::min(node.input_size(), kFirstState + 2); ++i) {
      if (!zeros_.contains(node.input(i))) continue;
      plain.set_input(i, "");
      changed = true;
    }
    if (changed) Add(plain);
    return changed;
  }
  bool NoteMaximum(const onnx::NodeProto& node) {
    std::optional<std::vector<int64_t>> axes = IntsAttribute(node, "axes");
    if (node.input_size() > 1 && !node.input(1).empty()) axes = Ints(node.input(1));
    if (!axes.has_value() || node.input_size() == 0) return false;
    // Of everything, or of axes that stay.
    const char* const stays = axes->empty() ? "noop_with_empty_axes" : "keepdims";
    if ((IntAttribute(node, stays, axes->empty() ? 0 : 1) == 0) == axes->empty()) {
      maxima_[node.output(0)] = {node.input(0), *std::move(axes)};
    }
    return false;
  }
  bool NoteShift(const onnx::NodeProto& node) {
    const auto maximum = node.input_size() == 2 ? maxima_.find(node.input(1)) : maxima_.end();
    if (maximum != maxima_.end() && maximum->second.first == node.input(0)) {
      shifts_[node.output(0)] = maximum->second;
    }
    return false;
  }
  // Where(mask, -inf, x - max) is Where(mask, -inf, x) - max, also for any number that far below.
  bool MaskBeforeShift(const onnx::NodeProto& node) {
    constexpr float kFarBelow = -1e9f;
    for (const int i : {1, 2}) {
      if (node.input_size() != 3 || !shifts_.contains(node.input(i))) continue;
      const onnx::TensorProto* const fill = FindTensor(node.input(3 - i));
      if (fill == nullptr) continue;
      const absl::StatusOr<Constant> constant = ReadTensor(*fill);
      if (!constant.ok() || !constant->is_float || constant->elements() != 1 ||
          !(constant->f32(0) <= kFarBelow)) {
        continue;
      }
      const auto [x, axes] = shifts_[node.input(i)];
      Add(node);
      const std::string masked = Fresh(node.output(0));
      Add(node, "Where", {node.input(0), node.input(1), node.input(2)}, masked).set_input(i, x);
      shifts_[node.output(0)] = {masked, axes};
      return true;
    }
    return false;
  }
  bool DropShift(const onnx::NodeProto& node) {
    const auto shift = node.input_size() == 1 ? shifts_.find(node.input(0)) : shifts_.end();
    if (shift == shifts_.end()) return false;
    const auto& [x, axes] = shift->second;
    // Before this operator set an axis stands for all from there on.
    const int64_t axis = IntAttribute(node, "axis", opset_ >= kAxesAreInputs ? -1 : 1);
    const bool alone = opset_ >= kAxesAreInputs || axis == -1;
    if (!axes.empty() && !(alone && absl::c_linear_search(axes, axis))) return false;
    onnx::NodeProto& plain = Add(node, node.op_type().c_str(), {x}, node.output(0));
    *plain.mutable_attribute() = node.attribute();
    return true;
  }

  bool SplitUp(const onnx::NodeProto& node) {
    const int64_t axis = IntAttribute(node, "axis", 0);
    const std::string& out = node.output(0);
    if (node.input_size() < 1) return false;
    if (node.input_size() == 1 || node.input(1).empty()) {
      sequences_[out] = {.whole = node.input(0),
                         .axis = axis,
                         .keep_axis = IntAttribute(node, "keepdims", 1) != 0};
      return true;
    }
    const std::optional<std::vector<int64_t>> sizes = Ints(node.input(1));
    if (!sizes.has_value() && ones_.contains(node.input(1))) {
      sequences_[out] = {.whole = node.input(0), .axis = axis};
      return true;
    }
    if (!sizes.has_value() && joins_.contains(node.input(1))) {
      sequences_[out] = {.whole = node.input(0), .axis = axis, .sizes = node.input(1)};
      return true;
    }
    constexpr int64_t kMost = int64_t{1} << 31;
    const auto fits = [](int64_t size) { return size >= 0 && size < kMost; };
    if (!sizes.has_value() || !std::all_of(sizes->begin(), sizes->end(), fits)) return false;
    if (FindTensor(node.input(1))->dims_size() == 0) {
      if (sizes->size() != 1 || (*sizes)[0] < 1) return false;
      sequences_[out] = {.whole = node.input(0), .axis = axis, .size = (*sizes)[0]};
      return true;
    }
    Sequence parts;
    int64_t begin = 0;
    for (const int64_t size : *sizes) {
      parts.items.push_back(Fresh(out));
      AddSlice(node, node.input(0), axis, begin, begin + size, parts.items.back());
      begin += size;
    }
    sequences_[out] = std::move(parts);
    return true;
  }

  bool At(const onnx::NodeProto& node, const Sequence& sequence) {
    std::optional<int64_t> at = Int(node, 1);
    if (!at.has_value() || sequence.times > 1) return false;
    if (sequence.whole.empty()) {
      const auto count = static_cast<int64_t>(sequence.items.size());
      if (*at < 0) *at += count;
      if (*at < 0 || *at >= count) return false;
      Add(node, "Identity", {sequence.items[static_cast<size_t>(*at)]}, node.output(0));
      return true;
    }
    constexpr int64_t kMost = 1 << 20;
    if (*at < -kMost || *at > kMost) return false;
    if (!sequence.sizes.empty()) return PartOf(node, sequence, *at);
    if (*at < 0 && sequence.size != 1) return false;  // The last may be smaller than others.
    const int64_t end = *at == -1 ? kEnd : (*at + 1) * sequence.size;
    const std::string part = sequence.keep_axis ? node.output(0) : Fresh(node.output(0));
    AddSlice(node, sequence.whole, sequence.axis, *at * sequence.size, end, part);
    if (!sequence.keep_axis) AddOnAxis(node, "Squeeze", part, sequence.axis, node.output(0));
    return true;
  }

  // chunk(): the sizes of its parts are computed from that of the whole.
  bool PartOf(const onnx::NodeProto& node, const Sequence& sequence, int64_t at) {
    const std::string& out = node.output(0);
    const std::string front = Fresh(out), begin = Fresh(out), size = Fresh(out), end = Fresh(out);
    AddSlice(node, sequence.sizes, 0, 0, at, front);
    Add(node, "ReduceSum", {front}, begin);
    AddSlice(node, sequence.sizes, 0, at, at == -1 ? kEnd : at + 1, size);
    Add(node, "Add", {begin, size}, end);
    Add(node, "Slice", {sequence.whole, begin, end, Integers(out, {sequence.axis})}, out);
    return true;
  }

  bool Insert(const onnx::NodeProto& node, const Sequence& sequence) {
    if (!sequence.whole.empty() || node.input_size() < 2) return false;
    const auto count = static_cast<int64_t>(sequence.items.size());
    std::optional<int64_t> at = count;
    if (node.input_size() > 2) at = Int(node, 2);
    if (!at.has_value()) return false;
    if (*at < 0) *at += count;
    if (*at < 0 || *at > count) return false;
    Sequence longer = sequence;
    longer.items.insert(longer.items.begin() + *at, node.input(1));
    sequences_[node.output(0)] = std::move(longer);
    return true;
  }

  bool Join(const onnx::NodeProto& node, const Sequence& sequence) {
    const int64_t axis = IntAttribute(node, "axis", 0);
    if (!sequence.whole.empty() && sequence.keep_axis && axis == sequence.axis) {
      const std::vector<std::string> each(static_cast<size_t>(sequence.times), sequence.whole);
      if (sequence.times > 1) {
        AddBesideRows(node, each, node.output(0));
      } else {
        Add(node, "Identity", each, node.output(0));
      }
      return true;
    }
    if (sequence.items.empty()) return false;
    std::vector<std::string> items = sequence.items;
    for (std::string& item : items) {
      if (IntAttribute(node, "new_axis", 0) == 0) break;
      const std::string wider = Fresh(node.output(0));
      AddOnAxis(node, "Unsqueeze", item, axis, wider);
      item = wider;
    }
    SetInt(Add(node, "Concat", items, node.output(0)), "axis", axis);
    return true;
  }

  std::map<std::string, Sequence> sequences_;
  // One integer, repeated: how often is what a tensor says.
  std::map<std::string, std::pair<int64_t, std::string>> repeated_;
  // What max(x) and x - max(x) are of: x, and the axes (none: all).
  std::map<std::string, std::pair<std::string, std::vector<int64_t>>> maxima_, shifts_;
  std::map<std::string, std::string> parts_;      // x[k], by k along the first axis: x.
  std::set<std::string> zeros_;                   // Zeros that are repeated.
  std::map<std::string, onnx::NodeProto> joins_;  // Concat, by what they give.
  // The model's inputs, by their names and by those of their shapes; sizes that they state.
  std::map<std::string, const onnx::ValueInfoProto*> inputs_, shapes_;
  std::map<std::string, int64_t> sizes_;
  // Ones, and where they are; what computes their shape.
  std::map<std::string, std::string> ones_, places_;
};

}  // namespace

void WritePlainly(onnx::GraphProto& graph, int64_t opset) { PlainWriter(graph, opset).Run(); }

}  // namespace ulfd::convert

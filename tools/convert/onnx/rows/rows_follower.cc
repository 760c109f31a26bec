// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/onnx/rows/rows_follower.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/algorithm/container.h"
#include "base/errors.h"
#include "tools/convert/onnx/model/types.h"

namespace ulfd::convert {

using Node = onnx::NodeProto;
using reference::Array;
using reference::ProductOf;
using reference::Sizes;
using reference::ValuesOf;

namespace {

bool IsBroadcast(const Node& node) {
  return IsOneOf(node.op_type(),
                 {"Add", "Sub",   "Mul",   "Div",     "Mod",  "Pow",           "Max",
                  "Min", "Where", "Equal", "Less",    "Sum",  "LessOrEqual",   "And",
                  "Or",  "Xor",   "PRelu", "Greater", "Mean", "GreaterOrEqual"});
}

}  // namespace

RowsFollower::RowsFollower(onnx::GraphProto& graph, int64_t opset, int64_t rows,
                           const std::vector<std::string>& inputs, bool certain,
                           std::vector<bool> choices, size_t range,
                           std::chrono::steady_clock::time_point deadline)
    : Rewriter(graph, opset),
      rows_(rows),
      more_(rows == 1 ? 3 : rows + 1),
      first_(rows == 1 ? 1 : 0),
      range_(range),
      certain_(certain),
      choices_(std::move(choices)),
      outputs_(graph.output()),
      guessed_(!certain || rows == 1) {
  options_.single = false;
  options_.budget.deadline = deadline;
  for (const onnx::ValueInfoProto& input : graph.input()) {
    const bool follows = absl::c_linear_search(inputs, input.name());
    std::optional<Array> few =
        MakeUpRows(input, follows ? rows : 0, kRanges[range], follows ? first_ : 0);
    std::optional<Array> many = MakeUpRows(input, follows ? more_ : 0, kRanges[range]);
    if (few.has_value() && many.has_value()) values_[input.name()] = {*few, *many, follows};
  }
  for (const Node& node : graph.node()) {
    for (const std::string& output : node.output()) makers_[output] = &node;
  }
}

const RowsFollower::Value* RowsFollower::Find(const std::string& name) {
  const auto found = values_.find(name);
  if (found != values_.end()) return &found->second;
  const onnx::TensorProto* const tensor = FindTensor(name);
  if (tensor == nullptr) return nullptr;
  absl::StatusOr<Array> array = reference::ReadArray(*tensor);
  if (!array.ok()) return nullptr;
  return &(values_[name] = {*array, *array});
}

bool RowsFollower::Compute(const Node& node, Array Value::*side) {
  std::vector<const Array*> inputs;
  bool computed = false;
  for (const std::string& input : node.input()) {
    const Value* const value = input.empty() ? nullptr : Find(input);
    if (!input.empty() && value == nullptr) return false;
    inputs.push_back(value == nullptr ? nullptr : &(value->*side));
    computed |= value != nullptr && value->computed;
  }
  if (!reference::IsKnown(node) && node.op_type() != "Constant") return false;
  Array places;
  const bool looks_up = node.op_type() == "Gather" && inputs.size() == 2 && inputs[0] != nullptr &&
                        inputs[1] != nullptr && !Find(node.input(0))->computed;
  if (looks_up) {
    places = PlacesWithin(*inputs[1], *inputs[0], IntAttribute(node, "axis", 0));
    inputs[1] = &places;
  }
  absl::StatusOr<std::vector<Array>> made =
      reference::Compute(node, opset_, options_, std::move(inputs));
  // A place that more rows lack may be a wrong guess.
  misses_ |= reference::IsOfValues(made.status()) &&
             (side == &Value::few || !absl::IsOutOfRange(made.status()));
  if (!made.ok()) return false;
  for (int i = 0; i < node.output_size() && i < static_cast<int>(made->size()); ++i) {
    Array& array = (*made)[static_cast<size_t>(i)];
    elements_ += array.elements();
    constexpr int64_t kMostElements = int64_t{1} << 28;
    if (elements_ > kMostElements) return false;
    if (node.output(i).empty()) continue;
    Value& value = values_[node.output(i)];
    value.*side = std::move(array);
    value.computed |= computed && node.op_type() != "Shape";
  }
  return true;
}

// The only axis that differs.
std::optional<RowsAxis> RowsFollower::RowsOf(const std::string& name) {
  const Value* const value = name.empty() ? nullptr : Find(name);
  if (value == nullptr || value->few.dims.size() != value->many.dims.size()) return std::nullopt;
  std::optional<RowsAxis> rows;
  for (size_t d = 0; d < value->few.dims.size(); ++d) {
    const int64_t few = value->few.dims[d], many = value->many.dims[d];
    if (few == many) continue;
    if (rows.has_value() || few % rows_ != 0 || few / rows_ * more_ != many) return std::nullopt;
    rows = RowsAxis{.name = name, .axis = d, .each = few / rows_};
  }
  return rows;
}

std::optional<int64_t> RowsFollower::DecisionOf(const Node& node) {
  for (const std::string& input : node.input()) {
    if (!input.empty() && Find(input) == nullptr) return std::nullopt;
  }
  return convert::DecisionOf(node, [&](const std::string& name) -> std::optional<int64_t> {
    const Value* const value = Find(name);
    if (value == nullptr || value->few.ints == nullptr || value->few.elements() != 1 ||
        *value->few.ints != *value->many.ints) {
      return std::nullopt;
    }
    return value->few.ints->front();
  });
}

bool RowsFollower::Replace(const Node& node) {
  if (const std::optional<int64_t> decision = DecisionOf(node)) {
    branches_[node.output(0)] = *decision;
    return false;
  }
  if (failed_ && guessed_) return false;
  const int before = written().size();
  bool known = Compute(node, &Value::few);
  const bool changed = known && Follow(node);
  for (int i = before; known && changed && i < written().size(); ++i) {
    known = Compute(written()[i], &Value::many);
  }
  if (known && !changed) known = Compute(node, &Value::many);
  if (known && IsBroadcast(node) && CountsRows(node)) failed_ = guessed_ = true;
  if (!known) {
    failed_ |= values_.contains(node.output(0));  // With more rows alone.
    for (const std::string& output : node.output()) values_.erase(output);
  }
  return changed;
}

bool RowsFollower::Follow(const Node& node) {
  const std::string& op = node.op_type();
  if (op == "Reshape" || op == "Expand") return Resize(node) || FollowSizes(node);
  if (op == "Gather" && rows_ == 1) return FollowPlaces(node);
  if (op == "ScatterND" && rows_ == 1 && FollowScattered(node)) return true;
  if (op == "Split") return FollowParts(node);
  if (op == "Slice") return FollowPart(node);
  if (op == "TopK") return FollowCount(node);
  if (op == "Squeeze" && rows_ == 1) return certain_ && KeepRows(node);
  if (IsOneOf(op, {"GRU", "LSTM", "RNN"})) return FollowStates(node);
  if (op == "Concat" && FollowEach(node)) return true;
  if (IsOneOf(op, {"Concat", "Einsum", "GatherElements", "ScatterElements", "ScatterND"})) {
    return FollowOthers(node, true);
  }
  return (IsBroadcast(node) || op == "MatMul") && FollowOthers(node, false);
}

bool RowsFollower::Choose() {
  if (chosen_ == choices_.size()) choices_.push_back(false);
  return choices_[chosen_++];
}

// Whether rows of so many elements are the same in both.
bool RowsFollower::HasSame(const Value& value, int64_t row) const {
  for (int64_t i = 0; i < value.few.elements(); ++i) {
    const int64_t many = i / (row * rows_) * row * more_ + i % (row * rows_) + row * first_;
    if (!Same(value.few.at(i), value.many.at(many))) return false;
  }
  return true;
}

// Elements behind a row: the rows are the same in both, wherever they are among what is merged.
int64_t RowsFollower::BehindRows(const RowsAxis& rows) {
  const Value& value = *Find(rows.name);
  const int64_t behind = ProductOf(value.few.dims, rows.axis + 1);
  for (int64_t inner = rows.each; inner > 1; --inner) {
    if (rows.each % inner == 0 && HasSame(value, behind * inner)) return behind * inner;
  }
  return behind;
}

// Whether it is computed from several rows: more of them make it another.
bool RowsFollower::IsAcross(const std::string& name) {
  const Value* const value = Find(name);
  if (value == nullptr || !value->computed) return false;
  if (value->few.dims == value->many.dims) {
    return !absl::c_equal(ValuesOf(value->few), ValuesOf(value->many), &Same);
  }
  const std::optional<RowsAxis> rows = RowsOf(name);
  return !rows.has_value() || !HasSame(*value, BehindRows(*rows));
}

// Whether the constant may be a number of rows, or computed from one: n, 1 / n, sqrt(n), log(n).
bool RowsFollower::MayCountRows(const Node& node, const Array& constant) const {
  if (constant.elements() != 1) return false;
  const double n = static_cast<double>(rows_), x = std::fabs(constant.at(0));
  const auto is = [](double a, double b) { return std::fabs(a - b) <= 1e-6; };
  if (IsOneOf(node.op_type(), {"Add", "Sub"})) return is(x, std::log(n));
  if (!IsOneOf(node.op_type(), {"Mul", "Div", "Pow"})) return false;
  const double factors[] = {n, n - 1, std::sqrt(n), n * n};
  return absl::c_any_of(factors, [&](double of) { return is(x, of) || is(x * of, 1); });
}

// Whether what is computed across rows meets a constant that the example's number of rows may have
// made, as eye(rows) or 1 / rows: what it would be with more is lost.
bool RowsFollower::CountsRows(const Node& node) {
  for (const std::string& name : node.input()) {
    const Value* const other = Find(name);
    if (other == nullptr || other->computed || other->few.dims != other->many.dims ||
        !absl::c_equal(ValuesOf(other->few), ValuesOf(other->many), &Same)) {
      continue;
    }
    for (const std::string& across : node.input()) {
      if (!IsAcross(across)) continue;
      const Sizes &few = Find(across)->few.dims, &many = Find(across)->many.dims;
      const auto from = absl::c_mismatch(few, many).first;
      const bool rows = few.size() == many.size() && !RowsOf(across).has_value() &&
                        few.end() - from <= other->few.rank() && from != few.end();
      if (rows || MayCountRows(node, other->few)) return true;
    }
  }
  return false;
}

std::string RowsFollower::SizeOf(const Node& node, const RowsAxis& like) {
  std::string size = Fresh(node.output(0));
  AddSlice(node, Make(node, "Shape", {like.name}), 0, static_cast<int64_t>(like.axis),
           static_cast<int64_t>(like.axis) + 1, size);
  return size;
}

std::string RowsFollower::RowCount(const Node& node, const RowsAxis& like) {
  const std::string size = SizeOf(node, like);
  return like.each == 1 ? size : Make(node, "Div", {size, Integers(size, {like.each})});
}

std::string RowsFollower::Around(const Node& node, const Sizes& sizes, size_t at,
                                 const std::string& middle) {
  std::vector<std::string> parts = {middle};
  const auto place = sizes.begin() + static_cast<std::ptrdiff_t>(at);
  const Sizes before(sizes.begin(), place), behind(place + 1, sizes.end());
  if (!before.empty()) parts.insert(parts.begin(), Integers(middle, before));
  if (!behind.empty()) parts.push_back(Integers(middle, behind));
  std::string all = Fresh(node.output(0));
  SetInt(Add(node, "Concat", parts, all), "axis", 0);
  return all;
}

std::optional<std::string> RowsFollower::WithRows(const Node& node, const std::string& input,
                                                  size_t axis, const RowsAxis& like,
                                                  bool one_is_enough) {
  const Array few = Find(input)->few;
  Sizes sizes = few.dims;
  const int64_t each = sizes[axis] / rows_;
  const auto place = static_cast<int64_t>(axis);
  if (IsRepeated(few, axis, 1)) {
    const std::string one = Fresh(node.output(0));
    AddSlice(node, input, place, 0, 1, one);
    if (one_is_enough) return one;
    return Make(node, "Expand", {one, Around(node, sizes, axis, SizeOf(node, like))});
  }
  if (IsRepeated(few, axis, each)) {
    const std::string block = Fresh(node.output(0));
    AddSlice(node, input, place, 0, each, block);
    const std::string apart = Fresh(node.output(0));
    AddOnAxis(node, "Unsqueeze", block, place, apart);
    Sizes wide = sizes;
    wide[axis] = each;
    wide.insert(wide.begin() + place, 1);
    const std::string repeated =
        Make(node, "Expand", {apart, Around(node, wide, axis, RowCount(node, like))});
    sizes[axis] = -1;
    return Make(node, "Reshape", {repeated, Integers(repeated, sizes)});
  }
  const std::optional<Progression> found = ProgressionOf(few, axis);
  return found.has_value() ? std::optional(Continue(node, *found, sizes, axis, like))
                           : std::nullopt;
}

// As many entries of it as `like` has, along the axis of the sizes.
std::string RowsFollower::Continue(const Node& node, const Progression& found, const Sizes& dims,
                                   size_t axis, const RowsAxis& like) {
  Sizes along(dims.size(), 1), sizes = dims;
  along[axis] = -1;
  sizes[axis] = 1;
  const size_t columns = found.steps.size();
  if (columns > 1) sizes.back() = 1;
  std::vector<std::string> parts;
  for (size_t i = 0; i < columns; ++i) {
    Sizes first;
    for (size_t k = i; k < found.first.size(); k += columns) first.push_back(found.first[k]);
    const bool same = absl::c_all_of(first, [&](int64_t number) { return number == first[0]; });
    std::string part = same ? Scalar(node, first[0]) : Integers(node.output(0), first);
    if (!same) part = Make(node, "Reshape", {part, Integers(part, sizes)});
    if (const int64_t step = found.steps[i]; step != 0) {
      std::string numbers = NumbersBelow(node, SizeOf(node, like));
      if (dims.size() > 1) numbers = Make(node, "Reshape", {numbers, Integers(numbers, along)});
      if (step != 1) numbers = Make(node, "Mul", {numbers, Scalar(node, step)});
      part = same && first[0] == 0 ? numbers : Make(node, "Add", {numbers, part});
    }
    if (found.steps[i] == 0 || first.size() > 1) {
      part = Make(node, "Expand", {part, Around(node, sizes, axis, SizeOf(node, like))});
    }
    parts.push_back(part);
  }
  if (parts.size() == 1) return parts[0];
  std::string joined = Fresh(node.output(0));
  SetInt(Add(node, "Concat", parts, joined), "axis", static_cast<int64_t>(dims.size()) - 1);
  return joined;
}

bool RowsFollower::Fits() const {
  if (!branches_.empty() || misses()) return false;
  const auto same = [&](const onnx::ValueInfoProto& output) {
    const auto found = values_.find(output.name());
    if (found == values_.end()) return true;  // Not known here.
    const Array &few = found->second.few, &many = found->second.many;
    const bool stays = !few.dims.empty() && few.dims[0] == many.dims[0];
    if (!guessed_) return !stays || few.dims[0] != rows_;
    // Beside a row's own score there may be those of rows that it met.
    if (stays || many.elements() * rows_ != few.elements() * more_) return false;
    for (int64_t i = 0; i < few.elements(); ++i) {
      const double error = std::fabs(few.at(i) - many.at(i + few.elements() * first_));
      if (error > 1e-9 * std::max(1.0, std::fabs(few.at(i)))) return false;
    }
    return true;
  };
  return !(guessed_ && failed_) && absl::c_all_of(outputs_, same);
}

}  // namespace ulfd::convert

// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/onnx/proof/example_rows.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "tools/convert/onnx/model/functions.h"
#include "tools/convert/onnx/model/types.h"
#include "tools/convert/onnx/proof/interpreter.h"
#include "tools/convert/onnx/rewrites/rewriter.h"

namespace ulfd::convert {
namespace {

using Node = onnx::NodeProto;
using reference::Array;
using reference::ProductOf;
using reference::Sizes;

constexpr auto kTime = std::chrono::seconds(20);
constexpr int64_t kMaxElements = int64_t{1} << 28;  // Of all values.

// An axis of a value along which it has rows.
struct RowsAxis {
  std::string name;
  size_t axis = 0;
  int64_t each = 1;  // Entries per row.
};

// A row without steps may have NaN.
bool Same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

// Whether entry i along the axis is entry i % period.
bool IsRepeated(const Array& x, size_t axis, int64_t period) {
  const int64_t behind = ProductOf(x.dims, axis + 1), size = x.dims[axis];
  for (int64_t i = 0; i < x.elements(); ++i) {
    const int64_t at = i / behind % size;
    if (!Same(x.at(i), x.at(i - (at - at % period) * behind))) return false;
  }
  return true;
}

// Of integers: the first row, and what each has more than the one before, if that is always so.
struct Progression {
  std::vector<int64_t> first, steps;
};
std::optional<Progression> ProgressionOf(const Array& x, size_t axis) {
  if (x.ints == nullptr || x.dims[axis] < 2) return std::nullopt;
  const std::vector<int64_t>& v = *x.ints;
  const auto width = static_cast<size_t>(x.elements() / x.dims[axis]);
  // Single numbers, or several along the last axis.
  const bool last = axis == 0 && width == static_cast<size_t>(x.dims.back());
  if (width != 1 && !last) return std::nullopt;
  Progression found;
  for (size_t i = 0; i < width; ++i) {
    found.first.push_back(v[i]);
    found.steps.push_back(v[i + width] - v[i]);
  }
  for (size_t i = width; i < v.size(); ++i) {
    if (v[i] - v[i - width] != found.steps[i % width]) return std::nullopt;
  }
  return found;
}

// Bits without a period, by which rows and steps that are merged are told apart.
uint64_t Scattered(int64_t number) {
  return static_cast<uint64_t>(number) * static_cast<uint64_t>(number) * 0x9e3779b97f4a7c15u;
}

class RowsFollower : public Rewriter {
 public:
  // choices: of rows that may be either of several sizes of 1, one after the other, whether they
  // are the last of them; the first, where it does not say.  most: integers of inputs are below.
  RowsFollower(onnx::GraphProto& graph, int64_t opset, int64_t rows,
               const std::vector<std::string>& inputs, bool certain, std::vector<bool> choices,
               int64_t most, std::chrono::steady_clock::time_point deadline)
      : Rewriter(graph, opset),
        rows_(rows),
        more_(rows == 1 ? 3 : rows + 1),
        most_(most),
        certain_(certain),
        choices_(std::move(choices)),
        outputs_(graph.output()),
        guessed_(!certain) {
    options_.single = false;
    options_.budget.deadline = deadline;
    for (const onnx::ValueInfoProto& input : graph.input()) {
      const bool follows = absl::c_linear_search(inputs, input.name());
      std::optional<Array> few = MakeUpRows(input, follows ? rows : 0, most);
      std::optional<Array> many = MakeUpRows(input, follows ? more_ : 0, most);
      if (few.has_value() && many.has_value()) values_[input.name()] = {*few, *many, follows};
    }
    for (const Node& node : graph.node()) {
      for (const std::string& output : node.output()) makers_[output] = &node;
    }
  }

  // After Run: whether what was guessed fits, and every row has the score that it had alone.
  bool Fits() const override;
  // What the example decides: the graph wants these taken before it is followed.
  const Branches& branches() const { return branches_; }
  // Whether the example's rows have places, or ids of tables, that are too large.
  bool misses() const { return misses_; }
  // The choices that were made up to the first that did not fit.
  const std::vector<bool>& choices() const { return choices_; }

 private:
  // With the example's rows, and with more.
  struct Value {
    Array few, many;
    bool computed = false;  // From what has rows.
  };

  bool Replace(const Node& node) override;
  const Value* Find(const std::string& name);
  std::optional<int64_t> DecisionOf(const Node& node);
  bool Compute(const Node& node, Array Value::*side);
  std::optional<RowsAxis> RowsOf(const std::string& name);

  bool Follow(const Node& node);
  bool Resize(const Node& node);
  bool FollowSizes(const Node& node);
  bool Choose();
  int64_t BehindRows(const RowsAxis& rows);
  size_t PlaceOfRows(const RowsAxis& rows, const Sizes& from, const Sizes& to, const Sizes& given);
  bool FollowOthers(const Node& node, bool aligned);
  bool FollowStates(const Node& node);
  bool FollowCount(const Node& node);
  bool FollowParts(const Node& node);
  bool FollowEach(const Node& node);
  bool FollowPart(const Node& node);
  bool FollowPlaces(const Node& node);
  std::optional<std::string> PlacesOfRows(const Node& node, const std::string& input,
                                          const RowsAxis& like);
  bool KeepRows(const Node& node);
  // The input with as many rows along the axis as `like` has; one, if that is enough.
  std::optional<std::string> WithRows(const Node& node, const std::string& input, size_t axis,
                                      const RowsAxis& like, bool one_is_enough);
  std::string Continue(const Node& node, const Progression& found, size_t rank, size_t axis,
                       const RowsAxis& like);
  // Along the axis, and of these the rows alone.
  std::string SizeOf(const Node& node, const RowsAxis& like);
  std::string RowCount(const Node& node, const RowsAxis& like);
  std::string Scalar(const Node& node, int64_t value);
  std::string NumbersBelow(const Node& node, const std::string& count);
  std::string Around(const Node& node, const Sizes& sizes, size_t at, const std::string& middle);

  const int64_t rows_, more_, most_;
  const bool certain_;
  std::vector<bool> choices_;
  const google::protobuf::RepeatedPtrField<onnx::ValueInfoProto> outputs_;
  reference::RunOptions options_;
  std::map<std::string, Value> values_;
  std::map<std::string, const Node*> makers_;
  Branches branches_;
  int64_t elements_ = 0;
  size_t chosen_ = 0;
  bool guessed_, failed_ = false, misses_ = false;
};

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
  absl::StatusOr<std::vector<Array>> made =
      reference::Compute(node, opset_, options_, std::move(inputs));
  misses_ |= side == &Value::few && absl::IsOutOfRange(made.status());
  if (!made.ok()) return false;
  for (int i = 0; i < node.output_size() && i < static_cast<int>(made->size()); ++i) {
    Array& array = (*made)[static_cast<size_t>(i)];
    elements_ += array.elements();
    if (elements_ > kMaxElements) return false;
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
  if (op == "Split") return FollowParts(node);
  if (op == "Slice") return FollowPart(node);
  if (op == "TopK") return FollowCount(node);
  if (op == "Squeeze" && rows_ == 1) return certain_ && KeepRows(node);
  if (IsOneOf(op, {"GRU", "LSTM", "RNN"})) return FollowStates(node);
  if (op == "Concat" && FollowEach(node)) return true;
  if (IsOneOf(op, {"Concat", "Einsum", "GatherElements", "ScatterElements", "ScatterND"})) {
    return FollowOthers(node, true);
  }
  return IsOneOf(op, {"Add", "Sub",  "Mul",   "Div",   "Mod",     "Pow",
                      "Max", "Min",  "Where", "Equal", "Less",    "LessOrEqual",
                      "And", "Or",   "Xor",   "PRelu", "Greater", "GreaterOrEqual",
                      "Sum", "Mean", "MatMul"}) &&
         FollowOthers(node, false);
}

bool RowsFollower::Choose() {
  if (chosen_ == choices_.size()) choices_.push_back(false);
  return choices_[chosen_++];
}

// Elements behind a row: the rows are the same in both, wherever they are among what is merged.
int64_t RowsFollower::BehindRows(const RowsAxis& rows) {
  const Value& value = *Find(rows.name);
  const int64_t behind = ProductOf(value.few.dims, rows.axis + 1);
  for (int64_t inner = rows.each; inner > 1; --inner) {
    if (rows.each % inner != 0) continue;
    const int64_t row = behind * inner;
    bool same = true;
    for (int64_t i = 0; same && i < value.few.elements(); ++i) {
      const int64_t many = i / (row * rows_) * row * more_ + i % (row * rows_);
      same = Same(value.few.at(i), value.many.at(many));
    }
    if (same) return row;
  }
  return behind;
}

// Where `from` has its rows, `to` has them where the same elements are.
size_t RowsFollower::PlaceOfRows(const RowsAxis& rows, const Sizes& from, const Sizes& to,
                                 const Sizes& given) {
  const int64_t behind = BehindRows(rows);
  std::vector<size_t> ones;
  size_t next = 0;  // Behind the rows, if that is a place.
  for (size_t j = 0; j < to.size(); ++j) {
    const int64_t own = ProductOf(to, j + 1);
    if (rows_ > 1 && own <= behind && own * to[j] >= behind * rows_) return j;
    if (to[j] == 1 && own == behind) ones.push_back(j);
    if (own >= behind) next = j + 1;
  }
  if (rows_ > 1) return to.size();
  // Which size of 1 is the row, if one is?
  size_t in_front = 0, others = 0;
  for (size_t d = 0; d < from.size(); ++d) {
    if (d == rows.axis || from[d] != 1 || ProductOf(from, d + 1) != behind) continue;
    ++others;
    in_front += d < rows.axis ? 1 : 0;
  }
  const auto rest = absl::c_find_if(ones, [&](size_t j) { return given[j] == -1; });
  if (rest != ones.end() && ones.size() == 1) return *rest;
  guessed_ |= ones.size() != others + 1 || rest != ones.end();
  if (rest != ones.end() && !Choose()) return *rest;
  if (ones.size() > others) {
    const size_t first = in_front, last = ones.size() - 1 - (others - in_front);
    return ones[first == last || !Choose() ? first : last];
  }
  // It is merged with what is in front, or with the first part of what is cut behind it.
  size_t own_next = rows.axis + 1;
  while (own_next < from.size() && ProductOf(from, own_next) > behind) ++own_next;
  while (own_next < from.size() && from[own_next] == 1) ++own_next;
  const bool merged = rows.each > 1 && behind == ProductOf(from, rows.axis + 1) * rows.each;
  const int64_t size = merged ? rows.each : own_next < from.size() ? from[own_next] : 1;
  if (next == 0 || next == to.size()) return next - (next > 0 ? 1 : 0);
  const bool cut = to[next] < size || (merged && to[next] > size && to[next] < behind);
  return cut != Choose() ? next : next - 1;
}

bool RowsFollower::Resize(const Node& node) {
  const Value* const sizes = node.input_size() == 2 ? Find(node.input(1)) : nullptr;
  const std::optional<RowsAxis> rows = RowsOf(node.input(0));
  if (sizes == nullptr || !rows.has_value() || sizes->few.ints == nullptr ||
      *sizes->few.ints != *sizes->many.ints) {
    return false;
  }
  const Sizes from = Find(node.input(0))->few.dims, to = Find(node.output(0))->few.dims;
  const Sizes given = *sizes->few.ints;
  Sizes wanted = to;
  size_t at = 0;
  const bool reshapes = node.op_type() == "Reshape";
  if (reshapes) {
    at = PlaceOfRows(*rows, from, to, given);
    if (at >= to.size()) return false;
    wanted[at] = -1;
    const bool keeps = given[at] == 0 && at == rows->axis && to[at] == from[at];
    if (given[at] == -1 || keeps) return false;
  } else {
    at = rows->axis + to.size() - from.size();
    const size_t stated = at + given.size() - to.size();
    if (at + given.size() < to.size() || given[stated] == 1) return false;
    wanted[at] = 1;
  }
  Node changed = node;
  changed.set_input(1, Integers(node.output(0), wanted));
  Add(changed);
  return true;
}

// Numbers of rows that are expanded to sizes of the request: index_put_((arange(len(x)), i), y).
bool RowsFollower::FollowSizes(const Node& node) {
  const Value* const sizes = node.input_size() == 2 ? Find(node.input(1)) : nullptr;
  if (node.op_type() != "Expand" || sizes == nullptr || sizes->few.ints == nullptr ||
      sizes->few.dims != sizes->many.dims) {
    return false;
  }
  const std::vector<int64_t>&few = *sizes->few.ints, &many = *sizes->many.ints;
  const auto found = std::mismatch(few.begin(), few.end(), many.begin());
  if (found.first == few.end() || *found.first % rows_ != 0) return false;
  const auto at = static_cast<size_t>(found.first - few.begin());
  const Value& value = *Find(node.input(0));
  const Sizes dims = value.few.dims;
  const size_t axis = at + dims.size() - few.size();  // Beyond the last: none.
  if (value.computed || axis >= dims.size() || dims[axis] == 1 || dims[axis] != few[at]) {
    return false;
  }
  const std::string like = Make(node, "ConstantOfShape", {node.input(1)});
  const std::optional<std::string> with =
      WithRows(node, node.input(0), axis, {like, at, few[at] / rows_}, true);
  if (!with.has_value()) return false;
  Node changed = node;
  changed.set_input(0, *with);
  Add(changed);
  return true;
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

std::string RowsFollower::Scalar(const Node& node, int64_t value) {
  std::string one = Integers(node.output(0), {value}), scalar = Fresh(one);
  AddOnAxis(node, "Squeeze", one, 0, scalar);
  return scalar;
}

// 0, 1, .. count - 1.
std::string RowsFollower::NumbersBelow(const Node& node, const std::string& count) {
  const std::string limit = Fresh(count);
  AddOnAxis(node, "Squeeze", count, 0, limit);
  return Make(node, "Range", {Scalar(node, 0), limit, Scalar(node, 1)});
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
  return found.has_value() ? std::optional(Continue(node, *found, sizes.size(), axis, like))
                           : std::nullopt;
}

// As many entries of it as `like` has, along the axis of so many.
std::string RowsFollower::Continue(const Node& node, const Progression& found, size_t rank,
                                   size_t axis, const RowsAxis& like) {
  Sizes along(rank, 1), ones = along;
  along[axis] = -1;
  std::vector<std::string> parts;
  for (size_t i = 0; i < found.first.size(); ++i) {
    const int64_t first = found.first[i], step = found.steps[i];
    if (step == 0) {
      const std::string all = Around(node, ones, axis, SizeOf(node, like));
      parts.push_back(Make(node, "Expand", {Integers(all, {first}), all}));
      continue;
    }
    std::string numbers = NumbersBelow(node, SizeOf(node, like));
    if (rank > 1) numbers = Make(node, "Reshape", {numbers, Integers(numbers, along)});
    if (step != 1) numbers = Make(node, "Mul", {numbers, Scalar(node, step)});
    if (first != 0) numbers = Make(node, "Add", {numbers, Scalar(node, first)});
    parts.push_back(numbers);
  }
  if (parts.size() == 1) return parts[0];
  std::string joined = Fresh(node.output(0));
  SetInt(Add(node, "Concat", parts, joined), "axis", static_cast<int64_t>(rank) - 1);
  return joined;
}

// Inputs without rows where others have them.
bool RowsFollower::FollowOthers(const Node& node, bool aligned) {
  size_t rank = 0;
  for (const std::string& input : node.input()) {
    if (Find(input) == nullptr) return false;
    rank = std::max(rank, Find(input)->few.dims.size());
  }
  const bool places = node.op_type() == "ScatterND";  // Those of row i are in front at i.
  const std::vector<std::string> terms = EinsumTerms(node);
  const bool scatters = node.op_type() == "ScatterElements";
  const int64_t own = IntAttribute(node, "axis", 0);
  const size_t skipped = places || !terms.empty() ? rank
                         : own < 0                ? static_cast<size_t>(own) + rank
                                                  : static_cast<size_t>(own);
  const bool product = node.op_type() == "MatMul";
  Node changed = node;
  bool any = false;
  for (int of = 0; of < node.input_size(); ++of) {
    const std::string& rowful = node.input(of);
    const std::optional<RowsAxis> like = RowsOf(rowful);
    if (!like.has_value()) continue;
    const Sizes& sizes = Find(rowful)->few.dims;
    const size_t from_end = sizes.size() - like->axis;
    if (aligned ? like->axis == skipped && !scatters : product && from_end < 3) continue;
    // What may be numbers of rows, of one row, too.
    const std::string numbers = places                              ? node.input(1)
                                : scatters && like->axis == skipped ? node.input(2)
                                                                    : "";
    for (int i = 0; i < node.input_size(); ++i) {
      std::string& input = *changed.mutable_input(i);
      const Value* const value = Find(input);
      const Sizes& dims = value->few.dims;
      if (value->computed || dims != value->many.dims || (places && like->axis != 0)) continue;
      // Beyond the last: none.  "..." stands for more axes than it has characters.
      const size_t axis = places                          ? 0
                          : terms.empty()                 ? dims.size() - from_end
                          : like->axis < terms[of].size() ? terms[i].find(terms[of][like->axis])
                                                          : std::string::npos;
      if (axis >= dims.size()) continue;
      if (dims[axis] != sizes[like->axis] || (!aligned && dims[axis] == 1)) continue;
      std::optional<std::string> with = rows_ == 1 && input == numbers
                                            ? PlacesOfRows(node, input, *like)
                                            : WithRows(node, input, axis, *like, !aligned);
      if (!with.has_value()) continue;
      input = *std::move(with);
      any = true;
    }
    break;
  }
  if (any) Add(changed);
  return any;
}

// Numbers of which the first is the only row's.
std::optional<std::string> RowsFollower::PlacesOfRows(const Node& node, const std::string& input,
                                                      const RowsAxis& like) {
  const Array& few = Find(input)->few;
  if (few.ints == nullptr || few.elements() != few.dims.back() || few.ints->front() != 0) {
    return std::nullopt;
  }
  guessed_ = true;
  Progression rows{*few.ints, std::vector<int64_t>(few.ints->size(), 0)};
  rows.steps[0] = 1;
  return Continue(node, rows, few.dims.size(), 0, like);
}

// Zeros are what there is without a state.
bool RowsFollower::FollowStates(const Node& node) {
  constexpr int kFirstState = 5;
  const std::optional<RowsAxis> like = RowsOf(node.input(0));
  if (!like.has_value() || like->axis != 1 || IntAttribute(node, "layout", 0) != 0) return false;
  Node changed = node;
  bool any = false;
  for (int i = kFirstState; i < std::min(node.input_size(), kFirstState + 2); ++i) {
    const Value* const value = node.input(i).empty() ? nullptr : Find(node.input(i));
    if (value == nullptr || value->few.dims.size() != 3 || value->few.dims != value->many.dims) {
      continue;
    }
    bool zeros = true;
    for (int64_t k = 0; k < value->few.elements(); ++k) zeros &= value->few.at(k) == 0;
    const std::optional<std::string> with =
        zeros ? "" : WithRows(node, node.input(i), 1, *like, false);
    if (!with.has_value()) continue;
    changed.set_input(i, *with);
    any = true;
  }
  if (any) Add(changed);
  return any;
}

// Heads in front of the rows, taken apart by split(x.size(0)): equal parts.  Or rows, each a part.
bool RowsFollower::FollowParts(const Node& node) {
  const std::optional<RowsAxis> rows = RowsOf(node.input(0));
  if (!rows.has_value() || IntAttribute(node, "axis", 0) != static_cast<int64_t>(rows->axis)) {
    return false;
  }
  if (rows_ > 1 && rows->each == 1 && node.output_size() == rows_) {
    Node parts = node;
    parts.set_input(0, Fresh(node.input(0)));
    AddSlice(node, node.input(0), static_cast<int64_t>(rows->axis), 0, rows_, parts.input(0));
    Add(parts);
    return true;
  }
  if (rows->each != node.output_size()) return false;
  for (const std::string& part : node.output()) {
    const Value* const value = Find(part);
    if (value == nullptr || value->few.dims[rows->axis] != rows_) return false;
  }
  Node& parts = Add(node, "Split", {node.input(0)}, node.output(0));
  *parts.mutable_output() = node.output();
  SetInt(parts, "axis", static_cast<int64_t>(rows->axis));
  return true;
}

// What is repeated of each row, one after the other: repeat_interleave().
bool RowsFollower::FollowEach(const Node& node) {
  const auto maker_of = [&](const std::string& name) {
    const auto maker = makers_.find(name);
    return maker == makers_.end() || Find(name) == nullptr ? nullptr : maker->second;
  };
  if (rows_ == 1 || node.input_size() != rows_ || IntAttribute(node, "axis", 0) != 0) return false;
  std::vector<std::string> parts(node.input().begin(), node.input().end());
  std::vector<const Node*> steps;  // Of the first row, the last one first.
  const Node* first = maker_of(parts[0]);
  for (; first != nullptr && first->op_type() != "Split"; first = maker_of(parts[0])) {
    if (!IsOneOf(first->op_type(), {"Unsqueeze", "Expand", "Reshape"})) return false;
    const Sizes dims = Find(parts[0])->few.dims;
    for (std::string& part : parts) {
      const Node* const own = maker_of(part);
      if (own == nullptr || own->op_type() != first->op_type() || Find(part)->few.dims != dims) {
        return false;
      }
      part = own->input(0);
    }
    steps.push_back(first);
  }
  const bool rows =
      first != nullptr && IntAttribute(*first, "axis", 0) == 0 &&
      std::equal(parts.begin(), parts.end(), first->output().begin(), first->output().end());
  const std::optional<RowsAxis> whole = rows ? RowsOf(first->input(0)) : std::nullopt;
  const auto is_row = [&](const std::string& part) {
    return Find(part) != nullptr && Find(part)->few.dims[0] == 1;
  };
  if (!whole.has_value() || whole->axis != 0 || whole->each != 1 || !absl::c_all_of(parts, is_row))
    return false;
  // What a part has, behind its row.
  std::string all = first->input(0);
  for (size_t i = steps.size(); i-- > 0;) {
    if (steps[i]->op_type() != "Expand") continue;
    Sizes from = Find(steps[i]->input(0))->few.dims, to = Find(steps[i]->output(0))->few.dims;
    from.insert(from.begin(), to.size() - from.size(), 1);
    from.insert(from.begin(), -1);
    to.insert(to.begin(), 1);
    all = Make(node, "Reshape", {all, Integers(all, from)});
    all = Make(node, "Expand", {all, Integers(all, to)});
  }
  Sizes merged = Find(node.input(0))->few.dims;
  merged[0] = -1;
  Add(node, "Reshape", {all, Integers(all, merged)}, node.output(0));
  return true;
}

// One of them, cut out.
bool RowsFollower::FollowPart(const Node& node) {
  const std::optional<RowsAxis> rows = RowsOf(node.input(0));
  const std::optional<int64_t> begin = Int(node, 1), end = Int(node, 2), axis = Int(node, 3);
  if (!rows.has_value() || axis != static_cast<int64_t>(rows->axis) || !begin.has_value() ||
      *begin % rows_ != 0 || *begin >= rows->each * rows_ || *begin < 0 || end != *begin + rows_) {
    return false;
  }
  if (rows->each == 1) {
    Add(node, "Identity", {node.input(0)}, node.output(0));
    return true;
  }
  Node& parts = Add(node, "Split", {node.input(0)}, Fresh(node.output(0)));
  SetInt(parts, "axis", *axis);
  while (parts.output_size() < rows->each) parts.add_output(Fresh(node.output(0)));
  parts.set_output(static_cast<int>(*begin / rows_), node.output(0));
  return true;
}

// topk(lengths, k=len(lengths)): all rows are sorted.
bool RowsFollower::FollowCount(const Node& node) {
  const std::optional<RowsAxis> rows = RowsOf(node.input(0));
  const Value* const count = node.input_size() == 2 ? Find(node.input(1)) : nullptr;
  if (!rows.has_value() || count == nullptr || count->few.ints == nullptr) return false;
  const Sizes dims = Find(node.input(0))->few.dims;
  const auto axis = static_cast<int64_t>(rows->axis), rank = static_cast<int64_t>(dims.size());
  const int64_t own = IntAttribute(node, "axis", -1);
  const Sizes all = {dims[rows->axis]};
  if (rows->each != 1 || (own != axis && own != axis - rank) || *count->few.ints != all ||
      *count->many.ints != all) {
    return false;
  }
  guessed_ |= rows_ == 1;
  Node changed = node;
  changed.set_input(1, RowCount(node, *rows));
  Add(changed);
  return true;
}

// Places among the entries of the example's only row: those of row r are r times as many further.
bool RowsFollower::FollowPlaces(const Node& node) {
  const std::optional<RowsAxis> data = RowsOf(node.input(0)), places = RowsOf(node.input(1));
  const int64_t own = IntAttribute(node, "axis", 0);
  if (!data.has_value() || !places.has_value() || own != static_cast<int64_t>(data->axis)) {
    return false;
  }
  // What a row has side by side; of what is in front of that, the model makes places itself.
  const int64_t own_entries =
      BehindRows(*data) / ProductOf(Find(node.input(0))->few.dims, data->axis + 1);
  const Array& many = Find(node.input(1))->many;
  const auto is_others = [&](int64_t place) { return place >= data->each; };
  if (own_entries == data->each && many.ints != nullptr && absl::c_any_of(*many.ints, is_others)) {
    return false;  // Places of all rows, as they are.
  }
  guessed_ = true;
  Sizes sizes(Find(node.input(1))->few.dims.size(), 1);
  sizes[places->axis] = -1;
  std::string numbers = NumbersBelow(node, RowCount(node, *places));
  if (places->each > 1) {
    const std::string apart = Fresh(numbers);
    AddOnAxis(node, "Unsqueeze", numbers, 1, apart);
    const std::string each = Integers(numbers, {1, places->each});
    numbers = Make(node, "Expand", {apart, each});
  }
  const std::string first = Make(node, "Mul", {numbers, Scalar(node, own_entries)});
  const std::string shift = Make(node, "Reshape", {first, Integers(first, sizes)});
  Node changed = node;
  changed.set_input(1, Make(node, "Add", {node.input(1), shift}));
  Add(changed);
  return true;
}

// squeeze() of all that is 1 in the example, the only row, too.
bool RowsFollower::KeepRows(const Node& node) {
  const std::optional<RowsAxis> rows = RowsOf(node.input(0));
  const Sizes dims = rows.has_value() ? Find(node.input(0))->few.dims : Sizes();
  std::vector<int64_t> axes = IntsAttribute(node, "axes");
  if (node.input_size() > 1) axes = Ints(node.input(1)).value_or(axes);
  const bool every = axes.empty();
  for (size_t d = 0; d < dims.size(); ++d) {
    if (every && dims[d] == 1) axes.push_back(static_cast<int64_t>(d));
  }
  const size_t before = axes.size();
  std::erase_if(axes, [&](int64_t axis) {
    const int64_t rank = static_cast<int64_t>(dims.size());
    return rows.has_value() && (axis < 0 ? axis + rank : axis) == static_cast<int64_t>(rows->axis);
  });
  if (axes.size() == before) return false;
  guessed_ = true;
  Node changed = node;
  if (axes.empty()) {
    changed.set_op_type("Identity");
    changed.clear_attribute();
    changed.mutable_input()->DeleteSubrange(1, changed.input_size() - 1);
  } else if (opset_ >= kAxesAreInputs) {
    const std::string kept = Integers(node.output(0), axes);
    changed.mutable_input()->DeleteSubrange(1, changed.input_size() - 1);
    changed.add_input(kept);
  } else {
    changed.clear_attribute();
    SetInts(changed, "axes", axes);
  }
  Add(changed);
  return true;
}

bool RowsFollower::Fits() const {
  if (!branches_.empty() || (misses_ && most_ > 2)) return false;
  const auto same = [&](const onnx::ValueInfoProto& output) {
    const auto found = values_.find(output.name());
    if (found == values_.end()) return true;  // Not known here.
    const Array &few = found->second.few, &many = found->second.many;
    const bool stays = !few.dims.empty() && few.dims[0] == many.dims[0];
    if (!guessed_) return !stays || rows_ == 1 || few.dims[0] != rows_;
    if (stays) return false;
    for (int64_t i = 0; i < std::min(few.elements(), many.elements()); ++i) {
      const double error = std::fabs(few.at(i) - many.at(i));
      if (error > 1e-9 * std::max(1.0, std::fabs(few.at(i)))) return false;
    }
    return true;
  };
  return !(guessed_ && failed_) && absl::c_all_of(outputs_, same);
}

}  // namespace

std::optional<Array> MakeUpRows(const onnx::ValueInfoProto& input, int64_t rows, int64_t most) {
  const auto& type = input.type().tensor_type();
  Sizes dims;
  for (const auto& dim : type.shape().dim())
    dims.push_back(dim.has_dim_value() ? dim.dim_value() : 1);
  if (rows > 0) dims[0] = rows;
  constexpr int64_t kMost = 1 << 22;
  int64_t count = 1;
  for (const int64_t d : dims) {
    if (d < 1 || count > kMost / d) return std::nullopt;
    count *= d;
  }
  const int64_t width = dims.empty() ? 1 : count / dims[0];
  const bool is_bool = type.elem_type() == onnx::TensorProto::BOOL;
  std::vector<double> floats;
  std::vector<int64_t> ints;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = i / width, column = i % width;
    const uint64_t bits = Scattered(13 * row + 3 * column + 1) >> 62;
    const auto number =
        static_cast<int64_t>(most > 2 && !is_bool ? std::min<uint64_t>(bits, 2) : bits / 2);
    const double part = 0.5 + 0.49 * std::sin(static_cast<double>(7 * row + 3 * column + 1));
    ints.push_back(number);
    floats.push_back(static_cast<double>(number) + part);  // Some models take them for ids.
  }
  return reference::IsFloatType(type.elem_type())
             ? reference::Floats(onnx::TensorProto::FLOAT, dims, std::move(floats))
             : reference::Ints(type.elem_type(), dims, std::move(ints));
}

absl::Status FollowRows(onnx::GraphProto& graph, int64_t opset, int64_t rows,
                        const std::vector<std::string>& inputs, bool certain) {
  constexpr int kTries = 64;
  const auto deadline = std::chrono::steady_clock::now() + kTime;
  std::vector<bool> choices;
  // What is not masked is to differ, for rows to be told apart; some tables have two rows.
  int64_t most = 3;
  for (int i = 0; i < kTries && std::chrono::steady_clock::now() < deadline; ++i) {
    RowsFollower follower(graph, opset, rows, inputs, certain, choices, most, deadline);
    follower.Run();
    if (!follower.branches().empty()) {
      RETURN_IF_ERROR(TakeBranches(graph, follower.branches()));
      continue;
    }
    if (follower.misses() && most > 2) {
      most = 2;
      continue;
    }
    if (follower.Fits()) return absl::OkStatus();
    choices = follower.choices();
    while (!choices.empty() && choices.back()) choices.pop_back();
    if (choices.empty()) break;
    choices.back() = true;
  }
  return Unimplemented(
      rows > 1 ? "an output has the example's rows whatever the request has: it is constant, or "
                 "computed across rows; "
               : "the example's row cannot be told from other sizes of 1, or its score depends on "
                 "other rows; ",
      "export the model with dynamic_axes",
      rows > 1 ? "" : ", or with an example of 2 rows or more");
}

}  // namespace ulfd::convert

// What RowsFollower makes of each operator.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "tools/convert/onnx/model/types.h"
#include "tools/convert/onnx/rows/rows_follower.h"

namespace ulfd::convert {

using Node = onnx::NodeProto;
using reference::Array;
using reference::ProductOf;
using reference::Sizes;

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
  // A -1 in front is the rows; behind, x.size(0) is likelier the 1 in front.
  if (rest != ones.end() && Choose() == (rest != ones.begin())) return *rest;
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
  if (!Choose()) return cut ? next : next - 1;
  const size_t own = ones.empty() ? next : ones[std::min(in_front, ones.size() - 1)];
  if (own + 1 < next && !Choose()) return own;  // Or with what was behind it, of size 1.
  return cut ? next - 1 : next;
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
  if (reshapes && to.empty()) {  // A single number, of which each row has one.
    Add(node, "Reshape", {node.input(0), Integers(node.output(0), {-1})}, node.output(0));
    return true;
  }
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
  if (value.computed || dims != value.many.dims || axis >= dims.size() || dims[axis] == 1 ||
      dims[axis] != few[at]) {
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
      if (dims != value->many.dims || (places && like->axis != 0)) continue;
      // Beyond the last: none.  "..." stands for more axes than it has characters.
      const size_t axis = places                          ? 0
                          : terms.empty()                 ? dims.size() - from_end
                          : like->axis < terms[of].size() ? terms[i].find(terms[of][like->axis])
                                                          : std::string::npos;
      if (axis >= dims.size()) continue;
      if (dims[axis] != sizes[like->axis] || (!aligned && dims[axis] == 1)) continue;
      // Of what is computed: one of all rows (a mean), repeated.
      if (value->computed && !IsRepeated(value->few, axis, 1)) continue;
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

// Numbers whose first column is the only row's.
std::optional<std::string> RowsFollower::PlacesOfRows(const Node& node, const std::string& input,
                                                      const RowsAxis& like) {
  const Array& few = Find(input)->few;
  if (few.ints == nullptr || few.dims[0] != 1 || few.elements() == 0) return std::nullopt;
  const size_t columns = ColumnsOf(few);
  for (size_t i = 0; i < few.ints->size(); i += columns) {
    if ((*few.ints)[i] != 0) return std::nullopt;
  }
  Progression rows{*few.ints, std::vector<int64_t>(columns, 0)};
  rows.steps[0] = 1;
  return Continue(node, rows, few.dims, 0, like);
}

// x[arange(1), place] = y: the place is computed, the only row's number is 0.
bool RowsFollower::FollowScattered(const Node& node) {
  const std::optional<RowsAxis> data = RowsOf(node.input(0)), at = RowsOf(node.input(1));
  if (!data.has_value() || !at.has_value() || data->axis != 0 || at->axis != 0 || at->each != 1) {
    return false;
  }
  const Array& many = Find(node.input(1))->many;
  const size_t columns = ColumnsOf(many);
  if (many.ints == nullptr || many.rank() != 2 || columns < 2) return false;
  for (size_t i = 0; i < many.ints->size(); i += columns) {
    if ((*many.ints)[i] != 0) return false;
  }
  std::string numbers = NumbersBelow(node, RowCount(node, *at)), both = Fresh(node.input(1));
  numbers = Make(node, "Reshape", {numbers, Integers(numbers, {-1, 1})});
  const std::string rest = Fresh(node.input(1));
  AddSlice(node, node.input(1), 1, 1, static_cast<int64_t>(columns), rest);
  SetInt(Add(node, "Concat", {numbers, rest}, both), "axis", 1);
  Node changed = node;
  changed.set_input(1, both);
  Add(changed);
  return true;
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

// Heads in front of the rows, taken apart by split(x.size(0)): equal parts.  Or rows, each a part,
// or all one.
bool RowsFollower::FollowParts(const Node& node) {
  const std::optional<RowsAxis> rows = RowsOf(node.input(0));
  if (!rows.has_value() || IntAttribute(node, "axis", 0) != static_cast<int64_t>(rows->axis)) {
    return false;
  }
  if (rows->each == 1 && node.output_size() == 1) {
    Add(node, "Identity", {node.input(0)}, node.output(0));
    return true;
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

}  // namespace ulfd::convert

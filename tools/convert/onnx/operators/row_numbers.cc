// Numbers of rows (arange(len(x))) that are indices: x[arange(rows), i], x[:, a:b] = y.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "tools/convert/onnx/model/graph.h"
#include "tools/convert/onnx/operators/layers.h"
#include "tools/convert/recipes.h"

namespace ulfd::convert {
namespace {

using engine::Dim;

// Entries of a row that are put in places, one by one.
constexpr int64_t kMostPlaces = 1 << 20;
constexpr int64_t kMostSteps = 1 << 16;  // Of a row, among those of all.

bool IsNumber(const Constant* constant, int64_t value) {
  return constant != nullptr && !constant->is_float && IsNumbers(constant->dims) &&
         constant->elements() == 1 && constant->dim(0) == Dim::Of(value);
}

// Whether it is the number of rows, or of what is merged with them.
bool CountsRows(const Dim& dim) { return !dim.IsConst() && !dim.IsUnknown(); }

// Elements of the dimensions [from, to); nothing unless they are numbers, and few.
std::optional<int64_t> Elements(const Dims& dims, size_t from, size_t to) {
  int64_t count = 1;
  for (size_t d = from; d < to; ++d) {
    if (!dims[d].IsConst()) return std::nullopt;
    count = engine::SaturatingMultiply(count, dims[d].value());
  }
  return count <= kMostPlaces ? std::optional(count) : std::nullopt;
}

// What integers of these dimensions are in every row, if they are the same in all.
std::optional<std::vector<int64_t>> PlacesOfRow(const OnnxGraph& graph, const std::string& name,
                                                const Dims& dims) {
  const std::optional<int64_t> count = Elements(dims, 1, dims.size());
  if (!count.has_value()) return std::nullopt;
  if (*count == 0) return std::vector<int64_t>();
  const Constant* constant = graph.FindConstant(name);
  if (constant != nullptr) {
    if (constant->is_float || !constant->uniform || constant->dims != dims ||
        !constant->dim(0).IsConst()) {
      return std::nullopt;
    }
    return std::vector<int64_t>(static_cast<size_t>(*count), constant->dim(0).value());
  }
  const OnnxValue* const value = graph.FindValue(name);
  constant = value == nullptr ? nullptr : graph.ConstantBehind(value->tensor);
  if (constant == nullptr || constant->is_float || value->dims != dims) return std::nullopt;
  const std::vector<int64_t> sizes = constant->sizes();
  std::vector<int64_t> places;
  for (int64_t i = 0; i < *count; ++i) {
    int64_t at = 0, rest = i;
    std::vector<int64_t> index(sizes.size(), 0);
    for (size_t d = dims.size(); d-- > 1; rest /= dims[d].value()) {
      const int axis = value->axes[d];
      if (axis >= 0 && sizes[static_cast<size_t>(axis)] != 1)
        index[static_cast<size_t>(axis)] = rest % dims[d].value();
    }
    if (value->axes[0] >= 0 && sizes[static_cast<size_t>(value->axes[0])] != 1) return std::nullopt;
    for (size_t d = 0; d < sizes.size(); ++d) at = at * sizes[d] + index[d];
    if (!constant->dim(at).IsConst()) return std::nullopt;
    places.push_back(constant->dim(at).value());
  }
  return places;
}

// The step of each row that its place tells, or those that its places tell.  x: [rows, steps, ...].
// Places below 0 count from the row's end, as in PyTorch: where exporters merge rows and steps, a
// place of -1 becomes the last step of the row before.
absl::Status StepOfRows(OnnxNode& node, const OnnxValue& x, const std::string& places,
                        bool several = false) {
  ASSIGN_OR_RETURN(OnnxValue place, node.graph.ValueOf(places));
  if (!several && place.rank() == 2 && place.dims[1] == Dim::Of(1)) {
    place = WithoutAxis(std::move(place), 1);
  }
  if (place.rank() != (several ? 2 : 1)) {
    return Unimplemented(several ? "places that are no matrix" : "places that are no vector");
  }
  const Dims found_dims = place.dims;
  RETURN_IF_ERROR(WantNoRows(x, 1));
  const int64_t steps = x.dims[1].value();
  // An id, which a table is looked up with, too, is not rounded: the input itself.
  const std::string* const input = node.graph.RoundedFrom(places);
  node.graph.NotePlaces(input != nullptr ? *input : places, steps);
  ASSIGN_OR_RETURN(const std::string each, node.graph.PlainAlong(x, {0, 1}));
  for (int axis = place.rank(); axis < x.rank(); ++axis) place = WithAxis(std::move(place), axis);
  ASSIGN_OR_RETURN(const std::string at, node.graph.Plain(place));
  const std::string taken = node.Scratch("taken"), out = node.Top();
  RETURN_IF_ERROR(AddTake(node.builder(), taken, each, at, 1, taken));
  Dims dims = x.dims;
  dims.erase(dims.begin() + 1);
  if (found_dims[0].IsAds()) dims[0] = found_dims[0];  // The user's steps, a place per ad.
  if (several) dims.insert(dims.begin() + 1, found_dims[1]);
  ASSIGN_OR_RETURN(const std::vector<int64_t> sizes,
                   ReshapeSizes(node.builder().Find(taken)->shape, dims));
  RETURN_IF_ERROR(AddReshape(node.builder(), node.name, taken, sizes, out));
  node.Set(out, std::move(dims));
  node.note = absl::StrCat("a row's place outside ", -steps, "..", steps - 1, " gives zeros");
  return absl::OkStatus();
}

// Rows and steps merged, [ads * steps, ...], by rows' numbers times the steps plus a place; or
// [steps * ads, ...], by a place times the rows plus their numbers.
absl::Status GatherOfRows(OnnxNode& node, const RowNumbers& rows) {
  ASSIGN_OR_RETURN(const OnnxValue x, node.value(0));
  // Several of each row, one after the other.
  const bool merged = rows.dims.size() == 1 && rows.dims[0] != rows.count;
  if (IntAttribute(node.node, "axis", 0) != 0 || rows.plus.empty() || rows.dims.size() > 2 ||
      (rows.dims[0] != rows.count && !merged) || (rows.steps_first && merged) ||
      x.dims[0].IsConst() ||
      (rows.steps_first ? rows.scale != 1 : x.dims[0].value() != rows.scale * rows.count.value())) {
    return Unimplemented("numbers of rows, times ", rows.scale, ", of shape ", DimsText(x.dims));
  }
  if (rows.steps_first) {
    Dims apart = x.dims;
    apart[0] = Dim::Of(x.dims[0].value());
    apart.insert(apart.begin() + 1, rows.count);
    ASSIGN_OR_RETURN(OnnxValue each, Reshaped(node, x, std::move(apart)));
    return StepOfRows(node, MoveAxis(std::move(each), 1, 0), rows.plus);
  }
  ASSIGN_OR_RETURN(const std::string in, node.graph.PlainAlong(x, {0}));
  // The user's row and those of the ads are numbered alike.
  Dims dims = x.dims;
  dims[0] =
      engine::Multiply(x.dims[0].IsAds() ? Dim::Ads() : Dim::Users(), Dim::Of(rows.count.value()));
  dims.insert(dims.begin() + 1, Dim::Of(rows.scale));
  std::vector<int64_t> sizes = {-1};
  for (size_t d = 1; d < dims.size(); ++d) sizes.push_back(dims[d].value());
  ASSIGN_OR_RETURN(const std::string each, Sized(node, "each", in, sizes));
  RETURN_IF_ERROR(StepOfRows(node, node.graph.Whole(each, std::move(dims)), rows.plus,
                             rows.dims.size() == 2 || merged));
  if (!merged) return absl::OkStatus();
  const OnnxValue steps = *node.graph.FindValue(node.output());
  dims = steps.dims;
  dims.erase(dims.begin());
  dims[0] = engine::Multiply(steps.dims[0], steps.dims[1]);
  ASSIGN_OR_RETURN(const OnnxValue flat, Reshaped(node, steps, std::move(dims)));
  node.Set(flat);
  return absl::OkStatus();
}

// [r, places ...] of each row.
bool JoinPlaces(const OnnxNode& node, RowNumbers& rows) {
  const auto last = static_cast<int64_t>(rows.dims.size()) - 1;
  const int64_t axis = IntAttribute(node.node, "axis", 0);
  if (last < 1 || (axis != -1 && axis != last) || rows.dims.back() != Dim::Of(1) ||
      !rows.beside.empty() || !rows.plus.empty() || rows.scale != 1) {
    return false;
  }
  const OnnxValue* const value = node.graph.FindValue(node.node.input(1));
  if (node.node.input_size() == 2 && value != nullptr && value->dims == rows.dims &&
      node.graph.ConstantBehind(value->tensor) == nullptr) {
    rows.plus = node.node.input(1);
  }
  for (int i = 1; rows.plus.empty() && i < node.node.input_size(); ++i) {
    std::optional<std::vector<int64_t>> places =
        PlacesOfRow(node.graph, node.node.input(i), rows.dims);
    if (!places.has_value()) return false;
    rows.beside.push_back(*std::move(places));
  }
  rows.dims.back() = Dim::Of(node.node.input_size());
  return true;
}

// Numbers of rows [rows, 1] side by side.
bool RepeatBeside(const OnnxNode& node, RowNumbers& rows) {
  const auto column = [&](const std::string& input) {
    const RowNumbers* const of = node.graph.FindRowNumbers(input);
    return of != nullptr && of->dims == Dims{rows.count, Dim::Of(1)} && of->scale == rows.scale &&
           of->plus.empty() && of->beside.empty() && !of->shape_only;
  };
  const int64_t axis = IntAttribute(node.node, "axis", 0);
  if ((axis != 1 && axis != -1) ||
      !std::all_of(node.node.input().begin(), node.node.input().end(), column)) {
    return false;
  }
  rows.dims[1] = Dim::Of(node.node.input_size());
  return true;
}

// What leaves numbers of rows as they are, repeats them, changes the dimensions of 1 behind them,
// or puts places beside them.
bool MoveRowNumbers(const OnnxNode& node, RowNumbers& rows) {
  const std::string& op = node.node.op_type();
  if (op == "Concat") return RepeatBeside(node, rows) || JoinPlaces(node, rows);
  if (!rows.beside.empty()) return false;
  if (op == "Unsqueeze") {
    const absl::StatusOr<std::vector<int64_t>> axes = Integers(node, 1, "axes");
    const auto rank = static_cast<int64_t>(rows.dims.size());
    if (!axes.ok() || axes->size() != 1 || ((*axes)[0] != -1 && (*axes)[0] != rank)) return false;
    rows.dims.push_back(Dim::Of(1));
    return true;
  }
  const Constant* const other = node.constant(1);
  if (other == nullptr || other->is_float) return false;
  const absl::StatusOr<Dims> wanted = other->ToDims();
  if (!wanted.ok() || wanted->empty()) return false;
  if (op == "Expand") {
    const absl::StatusOr<Dims> dims = BroadcastDims(rows.dims, *wanted);
    const bool repeats = dims.ok() && dims->size() == rows.dims.size() &&
                         Elements(*dims, 1, dims->size()).has_value();
    if (repeats) rows.dims = *dims;
    return repeats;
  }
  Dims dims = *wanted;
  if (op != "Reshape" || !Elements(rows.dims, 1, rows.dims.size()).has_value()) return false;
  // Numbers repeated for each row, or added to places of each.
  const bool many =
      rows.plus.empty() ? rows.scale == 1 : !rows.steps_first && rows.dims.back() != Dim::Of(1);
  if (rows.dims.size() == 2 && rows.dims[0] == rows.count && dims.size() == 1 && many) {
    const Dim merged = engine::Multiply(rows.count, rows.dims[1]);
    if (dims[0] != Dim::Of(-1) && dims[0] != merged) return false;
    rows.dims = {merged};
    return true;
  }
  if (dims[0] == Dim::Of(-1)) dims[0] = rows.count;
  const auto one = [](const Dim& d) { return d == Dim::Of(1); };
  if (dims[0] != rows.count || !std::all_of(dims.begin() + 1, dims.end(), one) ||
      !std::all_of(rows.dims.begin() + 1, rows.dims.end(), one)) {
    return false;
  }
  rows.dims = std::move(dims);
  return true;
}

// Places of each row, [rows, k], that are added to numbers [rows, 1].
bool PlusSeveral(const OnnxNode& node, int input, RowNumbers& rows) {
  const OnnxValue* const places = node.graph.FindValue(node.node.input(input));
  if (places == nullptr || places->rank() != 2 || rows.dims.size() != 2 || !rows.plus.empty() ||
      rows.dims[1] != Dim::Of(1) || places->dims[0] != rows.count || !places->dims[1].IsConst()) {
    return false;
  }
  rows.dims = places->dims;
  return true;
}

// Of ScatterND: x and values with the places along one axis, and for each of the places which of
// the values it gets, or -1.
struct Placed {
  OnnxValue x, values;
  int axis = 0;
  std::vector<int64_t> from;
};

// Drops the last places where each takes the whole dimension, one by one.
void DropWhole(RowNumbers& rows, const Dims& dims) {
  while (rows.beside.size() > 1) {
    const int64_t size = dims[rows.beside.size()].value();
    const std::vector<int64_t>& last = rows.beside.back();
    if (rows.dims.size() < 4 || rows.dims[rows.dims.size() - 2] != Dim::Of(size)) return;
    for (size_t i = 0; i < last.size(); ++i) {
      if (last[i] != static_cast<int64_t>(i) % size) return;
      for (const std::vector<int64_t>& other : rows.beside) {
        if (&other != &rows.beside.back() && other[i] != other[i - i % static_cast<size_t>(size)])
          return;
      }
    }
    rows.beside.pop_back();
    for (std::vector<int64_t>& other : rows.beside) {
      std::vector<int64_t> kept;
      for (size_t i = 0; i < other.size(); i += static_cast<size_t>(size)) kept.push_back(other[i]);
      other = std::move(kept);
    }
    rows.dims.erase(rows.dims.end() - 2);
  }
}

// The view with the axes [from, to) as one.
absl::StatusOr<OnnxValue> Merged(OnnxNode& node, const OnnxValue& x, size_t from, size_t to) {
  if (to == from + 1) return x;
  if (to == from) return WithAxis(x, static_cast<int>(from));
  Dims dims(x.dims.begin(), x.dims.begin() + static_cast<int64_t>(from));
  dims.push_back(Dim::Of(Elements(x.dims, from, to).value_or(0)));
  dims.insert(dims.end(), x.dims.begin() + static_cast<int64_t>(to), x.dims.end());
  return Reshaped(node, x, std::move(dims));
}

absl::StatusOr<Placed> PlacedValues(OnnxNode& node, RowNumbers rows) {
  ASSIGN_OR_RETURN(const OnnxValue x, node.value(0));
  ASSIGN_OR_RETURN(const OnnxValue value, node.value(2));
  const std::optional<int64_t> whole = Elements(x.dims, 1, x.dims.size());
  if (rows.beside.empty() || rows.beside.size() >= x.dims.size() || x.dims[0] != rows.count ||
      rows.dims[0] != rows.count || !whole.has_value() ||
      StringAttribute(node.node, "reduction", "none") != "none") {
    return Unimplemented("numbers of rows beside others for shape ", DimsText(x.dims));
  }
  if (value.dims.size() != rows.dims.size() - 1 + x.dims.size() - 1 - rows.beside.size())
    return InvalidArgument("values of another rank");
  DropWhole(rows, x.dims);
  const size_t depth = rows.beside.size();
  Placed placed{.axis = 1};
  placed.from.assign(static_cast<size_t>(*Elements(x.dims, 1, depth + 1)), -1);
  for (size_t i = 0; i < rows.beside[0].size(); ++i) {
    int64_t at = 0;
    for (size_t d = 0; d < depth; ++d) {
      const int64_t size = x.dims[d + 1].value();
      ASSIGN_OR_RETURN(const int place, WantAxis(rows.beside[d][i], size));
      at = at * size + place;
    }
    placed.from[static_cast<size_t>(at)] = static_cast<int64_t>(i);
  }
  ASSIGN_OR_RETURN(placed.x, Merged(node, x, 1, depth + 1));
  ASSIGN_OR_RETURN(placed.values, Merged(node, value, 1, rows.dims.size() - 1));
  return placed;
}

// Sets the node's output, of the dimensions of x before places became one axis.
absl::Status PutPlaced(OnnxNode& node, Placed placed, const Dims& dims) {
  const OnnxValue& x = placed.x;
  const auto axis = static_cast<size_t>(placed.axis);
  std::vector<float> some;
  for (int64_t& from : placed.from) {
    some.push_back(from < 0 ? 0.0f : 1.0f);
    from = std::max<int64_t>(from, 0);
  }
  OnnxValue spread = placed.values;
  if (spread.dims[axis] != Dim::Of(1)) {
    ASSIGN_OR_RETURN(
        spread, PickAlong(node, placed.values, placed.axis, placed.from, node.Scratch("spread")));
  }
  std::vector<int64_t> sizes(x.dims.size(), 1);
  sizes[axis] = static_cast<int64_t>(some.size());
  const std::string mask = node.Scratch("placed"), out = node.Top();
  RETURN_IF_ERROR(AddConstant(node.builder(), mask, MakeBlob(sizes, some), mask));
  ASSIGN_OR_RETURN(const std::string in, node.graph.Plain(x));
  ASSIGN_OR_RETURN(const std::string by, node.graph.Plain(spread));
  const bool merged = dims.size() != x.dims.size();
  const std::string mixed = merged ? node.Scratch("mixed") : out;
  RETURN_IF_ERROR(AddExpression(node.builder(), merged ? mixed : node.name,
                                "where(@0 == 1, @1, @2)", {mask, by, in}, mixed));
  if (merged) {
    ASSIGN_OR_RETURN(const std::vector<int64_t> to,
                     ReshapeSizes(node.builder().Find(mixed)->shape, dims));
    RETURN_IF_ERROR(AddReshape(node.builder(), node.name, mixed, to, out));
  }
  node.Set(out, dims);
  return absl::OkStatus();
}

// x[arange(rows), place] = value, with one place for each row, [rows, 2], or several: [rows, k, 2],
// or [rows * k, 2].
absl::Status ScatterAtComputed(OnnxNode& node, const RowNumbers& rows) {
  ASSIGN_OR_RETURN(OnnxValue x, node.value(0));
  ASSIGN_OR_RETURN(OnnxValue index, node.graph.ValueOf(rows.plus));
  ASSIGN_OR_RETURN(OnnxValue update, node.value(2));
  const std::string reduction = StringAttribute(node.node, "reduction", "none");
  const size_t places = rows.dims.size() - 1;  // Axes of indices and updates in front of others.
  if (rows.steps_first || places > 2 || x.rank() < 2 || x.dims[0] != rows.count ||
      !x.dims[1].IsConst() || update.rank() != static_cast<int>(places) + x.rank() - 2 ||
      (reduction != "none" && reduction != "add")) {
    return Unimplemented("numbers of rows and places of shape ", DimsText(rows.dims), " for ",
                         DimsText(x.dims));
  }
  index = WithoutAxis(std::move(index), static_cast<int>(places));
  if (places == 1 && rows.dims[0] == rows.count) {
    index = WithAxis(std::move(index), 1);
    update = WithAxis(std::move(update), 1);
  } else if (places == 1) {
    for (OnnxValue* const value : {&index, &update}) {
      Dims dims = value->dims;
      dims[0] = rows.count;
      dims.insert(dims.begin() + 1, Dim::Of(rows.dims[0].value()));
      ASSIGN_OR_RETURN(*value, Reshaped(node, *value, std::move(dims)));
    }
  }
  for (int axis = index.rank(); axis < x.rank(); ++axis) index = WithAxis(std::move(index), axis);
  Dims dims = x.dims;
  ASSIGN_OR_RETURN(
      const std::string out,
      Scattered(node, {std::move(x), std::move(index), std::move(update)}, 1, reduction == "add"));
  node.Set(out, std::move(dims));
  return absl::OkStatus();
}

// x[:, places] = values; x as it is where there are no places.
absl::Status ScatterAtPlaces(OnnxNode& node, const RowNumbers& rows) {
  ASSIGN_OR_RETURN(const OnnxValue x, node.value(0));
  if (!rows.beside.empty() && rows.beside[0].empty()) {
    node.Set(x);
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(Placed placed, PlacedValues(node, rows));
  return PutPlaced(node, std::move(placed), x.dims);
}

// The same where rows are on another axis: x[places] = values.
absl::Status ScatterAtConstants(OnnxNode& node, const Constant& indices) {
  ASSIGN_OR_RETURN(const OnnxValue x, node.value(0));
  ASSIGN_OR_RETURN(const OnnxValue value, node.value(2));
  ASSIGN_OR_RETURN(const std::vector<int64_t> places, indices.ToInts());
  const auto rank = static_cast<int>(indices.dims.size());
  if (rank < 1 || indices.dims.back() != Dim::Of(1) || x.rank() < 1 || !x.dims[0].IsConst() ||
      x.dims[0].value() > kMostPlaces || places.empty() ||
      StringAttribute(node.node, "reduction", "none") != "none") {
    return Unimplemented("indices of shape ", DimsText(indices.dims), " for ", DimsText(x.dims));
  }
  if (value.rank() != rank - 1 + x.rank() - 1) return InvalidArgument("values of another rank");
  Placed placed{.x = x};
  placed.from.assign(static_cast<size_t>(x.dims[0].value()), -1);
  for (size_t i = 0; i < places.size(); ++i) {
    ASSIGN_OR_RETURN(const int place, WantAxis(places[i], x.dims[0].value()));
    placed.from[static_cast<size_t>(place)] = static_cast<int64_t>(i);
  }
  ASSIGN_OR_RETURN(placed.values, Merged(node, value, 0, static_cast<size_t>(rank) - 1));
  return PutPlaced(node, std::move(placed), x.dims);
}

// The same entries of every row: x.gather of constant places that are repeated for the rows.
absl::StatusOr<bool> GatherSamePlaces(OnnxNode& node) {
  const OnnxValue* const x = node.graph.FindValue(node.node.input(0));
  const Constant* const constant = node.constant(1);
  const OnnxValue* const value = node.graph.FindValue(node.node.input(1));
  if (x == nullptr || (constant == nullptr && value == nullptr)) return false;
  const Dims dims = constant != nullptr ? constant->dims : value->dims;
  if (dims.size() != 3 || dims[2] != Dim::Of(1) || x->rank() < 2 || !x->dims[1].IsConst()) {
    return false;
  }
  const auto places = PlacesOfRow(node.graph, node.node.input(1), dims);
  if (!places.has_value() || places->empty()) return false;
  std::vector<int64_t> from;
  for (const int64_t place : *places) {
    ASSIGN_OR_RETURN(const int at, WantAxis(place, x->dims[1].value()));
    from.push_back(at);
  }
  ASSIGN_OR_RETURN(const OnnxValue picked, PickAlong(node, *x, 1, from, node.Top()));
  node.Set(picked);
  return true;
}

// The node makes the numbers of rows: one by one, or, up to `limit` = rows * steps, in steps.
absl::Status CountRows(const OnnxNode& node, const Dim& limit) {
  const Constant* const by = node.constant(2);
  std::optional<Dim> count;
  if (IsNumber(node.constant(0), 0) && by != nullptr && !by->is_float && by->elements() == 1 &&
      by->dim(0).IsConst() && by->dim(0).value() >= 1 && by->dim(0).value() <= kMostSteps) {
    count = engine::Divide(limit, by->dim(0));
  }
  if (!count.has_value()) {
    return Unimplemented("numbers of rows that do not start with 0, in equal steps");
  }
  node.graph.SetRowNumbers(node.output(),
                           {.count = *count, .scale = by->dim(0).value(), .dims = {*count}});
  return absl::OkStatus();
}

// Whether the node makes places times the number of rows, to which rows' numbers are added.
bool MakesPlacesTimesRows(const OnnxNode& node) {
  if (node.node.op_type() != "Mul") return false;
  for (const int i : {0, 1}) {
    const Constant* const count = node.constant(i);
    const OnnxValue* const places = node.graph.FindValue(node.node.input(1 - i));
    const bool fits = count != nullptr && !count->is_float && IsNumbers(count->dims) &&
                      count->elements() == 1 && places != nullptr && places->rank() == 1 &&
                      CountsRows(count->dim(0));
    if (!fits) continue;
    node.graph.SetRowNumbers(node.output(), {.count = count->dim(0),
                                             .scale = 0,
                                             .steps_first = true,
                                             .plus = node.node.input(1 - i),
                                             .dims = {count->dim(0)}});
    return true;
  }
  return false;
}

// Makes `rows`, operand `at` of the node, what the node makes of them.
absl::Status Compute(OnnxNode& node, int at, RowNumbers& rows) {
  const std::string& op = node.node.op_type();
  const Constant* const other = at > 1 ? nullptr : node.constant(1 - at);
  const bool number = other != nullptr && !other->is_float;
  const RowNumbers* const both = at == 1 ? node.graph.FindRowNumbers(node.node.input(0)) : nullptr;
  if (op == "Add" && both != nullptr && both->dims == rows.dims) {
    const bool first = rows.scale == 0;
    const RowNumbers numbers = first ? *both : rows;
    rows = first ? rows : *both;  // The places.
    if (rows.scale != 0 || numbers.scale != 1 || numbers.shift != 0 || !numbers.plus.empty() ||
        numbers.shape_only || numbers.count != rows.count) {
      return Unimplemented("computes with numbers of rows");
    }
    rows.scale = 1;
    return absl::OkStatus();
  }
  if (op == "Add" && IsNumber(other, 0) && other->dims.size() <= rows.dims.size()) {
    return absl::OkStatus();
  }
  if (op == "Mul" && rows.plus.empty() && number && IsNumbers(other->dims) &&
      other->elements() == 1 && other->dim(0).IsConst() && other->dim(0).value() >= 1 &&
      other->dim(0).value() <= kMostSteps / rows.scale) {
    rows.scale *= other->dim(0).value();
    return absl::OkStatus();
  }
  if (op == "Add" && ((rows.plus.empty() && other == nullptr && rows.dims.size() == 1) ||
                      PlusSeveral(node, 1 - at, rows))) {
    rows.plus = node.node.input(1 - at);
    return absl::OkStatus();
  }
  if (op == "Add" && rows.plus.empty() && rows.beside.empty() && number && IsNumbers(other->dims) &&
      other->elements() == 1 && other->dim(0).IsConst() && other->dims.size() <= rows.dims.size() &&
      std::abs(other->dim(0).value()) <= kMostSteps) {
    rows.shift += other->dim(0).value();
    return absl::OkStatus();
  }
  if (op == "Add" && rows.beside.empty() && number) {
    ASSIGN_OR_RETURN(rows.dims, BroadcastDims(rows.dims, other->dims));
    rows.shape_only = true;
    return absl::OkStatus();
  }
  const bool same = op == "Identity" ||
                    (op == "Cast" && IntAttribute(node.node, "to", 0) == onnx::TensorProto::INT64);
  return same ? absl::OkStatus() : Unimplemented("computes with numbers of rows");
}

// The ads' numbers as a value, which other converters read.  False: they are other numbers.
absl::StatusOr<bool> TakeAsValue(OnnxNode& node, const std::string& name) {
  const RowNumbers& rows = *node.graph.FindRowNumbers(name);
  const auto one = [](const Dim& d) { return d == Dim::Of(1); };
  if (rows.count != Dim::Ads() || rows.dims[0] != rows.count || !rows.plus.empty() ||
      !rows.beside.empty() || rows.shape_only || rows.steps_first ||
      !std::all_of(rows.dims.begin() + 1, rows.dims.end(), one)) {
    return false;
  }
  ASSIGN_OR_RETURN(OnnxValue value, node.graph.AdNumbers());
  if (rows.scale != 1 || rows.shift != 0) {
    const std::string text = absl::StrCat("@0 * ", rows.scale, " + ", rows.shift);
    ASSIGN_OR_RETURN(value.tensor, Computed(node, "numbers", text, {value.tensor}));
  }
  for (size_t axis = 1; axis < rows.dims.size(); ++axis) {
    value = WithAxis(std::move(value), static_cast<int>(axis));
  }
  node.graph.Define(name, std::move(value));
  node.graph.MarkSmall(name);
  NoteRows(node, rows.dims, {0});
  return true;
}

// The same of all that the node reads.
absl::StatusOr<bool> TakeAsValues(OnnxNode& node) {
  for (const std::string& input : node.node.input()) {
    if (node.graph.FindRowNumbers(input) == nullptr || node.graph.FindValue(input) != nullptr) {
      continue;
    }
    ASSIGN_OR_RETURN(const bool taken, TakeAsValue(node, input));
    if (!taken) return false;
  }
  return true;
}

// Of a node whose operand `at` is numbers of rows; false: it reads them as values.
absl::StatusOr<bool> ConvertReader(OnnxNode& node, int at) {
  const std::string& op = node.node.op_type();
  RowNumbers rows = *node.graph.FindRowNumbers(node.node.input(at));
  if (op == "Shape" && node.node.attribute_size() == 0) {
    const auto rank = static_cast<int64_t>(rows.dims.size());
    node.graph.Define(node.output(), IntConstant({rank}, rows.dims));
    return true;
  }
  if ((rows.shape_only || rows.shift != 0) && op != "Add") {
    ASSIGN_OR_RETURN(const bool taken, TakeAsValues(node));
    if (taken) return false;
    return Unimplemented("computes with numbers of rows");
  }
  if (op == "Gather" && at == 1 && node.constant(0) == nullptr) {
    RETURN_IF_ERROR(GatherOfRows(node, rows));
    return true;
  }
  if (op == "GatherND" && at == 1 && !rows.plus.empty() && rows.dims.size() == 2 &&
      !rows.steps_first) {
    ASSIGN_OR_RETURN(const OnnxValue x, node.value(0));
    if (x.rank() < 2 || x.dims[0] != rows.count || rows.dims[0] != rows.count ||
        IntAttribute(node.node, "batch_dims", 0) != 0)
      return Unimplemented("numbers of rows for shape ", DimsText(x.dims));
    RETURN_IF_ERROR(StepOfRows(node, x, rows.plus));
    return true;
  }
  if (op == "ScatterND" && at == 1) {
    RETURN_IF_ERROR(rows.plus.empty() ? ScatterAtPlaces(node, rows)
                                      : ScatterAtComputed(node, rows));
    return true;
  }
  if (!MoveRowNumbers(node, rows)) {
    const absl::Status computed = Compute(node, at, rows);
    if (!computed.ok()) {
      ASSIGN_OR_RETURN(const bool taken, TakeAsValues(node));
      if (taken) return false;
      return computed;
    }
  }
  node.graph.SetRowNumbers(node.output(), std::move(rows));
  return true;
}

}  // namespace

absl::StatusOr<bool> ConvertRowNumbers(OnnxNode& node) {
  const std::string& op = node.node.op_type();
  if (op == "GatherND" && IntAttribute(node.node, "batch_dims", 0) == 1) {
    ASSIGN_OR_RETURN(const bool same, GatherSamePlaces(node));
    if (same) return true;
  }
  const Constant* const limit = node.constant(1);
  if (op == "Range" && limit != nullptr && !limit->is_float && limit->elements() == 1 &&
      CountsRows(limit->dim(0))) {
    RETURN_IF_ERROR(CountRows(node, limit->dim(0)));
    return true;
  }
  if (op == "ScatterND" && limit != nullptr && !limit->is_float && node.Has(2) &&
      (node.graph.FindValue(node.node.input(0)) != nullptr ||
       node.graph.FindValue(node.node.input(2)) != nullptr)) {
    RETURN_IF_ERROR(ScatterAtConstants(node, *limit));
    return true;
  }
  int at = -1;
  for (int i = 0; i < node.node.input_size(); ++i) {
    if (node.graph.FindRowNumbers(node.node.input(i)) != nullptr) at = i;
  }
  if (at < 0) return MakesPlacesTimesRows(node);
  if (at > 1 && op != "Concat") {
    return Unimplemented("computes with numbers of rows");
  }
  return ConvertReader(node, at);
}

}  // namespace ulfd::convert

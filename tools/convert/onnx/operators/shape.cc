// ONNX's operators that move, cut or join elements.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <numeric>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "tools/convert/onnx/model/functions.h"
#include "tools/convert/onnx/model/graph.h"
#include "tools/convert/onnx/operators/layers.h"
#include "tools/convert/recipes.h"

namespace ulfd::convert {
namespace {

using engine::Dim;
using engine::Shape;

absl::StatusOr<std::vector<int>> Axes(const OnnxNode& node, int64_t rank) {
  ASSIGN_OR_RETURN(const std::vector<int64_t> stated, Integers(node, 1, "axes"));
  return WantAxes(stated, rank);
}

Dim Product(const Dims& dims) {
  Dim product = Dim::Of(1);
  for (const Dim& d : dims) product = engine::Multiply(product, d);
  return product;
}

// The shape that Reshape asks for: 0 and -1 resolved, and the user's row where it says 1 or, in a
// model exported with one name for all rows, the ads (also where heads are merged with them).
absl::StatusOr<Dims> TargetDims(const OnnxNode& node, const Dims& from, const Constant& shape) {
  Dims to;
  int open = -1;
  const bool keep_zero = IntAttribute(node.node, "allowzero", 0) == 0;
  ASSIGN_OR_RETURN(const Dims wanted, shape.ToDims());
  const auto has = [&](bool (Dim::*is)() const) {
    return std::any_of(from.begin(), from.end(), [&](const Dim& d) { return (d.*is)(); });
  };
  const bool ads = has(&Dim::IsAds), users = has(&Dim::IsUsers) && !ads;
  const auto wants = [&](bool (Dim::*is)() const) {
    return std::any_of(wanted.begin(), wanted.end(), [&](const Dim& d) { return (d.*is)(); });
  };
  const bool wants_ads = wants(&Dim::IsAds), wants_rows = wants_ads || wants(&Dim::IsUsers);
  for (int64_t i = 0; i < static_cast<int64_t>(wanted.size()); ++i) {
    Dim d = wanted[static_cast<size_t>(i)];
    if (d == Dim::Of(-1)) {
      open = static_cast<int>(i);
      d = Dim::Of(1);
    } else if (d == Dim::Of(0) && keep_zero) {
      if (i >= static_cast<int64_t>(from.size())) {
        return InvalidArgument("shape keeps dimension ", i, ", which ", DimsText(from), " lacks");
      }
      d = from[static_cast<size_t>(i)];
    } else if (i == 0 && !from.empty() && from[0].IsUsers() && d == Dim::Of(1) && !wants_rows) {
      d = Dim::Users();
    } else if (ads && !wants_ads && d.IsUsers()) {
      d = Dim::Ads(d.value());
    } else if (users && d.IsAds()) {
      d = Dim::Users(d.value());
    }
    to.push_back(d);
  }
  if (open >= 0) {
    const std::optional<Dim> rest = engine::Divide(Product(from), Product(to));
    if (!rest.has_value()) {
      return InvalidArgument("shape ", DimsText(from), " does not fill ", DimsText(to));
    }
    to[open] = *rest;
  }
  return to;
}

absl::Status Reshape(OnnxNode& node) {
  ASSIGN_OR_RETURN(const OnnxValue x, node.value(0));
  const Constant* shape = node.constant(1);
  if (shape == nullptr) return Unimplemented("a shape that is computed from values");
  ASSIGN_OR_RETURN(Dims to, TargetDims(node, x.dims, *shape));
  const bool in_front = x.rank() > 0 && x.dims[0] == Dim::Ads();
  for (size_t d = 1; in_front && d < to.size(); ++d) {
    if (!to[d].IsAds() || to[d] == Dim::Ads()) continue;
    return ExampleRows(absl::StrCat("joins the rows of ", DimsText(x.dims), " to ", DimsText(to)));
  }
  return ReshapeTo(node, x, std::move(to));
}

absl::Status Flatten(OnnxNode& node) {
  ASSIGN_OR_RETURN(const OnnxValue x, node.value(0));
  const int64_t stated = IntAttribute(node.node, "axis", 1);  // Up to the rank, which is no axis.
  ASSIGN_OR_RETURN(const int axis, WantAxis(stated < 0 ? stated + x.rank() : stated, x.rank() + 1));
  const Dims front(x.dims.begin(), x.dims.begin() + axis);
  const Dims back(x.dims.begin() + axis, x.dims.end());
  return ReshapeTo(node, x, {Product(front), Product(back)});
}

absl::Status Squeeze(OnnxNode& node) {
  ASSIGN_OR_RETURN(OnnxValue x, node.value(0));
  ASSIGN_OR_RETURN(std::vector<int> axes, Axes(node, x.rank()));
  if (axes.empty()) {
    for (int i = 0; i < x.rank(); ++i) {
      const bool one_row = x.dims[i] == Dim::Users() && node.graph.user_has_one_row();
      if (x.dims[i] == Dim::Of(1) || one_row) axes.push_back(i);
    }
  }
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
    if (x.dims[*axis] != Dim::Of(1) && !x.dims[*axis].IsUsers()) {
      return InvalidArgument("axis ", *axis, " of shape ", DimsText(x.dims),
                             ", want a dimension of 1");
    }
    x = WithoutAxis(std::move(x), *axis);
  }
  node.Set(x);
  return absl::OkStatus();
}

absl::Status Unsqueeze(OnnxNode& node) {
  ASSIGN_OR_RETURN(OnnxValue x, node.value(0));
  ASSIGN_OR_RETURN(const std::vector<int64_t> stated, Integers(node, 1, "axes"));
  ASSIGN_OR_RETURN(const std::vector<int> axes,
                   Axes(node, x.rank() + static_cast<int64_t>(stated.size())));
  for (const int axis : axes) x = WithAxis(std::move(x), axis);
  node.Set(x);
  return absl::OkStatus();
}

absl::Status Transpose(OnnxNode& node) {
  if (const RowMask* mask = node.Has(0) ? node.graph.FindMask(node.node.input(0)) : nullptr) {
    node.graph.SetMask(node.output(), *mask);
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const OnnxValue x, node.value(0));
  std::vector<int64_t> perm = IntsAttribute(node.node, "perm");
  if (perm.empty()) {
    for (int64_t i = x.rank(); i-- > 0;) perm.push_back(i);
  }
  std::vector<int64_t> sorted = perm;
  std::sort(sorted.begin(), sorted.end());
  for (int64_t i = 0; i < std::max<int64_t>(x.rank(), static_cast<int64_t>(perm.size())); ++i) {
    if (i < static_cast<int64_t>(perm.size()) && sorted[static_cast<size_t>(i)] == i) continue;
    return InvalidArgument("perm is no order of the ", x.rank(), " axes of ", DimsText(x.dims));
  }
  OnnxValue out{.tensor = x.tensor};
  for (const int64_t axis : perm) {
    ASSIGN_OR_RETURN(const int from, WantAxis(axis, x.rank()));
    out.dims.push_back(x.dims[from]);
    out.axes.push_back(x.axes[from]);
  }
  node.Set(out);
  return absl::OkStatus();
}

absl::Status Expand(OnnxNode& node) {
  ASSIGN_OR_RETURN(OnnxValue x, node.value(0));
  const Constant* shape = node.constant(1);
  if (shape == nullptr) return Unimplemented("a shape that is computed from values");
  ASSIGN_OR_RETURN(const Dims wanted, shape->ToDims());
  ASSIGN_OR_RETURN(x.dims, BroadcastDims(x.dims, wanted));
  x.axes.insert(x.axes.begin(), x.dims.size() - x.axes.size(), -1);
  node.note = "repeated by what reads it";
  node.Set(x);
  return absl::OkStatus();
}

// What is 1 is repeated by its reader; what is more is joined with itself.
absl::Status Tile(OnnxNode& node) {
  ASSIGN_OR_RETURN(OnnxValue x, node.value(0));
  if (node.constant(1) == nullptr) return Unimplemented("repeats that are computed");
  ASSIGN_OR_RETURN(const Dims repeats, node.constant(1)->ToDims());
  if (static_cast<int>(repeats.size()) != x.rank()) {
    return InvalidArgument(repeats.size(), " repeats for shape ", DimsText(x.dims));
  }
  for (int axis = 0; axis < x.rank(); ++axis) {
    const Dim times = repeats[static_cast<size_t>(axis)];
    if (times == Dim::Of(1)) continue;
    constexpr int64_t kMost = 4096;
    const bool one = x.dims[axis] == Dim::Of(1) || x.dims[axis] == Dim::Users();
    const bool number = times.IsConst() && times.value() >= 1 && times.value() <= kMost;
    const bool rows = !times.IsConst() && !times.IsUnknown();
    const bool of_rows = !x.dims[axis].IsConst() && !x.dims[axis].IsUnknown();
    if (!(number || rows) || (!one && !x.dims[axis].IsConst() && !(number && of_rows))) {
      return Unimplemented("repeats axis ", axis, " of shape ", DimsText(x.dims), " ",
                           times.ToString(), " times",
                           of_rows && rows ? "; --user_inputs tells the user's one row" : "");
    }
    if (one) {
      x.dims[axis] = times;
      continue;
    }
    if (rows || of_rows) {  // All of it for each row, or of all rows, once more.
      Dims merged = x.dims;
      merged[axis] = Multiply(times, merged[axis]);
      x = WithAxis(std::move(x), axis);
      x.dims[axis] = times;
      ASSIGN_OR_RETURN(x, Reshaped(node, x, std::move(merged)));
      continue;
    }
    ASSIGN_OR_RETURN(const std::string once, node.graph.PlainAlong(x, {axis}));
    const std::vector<std::string> pieces(static_cast<size_t>(times.value()), once);
    ASSIGN_OR_RETURN(const std::string joined, Joined(node, "repeated", pieces, axis));
    Dims dims = x.dims;
    dims[axis] = Dim::Of(dims[axis].value() * times.value());
    x = node.graph.Whole(joined, std::move(dims));
  }
  x.dims = OneUserBesideAds(std::move(x.dims));
  node.Set(x);
  return absl::OkStatus();
}

// ---------------------------------------------------------------------------------- Concat

// Repeats what has to be repeated to the shape of a value that has it in full, if there is one.
absl::StatusOr<std::string> FullLike(OnnxNode& node, const OnnxValue& x,
                                     const std::vector<OnnxValue>& values, const Dims& dims) {
  OnnxValue wanted = x;
  wanted.dims = dims;
  ASSIGN_OR_RETURN(const std::string plain, node.graph.Plain(wanted));
  const OnnxValue now = node.graph.Whole(plain, dims);
  bool repeated = false;
  for (int axis = 0; axis < now.rank(); ++axis) repeated |= node.graph.IsRepeated(now, axis);
  if (!repeated) return plain;
  for (const OnnxValue& other : values) {
    const Shape& shape = node.builder().Find(other.tensor)->shape;
    if (Dims(shape.dims().begin(), shape.dims().end()) != dims) continue;
    ASSIGN_OR_RETURN(const std::string like, node.graph.Plain(other));
    const std::string out = node.Scratch("repeated");
    RETURN_IF_ERROR(AddPlain(node.builder(), "broadcast_to_layer", out, {plain, like}, out));
    return out;
  }
  return node.graph.Full(wanted);
}

// The shape that all share beside the axis along which they are joined: what any of them has in
// full.
absl::StatusOr<Dims> CommonDims(const std::vector<OnnxValue>& values) {
  Dims common = values[0].dims;
  for (const OnnxValue& x : values) {
    if (x.dims.size() != common.size()) {
      return InvalidArgument("shapes ", DimsText(values[0].dims), " and ", DimsText(x.dims),
                             " have different ranks");
    }
    for (size_t d = 0; d < common.size(); ++d) {
      if (x.dims[d].IsAds()) common[d] = x.dims[d];
    }
  }
  return OneUserBesideAds(std::move(common));
}

// Whether the values are columns, some of the ads and some that the ads share.
bool AreSharedColumns(OnnxNode& node, const std::vector<OnnxValue>& values, int axis,
                      const Dims& common) {
  if (common.size() != 2 || axis != 1 || !common[0].IsAds()) return false;
  bool some_shared = false, some_per_ad = false;
  for (const OnnxValue& x : values) {
    const bool repeated = node.graph.IsRepeated(x, 0);
    some_shared |= repeated || node.graph.IsRepeated(x, 1) || x.dims[0] != common[0];
    some_per_ad |= !repeated && x.dims[0].IsAds();
  }
  return some_shared && some_per_ad;
}

// Sets the node's output: the values side by side.
absl::Status JoinValues(OnnxNode& node, std::vector<OnnxValue> values, int axis) {
  ASSIGN_OR_RETURN(Dims common, CommonDims(values));
  if (common[axis] == Dim::Users()) {
    // One row of each value, side by side behind the row that all have.
    for (OnnxValue& x : values) {
      const int behind = axis + (x.dims[axis].IsUsers() ? 1 : 0);
      x = WithAxis(std::move(x), behind);
    }
    RETURN_IF_ERROR(JoinValues(node, std::move(values), axis + 1));
    node.Set(WithoutAxis(*node.graph.FindValue(node.output()), axis));
    return absl::OkStatus();
  }
  if (const int rows = RowAxis(common); rows > 0 && rows != axis) {  // They are to be in front.
    for (OnnxValue& x : values) x = MoveAxis(std::move(x), rows, 0);
    RETURN_IF_ERROR(JoinValues(node, std::move(values), axis < rows ? axis + 1 : axis));
    node.Set(MoveAxis(*node.graph.FindValue(node.output()), 0, rows));
    return absl::OkStatus();
  }
  for (const OnnxValue& x : values) {
    for (int d = 0; d < x.rank(); ++d) {
      const bool fits = d == axis || !common[d].IsAds() || !x.dims[d].IsConst();
      if (!fits)
        return ExampleRows(
            absl::StrCat("joins shapes ", DimsText(x.dims), " and ", DimsText(common)));
    }
  }
  if (AreSharedColumns(node, values, axis, common)) {
    const std::string out = node.Top();
    RETURN_IF_ERROR(JoinColumns(node.graph, values, node.name, out));
    int64_t columns = 0;
    for (const OnnxValue& x : values) columns += x.dims[1].value();
    node.Set(out, {common[0], Dim::Of(columns)});
    return absl::OkStatus();
  }
  std::vector<std::string> tensors;
  Dim total = Dim::Of(0);
  for (const OnnxValue& x : values) {
    Dims dims = common;
    dims[axis] = x.dims[axis];
    ASSIGN_OR_RETURN(std::string tensor, FullLike(node, x, values, dims));
    tensors.push_back(std::move(tensor));
    if (!dims[axis].IsConst()) {
      return Unimplemented(
          "joins rows of the request; heads of attention that are stacked so are taken apart by "
          "chunk(k, dim=0), not by split()");
    }
    total = Dim::Of(total.value() + dims[axis].value());
  }
  const std::string out = node.Top();
  RETURN_IF_ERROR(AddConcat(node.builder(), node.name, tensors, axis, out));
  common[axis] = total;
  node.Set(out, common);
  return absl::OkStatus();
}

absl::Status Concat(OnnxNode& node) {
  std::vector<OnnxValue> values;
  for (int i = 0; i < node.node.input_size(); ++i) {
    if (node.constant(i) != nullptr && IsEmpty(*node.constant(i))) continue;
    ASSIGN_OR_RETURN(OnnxValue x, node.value(i));
    const bool last = i + 1 == node.node.input_size();
    const bool none = absl::c_linear_search(x.dims, Dim::Of(0));
    if (!none || (last && values.empty())) values.push_back(std::move(x));
  }
  if (values.empty()) {
    node.graph.Define(node.output(), *node.constant(0));
    return absl::OkStatus();
  }
  if (values.size() == 1) {
    node.Set(values[0]);
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const int axis, WantAxis(IntAttribute(node.node, "axis", 0), values[0].rank()));
  const int front = AdsAxis(values[0].dims);
  const auto has_front = [&](const OnnxValue& x) { return AdsAxis(x.dims) == front; };
  if (front > 0 && axis > front && absl::c_all_of(values, has_front)) {
    for (OnnxValue& x : values) x = WithoutFront(std::move(x), front);
    RETURN_IF_ERROR(JoinValues(node, std::move(values), axis - front));
    node.Set(WithFront(*node.graph.FindValue(node.output()), front));
    return absl::OkStatus();
  }
  // Views of tensors that all have the same other order are joined in that: nothing is moved.
  const std::vector<int> order = TensorOrder(node.graph, values[0]), back = Inverse(order);
  const auto has_order = [&](const OnnxValue& x) { return TensorOrder(node.graph, x) == order; };
  if (order.empty() || order[0] != 0 || !absl::c_all_of(values, has_order)) {
    return JoinValues(node, std::move(values), axis);
  }
  for (OnnxValue& x : values) x = Reordered(x, order);
  RETURN_IF_ERROR(JoinValues(node, std::move(values), back[axis]));
  node.Set(Reordered(*node.graph.FindValue(node.output()), back));
  return absl::OkStatus();
}

// ---------------------------------------------------------------------------------- cuts

// The axis of which Slice takes the first entries, up to `end`; -1: it takes others.
int AxisUpTo(const OnnxNode& node, const OnnxValue& x, const Dim& end) {
  const auto is = [&](int input, const Dim& wanted) {
    const Constant* const c = node.constant(input);
    return c != nullptr && !c->is_float && c->elements() == 1 && c->dim(0) == wanted;
  };
  if (!is(1, Dim::Of(0)) || !is(2, end) || (node.Has(4) && !is(4, Dim::Of(1)))) return -1;
  for (int axis = 0; axis < x.rank(); ++axis) {
    if (is(3, Dim::Of(axis)) || is(3, Dim::Of(axis - x.rank()))) return axis;
  }
  return -1;
}

// The first entries of an axis, as many as the request has ads: those that its rows' numbers pick.
absl::Status TakeOnePerAd(OnnxNode& node, int axis) {
  const std::string numbers = node.Scratch("numbers");
  ASSIGN_OR_RETURN(OnnxValue value, node.graph.AdNumbers());
  NoteRows(node, value.dims, {0});
  node.graph.Define(numbers, std::move(value));
  onnx::NodeProto gather;
  gather.set_op_type("Gather");
  gather.add_input(node.node.input(0));
  gather.add_input(numbers);
  gather.add_output(node.output());
  SetInt(gather, "axis", axis);
  OnnxNode part = node.With(gather);
  return FindOnnxType("Gather")->convert(part);
}

absl::Status Slice(OnnxNode& node) {
  ASSIGN_OR_RETURN(OnnxValue x, node.value(0));
  if (x.rank() > 0 && !x.dims[0].IsUnknown() && AxisUpTo(node, x, x.dims[0]) == 0) {
    node.Set(x);  // chunk() in one piece, as ghost batches are.
    return absl::OkStatus();
  }
  if (const int axis = AxisUpTo(node, x, Dim::Ads()); axis >= 0 && x.dims[axis].IsConst()) {
    return TakeOnePerAd(node, axis);
  }
  ASSIGN_OR_RETURN(const std::vector<int64_t> starts, Integers(node, 1, "starts"));
  ASSIGN_OR_RETURN(const std::vector<int64_t> ends, Integers(node, 2, "ends"));
  ASSIGN_OR_RETURN(const std::vector<int64_t> axes, Integers(node, 3, "axes"));
  ASSIGN_OR_RETURN(const std::vector<int64_t> steps, Integers(node, 4, "steps"));
  for (const auto* list : {&ends, &axes, &steps}) {
    if (list->size() == starts.size() || (list != &ends && list->empty())) continue;
    return InvalidArgument("starts, ends, axes and steps have different lengths");
  }
  for (size_t i = 0; i < starts.size(); ++i) {
    ASSIGN_OR_RETURN(const int axis,
                     WantAxis(axes.empty() ? static_cast<int64_t>(i) : axes[i], x.rank()));
    const int64_t step = steps.empty() ? 1 : steps[i];
    constexpr int64_t kEverything = int64_t{1}
                                    << 30;  // Exporters write at least this for "the end".
    if (starts[i] == 0 && ends[i] >= kEverything && step == 1) continue;
    if (x.dims[axis].IsAds() && starts[i] == -1 && ends[i] <= -kEverything && step == -1) {
      ASSIGN_OR_RETURN(x, Reversed(node, x, axis));
      continue;
    }
    RETURN_IF_ERROR(WantNumber(x, axis));
    const int64_t size = x.dims[axis].value();
    ASSIGN_OR_RETURN(const SliceRange range, RangeOf(starts[i], ends[i], step, size));
    if (range.count == 0) {
      x.dims[axis] = Dim::Of(0);
      node.graph.Define(node.output(), EmptyConstant(x.dims));
      return absl::OkStatus();
    }
    if (range.count == size && step == 1) continue;
    std::vector<int64_t> picks;
    for (int64_t p = 0; p < range.count; ++p) picks.push_back(range.begin + p * range.step);
    const bool last = i + 1 == starts.size();
    ASSIGN_OR_RETURN(x, PickAlong(node, x, axis, picks, last ? node.Top() : node.Scratch("cut")));
  }
  node.Set(x);
  return absl::OkStatus();
}

absl::Status Split(OnnxNode& node) {
  ASSIGN_OR_RETURN(const OnnxValue x, node.value(0));
  ASSIGN_OR_RETURN(const int axis, WantAxis(IntAttribute(node.node, "axis", 0), x.rank()));
  ASSIGN_OR_RETURN(std::vector<int64_t> parts, Integers(node, 1, "split"));
  RETURN_IF_ERROR(WantNumber(x, axis));
  ASSIGN_OR_RETURN(parts,
                   SplitSizes(std::move(parts), node.node.output_size(), x.dims[axis].value()));
  int64_t begin = 0;
  for (int i = 0; i < node.node.output_size(); ++i) {
    if (parts[i] == 0) {
      Dims dims = x.dims;
      dims[axis] = Dim::Of(0);
      node.graph.Define(node.output(i), EmptyConstant(std::move(dims)));
      continue;
    }
    std::vector<int64_t> places(static_cast<size_t>(parts[i]));
    std::iota(places.begin(), places.end(), begin);
    ASSIGN_OR_RETURN(OnnxValue part, PickAlong(node, x, axis, places, node.Top(i)));
    node.Set(std::move(part), i);
    begin += parts[i];
  }
  return absl::OkStatus();
}

// Sums of the entries up to each one.
absl::Status CumSum(OnnxNode& node) {
  ASSIGN_OR_RETURN(OnnxValue x, node.value(0));
  ASSIGN_OR_RETURN(const std::vector<int64_t> axes, Integers(node, 1, "axis"));
  if (axes.size() != 1) return InvalidArgument("want an axis");
  ASSIGN_OR_RETURN(const int axis, WantAxis(axes[0], x.rank()));
  const bool reverse = IntAttribute(node.node, "reverse", 0) != 0;
  const bool exclusive = IntAttribute(node.node, "exclusive", 0) != 0;
  const bool over_rows = x.dims[axis].IsAds() && !exclusive;
  NoteRows(node, x.dims, {axis});
  if (!over_rows) RETURN_IF_ERROR(WantNoRows(x, axis));
  const int64_t n = x.dims[axis].value();
  constexpr int64_t kMost = 4096;
  if (n > kMost) return Unimplemented("over ", n, " entries");
  if (reverse) {
    ASSIGN_OR_RETURN(x, Reversed(node, x, axis));
  }
  if (exclusive) {  // Up to the one before.
    ASSIGN_OR_RETURN(x, Padded(node, x, axis, 1, 0));
    std::vector<int64_t> places(static_cast<size_t>(n));
    std::iota(places.begin(), places.end(), 0);
    ASSIGN_OR_RETURN(x, PickAlong(node, x, axis, places, node.Scratch("before")));
  }
  const int rows = RowAxis(x.dims), along = over_rows ? 0 : axis < rows ? axis + 1 : axis;
  x = MoveAxis(std::move(x), rows, 0);
  ASSIGN_OR_RETURN(const std::string in, node.graph.PlainAlong(x, {along}));
  const std::string out = reverse ? node.Scratch("sums") : node.Top();
  ulf::LayerParameter layer = MakeLayer("sum_layer", node.name, {in}, out);
  layer.mutable_sum_param()->add_dim(along);
  layer.mutable_sum_param()->set_function(ulf::SumParameter::CUMULATIVE_SUM);
  RETURN_IF_ERROR(node.builder().AddLayer(std::move(layer)));
  OnnxValue y = MoveAxis(node.graph.Whole(out, x.dims), 0, rows);
  if (reverse) {
    ASSIGN_OR_RETURN(y, Reversed(node, y, axis));
  }
  node.Set(std::move(y));
  return absl::OkStatus();
}

// Where each entry of a padded axis comes from; -1: from outside.
absl::StatusOr<std::vector<int64_t>> PaddedPlaces(const std::string& mode, int64_t size,
                                                  int64_t before, int64_t behind) {
  constexpr int64_t kMost = 1 << 16;
  if (std::abs(before) > kMost || std::abs(behind) > kMost || size + before + behind < 1) {
    return Unimplemented("pads of ", before, " and ", behind);
  }
  std::vector<int64_t> places;
  for (int64_t at = -before; at < size + behind; ++at) {
    const bool outside = at < 0 || at >= size;
    int64_t place = outside ? -1 : at;
    if (outside && mode == "edge") place = at < 0 ? 0 : size - 1;
    if (outside && mode == "reflect") place = at < 0 ? -at : 2 * (size - 1) - at;
    if (place >= size || (place < 0 && mode != "constant")) {
      return Unimplemented("reflects more than there is");
    }
    places.push_back(place);
  }
  return places;
}

absl::Status Pad(OnnxNode& node) {
  ASSIGN_OR_RETURN(OnnxValue x, node.value(0));
  ASSIGN_OR_RETURN(const std::vector<int64_t> pads, Integers(node, 1, "pads"));
  ASSIGN_OR_RETURN(std::vector<int64_t> axes, Integers(node, 3, "axes"));
  for (int64_t axis = 0; !node.Has(3) && axis < x.rank(); ++axis) axes.push_back(axis);
  if (pads.size() != 2 * axes.size()) return InvalidArgument("pads of another length");
  const std::string mode = StringAttribute(node.node, "mode", "constant");
  if (mode != "constant" && mode != "edge" && mode != "reflect") {
    return Unimplemented("mode ", mode);
  }
  float fill = FloatAttribute(node.node, "value", 0);
  if (node.Has(2)) {
    if (node.constant(2) == nullptr) return Unimplemented("a value that is computed");
    ASSIGN_OR_RETURN(const std::vector<float> values, node.constant(2)->ToFloats());
    if (values.size() != 1) return InvalidArgument("want one value");
    fill = values[0];
  }
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t before = pads[i], behind = pads[i + axes.size()];
    if (before == 0 && behind == 0) continue;
    ASSIGN_OR_RETURN(const int axis, WantAxis(axes[i], x.rank()));
    RETURN_IF_ERROR(WantNoRows(x, axis));
    const int64_t size = x.dims[axis].value();
    ASSIGN_OR_RETURN(const std::vector<int64_t> places, PaddedPlaces(mode, size, before, behind));
    // What is inside, cut or repeated; then what is outside beside it.
    std::vector<int64_t> inside;
    std::copy_if(places.begin(), places.end(), std::back_inserter(inside),
                 [](int64_t place) { return place >= 0; });
    if (inside.empty()) return Unimplemented("leaves nothing of an axis");
    ASSIGN_OR_RETURN(x, PickAlong(node, x, axis, inside, node.Scratch("inside")));
    if (inside.size() == places.size()) continue;
    // A size that is cut is negative.
    ASSIGN_OR_RETURN(
        x, Padded(node, x, axis, std::max<int64_t>(0, before), std::max<int64_t>(0, behind), fill));
  }
  node.Set(x);
  return absl::OkStatus();
}

constexpr OnnxType kTypes[] = {
    {"Reshape", &Reshape},     {"Flatten", &Flatten},     {"Squeeze", &Squeeze},
    {"Unsqueeze", &Unsqueeze}, {"Transpose", &Transpose}, {"Expand", &Expand},
    {"Concat", &Concat},       {"Slice", &Slice},         {"Split", &Split},
    {"Tile", &Tile},           {"CumSum", &CumSum},       {"Pad", &Pad},
};

}  // namespace

absl::Span<const OnnxType> ShapeOnnxTypes() { return kTypes; }

}  // namespace ulfd::convert

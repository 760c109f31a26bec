// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/onnx/operators/layers.h"

#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "tools/convert/recipes.h"

namespace ulfd::convert {

using engine::Dim;

absl::Status WantNumber(const OnnxValue& x, int axis) {
  if (x.dims[axis].IsConst() || x.dims[axis] == Dim::Users()) return absl::OkStatus();
  return Unimplemented("cuts along axis ", axis, " of shape ", DimsText(x.dims),
                       ", which depends on the request");
}

absl::Status WantNoRows(const OnnxValue& x, int axis) {
  if (x.dims[axis].IsConst() || x.dims[axis] == Dim::Users()) return absl::OkStatus();
  return Unimplemented("runs along axis ", axis, " of shape ", DimsText(x.dims),
                       ", across rows of the request");
}

int RowAxis(const Dims& dims) {
  const auto rows =
      std::find_if(dims.begin(), dims.end(), [](const Dim& d) { return !d.IsConst(); });
  return rows == dims.end() ? 0 : static_cast<int>(rows - dims.begin());
}

int AdsAxis(const Dims& dims) {
  const auto ads = std::find_if(dims.begin(), dims.end(), [](const Dim& d) { return d.IsAds(); });
  const auto one = [](const Dim& d) { return d == Dim::Of(1) || d == Dim::Users(); };
  const bool only_ones = ads != dims.end() && std::all_of(dims.begin(), ads, one);
  return only_ones ? static_cast<int>(ads - dims.begin()) : 0;
}

namespace {

// The order of axes that has the ads' in front; empty: as they are.
std::vector<int> AdsFirst(const Dims& dims) {
  std::vector<int> order(dims.size());
  std::iota(order.begin(), order.end(), 0);
  const int ads = AdsAxis(dims);
  if (ads == 0) return {};
  std::rotate(order.begin(), order.begin() + ads, order.begin() + ads + 1);
  return order;
}

}  // namespace

std::vector<int> TensorOrder(const OnnxGraph& graph, const OnnxValue& x) {
  std::vector<int> order, of_one;
  for (int axis = 0; axis < x.rank(); ++axis) {
    const bool added = x.axes[axis] < 0 && x.dims[axis] == Dim::Of(1);
    if (!added && (x.axes[axis] < 0 || graph.IsRepeated(x, axis))) return AdsFirst(x.dims);
    (added ? of_one : order).push_back(axis);
  }
  std::sort(order.begin(), order.end(), [&](int a, int b) { return x.axes[a] < x.axes[b]; });
  if (order.empty() || x.dims[order[0]].IsConst()) return AdsFirst(x.dims);
  if (std::is_sorted(order.begin(), order.end())) return {};
  order.insert(order.begin() + 1, of_one.begin(), of_one.end());
  return order;
}

OnnxValue Reordered(const OnnxValue& x, const std::vector<int>& order) {
  OnnxValue y{.tensor = x.tensor};
  for (const int axis : order) {
    y.dims.push_back(x.dims[axis]);
    y.axes.push_back(x.axes[axis]);
  }
  return y;
}

std::vector<int> Inverse(const std::vector<int>& order) {
  std::vector<int> inverse(order.size());
  for (size_t i = 0; i < order.size(); ++i) inverse[order[i]] = static_cast<int>(i);
  return inverse;
}

OnnxValue WithAxis(OnnxValue x, int axis) {
  x.dims.insert(x.dims.begin() + axis, Dim::Of(1));
  x.axes.insert(x.axes.begin() + axis, -1);
  return x;
}

OnnxValue WithoutAxis(OnnxValue x, int axis) {
  x.dims.erase(x.dims.begin() + axis);
  x.axes.erase(x.axes.begin() + axis);
  return x;
}

OnnxValue WithFront(OnnxValue x, int count) {
  x.dims.insert(x.dims.begin(), static_cast<size_t>(count), Dim::Of(1));
  x.axes.insert(x.axes.begin(), static_cast<size_t>(count), -1);
  return x;
}

OnnxValue WithoutFront(OnnxValue x, int count) {
  x.dims.erase(x.dims.begin(), x.dims.begin() + count);
  x.axes.erase(x.axes.begin(), x.axes.begin() + count);
  return x;
}

absl::StatusOr<std::string> Computed(OnnxNode& node, absl::string_view what,
                                     absl::string_view expression,
                                     absl::Span<const std::string> in) {
  std::string out = node.Scratch(what);
  RETURN_IF_ERROR(AddExpression(node.builder(), out, expression, in, out));
  return out;
}

absl::StatusOr<std::string> Squared(OnnxNode& node, const std::string& in) {
  std::string out = node.Scratch("squares");
  RETURN_IF_ERROR(AddPlain(node.builder(), "multiply_layer", out, {in, in}, out));
  return out;
}

absl::StatusOr<std::string> Sized(OnnxNode& node, absl::string_view what, const std::string& in,
                                  absl::Span<const int64_t> sizes) {
  std::string out = node.Scratch(what);
  RETURN_IF_ERROR(AddReshape(node.builder(), out, in, sizes, out));
  return out;
}

absl::StatusOr<std::string> CutOut(OnnxNode& node, absl::string_view what, const std::string& in,
                                   int axis, int64_t begin, int64_t length) {
  std::string out = node.Scratch(what);
  RETURN_IF_ERROR(AddSlice(node.builder(), out, in, axis, begin, length, out));
  return out;
}

absl::StatusOr<std::string> Joined(OnnxNode& node, absl::string_view what,
                                   absl::Span<const std::string> in, int axis) {
  std::string out = node.Scratch(what);
  RETURN_IF_ERROR(AddConcat(node.builder(), out, in, axis, out));
  return out;
}

absl::Status SetComputed(OnnxNode& node, absl::string_view expression,
                         absl::Span<const std::string> in, const Dims& dims) {
  const std::string out = node.Top();
  RETURN_IF_ERROR(AddExpression(node.builder(), node.name, expression, in, out));
  node.Set(out, dims);
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReduceAlong(OnnxNode& node, std::string tensor,
                                        const std::vector<int>& axes, const std::string& name,
                                        const std::string& out,
                                        ulf::SumParameter::Function function) {
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
    const bool last = axis + 1 == axes.rend();
    const std::string top = last ? out : node.Scratch("sum");
    if (node.builder().Find(tensor)->shape.rank() == 1) {
      ASSIGN_OR_RETURN(tensor, Sized(node, "column", tensor, {0, 1}));
    }
    ulf::LayerParameter layer = MakeLayer("sum_layer", last ? name : top, {tensor}, top);
    layer.mutable_sum_param()->add_dim(*axis);
    if (function != ulf::SumParameter::SUM) layer.mutable_sum_param()->set_function(function);
    RETURN_IF_ERROR(node.builder().AddLayer(std::move(layer)));
    tensor = top;
  }
  return tensor;
}

OnnxValue Reduced(OnnxNode& node, const std::string& tensor, Dims dims,
                  const std::vector<int>& axes) {
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) dims.erase(dims.begin() + *axis);
  OnnxValue y = node.graph.Whole(tensor, std::move(dims));
  for (const int axis : axes) y = WithAxis(std::move(y), axis);
  return y;
}

absl::StatusOr<OnnxValue> ReduceAxes(OnnxNode& node, OnnxValue x, std::vector<int> axes,
                                     ulf::SumParameter::Function function) {
  const std::vector<int> order = TensorOrder(node.graph, x), back = Inverse(order);
  if (!order.empty()) {
    x = Reordered(x, order);
    for (int& axis : axes) axis = back[axis];
    std::sort(axes.begin(), axes.end());
  }
  ASSIGN_OR_RETURN(const std::string in, node.graph.PlainAlong(x, axes));
  ASSIGN_OR_RETURN(const std::string out,
                   ReduceAlong(node, in, axes, node.name, node.Top(), function));
  const OnnxValue y = Reduced(node, out, x.dims, axes);
  return order.empty() ? y : Reordered(y, back);
}

absl::StatusOr<Count> CountAlong(OnnxNode& node, const Dims& dims, const std::vector<int>& axes) {
  Count count;
  for (const int axis : axes) {
    if (dims[axis].IsUnknown()) return Unimplemented("counts what is not known");
    count.number *= static_cast<double>(dims[axis].value());
    if (dims[axis].IsAds()) {
      ASSIGN_OR_RETURN(count.rows, node.graph.AdCount());
    }
  }
  return count;
}

void NoteRows(OnnxNode& node, const Dims& dims, const std::vector<int>& axes) {
  for (const int axis : axes) {
    if (!dims[axis].IsAds()) continue;
    node.across_rows = true;
    node.note = "across rows: requests are scored whole";
  }
}

absl::StatusOr<std::string> AddPlaces(OnnxNode& node, int64_t count, int behind) {
  std::vector<int64_t> sizes = {count};
  sizes.resize(static_cast<size_t>(behind) + 1, 1);
  std::vector<float> places(static_cast<size_t>(count));
  std::iota(places.begin(), places.end(), 0.0f);
  std::string out = node.Scratch("places");
  RETURN_IF_ERROR(AddConstant(node.builder(), out, MakeBlob(sizes, places), out));
  return out;
}

absl::StatusOr<OnnxValue> DenseOf(OnnxNode& node, const OnnxValue& x, const Dense& dense,
                                  const std::string& name, const std::string& out) {
  const int last = x.rank() - 1;
  if (x.rank() < 2) return Unimplemented("a product with a vector");
  if (const int front = AdsAxis(x.dims); front > 0 && front < last) {
    ASSIGN_OR_RETURN(OnnxValue y, DenseOf(node, WithoutFront(x, front), dense, name, out));
    return WithFront(std::move(y), front);
  }
  if (const std::vector<int> order = TensorOrder(node.graph, x);
      !order.empty() && order.back() == last) {
    ASSIGN_OR_RETURN(const OnnxValue y, DenseOf(node, Reordered(x, order), dense, name, out));
    return Reordered(y, Inverse(order));
  }
  if (x.dims[last] != Dim::Of(dense.k())) {
    return InvalidArgument("input of shape ", DimsText(x.dims), ", want ", dense.k(),
                           " columns for the weight");
  }
  ASSIGN_OR_RETURN(std::string in, node.graph.PlainAlong(x, {last}));
  GraphBuilder& builder = node.builder();
  Dims dims = x.dims;
  dims[last] = Dim::Of(dense.n());
  std::vector<int64_t> back;
  if (x.rank() > 3) {  // inner_product_layer reads rank 2 and 3.
    const engine::Shape& shape = builder.Find(in)->shape;
    ASSIGN_OR_RETURN(back, ReshapeSizes(shape, Dims(shape.dims().begin(), shape.dims().end())));
    back[last] = dense.n();
    const std::string flat = node.Scratch("flat");
    RETURN_IF_ERROR(AddReshape(builder, absl::StrCat(name, "/flat"), in, {0, -1, dense.k()}, flat));
    in = flat;
  }
  const std::string product = back.empty() ? out : node.Scratch("product");
  ulf::LayerParameter layer = MakeLayer("inner_product_layer", name, {in}, product);
  layer.mutable_inner_product_param()->set_transpose(dense.transposed);
  layer.mutable_inner_product_param()->set_bias_term(!dense.bias.empty());
  std::vector<ulf::BlobData> weights = {MakeBlob(dense.sizes, dense.weight)};
  if (!dense.bias.empty()) weights.push_back(MakeBlob({dense.n()}, dense.bias));
  RETURN_IF_ERROR(builder.AddLayer(std::move(layer), std::move(weights)));
  if (!back.empty()) {
    RETURN_IF_ERROR(AddReshape(builder, absl::StrCat(name, "/shape"), product, back, out));
  }
  return node.graph.Whole(out, dims);
}

absl::Status AddDense(OnnxNode& node, const OnnxValue& x, const Dense& dense) {
  ASSIGN_OR_RETURN(OnnxValue y, DenseOf(node, x, dense, node.name, node.Top()));
  node.Set(std::move(y));
  return absl::OkStatus();
}

absl::Status AddDenseAlong(OnnxNode& node, const OnnxValue& x, int axis, const Dense& dense) {
  RETURN_IF_ERROR(WantNoRows(x, axis));
  const int last = x.rank() - 1;
  RETURN_IF_ERROR(AddDense(node, MoveAxis(x, axis, last), dense));
  node.Set(MoveAxis(*node.graph.FindValue(node.output()), last, axis));
  return absl::OkStatus();
}

namespace {

// Whether a part of the axis is the same tensor: all of it is taken, or all of it is the same.
bool IsUncut(const OnnxNode& node, const OnnxValue& x, int axis, int64_t length) {
  return x.dims[axis] == Dim::Of(length) || x.dims[axis] == Dim::Users(length) ||
         x.axes[axis] < 0 || node.graph.IsRepeated(x, axis);
}

// Cuts the ranges out along an axis of the value, whose rows are in front.  A view stays a view:
// the tensor behind it is cut.
absl::StatusOr<OnnxValue> Cut(OnnxNode& node, const OnnxValue& x, int axis,
                              absl::Span<const Range> ranges, const std::string& out) {
  OnnxValue part = x;
  int64_t count = 0;
  for (const Range& range : ranges) count += range.length;
  part.dims[axis] = Dim::Of(count);
  // Several ranges may have other entries, or another order, than as many in a row.
  if (IsUncut(node, x, axis, ranges.size() == 1 ? count : 1)) return part;
  RETURN_IF_ERROR(AddSlices(node.builder(), out, part.tensor, part.axes[axis], ranges, out));
  part.tensor = out;
  return part;
}

// Whether the places are those of the whole axis, from the last to the first.
bool AreAllBackwards(const Dim& size, const std::vector<int64_t>& places) {
  const auto n = static_cast<int64_t>(places.size());
  bool backwards = n > 2 && size == Dim::Of(n);
  for (int64_t i = 0; backwards && i < n; ++i) {
    const int64_t place = places[static_cast<size_t>(i)];
    backwards = (place < 0 ? place + n : place) == n - 1 - i;
  }
  return backwards;
}

absl::StatusOr<OnnxValue> Turned(OnnxNode& node, OnnxValue x, int axis, const std::string& out) {
  ulf::LayerParameter layer = MakeLayer("reverse_layer", out, {x.tensor}, out);
  layer.mutable_reverse_param()->add_axis(x.axes[axis]);
  RETURN_IF_ERROR(node.builder().AddLayer(std::move(layer)));
  x.tensor = out;
  return x;
}

}  // namespace

absl::StatusOr<int64_t> WantPlace(int64_t place, int64_t size) {
  if (place >= -size && place < size) return place < 0 ? place + size : place;
  return InvalidArgument("index ", place, " of ", size, " entries, want ", -size, " to ", size - 1);
}

absl::StatusOr<OnnxValue> PickAlong(OnnxNode& node, const OnnxValue& x, int axis,
                                    const std::vector<int64_t>& places, const std::string& out) {
  ASSIGN_OR_RETURN(const OnnxValue from, node.graph.RowsInFront(x));
  if (from.axes[axis] > 0 && !IsUncut(node, x, axis, 1) && AreAllBackwards(x.dims[axis], places)) {
    return Turned(node, from, axis, out);
  }
  std::vector<Range> ranges;
  for (const int64_t place : places) {
    // Neighbours are cut together.
    ASSIGN_OR_RETURN(const int64_t at, WantPlace(place, x.dims[axis].value()));
    if (!ranges.empty() && ranges.back().begin + ranges.back().length == at) {
      ++ranges.back().length;
    } else {
      ranges.push_back({at, 1});
    }
  }
  ASSIGN_OR_RETURN(OnnxValue part, Cut(node, from, axis, ranges, out));
  part.dims[axis] = Dim::Of(static_cast<int64_t>(places.size()));
  return part;
}

absl::StatusOr<OnnxValue> Reversed(OnnxNode& node, const OnnxValue& x, int axis) {
  NoteRows(node, x.dims, {axis});
  if (x.axes[axis] < 0 || node.graph.IsRepeated(x, axis)) return x;
  return Turned(node, x, axis, node.Scratch("reversed"));
}

absl::StatusOr<std::string> Scattered(OnnxNode& node, std::array<OnnxValue, 3> x_index_update,
                                      int axis, bool add) {
  std::array<std::string, 3> tensors;
  for (size_t i = 0; i < tensors.size(); ++i) {
    OnnxValue& value = x_index_update[i];
    if (value.axes[0] < 0) value.dims[0] = Dim::Of(1);  // A single row stands for all.
    std::vector<int> before, all;
    bool for_all = i == 1;
    for (int d = 1; d < value.rank(); ++d) {
      all.push_back(d);
      if (d <= axis) before.push_back(d);
      for_all &= d <= axis || value.dims[d] == Dim::Of(1) || node.graph.IsRepeated(value, d);
    }
    ASSIGN_OR_RETURN(tensors[i], node.graph.PlainAlong(value, for_all ? before : all));
  }
  const std::string out = node.Top();
  RETURN_IF_ERROR(AddScatter(node.builder(), node.name, tensors, axis, add, out));
  return out;
}

absl::StatusOr<OnnxValue> Padded(OnnxNode& node, const OnnxValue& x, int axis, int64_t before,
                                 int64_t behind, float fill) {
  if (before == 0 && behind == 0) return x;
  if (const std::vector<int> order = TensorOrder(node.graph, x); !order.empty()) {
    const std::vector<int> back = Inverse(order);
    ASSIGN_OR_RETURN(const OnnxValue y,
                     Padded(node, Reordered(x, order), back[axis], before, behind, fill));
    return Reordered(y, back);
  }
  std::vector<std::string> parts;
  const auto add_outside = [&](int64_t count) -> absl::Status {
    if (count == 0) return absl::OkStatus();
    Constant constant = FloatConstant({}, {fill});
    constant.uniform = true;
    constant.dims = x.dims;
    constant.dims[axis] = Dim::Of(count);
    ASSIGN_OR_RETURN(const OnnxValue value, node.graph.ValueOf(constant, node.Scratch("outside")));
    ASSIGN_OR_RETURN(parts.emplace_back(), node.graph.Full(value));
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(add_outside(before));
  ASSIGN_OR_RETURN(parts.emplace_back(), node.graph.Full(x));
  RETURN_IF_ERROR(add_outside(behind));
  ASSIGN_OR_RETURN(const std::string joined, Joined(node, "padded", parts, axis));
  Dims dims = x.dims;
  dims[axis] = Dim::Of(x.dims[axis].value() + before + behind);
  return node.graph.Whole(joined, std::move(dims));
}

absl::Status JoinColumns(OnnxGraph& graph, const std::vector<OnnxValue>& values,
                         const std::string& name, const std::string& out) {
  struct Part {
    std::vector<std::string> tensors;
    bool per_ad = false;
  };
  GraphBuilder& builder = graph.builder();
  std::vector<Part> parts;
  for (const OnnxValue& x : values) {
    ASSIGN_OR_RETURN(const std::string tensor, graph.PlainAlong(x, {1}));
    const bool per_ad = builder.Find(tensor)->shape[0].IsAds();
    if (parts.empty() || parts.back().per_ad != per_ad) parts.push_back({{}, per_ad});
    parts.back().tensors.push_back(tensor);
  }
  if (parts.size() == 1) return AddConcat(builder, name, parts[0].tensors, 1, out);
  std::vector<std::string> joined;
  for (const Part& part : parts) {
    joined.push_back(part.tensors[0]);
    if (part.tensors.size() == 1) continue;
    joined.back() = builder.FreshTensor(absl::StrCat(out, part.per_ad ? "/ads" : "/user"));
    RETURN_IF_ERROR(AddConcat(builder, joined.back(), part.tensors, 1, joined.back()));
  }
  std::string left = joined[0];
  for (size_t i = 1; i < parts.size(); ++i) {
    // Only one of the two sides may have a row per ad; the left one does from the second part on.
    const bool left_per_ad = i > 1 || parts[0].per_ad;
    const bool last = i + 1 == parts.size();
    const std::string top = last ? out : builder.FreshTensor(absl::StrCat(out, "/fused"));
    if (left_per_ad && parts[i].per_ad) {
      RETURN_IF_ERROR(AddConcat(builder, last ? name : top, {left, joined[i]}, 1, top));
    } else {
      ulf::LayerParameter fuse = MakeLayer("fuse_layer", last ? name : top, {left, joined[i]}, top);
      fuse.mutable_fuse_param()->add_common_input_index(left_per_ad ? 1 : 0);
      RETURN_IF_ERROR(builder.AddLayer(std::move(fuse)));
    }
    left = top;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int64_t>> Integers(const OnnxNode& node, int input,
                                              const char* attribute) {
  if (!node.Has(input)) return IntsAttribute(node.node, attribute);
  const Constant* constant = node.constant(input);
  if (constant == nullptr) {
    return Unimplemented(attribute, " that are computed");
  }
  return constant->ToInts();
}

absl::StatusOr<OnnxValue> SplitMergedRows(OnnxNode& node, const OnnxValue& x, int axis) {
  Dims dims = x.dims;
  dims[axis] = Dim::Of(x.dims[axis].value());
  dims.insert(dims.begin() + axis, x.dims[axis].IsAds() ? Dim::Ads() : Dim::Users());
  return Reshaped(node, x, std::move(dims));
}

// x of shape `to`, if only dimensions of 1 come or go.
std::optional<OnnxValue> WithOnes(OnnxValue x, const Dims& to) {
  for (int axis = x.rank(); axis-- > 0;) {
    if (x.dims[axis] == Dim::Of(1)) x = WithoutAxis(std::move(x), axis);
  }
  for (int axis = 0; axis < static_cast<int>(to.size()); ++axis) {
    if (to[axis] == Dim::Of(1) && axis <= x.rank()) x = WithAxis(std::move(x), axis);
  }
  return x.dims == to ? std::optional(std::move(x)) : std::nullopt;
}

absl::Status ReshapeTo(OnnxNode& node, const OnnxValue& x, Dims to) {
  if (std::optional<OnnxValue> same = WithOnes(x, to); same.has_value()) {
    node.Set(*std::move(same));
    return absl::OkStatus();
  }
  const auto user = std::find(x.dims.begin(), x.dims.end(), Dim::Users());
  if (user != x.dims.end() && IsNumbers(to)) {  // His row stays in front of the tensor.
    to.insert(to.begin(), Dim::Users());
    const int axis = static_cast<int>(user - x.dims.begin());
    RETURN_IF_ERROR(ReshapeTo(node, MoveAxis(x, axis, 0), std::move(to)));
    node.Set(WithoutAxis(*node.graph.FindValue(node.output()), 0));
    return absl::OkStatus();
  }
  if (const int from = AdsAxis(x.dims), at = AdsAxis(to); from > 0 || at > 0) {
    if (at > 0) std::rotate(to.begin(), to.begin() + at, to.begin() + at + 1);
    RETURN_IF_ERROR(ReshapeTo(node, MoveAxis(x, from, 0), std::move(to)));
    node.Set(MoveAxis(*node.graph.FindValue(node.output()), 0, at));
    return absl::OkStatus();
  }
  // Rows that are only repeated stay so if they stay in front.
  const bool rows_repeated = x.rank() > 0 && node.graph.IsRepeated(x, 0) && !x.dims[0].IsConst();
  std::vector<int> others(static_cast<size_t>(std::max(0, x.rank() - 1)));
  std::iota(others.begin(), others.end(), 1);
  const bool keep_rows = rows_repeated && !to.empty() && to[0] == x.dims[0];
  if (!keep_rows) others.push_back(0);
  if (x.rank() == 0) others.clear();
  ASSIGN_OR_RETURN(const std::string in, node.graph.PlainAlong(x, others));
  const engine::Shape& shape = node.builder().Find(in)->shape;
  Dims own = to;
  if (keep_rows && shape.rank() > 0) own[0] = shape[0];
  ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, ReshapeSizes(shape, own));
  const std::string out = node.Top();
  RETURN_IF_ERROR(AddReshape(node.builder(), node.name, in, sizes, out));
  node.Set(out, std::move(to));
  return absl::OkStatus();
}

absl::StatusOr<OnnxValue> Reshaped(OnnxNode& node, const OnnxValue& x, Dims dims) {
  ASSIGN_OR_RETURN(const std::string in, node.graph.Full(x));
  ASSIGN_OR_RETURN(const std::vector<int64_t> sizes,
                   ReshapeSizes(node.builder().Find(in)->shape, dims));
  ASSIGN_OR_RETURN(const std::string out, Sized(node, "shaped", in, sizes));
  return node.graph.Whole(out, std::move(dims));
}

absl::Status RepeatMergedRows(OnnxNode& node) {
  Dim merged = Dim::Of(1);
  for (const std::string& input : node.node.input()) {
    const OnnxValue* const x = node.graph.FindValue(input);
    const Constant* const constant = node.graph.FindConstant(input);
    for (const Dim& d : x != nullptr ? x->dims : constant != nullptr ? constant->dims : Dims()) {
      if (d.IsAds() && d.value() > 1) merged = d;
    }
  }
  if (!merged.IsAds()) return absl::OkStatus();
  for (const std::string& input : node.node.input()) {
    const OnnxValue* const x = node.graph.FindValue(input);
    if (x == nullptr) continue;
    const auto found = std::find(x->dims.begin(), x->dims.end(), Dim::Users(merged.value()));
    if (found == x->dims.end()) continue;
    const int axis = static_cast<int>(found - x->dims.begin());
    ASSIGN_OR_RETURN(OnnxValue each, SplitMergedRows(node, *x, axis));
    each.dims[axis] = Dim::Ads();
    Dims dims = each.dims;
    dims.erase(dims.begin() + axis);
    dims[axis] = merged;
    ASSIGN_OR_RETURN(OnnxValue repeated, Reshaped(node, each, std::move(dims)));
    node.graph.Define(input, std::move(repeated));
  }
  return absl::OkStatus();
}

const OnnxType* FindOnnxType(const std::string& op) {
  for (const auto table : {ElementwiseOnnxTypes(), MatrixOnnxTypes(), ShapeOnnxTypes(),
                           NormOnnxTypes(), LossOnnxTypes(), ImageOnnxTypes(), ResizeOnnxTypes(),
                           SelectOnnxTypes(), RecurrentOnnxTypes()}) {
    for (const OnnxType& type : table) {
      if (op == type.op) return &type;
    }
  }
  return nullptr;
}

}  // namespace ulfd::convert

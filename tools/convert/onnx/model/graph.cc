// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/onnx/model/graph.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "tools/convert/recipes.h"

namespace ulfd::convert {

using engine::Dim;
using engine::Shape;

absl::StatusOr<std::vector<int64_t>> ReshapeSizes(const Shape& from, const Dims& to) {
  std::vector<int64_t> sizes;
  int open = 0;
  for (int i = 0; i < static_cast<int>(to.size()); ++i) {
    if (to[i].IsConst()) {
      sizes.push_back(to[i].value());
    } else if (i < from.rank() && from[i] == to[i] && !to[i].IsUnknown()) {
      sizes.push_back(0);
    } else {
      sizes.push_back(-1);
      ++open;
    }
  }
  if (open > 1) {
    return InvalidArgument("shape ", DimsText(to), " from ", from.ToString(),
                           ": two dimensions depend on the request");
  }
  return sizes;
}

void OnnxGraph::Define(const std::string& name, Constant constant) {
  constants_[name] = std::move(constant);
}
void OnnxGraph::Define(const std::string& name, OnnxValue value) {
  values_[name] = std::move(value);
}
const Constant* OnnxGraph::FindConstant(const std::string& name) const {
  const auto it = constants_.find(name);
  return it == constants_.end() ? nullptr : &it->second;
}
const OnnxValue* OnnxGraph::FindValue(const std::string& name) const {
  const auto it = values_.find(name);
  return it == values_.end() ? nullptr : &it->second;
}

bool IsShortInteger(int type) {
  return type == onnx::TensorProto::INT8 || type == onnx::TensorProto::UINT8 ||
         type == onnx::TensorProto::INT16 || type == onnx::TensorProto::UINT16;
}

int OnnxGraph::TypeOf(const std::string& name) const {
  const auto it = types_.find(name);
  return it == types_.end() ? 0 : it->second;
}
bool OnnxGraph::IsInteger(const std::string& name) const {
  const int type = TypeOf(name);
  return IsShortInteger(type) || type == onnx::TensorProto::INT64 ||
         type == onnx::TensorProto::INT32 || type == onnx::TensorProto::UINT32 ||
         type == onnx::TensorProto::UINT64;
}
const std::string* OnnxGraph::RoundedFrom(const std::string& name) const {
  const auto it = rounded_.find(name);
  return it == rounded_.end() ? nullptr : &it->second;
}

const IntegerBound* OnnxGraph::BoundOf(const std::string& name) const {
  const auto it = bounds_.find(name);
  return it == bounds_.end() ? nullptr : &it->second;
}

void OnnxGraph::SetInt64(const std::string& name, OnnxValue wide) {
  const std::string whole = builder_.FreshTensor(absl::StrCat(name, "/int64"));
  Define(whole, std::move(wide));
  SetFormula(name, {.text = "@0", .inputs = {{.name = whole}}});
}
const IntegerFormula* OnnxGraph::FindFormula(const std::string& name) const {
  const auto it = formulas_.find(name);
  return it == formulas_.end() ? nullptr : &it->second;
}

void OnnxGraph::LimitInputs(const IntegerBound& of, int64_t below) {
  for (const std::string& input : of.inputs) {
    const auto [limit, added] = limits_.try_emplace(input, below);
    if (!added) limit->second = std::min(limit->second, below);
  }
}

void OnnxGraph::NotePlaces(const std::string& input, int64_t steps) {
  const int64_t known = PlacesOf(input);
  places_[input] = known == 0 ? steps : std::min(known, steps);
}
int64_t OnnxGraph::PlacesOf(const std::string& input) const {
  const auto it = places_.find(input);
  return it == places_.end() ? 0 : it->second;
}

const RowMask* OnnxGraph::FindMask(const std::string& name) const {
  const auto it = masks_.find(name);
  return it == masks_.end() ? nullptr : &it->second;
}

const RowNumbers* OnnxGraph::FindRowNumbers(const std::string& name) const {
  const auto it = rows_.find(name);
  return it == rows_.end() ? nullptr : &it->second;
}
const Constant* OnnxGraph::ConstantBehind(const std::string& tensor) const {
  const auto it = behind_.find(tensor);
  return it == behind_.end() ? nullptr : &it->second;
}

OnnxValue MoveAxis(OnnxValue x, int from, int to) {
  const Dim dim = x.dims[from];
  const int axis = x.axes[from];
  x.dims.erase(x.dims.begin() + from);
  x.axes.erase(x.axes.begin() + from);
  x.dims.insert(x.dims.begin() + to, dim);
  x.axes.insert(x.axes.begin() + to, axis);
  return x;
}

OnnxValue OnnxGraph::Whole(const std::string& tensor) const {
  const Shape& shape = builder_.Find(tensor)->shape;
  return Whole(tensor, Dims(shape.dims().begin(), shape.dims().end()));
}

OnnxValue OnnxGraph::Whole(const std::string& tensor, Dims dims) const {
  OnnxValue value{.tensor = tensor, .dims = std::move(dims)};
  value.axes.resize(value.dims.size());
  std::iota(value.axes.begin(), value.axes.end(), 0);
  return value;
}

absl::StatusOr<OnnxValue> OnnxGraph::ValueOf(const Constant& constant, absl::string_view base) {
  const std::string tensor = builder_.FreshTensor(base);
  if (constant.uniform) {
    float one = 0;
    if (constant.is_float) {
      one = constant.f32(0);
    } else if (constant.dim(0).IsConst()) {
      one = static_cast<float>(constant.dim(0).value());
    } else {
      return InvalidArgument("a number of rows is used as a value");
    }
    RETURN_IF_ERROR(AddConstant(
        builder_, tensor,
        MakeBlob(std::vector<int64_t>(std::max<size_t>(1, constant.dims.size()), 1), {one}),
        tensor));
    return constant.dims.empty() ? OnnxValue{.tensor = tensor} : Whole(tensor, constant.dims);
  }
  if (!constant.is_float &&
      !std::all_of(constant.ints.begin(), constant.ints.end(), [](Dim d) { return d.IsConst(); })) {
    return RowCounts(constant, tensor);
  }
  ASSIGN_OR_RETURN(const std::vector<float> values, constant.ToFloats());
  std::vector<int64_t> sizes = constant.sizes();
  // A scalar is a vector of one: layers want a rank.
  if (sizes.empty()) sizes = {1};
  RETURN_IF_ERROR(AddConstant(builder_, tensor, MakeBlob(sizes, values), tensor));
  behind_[tensor] = constant;
  return constant.dims.empty() ? OnnxValue{.tensor = tensor} : Whole(tensor);
}

// Integers of which some are numbers of rows.
absl::StatusOr<OnnxValue> OnnxGraph::RowCounts(const Constant& constant,
                                               const std::string& tensor) {
  RETURN_IF_ERROR(WantNumbers(constant));
  std::vector<float> fixed, per_ad;
  for (const Dim& d : constant.ints) {
    if (d.IsUnknown()) return Unimplemented("a size that is not known is a value");
    fixed.push_back(d.IsAds() ? 0 : static_cast<float>(d.value()));  // A user has one row.
    per_ad.push_back(d.IsAds() ? static_cast<float>(d.value()) : 0);
  }
  ASSIGN_OR_RETURN(const std::string count, AdCount());
  std::vector<int64_t> sizes = constant.sizes();
  if (sizes.empty()) sizes = {1};
  const std::string parts[] = {builder_.FreshTensor(absl::StrCat(tensor, "/fixed")),
                               builder_.FreshTensor(absl::StrCat(tensor, "/per_ad"))};
  RETURN_IF_ERROR(AddConstant(builder_, parts[0], MakeBlob(sizes, fixed), parts[0]));
  RETURN_IF_ERROR(AddConstant(builder_, parts[1], MakeBlob(sizes, per_ad), parts[1]));
  RETURN_IF_ERROR(
      AddExpression(builder_, tensor, "@0 + @1 * @2", {parts[0], parts[1], count}, tensor));
  return constant.dims.empty() ? OnnxValue{.tensor = tensor} : Whole(tensor, constant.dims);
}

absl::StatusOr<OnnxValue> OnnxGraph::ValueOf(const std::string& name) {
  if (const OnnxValue* value = FindValue(name)) return *value;
  if (const Constant* constant = FindConstant(name)) return ValueOf(*constant, name);
  return InvalidArgument("reads \"", name, "\", which has no form that a layer can read");
}

bool OnnxGraph::IsRepeated(const OnnxValue& value, int axis) const {
  if (value.axes[axis] < 0) return value.dims[axis] != Dim::Of(1);
  const Dim own = builder_.Find(value.tensor)->shape[value.axes[axis]];
  if (own.IsUsers() && value.dims[axis].IsAds()) return true;
  const bool one = own == Dim::Of(1) || own == Dim::Users();
  return one && value.dims[axis] != Dim::Of(1) && value.dims[axis] != Dim::Users();
}

bool OnnxGraph::RowsAreUsers(const OnnxValue& value) const {
  const Shape& shape = builder_.Find(value.tensor)->shape;
  return shape.rank() > 0 && shape[0] == Dim::Users();
}

// The axes of the value, with the user's row in front where the tensor has nothing else there: the
// row is one, so that any dimension of 1 can stand for it.
std::vector<int> OnnxGraph::UserInFront(const OnnxValue& value) const {
  std::vector<int> axes = value.axes;
  const Shape& shape = builder_.Find(value.tensor)->shape;
  const int first = axes[0];
  if (!RowsAreUsers(value) || (first >= 0 && shape[first] != Dim::Of(1))) return axes;
  const auto user = std::find(axes.begin(), axes.end(), 0);
  if (user != axes.end()) *user = first;
  axes[0] = 0;
  return axes;
}

absl::StatusOr<std::string> OnnxGraph::Plain(const OnnxValue& value) {
  Shape shape = builder_.Find(value.tensor)->shape;
  if (value.rank() == 0) return value.tensor;  // One number: layers want a rank.
  std::vector<int> axes = UserInFront(value), named;
  for (const int axis : axes) {
    if (axis >= 0) named.push_back(axis);
  }
  std::string tensor = value.tensor;
  if (!std::is_sorted(named.begin(), named.end())) {
    // Axes of 1 that it lacks would be moved along, and hide the order from who reads it.
    Dims kept;
    std::vector<int> place(shape.rank(), -1);
    bool ones = true;
    for (int axis = 0; axis < shape.rank(); ++axis) {
      if (std::find(named.begin(), named.end(), axis) == named.end()) {
        ones &= shape[axis] == Dim::Of(1);
      } else {
        place[axis] = static_cast<int>(kept.size());
        kept.push_back(shape[axis]);
      }
    }
    if (ones && named.size() < static_cast<size_t>(shape.rank())) {
      ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, ReshapeSizes(shape, kept));
      tensor = builder_.FreshTensor(absl::StrCat(value.tensor, "/kept"));
      RETURN_IF_ERROR(AddReshape(builder_, tensor, value.tensor, sizes, tensor));
      shape = builder_.Find(tensor)->shape;
      for (std::vector<int>* const list : {&axes, &named}) {
        for (int& axis : *list) axis = axis < 0 ? axis : place[axis];
      }
    }
    for (int axis = 0; axis < shape.rank(); ++axis) {
      if (std::find(named.begin(), named.end(), axis) == named.end()) named.push_back(axis);
    }
    const std::string from = tensor;
    tensor = builder_.FreshTensor(absl::StrCat(value.tensor, "/transposed"));
    RETURN_IF_ERROR(AddTranspose(builder_, tensor, from, named, tensor));
    for (int i = 0, next = 0; i < value.rank(); ++i) {
      if (axes[i] >= 0) axes[i] = next++;
    }
  }
  bool whole = value.rank() == shape.rank();
  for (int i = 0; whole && i < value.rank(); ++i) whole = axes[i] == i;
  if (whole) return tensor;
  const Shape from = builder_.Find(tensor)->shape;
  Dims to;
  for (const int axis : axes) to.push_back(axis < 0 ? Dim::Of(1) : from[axis]);
  ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, ReshapeSizes(from, to));
  const std::string out = builder_.FreshTensor(absl::StrCat(value.tensor, "/view"));
  RETURN_IF_ERROR(AddReshape(builder_, out, tensor, sizes, out));
  return out;
}

absl::StatusOr<OnnxValue> OnnxGraph::RowsInFront(const OnnxValue& value) {
  const Shape& shape = builder_.Find(value.tensor)->shape;
  std::vector<int> order;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    order.insert(shape[axis].IsConst() ? order.end() : order.begin(), axis);
  }
  // A constant, too, has something in front.
  const bool has_rows = shape.rank() > 0 && !shape[order[0]].IsConst();
  OnnxValue out = value;
  if (!has_rows) {
    std::vector<int64_t> sizes = {1};
    for (const Dim& d : shape.dims()) sizes.push_back(d.value());
    out.tensor = builder_.FreshTensor(absl::StrCat(value.tensor, "/lifted"));
    for (int& axis : out.axes) axis = axis < 0 ? axis : axis + 1;
    RETURN_IF_ERROR(AddReshape(builder_, out.tensor, value.tensor, sizes, out.tensor));
    return out;
  }
  if (std::is_sorted(order.begin(), order.end())) return out;
  out.tensor = builder_.FreshTensor(absl::StrCat(value.tensor, "/rows_first"));
  RETURN_IF_ERROR(AddTranspose(builder_, out.tensor, value.tensor, order, out.tensor));
  for (int& axis : out.axes) {
    if (axis < 0) continue;
    axis = static_cast<int>(std::find(order.begin(), order.end(), axis) - order.begin());
  }
  return out;
}

void OnnxGraph::SetAdReference(const std::string& tensor) {
  if (ad_reference_.empty()) ad_reference_ = tensor;
}

// A tensor [ads, 1] of any values.
absl::StatusOr<std::string> OnnxGraph::AdColumn(const std::string& base) {
  if (ad_reference_.empty()) {
    return InvalidArgument("is repeated per ad, but no input has a row per ad");
  }
  std::string rows = ad_reference_;
  if (builder_.Find(rows)->shape.rank() != 2) {
    rows = builder_.FreshTensor(absl::StrCat(base, "/rows"));
    RETURN_IF_ERROR(AddReshape(builder_, rows, ad_reference_, {0, -1}, rows));
  }
  const std::string column = builder_.FreshTensor(absl::StrCat(base, "/column"));
  RETURN_IF_ERROR(AddSlice(builder_, column, rows, 1, 0, 1, column));
  return column;
}

absl::StatusOr<std::string> OnnxGraph::AdOnes() {
  if (!ad_ones_.empty()) return ad_ones_;
  const std::string ones = builder_.FreshTensor("ads/ones");
  ASSIGN_OR_RETURN(const std::string column, AdColumn(ones));
  // 1 for NaN, too.
  RETURN_IF_ERROR(AddExpression(builder_, ones, "(@0 == @0) + (@0 != @0)", {column}, ones));
  return ad_ones_ = ones;
}

absl::StatusOr<std::string> OnnxGraph::AdCount() {
  if (!ad_count_.empty()) return ad_count_;
  ASSIGN_OR_RETURN(const std::string ones, AdOnes());
  const std::string count = builder_.FreshTensor("ads/count");
  ulf::LayerParameter sum = MakeLayer("sum_layer", count, {ones}, count);
  sum.mutable_sum_param()->add_dim(0);
  RETURN_IF_ERROR(builder_.AddLayer(std::move(sum)));
  return ad_count_ = count;
}

absl::StatusOr<OnnxValue> OnnxGraph::AdNumbers() {
  if (ad_numbers_.empty()) {
    ASSIGN_OR_RETURN(const std::string ones, AdOnes());
    const std::string counts = builder_.FreshTensor("ads/counted");
    const std::string numbers = builder_.FreshTensor("ads/numbers");
    ulf::LayerParameter sum = MakeLayer("sum_layer", counts, {ones}, counts);
    sum.mutable_sum_param()->add_dim(0);
    sum.mutable_sum_param()->set_function(ulf::SumParameter::CUMULATIVE_SUM);
    RETURN_IF_ERROR(builder_.AddLayer(std::move(sum)));
    RETURN_IF_ERROR(AddExpression(builder_, numbers, "@0 - 1", {counts}, numbers));
    ad_numbers_ = numbers;
  }
  return OnnxValue{.tensor = ad_numbers_, .dims = {Dim::Ads()}, .axes = {0}};
}

// [users or 1, ...] -> [ads, ...], without arithmetic: beside a column of the ads' by fuse_layer,
// then cut out again.
absl::StatusOr<std::string> OnnxGraph::ExpandRows(const std::string& tensor) {
  const Shape shape = builder_.Find(tensor)->shape;
  ASSIGN_OR_RETURN(const int64_t width, InnerSize(builder_, tensor, 0));
  const std::string base = absl::StrCat(tensor, "/per_ad");
  ASSIGN_OR_RETURN(const std::string column, AdColumn(base));
  std::string flat = tensor;
  if (shape.rank() != 2) {
    flat = builder_.FreshTensor(absl::StrCat(base, "/flat"));
    RETURN_IF_ERROR(AddReshape(builder_, flat, tensor, {0, width}, flat));
  }
  const std::string beside = builder_.FreshTensor(absl::StrCat(base, "/fused"));
  ulf::LayerParameter fuse = MakeLayer("fuse_layer", beside, {flat, column}, beside);
  fuse.mutable_fuse_param()->add_common_input_index(0);
  RETURN_IF_ERROR(builder_.AddLayer(std::move(fuse)));
  const std::string cut = builder_.FreshTensor(base);
  RETURN_IF_ERROR(AddSlice(builder_, cut, beside, 1, 0, width, cut));
  if (shape.rank() == 2) return cut;
  std::vector<int64_t> sizes = {0};
  for (int d = 1; d < shape.rank(); ++d) sizes.push_back(shape[d].value());
  const std::string out = builder_.FreshTensor(absl::StrCat(base, "/shape"));
  RETURN_IF_ERROR(AddReshape(builder_, out, cut, sizes, out));
  return out;
}

// As Full, of rows that are repeated along `axis`: in front, and back.
absl::StatusOr<std::string> OnnxGraph::FullBehind(const OnnxValue& value, int axis) {
  const OnnxValue front = MoveAxis(value, axis, 0);
  ASSIGN_OR_RETURN(const std::string tensor, Full(front));
  return Plain(MoveAxis(Whole(tensor, front.dims), 0, axis));
}

// As Full, of rows that are repeated ads * k or users * k times: apart from k first.
absl::StatusOr<std::string> OnnxGraph::FullMerged(OnnxValue value) {
  const Dims dims = value.dims;
  value.dims[0] = Dim::Of(dims[0].value());
  value.dims.insert(value.dims.begin(), dims[0].IsAds() ? Dim::Ads() : Dim::Users());
  value.axes.insert(value.axes.begin() + 1, -1);
  ASSIGN_OR_RETURN(const std::string apart, Full(value));
  ASSIGN_OR_RETURN(const std::vector<int64_t> sizes,
                   ReshapeSizes(builder_.Find(apart)->shape, dims));
  const std::string out = builder_.FreshTensor(absl::StrCat(value.tensor, "/merged"));
  RETURN_IF_ERROR(AddReshape(builder_, out, apart, sizes, out));
  return out;
}

absl::StatusOr<std::string> OnnxGraph::Full(const OnnxValue& value) {
  if (value.rank() > 0 && (value.dims[0].IsAds() || value.dims[0].IsUsers()) &&
      value.dims[0].value() > 1 && IsRepeated(value, 0)) {
    return FullMerged(value);
  }
  for (int i = 1; i < value.rank(); ++i) {
    const bool rows = value.dims[i].IsAds() && !value.dims[0].IsAds();
    if (rows && IsRepeated(value, i)) return FullBehind(value, i);
  }
  ASSIGN_OR_RETURN(std::string tensor, Plain(value));
  const OnnxValue plain = Whole(tensor, value.dims);
  std::vector<int64_t> sizes(value.dims.size(), 0);
  bool numbers = false;
  for (int i = 1; i < value.rank(); ++i) {
    if (!IsRepeated(plain, i)) continue;
    if (!value.dims[i].IsConst()) {
      return Unimplemented("a tensor repeated to ", DimsText(value.dims), ", which is not known");
    }
    sizes[i] = value.dims[i].value();
    numbers = true;
  }
  const bool rows = value.rank() > 0 && IsRepeated(plain, 0);
  if (rows && value.dims[0].IsConst()) {
    sizes[0] = value.dims[0].value();
    numbers = true;
  }
  if (numbers) {
    const std::string out = builder_.FreshTensor(absl::StrCat(value.tensor, "/repeated"));
    ulf::LayerParameter layer = MakeLayer("broadcast_to_layer", out, {tensor}, out);
    for (const int64_t size : sizes) {
      layer.mutable_broadcast_to_param()->add_shape(static_cast<int32_t>(size));
    }
    RETURN_IF_ERROR(builder_.AddLayer(std::move(layer)));
    tensor = out;
  }
  return rows && !value.dims[0].IsConst() ? ExpandRows(tensor) : tensor;
}

absl::StatusOr<std::string> OnnxGraph::PlainAlong(const OnnxValue& value,
                                                  absl::Span<const int> axes) {
  for (const int axis : axes) {
    if (IsRepeated(value, axis)) return Full(value);
  }
  return Plain(value);
}

absl::StatusOr<OnnxValue> OnnxNode::value(int i) {
  if (!Has(i)) return InvalidArgument("input ", i, " is missing");
  return graph.ValueOf(node.input(i));
}

std::string OnnxNode::Scratch(absl::string_view what) const {
  return graph.builder().FreshTensor(absl::StrCat(output(), "/", what));
}

void OnnxNode::Set(const std::string& tensor, int i) { Set(graph.Whole(tensor), i); }
void OnnxNode::Set(const std::string& tensor, Dims dims, int i) {
  Set(graph.Whole(tensor, std::move(dims)), i);
}
void OnnxNode::Set(OnnxValue value, int i) { graph.Define(output(i), std::move(value)); }

}  // namespace ulfd::convert

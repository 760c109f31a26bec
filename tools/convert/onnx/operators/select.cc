// ONNX's operators that choose entries by value or place.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "tools/convert/onnx/model/graph.h"
#include "tools/convert/onnx/operators/layers.h"
#include "tools/convert/recipes.h"

namespace ulfd::convert {
namespace {

using engine::Dim;

// Compared with each other, or held as a row of 0 and 1 each.
constexpr int64_t kMostPairs = 1 << 16;

// top_k_layer: the best k along an axis, of shape `dims`; the places are in tops[1].
struct Best {
  std::array<std::string, 2> tops;
  int rows = 0;  // The axis that is in front of the tensors.
  Dims dims;

  OnnxValue Value(const OnnxGraph& graph, int i) const {
    return MoveAxis(graph.Whole(tops[static_cast<size_t>(i)], dims), 0, rows);
  }
};
absl::StatusOr<Best> AddBest(OnnxNode& node, const OnnxValue& x, int axis, int64_t k, bool smallest,
                             std::array<std::string, 2> tops, const std::string& name) {
  const int rows = RowAxis(x.dims), along = axis < rows ? axis + 1 : axis;
  const OnnxValue view = MoveAxis(x, rows, 0);
  ASSIGN_OR_RETURN(const std::string in, node.graph.PlainAlong(view, {along}));
  ulf::LayerParameter layer = MakeLayer("top_k_layer", name, {in}, tops[0]);
  layer.add_top(tops[1]);
  layer.mutable_top_k_param()->set_k(static_cast<int32_t>(k));
  layer.mutable_top_k_param()->set_axis(along);
  layer.mutable_top_k_param()->set_smallest(smallest);
  RETURN_IF_ERROR(node.builder().AddLayer(std::move(layer)));
  Best best{std::move(tops), rows, view.dims};
  best.dims[along] = Dim::Of(k);
  return best;
}

// The place of the largest or smallest entry, with a dimension of 1 for the axis.
absl::StatusOr<OnnxValue> BestPlace(OnnxNode& node, OnnxValue x, int axis, bool largest,
                                    bool last) {
  const int64_t size = x.dims[axis].value();
  if (last) {  // The first from behind.
    ASSIGN_OR_RETURN(x, Reversed(node, x, axis));
  }
  const std::string name = node.Scratch("best");
  ASSIGN_OR_RETURN(const Best best,
                   AddBest(node, x, axis, 1, !largest, {name, node.Scratch("place")}, name));
  OnnxValue place = best.Value(node.graph, 1);
  if (last) {
    ASSIGN_OR_RETURN(place.tensor,
                     Computed(node, "from_front", absl::StrCat(size - 1, " - @0"), {place.tensor}));
  }
  return place;
}

// Places of what is the best because it is the only one: the user's row.
Constant OnlyPlaces(Dims dims) {
  std::replace(dims.begin(), dims.end(), Dim::Users(), Dim::Of(1));
  return {.dims = std::move(dims), .uniform = true, .ints = {Dim::Of(0)}};
}

template <bool largest>
absl::Status ArgBest(OnnxNode& node) {
  ASSIGN_OR_RETURN(const OnnxValue x, node.value(0));
  ASSIGN_OR_RETURN(const int axis, WantAxis(IntAttribute(node.node, "axis", 0), x.rank()));
  RETURN_IF_ERROR(WantNoRows(x, axis));
  const bool keep = IntAttribute(node.node, "keepdims", 1) != 0;
  if (x.dims[axis] == Dim::Users()) {  // One row: it is the best.
    node.graph.Define(node.output(), OnlyPlaces(keep ? x.dims : WithoutAxis(x, axis).dims));
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(OnnxValue y, BestPlace(node, x, axis, largest,
                                          IntAttribute(node.node, "select_last_index", 0) != 0));
  node.Set(keep ? std::move(y) : WithoutAxis(std::move(y), axis));
  return absl::OkStatus();
}

absl::Status TopK(OnnxNode& node) {
  constexpr int64_t kFirstSetOfIntegers = 11;
  ASSIGN_OR_RETURN(const OnnxValue x, node.value(0));
  if (node.graph.opset() < kFirstSetOfIntegers &&
      node.graph.TypeOf(node.node.input(0)) == onnx::TensorProto::INT64) {
    return Unimplemented("of integers, which operator set ", node.graph.opset(),
                         " has not: PyTorch writes sort() so, and loses its order; export it with ",
                         "a newer one");
  }
  ASSIGN_OR_RETURN(const int axis, WantAxis(IntAttribute(node.node, "axis", -1), x.rank()));
  RETURN_IF_ERROR(WantNoRows(x, axis));
  if (x.dims[axis] == Dim::Users()) {  // One row: it is the best.
    node.Set(x);
    node.graph.Define(node.node.output(1), OnlyPlaces(x.dims));
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const std::vector<int64_t> counts, Integers(node, 1, "k"));
  const int64_t n = x.dims[axis].value();
  const int64_t k = counts.empty() ? IntAttribute(node.node, "k", 0) : counts[0];
  if (k < 1 || k > n || n > kMostPairs) {
    return Unimplemented("the best ", k, " of ", n);
  }
  ASSIGN_OR_RETURN(const Best best,
                   AddBest(node, x, axis, k, IntAttribute(node.node, "largest", 1) == 0,
                           {node.Top(), node.graph.Top(node.node.output(1))}, node.name));
  for (int i = 0; i < 2; ++i) node.Set(best.Value(node.graph, i), i);
  return absl::OkStatus();
}

// An index counts from the end where it is below 0.
std::string FromFront(absl::string_view index, int64_t size) {
  return absl::StrCat("where(", index, " < 0, ", index, " + ", size, ", ", index, ")");
}

absl::Status OneHot(OnnxNode& node) {
  ASSIGN_OR_RETURN(OnnxValue x, node.value(0));
  if (node.constant(1) == nullptr || node.constant(2) == nullptr) {
    return Unimplemented("a depth or values that are computed");
  }
  ASSIGN_OR_RETURN(const std::vector<int64_t> depth, node.constant(1)->ToInts());
  ASSIGN_OR_RETURN(const std::vector<float> values, node.constant(2)->ToFloats());
  if (depth.size() != 1 || values.size() != 2 || depth[0] < 1 || depth[0] > kMostPairs) {
    return Unimplemented("a depth or values that cannot be");
  }
  ASSIGN_OR_RETURN(const int axis, WantAxis(IntAttribute(node.node, "axis", -1), x.rank() + 1));
  x = WithAxis(std::move(x), axis);
  ASSIGN_OR_RETURN(const std::string in, node.graph.Plain(x));
  ASSIGN_OR_RETURN(const std::string places, AddPlaces(node, depth[0], x.rank() - 1 - axis));
  x.dims[axis] = Dim::Of(depth[0]);
  return SetComputed(node,
                     absl::StrCat("where(", FromFront("@0", depth[0]), " == @1, ",
                                  Number(values[1]), ", ", Number(values[0]), ")"),
                     {in, places}, x.dims);
}

// Gather of the only row of the user: it stands for all, and the axis is dropped.
absl::Status PickUser(OnnxNode& node, OnnxValue x, int axis, const Constant& indices) {
  ASSIGN_OR_RETURN(const std::vector<int64_t> picks, indices.ToInts());
  if (picks.size() != 1 || (picks[0] != 0 && picks[0] != -1)) {
    return Unimplemented("picks rows of the user, who has one");
  }
  node.Set(indices.dims.empty() ? WithoutAxis(std::move(x), axis) : std::move(x));
  return absl::OkStatus();
}

// Entries along an axis by computed places, of constants or of what the user has: a table that
// stands in one row for all.
absl::Status LookUpComputed(OnnxNode& node) {
  constexpr int64_t kMostElements = int64_t{1} << 24;  // Held in memory, not in a table's file.
  const bool constant = node.constant(0) != nullptr;
  if (constant) RETURN_IF_ERROR(WantTable(*node.constant(0)));
  ASSIGN_OR_RETURN(OnnxValue table, node.value(0));
  ASSIGN_OR_RETURN(OnnxValue index, node.value(1));
  ASSIGN_OR_RETURN(const int axis, WantAxis(IntAttribute(node.node, "axis", 0), table.rank()));
  const bool one = index.rank() == 0;
  if (one) index = WithAxis(std::move(index), 0);
  table = MoveAxis(std::move(table), axis, 0);
  const int64_t count = table.dims[0].value();
  const auto ads = [](const Dim& d) { return d.IsAds() || d.IsUnknown(); };
  if (std::any_of(table.dims.begin(), table.dims.end(), ads) ||
      (constant && node.constant(0)->elements() > kMostElements)) {
    return Unimplemented(
        "indices that are computed; a table is looked up by ids that are an input");
  }
  if (const std::string* input = node.graph.RoundedFrom(node.node.input(1))) {
    node.graph.NotePlaces(*input, count);
  }
  std::replace(table.dims.begin() + 1, table.dims.end(), Dim::Users(), Dim::Of(1));
  int64_t width = 1, each = 1;
  std::vector<int> all = {0};
  for (int d = 1; d < table.rank(); ++d) {
    width *= table.dims[d].value();
    all.push_back(d);
  }
  const int rows = RowAxis(index.dims);
  OnnxValue found = MoveAxis(index, rows, 0);
  ASSIGN_OR_RETURN(const std::string places, node.graph.Plain(found));
  const engine::Shape shape = node.builder().Find(places)->shape;
  Dims dims(shape.dims().begin(), shape.dims().end());
  for (int d = 1; d < shape.rank(); ++d) {
    RETURN_IF_ERROR(WantNumber(found, d));
    each *= shape[d].value();
  }
  for (Dims* const to : {&dims, &found.dims}) {
    to->insert(to->end(), table.dims.begin() + 1, table.dims.end());
  }
  ASSIGN_OR_RETURN(const std::string whole, node.graph.PlainAlong(table, all));
  ASSIGN_OR_RETURN(const std::string from, Sized(node, "table", whole, {-1, count, width}));
  ASSIGN_OR_RETURN(const std::string at, Sized(node, "at", places, {0, each, 1}));
  const std::string taken = node.Scratch("taken"), out = node.Top();
  RETURN_IF_ERROR(AddTake(node.builder(), taken, from, at, 1, taken));
  ASSIGN_OR_RETURN(const std::vector<int64_t> sizes,
                   ReshapeSizes(node.builder().Find(taken)->shape, dims));
  RETURN_IF_ERROR(AddReshape(node.builder(), node.name, taken, sizes, out));
  OnnxValue y = MoveAxis(node.graph.Whole(out, std::move(found.dims)), 0, rows);
  for (int d = 0; d < axis; ++d) y = MoveAxis(std::move(y), index.rank() + d, d);
  node.Set(one ? WithoutAxis(std::move(y), axis) : std::move(y));
  return absl::OkStatus();
}

// All indices are one number, and as many as the request has rows: that entry, repeated.
absl::Status GatherOne(OnnxNode& node, int64_t axis, const Constant& indices) {
  const Constant index = IntConstant({}, {indices.dim(0)});
  OnnxValue one;
  if (const Constant* const table = node.constant(0)) {
    ASSIGN_OR_RETURN(const std::vector<Constant> entry,
                     FoldNode(node.node, node.graph.opset(), {table, &index}));
    ASSIGN_OR_RETURN(one, node.graph.ValueOf(entry[0], node.output()));
    ASSIGN_OR_RETURN(axis, WantAxis(axis, one.rank() + 1));
  } else {
    ASSIGN_OR_RETURN(const std::vector<int64_t> place, index.ToInts());
    ASSIGN_OR_RETURN(const OnnxValue x, node.value(0));
    ASSIGN_OR_RETURN(axis, WantAxis(axis, x.rank()));
    RETURN_IF_ERROR(WantNumber(x, static_cast<int>(axis)));
    ASSIGN_OR_RETURN(one, PickAlong(node, x, static_cast<int>(axis), place, node.Top()));
    one = WithoutAxis(std::move(one), static_cast<int>(axis));
  }
  one.dims.insert(one.dims.begin() + axis, indices.dims.begin(), indices.dims.end());
  one.axes.insert(one.axes.begin() + axis, indices.dims.size(), -1);
  node.Set(std::move(one));
  return absl::OkStatus();
}

absl::Status GatherNothing(OnnxNode& node, const Constant& indices) {
  ASSIGN_OR_RETURN(const OnnxValue x, node.value(0));
  ASSIGN_OR_RETURN(const int axis, WantAxis(IntAttribute(node.node, "axis", 0), x.rank()));
  Dims dims = x.dims;
  dims.erase(dims.begin() + axis);
  dims.insert(dims.begin() + axis, indices.dims.begin(), indices.dims.end());
  node.graph.Define(node.output(), EmptyConstant(std::move(dims)));
  return absl::OkStatus();
}

// Gather along an axis with known indices; one index drops the axis.
absl::Status Gather(OnnxNode& node) {
  const Constant* indices = node.constant(1);
  if (indices == nullptr) return LookUpComputed(node);
  if (IsEmpty(*indices)) return GatherNothing(node, *indices);
  if (indices->uniform && !IsNumbers(indices->dims)) {
    return GatherOne(node, IntAttribute(node.node, "axis", 0), *indices);
  }
  ASSIGN_OR_RETURN(const OnnxValue x, node.value(0));
  ASSIGN_OR_RETURN(const int axis, WantAxis(IntAttribute(node.node, "axis", 0), x.rank()));
  if (x.dims[axis].IsUsers()) return PickUser(node, x, axis, *indices);
  ASSIGN_OR_RETURN(const std::vector<int64_t> picks, indices->ToInts());
  RETURN_IF_ERROR(WantNumber(x, axis));
  ASSIGN_OR_RETURN(OnnxValue part, PickAlong(node, x, axis, picks, node.Top()));
  if (indices->dims.size() > 1) {
    Dims to = part.dims;
    to.erase(to.begin() + axis);
    to.insert(to.begin() + axis, indices->dims.begin(), indices->dims.end());
    return ReshapeTo(node, part, std::move(to));
  }
  node.Set(indices->dims.empty() ? WithoutAxis(std::move(part), axis) : std::move(part));
  return absl::OkStatus();
}

bool IsOneRow(const Dim& dim) { return dim.IsUsers() || dim == Dim::Of(1); }

absl::Status GatherElements(OnnxNode& node) {
  ASSIGN_OR_RETURN(OnnxValue x, node.value(0));
  ASSIGN_OR_RETURN(OnnxValue index, node.value(1));
  ASSIGN_OR_RETURN(const int axis, WantAxis(IntAttribute(node.node, "axis", 0), x.rank()));
  RETURN_IF_ERROR(WantNoRows(x, axis));
  if (index.rank() != x.rank()) return InvalidArgument("indices of another rank");
  for (int d = 0; d < x.rank(); ++d) {
    if (d == axis || x.dims[d] == index.dims[d]) continue;
    if (x.dims[d].IsUsers() && index.dims[d].IsAds()) continue;
    if (index.dims[d].IsUsers() && (x.dims[d].IsAds() || IsOneRow(x.dims[d]))) {
      index.dims[d] = x.dims[d];  // The user's row stands for all.
      continue;
    }
    if (IsOneRow(index.dims[d]) && IsOneRow(x.dims[d])) continue;
    const std::string shapes =
        absl::StrCat("indices of shape ", DimsText(index.dims), " for ", DimsText(x.dims));
    const bool rows = x.dims[d].IsConst() != index.dims[d].IsConst();
    return rows ? ExampleRows(shapes) : Unimplemented(shapes);
  }
  const int rows = RowAxis(index.dims), along = axis < rows ? axis + 1 : axis;
  x = MoveAxis(std::move(x), rows, 0);
  index = MoveAxis(std::move(index), rows, 0);
  // Of the steps behind, an index may stand for all.
  std::vector<int> before, all;
  bool for_all = true;
  for (int d = 1; d < x.rank(); ++d) {
    all.push_back(d);
    if (d <= along) before.push_back(d);
    for_all &= d <= along || index.dims[d] == Dim::Of(1) || node.graph.IsRepeated(index, d);
  }
  ASSIGN_OR_RETURN(const std::string from, node.graph.PlainAlong(x, all));
  ASSIGN_OR_RETURN(const std::string at, node.graph.PlainAlong(index, for_all ? before : all));
  const std::string out = node.Top();
  RETURN_IF_ERROR(AddTake(node.builder(), node.name, from, at, along, out));
  node.Set(MoveAxis(node.graph.Whole(out, index.dims), 0, rows));
  return absl::OkStatus();
}

// torch.onnx.export writes scatter_add before operator set 16, and index_add in any, as entries
// that replace zeros and are added then: of several for a place only one is.
bool LosesSums(const OnnxNode& node, const OnnxValue& index, int axis) {
  const auto reader = node.only_reader.find(node.node.output(0));
  const Constant* const zeros = node.constant(0);
  constexpr int64_t kReductions = 16;
  const Constant* const places = node.graph.ConstantBehind(index.tensor);
  if (places == nullptr && node.graph.opset() >= kReductions) return false;
  if (places != nullptr) {
    std::vector<int64_t> entries = places->ToInts().value_or(std::vector<int64_t>{});
    std::sort(entries.begin(), entries.end());
    if (!entries.empty() && std::adjacent_find(entries.begin(), entries.end()) == entries.end()) {
      return false;
    }
  }
  return reader != node.only_reader.end() && reader->second->op_type() == "Add" &&
         index.dims[axis] != Dim::Of(1) && zeros != nullptr && zeros->is_float && zeros->uniform &&
         zeros->f32(0) == 0;
}

absl::Status ScatterElements(OnnxNode& node) {
  std::array<OnnxValue, 3> in;
  for (int i = 0; i < 3; ++i) {
    ASSIGN_OR_RETURN(in[static_cast<size_t>(i)], node.value(i));
  }
  auto& [x, index, update] = in;
  ASSIGN_OR_RETURN(const int axis, WantAxis(IntAttribute(node.node, "axis", 0), x.rank()));
  RETURN_IF_ERROR(WantNoRows(x, axis));
  const std::string reduction = StringAttribute(node.node, "reduction", "none");
  Dims dims = x.dims;
  bool fits = index.rank() == x.rank() && update.rank() == x.rank();
  for (int d = 0; fits && d < x.rank(); ++d) {
    if (d == axis) continue;
    for (const Dim& other : {index.dims[d], update.dims[d]}) {
      if (other.IsAds() && dims[d].IsUsers()) dims[d] = other;  // The user's row is changed per ad.
      fits &= other == dims[d] || (other.IsUsers() && dims[d].IsAds()) ||
              (IsOneRow(other) && IsOneRow(dims[d]));
    }
  }
  if (!fits || update.dims[axis] != index.dims[axis] || !index.dims[axis].IsConst() ||
      (reduction != "none" && reduction != "add")) {
    return Unimplemented("indices of shape ", DimsText(index.dims), " for ", DimsText(x.dims));
  }
  if (reduction == "none" && LosesSums(node, index, axis)) {
    return Unimplemented(
        "zeros with entries in their places, which are added: the export of scatter_add or "
        "index_add before operator set 16, which loses all but one of a place's entries; export it "
        "with a newer one");
  }
  const int rows = RowAxis(dims), along = axis < rows ? axis + 1 : axis;
  for (OnnxValue& value : in) value = MoveAxis(std::move(value), rows, 0);
  ASSIGN_OR_RETURN(const std::string out, Scattered(node, in, along, reduction == "add"));
  std::rotate(dims.begin(), dims.begin() + rows, dims.begin() + rows + 1);
  node.Set(MoveAxis(node.graph.Whole(out, std::move(dims)), 0, rows));
  return absl::OkStatus();
}

// Entries of a mask of constants that is the same for all rows, if it is one: places in a row.
absl::Status NonZero(OnnxNode& node) {
  ASSIGN_OR_RETURN(const OnnxValue x, node.value(0));
  const Constant* mask = node.graph.ConstantBehind(x.tensor);
  if (mask == nullptr || x.rank() < 2 || x.axes[0] >= 0) {
    return Unimplemented("of values that are computed");
  }
  const std::vector<int64_t> sizes = mask->sizes();
  std::vector<int64_t> strides(sizes.size(), 1), offsets = {0};
  for (size_t d = sizes.size(); d-- > 1;) strides[d - 1] = strides[d] * sizes[d];
  for (int d = 1; d < x.rank(); ++d) {
    const int axis = x.axes[d];
    const bool repeated = axis < 0 || sizes[static_cast<size_t>(axis)] == 1;
    if (!x.dims[d].IsConst()) return Unimplemented("of a mask of unknown shape");
    if (engine::SaturatingMultiply(x.dims[d].value(), static_cast<int64_t>(offsets.size())) >
        kMaxElements) {
      return Unimplemented("of a mask that is too large");
    }
    std::vector<int64_t> next;
    for (const int64_t offset : offsets) {
      for (int64_t i = 0; i < x.dims[d].value(); ++i) {
        next.push_back(offset + (repeated ? 0 : i * strides[static_cast<size_t>(axis)]));
      }
    }
    offsets = std::move(next);
  }
  std::vector<int64_t> places;
  for (size_t i = 0; i < offsets.size(); ++i) {
    const bool set =
        mask->is_float ? mask->f32(offsets[i]) != 0 : mask->dim(offsets[i]) != Dim::Of(0);
    if (set) places.push_back(static_cast<int64_t>(i));
  }
  node.note = "the same places of every row";
  node.graph.SetMask(node.output(), {.dims = x.dims, .places = std::move(places)});
  return absl::OkStatus();
}

// Entries at known places along the first axes, [.., axes].
absl::Status GatherPlaces(OnnxNode& node, const Constant& indices) {
  ASSIGN_OR_RETURN(OnnxValue x, node.value(0));
  ASSIGN_OR_RETURN(const std::vector<int64_t> each, indices.ToInts());
  const int64_t along = indices.dims.empty() ? 0 : indices.dims.back().value();
  const int rows = RowAxis(x.dims);
  if (each.empty() || along < 1 || along > rows) {
    return Unimplemented("indices of shape ", DimsText(indices.dims), " for ", DimsText(x.dims));
  }
  std::vector<int64_t> places(each.size() / static_cast<size_t>(along), 0);
  int64_t size = 1;
  for (int d = 0; d < along; ++d) {
    RETURN_IF_ERROR(WantNumber(x, d));
    const int64_t own = x.dims[d].value();
    for (size_t i = 0; i < places.size(); ++i) {
      ASSIGN_OR_RETURN(
          const int64_t place,
          WantPlace(each[i * static_cast<size_t>(along) + static_cast<size_t>(d)], own));
      places[i] = places[i] * own + place;
    }
    size *= own;
  }
  if (along > 1) {
    x = MoveAxis(std::move(x), rows, 0);
    Dims merged = x.dims;
    merged.erase(merged.begin() + 1, merged.begin() + along);
    merged[1] = Dim::Of(size);
    ASSIGN_OR_RETURN(x, Reshaped(node, x, std::move(merged)));
    x = MoveAxis(std::move(x), 0, rows + 1 - static_cast<int>(along));
  }
  ASSIGN_OR_RETURN(const OnnxValue picked, PickAlong(node, x, 0, places, node.Top()));
  Dims to(indices.dims.begin(), indices.dims.end() - 1);
  to.insert(to.end(), x.dims.begin() + 1, x.dims.end());
  return ReshapeTo(node, picked, std::move(to));
}

// By a mask: the places of each row, and the rows one behind the other.
absl::Status GatherNd(OnnxNode& node) {
  if (node.constant(1) != nullptr && IntAttribute(node.node, "batch_dims", 0) == 0) {
    return GatherPlaces(node, *node.constant(1));
  }
  const RowMask* mask = node.Has(1) ? node.graph.FindMask(node.node.input(1)) : nullptr;
  if (mask == nullptr || IntAttribute(node.node, "batch_dims", 0) != 0) {
    return Unimplemented("indices that are computed");
  }
  ASSIGN_OR_RETURN(const OnnxValue x, node.value(0));
  if (x.dims != mask->dims || x.dims[0].IsConst() || mask->places.empty()) {
    return Unimplemented("a mask of shape ", DimsText(mask->dims), " for ", DimsText(x.dims));
  }
  std::vector<int> axes;
  int64_t width = 1;
  for (int d = 0; d < x.rank(); ++d) {
    axes.push_back(d);
    if (d > 0) width *= x.dims[d].value();
  }
  ASSIGN_OR_RETURN(const std::string in, node.graph.PlainAlong(x, axes));
  ASSIGN_OR_RETURN(const std::string flat, Sized(node, "flat", in, {0, width}));
  const std::string out = node.Top();
  ASSIGN_OR_RETURN(const OnnxValue picked, PickAlong(node, node.graph.Whole(flat), 1, mask->places,
                                                     node.Scratch("picked")));
  RETURN_IF_ERROR(AddReshape(node.builder(), node.name, picked.tensor, {-1}, out));
  node.Set(out);
  return absl::OkStatus();
}

constexpr OnnxType kTypes[] = {
    {"ArgMax", &ArgBest</*largest=*/true>},
    {"ArgMin", &ArgBest</*largest=*/false>},
    {"ScatterElements", &ScatterElements},
    {"TopK", &TopK},
    {"OneHot", &OneHot},
    {"Gather", &Gather},
    {"GatherElements", &GatherElements},
    {"NonZero", &NonZero},
    {"GatherND", &GatherNd},
    {"TreeEnsembleRegressor", &ConvertTrees},
};

}  // namespace

absl::Span<const OnnxType> SelectOnnxTypes() { return kTypes; }

}  // namespace ulfd::convert

// Caffe's layers that move or rename elements: Concat, Slice, Flatten, Reshape, Permute.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "tools/convert/caffe/layers.h"
#include "tools/convert/recipes.h"

namespace ulfd::convert {
namespace {

absl::Status Concat(CaffeNode& node) {
  const caffe::ConcatParameter& p = node.layer.concat_param();
  const int64_t stated = p.has_concat_dim() ? int64_t{p.concat_dim()} : int64_t{p.axis()};
  ASSIGN_OR_RETURN(const int axis, node.Axis("concat_param.axis", stated));
  return AddConcat(node.builder, node.layer.name(), node.bottoms, axis, node.out());
}

// Where each top ends: the slice points, or equal parts.
absl::StatusOr<std::vector<int64_t>> SliceEnds(const CaffeNode& node, int64_t size) {
  const caffe::SliceParameter& p = node.layer.slice_param();
  const int64_t tops = node.layer.top_size();
  std::vector<int64_t> ends(p.slice_point().begin(), p.slice_point().end());
  if (ends.empty()) {
    if (size % tops != 0) {
      return InvalidArgument(size, " channels cannot be cut into ", tops, " equal tops");
    }
    for (int64_t i = 1; i < tops; ++i) ends.push_back(i * size / tops);
  }
  if (static_cast<int64_t>(ends.size()) != tops - 1) {
    return InvalidArgument("slice_param.slice_point: ", ends.size(), " values, want ", tops - 1,
                           " for ", tops, " tops");
  }
  ends.push_back(size);
  int64_t begin = 0;
  for (const int64_t end : ends) {
    if (end <= begin || end > size) {
      return InvalidArgument("slice_param.slice_point: ", end,
                             ", want rising values between 1 and ", size - 1);
    }
    begin = end;
  }
  return ends;
}

absl::Status Slice(CaffeNode& node) {
  const caffe::SliceParameter& p = node.layer.slice_param();
  const int64_t stated = p.has_slice_dim() ? int64_t{p.slice_dim()} : int64_t{p.axis()};
  ASSIGN_OR_RETURN(const int axis, node.Axis("slice_param.axis", stated));
  if (axis == 0) return Unimplemented("slice_param.axis 0 cuts the rows");
  if (!node.shape()[axis].IsConst()) {
    return InvalidArgument("bottom 0: shape ", node.shape().ToString(),
                           ", want a number for dimension ", axis);
  }
  ASSIGN_OR_RETURN(const std::vector<int64_t> ends, SliceEnds(node, node.shape()[axis].value()));
  int64_t begin = 0;
  for (int i = 0; i < node.layer.top_size(); ++i) {
    RETURN_IF_ERROR(AddSlice(node.builder,
                             i == 0 ? node.layer.name() : absl::StrCat(node.layer.name(), "/", i),
                             node.in(), axis, begin, ends[i] - begin, node.out(i)));
    begin = ends[i];
  }
  return absl::OkStatus();
}

// From each axis on, as much of bottom 0 as bottom 1 has.
absl::Status Crop(CaffeNode& node) {
  const caffe::CropParameter& p = node.layer.crop_param();
  ASSIGN_OR_RETURN(const int axis, node.Axis("crop_param.axis", p.axis()));
  if (axis == 0) return Unimplemented("crop_param.axis 0 cuts the rows");
  const int axes = node.rank() - axis;
  if (node.rank(1) != node.rank() || (p.offset_size() > 1 && p.offset_size() != axes)) {
    return InvalidArgument("crop_param: shapes ", node.shape().ToString(), " and ",
                           node.shape(1).ToString(), ", ", p.offset_size(), " offsets");
  }
  std::string tensor = node.in();
  for (int i = 0; i < axes; ++i) {
    const engine::Dim from = node.shape()[axis + i], to = node.shape(1)[axis + i];
    if (!from.IsConst() || !to.IsConst()) {
      return InvalidArgument("crop_param: a dimension that is no number");
    }
    const int64_t offset =
        p.offset_size() == 0 ? 0 : int64_t{p.offset(p.offset_size() == 1 ? 0 : i)};
    if (offset > from.value() - to.value()) {
      return InvalidArgument("crop_param.offset: ", offset, ", ", to.value(), " of ", from.value(),
                             " are wanted behind it");
    }
    const bool last = i + 1 == axes;
    const std::string out = last ? node.out() : node.builder.FreshTensor(node.out() + "/cut");
    RETURN_IF_ERROR(AddSlice(node.builder, last ? node.layer.name() : out, tensor, axis + i, offset,
                             to.value(), out));
    tensor = out;
  }
  return absl::OkStatus();
}

absl::Status Flatten(CaffeNode& node) {
  const caffe::FlattenParameter& p = node.layer.flatten_param();
  ASSIGN_OR_RETURN(const int axis, node.Axis("flatten_param.axis", p.axis()));
  ASSIGN_OR_RETURN(const int end, node.Axis("flatten_param.end_axis", p.end_axis()));
  if (axis == 0) return Unimplemented("flatten_param.axis 0 merges the rows");
  if (end < axis) {
    return InvalidArgument("flatten_param.end_axis: ", p.end_axis(), ", want ", axis, " or more");
  }
  std::vector<int64_t> shape(static_cast<size_t>(axis), 0);
  shape.push_back(-1);
  for (int d = end + 1; d < node.rank(); ++d) shape.push_back(node.shape()[d].value());
  return AddReshape(node.builder, node.layer.name(), node.in(), shape, node.out());
}

// Reshape of the axes [axis, axis + num_axes); 0 keeps the bottom's dimension at that place.
absl::Status Reshape(CaffeNode& node) {
  const caffe::ReshapeParameter& p = node.layer.reshape_param();
  // An axis may be behind the last one: dimensions of 1 are added there.
  const int64_t axis = p.axis() < 0 ? p.axis() + node.rank() + 1 : p.axis();
  const int64_t end = p.num_axes() < 0 ? node.rank() : axis + p.num_axes();
  if (axis < 0 || axis > node.rank() || end > node.rank()) {
    return InvalidArgument("reshape_param: axis ", p.axis(), ", num_axes ", p.num_axes(),
                           ", want a range of bottom 0: shape ", node.shape().ToString());
  }
  std::vector<int64_t> shape;
  for (int64_t d = 0; d < axis; ++d) shape.push_back(0);
  int64_t place = axis;
  for (const int64_t d : p.shape().dim()) {
    // ULF counts the places of 0 from the front, Caffe from `axis`: the same.
    const bool rows = place == 0 && d > 0;
    if (rows) {
      node.note = absl::StrCat("dim ", d, " at place 0 is read as the rows");
    }
    shape.push_back(rows ? 0 : d);
    ++place;
  }
  for (int64_t d = end; d < node.rank(); ++d) {
    if (!node.shape()[static_cast<int>(d)].IsConst()) {
      return InvalidArgument("bottom 0: shape ", node.shape().ToString(),
                             ", want a number for dimension ", d);
    }
    shape.push_back(node.shape()[static_cast<int>(d)].value());
  }
  return AddReshape(node.builder, node.layer.name(), node.in(), shape, node.out());
}

absl::Status Permute(CaffeNode& node) {
  std::vector<int> perm;
  for (const uint32_t axis : node.layer.permute_param().order()) {
    if (axis >= static_cast<uint32_t>(node.rank()) ||
        std::find(perm.begin(), perm.end(), static_cast<int>(axis)) != perm.end()) {
      return InvalidArgument("permute_param.order: ", axis, ", want each axis of bottom 0: shape ",
                             node.shape().ToString(), " at most once");
    }
    perm.push_back(static_cast<int>(axis));
  }
  for (int axis = 0; axis < node.rank(); ++axis) {  // Axes that are not named keep their order.
    if (std::find(perm.begin(), perm.end(), axis) == perm.end()) perm.push_back(axis);
  }
  return AddTranspose(node.builder, node.layer.name(), node.in(), perm, node.out());
}

constexpr CaffeType kTypes[] = {
    {"Crop", {2, 2}, {1, 1}, {0, 0}, &Crop},       {"Concat", {1, kMany}, {1, 1}, {0, 0}, &Concat},
    {"Slice", {1, 1}, {1, kMany}, {0, 0}, &Slice}, {"Flatten", {1, 1}, {1, 1}, {0, 0}, &Flatten},
    {"Reshape", {1, 1}, {1, 1}, {0, 0}, &Reshape}, {"Permute", {1, 1}, {1, 1}, {0, 0}, &Permute},
};

}  // namespace

absl::Span<const CaffeType> ShapeCaffeTypes() { return kTypes; }

}  // namespace ulfd::convert

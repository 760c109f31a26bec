// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/onnx/rows/row_values.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace ulfd::convert {

using reference::Array;
using reference::ProductOf;
using reference::Sizes;

namespace {

// Bits without a period, by which rows and steps that are merged are told apart.
uint64_t Scattered(int64_t number) {
  return static_cast<uint64_t>(number) * static_cast<uint64_t>(number) * 0x9e3779b97f4a7c15u;
}

}  // namespace

bool Same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

bool IsRepeated(const Array& x, size_t axis, int64_t period) {
  const int64_t behind = ProductOf(x.dims, axis + 1), size = x.dims[axis];
  for (int64_t i = 0; i < x.elements(); ++i) {
    const int64_t at = i / behind % size;
    if (!Same(x.at(i), x.at(i - (at - at % period) * behind))) return false;
  }
  return true;
}

size_t ColumnsOf(const Array& x) { return x.rank() < 2 ? 1 : static_cast<size_t>(x.dims.back()); }

std::optional<Progression> ProgressionOf(const Array& x, size_t axis) {
  if (x.ints == nullptr || x.dims[axis] < 2) return std::nullopt;
  const std::vector<int64_t>& v = *x.ints;
  const auto width = static_cast<size_t>(x.elements() / x.dims[axis]);
  if (axis != 0 && width != 1) return std::nullopt;
  Progression found;
  found.first.assign(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(width));
  const size_t columns = ColumnsOf(x);
  for (size_t i = 0; i < columns; ++i) found.steps.push_back(v[i + width] - v[i]);
  for (size_t i = width; i < v.size(); ++i) {
    if (v[i] - v[i - width] != found.steps[i % columns]) return std::nullopt;
  }
  return found;
}

std::optional<Array> MakeUpRows(const onnx::ValueInfoProto& input, int64_t rows, Range range,
                                int64_t first) {
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
  if (type.elem_type() == onnx::TensorProto::BOOL) range = {0, 2};
  std::vector<double> floats;
  std::vector<int64_t> ints;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = first + i / width, column = i % width;
    const uint64_t bits = Scattered(13 * row + 3 * column + 1) >> 62;
    const int64_t number = range.least + static_cast<int64_t>(range.below - range.least > 2
                                                                  ? std::min<uint64_t>(bits, 2)
                                                                  : bits / 2);
    const double part = 0.5 + 0.49 * std::sin(static_cast<double>(7 * row + 3 * column + 1));
    ints.push_back(number);
    floats.push_back(static_cast<double>(number) + part);  // Some models take them for ids.
  }
  return reference::IsFloatType(type.elem_type())
             ? reference::Floats(onnx::TensorProto::FLOAT, dims, std::move(floats))
             : reference::Ints(type.elem_type(), dims, std::move(ints));
}

Array PlacesWithin(const Array& places, const Array& table, int64_t axis) {
  if (axis < 0) axis += table.rank();
  const int64_t size = axis < 0 || axis >= table.rank() ? 0 : table.dims[static_cast<size_t>(axis)];
  if (places.ints == nullptr || size == 0) return places;
  std::vector<int64_t> within = *places.ints;
  for (int64_t& place : within) place %= size;
  return reference::Ints(places.type, places.dims, std::move(within));
}

}  // namespace ulfd::convert

// The discrete Fourier transform: a product with the matrix of its waves.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "tools/convert/onnx/operators/layers.h"

namespace ulfd::convert {
namespace {

using engine::Dim;

struct Transform {
  int axis = 0;
  int64_t entries = 0;  // Of the axis.
  int64_t parts = 0;    // Of an entry: 2 where it has an imaginary one.
  int64_t length = 0;   // Of the signal; entries beyond are cut off, those that lack are 0.
  bool inverse = false, onesided = false;

  bool makes_reals() const { return inverse && onesided; }
  int64_t out_entries() const { return onesided && !inverse ? length / 2 + 1 : length; }
  int64_t out_parts() const { return makes_reals() ? 1 : 2; }
};

// The one number of an input, or `otherwise` without it.
absl::StatusOr<int64_t> IntegerOr(const OnnxNode& node, int input, const char* name,
                                  int64_t otherwise) {
  if (!node.Has(input)) return otherwise;
  ASSIGN_OR_RETURN(const std::vector<int64_t> given, Integers(node, input, name));
  if (given.size() != 1) return InvalidArgument(name, ": ", given.size(), " numbers, want 1");
  return given[0];
}

absl::StatusOr<Transform> ReadTransform(const OnnxNode& node, const OnnxValue& x) {
  constexpr int64_t kAxisIsInput = 20;
  constexpr int64_t kMostEntries = 1024;
  int64_t axis = IntAttribute(node.node, "axis", 1);
  if (node.graph.opset() >= kAxisIsInput) {
    ASSIGN_OR_RETURN(axis, IntegerOr(node, 2, "axis", -2));
  }
  const int last = x.rank() - 1;
  Transform t;
  ASSIGN_OR_RETURN(t.axis, WantAxis(axis, x.rank()));
  if (t.axis == last || (x.dims[last] != Dim::Of(1) && x.dims[last] != Dim::Of(2))) {
    return InvalidArgument("axis ", axis, " of shape ", DimsText(x.dims),
                           ", want one before the last, which has 1 or 2");
  }
  if (!x.dims[t.axis].IsConst()) return WantNoRows(x, t.axis);
  t.entries = x.dims[t.axis].value();
  t.parts = x.dims[last].value();
  t.inverse = IntAttribute(node.node, "inverse", 0) != 0;
  t.onesided = IntAttribute(node.node, "onesided", 0) != 0;
  if (t.onesided && !t.inverse && t.parts == 2) {
    return InvalidArgument("one side of the transform of complex numbers");
  }
  ASSIGN_OR_RETURN(t.length, IntegerOr(node, 1, "dft_length",
                                       t.makes_reals() ? 2 * (t.entries - 1) : t.entries));
  if (t.length < 1 || t.length > kMostEntries || t.entries > kMostEntries) {
    return Unimplemented("a transform of ", t.entries, " entries and length ", t.length,
                         ", want at most ", kMostEntries);
  }
  return t;
}

// How often an entry of the input counts: of one side, all but the middle stand for the other, too.
double Weight(const Transform& t, int64_t entry) {
  if (!t.makes_reals()) return entry < t.length ? 1 : 0;
  if (entry > t.length / 2) return 0;
  return entry == 0 || 2 * entry == t.length ? 1 : 2;
}

// Of [entries * parts] to [out_entries * out_parts].
Dense WavesOf(const Transform& t) {
  Dense dense{.sizes = {t.entries * t.parts, t.out_entries() * t.out_parts()}};
  dense.weight.reserve(static_cast<size_t>(dense.sizes[0] * dense.sizes[1]));
  const double turn = 2 * M_PI / static_cast<double>(t.length) * (t.inverse ? 1 : -1);
  const double share = t.inverse ? 1 / static_cast<double>(t.length) : 1;
  for (int64_t row = 0; row < dense.sizes[0]; ++row) {
    const int64_t entry = row / t.parts, part = row % t.parts;
    const double weight = Weight(t, entry) * share;
    for (int64_t column = 0; column < dense.sizes[1]; ++column) {
      const int64_t to = column / t.out_parts(), to_part = column % t.out_parts();
      const double angle = turn * static_cast<double>(entry * to % t.length);
      const double sine = part == 0 ? std::sin(angle) : -std::sin(angle);
      dense.weight.push_back(
          static_cast<float>(weight * (part == to_part ? std::cos(angle) : sine)));
    }
  }
  return dense;
}

}  // namespace

absl::Status ConvertFourier(OnnxNode& node) {
  ASSIGN_OR_RETURN(const OnnxValue x, node.value(0));
  if (x.rank() < 3) return InvalidArgument("shape ", DimsText(x.dims), ", want 3 dimensions");
  ASSIGN_OR_RETURN(const Transform t, ReadTransform(node, x));
  // The axis and the parts of its entries become one.
  std::vector<int> order(static_cast<size_t>(x.rank()));
  std::iota(order.begin(), order.end(), 0);
  order.erase(order.begin() + t.axis);
  order.insert(order.end() - 1, t.axis);
  OnnxValue y = Reordered(x, order);
  Dims dims(y.dims.begin(), y.dims.end() - 2);
  Dims flat = dims;
  flat.push_back(Dim::Of(t.entries * t.parts));
  ASSIGN_OR_RETURN(y, Reshaped(node, y, std::move(flat)));
  const std::string name = node.Scratch("waves");
  ASSIGN_OR_RETURN(y, DenseOf(node, y, WavesOf(t), name, name));
  dims.push_back(Dim::Of(t.out_entries()));
  dims.push_back(Dim::Of(t.out_parts()));
  ASSIGN_OR_RETURN(y, Reshaped(node, y, std::move(dims)));
  node.Set(Reordered(y, Inverse(order)));
  return absl::OkStatus();
}

}  // namespace ulfd::convert

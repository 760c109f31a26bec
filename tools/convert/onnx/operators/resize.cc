// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/onnx/operators/resize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "tools/convert/onnx/model/graph.h"
#include "tools/convert/onnx/operators/layers.h"
#include "tools/convert/recipes.h"

namespace ulfd::convert {
namespace {

using engine::Dim;

constexpr int64_t kMostWeights = 1 << 24;

// The input's coordinate that output i lies at.
template <typename T>
absl::StatusOr<T> Coordinate(const std::string& mode, T i, T from, T to, T scale, T start, T end) {
  constexpr T kHalf = 0.5;
  if (mode == "half_pixel") return (i + kHalf) / scale - kHalf;
  if (mode == "pytorch_half_pixel") return to > 1 ? (i + kHalf) / scale - kHalf : 0;
  if (mode == "asymmetric") return i / scale;
  if (mode == "tf_half_pixel_for_nn") return (i + kHalf) / scale;
  if (mode == "align_corners") {
    if (std::fabs(from * scale - to) > T(1e-3)) {
      return Unimplemented("align_corners to a size that is no whole number");
    }
    return to > 1 ? i * (from - 1) / (to - 1) : 0;
  }
  if (mode == "half_pixel_symmetric") {
    const T adjusted = to / (scale * from);
    return from / 2 * (1 - adjusted) + (i + kHalf) / scale - kHalf;
  }
  if (mode == "tf_crop_and_resize") {
    return to > 1 ? start * (from - 1) + i * (end - start) * (from - 1) / (to - 1)
                  : kHalf * (start + end) * (from - 1);
  }
  return Unimplemented("coordinate_transformation_mode ", mode);
}

absl::StatusOr<int64_t> Nearest(const std::string& mode, float x) {
  if (mode == "round_prefer_floor") return static_cast<int64_t>(std::ceil(x - 0.5f));
  if (mode == "round_prefer_ceil") return static_cast<int64_t>(std::floor(x + 0.5f));
  if (mode == "floor") return static_cast<int64_t>(std::floor(x));
  if (mode == "ceil") return static_cast<int64_t>(std::ceil(x));
  return Unimplemented("nearest_mode ", mode);
}

// Of the inputs one before to two behind a place, by its distance from the one before it.
std::array<double, 4> CubicWeights(double a, double r) {
  const auto near = [a](double d) { return ((a + 2) * d - (a + 3)) * d * d + 1; };
  const auto far = [a](double d) { return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a; };
  return {far(r + 1), near(r), near(1 - r), far(2 - r)};
}

absl::Status CheckRequest(const onnx::NodeProto& node, const ResizeRequest& request, size_t rank) {
  if ((!request.sizes.empty() && request.sizes.size() != rank) ||
      (!request.scales.empty() && request.scales.size() != rank) ||
      request.sizes.empty() == request.scales.empty()) {
    return InvalidArgument("want scales or sizes, one per dimension");
  }
  if (FindAttribute(node, "axes") != nullptr || IntAttribute(node, "antialias", 0) != 0 ||
      StringAttribute(node, "keep_aspect_ratio_policy", "stretch") != std::string("stretch")) {
    return Unimplemented("axes, antialias or keep_aspect_ratio_policy");
  }
  return absl::OkStatus();
}

// Adds what four inputs from `first` on give to output i.  What lies outside counts as the border,
// or, if `excludes`, not at all.
void AddWeights(int64_t first, std::array<double, 4> weights, bool excludes, int64_t i,
                ResizedAxis& axis) {
  double total = 0;
  for (int64_t k = 0; k < 4; ++k) {
    double& weight = weights[static_cast<size_t>(k)];
    if (excludes && (first + k < 0 || first + k >= axis.from)) weight = 0;
    total += weight;
  }
  for (int64_t k = 0; k < 4; ++k) {
    const int64_t input = std::clamp<int64_t>(first + k, 0, axis.from - 1);
    axis.weight[static_cast<size_t>(input * axis.to + i)] +=
        weights[static_cast<size_t>(k)] / (excludes ? total : 1);
  }
}

}  // namespace

bool ResizedAxis::IsIdentity() const {
  if (from != to) return false;
  for (int64_t k = 0; k < from * to; ++k) {
    if (weight[static_cast<size_t>(k)] != (k / to == k % to ? 1 : 0)) return false;
  }
  return std::all_of(bias.begin(), bias.end(), [](double b) { return b == 0; });
}

absl::StatusOr<ResizedAxis> ResizeAxis(const onnx::NodeProto& node, int64_t opset,
                                       const ResizeRequest& request, int axis, int rank,
                                       int64_t from) {
  const auto place = static_cast<size_t>(axis), all = static_cast<size_t>(rank);
  RETURN_IF_ERROR(CheckRequest(node, request, all));
  const bool old = node.op_type() == "Upsample" || opset < 11;
  const std::string coordinates =
      old ? "asymmetric" : StringAttribute(node, "coordinate_transformation_mode", "half_pixel");
  const std::string mode = StringAttribute(node, "mode", "nearest");
  const std::string nearest =
      old ? "floor" : StringAttribute(node, "nearest_mode", "round_prefer_floor");
  const double scale = request.sizes.empty()
                           ? double{request.scales[place]}
                           : static_cast<double>(request.sizes[place]) / static_cast<double>(from);
  const double wanted = request.sizes.empty() ? std::floor(static_cast<double>(from) * scale)
                                              : static_cast<double>(request.sizes[place]);
  if (!(scale > 0) || !(wanted >= 1) || wanted * static_cast<double>(from) > kMostWeights) {
    return InvalidArgument("dimension ", axis, " of ", from, " times ", scale);
  }
  double start = 0, end = 1;
  if (coordinates == "tf_crop_and_resize") {
    if (request.roi.size() != 2 * all) return InvalidArgument("want a roi");
    start = double{request.roi[place]};
    end = double{request.roi[all + place]};
  }
  ResizedAxis out{.from = from, .to = static_cast<int64_t>(wanted)};
  out.weight.assign(static_cast<size_t>(from * out.to), 0.0);
  out.bias.assign(static_cast<size_t>(out.to), 0.0);
  const bool excludes = IntAttribute(node, "exclude_outside", 0) != 0;
  const double a = double{FloatAttribute(node, "cubic_coeff_a", -0.75f)};
  for (int64_t i = 0; i < out.to; ++i) {
    ASSIGN_OR_RETURN(const double x,
                     Coordinate(coordinates, static_cast<double>(i), static_cast<double>(from),
                                wanted, scale, start, end));
    if (!(std::fabs(x) < 1e9)) return InvalidArgument("a roi that cannot be");
    if (coordinates == "tf_crop_and_resize" && (x < 0 || x > static_cast<double>(from - 1))) {
      out.bias[static_cast<size_t>(i)] = double{FloatAttribute(node, "extrapolation_value", 0)};
      continue;
    }
    std::array<double, 4> weights = {0, 1, 0, 0};
    auto first = static_cast<int64_t>(std::floor(x));
    const double r = x - std::floor(x);
    if (mode == "nearest") {
      // In single precision, as runtimes do: it decides between two.
      ASSIGN_OR_RETURN(const float at,
                       Coordinate(coordinates, static_cast<float>(i), static_cast<float>(from),
                                  static_cast<float>(wanted), static_cast<float>(scale),
                                  static_cast<float>(start), static_cast<float>(end)));
      ASSIGN_OR_RETURN(first, Nearest(nearest, at));
    } else if (mode == "linear") {
      weights = {0, 1 - r, r, 0};
    } else if (mode == "cubic") {
      weights = CubicWeights(a, r);
    } else {
      return Unimplemented("mode ", mode);
    }
    AddWeights(first - 1, weights, excludes && mode != "nearest", i, out);
  }
  return out;
}

namespace {

// Constants of the node; what is not read is left empty.
absl::StatusOr<ResizeRequest> RequestOf(OnnxNode& node, const OnnxValue& x) {
  ResizeRequest request;
  const bool old = node.node.op_type() == "Upsample" || node.graph.opset() < 11;
  const auto floats = [&](int i) -> absl::StatusOr<std::vector<float>> {
    if (!node.Has(i)) return std::vector<float>();
    if (node.constant(i) == nullptr) return Unimplemented("scales that are computed");
    return node.constant(i)->ToFloats();
  };
  if (old && node.node.op_type() == "Upsample" && node.graph.opset() < 9) {
    request.scales = FloatsAttribute(node.node, "scales");
    return request;
  }
  ASSIGN_OR_RETURN(request.scales, floats(old ? 1 : 2));
  if (old) return request;
  ASSIGN_OR_RETURN(request.roi, floats(1));
  if (!node.Has(3)) return request;
  if (node.constant(3) == nullptr) return Unimplemented("sizes that are computed");
  ASSIGN_OR_RETURN(const Dims sizes, node.constant(3)->ToDims());
  if (static_cast<int>(sizes.size()) != x.rank()) {
    return InvalidArgument("want a size per dimension");
  }
  for (int d = 0; d < x.rank(); ++d) {
    if (!sizes[static_cast<size_t>(d)].IsConst() && sizes[static_cast<size_t>(d)] != x.dims[d]) {
      return Unimplemented("another number of rows");
    }
    // Rows stay as they are; their number is not looked at.
    request.sizes.push_back(x.dims[d].IsConst() ? sizes[static_cast<size_t>(d)].value() : 0);
    if (!x.dims[d].IsConst() && sizes[static_cast<size_t>(d)].IsConst()) {
      return Unimplemented("a number of rows that is fixed to ",
                           sizes[static_cast<size_t>(d)].value());
    }
  }
  return request;
}

// A matrix product along every axis that changes.
absl::Status Resize(OnnxNode& node) {
  ASSIGN_OR_RETURN(OnnxValue x, node.value(0));
  ASSIGN_OR_RETURN(const ResizeRequest request, RequestOf(node, x));
  const int rank = x.rank(), last = rank - 1;
  for (int axis = 0; axis < rank; ++axis) {
    if (!x.dims[axis].IsConst()) {
      if (!request.scales.empty() && static_cast<int>(request.scales.size()) == rank &&
          request.scales[static_cast<size_t>(axis)] != 1) {
        return Unimplemented("another number of rows");
      }
      continue;
    }
    ASSIGN_OR_RETURN(const ResizedAxis resized, ResizeAxis(node.node, node.graph.opset(), request,
                                                           axis, rank, x.dims[axis].value()));
    if (resized.IsIdentity()) continue;
    Dense dense{.weight = std::vector<float>(resized.weight.begin(), resized.weight.end()),
                .sizes = {resized.from, resized.to}};
    if (std::any_of(resized.bias.begin(), resized.bias.end(), [](double b) { return b != 0; })) {
      dense.bias.assign(resized.bias.begin(), resized.bias.end());
    }
    const std::string out = node.Scratch("axis");
    ASSIGN_OR_RETURN(const OnnxValue y, DenseOf(node, MoveAxis(x, axis, last), dense, out, out));
    x = MoveAxis(y, last, axis);
  }
  node.Set(std::move(x));
  return absl::OkStatus();
}

constexpr OnnxType kTypes[] = {
    {"Resize", &Resize},
    {"Upsample", &Resize},
};

}  // namespace

absl::Span<const OnnxType> ResizeOnnxTypes() { return kTypes; }

}  // namespace ulfd::convert

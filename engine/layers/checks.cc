// SPDX-License-Identifier: Apache-2.0
#include "engine/layers/checks.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/status_macros.h"

namespace ulfd::engine {

absl::Status WantFloat32(absl::Span<const TensorSpec> in) {
  for (size_t i = 0; i < in.size(); ++i) {
    if (in[i].dtype == DType::kFloat32) continue;
    return InvalidArgument("input ", i, ": ", Name(in[i].dtype), ", want float32");
  }
  return absl::OkStatus();
}

absl::Status WantOneType(absl::Span<const TensorSpec> in) {
  for (size_t i = 1; i < in.size(); ++i) {
    if (in[i].dtype == in[0].dtype) continue;
    return InvalidArgument("input ", i, ": ", Name(in[i].dtype), ", want ", Name(in[0].dtype),
                           " like input 0");
  }
  return absl::OkStatus();
}

absl::Status WantRank(absl::Span<const TensorSpec> in, int index, int min, int max) {
  const int rank = in[index].shape.rank();
  if (rank >= min && rank <= max) return absl::OkStatus();
  std::string wanted = absl::StrCat("rank ", min);
  if (max == min + 1) absl::StrAppend(&wanted, " or ", max);
  if (max > min + 1) absl::StrAppend(&wanted, " or more");
  return BadInput(index, in[index], wanted);
}

absl::Status WantImage(absl::Span<const TensorSpec> in) {
  RETURN_IF_ERROR(WantFloat32(in));
  return WantRank(in, 0, 4, 4);
}

absl::Status WantBetween(absl::string_view field, int64_t value, int64_t min, int64_t max) {
  if (value >= min && value <= max) return absl::OkStatus();
  const bool bounded = max < std::numeric_limits<int64_t>::max();
  return InvalidArgument(field, ": ", value, ", want ", min,
                         bounded ? absl::StrCat(" to ", max) : " or more");
}

absl::Status WantAxis(absl::string_view field, int64_t axis, const TensorSpec& spec) {
  if (axis >= 0 && axis < spec.shape.rank()) return absl::OkStatus();
  return InvalidArgument(field, ": ", axis, ", want an axis of input 0: shape ",
                         spec.shape.ToString());
}

std::optional<Dim> Same(Dim a, Dim b) {
  if (a == b) return a;
  if (a.IsUnknown()) return b;
  if (b.IsUnknown()) return a;
  if (a.IsConst() && b.IsConst()) return std::nullopt;
  // A literal 1 beside a user's rows: one user per request.
  if (a.IsUsers() && b.IsConst() && a.value() == b.value()) return a;
  if (b.IsUsers() && a.IsConst() && a.value() == b.value()) return b;
  return Dim::Unknown();
}

Shape AlignUserRow(const TensorSpec& spec, int rank) {
  Shape shape = spec.shape;
  if (spec.level == Level::kUser && shape.rank() > 0 && shape.rank() < rank &&
      shape[0] == Dim::Users()) {
    shape[0] = Dim::Of(1);
  }
  return shape;
}

TensorSpecs OnlyOutput(TensorSpec out, absl::Span<const TensorSpec> in) {
  out.level = LevelOf(out.shape, in);
  return {std::move(out)};
}

absl::StatusOr<TensorSpecs> InferBroadcast(absl::Span<const TensorSpec> in) {
  int rank = 0;
  for (const TensorSpec& spec : in) rank = std::max(rank, spec.shape.rank());
  Shape shape = AlignUserRow(in[0], rank);
  for (size_t i = 1; i < in.size(); ++i) {
    absl::StatusOr<Shape> both = BroadcastShapes(shape, AlignUserRow(in[i], rank));
    if (!both.ok()) {
      return InvalidArgument("input ", i, ": ", both.status().message());
    }
    shape = *std::move(both);
  }
  return OnlyOutput({DType::kFloat32, std::move(shape)}, in);
}

std::string WeightLabel(LayerWeights weights, int index) {
  std::string label = absl::StrCat("weight ", index);
  const std::string& name = weights[index].name;
  if (!name.empty() && name != label) absl::StrAppend(&label, " \"", name, "\"");
  return label;
}

std::string ShapeText(const Weight& weight) {
  return ToString(absl::MakeConstSpan(weight.dims.data(), weight.dims.size()));
}

absl::StatusOr<Weight> WantMatrix(LayerWeights weights, int index) {
  Weight matrix = weights[index];
  while (matrix.rank() > 2 && matrix.dims[0] == 1) matrix.dims.erase(matrix.dims.begin());
  if (matrix.rank() != 2) return BadWeight(weights, index, "a matrix");
  return matrix;
}

void Suggest(TensorSpec& spec, const Shape& shape, Level level) {
  if (!spec.shape.ranked()) {
    spec.shape = shape;
  } else if (spec.shape.rank() == shape.rank()) {
    for (int i = 0; i < shape.rank(); ++i) {
      if (spec.shape[i].IsUnknown()) spec.shape[i] = shape[i];
    }
  } else {
    return;
  }
  if (spec.level == Level::kUnknown) spec.level = level;
}

}  // namespace ulfd::engine

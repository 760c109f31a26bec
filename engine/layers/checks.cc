// SPDX-License-Identifier: Apache-2.0
#include "engine/layers/checks.h"

#include <algorithm>
#include <numeric>
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

absl::StatusOr<float> EpsOf(const ParseContext& ctx, absl::string_view field, bool is_set,
                            float eps) {
  constexpr float kGuideEps = 0.01f;
  if (!is_set) {
    if (ctx.guide_eps) eps = kGuideEps;
    ctx.notices.push_back(absl::StrCat(
        field, ".eps is not set: using ", eps,
        ctx.guide_eps ? ", the layer guide's default" : ", the published format's default"));
  }
  if (!(eps >= 0)) {
    return InvalidArgument(field, ".eps: ", eps, ", want 0 or more");
  }
  return eps;
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

absl::StatusOr<CyclicParams> ReadCyclic(LayerWeights weights) {
  constexpr int64_t kMaxPeriod = int64_t{1} << 26;
  // Elements per step of the kernels: fits L1, hides the cost of a call.
  constexpr int64_t kMinBlock = 2048;
  CyclicParams params;
  params.period = 1;
  for (size_t i = 0; i < weights.size(); ++i) {
    const int64_t size = static_cast<int64_t>(weights[i].data.size());
    if (size == 0) return BadWeight(weights, i, "at least one value");
    params.period = std::lcm(params.period, size);
    if (params.period > kMaxPeriod) {
      return BadWeight(weights, i, "a size that divides those of the other weights");
    }
  }
  params.block = params.period * std::max<int64_t>(1, kMinBlock / params.period);
  for (const Weight& weight : weights) {
    std::vector<float> values(params.block);
    for (int64_t i = 0; i < params.block; i += weight.data.size()) {
      std::copy(weight.data.begin(), weight.data.end(), values.begin() + i);
    }
    params.values.push_back(std::move(values));
  }
  return params;
}

absl::StatusOr<TensorSpecs> InferCyclic(const TensorSpec& in, const CyclicParams& params) {
  RETURN_IF_ERROR(WantFloat32({in}));
  // A factor of the number of elements in every row.
  int64_t row = 1;
  for (int i = 1; i < in.shape.rank(); ++i) {
    if (in.shape[i].IsConst()) row *= in.shape[i].value();
  }
  TensorSpec out = in;
  if (row % params.period == 0) return TensorSpecs{out};
  const Dim elements = in.shape.Elements();
  if ((elements.IsConst() || elements.IsUsers()) && elements.value() % params.period != 0) {
    return BadInput(0, in, "a multiple of ", params.period,
                    " elements (the size of the parameters)");
  }
  // The parameters of a row depend on its place.
  if (out.level != Level::kConstant) out.level = Level::kUnknown;
  return TensorSpecs{out};
}

void SuggestCyclic(TensorSpec& spec, const CyclicParams& params) {
  if (params.period > 1) {
    Suggest(spec, Shape({Dim::Unknown(), Dim::Of(params.period)}), Level::kUnknown);
  }
}

}  // namespace ulfd::engine

// Functions whose parameters repeat along the flattened input: prelu, dice, bn.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "engine/kernels/table.h"
#include "engine/layers/checks.h"
#include "engine/layers/types/building_blocks.h"
#include "engine/layers/types/families.h"

namespace ulfd::engine {
namespace {

// Errors: an empty weight.
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

class CyclicKernel final : public Kernel {
 public:
  CyclicKernel(Semantics::Op op, const CyclicParams& params, float eps)
      : block_(params.block), values_(params.values) {
    const auto divide = [eps](float value, float variance) {
      return static_cast<float>(double{value} / std::sqrt(double{variance} + double{eps}));
    };
    if (op == Semantics::Op::kPrelu) {
      epilogue_.activation = {.kind = Activation::Kind::kPrelu, .slope = values_[0].data()};
    } else if (op == Semantics::Op::kDice) {
      for (float& v : values_[2]) v = divide(1, v);
      epilogue_.activation = {.kind = Activation::Kind::kDice,
                              .mean = values_[1].data(),
                              .scale = values_[2].data(),
                              .gamma = values_[0].data()};
    } else {
      for (int64_t i = 0; i < block_; ++i) values_[1][i] = divide(values_[1][i], values_[3][i]);
      values_.pop_back();  // The variance is in the scale now.
      epilogue_.affine = {values_[2].data(), values_[1].data(), values_[0].data()};
    }
  }
  absl::Status Run(RunContext& ctx) const override {
    const float* const x = ctx.in[0].f32();
    float* const y = ctx.out[0].f32();
    const int64_t n = ctx.in[0].elements(), rows = n / block_, whole = rows * block_;
    Kernels().epilogue(epilogue_, x, block_, y, block_, rows, block_);
    if (whole < n) {
      Kernels().epilogue(epilogue_, x + whole, block_, y + whole, block_, 1, n - whole);
    }
    return absl::OkStatus();
  }

 private:
  const int64_t block_;
  std::vector<std::vector<float>> values_;
  Epilogue epilogue_;  // Points into values_.
};

// What prelu, dice and bn have in common.  Weights repeat along the flattened x, whose size they
// divide (usually: one value per element of the last dimension).  The level is that of x if they
// fit the rows.
class Cyclic final : public Layer {
 public:
  static absl::StatusOr<std::unique_ptr<Layer>> Make(Semantics::Op op, LayerWeights weights,
                                                     float eps) {
    ASSIGN_OR_RETURN(CyclicParams params, ReadCyclic(weights));
    return std::unique_ptr<Layer>(new Cyclic(op, std::move(params), eps));
  }
  // Refuses an input that the parameters do not divide.
  absl::StatusOr<TensorSpecs> Infer(absl::Span<const TensorSpec> in) const override {
    RETURN_IF_ERROR(WantFloat32(in));
    TensorSpec out = in[0];
    // A factor of the number of elements in every row.
    int64_t row = 1;
    for (int i = 1; i < out.shape.rank(); ++i) {
      if (out.shape[i].IsConst()) row *= out.shape[i].value();
    }
    if (row % params_.period == 0) return TensorSpecs{out};
    const Dim elements = out.shape.Elements();
    if ((elements.IsConst() || elements.IsUsers()) && elements.value() % params_.period != 0) {
      return BadInput(0, out, "a multiple of ", params_.period,
                      " elements (the size of the parameters)");
    }
    // The parameters of a row depend on its place.
    if (out.level != Level::kConstant) out.level = Level::kUnknown;
    return TensorSpecs{out};
  }
  void SuggestInputs(absl::Span<TensorSpec> in) const override {
    if (params_.period > 1) {
      Suggest(in[0], Shape({Dim::Unknown(), Dim::Of(params_.period)}), Level::kUnknown);
    }
  }
  Semantics semantics() const override { return {.op = op_, .params = &params_, .eps = eps_}; }
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(absl::Span<const TensorSpec>) const override {
    return std::unique_ptr<Kernel>(new CyclicKernel(op_, params_, eps_));
  }
  std::string Describe() const override {
    if (op_ == Semantics::Op::kPrelu) return absl::StrCat("slopes=", params_.period);
    return absl::StrCat("eps=", eps_, " channels=", params_.period);
  }

 private:
  Cyclic(Semantics::Op op, CyclicParams params, float eps)
      : op_(op), params_(std::move(params)), eps_(eps) {}
  const Semantics::Op op_;
  const CyclicParams params_;
  const float eps_;
};

// The eps of bn and dice: what the file sets, or the default with a notice.  `field` is "bn_param"
// or "dice_param".
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

// prelu_layer.
absl::StatusOr<std::unique_ptr<Layer>> ParsePrelu(const ParseContext& ctx) {
  return Cyclic::Make(Semantics::Op::kPrelu, ctx.weights, 0);
}

// dice_layer.  x-deeplearning's dice_op ignores eps; we do not.
absl::StatusOr<std::unique_ptr<Layer>> ParseDice(const ParseContext& ctx) {
  const auto& param = ctx.param.dice_param();
  ASSIGN_OR_RETURN(const float eps, EpsOf(ctx, "dice_param", param.has_eps(), param.eps()));
  return Cyclic::Make(Semantics::Op::kDice, ctx.weights, eps);
}

// bn_layer.  The mean is subtracted first, never folded into beta: real models (tdm_dnn) have means
// of 5e5 whose product with gamma / sqrt(var) would cancel against x's and leave nothing of a
// float.  oneDNN's batch normalisation normalises over axis 1 only and wants all parameters of that
// length, so it does not fit the repeating ones.
absl::StatusOr<std::unique_ptr<Layer>> ParseBn(const ParseContext& ctx) {
  const auto& param = ctx.param.bn_param();
  ASSIGN_OR_RETURN(const float eps, EpsOf(ctx, "bn_param", param.has_eps(), param.eps()));
  return Cyclic::Make(Semantics::Op::kBatchNorm, ctx.weights, eps);
}

constexpr LayerType kTypes[] = {
    {.name = "prelu_layer",
     .summary = "x > 0 ? x : slope * x",
     .weights = {1, 1},
     .parse = &ParsePrelu,
     .doc = {.formula = "y = x > 0 ? x : slope * x",
             .inputs = "x float32, any shape",
             .weights = "slope; repeats along the flattened x",
             .source = "ULF layer guide",
             .example_inputs = "x:4",
             .example_weights = "4"}},
    {.name = "dice_layer",
     .summary = "p*x + (1-p)*gamma*x with p = sigmoid((x - mean) / sqrt(var + eps))",
     .weights = {3, 3},
     .param_field = ulf::LayerParameter::kDiceParamFieldNumber,
     .parse = &ParseDice,
     .doc = {.formula = "p = sigmoid((x - mean) / sqrt(var + eps)); y = p*x + (1 - p)*gamma*x",
             .inputs = "x float32, any shape",
             .weights = "gamma\nmean\nvar; all repeat along the flattened x",
             .source = "arXiv:1706.06978; ULF layer guide",
             .example_inputs = "x:4",
             .example_weights = "4;4;4",
             .example_param = "dice_param { eps: 1e-8 }"}},
    {.name = "bn_layer",
     .summary = "gamma * (x - mean) / sqrt(var + eps) + beta",
     .weights = {4, 4},
     .param_field = ulf::LayerParameter::kBnParamFieldNumber,
     .parse = &ParseBn,
     .doc = {.formula = "y = gamma * (x - mean) / sqrt(var + eps) + beta",
             .inputs = "x float32, any shape",
             .weights = "beta\ngamma\nmean\nvar; all repeat along the flattened x",
             .source = "ULF layer guide",
             .example_inputs = "x:4",
             .example_weights = "4;4;4;4",
             .example_param = "bn_param { eps: 0.001 }"}},
};

std::vector<Weight> WeightsOf(std::initializer_list<absl::Span<const float>> parameters) {
  std::vector<Weight> weights;
  for (const absl::Span<const float> values : parameters) {
    Weight& weight = weights.emplace_back();
    weight.dims = {static_cast<int64_t>(values.size())};
    weight.data = values;
  }
  return weights;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Layer>> MakeBatchNorm(absl::Span<const float> mean,
                                                     absl::Span<const float> scale,
                                                     absl::Span<const float> beta) {
  const float variance = 1;
  const std::vector<Weight> weights =
      WeightsOf({beta, scale, mean, absl::MakeConstSpan(&variance, 1)});
  return Cyclic::Make(Semantics::Op::kBatchNorm, weights, 0);
}

absl::StatusOr<std::unique_ptr<Layer>> MakeDice(absl::Span<const float> gamma,
                                                absl::Span<const float> mean,
                                                absl::Span<const float> var) {
  return Cyclic::Make(Semantics::Op::kDice, WeightsOf({gamma, mean, var}), 0);
}

absl::Span<const LayerType> CyclicLayers() { return kTypes; }

}  // namespace ulfd::engine

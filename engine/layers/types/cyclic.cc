// Functions whose parameters repeat along the flattened input: prelu, dice, bn.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/kernels/table.h"
#include "engine/layers/checks.h"
#include "engine/layers/types/building_blocks.h"
#include "engine/layers/types/families.h"

namespace ulfd::engine {
namespace {

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
  absl::StatusOr<TensorSpecs> Infer(absl::Span<const TensorSpec> in) const override {
    return InferCyclic(in[0], params_);
  }
  void SuggestInputs(absl::Span<TensorSpec> in) const override { SuggestCyclic(in[0], params_); }
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

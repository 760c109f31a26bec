// Normalisation: bn.
// SPDX-License-Identifier: Apache-2.0
#include "engine/layers/types/norm.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/kernels/elementwise.h"
#include "engine/layers/checks.h"
#include "engine/layers/types/families.h"

namespace ulfd::engine {
namespace {

class BnKernel final : public Kernel {
 public:
  BnKernel(const CyclicParams& params, float eps)
      : block_(params.block),
        beta_(params.values[0]),
        scale_(params.values[1]),
        mean_(params.values[2]) {
    const std::vector<float>& var = params.values[3];
    for (int64_t i = 0; i < block_; ++i) {
      scale_[i] = static_cast<float>(double{scale_[i]} / std::sqrt(double{var[i]} + double{eps}));
    }
  }
  absl::Status Run(RunContext& ctx) const override {
    const Epilogue epilogue{.affine = {mean_.data(), scale_.data(), beta_.data()}};
    ApplyPeriodic(epilogue, block_, ctx.in[0].f32(), ctx.out[0].f32(), ctx.in[0].elements());
    return absl::OkStatus();
  }

 private:
  const int64_t block_;
  const std::vector<float> beta_;
  std::vector<float> scale_;
  const std::vector<float> mean_;
};

// bn_layer: y = (x - mean) * (gamma / sqrt(var + eps)) + beta.
// The mean is subtracted first, never folded into beta: real models (tdm_dnn) have means of 5e5
// whose product with gamma / sqrt(var) would cancel against x's and leave nothing of a float.
// oneDNN's batch normalisation normalises over axis 1 only and wants all parameters of that length,
// so it does not fit the repeating ones.
// Input   0 x f32, any shape.
// Weights 0 beta, 1 gamma, 2 mean, 3 var; they repeat along the flattened x, whose size they divide
//         (usually: one value per element of the last dimension).
// Output  0 shape of x; level of x if the parameters fit the rows.
// Params  bn_param.eps, default 0.001 (eps_defaults GUIDE: 0.01), >= 0.
// Errors  InvalidArgument if a parameter is empty or does not divide x, or eps is negative.
// Source  ULF guide; x-deeplearning blaze/operator/op/batch_normalization_op.
class Bn final : public Layer {
 public:
  Bn(float eps, CyclicParams params) : eps_(eps), params_(std::move(params)) {}

  static absl::StatusOr<std::unique_ptr<Layer>> Parse(const ParseContext& ctx) {
    ASSIGN_OR_RETURN(const float eps, EpsOf(ctx, "bn_param", ctx.param.bn_param().has_eps(),
                                            ctx.param.bn_param().eps()));
    ASSIGN_OR_RETURN(CyclicParams params, ReadCyclic(ctx.weights));
    return std::unique_ptr<Layer>(new Bn(eps, std::move(params)));
  }
  absl::StatusOr<TensorSpecs> Infer(absl::Span<const TensorSpec> in) const override {
    ASSIGN_OR_RETURN(TensorSpec out, InferCyclic(in[0], params_));
    return TensorSpecs{out};
  }
  void SuggestInputs(absl::Span<TensorSpec> in) const override { SuggestCyclic(in[0], params_); }
  Semantics semantics() const override {
    return {.op = Semantics::Op::kBatchNorm, .params = &params_, .eps = eps_};
  }
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(absl::Span<const TensorSpec>) const override {
    return std::unique_ptr<Kernel>(new BnKernel(params_, eps_));
  }
  std::string Describe() const override {
    return absl::StrCat("eps=", eps_, " channels=", params_.period);
  }

 private:
  const float eps_;
  const CyclicParams params_;
};

constexpr LayerType kTypes[] = {
    {.name = "bn_layer",
     .summary = "gamma * (x - mean) / sqrt(var + eps) + beta",
     .inputs = {1, 1},
     .outputs = {1, 1},
     .weights = {4, 4},
     .param_field = ulf::LayerParameter::kBnParamFieldNumber,
     .parse = &Bn::Parse,
     .doc = {.formula = "y = gamma * (x - mean) / sqrt(var + eps) + beta",
             .inputs = "x float32, any shape",
             .weights = "beta\ngamma\nmean\nvar; all repeat along the flattened x",
             .source = "ULF layer guide",
             .example_inputs = "x:4",
             .example_weights = "4;4;4;4",
             .example_param = "bn_param { eps: 0.001 }"}},
};

}  // namespace

absl::StatusOr<std::unique_ptr<Layer>> MakeBatchNorm(absl::Span<const float> mean,
                                                     absl::Span<const float> scale,
                                                     absl::Span<const float> beta) {
  const float variance = 1;
  std::vector<Weight> weights;
  for (absl::Span<const float> values : {beta, scale, mean, absl::MakeConstSpan(&variance, 1)}) {
    Weight& weight = weights.emplace_back();
    weight.dims = {static_cast<int64_t>(values.size())};
    weight.data = values;
  }
  ASSIGN_OR_RETURN(CyclicParams params, ReadCyclic(weights));
  return std::unique_ptr<Layer>(new Bn(0, std::move(params)));
}

absl::Span<const LayerType> NormLayers() { return kTypes; }

}  // namespace ulfd::engine

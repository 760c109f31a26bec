// Activations: relu, prelu, sigmoid, tanh, dice, softmax.
// SPDX-License-Identifier: Apache-2.0
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

// ---------------------------------------------------------------------------------------- relu

// A function without parameters.
class UnaryKernel final : public Kernel {
 public:
  explicit UnaryKernel(UnaryOp op) : op_(op) {}
  absl::Status Run(RunContext& ctx) const override {
    Unary(op_, ctx.in[0].f32(), ctx.out[0].f32(), ctx.in[0].elements());
    return absl::OkStatus();
  }

 private:
  const UnaryOp op_;
};

// relu_layer: y = max(x, 0).
// Input   0 x f32, any shape and level.
// Weights none.
// Output  0 shape and level of x.
// Params  none.
// Errors  InvalidArgument for another type.
// Source  ULF guide; x-deeplearning blaze/operator/op/relu_op.
class Relu final : public Layer {
 public:
  static absl::StatusOr<std::unique_ptr<Layer>> Parse(const ParseContext&) {
    return std::unique_ptr<Layer>(new Relu);
  }
  absl::StatusOr<TensorSpecs> Infer(absl::Span<const TensorSpec> in) const override {
    RETURN_IF_ERROR(WantFloat32(in));
    return TensorSpecs{in[0]};
  }
  Semantics semantics() const override { return {.op = Semantics::Op::kRelu}; }
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(absl::Span<const TensorSpec>) const override {
    return std::unique_ptr<Kernel>(new UnaryKernel(UnaryOp::kRelu));
  }
};

// ---------------------------------------------------------------------------------------- sigmoid
// tanh

// sigmoid_layer: y = 1 / (1 + exp(-x)).  tanh_layer: y = tanh(x).
// Input   0 x f32, any shape and level.
// Weights none.
// Output  0 shape and level of x.
// Params  none.
// Errors  InvalidArgument for another type.
// Source  ULF guide; x-deeplearning blaze/operator/op/{sigmoid,tanh}_op.
template <UnaryOp kOp>
class Smooth final : public Layer {
 public:
  static absl::StatusOr<std::unique_ptr<Layer>> Parse(const ParseContext&) {
    return std::unique_ptr<Layer>(new Smooth);
  }
  absl::StatusOr<TensorSpecs> Infer(absl::Span<const TensorSpec> in) const override {
    RETURN_IF_ERROR(WantFloat32(in));
    return TensorSpecs{in[0]};
  }
  Semantics semantics() const override {
    return {.op = kOp == UnaryOp::kSigmoid ? Semantics::Op::kSigmoid : Semantics::Op::kTanh};
  }
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(absl::Span<const TensorSpec>) const override {
    return std::unique_ptr<Kernel>(new UnaryKernel(kOp));
  }
};

// ---------------------------------------------------------------------------------------- prelu

class PreluKernel final : public Kernel {
 public:
  explicit PreluKernel(const CyclicParams& params)
      : block_(params.block), slope_(params.values[0]) {}
  absl::Status Run(RunContext& ctx) const override {
    Epilogue epilogue;
    epilogue.activation.kind = Activation::Kind::kPrelu;
    epilogue.activation.slope = slope_.data();
    ApplyPeriodic(epilogue, block_, ctx.in[0].f32(), ctx.out[0].f32(), ctx.in[0].elements());
    return absl::OkStatus();
  }

 private:
  const int64_t block_;
  const std::vector<float> slope_;
};

// prelu_layer: y = x > 0 ? x : slope * x.
// Input   0 x f32, any shape.
// Weights 0 slope, any shape; it repeats along the flattened x, whose size it divides.
// Output  0 shape of x; level of x if the slope fits the rows.
// Params  none.
// Errors  InvalidArgument if the slope is empty or does not divide x.
// Source  ULF guide; x-deeplearning blaze/operator/op/prelu_op (index modulo size).
class Prelu final : public Layer {
 public:
  static absl::StatusOr<std::unique_ptr<Layer>> Parse(const ParseContext& ctx) {
    ASSIGN_OR_RETURN(CyclicParams params, ReadCyclic(ctx.weights));
    return std::unique_ptr<Layer>(new Prelu(std::move(params)));
  }
  absl::StatusOr<TensorSpecs> Infer(absl::Span<const TensorSpec> in) const override {
    ASSIGN_OR_RETURN(TensorSpec out, InferCyclic(in[0], params_));
    return TensorSpecs{out};
  }
  void SuggestInputs(absl::Span<TensorSpec> in) const override { SuggestCyclic(in[0], params_); }
  Semantics semantics() const override { return {.op = Semantics::Op::kPrelu, .params = &params_}; }
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(absl::Span<const TensorSpec>) const override {
    return std::unique_ptr<Kernel>(new PreluKernel(params_));
  }
  std::string Describe() const override { return absl::StrCat("slopes=", params_.period); }

 private:
  explicit Prelu(CyclicParams params) : params_(std::move(params)) {}
  const CyclicParams params_;
};

// ---------------------------------------------------------------------------------------- dice

class DiceKernel final : public Kernel {
 public:
  DiceKernel(const CyclicParams& params, float eps)
      : block_(params.block),
        gamma_(params.values[0]),
        mean_(params.values[1]),
        scale_(params.values[2]) {
    for (float& v : scale_) v = static_cast<float>(1.0 / std::sqrt(double{v} + double{eps}));
  }
  absl::Status Run(RunContext& ctx) const override {
    Epilogue epilogue;
    epilogue.activation = {.kind = Activation::Kind::kDice,
                           .mean = mean_.data(),
                           .scale = scale_.data(),
                           .gamma = gamma_.data()};
    ApplyPeriodic(epilogue, block_, ctx.in[0].f32(), ctx.out[0].f32(), ctx.in[0].elements());
    return absl::OkStatus();
  }

 private:
  const int64_t block_;
  const std::vector<float> gamma_, mean_;
  std::vector<float> scale_;
};

// dice_layer: y = p*x + (1-p)*gamma*x,  p = sigmoid((x - mean) / sqrt(var + eps)).
// Input   0 x f32, any shape.
// Weights 0 gamma, 1 mean, 2 var; they repeat along the flattened x, whose size they divide.
// Output  0 shape of x; level of x if the parameters fit the rows.
// Params  dice_param.eps, default 1e-8 (eps_defaults GUIDE: 0.01), >= 0.
// Errors  InvalidArgument if a parameter is empty or does not divide x, or eps is negative.
// Source  arXiv:1706.06978; ULF guide; x-deeplearning blaze/operator/op/dice_op (which ignores eps;
//         we do not).
class Dice final : public Layer {
 public:
  static absl::StatusOr<std::unique_ptr<Layer>> Parse(const ParseContext& ctx) {
    ASSIGN_OR_RETURN(const float eps, EpsOf(ctx, "dice_param", ctx.param.dice_param().has_eps(),
                                            ctx.param.dice_param().eps()));
    ASSIGN_OR_RETURN(CyclicParams params, ReadCyclic(ctx.weights));
    return std::unique_ptr<Layer>(new Dice(eps, std::move(params)));
  }
  absl::StatusOr<TensorSpecs> Infer(absl::Span<const TensorSpec> in) const override {
    ASSIGN_OR_RETURN(TensorSpec out, InferCyclic(in[0], params_));
    return TensorSpecs{out};
  }
  void SuggestInputs(absl::Span<TensorSpec> in) const override { SuggestCyclic(in[0], params_); }
  Semantics semantics() const override {
    return {.op = Semantics::Op::kDice, .params = &params_, .eps = eps_};
  }
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(absl::Span<const TensorSpec>) const override {
    return std::unique_ptr<Kernel>(new DiceKernel(params_, eps_));
  }
  std::string Describe() const override {
    return absl::StrCat("eps=", eps_, " channels=", params_.period);
  }

 private:
  Dice(float eps, CyclicParams params) : eps_(eps), params_(std::move(params)) {}
  const float eps_;
  const CyclicParams params_;
};

// ---------------------------------------------------------------------------------------- softmax

class SoftmaxKernel final : public Kernel {
 public:
  explicit SoftmaxKernel(int axis) : axis_(axis) {}
  absl::Status Run(RunContext& ctx) const override {
    const Tensor& x = ctx.in[0];
    int64_t outer = 1, inner = 1;
    for (int i = 0; i < axis_; ++i) outer *= x.dims[i];
    for (int i = axis_ + 1; i < x.rank(); ++i) inner *= x.dims[i];
    engine::Softmax(x.f32(), ctx.out[0].f32(), outer, x.dims[axis_], inner);
    return absl::OkStatus();
  }

 private:
  const int axis_;
};

// softmax_layer: y = exp(x - max) / sum(exp(x - max)) along one axis.
// Input   0 x f32, any rank above the axis.
// Weights none.
// Output  0 shape of x; level of x, unknown if the axis is 0 (rows depend on each other).
// Params  softmax_param.dim, default 1. softmax_param.use_bias has no effect on inference.
// Errors  InvalidArgument for another type, an axis that x lacks, or an axis of length 0.
// Source  ULF guide; x-deeplearning blaze/operator/op/softmax_op.
class Softmax final : public Layer {
 public:
  static absl::StatusOr<std::unique_ptr<Layer>> Parse(const ParseContext& ctx) {
    const int axis = ctx.param.softmax_param().dim();
    if (axis < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("softmax_param.dim: ", axis, ", want 0 or more"));
    }
    return std::unique_ptr<Layer>(new Softmax(axis));
  }
  absl::StatusOr<TensorSpecs> Infer(absl::Span<const TensorSpec> in) const override {
    RETURN_IF_ERROR(WantFloat32(in));
    RETURN_IF_ERROR(WantAxis("softmax_param.dim", axis_, in[0]));
    if (in[0].shape[axis_] == Dim::Of(0)) {
      return BadInput(0, in[0], absl::StrCat("at least one element along axis ", axis_));
    }
    TensorSpec out = in[0];
    if (axis_ == 0 && out.level != Level::kConstant) out.level = Level::kUnknown;
    return TensorSpecs{out};
  }
  Semantics semantics() const override { return {.op = Semantics::Op::kSoftmax, .axis = axis_}; }
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(absl::Span<const TensorSpec>) const override {
    return std::unique_ptr<Kernel>(new SoftmaxKernel(axis_));
  }
  std::string Describe() const override { return absl::StrCat("dim=", axis_); }

 private:
  explicit Softmax(int axis) : axis_(axis) {}
  const int axis_;
};

constexpr LayerType kTypes[] = {
    {.name = "relu_layer",
     .summary = "max(x, 0)",
     .inputs = {1, 1},
     .outputs = {1, 1},
     .parse = &Relu::Parse,
     .doc = {.formula = "y = max(x, 0)",
             .inputs = "x float32, any shape",
             .source = "ULF layer guide",
             .example_inputs = "x:4"}},
    {.name = "prelu_layer",
     .summary = "x > 0 ? x : slope * x",
     .inputs = {1, 1},
     .outputs = {1, 1},
     .weights = {1, 1},
     .parse = &Prelu::Parse,
     .doc = {.formula = "y = x > 0 ? x : slope * x",
             .inputs = "x float32, any shape",
             .weights = "slope; repeats along the flattened x",
             .source = "ULF layer guide",
             .example_inputs = "x:4",
             .example_weights = "4"}},
    {.name = "sigmoid_layer",
     .summary = "1 / (1 + exp(-x))",
     .inputs = {1, 1},
     .outputs = {1, 1},
     .parse = &Smooth<UnaryOp::kSigmoid>::Parse,
     .doc = {.formula = "y = 1 / (1 + exp(-x))",
             .inputs = "x float32, any shape",
             .source = "ULF layer guide",
             .example_inputs = "x:4"}},
    {.name = "tanh_layer",
     .summary = "tanh(x)",
     .inputs = {1, 1},
     .outputs = {1, 1},
     .parse = &Smooth<UnaryOp::kTanh>::Parse,
     .doc = {.formula = "y = tanh(x)",
             .inputs = "x float32, any shape",
             .source = "ULF layer guide",
             .example_inputs = "x:4"}},
    {.name = "dice_layer",
     .summary = "p*x + (1-p)*gamma*x with p = sigmoid((x - mean) / sqrt(var + eps))",
     .inputs = {1, 1},
     .outputs = {1, 1},
     .weights = {3, 3},
     .param_field = ulf::LayerParameter::kDiceParamFieldNumber,
     .parse = &Dice::Parse,
     .doc = {.formula = "p = sigmoid((x - mean) / sqrt(var + eps)); y = p*x + (1 - p)*gamma*x",
             .inputs = "x float32, any shape",
             .weights = "gamma\nmean\nvar; all repeat along the flattened x",
             .source = "arXiv:1706.06978; ULF layer guide",
             .example_inputs = "x:4",
             .example_weights = "4;4;4",
             .example_param = "dice_param { eps: 1e-8 }"}},
    {.name = "softmax_layer",
     .summary = "softmax along one axis",
     .inputs = {1, 1},
     .outputs = {1, 1},
     .param_field = ulf::LayerParameter::kSoftmaxParamFieldNumber,
     .parse = &Softmax::Parse,
     .doc = {.formula = "y = exp(x - max) / sum(exp(x - max)) along softmax_param.dim (1)",
             .inputs = "x float32, any rank above the axis",
             .source = "ULF layer guide",
             .example_inputs = "x:4"}},
};

}  // namespace

absl::Span<const LayerType> ActivationLayers() { return kTypes; }

}  // namespace ulfd::engine

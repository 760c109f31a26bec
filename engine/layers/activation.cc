// Activations: relu, prelu, sigmoid, tanh, dice, softmax.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/layers/checks.h"
#include "engine/layers/families.h"
#include "engine/layers/multiversion.h"
#include "engine/status_macros.h"
#include "engine/tensor/onednn.h"

namespace ulfd::engine {
namespace {

// ---------------------------------------------------------------------------------------- relu

// NaN stays NaN.
ULFD_MULTIVERSION void ReluRun(const float* x, float* __restrict y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] < 0 ? 0.0f : x[i];
}

class ReluKernel final : public Kernel {
 public:
  absl::Status Run(RunContext& ctx) const override {
    ReluRun(ctx.in[0].f32(), ctx.out[0].f32(), ctx.in[0].elements());
    return absl::OkStatus();
  }
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
    return std::unique_ptr<Kernel>(new ReluKernel);
  }
};

// ---------------------------------------------------------------------------------------- sigmoid
// tanh

class EltwiseKernel final : public Kernel {
 public:
  explicit EltwiseKernel(std::unique_ptr<const Eltwise> function)
      : function_(std::move(function)) {}
  absl::Status Run(RunContext& ctx) const override {
    return function_->Run(ctx.in[0].f32(), ctx.out[0].f32(), ctx.in[0].elements());
  }

 private:
  const std::unique_ptr<const Eltwise> function_;
};

// sigmoid_layer: y = 1 / (1 + exp(-x)).  tanh_layer: y = tanh(x).
// Input   0 x f32, any shape and level.
// Weights none.
// Output  0 shape and level of x.
// Params  none.
// Errors  InvalidArgument for another type.
// Source  ULF guide; x-deeplearning blaze/operator/op/{sigmoid,tanh}_op.
template <Eltwise::Function kFunction>
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
    return {.op = kFunction == Eltwise::Function::kSigmoid ? Semantics::Op::kSigmoid
                                                           : Semantics::Op::kTanh};
  }
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(absl::Span<const TensorSpec>) const override {
    ASSIGN_OR_RETURN(std::unique_ptr<const Eltwise> function, Eltwise::Create(kFunction));
    return std::unique_ptr<Kernel>(new EltwiseKernel(std::move(function)));
  }
};

// ---------------------------------------------------------------------------------------- prelu

ULFD_MULTIVERSION void PreluRun(const float* x, const float* slope, float* __restrict y,
                                int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const float v = x[i],
                scaled = slope[i] * v;  // Both sides always: a branch per value costs 10x.
    y[i] = v > 0 ? v : scaled;
  }
}

class PreluKernel final : public Kernel {
 public:
  explicit PreluKernel(const CyclicParams& params)
      : block_(params.block), slope_(params.values[0]) {}
  absl::Status Run(RunContext& ctx) const override {
    const int64_t n = ctx.in[0].elements();
    for (int64_t i = 0; i < n; i += block_) {
      PreluRun(ctx.in[0].f32() + i, slope_.data(), ctx.out[0].f32() + i, std::min(block_, n - i));
    }
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

ULFD_MULTIVERSION void Standardise(const float* x, const float* mean, const float* inverse,
                                   float* __restrict y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean[i]) * inverse[i];
}

// y holds p on entry.
ULFD_MULTIVERSION void DiceRun(const float* x, const float* gamma, float* __restrict y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * (y[i] + (1.0f - y[i]) * gamma[i]);
}

class DiceKernel final : public Kernel {
 public:
  DiceKernel(const CyclicParams& params, float eps, std::unique_ptr<const Eltwise> sigmoid)
      : block_(params.block),
        gamma_(params.values[0]),
        mean_(params.values[1]),
        inverse_(params.values[2]),
        sigmoid_(std::move(sigmoid)) {
    for (float& v : inverse_) v = static_cast<float>(1.0 / std::sqrt(double{v} + double{eps}));
  }
  absl::Status Run(RunContext& ctx) const override {
    const int64_t n = ctx.in[0].elements();
    for (int64_t i = 0; i < n; i += block_) {
      const float* x = ctx.in[0].f32() + i;
      float* y = ctx.out[0].f32() + i;
      const int64_t count = std::min(block_, n - i);
      Standardise(x, mean_.data(), inverse_.data(), y, count);
      RETURN_IF_ERROR(sigmoid_->Run(y, y, count));
      DiceRun(x, gamma_.data(), y, count);
    }
    return absl::OkStatus();
  }

 private:
  const int64_t block_;
  const std::vector<float> gamma_, mean_;
  std::vector<float> inverse_;
  const std::unique_ptr<const Eltwise> sigmoid_;
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
    ASSIGN_OR_RETURN(std::unique_ptr<const Eltwise> sigmoid,
                     Eltwise::Create(Eltwise::Function::kSigmoid));
    return std::unique_ptr<Kernel>(new DiceKernel(params_, eps_, std::move(sigmoid)));
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

constexpr int kLanes = 16;  // Independent partial results, which the compiler may vectorise.

ULFD_MULTIVERSION float Maximum(const float* x, int64_t n) {
  float lanes[kLanes];
  std::fill_n(lanes, kLanes, x[0]);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) lanes[j] = lanes[j] < x[i + j] ? x[i + j] : lanes[j];
  }
  float maximum = lanes[0];
  for (float lane : lanes) maximum = maximum < lane ? lane : maximum;
  for (; i < n; ++i) maximum = maximum < x[i] ? x[i] : maximum;
  return maximum;
}

// x /= the sum of x.
ULFD_MULTIVERSION void NormaliseRow(float* x, int64_t n) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) lanes[j] += x[i + j];
  }
  float sum = 0;
  for (float lane : lanes) sum += lane;
  for (; i < n; ++i) sum += x[i];
  const float scale = 1.0f / sum;
  for (i = 0; i < n; ++i) x[i] *= scale;
}

// One block [count, inner]: t = x - max over count.  NaNs may be lost in the maximum, never in t.
ULFD_MULTIVERSION void SubtractMax(const float* x, float* __restrict t, float* __restrict max,
                                   int64_t count, int64_t inner) {
  std::copy_n(x, inner, max);
  for (int64_t i = 1; i < count; ++i) {
    for (int64_t j = 0; j < inner; ++j) {
      const float v = x[i * inner + j];
      max[j] = max[j] < v ? v : max[j];
    }
  }
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t j = 0; j < inner; ++j) t[i * inner + j] = x[i * inner + j] - max[j];
  }
}

ULFD_MULTIVERSION void SubtractFrom(const float* x, float value, float* __restrict t, int64_t n) {
  for (int64_t i = 0; i < n; ++i) t[i] = x[i] - value;
}

// One block [count, inner]: y /= sum over count.
ULFD_MULTIVERSION void Normalise(float* __restrict y, float* __restrict sum, int64_t count,
                                 int64_t inner) {
  std::fill_n(sum, inner, 0.0f);
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t j = 0; j < inner; ++j) sum[j] += y[i * inner + j];
  }
  for (int64_t j = 0; j < inner; ++j) sum[j] = 1.0f / sum[j];
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t j = 0; j < inner; ++j) y[i * inner + j] *= sum[j];
  }
}

class SoftmaxKernel final : public Kernel {
 public:
  SoftmaxKernel(int axis, std::unique_ptr<const Eltwise> exp) : axis_(axis), exp_(std::move(exp)) {}

  size_t ScratchBytes(absl::Span<const Tensor> in) const override {
    const Extent e = ExtentOf(in[0]);
    return static_cast<size_t>(e.inner + e.tile * e.count * e.inner) * sizeof(float);
  }
  absl::Status Run(RunContext& ctx) const override {
    const Extent e = ExtentOf(ctx.in[0]);
    const int64_t row = e.count * e.inner;
    if (row == 0) return absl::OkStatus();
    float* per_column = static_cast<float*>(ctx.scratch);
    float* shifted = per_column + e.inner;
    for (int64_t r = 0; r < e.outer; r += e.tile) {
      const int64_t rows = std::min(e.tile, e.outer - r);
      const float* x = ctx.in[0].f32() + r * row;
      float* y = ctx.out[0].f32() + r * row;
      for (int64_t i = 0; i < rows * row; i += row) {
        if (e.inner == 1) {
          SubtractFrom(x + i, Maximum(x + i, row), shifted + i, row);
        } else {
          SubtractMax(x + i, shifted + i, per_column, e.count, e.inner);
        }
      }
      RETURN_IF_ERROR(exp_->Run(shifted, y, rows * row));
      for (int64_t i = 0; i < rows * row; i += row) {
        if (e.inner == 1) {
          NormaliseRow(y + i, row);
        } else {
          Normalise(y + i, per_column, e.count, e.inner);
        }
      }
    }
    return absl::OkStatus();
  }

 private:
  struct Extent {
    int64_t outer = 1, count = 1, inner = 1;
    int64_t tile = 1;  // Rows of [count, inner] handled together.
  };
  Extent ExtentOf(const Tensor& x) const {
    constexpr int64_t kTileElements = 8192;
    Extent e;
    for (int i = 0; i < axis_; ++i) e.outer *= x.dims[i];
    e.count = x.dims[axis_];
    for (int i = axis_ + 1; i < x.rank(); ++i) e.inner *= x.dims[i];
    e.tile = std::max<int64_t>(1, kTileElements / std::max<int64_t>(1, e.count * e.inner));
    e.tile = std::min(e.tile, std::max<int64_t>(1, e.outer));
    return e;
  }

  const int axis_;
  const std::unique_ptr<const Eltwise> exp_;
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
    ASSIGN_OR_RETURN(std::unique_ptr<const Eltwise> exp, Eltwise::Create(Eltwise::Function::kExp));
    return std::unique_ptr<Kernel>(new SoftmaxKernel(axis_, std::move(exp)));
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
     .parse = &Relu::Parse},
    {.name = "prelu_layer",
     .summary = "x > 0 ? x : slope * x",
     .inputs = {1, 1},
     .outputs = {1, 1},
     .weights = {1, 1},
     .parse = &Prelu::Parse},
    {.name = "sigmoid_layer",
     .summary = "1 / (1 + exp(-x))",
     .inputs = {1, 1},
     .outputs = {1, 1},
     .parse = &Smooth<Eltwise::Function::kSigmoid>::Parse},
    {.name = "tanh_layer",
     .summary = "tanh(x)",
     .inputs = {1, 1},
     .outputs = {1, 1},
     .parse = &Smooth<Eltwise::Function::kTanh>::Parse},
    {.name = "dice_layer",
     .summary = "p*x + (1-p)*gamma*x with p = sigmoid((x - mean) / sqrt(var + eps))",
     .inputs = {1, 1},
     .outputs = {1, 1},
     .weights = {3, 3},
     .param_field = ulf::LayerParameter::kDiceParamFieldNumber,
     .parse = &Dice::Parse},
    {.name = "softmax_layer",
     .summary = "softmax along one axis",
     .inputs = {1, 1},
     .outputs = {1, 1},
     .param_field = ulf::LayerParameter::kSoftmaxParamFieldNumber,
     .parse = &Softmax::Parse},
};

}  // namespace

absl::Span<const LayerType> ActivationLayers() { return kTypes; }

}  // namespace ulfd::engine

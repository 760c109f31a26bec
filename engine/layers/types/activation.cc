// Activations without weights: relu, sigmoid, tanh, softmax.
// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/kernels/table.h"
#include "engine/layers/checks.h"
#include "engine/layers/common/function_kernel.h"
#include "engine/layers/types/building_blocks.h"
#include "engine/layers/types/families.h"

namespace ulfd::engine {
namespace {

// ------------------------------------------------------------------------------- relu sigmoid tanh

// relu_layer, sigmoid_layer, tanh_layer.
template <UnaryOp kUnary, Semantics::Op kOp>
class Function final : public Layer {
 public:
  static absl::StatusOr<std::unique_ptr<Layer>> Parse(const ParseContext&) {
    return std::unique_ptr<Layer>(new Function);
  }
  absl::StatusOr<TensorSpecs> Infer(absl::Span<const TensorSpec> in) const override {
    RETURN_IF_ERROR(WantFloat32(in));
    return TensorSpecs{in[0]};
  }
  Semantics semantics() const override { return {.op = kOp}; }
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(absl::Span<const TensorSpec>) const override {
    return MakeKernel([](RunContext& ctx) {
      Kernels().unary(kUnary, ctx.in[0].f32(), ctx.out[0].f32(), ctx.in[0].elements());
    });
  }
};

// ---------------------------------------------------------------------------------------- softmax

// softmax_layer, or its logarithm.  Along axis 0 rows depend on each other, so that their level is
// unknown then.
class SoftmaxLayer final : public Layer {
 public:
  explicit SoftmaxLayer(int axis, bool log = false) : axis_(axis), log_(log) {}

  static absl::StatusOr<std::unique_ptr<Layer>> Parse(const ParseContext& ctx) {
    const int axis = ctx.param.softmax_param().dim();
    RETURN_IF_ERROR(WantBetween("softmax_param.dim", axis, 0));
    return std::unique_ptr<Layer>(new SoftmaxLayer(axis, ctx.param.softmax_param().log()));
  }
  absl::StatusOr<TensorSpecs> Infer(absl::Span<const TensorSpec> in) const override {
    RETURN_IF_ERROR(WantFloat32(in));
    RETURN_IF_ERROR(WantAxis("softmax_param.dim", axis_, in[0]));
    if (in[0].shape[axis_] == Dim::Of(0)) {
      return BadInput(0, in[0], "at least one element along axis ", axis_);
    }
    TensorSpec out = in[0];
    if (axis_ == 0 && out.level != Level::kConstant) out.level = Level::kUnknown;
    return TensorSpecs{out};
  }
  Semantics semantics() const override {
    return {.op = log_ ? Semantics::Op::kOther : Semantics::Op::kSoftmax, .axis = axis_};
  }
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(absl::Span<const TensorSpec>) const override {
    return MakeKernel([axis = axis_, log = log_](RunContext& ctx) {
      const Tensor& x = ctx.in[0];
      const Around around(x, axis);
      Kernels().softmax(x.f32(), ctx.out[0].f32(), around.outer, x.dims[axis], around.inner, log);
    });
  }
  std::string Describe() const override { return absl::StrCat("dim=", axis_, log_ ? " log" : ""); }

 private:
  const int axis_;
  const bool log_;
};

template <UnaryOp kUnary, Semantics::Op kOp>
constexpr LayerType FunctionType(absl::string_view name, absl::string_view summary,
                                 absl::string_view formula) {
  return {.name = name,
          .summary = summary,
          .parse = &Function<kUnary, kOp>::Parse,
          .doc = {.formula = formula,
                  .inputs = "x float32, any shape",
                  .source = "ULF layer guide",
                  .example_inputs = "x:4"}};
}

constexpr LayerType kTypes[] = {
    FunctionType<UnaryOp::kRelu, Semantics::Op::kRelu>("relu_layer", "max(x, 0)", "y = max(x, 0)"),
    FunctionType<UnaryOp::kSigmoid, Semantics::Op::kSigmoid>("sigmoid_layer", "1 / (1 + exp(-x))",
                                                             "y = 1 / (1 + exp(-x))"),
    FunctionType<UnaryOp::kTanh, Semantics::Op::kTanh>("tanh_layer", "tanh(x)", "y = tanh(x)"),
    {.name = "softmax_layer",
     .summary = "softmax along one axis",
     .param_field = ulf::LayerParameter::kSoftmaxParamFieldNumber,
     .parse = &SoftmaxLayer::Parse,
     .doc = {.formula = "y = exp(x - max) / sum(exp(x - max)) along softmax_param.dim (1); "
                        "softmax_param.log: x - max - log(sum(exp(x - max)))",
             .inputs = "x float32, any rank above the axis",
             .source = "ULF layer guide",
             .example_inputs = "x:4"}},
};

}  // namespace

std::unique_ptr<Layer> MakeSoftmax(int axis) { return std::make_unique<SoftmaxLayer>(axis); }

absl::Span<const LayerType> ActivationLayers() { return kTypes; }

}  // namespace ulfd::engine

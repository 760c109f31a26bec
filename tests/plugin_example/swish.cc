// An example plug-in: acme_swish_layer, y = x * sigmoid(beta * x).
//
// Built outside of the engine's libraries: see engine/layers/plugin.h and docs/models.md.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/layers/checks.h"
#include "engine/layers/plugin.h"

namespace {

using ulfd::engine::Kernel;
using ulfd::engine::Layer;
using ulfd::engine::LayerType;
using ulfd::engine::ParseContext;
using ulfd::engine::RunContext;
using ulfd::engine::TensorSpec;
using ulfd::engine::TensorSpecs;

class SwishKernel final : public Kernel {
 public:
  explicit SwishKernel(float beta) : beta_(beta) {}
  absl::Status Run(RunContext& ctx) const override {
    const float* x = ctx.in[0].f32();
    float* y = ctx.out[0].f32();
    const int64_t n = ctx.in[0].elements();
    for (int64_t i = 0; i < n; ++i) y[i] = x[i] / (1.0f + std::exp(-beta_ * x[i]));
    return absl::OkStatus();
  }

 private:
  const float beta_;
};

// acme_swish_layer.  The plugin_param has one attribute, "beta" (1): one number.
class Swish final : public Layer {
 public:
  static absl::StatusOr<std::unique_ptr<Layer>> Parse(const ParseContext& ctx) {
    float beta = 1;
    for (const ulf::LayerAttribute& attribute : ctx.param.plugin_param().attribute()) {
      if (attribute.name() != "beta" || attribute.number_size() != 1) {
        return absl::InvalidArgumentError(absl::StrCat(
            "plugin_param attribute \"", attribute.name(), "\": want only beta, one number"));
      }
      beta = static_cast<float>(attribute.number(0));
    }
    return std::unique_ptr<Layer>(new Swish(beta));
  }
  absl::StatusOr<TensorSpecs> Infer(absl::Span<const TensorSpec> in) const override {
    RETURN_IF_ERROR(ulfd::engine::WantFloat32(in));
    return TensorSpecs{in[0]};
  }
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(absl::Span<const TensorSpec>) const override {
    return std::unique_ptr<Kernel>(new SwishKernel(beta_));
  }
  std::string Describe() const override { return absl::StrCat("beta=", beta_); }

 private:
  explicit Swish(float beta) : beta_(beta) {}
  const float beta_;
};

constexpr LayerType kTypes[] = {
    {.name = "acme_swish_layer",
     .summary = "x * sigmoid(beta * x)",
     .param_field = ulf::LayerParameter::kPluginParamFieldNumber,
     .parse = &Swish::Parse,
     .doc = {.formula = "y = x * sigmoid(beta * x)",
             .inputs = "x float32, any shape",
             .source = "arXiv:1710.05941",
             .example_inputs = "x:4",
             .example_param = "plugin_param { attribute { name: \"beta\" number: 1.5 } }"}},
};

}  // namespace

ULFD_LAYER_PLUGIN("example", kTypes)

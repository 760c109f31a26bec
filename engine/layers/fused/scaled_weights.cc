// Weights that depend on the user.
// SPDX-License-Identifier: Apache-2.0
#include "engine/layers/fused/scaled_weights.h"

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/layers/checks.h"
#include "engine/layers/common/multiversion.h"

namespace ulfd::engine {

namespace {

// y += s * x.
ULFD_MULTIVERSION void AddScaled(const float* x, float s, float* __restrict y, int64_t n) {
  for (int64_t j = 0; j < n; ++j) y[j] += s * x[j];
}

class ScaledWeightsKernel final : public Kernel {
 public:
  explicit ScaledWeightsKernel(const ScaledWeightsOptions& options) : options_(options) {}

  int64_t bytes() const override {
    size_t floats = options_.base.size();
    for (const ScaledWeightsOptions::Term& term : options_.terms) floats += term.w.size();
    return static_cast<int64_t>(floats * sizeof(float));
  }
  absl::Status Run(RunContext& ctx) const override {
    const int64_t n = options_.n, users = ctx.out[0].dims[0];
    for (int64_t u = 0; u < users; ++u) {
      float* y = ctx.out[0].f32() + u * options_.k * n;
      std::copy(options_.base.begin(), options_.base.end(), y);
      for (const ScaledWeightsOptions::Term& term : options_.terms) {
        const Tensor& s = ctx.in[term.input];
        const int64_t width = s.dims[0] > 0 ? s.elements() / s.dims[0] : 0;
        const float* row = s.f32() + (s.dims[0] == 1 ? 0 : u * width) + term.offset;
        for (int64_t i = 0; i < term.k; ++i) {
          AddScaled(term.w.data() + i * n, row[i], y + (term.row + i) * n, n);
        }
      }
    }
    return absl::OkStatus();
  }

 private:
  const ScaledWeightsOptions& options_;
};

}  // namespace

absl::StatusOr<TensorSpecs> ScaledWeights::Infer(absl::Span<const TensorSpec> in) const {
  RETURN_IF_ERROR(WantFloat32(in));
  Dim users = Dim::Of(1);
  for (const ScaledWeightsOptions::Term& term : options_.terms) {
    const Shape& s = in[term.input].shape;
    RETURN_IF_ERROR(WantRank(in, term.input, 2, 8));
    const Dim width = s.RowElements();
    const std::optional<Dim> both = Broadcast(users, s[0]);
    if (!width.IsConst() || width.value() < term.offset + term.k || !both.has_value()) {
      return BadInput(term.input, in[term.input],
                      absl::StrCat("at least ", term.offset + term.k, " columns"));
    }
    users = *both;
  }
  TensorSpec out{DType::kFloat32, Shape({users, Dim::Of(options_.k), Dim::Of(options_.n)}),
                 Level::kUnknown};
  return OnlyOutput(std::move(out), in);
}

absl::StatusOr<std::unique_ptr<Kernel>> ScaledWeights::Prepare(absl::Span<const TensorSpec>) const {
  return std::unique_ptr<Kernel>(new ScaledWeightsKernel(options_));
}

std::string ScaledWeights::Describe() const {
  return absl::StrCat(options_.k, "x", options_.n, " terms=", options_.terms.size());
}

}  // namespace ulfd::engine

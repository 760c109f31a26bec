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
    return static_cast<int64_t>((options_.base.size() + options_.scaled.size()) * sizeof(float));
  }
  absl::Status Run(RunContext& ctx) const override {
    const int64_t n = options_.n, users = ctx.out[0].dims[0];
    const int64_t width = static_cast<int64_t>(options_.scaled.size()) / n;
    for (int64_t u = 0; u < users; ++u) {
      float* const y = ctx.out[0].f32() + u * options_.k * n;
      std::copy(options_.base.begin(), options_.base.end(), y);
      const float* const s = ctx.in[0].f32() + u * width;
      for (int64_t i = 0; i < width; ++i) {
        AddScaled(options_.scaled.data() + i * n, s[i], y + (options_.first_row + i) * n, n);
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
  RETURN_IF_ERROR(WantRank(in, 0, 2, 8));
  const int64_t width = static_cast<int64_t>(options_.scaled.size()) / options_.n;
  if (in[0].shape.RowElements() != Dim::Of(width)) {
    return BadInput(0, in[0], absl::StrCat(width, " columns"));
  }
  TensorSpec out{DType::kFloat32, Shape({in[0].shape[0], Dim::Of(options_.k), Dim::Of(options_.n)}),
                 Level::kUnknown};
  return OnlyOutput(std::move(out), in);
}

absl::StatusOr<std::unique_ptr<Kernel>> ScaledWeights::Prepare(absl::Span<const TensorSpec>) const {
  return std::unique_ptr<Kernel>(new ScaledWeightsKernel(options_));
}

}  // namespace ulfd::engine

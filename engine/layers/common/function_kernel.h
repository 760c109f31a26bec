// Kernels that are nothing but their Run, and what several of them count.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_LAYERS_COMMON_FUNCTION_KERNEL_H_
#define ULFD_ENGINE_LAYERS_COMMON_FUNCTION_KERNEL_H_

#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "engine/layers/layer.h"

namespace ulfd::engine {

// A kernel without scratch, whose Run is run(ctx) and cannot fail.
template <typename RunFunction>
std::unique_ptr<Kernel> MakeKernel(RunFunction run) {
  class FunctionKernel final : public Kernel {
   public:
    explicit FunctionKernel(RunFunction run) : run_(std::move(run)) {}
    absl::Status Run(RunContext& ctx) const override {
      run_(ctx);
      return absl::OkStatus();
    }

   private:
    const RunFunction run_;
  };
  return std::make_unique<FunctionKernel>(std::move(run));
}

// The numbers of entries before and behind an axis.
struct Around {
  Around(const Tensor& x, int axis) {
    for (int d = 0; d < axis; ++d) outer *= x.dims[d];
    for (int d = axis + 1; d < x.rank(); ++d) inner *= x.dims[d];
  }
  int64_t outer = 1, inner = 1;
};

// The input under another shape.
inline std::unique_ptr<Kernel> MakeView() {
  class ViewKernel final : public Kernel {
   public:
    bool IsView() const override { return true; }
    absl::Status Run(RunContext& ctx) const override {
      if (ctx.in[0].elements() > 0) std::memcpy(ctx.out[0].data, ctx.in[0].data, ctx.in[0].bytes());
      return absl::OkStatus();
    }
  };
  return std::make_unique<ViewKernel>();
}

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_LAYERS_COMMON_FUNCTION_KERNEL_H_

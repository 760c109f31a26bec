// SPDX-License-Identifier: Apache-2.0
#include "engine/layers/fused/repeat_rows.h"

#include <cstring>
#include <optional>

#include "base/status_macros.h"
#include "engine/layers/checks.h"
#include "engine/layers/common/function_kernel.h"

namespace ulfd::engine {
namespace {

class RepeatRows final : public Layer {
 public:
  absl::StatusOr<TensorSpecs> Infer(absl::Span<const TensorSpec> in) const override {
    for (int i = 0; i < 2; ++i) RETURN_IF_ERROR(WantRank(in, i, 1, 8));
    TensorSpec out = in[0];
    const std::optional<Dim> rows = Broadcast(in[0].shape[0], in[1].shape[0]);
    if (!rows.has_value()) {
      return BadInput(0, in[0], "1 row or ", in[1].shape[0].ToString());
    }
    out.shape[0] = *rows;
    return OnlyOutput(std::move(out), in);
  }
  Semantics semantics() const override { return {.op = Semantics::Op::kBroadcast}; }
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(absl::Span<const TensorSpec>) const override {
    return MakeKernel([](RunContext& ctx) {
      const Tensor& x = ctx.in[0];
      char* to = static_cast<char*>(ctx.out[0].data);
      const size_t bytes = x.bytes();
      const int64_t times = x.dims[0] == ctx.out[0].dims[0] ? 1 : ctx.out[0].dims[0];
      for (int64_t i = 0; i < times && bytes > 0; ++i, to += bytes) std::memcpy(to, x.data, bytes);
    });
  }
};

}  // namespace

std::unique_ptr<Layer> MakeRepeatRows() { return std::make_unique<RepeatRows>(); }

}  // namespace ulfd::engine

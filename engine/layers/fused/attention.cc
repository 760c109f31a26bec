// SPDX-License-Identifier: Apache-2.0
#include "engine/layers/fused/attention.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "engine/kernels/attention.h"
#include "engine/kernels/low_precision.h"
#include "engine/kernels/measure.h"
#include "engine/layers/checks.h"

namespace ulfd::engine {
namespace {

// Null: none.
const float* DataOf(const std::vector<float>& floats) {
  return floats.empty() ? nullptr : floats.data();
}

PackedMatrix PackOf(const SharedFloats& weight, int64_t k, int64_t n) {
  if (weight == nullptr) return PackedMatrix();
  return PackedMatrix::Pack(weight->data(), k, n, n, 1);
}

class AttentionKernel final : public Kernel {
 public:
  explicit AttentionKernel(std::shared_ptr<const AttentionOptions> options)
      : options_(std::move(options)),
        q_weight_(PackOf(options_->q_weight, options_->width, options_->hidden)),
        k_weight_(PackOf(options_->k_weight, options_->width, options_->hidden)),
        product_weight_(PackOf(options_->product_weight, options_->width, options_->hidden)) {
    int64_t k = options_->hidden;
    for (const AttentionLayer& layer : options_->layers) {
      weights_.push_back(PackOf(layer.weight, k, layer.n));
      stages_.push_back(
          {k, weights_.back().view(), DataOf(layer.finish.bias), ViewOf(layer.finish.epilogue)});
      k = layer.n;
    }
    spec_.width = options_->width;
    spec_.hidden = options_->hidden;
    spec_.q_weight = q_weight_.view();
    spec_.k_weight = k_weight_.view();
    spec_.product_weight = product_weight_.view();
    spec_.bias = DataOf(options_->finish.bias);
    spec_.epilogue = ViewOf(options_->finish.epilogue);
    spec_.stages = stages_;
    spec_.pooled = options_->pooled;
    spec_.pad = options_->pad;
  }

  // A layer of up to four columns stays as it is: rounding what it reads takes as long.  In bf16
  // where int8 is asked for: what an ad multiplies its weights by would have to be rounded twice.
  void SetPrecision(Precision precision, int64_t rows) override {
    if (precision == Precision::kFp32 || !Has(Precision::kBf16)) return;
    std::vector<PackedMatrix> weights(stages_.size());
    std::vector<AttentionStage> stages = stages_;
    AttentionSpec spec = spec_;
    spec.stages = stages;
    bool rounds = spec.bf16 = options_->product_weight != nullptr;
    std::string key = absl::StrCat("attention ", spec.width, " ", spec.hidden,
                                   spec.bf16 ? " with a product " : " ", rows);
    for (size_t i = 0; i < stages.size(); ++i) {
      const AttentionLayer& layer = options_->layers[i];
      absl::StrAppend(&key, " ", layer.n);
      if (layer.n <= MatrixView::kMaxColumns) continue;
      weights[i] = PackedMatrix::PackRounded(Precision::kBf16, layer.weight->data(), stages[i].k,
                                             layer.n, layer.n, 1);
      stages[i].w = weights[i].view();
      rounds = true;
    }
    if (!rounds) return;
    if (precision == Precision::kAuto && !FoundOnce(key, [&] { return IsFaster(spec, rows); })) {
      return;
    }
    in_bf16_ = true;
    spec_.bf16 = spec.bf16;
    for (size_t i = 0; i < stages.size(); ++i) {
      if (weights[i].n() == 0) continue;
      stages_[i] = stages[i];
      weights_[i] = std::move(weights[i]);
    }
  }
  std::optional<Precision> precision() override {
    return in_bf16_ ? Precision::kBf16 : Precision::kFp32;
  }
  int64_t bytes() const override {
    int64_t packed = q_weight_.bytes() + k_weight_.bytes() + product_weight_.bytes();
    for (const PackedMatrix& w : weights_) packed += w.bytes();
    return 2 * packed;  // The options hold them as well.
  }
  size_t ScratchBytes(absl::Span<const Tensor> in) const override {
    return AttentionScratchBytes(spec_, in[1].dims[1], ValuesOf(in).dims[2]);
  }
  absl::Status Run(RunContext& ctx) const override {
    const auto stride_of = [](const Tensor& x) {
      return x.dims[0] == 1 ? 0 : x.elements() / x.dims[0];
    };
    AttentionCall call;
    call.ads = ctx.out[0].dims[0];
    if (call.ads == 0) return absl::OkStatus();
    const Tensor& k = ctx.in[1];
    call.steps = k.dims[1];
    call.q = ctx.in[0].f32();
    call.q_stride = stride_of(ctx.in[0]);
    call.k = k.f32();
    call.k_stride = stride_of(k);
    if (options_->has_mask) {
      call.mask = ctx.in[2].i32();
      call.mask_stride = stride_of(ctx.in[2]);
    }
    if (options_->pooled) {
      const Tensor& v = ValuesOf(ctx.in);
      call.v = v.f32();
      call.v_stride = stride_of(v);
      call.v_width = v.dims[2];
    }
    call.y = ctx.out[0].f32();
    call.pace = &ctx.pace;
    Attention(spec_, call, ctx.scratch);
    return absl::OkStatus();
  }

 private:
  // Than spec_, for so many ads.
  bool IsFaster(const AttentionSpec& spec, int64_t ads) const {
    struct alignas(64) Line {
      char bytes[64];
    };
    constexpr int64_t kSteps = 50;
    const std::vector<float> x(std::max(ads, kSteps) * spec.width, 0.1f);
    std::vector<float> y(ads * std::max(spec.width, kSteps * spec.outputs()));
    const AttentionCall call{.ads = ads,
                             .steps = kSteps,
                             .q = x.data(),
                             .q_stride = spec.width,
                             .k = x.data(),
                             .v = x.data(),
                             .v_width = spec.width,
                             .y = y.data()};
    std::vector<Line> scratch(AttentionScratchBytes(spec, kSteps, spec.width) / sizeof(Line) + 1);
    return TakesLess([&] { Attention(spec, call, scratch.data()); },
                     [&] { Attention(spec_, call, scratch.data()); });
  }
  const Tensor& ValuesOf(absl::Span<const Tensor> in) const {
    return options_->has_values ? in[in.size() - 1] : in[1];
  }

  const std::shared_ptr<const AttentionOptions> options_;
  const PackedMatrix q_weight_, k_weight_, product_weight_;
  std::vector<PackedMatrix> weights_;
  std::vector<AttentionStage> stages_;
  AttentionSpec spec_;  // Borrows all of the above.
  bool in_bf16_ = false;
};

// Merges a leading dimension or a number of steps of input `index` into what the others have.
absl::Status Merge(absl::Span<const TensorSpec> in, int index, std::optional<Dim> merged,
                   absl::string_view wanted, Dim& into) {
  if (!merged.has_value()) return BadInput(index, in[index], wanted);
  into = *merged;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TensorSpecs> AttentionUnit::Infer(absl::Span<const TensorSpec> in) const {
  const AttentionOptions& o = *options_;
  const int count = 2 + (o.has_mask ? 1 : 0) + (o.has_values ? 1 : 0);
  if (static_cast<int>(in.size()) != count) {
    return InvalidArgument(in.size(), " inputs, want ", count);
  }
  const int mask = o.has_mask ? 2 : -1, values = o.has_values ? count - 1 : 1;
  for (int i = 0; i < count; ++i) {
    const DType wanted = i == mask ? DType::kInt32 : DType::kFloat32;
    if (in[i].dtype != wanted) {
      return InvalidArgument("input ", i, ": ", Name(in[i].dtype), ", want ", Name(wanted));
    }
    RETURN_IF_ERROR(WantRank(in, i, i == 0 || i == mask ? 2 : 3, 3));
  }
  const Shape& q = in[0].shape;
  if ((q.rank() == 3 && !CouldBeEqual(q[1], Dim::Of(1))) ||
      !CouldBeEqual(q[q.rank() - 1], Dim::Of(o.width))) {
    return BadInput(0, in[0], "[ads, ", o.width, "] or [ads, 1, ", o.width, "]");
  }
  if (!CouldBeEqual(in[1].shape[2], Dim::Of(o.width))) {
    return BadInput(1, in[1], "[users, steps, ", o.width, "]");
  }
  if (mask >= 0 && in[mask].shape.rank() == 3 && !CouldBeEqual(in[mask].shape[2], Dim::Of(1))) {
    return BadInput(mask, in[mask], "[users, steps] or [users, steps, 1]");
  }
  Dim rows = q[0], steps = in[1].shape[1];
  for (int i = 1; i < count; ++i) {
    RETURN_IF_ERROR(Merge(in, i, Broadcast(rows, in[i].shape[0]),
                          absl::StrCat("1 or ", rows.ToString(), " rows"), rows));
    RETURN_IF_ERROR(Merge(in, i, Same(steps, in[i].shape[1]),
                          absl::StrCat(steps.ToString(), " steps like input 1"), steps));
  }
  const int64_t outputs = o.layers.empty() ? o.hidden : o.layers.back().n;
  TensorSpec out{DType::kFloat32,
                 o.pooled ? Shape({rows, Dim::Of(1), in[values].shape[2]})
                          : Shape({rows, steps, Dim::Of(outputs)}),
                 Level::kUnknown};
  if (o.pooled && values == 1) out.shape[2] = Dim::Of(o.width);
  return OnlyOutput(std::move(out), in);
}

absl::StatusOr<std::unique_ptr<Kernel>> AttentionUnit::Prepare(absl::Span<const TensorSpec>) const {
  return std::unique_ptr<Kernel>(new AttentionKernel(options_));
}

double AttentionUnit::Flops(absl::Span<const TensorSpec> in,
                            absl::Span<const TensorSpec> out) const {
  const AttentionOptions& o = *options_;
  const double rows = static_cast<double>(out[0].shape[0].value());
  const double k_rows = static_cast<double>(in[1].shape[0].value());
  const double steps = static_cast<double>(in[1].shape[1].value());
  const double matrix = 2.0 * static_cast<double>(o.width * o.hidden);
  double flops = o.q_weight != nullptr ? rows * matrix : 0;
  if (o.product_weight != nullptr) {
    flops += rows * (steps + 1) * matrix;
  } else if (o.k_weight != nullptr) {
    flops += k_rows * steps * matrix;
  }
  int64_t k = o.hidden;
  for (const AttentionLayer& layer : o.layers) {
    flops += 2.0 * rows * steps * static_cast<double>(k * layer.n);
    k = layer.n;
  }
  if (o.pooled) flops += 2.0 * steps * static_cast<double>(out[0].shape.Elements().value());
  return flops;
}

}  // namespace ulfd::engine

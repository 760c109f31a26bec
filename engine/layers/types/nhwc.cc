// Layers over NCHW images in models of the other layout.
// SPDX-License-Identifier: Apache-2.0
#include "engine/layers/types/nhwc.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/errors.h"
#include "engine/layers/checks.h"
#include "engine/layers/types/building_blocks.h"

namespace ulfd::engine {
namespace {

const std::vector<int>& ToNchw() {
  static const auto* const perm = new std::vector<int>{0, 3, 1, 2};
  return *perm;
}
const std::vector<int>& ToNhwc() {
  static const auto* const perm = new std::vector<int>{0, 2, 3, 1};
  return *perm;
}

bool Has(uint32_t set, int i) { return i < 32 && (set >> i & 1) != 0; }

// What SuggestInputs knows nothing of has no rank.
void Permute(const std::vector<int>& perm, TensorSpec& spec) {
  if (!spec.shape.ranked() || spec.shape.rank() != 4) return;
  const Shape from = spec.shape;
  for (int k = 0; k < 4; ++k) spec.shape[k] = from[perm[k]];
}

class Nhwc final : public Layer {
 public:
  Nhwc(const LayerType& type, std::shared_ptr<const Layer> layer)
      : image_inputs_(type.image_inputs),
        image_outputs_(type.image_outputs),
        layer_(std::move(layer)) {}

  absl::StatusOr<TensorSpecs> Infer(absl::Span<const TensorSpec> in) const override {
    for (size_t i = 0; i < in.size(); ++i) {
      if (!Has(image_inputs_, static_cast<int>(i)) || in[i].shape.rank() == 4) continue;
      return BadInput(static_cast<int>(i), in[i], "[rows, height, width, channels] (layout NHWC)");
    }
    absl::StatusOr<TensorSpecs> out = layer_->Infer(Inputs(in));
    if (!out.ok()) {
      return absl::Status(out.status().code(), absl::StrCat(out.status().message(),
                                                            " (shapes after layout NHWC -> NCHW)"));
    }
    for (size_t i = 0; i < out->size(); ++i) {
      if (Has(image_outputs_, static_cast<int>(i))) Permute(ToNhwc(), (*out)[i]);
    }
    return out;
  }

  void SuggestInputs(absl::Span<TensorSpec> in) const override {
    TensorSpecs inner = Inputs(in);
    layer_->SuggestInputs(absl::MakeSpan(inner));
    for (size_t i = 0; i < in.size(); ++i) {
      in[i] = inner[i];
      if (Has(image_inputs_, static_cast<int>(i))) Permute(ToNhwc(), in[i]);
    }
  }

  absl::Status Lower(Lowering& lowering) const override {
    std::vector<Lowering::Value> inputs;
    inputs.reserve(static_cast<size_t>(lowering.inputs()));
    for (int i = 0; i < lowering.inputs(); ++i) {
      inputs.push_back(!Has(image_inputs_, i) ? i
                                              : lowering.Add(absl::StrCat("to_nchw", i),
                                                             MakeTranspose(ToNchw()), {i}));
    }
    const auto outputs = static_cast<int>(lowering.outputs().size());
    const auto first = lowering.Add("nchw", layer_, std::move(inputs), outputs);
    for (int i = 0; i < outputs; ++i) {
      lowering.SetOutput(
          i, !Has(image_outputs_, i)
                 ? first + i
                 : lowering.Add(absl::StrCat("to_nhwc", i), MakeTranspose(ToNhwc()), {first + i}));
    }
    return absl::OkStatus();
  }

  double Flops(absl::Span<const TensorSpec> in, absl::Span<const TensorSpec> out) const override {
    TensorSpecs inner(out.begin(), out.end());
    for (size_t i = 0; i < inner.size(); ++i) {
      if (Has(image_outputs_, static_cast<int>(i))) Permute(ToNchw(), inner[i]);
    }
    return layer_->Flops(Inputs(in), inner);
  }

  std::string Describe() const override { return layer_->Describe(); }

 private:
  TensorSpecs Inputs(absl::Span<const TensorSpec> in) const {
    TensorSpecs inner(in.begin(), in.end());
    for (size_t i = 0; i < inner.size(); ++i) {
      if (Has(image_inputs_, static_cast<int>(i))) Permute(ToNchw(), inner[i]);
    }
    return inner;
  }

  const uint32_t image_inputs_, image_outputs_;
  const std::shared_ptr<const Layer> layer_;
};

}  // namespace

std::unique_ptr<Layer> MakeNhwc(const LayerType& type, std::shared_ptr<const Layer> layer) {
  return std::make_unique<Nhwc>(type, std::move(layer));
}

absl::StatusOr<Weight> KernelFromHwio(const Weight& weight, std::vector<float>& data) {
  if (weight.rank() != 4) {
    return InvalidArgument(
        "weight \"", weight.name, "\" has shape [", absl::StrJoin(weight.dims, ", "),
        "], want [kernel_h, kernel_w, channels / group, num_output] (layout NHWC)");
  }
  const int64_t places = weight.dims[0] * weight.dims[1], in = weight.dims[2], out = weight.dims[3];
  data.resize(weight.data.size());
  // Without elements, any of the dimensions may be a number that nobody counts up to.
  for (int64_t p = 0; p < (data.empty() ? 0 : places); ++p) {
    for (int64_t c = 0; c < in; ++c) {
      for (int64_t o = 0; o < out; ++o) {
        data[(o * in + c) * places + p] = weight.data[(p * in + c) * out + o];
      }
    }
  }
  return Weight{.name = weight.name,
                .dims = {out, in, weight.dims[0], weight.dims[1]},
                .data = absl::MakeConstSpan(data)};
}

}  // namespace ulfd::engine

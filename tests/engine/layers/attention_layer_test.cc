// The attention unit as a layer: what it accepts, what it says, and that its inputs reach the
// kernel.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/kernels/low_precision.h"
#include "engine/layers/fused/attention.h"
#include "gtest/gtest.h"

namespace ulfd::engine {
namespace {

constexpr int64_t kWidth = 2, kHidden = 5;

SharedFloats Floats(std::vector<float> values) {
  return std::make_shared<const std::vector<float>>(std::move(values));
}

SharedFloats MadeUp(int64_t size, float phase) {
  std::vector<float> values(size);
  for (int64_t i = 0; i < size; ++i) values[i] = std::sin(phase + static_cast<float>(i));
  return Floats(std::move(values));
}

AttentionOptions Options() {
  AttentionOptions o;
  o.width = kWidth;
  o.hidden = kHidden;
  o.q_weight = MadeUp(kWidth * kHidden, 1);
  o.k_weight = MadeUp(kWidth * kHidden, 2);
  o.product_weight = MadeUp(kWidth * kHidden, 3);
  o.finish.bias = *MadeUp(kHidden, 4);
  o.finish.epilogue = {.affine = true,
                       .affine_mean = *MadeUp(kHidden, 5),
                       .affine_scale = *MadeUp(kHidden, 6),
                       .affine_beta = *MadeUp(kHidden, 7),
                       .activation = Activation::Kind::kPrelu,
                       .slope = *MadeUp(kHidden, 8)};
  o.layers.push_back({.n = 1, .weight = MadeUp(kHidden, 9), .finish = {.bias = *MadeUp(1, 10)}});
  o.has_mask = true;
  o.pad = -4294967295.0f;
  return o;
}

TensorSpec Spec(Shape shape, Level level, DType dtype = DType::kFloat32) {
  return {dtype, std::move(shape), level};
}

TensorSpecs Inputs() {
  return {Spec({Dim::Ads(), Dim::Of(1), Dim::Of(kWidth)}, Level::kAd),
          Spec({Dim::Users(), Dim::Of(3), Dim::Of(kWidth)}, Level::kUser),
          Spec({Dim::Users(), Dim::Of(3), Dim::Of(1)}, Level::kUser, DType::kInt32)};
}

std::unique_ptr<Layer> Make(AttentionOptions options) {
  return std::make_unique<AttentionUnit>(std::move(options));
}

std::string InferError(const AttentionOptions& options, const TensorSpecs& in) {
  return std::string(Make(options)->Infer(in).status().message());
}

TEST(AttentionLayer, InfersSymbolicAndConcreteShapes) {
  const auto layer = Make(Options());
  absl::StatusOr<TensorSpecs> out = layer->Infer(Inputs());
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ((*out)[0].shape, (Shape{Dim::Ads(), Dim::Of(1), Dim::Of(kWidth)}));
  EXPECT_EQ((*out)[0].level, Level::kAd);

  out = layer->Infer(TensorSpecs{Spec(Shape::Of({7, kWidth}), Level::kUnknown),
                                 Spec(Shape::Of({1, 4, kWidth}), Level::kUnknown),
                                 Spec(Shape::Of({1, 4}), Level::kUnknown, DType::kInt32)});
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ((*out)[0].shape, Shape::Of({7, 1, kWidth}));

  AttentionOptions hidden = Options();
  hidden.pooled = hidden.has_mask = false;
  TensorSpecs in = Inputs();
  in.pop_back();
  out = Make(hidden)->Infer(in);
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ((*out)[0].shape, (Shape{Dim::Ads(), Dim::Of(3), Dim::Of(1)}));

  AttentionOptions values = Options();
  values.has_values = true;
  in = Inputs();
  in.push_back(Spec({Dim::Users(), Dim::Of(3), Dim::Of(9)}, Level::kUser));
  out = Make(values)->Infer(in);
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ((*out)[0].shape, (Shape{Dim::Ads(), Dim::Of(1), Dim::Of(9)}));
}

TEST(AttentionLayer, RefusesInputsThatDoNotFit) {
  const AttentionOptions options = Options();
  TensorSpecs in = Inputs();
  in.pop_back();
  EXPECT_EQ(InferError(options, in), "2 inputs, want 3");
  in = Inputs();
  in[2].dtype = DType::kFloat32;
  EXPECT_EQ(InferError(options, in), "input 2: float32, want int32");
  in = Inputs();
  in[0].shape = Shape::Of({4, 2, kWidth});
  EXPECT_EQ(InferError(options, in), "input 0: shape [4, 2, 2], want [ads, 2] or [ads, 1, 2]");
  in = Inputs();
  in[1].shape[2] = Dim::Of(3);
  EXPECT_EQ(InferError(options, in), "input 1: shape [users, 3, 3], want [users, steps, 2]");
  in = Inputs();
  in[2].shape[1] = Dim::Of(4);
  EXPECT_EQ(InferError(options, in), "input 2: shape [users, 4, 1], want 3 steps like input 1");
  in = Inputs();
  in[0].shape[0] = Dim::Of(3);
  in[1].shape[0] = Dim::Of(2);
  EXPECT_EQ(InferError(options, in), "input 1: shape [2, 3, 2], want 1 or 3 rows");
}

// ((q Wq + k Wk + q*k Wp + bias) - mean) * scale + beta, prelu, one more layer.
double Logit(const AttentionOptions& o, const float* q, const float* k) {
  double logit = o.layers[0].finish.bias[0];
  for (int64_t j = 0; j < kHidden; ++j) {
    double h = o.finish.bias[j];
    for (int64_t i = 0; i < kWidth; ++i) {
      const int64_t at = i * kHidden + j;
      h += q[i] * (*o.q_weight)[at] + k[i] * (*o.k_weight)[at] +
           double{q[i]} * k[i] * (*o.product_weight)[at];
    }
    const FcEpilogue& e = o.finish.epilogue;
    h = (h - e.affine_mean[j]) * e.affine_scale[j] + e.affine_beta[j];
    logit += (h > 0 ? h : h * e.slope[j]) * (*o.layers[0].weight)[j];
  }
  return logit;
}

struct Free {
  void operator()(void* p) const { std::free(p); }
};

TEST(AttentionLayer, RunsOnUserAndAdLevelInputs) {
  const AttentionOptions options = Options();
  const auto layer = Make(options);
  const auto kernel = layer->Prepare(Inputs());
  ASSERT_TRUE(kernel.ok());
  EXPECT_GT((*kernel)->bytes(), 0);
  constexpr int64_t kAds = 3, kSteps = 4;
  std::vector<float> q(*MadeUp(kAds * kWidth, 20)), k(*MadeUp(kAds * kSteps * kWidth, 30));
  std::vector<int32_t> mask = {1, 0, 2, -1, 1, 1, 0, 1, 0, 0, 0, 1};
  for (const int64_t k_rows : {int64_t{1}, kAds}) {
    for (const int64_t mask_rows : {int64_t{1}, kAds}) {
      std::vector<float> y(kAds * kWidth);
      const Tensor in[] = {{DType::kFloat32, {kAds, kWidth}, q.data()},
                           {DType::kFloat32, {k_rows, kSteps, kWidth}, k.data()},
                           {DType::kInt32, {mask_rows, kSteps}, mask.data()}};
      Tensor out[] = {{DType::kFloat32, {kAds, 1, kWidth}, y.data()}};
      const size_t bytes = (*kernel)->ScratchBytes(in);
      const std::unique_ptr<void, Free> scratch(std::aligned_alloc(64, (bytes + 63) / 64 * 64));
      RunCounters counters;
      RunContext context{in, absl::MakeSpan(out), scratch.get(), &counters};
      ASSERT_TRUE((*kernel)->Run(context).ok());
      for (int64_t n = 0; n < kAds; ++n) {
        const float* history = k.data() + (k_rows == 1 ? 0 : n * kSteps * kWidth);
        const int32_t* keeps = mask.data() + (mask_rows == 1 ? 0 : n * kSteps);
        double total = 0, sum[kWidth] = {};
        for (int64_t t = 0; t < kSteps; ++t) {
          if (keeps[t] <= 0) continue;
          const double e = std::exp(Logit(options, q.data() + n * kWidth, history + t * kWidth));
          total += e;
          for (int64_t i = 0; i < kWidth; ++i) sum[i] += e * history[t * kWidth + i];
        }
        for (int64_t i = 0; i < kWidth; ++i) {
          EXPECT_NEAR(y[n * kWidth + i], sum[i] / total, 2e-6) << "ad " << n << " column " << i;
        }
      }
    }
  }
}

// Some 2^28 multiplications.
TEST(AttentionLayer, LooksWhetherSomebodyWaits) {
  AttentionOptions options = Options();
  options.has_mask = false;
  for (const bool product : {true, false}) {
    if (!product) options.product_weight = nullptr;
    const auto layer = Make(options);
    TensorSpecs specs = Inputs();
    specs.pop_back();
    const auto kernel = layer->Prepare(specs);
    ASSERT_TRUE(kernel.ok());
    constexpr int64_t kAds = 100, kSteps = 100000;
    std::vector<float> q(kAds * kWidth, 0.1f), k(kSteps * kWidth, 0.1f), y(kAds * kWidth);
    const Tensor in[] = {{DType::kFloat32, {kAds, kWidth}, q.data()},
                         {DType::kFloat32, {1, kSteps, kWidth}, k.data()}};
    Tensor out[] = {{DType::kFloat32, {kAds, 1, kWidth}, y.data()}};
    const size_t bytes = (*kernel)->ScratchBytes(in);
    const std::unique_ptr<void, Free> scratch(std::aligned_alloc(64, (bytes + 63) / 64 * 64));
    RunCounters counters;
    int looks = 0;
    const std::function<bool()> stop = [&looks] { return ++looks > 2; };
    RunContext context{in, absl::MakeSpan(out), scratch.get(), &counters};
    context.pace = Pace(&stop);
    ASSERT_TRUE((*kernel)->Run(context).ok());
    EXPECT_EQ(context.pace.status().code(), absl::StatusCode::kCancelled);
    EXPECT_EQ(looks, 3);
  }
}

// Two ads over five steps, by layers of 20 and 9 units.
std::vector<float> Wider(Precision precision, std::optional<Precision>* computed) {
  AttentionOptions options = Options();
  options.hidden = 20;
  for (SharedFloats* w : {&options.q_weight, &options.k_weight, &options.product_weight}) {
    *w = MadeUp(kWidth * 20, 3);
  }
  options.finish = {.bias = *MadeUp(20, 4)};
  options.layers[0].weight = MadeUp(9, 9);
  options.layers.insert(options.layers.begin(), {.n = 9, .weight = MadeUp(20 * 9, 7)});
  options.has_mask = false;
  const auto layer = Make(options);
  TensorSpecs specs = Inputs();
  specs.pop_back();
  const auto kernel = layer->Prepare(specs);
  EXPECT_TRUE(kernel.ok());
  if (precision != Precision::kFp32) (*kernel)->SetPrecision(precision, 64);
  *computed = (*kernel)->precision();
  std::vector<float> q(*MadeUp(2 * kWidth, 20)), k(*MadeUp(5 * kWidth, 30)), y(2 * kWidth);
  const Tensor in[] = {{DType::kFloat32, {2, kWidth}, q.data()},
                       {DType::kFloat32, {1, 5, kWidth}, k.data()}};
  Tensor out[] = {{DType::kFloat32, {2, 1, kWidth}, y.data()}};
  const size_t bytes = (*kernel)->ScratchBytes(in);
  const std::unique_ptr<void, Free> scratch(std::aligned_alloc(64, (bytes + 63) / 64 * 64));
  RunCounters counters;
  RunContext context{in, absl::MakeSpan(out), scratch.get(), &counters};
  EXPECT_TRUE((*kernel)->Run(context).ok());
  return y;
}

TEST(AttentionLayer, IsInBf16WhereAsked) {
  std::optional<Precision> computed;
  const std::vector<float> exact = Wider(Precision::kFp32, &computed);
  EXPECT_EQ(computed, Precision::kFp32);
  if (!Has(Precision::kBf16))
    GTEST_SKIP() << "this machine has no AVX512-BF16, or ULFD_ISA leaves it out";
  const std::vector<float> rounded = Wider(Precision::kBf16, &computed);
  EXPECT_EQ(computed, Precision::kBf16);
  EXPECT_NE(rounded, exact);
  for (size_t i = 0; i < exact.size(); ++i) EXPECT_NEAR(rounded[i], exact[i], 0.02);
  // Either, but the same every time.
  const std::vector<float> found = Wider(Precision::kAuto, &computed);
  EXPECT_EQ(found, computed == Precision::kBf16 ? rounded : exact);
  std::optional<Precision> again;
  Wider(Precision::kAuto, &again);
  EXPECT_EQ(again, computed);
}

}  // namespace
}  // namespace ulfd::engine

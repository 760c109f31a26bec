// The attention unit for every instruction set of this machine against plain loops in double.
// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/kernels/low_precision.h"
#include "engine/kernels/table.h"
#include "gtest/gtest.h"
#include "tests/testing/float_arrays.h"

namespace ulfd::engine {
namespace {

using testing::GuardedFloats;
using Kind = Activation::Kind;

enum class MaskKind { kNone, kUser, kPerAd, kAllMasked, kNoneMasked };

struct Case {
  int64_t ads = 5, steps = 20, width = 12, hidden = 24;
  bool q = true, k = true, product = true, bias = true;
  std::vector<int64_t> layers = {16, 1};
  Kind kind = Kind::kSigmoid;
  bool pooled = true;
  MaskKind mask = MaskKind::kNone;
  float pad = -4294967295.0f;
  int64_t v_width = 0;  // 0: v is k.
  bool k_per_ad = false, v_per_ad = false;
  bool last_is_linear = true;
  bool bf16 = false;
};

std::string Name(const Case& c) {
  return absl::StrCat("ads ", c.ads, " steps ", c.steps, " width ", c.width, " hidden ", c.hidden,
                      " q", c.q, " k", c.k, " p", c.product, " b", c.bias, " layers ",
                      c.layers.size(), " kind ", static_cast<int>(c.kind), " pooled ", c.pooled,
                      " mask ", static_cast<int>(c.mask), " pad ", c.pad, " v ", c.v_width,
                      " per ad ", c.k_per_ad, c.v_per_ad);
}

Activation ActivationOf(Kind kind, int64_t n) {
  static const auto* values = new GuardedFloats(4 * 130, 60);
  // The last of them, so that reading gamma behind its end is noticed.
  const float* p = values->data() + values->size() - 4 * n;
  return {kind, p, p + n, p + 2 * n, p + 3 * n};
}

struct Data {
  explicit Data(const Case& c)
      : case_(c),
        q(c.ads * c.width, 1),
        k((c.k_per_ad ? c.ads : 1) * c.steps * c.width, 2),
        v((c.v_per_ad ? c.ads : 1) * c.steps * c.v_width, 3),
        bias(c.hidden, 4) {
    for (int i = 0; i < 3; ++i) {
      raw.push_back(std::make_unique<GuardedFloats>(c.width * c.hidden, 5 + i));
      packed.push_back(PackedMatrix::Pack(raw.back()->data(), c.width, c.hidden, c.hidden, 1));
    }
    int64_t from = c.hidden;
    for (const int64_t n : c.layers) {
      raw.push_back(std::make_unique<GuardedFloats>(from * n, 20 + n));
      packed.push_back(
          c.bf16 ? PackedMatrix::PackRounded(Precision::kBf16, raw.back()->data(), from, n, n, 1)
                 : PackedMatrix::Pack(raw.back()->data(), from, n, n, 1));
      biases.push_back(std::make_unique<GuardedFloats>(n, 30 + n));
      from = n;
    }
    for (size_t i = 0; i < c.layers.size(); ++i) {
      const int64_t reads = i == 0 ? c.hidden : c.layers[i - 1];
      AttentionStage stage{reads, packed[3 + i].view(), biases[i]->data(), {}};
      const bool last = i + 1 == c.layers.size();
      if (!last || !c.last_is_linear) {
        stage.epilogue.activation = ActivationOf(c.kind, c.layers[i]);
      }
      stages.push_back(stage);
    }
    mask.assign((c.mask == MaskKind::kPerAd ? c.ads : 1) * c.steps, 0);
    for (size_t i = 0; i < mask.size(); ++i) {
      mask[i] = c.mask == MaskKind::kAllMasked    ? -static_cast<int>(i % 2)
                : c.mask == MaskKind::kNoneMasked ? 1
                                                  : static_cast<int>(i * 7 % 3) - 1;
    }
  }
  AttentionSpec Spec() const {
    AttentionSpec spec;
    spec.width = case_.width;
    spec.hidden = case_.hidden;
    if (case_.q) spec.q_weight = packed[0].view();
    if (case_.k) spec.k_weight = packed[1].view();
    if (case_.product) spec.product_weight = packed[2].view();
    if (case_.bias) spec.bias = bias.data();
    if (!case_.layers.empty()) spec.epilogue.activation = ActivationOf(case_.kind, case_.hidden);
    spec.stages = stages;
    spec.pooled = case_.pooled;
    spec.pad = case_.pad;
    spec.bf16 = case_.bf16;
    return spec;
  }
  AttentionCall Call(float* y) const {
    AttentionCall call;
    call.ads = case_.ads;
    call.steps = case_.steps;
    call.q = q.data();
    call.q_stride = case_.width;
    call.k = k.data();
    call.k_stride = case_.k_per_ad ? case_.steps * case_.width : 0;
    if (case_.mask != MaskKind::kNone) call.mask = mask.data();
    if (case_.mask == MaskKind::kPerAd) call.mask_stride = case_.steps;
    if (case_.pooled) {
      call.v = case_.v_width == 0 ? k.data() : v.data();
      call.v_width = VWidth();
      call.v_stride = case_.v_width == 0 ? call.k_stride
                      : case_.v_per_ad   ? case_.steps * case_.v_width
                                         : 0;
    }
    call.y = y;
    return call;
  }
  int64_t VWidth() const { return case_.v_width == 0 ? case_.width : case_.v_width; }
  int64_t Outputs() const { return case_.layers.empty() ? case_.hidden : case_.layers.back(); }

  const Case& case_;
  GuardedFloats q, k, v, bias;
  std::vector<std::unique_ptr<GuardedFloats>> raw, biases;
  std::vector<PackedMatrix> packed;
  std::vector<AttentionStage> stages;
  std::vector<int32_t> mask;
};

double Act(const Activation& a, int64_t j, double x) {
  const Kind kind = a.kind;
  if (kind == Kind::kPrelu) return x > 0 ? x : a.slope[j] * x;
  if (kind == Kind::kDice) {
    const double p = 1 / (1 + std::exp(-(x - a.mean[j]) * a.scale[j]));
    return p * x + (1 - p) * a.gamma[j] * x;
  }
  if (kind == Kind::kSigmoid) return 1 / (1 + std::exp(-x));
  if (kind == Kind::kRelu) return x < 0 ? 0 : x;
  return kind == Kind::kTanh ? std::tanh(x) : x;
}

// What the layers give for one ad and step.
std::vector<double> Outputs(const Data& d, const float* q, const float* k) {
  const Case& c = d.case_;
  std::vector<double> x(c.hidden);
  for (int64_t j = 0; j < c.hidden; ++j) {
    double sum = c.bias ? d.bias[j] : 0;
    for (int64_t i = 0; i < c.width; ++i) {
      const int64_t at = i * c.hidden + j;
      if (c.q) sum += double{q[i]} * (*d.raw[0])[at];
      if (c.k) sum += double{k[i]} * (*d.raw[1])[at];
      if (c.product) sum += double{q[i]} * k[i] * (*d.raw[2])[at];
    }
    x[j] = d.stages.empty() ? sum : Act(ActivationOf(c.kind, c.hidden), j, sum);
  }
  for (size_t s = 0; s < d.stages.size(); ++s) {
    const int64_t n = c.layers[s];
    std::vector<double> y(n);
    for (int64_t j = 0; j < n; ++j) {
      double sum = (*d.biases[s])[j];
      for (size_t i = 0; i < x.size(); ++i) sum += x[i] * (*d.raw[3 + s])[i * n + j];
      y[j] = Act(d.stages[s].epilogue.activation, j, sum);
    }
    x = y;
  }
  return x;
}

std::vector<double> Expected(const Data& d) {
  const Case& c = d.case_;
  std::vector<double> all;
  for (int64_t n = 0; n < c.ads; ++n) {
    const float* k = d.k.data() + (c.k_per_ad ? n * c.steps * c.width : 0);
    std::vector<double> s;
    for (int64_t t = 0; t < c.steps; ++t) {
      const std::vector<double> y = Outputs(d, d.q.data() + n * c.width, k + t * c.width);
      s.insert(s.end(), y.begin(), y.end());
    }
    if (!c.pooled) {
      all.insert(all.end(), s.begin(), s.end());
      continue;
    }
    const int32_t* mask = d.mask.data() + (c.mask == MaskKind::kPerAd ? n * c.steps : 0);
    for (int64_t t = 0; t < c.steps && c.mask != MaskKind::kNone; ++t) {
      if (mask[t] <= 0) s[t] = c.pad;
    }
    const double max = *std::max_element(s.begin(), s.end());
    double total = 0;
    for (double& x : s) total += x = std::exp(x - max);
    for (double& x : s) x /= total;
    const float* v = c.v_width == 0 ? k : d.v.data() + (c.v_per_ad ? n * c.steps * c.v_width : 0);
    for (int64_t e = 0; e < d.VWidth(); ++e) {
      double sum = 0;
      for (int64_t t = 0; t < c.steps; ++t) sum += s[t] * v[t * d.VWidth() + e];
      all.push_back(sum);
    }
  }
  return all;
}

struct Free {
  void operator()(void* p) const { std::free(p); }
};

// Runs with exactly the scratch that was asked for.
std::vector<float> Pooled(const Data& d, Isa isa) {
  const Case& c = d.case_;
  const AttentionSpec spec = d.Spec();
  std::vector<float> y(c.ads * (c.pooled ? d.VWidth() : c.steps * d.Outputs()), 12345.0f);
  const size_t bytes = AttentionScratchBytes(spec, c.steps, d.VWidth());
  const std::unique_ptr<void, Free> scratch(std::aligned_alloc(64, std::max<size_t>(64, bytes)));
  std::memset(scratch.get(), 0xff, bytes);  // NaNs.
  Attention(spec, d.Call(y.data()), scratch.get(), isa);
  return y;
}

void Check(const Case& c, Isa isa) {
  SCOPED_TRACE(absl::StrCat(engine::Name(isa), ": ", Name(c)));
  const Data d(c);
  const std::vector<float> got = Pooled(d, isa);
  const std::vector<double> want = Expected(d);
  ASSERT_EQ(got.size(), want.size());
  double scale = 1;
  for (const double x : want) scale = std::max(scale, std::abs(x));
  // Each product in bf16 is wrong by up to 2^-7 of the sum of its terms' sizes, but most of that
  // cancels out.
  const double bound = c.bf16 ? 0.03 : 3e-6;
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], bound * scale) << "value " << i;
  }
}

class AttentionTest : public ::testing::TestWithParam<Isa> {};

TEST_P(AttentionTest, EverySubsetOfTerms) {
  for (int terms = 1; terms < 16; ++terms) {
    if ((terms & 7) == 0) continue;
    for (const MaskKind mask : {MaskKind::kNone, MaskKind::kUser}) {
      for (const bool k_per_ad : {false, true}) {
        Case c;
        c.q = (terms & 1) != 0;
        c.k = (terms & 2) != 0;
        c.product = (terms & 4) != 0;
        c.bias = (terms & 8) != 0;
        c.mask = mask;
        c.k_per_ad = k_per_ad;
        Check(c, GetParam());
        c.layers = {};
        c.pooled = false;
        c.mask = MaskKind::kNone;
        Check(c, GetParam());
      }
    }
  }
}

TEST_P(AttentionTest, Sizes) {
  for (const int64_t steps : {1, 2, 7, 49, 100, 130}) {
    for (const int64_t width : {1, 5, 16, 36}) {
      for (const int64_t hidden : {1, 3, 20, 80}) {
        for (const int64_t ads : {1, 3, 40}) {
          Check({.ads = ads,
                 .steps = steps,
                 .width = width,
                 .hidden = hidden,
                 .mask = MaskKind::kUser},
                GetParam());
        }
      }
    }
  }
}

TEST_P(AttentionTest, NumberOfLayers) {
  const std::vector<std::vector<int64_t>> stacks = {{}, {1}, {40, 1}, {80, 40, 20, 1}};
  for (const auto& layers : stacks) {
    for (const Kind kind : {Kind::kRelu, Kind::kTanh, Kind::kSigmoid, Kind::kPrelu, Kind::kDice}) {
      Check({.hidden = layers.empty() ? 1 : 33,
             .layers = layers,
             .kind = kind,
             .mask = MaskKind::kUser},
            GetParam());
    }
  }
  Check({.hidden = 24, .layers = {16, 6}, .pooled = false}, GetParam());
  Check({.hidden = 24, .layers = {16, 6}, .pooled = false, .last_is_linear = false}, GetParam());
}

TEST_P(AttentionTest, Masks) {
  for (const MaskKind mask : {MaskKind::kNone, MaskKind::kUser, MaskKind::kPerAd,
                              MaskKind::kAllMasked, MaskKind::kNoneMasked}) {
    for (const float pad : {-4294967295.0f, 0.0f, -3.0f, 2.0f, -110.0f}) {
      for (const int64_t v_width : {0, 7}) {
        Check({.mask = mask, .pad = pad, .v_width = v_width}, GetParam());
        Check({.mask = mask, .pad = pad, .v_width = v_width, .k_per_ad = true}, GetParam());
        Check({.mask = mask, .pad = pad, .v_width = 7, .v_per_ad = true}, GetParam());
      }
    }
  }
}

// Logits so low that a pad of -110 is not beneath them: leaving steps out would be wrong.
TEST_P(AttentionTest, MaskedStepsCountWhereTheirWeightIsNotZero) {
  Case c{.mask = MaskKind::kUser, .pad = -110.0f};
  Data d(c);
  (*d.biases[1])[0] = -108.0f;
  const std::vector<float> got = Pooled(d, GetParam());
  const std::vector<double> want = Expected(d);
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 3e-5);
}

TEST_P(AttentionTest, MaskedStepsChangeNothingWhenLeftOut) {
  Case c{.ads = 3, .mask = MaskKind::kUser};
  Data d(c);
  const std::vector<float> before = Pooled(d, GetParam());
  int64_t masked = 0;
  while (d.mask[masked] > 0) ++masked;
  d.k[masked * c.width] = 1e10f;
  EXPECT_EQ(Pooled(d, GetParam()), before);
}

TEST_P(AttentionTest, NaNsSurvive) {
  const float nan = std::nanf("");
  for (const MaskKind mask : {MaskKind::kNone, MaskKind::kUser}) {
    for (const bool product : {true, false}) {
      Case c{.ads = 3, .product = product, .mask = mask};
      Data d(c);
      // In a step that the mask keeps: every value of every ad.
      int64_t kept = 0;
      while (mask == MaskKind::kUser && d.mask[kept] <= 0) ++kept;
      d.k[kept * c.width + 3] = nan;
      for (const float y : Pooled(d, GetParam())) EXPECT_TRUE(std::isnan(y));
      d.k[kept * c.width + 3] = 0;
      // In a step that it leaves out, 0 * NaN: every value of that column, as by the formula.
      if (mask == MaskKind::kUser) {
        const int64_t left_out = kept == 0 ? 1 : 0;
        ASSERT_LE(d.mask[left_out], 0);
        d.k[left_out * c.width + 3] = nan;
        const std::vector<float> y = Pooled(d, GetParam());
        for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i % c.width == 3);
        d.k[left_out * c.width + 3] = 0;
      }
      // In one ad: all of that ad.
      d.q[c.width + 2] = nan;
      const std::vector<float> y = Pooled(d, GetParam());
      for (size_t i = 0; i < y.size(); ++i) {
        EXPECT_EQ(std::isnan(y[i]), static_cast<int64_t>(i) / c.width == 1);
      }
    }
  }
}

void CheckAdsAlone(const Case& c, Isa isa) {
  const Data d(c);
  const std::vector<float> all = Pooled(d, isa);
  const AttentionSpec spec = d.Spec();
  const size_t bytes = AttentionScratchBytes(spec, c.steps, c.width);
  const std::unique_ptr<void, Free> scratch(std::aligned_alloc(64, bytes));
  for (int64_t ad = 0; ad < c.ads; ++ad) {
    std::vector<float> one(c.width);
    AttentionCall call = d.Call(one.data());
    call.ads = 1;
    call.q += ad * c.width;
    Attention(spec, call, scratch.get(), isa);
    EXPECT_EQ(std::memcmp(one.data(), all.data() + ad * c.width, c.width * sizeof(float)), 0) << ad;
  }
}

TEST_P(AttentionTest, AnAdsBitsDependOnNoOtherAd) {
  for (const bool product : {true, false}) {
    CheckAdsAlone({.ads = 70, .steps = 60, .product = product, .mask = MaskKind::kUser},
                  GetParam());
  }
}

class Bf16AttentionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!Has(Precision::kBf16))
      GTEST_SKIP() << "this machine has no AVX512-BF16, or ULFD_ISA leaves it out";
  }
};

TEST_F(Bf16AttentionTest, IsCloseToTheFormula) {
  for (const int64_t steps : {1, 7, 49, 130}) {
    for (const int64_t width : {1, 5, 16, 36}) {
      for (const int64_t hidden : {1, 3, 20, 81}) {
        Check({.ads = 40,
               .steps = steps,
               .width = width,
               .hidden = hidden,
               .mask = MaskKind::kUser,
               .bf16 = true},
              Isa::kAvx512);
      }
    }
  }
  for (int terms = 1; terms < 8; ++terms) {
    for (const bool k_per_ad : {false, true}) {
      Check({.q = (terms & 1) != 0,
             .k = (terms & 2) != 0,
             .product = (terms & 4) != 0,
             .layers = {33, 9, 1},
             .mask = MaskKind::kUser,
             .k_per_ad = k_per_ad,
             .bf16 = true},
            Isa::kAvx512);
    }
  }
  Check({.layers = {}, .pooled = false, .bf16 = true}, Isa::kAvx512);
}

// Some ads need the steps that the mask leaves out, others do not: what is kept of the history in
// bf16 must be that which an ad meets.
TEST_F(Bf16AttentionTest, AnAdsBitsDependOnNoOtherAd) {
  CheckAdsAlone({.ads = 70, .steps = 60, .mask = MaskKind::kUser, .pad = -104.5f, .bf16 = true},
                Isa::kAvx512);
}

// Queries, keys and values as heads of one tensor have them, or turned.
struct Positions {
  Positions(int64_t count, int64_t width, bool turned, int seed)
      : data((count + 1) * (width + 2), seed), at{data.data(), width + 2, 1} {
    if (turned) at = {data.data(), 1, count + 1};
  }
  double operator()(int64_t i, int64_t c) const { return at.data[i * at.step + c * at.column]; }

  GuardedFloats data;
  StridedMatrix at;
};

TEST_P(AttentionTest, DotProducts) {
  using enum AttentionMask;
  int seed = 0;
  for (const int64_t queries : {1, 4, 7, 13, 16, 17, 40}) {
    for (const int64_t keys : {1, 3, 4, 13, 50}) {
      for (const auto& [width, v_width] : {std::pair(4, 4), std::pair(1, 3), std::pair(19, 6)}) {
        for (const auto& masks :
             std::vector<std::vector<AttentionMask>>{{},
                                                     {kAdded},
                                                     {kKeeps},
                                                     {kDrops},
                                                     {kAdded, kDrops},
                                                     {kKeeps, kAdded, kAdded, kKeeps}}) {
          const bool turned = seed % 2 != 0;
          const Positions q(queries, width, turned, ++seed), k(keys, width, !turned, ++seed),
              v(keys, v_width, turned, ++seed), m(queries, keys, turned, ++seed),
              n(queries, keys, !turned, ++seed);
          GuardedFloats y(queries * v_width, 1);
          DotProductArgs args{.queries = queries,
                              .keys = keys,
                              .width = width,
                              .v_width = v_width,
                              .scale = 0.5f,
                              .q = q.at,
                              .k = k.at,
                              .v = v.at,
                              .y = y.data(),
                              .y_step = turned ? 1 : v_width,
                              .y_column = turned ? queries : 1};
          for (const AttentionMask kind : masks) {
            const int i = args.mask_count++;
            args.masks[i] = {kind, -0.75f + static_cast<float>(i), i % 2 == 0 ? m.at : n.at};
            if (i % 2 != seed % 2) args.masks[i].at.step = 0;  // The same for all queries.
          }
          std::vector<float> scratch(DotProductScratchBytes(keys, width) / sizeof(float));
          KernelsOf(GetParam()).dot_product_attention(args, scratch.data());
          for (int64_t i = 0; i < queries; ++i) {
            std::vector<double> weights(keys);
            for (int64_t t = 0; t < keys; ++t) {
              for (int64_t c = 0; c < width; ++c) weights[t] += 0.5 * q(i, c) * k(t, c);
              for (int j = 0; j < args.mask_count; ++j) {
                const MaskArgs& mask = args.masks[j];
                const double value = (j % 2 == 0 ? m : n)(mask.at.step == 0 ? 0 : i, t);
                if (mask.kind == kAdded) weights[t] += mask.number * value;
                if (mask.kind == kKeeps && !(value > 0)) weights[t] = mask.number;
                if (mask.kind == kDrops && value > 0) weights[t] = mask.number;
              }
            }
            const double most = *std::max_element(weights.begin(), weights.end());
            double total = 0;
            for (double& w : weights) total += w = std::exp(w - most);
            for (int64_t c = 0; c < v_width; ++c) {
              double want = 0;
              for (int64_t t = 0; t < keys; ++t) want += weights[t] / total * v(t, c);
              ASSERT_NEAR(y[i * args.y_step + c * args.y_column], want, 2e-6)
                  << queries << " queries, " << keys << " keys, width " << width << ", "
                  << masks.size() << " masks";
            }
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, AttentionTest, ::testing::ValuesIn(SupportedIsas()),
                         [](const auto& info) { return std::string(engine::Name(info.param)); });

}  // namespace
}  // namespace ulfd::engine

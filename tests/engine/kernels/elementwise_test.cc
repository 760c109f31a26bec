// Elementwise functions, arithmetic, softmax and sums for every instruction set of this machine.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/kernels/isa.h"
#include "engine/kernels/table.h"
#include "gtest/gtest.h"
#include "tests/testing/float_arrays.h"

namespace ulfd::engine {
namespace {

using testing::GuardedFloats;

constexpr float kInf = std::numeric_limits<float>::infinity();
const int64_t kSizes[] = {0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 100, 257};

double Exact(UnaryOp op, double x) {
  switch (op) {
    case UnaryOp::kRelu:
      return x < 0 ? 0 : x;
    case UnaryOp::kSigmoid:
      return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x));
    case UnaryOp::kTanh:
      return std::tanh(x);
    case UnaryOp::kExp:
      return std::exp(x);
    default:  // See operators_test.cc.
      return NAN;
  }
}

// Relative, and half a step of denormals.
void ExpectClose(UnaryOp op, float x, float got, double bound) {
  const double want = Exact(op, x);
  if (want > std::numeric_limits<float>::max()) {
    EXPECT_EQ(got, kInf) << "at " << x;
    return;
  }
  const double step = std::numeric_limits<float>::denorm_min();
  EXPECT_LE(std::abs(got - want), bound * std::abs(want) + step)
      << "op " << static_cast<int>(op) << " at " << x << " is " << got << ", want " << want;
}

class ElementwiseTest : public ::testing::TestWithParam<Isa> {
 protected:
  // Without fused multiply-adds there are more roundings.
  double Bound() const { return GetParam() == Isa::kPortable ? 3e-7 : 2e-7; }
};

TEST_P(ElementwiseTest, FunctionsAreExactOverTheirWholeRange) {
  std::vector<float> x;
  for (int i = -80000; i < 80000; ++i) x.push_back(0.001373f * static_cast<float>(i));
  for (double v = 1e-45; v < 1e38; v *= 1.07) {
    x.push_back(static_cast<float>(v));
    x.push_back(static_cast<float>(-v));
  }
  // Every 997th number between 2^-15 and 105, so that each entry of a table is met often.
  for (uint32_t bits = 0x38000000; bits < 0x42d20000; bits += 997) {
    float v;
    std::memcpy(&v, &bits, sizeof(v));
    x.push_back(v);
    x.push_back(-v);
  }
  for (int i = 0; i < 10000; ++i) x.push_back(85.0f + 4.5e-4f * static_cast<float>(i));
  std::vector<float> y(x.size());
  for (const UnaryOp op : {UnaryOp::kRelu, UnaryOp::kSigmoid, UnaryOp::kTanh, UnaryOp::kExp}) {
    KernelsOf(GetParam()).unary(op, x.data(), y.data(), static_cast<int64_t>(x.size()));
    for (size_t i = 0; i < x.size() && !HasFailure(); ++i) ExpectClose(op, x[i], y[i], Bound());
  }
}

TEST_P(ElementwiseTest, FunctionsAtTheEdges) {
  struct Edge {
    UnaryOp op;
    float x, y;
  };
  const float low = -4294967295.0f;
  const Edge edges[] = {
      {UnaryOp::kSigmoid, kInf, 1}, {UnaryOp::kSigmoid, -kInf, 0}, {UnaryOp::kSigmoid, low, 0},
      {UnaryOp::kSigmoid, -low, 1}, {UnaryOp::kSigmoid, 0, 0.5f},  {UnaryOp::kSigmoid, -0.0f, 0.5f},
      {UnaryOp::kTanh, kInf, 1},    {UnaryOp::kTanh, -kInf, -1},   {UnaryOp::kTanh, low, -1},
      {UnaryOp::kTanh, 0, 0},       {UnaryOp::kExp, kInf, kInf},   {UnaryOp::kExp, -kInf, 0},
      {UnaryOp::kExp, low, 0},      {UnaryOp::kExp, 0, 1},         {UnaryOp::kExp, 89, kInf},
      {UnaryOp::kRelu, kInf, kInf}, {UnaryOp::kRelu, -kInf, 0},    {UnaryOp::kRelu, low, 0},
  };
  for (const Edge& edge : edges) {
    // In the vectors and in the tail.
    std::vector<float> x(19, edge.x), y(19);
    KernelsOf(GetParam()).unary(edge.op, x.data(), y.data(), 19);
    for (const float v : y) EXPECT_EQ(v, edge.y) << static_cast<int>(edge.op) << " at " << edge.x;
  }
  for (const UnaryOp op : {UnaryOp::kRelu, UnaryOp::kSigmoid, UnaryOp::kTanh, UnaryOp::kExp}) {
    for (const float nan : {std::nanf(""), -std::nanf("")}) {
      std::vector<float> x(19, nan), y(19);
      KernelsOf(GetParam()).unary(op, x.data(), y.data(), 19);
      for (const float v : y) EXPECT_TRUE(std::isnan(v));
    }
  }
}

TEST_P(ElementwiseTest, FunctionsOfAnySizeInPlace) {
  for (const int64_t n : kSizes) {
    for (const UnaryOp op : {UnaryOp::kRelu, UnaryOp::kSigmoid, UnaryOp::kTanh, UnaryOp::kExp}) {
      const GuardedFloats x(n, 1, -5, 5);
      GuardedFloats y(x.size());
      for (int64_t i = 0; i < n; ++i) y[i] = x[i];
      KernelsOf(GetParam()).unary(op, y.data(), y.data(), n);
      for (int64_t i = 0; i < n; ++i) ExpectClose(op, x[i], y[i], Bound());
    }
  }
}

TEST_P(ElementwiseTest, Epilogues) {
  using Kind = Activation::Kind;
  for (const int64_t n : {1, 7, 8, 21, 40}) {
    const int64_t rows = 3, x_stride = n + 2, y_stride = n + 1;
    const GuardedFloats x((rows - 1) * x_stride + n, 1), mean(n, 2), scale(n, 3), beta(n, 4),
        slope(n, 5), dice_mean(n, 6), dice_scale(n, 7), gamma(n, 8);
    for (const Kind kind :
         {Kind::kNone, Kind::kRelu, Kind::kPrelu, Kind::kSigmoid, Kind::kTanh, Kind::kDice}) {
      for (const bool affine : {false, true}) {
        Epilogue e;
        if (affine) e.affine = {mean.data(), scale.data(), beta.data()};
        e.activation = {kind, slope.data(), dice_mean.data(), dice_scale.data(), gamma.data()};
        GuardedFloats y((rows - 1) * y_stride + n);
        KernelsOf(GetParam()).epilogue(e, x.data(), x_stride, y.data(), y_stride, rows, n);
        for (int64_t i = 0; i < rows * n; ++i) {
          const int64_t j = i % n;
          double v = x[i / n * x_stride + j];
          if (affine) v = (v - mean[j]) * scale[j] + beta[j];
          double want = v;
          if (kind == Kind::kRelu) want = std::max(v, 0.0);
          if (kind == Kind::kPrelu) want = v > 0 ? v : v * slope[j];
          if (kind == Kind::kSigmoid) want = Exact(UnaryOp::kSigmoid, v);
          if (kind == Kind::kTanh) want = std::tanh(v);
          if (kind == Kind::kDice) {
            const double p = Exact(UnaryOp::kSigmoid, (v - dice_mean[j]) * dice_scale[j]);
            want = p * v + (1 - p) * gamma[j] * v;
          }
          ASSERT_NEAR(y[i / n * y_stride + j], want, 6e-7) << static_cast<int>(kind);
        }
      }
    }
  }
}

// Dice and prelu of values that are not finite.
TEST_P(ElementwiseTest, EpiloguesKeepNaNs) {
  const std::vector<float> one(9, 1.0f), x(9, std::nanf(""));
  for (const auto kind : {Activation::Kind::kPrelu, Activation::Kind::kDice}) {
    Epilogue e;
    e.activation = {kind, one.data(), one.data(), one.data(), one.data()};
    std::vector<float> y(9);
    KernelsOf(GetParam()).epilogue(e, x.data(), 9, y.data(), 9, 1, 9);
    for (const float v : y) EXPECT_TRUE(std::isnan(v));
  }
}

TEST_P(ElementwiseTest, Arithmetic) {
  for (const BinaryOp op : {BinaryOp::kAdd, BinaryOp::kSub, BinaryOp::kMultiply, BinaryOp::kDiv}) {
    for (const int64_t n : {1, 5, 8, 18, 32, 36}) {
      for (int form = 0; form < 16; ++form) {
        const int64_t rows = 4;
        const int64_t a_step = form & 1, b_step = form >> 1 & 1;
        const int64_t a_stride = (form & 4) != 0 ? n : 0, b_stride = (form & 8) != 0 ? n : 0;
        const GuardedFloats a((rows - 1) * a_stride + (n - 1) * a_step + 1, 1);
        const GuardedFloats b((rows - 1) * b_stride + (n - 1) * b_step + 1, 2);
        GuardedFloats y((rows - 1) * (n + 1) + n);
        KernelsOf(GetParam())
            .binary(op, {a.data(), a_stride, a_step}, {b.data(), b_stride, b_step}, y.data(), n + 1,
                    rows, n);
        for (int64_t i = 0; i < rows * n; ++i) {
          const float u = a[i / n * a_stride + i % n * a_step];
          const float v = b[i / n * b_stride + i % n * b_step];
          const float want = op == BinaryOp::kAdd        ? u + v
                             : op == BinaryOp::kSub      ? u - v
                             : op == BinaryOp::kMultiply ? u * v
                                                         : u / v;
          ASSERT_EQ(y[i / n * (n + 1) + i % n], want) << static_cast<int>(op) << " form " << form;
        }
      }
    }
  }
}

TEST_P(ElementwiseTest, Softmax) {
  for (const int64_t count : {1, 2, 7, 8, 9, 50, 100}) {
    for (const int64_t inner : {1, 2, 8, 19}) {
      for (const bool in_place : {false, true}) {
        const int64_t outer = 3;
        const GuardedFloats x(outer * count * inner, 1, -30, 30);
        GuardedFloats y(x.size());
        for (int64_t i = 0; i < x.size(); ++i) y[i] = x[i];
        KernelsOf(GetParam())
            .softmax(in_place ? y.data() : x.data(), y.data(), outer, count, inner, /*log=*/false);
        for (int64_t i = 0; i < x.size(); ++i) {
          const int64_t first = i / (count * inner) * count * inner + i % inner;
          double max = -1e30, sum = 0;
          for (int64_t t = 0; t < count; ++t) max = std::max(max, double{x[first + t * inner]});
          for (int64_t t = 0; t < count; ++t) sum += std::exp(x[first + t * inner] - max);
          const double want = std::exp(x[i] - max) / sum;
          // The difference from the maximum is rounded, too.
          const double bound = 1e-6 + 6e-8 * (max - x[i]);
          ASSERT_NEAR(y[i], want, bound * want + 1e-44) << count << " " << inner;
        }
        for (int64_t i = 0; i < x.size(); ++i) y[i] = x[i];
        KernelsOf(GetParam())
            .softmax(in_place ? y.data() : x.data(), y.data(), outer, count, inner, /*log=*/true);
        for (int64_t i = 0; i < x.size(); ++i) {
          const int64_t first = i / (count * inner) * count * inner + i % inner;
          double max = -1e30, sum = 0;
          for (int64_t t = 0; t < count; ++t) max = std::max(max, double{x[first + t * inner]});
          for (int64_t t = 0; t < count; ++t) sum += std::exp(x[first + t * inner] - max);
          const double want = x[i] - max - std::log(sum);
          ASSERT_NEAR(y[i], want, 1e-6 + 2e-7 * std::abs(want)) << count << " " << inner;
        }
      }
    }
  }
}

// What entries become one by, in double; its error is measured in `size`.
double Reduced(ReduceOp op, const std::vector<double>& entries, double& size) {
  double y = op == ReduceOp::kMax       ? -kInf
             : op == ReduceOp::kMin     ? kInf
             : op == ReduceOp::kProduct ? 1
                                        : 0;
  size = 0;
  for (const double x : entries) {
    if (op == ReduceOp::kSum) y += x;
    if (op == ReduceOp::kMax) y = std::max(y, x);
    if (op == ReduceOp::kMin) y = std::min(y, x);
    if (op == ReduceOp::kProduct) y *= x;
    size += op == ReduceOp::kSum ? std::abs(x) : 0;
  }
  if (op == ReduceOp::kProduct) size = std::abs(y) * static_cast<double>(entries.size());
  return y;
}

TEST_P(ElementwiseTest, Reductions) {
  for (const int64_t count : {0, 1, 2, 7, 8, 9, 31, 50, 100, 257}) {
    for (const int64_t inner : {1, 2, 8, 19, 70}) {
      for (const int64_t outer : {1, 3, 20}) {
        SCOPED_TRACE(absl::StrCat(outer, " x ", count, " x ", inner));
        const GuardedFloats x(outer * count * inner, 1, -1.5f, 1.5f);
        GuardedFloats y(outer * inner), places(outer * inner);
        const auto entries = [&](int64_t i) {
          std::vector<double> of;
          for (int64_t t = 0; t < count; ++t) {
            of.push_back(double{x[(i / inner * count + t) * inner + i % inner]});
          }
          return of;
        };
        for (const ReduceOp op :
             {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin, ReduceOp::kProduct}) {
          KernelsOf(GetParam()).reduce(op, x.data(), y.data(), outer, count, inner);
          for (int64_t i = 0; i < outer * inner; ++i) {
            double size = 0;
            const double want = Reduced(op, entries(i), size);
            if (std::isinf(want)) {
              ASSERT_EQ(y[i], want);
            } else {
              ASSERT_NEAR(y[i], want, 3e-7 * size + 1e-38) << static_cast<int>(op);
            }
          }
        }
        for (const bool smallest : {false, true}) {
          if (count == 0) continue;
          KernelsOf(GetParam()).best_places(smallest, x.data(), places.data(), outer, count, inner);
          for (int64_t i = 0; i < outer * inner; ++i) {
            const std::vector<double> of = entries(i);
            const auto best = smallest ? std::min_element(of.begin(), of.end())
                                       : std::max_element(of.begin(), of.end());
            ASSERT_EQ(places[i], static_cast<float>(best - of.begin()));
          }
        }
      }
    }
  }
}

TEST_P(ElementwiseTest, ReductionsOfWhatIsNotFinite) {
  const float nan = std::nanf("");
  for (const int64_t inner : {1, 3}) {
    for (const int64_t count : {5, 45}) {
      for (const int64_t at : {int64_t{0}, int64_t{3}, count - 1}) {
        std::vector<float> x(count * inner, 1.0f), y(inner), places(inner);
        for (int64_t i = 0; i < inner; ++i) x[at * inner + i] = nan;
        for (const ReduceOp op :
             {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin, ReduceOp::kProduct}) {
          KernelsOf(GetParam()).reduce(op, x.data(), y.data(), 1, count, inner);
          for (const float v : y) EXPECT_TRUE(std::isnan(v)) << static_cast<int>(op);
        }
        KernelsOf(GetParam()).best_places(false, x.data(), places.data(), 1, count, inner);
        for (const float v : places) EXPECT_EQ(v, at == 0 ? 1.0f : 0.0f);
      }
      const std::vector<float> worst(count * inner, -kInf);
      std::vector<float> places(inner);
      KernelsOf(GetParam()).best_places(false, worst.data(), places.data(), 1, count, inner);
      for (const float v : places) EXPECT_EQ(v, 0.0f);
    }
  }
}

TEST_P(ElementwiseTest, SoftmaxOfWhatIsMaskedAndOfWhatIsNotFinite) {
  const float low = -4294967295.0f;
  for (const int64_t inner : {1, 3}) {
    for (const int64_t count : {5, 20}) {
      const auto softmax = [&](const std::vector<float>& one) {
        std::vector<float> x(count * inner), y(x.size());
        for (size_t i = 0; i < x.size(); ++i) x[i] = one[i / inner % one.size()];
        KernelsOf(GetParam()).softmax(x.data(), y.data(), 1, count, inner, /*log=*/false);
        return y;
      };
      for (const float v : softmax({low})) EXPECT_NEAR(v, 1.0 / count, 1e-7);
      const std::vector<float> masked = softmax({1, low, low, low, low});
      for (size_t i = 0; i < masked.size(); ++i) {
        if (i / inner % 5 == 0) continue;
        EXPECT_EQ(masked[i], 0.0f);
      }
      for (const float v : softmax({1, std::nanf(""), 2, 3, 4})) EXPECT_TRUE(std::isnan(v));
      for (const float v : softmax({1, kInf, 2, 3, 4})) EXPECT_TRUE(std::isnan(v));
      for (const float v : softmax({-kInf})) EXPECT_TRUE(std::isnan(v));
    }
  }
}

TEST_P(ElementwiseTest, LayerNorms) {
  const int64_t rows = 3;
  for (const int64_t n : {1, 2, 7, 8, 16, 19, 64, 100}) {
    for (const bool centred : {true, false}) {
      for (const bool weighted : {true, false}) {
        for (const bool in_place : {false, true}) {
          const GuardedFloats x(rows * n, 1, -3, 5), scale(n, 2), shift(n, 3);
          GuardedFloats y(x.size());
          for (int64_t i = 0; i < x.size(); ++i) y[i] = x[i];
          const RowNorm norm = {1e-5f, centred, weighted ? scale.data() : nullptr,
                                weighted ? shift.data() : nullptr};
          KernelsOf(GetParam()).layer_norm(norm, in_place ? y.data() : x.data(), y.data(), rows, n);
          for (int64_t i = 0; i < x.size(); ++i) {
            double mean = 0, squares = 0;
            const int64_t first = i / n * n;
            for (int64_t j = first; centred && j < first + n; ++j) mean += x[j] / double(n);
            for (int64_t j = first; j < first + n; ++j) squares += (x[j] - mean) * (x[j] - mean);
            double want = (x[i] - mean) / std::sqrt(squares / static_cast<double>(n) + 1e-5f);
            if (weighted) want = want * scale[i % n] + shift[i % n];
            // Of one value the rounded mean may be off by its last bit, times 300.
            ASSERT_NEAR(y[i], want, 2e-6 * std::max(1.0, std::abs(want))) << n << " " << i;
          }
        }
      }
    }
  }
}

// Their variance is rounded, and may come out below 0.
TEST_P(ElementwiseTest, LayerNormsOfEqualValues) {
  for (const int64_t n : {1, 7, 100, 100000}) {
    for (int i = 1; i < 60; ++i) {
      const std::vector<float> x(n, 12345.678f * static_cast<float>(i * i));
      std::vector<float> y(n);
      KernelsOf(GetParam()).layer_norm({.eps = 1e-12f}, x.data(), y.data(), 1, n);
      for (const float v : y) ASSERT_TRUE(std::isfinite(v)) << n << " of " << x[0];
    }
  }
}

TEST_P(ElementwiseTest, Sums) {
  for (const int64_t count : {0, 1, 2, 7, 50}) {
    for (const int64_t n : {1, 7, 8, 36, 64, 67}) {
      const GuardedFloats w(count, 1);
      const GuardedFloats v(count == 0 ? 0 : (count - 1) * (n + 3) + n, 2);
      GuardedFloats y(n);
      KernelsOf(GetParam()).weighted_sum(w.data(), v.data(), n + 3, count, n, y.data());
      for (int64_t j = 0; j < n; ++j) {
        double want = 0;
        for (int64_t t = 0; t < count; ++t) want += double{w[t]} * v[t * (n + 3) + j];
        ASSERT_NEAR(y[j], want, 3e-6);
      }
    }
  }
  for (const int64_t n : kSizes) {
    const GuardedFloats a(n, 1), b(n, 2);
    double want = 0;
    for (int64_t i = 0; i < n; ++i) want += double{a[i]} * b[i];
    EXPECT_NEAR(KernelsOf(GetParam()).dot(a.data(), b.data(), n), want, 3e-6) << n;
  }
}

TEST_P(ElementwiseTest, ProductsOfRowsWithRows) {
  for (const int64_t m : {1, 4, 7, 27}) {
    for (const int64_t n : {1, 4, 7, 9}) {
      for (const int64_t k : {1, 3, 8, 16, 27, 64}) {
        const bool own = n == 9;  // With themselves.
        const GuardedFloats a(m * k, 1), others(n * k, 2);
        const float* const b = own ? a.data() : others.data();
        const int64_t columns = own ? m : n;
        GuardedFloats y(m * columns);
        KernelsOf(GetParam()).row_products(a.data(), m, b, columns, k, y.data());
        for (int64_t i = 0; i < m; ++i) {
          for (int64_t j = 0; j < columns; ++j) {
            double want = 0;
            for (int64_t c = 0; c < k; ++c) want += double{a[i * k + c]} * b[j * k + c];
            ASSERT_NEAR(y[i * columns + j], want, 3e-6) << m << " " << n << " " << k;
          }
        }
      }
    }
  }
}

TEST_P(ElementwiseTest, TransposedMatrices) {
  for (const int64_t rows : {1, 3, 4, 7, 8, 13, 16, 33}) {
    for (const int64_t columns : {1, 3, 4, 5, 16, 18, 39}) {
      for (const int64_t gap : {0, 3}) {
        const int64_t step = columns + gap, to_step = rows + gap;
        const GuardedFloats from((rows - 1) * step + columns, 1);
        const std::vector<float> before((columns - 1) * to_step + rows, -7.0f);
        GuardedFloats to(static_cast<int64_t>(before.size()));
        std::copy(before.begin(), before.end(), to.data());
        KernelsOf(GetParam()).transpose(from.data(), step, rows, columns, to.data(), to_step);
        for (int64_t j = 0; j < columns; ++j) {
          for (int64_t i = 0; i < to_step && j * to_step + i < std::ssize(before); ++i) {
            ASSERT_EQ(to[j * to_step + i], i < rows ? from[i * step + j] : -7.0f)
                << rows << " " << columns << " " << gap;
          }
        }
      }
    }
  }
}

TEST_P(ElementwiseTest, TapRowsAddUpShiftedRows) {
  constexpr int64_t kRows = 3, kTaps = 3, kGroup = TapArgs::kGroup;
  const int64_t offsets[kTaps] = {2, 0, 3};
  for (const int64_t n : {1, 5, 8, 15, 16, 17, 24, 31, 32, 33, 40, 64}) {
    for (const int64_t outputs : {1, 3, 4, 5, 8, 9, 13}) {
      const int64_t groups = (outputs + kGroup - 1) / kGroup, step = n + 3;
      const GuardedFloats x(kRows * step, 1), bias(outputs, 2), w(groups * kTaps * kGroup, 3);
      GuardedFloats y(outputs * kRows * n);
      KernelsOf(GetParam())
          .tap_rows({.x = x.data(),
                     .x_step = step,
                     .offsets = offsets,
                     .taps = kTaps,
                     .w = w.data(),
                     .bias = bias.data(),
                     .outputs = outputs,
                     .rows = kRows,
                     .n = n,
                     .y = y.data(),
                     .y_step = kRows * n});
      for (int64_t at = 0; at < outputs * kRows * n; ++at) {
        const int64_t o = at / n / kRows, i = at / n % kRows, j = at % n;
        double sum = bias[o];
        for (int64_t t = 0; t < kTaps; ++t) {
          sum += double{w[(o / kGroup * kTaps + t) * kGroup + o % kGroup]} *
                 x[i * step + j + offsets[t]];
        }
        ASSERT_NEAR(y[at], sum, 1e-5) << n << " " << outputs << " " << at;
      }
    }
  }
}

TEST_P(ElementwiseTest, GruCells) {
  const auto sigmoid = [](double v) { return 1 / (1 + std::exp(-v)); };
  for (const int64_t n : {1, 7, 8, 16, 27, 32, 40}) {
    const GuardedFloats x(3 * n, 1, -3, 3), g(3 * n, 2, -3, 3), bias(n, 3), before(n, 4);
    GuardedFloats h(n);
    for (int64_t j = 0; j < n; ++j) h[j] = before[j];
    KernelsOf(GetParam()).gru_cell(x.data(), g.data(), bias.data(), h.data(), n);
    for (int64_t j = 0; j < n; ++j) {
      const double r = sigmoid(double{x[j]} + g[j]), z = sigmoid(double{x[n + j]} + g[n + j]);
      const double c = std::tanh(double{x[2 * n + j]} + bias[j] + r * g[2 * n + j]);
      ASSERT_NEAR(h[j], c + z * (before[j] - c), 1e-6) << n;
    }
  }
}

TEST_P(ElementwiseTest, LstmCells) {
  const auto sigmoid = [](double v) { return 1 / (1 + std::exp(-v)); };
  for (const int64_t n : {1, 7, 8, 16, 27, 32, 40}) {
    const GuardedFloats x(4 * n, 1, -3, 3), g(4 * n, 2, -3, 3), before(n, 3);
    GuardedFloats c(n), h(n);
    for (int64_t j = 0; j < n; ++j) c[j] = before[j];
    KernelsOf(GetParam()).lstm_cell(x.data(), g.data(), c.data(), h.data(), n);
    for (int64_t j = 0; j < n; ++j) {
      const auto sum = [&](int64_t gate) { return double{x[gate * n + j]} + g[gate * n + j]; };
      const double cell = sigmoid(sum(1)) * before[j] + sigmoid(sum(0)) * std::tanh(sum(2));
      ASSERT_NEAR(c[j], cell, 1e-6) << n;
      ASSERT_NEAR(h[j], sigmoid(sum(3)) * std::tanh(cell), 1e-6) << n;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, ElementwiseTest, ::testing::ValuesIn(SupportedIsas()),
                         [](const auto& info) { return std::string(engine::Name(info.param)); });

}  // namespace
}  // namespace ulfd::engine

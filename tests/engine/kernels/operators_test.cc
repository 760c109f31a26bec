// Operators and functions of formulas for every instruction set of this machine.
// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>
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
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

float Min(float p, float q) { return p < q || p != p ? p : q; }
float Max(float p, float q) { return p > q || p != p ? p : q; }

std::vector<std::pair<BinaryOp, std::function<float(float, float)>>> Binaries() {
  using O = BinaryOp;
  return {{O::kAdd, [](float a, float b) { return a + b; }},
          {O::kSub, [](float a, float b) { return a - b; }},
          {O::kMultiply, [](float a, float b) { return a * b; }},
          {O::kDiv, [](float a, float b) { return a / b; }},
          {O::kMin, Min},
          {O::kMax, Max},
          {O::kLess, [](float a, float b) { return a < b ? 1.0f : 0.0f; }},
          {O::kLessEqual, [](float a, float b) { return a <= b ? 1.0f : 0.0f; }},
          {O::kGreater, [](float a, float b) { return a > b ? 1.0f : 0.0f; }},
          {O::kGreaterEqual, [](float a, float b) { return a >= b ? 1.0f : 0.0f; }},
          {O::kEqual, [](float a, float b) { return a == b ? 1.0f : 0.0f; }},
          {O::kNotEqual, [](float a, float b) { return a != b ? 1.0f : 0.0f; }},
          {O::kPow, [](float a, float b) { return std::pow(a, b); }}};
}

std::vector<std::pair<UnaryOp, std::function<float(float)>>> ExactFunctions() {
  return {{UnaryOp::kNeg, [](float x) { return -x; }},
          {UnaryOp::kAbs, [](float x) { return std::abs(x); }},
          {UnaryOp::kSqrt, [](float x) { return std::sqrt(x); }},
          {UnaryOp::kFloor, [](float x) { return std::floor(x); }},
          {UnaryOp::kTrunc, [](float x) { return std::trunc(x); }},
          {UnaryOp::kRound, [](float x) { return std::nearbyint(x); }},
          {UnaryOp::kRelu, [](float x) { return x < 0 ? 0.0f : x; }}};
}

// Random numbers with what is special among them.
void Fill(GuardedFloats& x, uint32_t seed) {
  const float special[] = {0.0f, -0.0f, kInf, -kInf, kNan, 1.0f, -1.0f, 1e-40f};
  for (int64_t i = 0; i < x.size(); ++i) {
    seed = seed * 1664525u + 1013904223u;
    x[i] = seed % 5 == 0 ? special[seed / 5 % 8]
                         : static_cast<float>(static_cast<int32_t>(seed)) * 1e-9f;
  }
}

bool Same(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) ||
         std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

class OperatorsTest : public ::testing::TestWithParam<Isa> {};

// What an operand may be like: rows of its own, one row for all, one value per row, one for all.
enum class Kind { kRows, kRow, kColumn, kScalar };
constexpr Kind kKinds[] = {Kind::kRows, Kind::kRow, Kind::kColumn, Kind::kScalar};

struct Operand {
  Operand(Kind kind, int64_t rows, int64_t n, uint32_t seed)
      : values((kind == Kind::kRows || kind == Kind::kColumn ? rows : 1) *
                   (kind == Kind::kRows || kind == Kind::kRow ? n + 3 : 1),
               seed),
        operand{values.data(),
                kind == Kind::kRows     ? n + 3
                : kind == Kind::kColumn ? 1
                                        : 0,
                kind == Kind::kRows || kind == Kind::kRow ? 1 : 0} {
    Fill(values, seed);
  }
  float At(int64_t row, int64_t i) const {
    return operand.data[row * operand.stride + i * operand.step];
  }
  GuardedFloats values;
  Strided operand;
};

// Calls test(rows, n) for sizes around those of vectors.
template <class Test>
void ForSizes(Test test) {
  for (const int64_t n : {1, 7, 8, 31, 32, 63, 64, 65, 200}) {
    for (const int64_t rows : {1, 3}) test(rows, n);
  }
}

TEST_P(OperatorsTest, EachOperatorOnEachKindOfOperand) {
  for (const auto& [op, exact] : Binaries()) {
    for (const Kind kind_a : kKinds) {
      for (const Kind kind_b : kKinds) {
        ForSizes([&, op = op, &exact = exact](int64_t rows, int64_t n) {
          SCOPED_TRACE(absl::StrCat("op ", static_cast<int>(op), " kinds ",
                                    static_cast<int>(kind_a), " ", static_cast<int>(kind_b),
                                    " rows ", rows, " n ", n));
          const Operand a(kind_a, rows, n, 1), b(kind_b, rows, n, 2);
          GuardedFloats y(rows * n, 4);
          KernelsOf(GetParam()).binary(op, a.operand, b.operand, y.data(), n, rows, n);
          for (int64_t i = 0; i < rows * n; ++i) {
            const float u = a.At(i / n, i % n), v = b.At(i / n, i % n);
            ASSERT_TRUE(Same(y[i], exact(u, v))) << "value " << i << ": " << y[i] << ", want "
                                                 << exact(u, v) << " of " << u << ", " << v;
          }
        });
      }
    }
  }
}

TEST_P(OperatorsTest, SmallPowersAreProducts) {
  for (const float exponent : {2.0f, 3.0f, 4.0f}) {
    ForSizes([&](int64_t rows, int64_t n) {
      SCOPED_TRACE(absl::StrCat("exponent ", exponent, " rows ", rows, " n ", n));
      const Operand a(Kind::kRows, rows, n, 1);
      GuardedFloats y(rows * n, 4);
      KernelsOf(GetParam())
          .binary(BinaryOp::kPow, a.operand, {&exponent, 0, 0}, y.data(), n, rows, n);
      for (int64_t i = 0; i < rows * n; ++i) {
        const float want = std::pow(a.At(i / n, i % n), exponent);
        if (std::isfinite(want)) {
          ASSERT_NEAR(y[i], want, 3e-7f * std::abs(want)) << "value " << i;
        } else {
          ASSERT_TRUE(Same(y[i], want)) << "value " << i << ": " << y[i] << ", want " << want;
        }
      }
    });
  }
}

TEST_P(OperatorsTest, WhereOnEachKindOfOperand) {
  for (const Kind kind_c : kKinds) {
    for (const Kind kind_a : kKinds) {
      ForSizes([&](int64_t rows, int64_t n) {
        const Operand c(kind_c, rows, n, 1), a(kind_a, rows, n, 2),
            b(kind_a == Kind::kRows ? Kind::kScalar : Kind::kRows, rows, n, 3);
        GuardedFloats y(rows * n, 4);
        KernelsOf(GetParam()).where(c.operand, a.operand, b.operand, y.data(), rows, n);
        for (int64_t i = 0; i < rows * n; ++i) {
          const float want = (c.At(i / n, i % n) > 0 ? a : b).At(i / n, i % n);
          ASSERT_TRUE(Same(y[i], want)) << "value " << i << " of " << rows << " x " << n;
        }
      });
    }
  }
}

TEST_P(OperatorsTest, ExactFunctions) {
  for (const auto& [op, exact] : ExactFunctions()) {
    for (const int64_t n : {1, 7, 8, 31, 32, 47, 63, 64, 65, 200}) {
      GuardedFloats x(n, 1), y(n, 2);
      Fill(x, static_cast<uint32_t>(n));
      KernelsOf(GetParam()).unary(op, x.data(), y.data(), n);
      for (int64_t i = 0; i < n; ++i) {
        ASSERT_TRUE(Same(y[i], exact(x[i]))) << static_cast<int>(op) << " of " << x[i];
      }
    }
  }
}

TEST_P(OperatorsTest, RoundingOfHalvesAndOfWhatHasNoFraction) {
  std::vector<float> values = {8388607.5f, 8388608.0f, 8388609.0f, 4194303.75f, 1e30f, 0.49999997f};
  for (int i = 0; i < 40; ++i) values.push_back(static_cast<float>(i) * 0.25f);
  const auto n = static_cast<int64_t>(values.size());
  GuardedFloats x(2 * n, 1), y(2 * n, 2);
  for (int64_t i = 0; i < n; ++i) {
    x[i] = values[static_cast<size_t>(i)];
    x[n + i] = -x[i];
  }
  for (const auto& [op, exact] : ExactFunctions()) {
    if (op != UnaryOp::kFloor && op != UnaryOp::kTrunc && op != UnaryOp::kRound) continue;
    KernelsOf(GetParam()).unary(op, x.data(), y.data(), 2 * n);
    for (int64_t i = 0; i < 2 * n; ++i) {
      ASSERT_TRUE(Same(y[i], exact(x[i])))
          << static_cast<int>(op) << " of " << x[i] << ": " << y[i];
    }
  }
}

TEST_P(OperatorsTest, ErrorFunction) {
  std::vector<float> values = {0.0f, -0.0f, kInf, -kInf, kNan, 3e38f, -3e38f, 1e-40f, 1e-45f};
  for (int i = -50000; i < 50000; ++i) values.push_back(static_cast<float>(i) * 1e-4f);
  for (double v = 1e-38; v < 1; v *= 1.01) values.push_back(static_cast<float>(v));
  const auto n = static_cast<int64_t>(values.size());
  GuardedFloats x(n, 1), y(n, 2);
  for (int64_t i = 0; i < n; ++i) x[i] = values[static_cast<size_t>(i)];
  KernelsOf(GetParam()).unary(UnaryOp::kErf, x.data(), y.data(), n);
  for (int64_t i = 0; i < n; ++i) {
    const double exact = std::erf(double{x[i]});
    if (std::isnan(exact)) {
      ASSERT_TRUE(std::isnan(y[i]));
    } else {
      const double step = std::numeric_limits<float>::denorm_min();
      ASSERT_LE(std::abs(y[i] - exact), 3e-7 * std::abs(exact) + step) << "of " << x[i];
      ASSERT_EQ(std::signbit(y[i]), std::signbit(x[i])) << "of " << x[i];
    }
  }
}

TEST_P(OperatorsTest, FunctionsHaveTheSameBitsEverywhere) {
  for (const UnaryOp op : {UnaryOp::kExp, UnaryOp::kLog, UnaryOp::kSigmoid, UnaryOp::kTanh,
                           UnaryOp::kSin, UnaryOp::kCos, UnaryOp::kErf}) {
    GuardedFloats x(200, 1), all(200, 2);
    Fill(x, 3);
    KernelsOf(GetParam()).unary(op, x.data(), all.data(), 200);
    for (int64_t i = 0; i < 200; ++i) {
      float alone = 0;
      KernelsOf(GetParam()).unary(op, x.data() + i, &alone, 1);
      ASSERT_TRUE(Same(alone, all[i])) << static_cast<int>(op) << " of " << x[i];
    }
  }
}

TEST_P(OperatorsTest, LogarithmsAreWithinTwoUlp) {
  std::vector<float> values = {0.0f,
                               -0.0f,
                               kInf,
                               -kInf,
                               kNan,
                               -1.0f,
                               -1e-40f,
                               1.0f,
                               std::numeric_limits<float>::min(),
                               std::numeric_limits<float>::max(),
                               std::numeric_limits<float>::denorm_min()};
  for (uint32_t bits = 1; bits < 0x7f800000; bits += 9973) {
    values.push_back(std::bit_cast<float>(bits));
  }
  for (int i = -2000; i < 2000; ++i) values.push_back(1.0f + static_cast<float>(i) * 1e-6f);
  const auto n = static_cast<int64_t>(values.size());
  GuardedFloats x(n, 1), y(n, 2);
  for (int64_t i = 0; i < n; ++i) x[i] = values[static_cast<size_t>(i)];
  KernelsOf(GetParam()).unary(UnaryOp::kLog, x.data(), y.data(), n);
  for (int64_t i = 0; i < n; ++i) {
    const double exact = std::log(double{x[i]});
    if (!std::isfinite(exact)) {
      ASSERT_TRUE(Same(y[i], static_cast<float>(exact))) << y[i] << " of " << x[i];
    } else {
      const float near = std::abs(static_cast<float>(exact));
      const float ulp = std::nextafter(near, kInf) - near;
      ASSERT_LE(std::abs(y[i] - exact), 2.0 * ulp) << "of " << x[i];
    }
  }
}

TEST_P(OperatorsTest, SinesAndCosines) {
  std::vector<float> values = {0.0f, -0.0f, 8192.0f, -8192.0f, 8193.0f, 1e10f, -3e38f, kInf, kNan};
  for (int i = -20000; i < 20000; ++i) values.push_back(static_cast<float>(i) * 0.41f);
  for (int i = 1; i < 2600; ++i) values.push_back(static_cast<float>(i * 1.5707963267948966));
  const auto n = static_cast<int64_t>(values.size());
  GuardedFloats x(n, 1), y(n, 2);
  for (int64_t i = 0; i < n; ++i) x[i] = values[static_cast<size_t>(i)];
  for (const bool cosine : {false, true}) {
    KernelsOf(GetParam()).unary(cosine ? UnaryOp::kCos : UnaryOp::kSin, x.data(), y.data(), n);
    for (int64_t i = 0; i < n; ++i) {
      const double exact = cosine ? std::cos(double{x[i]}) : std::sin(double{x[i]});
      if (std::isnan(exact)) {
        ASSERT_TRUE(std::isnan(y[i])) << y[i] << " of " << x[i];
      } else {
        ASSERT_LE(std::abs(y[i] - exact), 2e-7) << "of " << x[i];
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, OperatorsTest, ::testing::ValuesIn(SupportedIsas()),
                         [](const auto& info) { return std::string(Name(info.param)); });

}  // namespace
}  // namespace ulfd::engine

// Steps over blocks of values for every instruction set of this machine.
// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/kernels/elementwise.h"
#include "gtest/gtest.h"
#include "tests/testing/float_arrays.h"

namespace ulfd::engine {
namespace {

using testing::GuardedFloats;
using Kind = BlockOperand::Kind;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Op {
  BlockOp op;
  std::function<float(float it, float a, float b)> exact;
  bool reads_b = false;
};

float Min(float p, float q) { return p < q || p != p ? p : q; }
float Max(float p, float q) { return p > q || p != p ? p : q; }

std::vector<Op> Ops() {
  using O = BlockOp;
  std::vector<Op> ops = {
      {O::kLoad, [](float, float a, float) { return a; }},
      {O::kAdd, [](float it, float a, float) { return it + a; }},
      {O::kSub, [](float it, float a, float) { return it - a; }},
      {O::kSubFrom, [](float it, float a, float) { return a - it; }},
      {O::kMul, [](float it, float a, float) { return it * a; }},
      {O::kDiv, [](float it, float a, float) { return it / a; }},
      {O::kDivInto, [](float it, float a, float) { return a / it; }},
      {O::kMin, [](float it, float a, float) { return Min(it, a); }},
      {O::kMinOf, [](float it, float a, float) { return Min(a, it); }},
      {O::kMax, [](float it, float a, float) { return Max(it, a); }},
      {O::kMaxOf, [](float it, float a, float) { return Max(a, it); }},
      {O::kLess, [](float it, float a, float) { return it < a ? 1.0f : 0.0f; }},
      {O::kLessEqual, [](float it, float a, float) { return it <= a ? 1.0f : 0.0f; }},
      {O::kGreater, [](float it, float a, float) { return it > a ? 1.0f : 0.0f; }},
      {O::kGreaterEqual, [](float it, float a, float) { return it >= a ? 1.0f : 0.0f; }},
      {O::kEqual, [](float it, float a, float) { return it == a ? 1.0f : 0.0f; }},
      {O::kNotEqual, [](float it, float a, float) { return it != a ? 1.0f : 0.0f; }},
      {O::kNeg, [](float it, float, float) { return -it; }},
      {O::kAbs, [](float it, float, float) { return std::abs(it); }},
      {O::kSquare, [](float it, float, float) { return it * it; }},
      {O::kSqrt, [](float it, float, float) { return std::sqrt(it); }},
      {O::kRelu, [](float it, float, float) { return it < 0 ? 0.0f : it; }},
      {O::kPow, [](float it, float a, float) { return std::pow(it, a); }},
      {O::kPowOf, [](float it, float a, float) { return std::pow(a, it); }},
      {O::kWhere, [](float it, float a, float b) { return it > 0 ? a : b; }, true},
  };
  // The volatile result keeps the compiler from fusing the two operations.
  const std::function<float(float, float)> inners[] = {[](float a, float b) { return a + b; },
                                                       [](float a, float b) { return a - b; },
                                                       [](float a, float b) { return a * b; }};
  const std::function<float(float, float)> outers[] = {
      [](float, float x) { return x; }, [](float it, float x) { return it + x; },
      [](float it, float x) { return it - x; }, [](float it, float x) { return x - it; },
      [](float it, float x) { return it * x; }};
  int op = static_cast<int>(O::kLoadSum);
  for (const auto& outer : outers) {
    for (const auto& inner : inners) {
      ops.push_back({static_cast<O>(op++),
                     [outer, inner](float it, float a, float b) {
                       volatile float x = inner(a, b);
                       return outer(it, x);
                     },
                     true});
    }
  }
  EXPECT_EQ(op, static_cast<int>(O::kMulProduct) + 1);
  return ops;
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

class BlocksTest : public ::testing::TestWithParam<Isa> {};

// An operand of `rows` rows of n values.
struct Operand {
  Operand(Kind kind, bool shared, int64_t rows, int64_t n, uint32_t seed)
      : values(kind == Kind::kPlace    ? BlockOperand::kPlaceFloats
               : kind == Kind::kScalar ? rows
                                       : rows * (n + 3),
               seed),
        operand{values.data(),
                shared || kind == Kind::kPlace ? 0
                : kind == Kind::kScalar        ? 1
                                               : n + 3,
                kind} {
    Fill(values, seed);
  }
  float At(int64_t row, int64_t i) const {
    const int64_t at = operand.kind == Kind::kPlace    ? i % BlockOperand::kPlaceFloats
                       : operand.kind == Kind::kScalar ? 0
                                                       : i;
    return values.data()[row * operand.row_stride + at];
  }
  GuardedFloats values;
  BlockOperand operand;
};

TEST_P(BlocksTest, EachStepOnEachKindOfOperand) {
  for (const Op& op : Ops()) {
    for (const Kind kind : {Kind::kRows, Kind::kScalar, Kind::kPlace}) {
      for (const int64_t n : {1, 7, 8, 31, 32, 63, 64, 65, 200}) {
        for (const int64_t rows : {1, 3}) {
          SCOPED_TRACE(absl::StrCat("op ", static_cast<int>(op.op), " kind ",
                                    static_cast<int>(kind), " rows ", rows, " n ", n));
          const Operand it(Kind::kRows, false, rows, n, 1), a(kind, rows == 3, rows, n, 2),
              b(kind == Kind::kRows ? Kind::kScalar : Kind::kRows, false, rows, n, 3);
          GuardedFloats y(rows * n, 4);
          std::vector<BlockStep> steps = {
              {BlockOp::kLoad, it.operand, {}},
              {op.op, a.operand, op.reads_b ? b.operand : BlockOperand{}},
              {BlockOp::kStore, {y.data(), n, Kind::kRows}, {}}};
          RunBlocks(absl::MakeSpan(steps), rows, n, GetParam());
          for (int64_t r = 0; r < rows; ++r) {
            for (int64_t i = 0; i < n; ++i) {
              const float want = op.exact(it.At(r, i), a.At(r, i), op.reads_b ? b.At(r, i) : 0.0f);
              ASSERT_TRUE(Same(y[r * n + i], want))
                  << "row " << r << " value " << i << ": " << y[r * n + i] << ", want " << want
                  << " of " << it.At(r, i) << ", " << a.At(r, i);
            }
          }
        }
      }
    }
  }
}

TEST_P(BlocksTest, PlacesKeepValuesBetweenSteps) {
  constexpr int64_t kRows = 2, kN = 150;
  const Operand x(Kind::kRows, false, kRows, kN, 7), z(Kind::kRows, true, kRows, kN, 8);
  GuardedFloats y(kRows * kN, 1);
  alignas(64) float place[BlockOperand::kPlaceFloats];
  const BlockOperand kept{place, 0, Kind::kPlace};
  // (x - z) / (x - z + z)
  std::vector<BlockStep> steps = {{BlockOp::kLoadDifference, x.operand, z.operand},
                                  {BlockOp::kStore, kept, {}},
                                  {BlockOp::kAdd, z.operand, {}},
                                  {BlockOp::kDivInto, kept, {}},
                                  {BlockOp::kStore, {y.data(), kN, Kind::kRows}, {}}};
  RunBlocks(absl::MakeSpan(steps), kRows, kN, GetParam());
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t i = 0; i < kN; ++i) {
      const float d = x.At(r, i) - z.At(r, i);
      ASSERT_TRUE(Same(y[r * kN + i], d / (d + z.At(r, i)))) << "row " << r << " value " << i;
    }
  }
}

// y = op(x), in blocks.
void RunFunction(BlockOp op, const GuardedFloats& x, GuardedFloats& y, Isa isa) {
  std::vector<BlockStep> steps = {
      {BlockOp::kLoad, {const_cast<float*>(x.data()), 0, Kind::kRows}, {}},
      {op, {}, {}},
      {BlockOp::kStore, {y.data(), 0, Kind::kRows}, {}}};
  RunBlocks(absl::MakeSpan(steps), 1, x.size(), isa);
}

TEST_P(BlocksTest, FunctionsHaveTheBitsOfThoseOfArrays) {
  const std::pair<BlockOp, UnaryOp> functions[] = {{BlockOp::kExp, UnaryOp::kExp},
                                                   {BlockOp::kSigmoid, UnaryOp::kSigmoid},
                                                   {BlockOp::kTanh, UnaryOp::kTanh},
                                                   {BlockOp::kRelu, UnaryOp::kRelu}};
  for (const auto& [op, array_op] : functions) {
    for (const int64_t n : {1, 7, 8, 31, 32, 47, 63, 64, 65, 200}) {
      SCOPED_TRACE(absl::StrCat("op ", static_cast<int>(op), " n ", n));
      GuardedFloats x(n, 1), y(n, 2), want(n, 3);
      Fill(x, static_cast<uint32_t>(n));
      RunFunction(op, x, y, GetParam());
      Unary(array_op, x.data(), want.data(), n, GetParam());
      for (int64_t i = 0; i < n; ++i) ASSERT_TRUE(Same(y[i], want[i])) << "of " << x[i];
    }
  }
}

TEST_P(BlocksTest, LogarithmsAreWithinTwoUlp) {
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
  RunFunction(BlockOp::kLog, x, y, GetParam());
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

TEST_P(BlocksTest, SinesAndCosines) {
  std::vector<float> values = {0.0f, -0.0f, 8192.0f, -8192.0f, 8193.0f, 1e10f, -3e38f, kInf, kNan};
  for (int i = -20000; i < 20000; ++i) values.push_back(static_cast<float>(i) * 0.41f);
  for (int i = 1; i < 2600; ++i) values.push_back(static_cast<float>(i * 1.5707963267948966));
  const auto n = static_cast<int64_t>(values.size());
  GuardedFloats x(n, 1), y(n, 2);
  for (int64_t i = 0; i < n; ++i) x[i] = values[static_cast<size_t>(i)];
  for (const bool cosine : {false, true}) {
    RunFunction(cosine ? BlockOp::kCos : BlockOp::kSin, x, y, GetParam());
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

INSTANTIATE_TEST_SUITE_P(Isas, BlocksTest, ::testing::ValuesIn(SupportedIsas()),
                         [](const auto& info) { return std::string(Name(info.param)); });

}  // namespace
}  // namespace ulfd::engine

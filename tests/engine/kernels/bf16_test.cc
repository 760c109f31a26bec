// Products in bf16 against sums in double.
// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/bf16.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/kernels/product.h"
#include "engine/tensor/onednn.h"
#include "gtest/gtest.h"
#include "tests/testing/float_arrays.h"

namespace ulfd::engine {
namespace {

using testing::GuardedFloats;
using Kind = Activation::Kind;

struct alignas(64) Line {
  char bytes[64];
};

// The nearest number with 8 bits of mantissa, of two the even one.
double Rounded(float x) {
  if (x == 0) return 0;
  const double ulp = std::ldexp(1.0, std::ilogb(x) - 7);
  return std::nearbyint(x / ulp) * ulp;
}

enum class Init { kNone, kRow, kRows, kPeriod, kRepeat, kInPlace };

struct Case {
  int64_t rows;
  std::vector<int64_t> k;  // Of the blocks.
  int64_t n;
  Init init = Init::kRow;
  Kind kind = Kind::kNone;
  bool shuffled = false;    // The blocks meet the rows of the matrix in the opposite order.
  bool shared_row = false;  // The last block has one row for all.
};

// Everything that a call points to.
struct Data {
  explicit Data(const Case& c)
      : test(c), n(c.n), init(std::max<int64_t>(3, c.rows) * c.n, 2), slope(c.n, 6) {
    for (const int64_t width : c.k) k += width;
    w = std::make_unique<GuardedFloats>(k * n, 1);
    int64_t w_row = k;
    for (size_t i = 0; i < c.k.size(); ++i) {
      const int64_t width = c.k[i];
      const bool shared = c.shared_row && i + 1 == c.k.size();
      const int64_t rows = shared ? 1 : c.rows, stride = width + static_cast<int64_t>(i % 3);
      x.push_back(std::make_unique<GuardedFloats>((rows - 1) * stride + width, 10 + i));
      w_row -= width;
      blocks.push_back(
          {x.back()->data(), shared ? 0 : stride, width, c.shuffled ? w_row : FcBlock::kNext});
    }
  }
  FcCall Call(float* y) const {
    FcCall call{.blocks = blocks, .rows = test.rows, .y = y, .y_stride = n};
    if (test.init != Init::kNone) call.init = init.data();
    if (test.init != Init::kNone && test.init != Init::kRow) call.init_stride = n;
    if (test.init == Init::kPeriod) call.init_period = 3;
    if (test.init == Init::kRepeat) call.init_repeat = 3;
    if (test.init == Init::kInPlace) {
      std::copy_n(init.data(), test.rows * n, y);
      call.init = y;
    }
    call.epilogue.activation = {test.kind, slope.data()};
    return call;
  }
  Product Bf16Product() const {
    std::vector<Product::Rows> parts;
    for (const FcBlock& block : blocks) parts.push_back({block.k, block.w_row});
    Product product(std::make_shared<const PackedMatrix>(PackedMatrix::Pack(w->data(), k, n, n, 1)),
                    parts);
    product.SetPrecision(Precision::kBf16, test.rows);
    return product;
  }

  const Case test;
  const int64_t n;
  int64_t k = 0;
  GuardedFloats init, slope;
  std::unique_ptr<GuardedFloats> w;
  std::vector<std::unique_ptr<GuardedFloats>> x;
  std::vector<FcBlock> blocks;
};

double Start(const Data& d, int64_t r, int64_t j) {
  switch (d.test.init) {
    case Init::kNone:
      return 0;
    case Init::kRow:
      return d.init[j];
    case Init::kPeriod:
      return d.init[r % 3 * d.n + j];
    case Init::kRepeat:
      return d.init[r / 3 * d.n + j];
    default:
      return d.init[r * d.n + j];
  }
}

double Act(const Data& d, double y, int64_t j) {
  switch (d.test.kind) {
    case Kind::kRelu:
      return y < 0 ? 0 : y;
    case Kind::kPrelu:
      return y > 0 ? y : y * d.slope[j];
    case Kind::kSigmoid:
      return 1 / (1 + std::exp(-y));
    case Kind::kTanh:
      return std::tanh(y);
    default:
      return y;
  }
}

void Multiply(const Product& product, const FcCall& call) {
  std::vector<Line> scratch(product.ScratchBytes(call.rows) / sizeof(Line));
  ASSERT_TRUE(product.Run(call, scratch.data()).ok());
}

void Check(const Case& c) {
  SCOPED_TRACE(absl::StrCat("rows ", c.rows, " k ", absl::StrJoin(c.k, "+"), " n ", c.n, " init ",
                            static_cast<int>(c.init), " kind ", static_cast<int>(c.kind)));
  const Data d(c);
  GuardedFloats y(c.rows * d.n);
  const Product product = d.Bf16Product();
  EXPECT_EQ(product.precision(), d.k > 0 ? Precision::kBf16 : Precision::kFp32);
  Multiply(product, d.Call(y.data()));
  for (int64_t r = 0; r < c.rows; ++r) {
    for (int64_t j = 0; j < d.n; ++j) {
      double exact = Start(d, r, j), rounded = exact, terms = std::abs(exact);
      int64_t w_row = 0;
      for (const FcBlock& block : d.blocks) {
        if (block.w_row != FcBlock::kNext) w_row = block.w_row;
        for (int64_t i = 0; i < block.k; ++i, ++w_row) {
          const float x = block.x[r * block.stride + i], w = (*d.w)[w_row * d.n + j];
          exact += double{x} * w;
          rounded += Rounded(x) * Rounded(w);
          terms += std::abs(double{x} * w);
        }
      }
      const double got = y[r * d.n + j];
      // Sums in float; a sigmoid within 1.3e-4 of itself.
      const double sums = 1.2e-7 * (2 + std::sqrt(static_cast<double>(d.k))) * terms + 1e-6;
      const double act = c.kind == Kind::kSigmoid ? 1.3e-4 * Act(d, rounded, j) : 0;
      ASSERT_NEAR(got, Act(d, rounded, j), sums + act) << "y[" << r << ", " << j << "]";
      // Each operand moves by at most 2^-8 of itself, half of the last of 8 bits.
      const double bound = (std::ldexp(1.0, -7) + std::ldexp(1.0, -16)) * terms;
      ASSERT_NEAR(got, Act(d, exact, j), bound + sums + act) << "y[" << r << ", " << j << "]";
    }
  }
}

class Bf16Test : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!HasBf16()) GTEST_SKIP() << "this machine has no AVX512-BF16, or ULFD_ISA leaves it out";
    UseOneThread();
  }
};

TEST_F(Bf16Test, Shapes) {
  for (const int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 23, 50}) {
    for (const int64_t n :
         {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 23, 24, 25, 32, 33, 40, 41, 64, 80, 200}) {
      for (const int64_t k : {1, 2, 13, 31, 32, 33, 48, 64, 65}) Check({rows, {k}, n});
    }
  }
}

TEST_F(Bf16Test, LongSumsAndTallCalls) {
  for (const int64_t rows : {1, 3, 10, 130}) {
    for (const int64_t n : {2, 40, 200}) {
      for (const int64_t k : {306, 641, 1299}) Check({rows, {k}, n, Init::kRow, Kind::kRelu});
    }
  }
  Check({2000, {36}, 80, Init::kRow, Kind::kSigmoid});
  Check({330, {1024}, 130, Init::kRow, Kind::kPrelu});
}

TEST_F(Bf16Test, Blocks) {
  const std::vector<std::vector<int64_t>> widths = {{0},          {1, 1, 1},    {18, 17, 7},
                                                    {0, 5, 0, 9}, {36, 53, 54}, {200, 733, 105}};
  for (const auto& k : widths) {
    for (const int64_t rows : {1, 5, 40}) {
      for (const int64_t n : {3, 8, 50}) {
        for (const bool shuffled : {false, true}) {
          for (const bool shared : {false, true}) {
            Check({rows, k, n, Init::kNone, Kind::kNone, shuffled, shared});
          }
        }
      }
    }
  }
}

TEST_F(Bf16Test, StartsAndActivations) {
  for (const Init init :
       {Init::kNone, Init::kRow, Init::kRows, Init::kPeriod, Init::kRepeat, Init::kInPlace}) {
    for (const Kind kind : {Kind::kNone, Kind::kRelu, Kind::kPrelu, Kind::kSigmoid, Kind::kTanh}) {
      for (const int64_t n : {2, 13, 40}) Check({21, {33, 4}, n, init, kind});
    }
  }
}

// Sigmoids by table and one product, over all of their range.
TEST_F(Bf16Test, SigmoidsAreCloseEverywhere) {
  const std::vector<float> w(8, 0.0f);
  Product product(std::make_shared<const PackedMatrix>(PackedMatrix::Pack(w.data(), 1, 8, 8, 1)));
  product.SetPrecision(Precision::kBf16, 1);
  const float zero = 0;
  const FcBlock block{&zero, 1, 1};
  std::vector<float> x(8), y(8);
  FcCall call{.blocks = absl::MakeConstSpan(&block, 1), .rows = 1, .init = x.data()};
  call.y = y.data();
  call.y_stride = 8;
  call.epilogue.activation.kind = Kind::kSigmoid;
  for (double at = -86; at < 100; at += 0.01) {
    for (int j = 0; j < 8; ++j) x[j] = static_cast<float>(at + 0.00125 * j);
    Multiply(product, call);
    for (int j = 0; j < 8; ++j) {
      const double want = 1 / (1 + std::exp(-double{x[j]}));
      ASSERT_NEAR(y[j], want, 1.3e-4 * want) << x[j];
    }
  }
  x = {-1e30f,
       1e30f,
       -std::numeric_limits<float>::infinity(),
       std::numeric_limits<float>::infinity(),
       std::nanf(""),
       0,
       -200,
       200};
  Multiply(product, call);
  for (int j = 0; j < 8; j += 2) EXPECT_EQ(j == 4 ? 0 : y[j] < 1e-37f, j != 4);
  for (int j = 1; j < 8; j += 2) EXPECT_NEAR(y[j], j == 5 ? 0.5 : 1, 1e-4);
  EXPECT_TRUE(std::isnan(y[4]));
}

TEST_F(Bf16Test, BitsOfARowDependOnNothingElse) {
  for (const int64_t n : {1, 8, 40, 200}) {
    for (const int64_t k : {36, 305, 1100}) {
      const Data d({203, {k}, n, Init::kRow, Kind::kSigmoid});
      const Product product = d.Bf16Product();
      std::vector<float> all(203 * n);
      Multiply(product, d.Call(all.data()));
      for (const int64_t rows : {1, 2, 3, 7, 50}) {
        for (const int64_t first : {int64_t{0}, int64_t{101}, 203 - rows}) {
          const FcBlock block{d.blocks[0].x + first * d.blocks[0].stride, d.blocks[0].stride, k};
          std::vector<float> some(rows * n);
          FcCall part = d.Call(some.data());
          part.blocks = absl::MakeConstSpan(&block, 1);
          part.rows = rows;
          Multiply(product, part);
          EXPECT_EQ(std::memcmp(some.data(), all.data() + first * n, some.size() * sizeof(float)),
                    0)
              << "k " << k << " n " << n << " rows " << first << "+" << rows;
        }
      }
    }
  }
}

TEST_F(Bf16Test, NaNsAndInfinitiesStayInTheirRow) {
  for (const int64_t n : {1, 20, 40}) {
    const Data d({9, {21}, n, Init::kRow, Kind::kSigmoid});
    (*d.x[0])[4 * d.blocks[0].stride + 20] = std::nanf("");
    (*d.x[0])[6 * d.blocks[0].stride] = std::numeric_limits<float>::infinity();
    std::vector<float> y(9 * n);
    Multiply(d.Bf16Product(), d.Call(y.data()));
    for (int64_t r = 0; r < 9; ++r) {
      for (int64_t j = 0; j < n; ++j) {
        EXPECT_EQ(std::isnan(y[r * n + j]), r == 4);
        if (r == 6) {
          EXPECT_NEAR(y[r * n + j], (*d.w)[j] > 0 ? 1 : 0, 1e-4);
        }
      }
    }
  }
}

TEST_F(Bf16Test, AutoTakesWhatIsFasterAndKeepsOneMatrix) {
  const GuardedFloats w(512 * 256, 1);
  const auto matrix =
      std::make_shared<const PackedMatrix>(PackedMatrix::Pack(w.data(), 512, 256, 256, 1));
  Product product(matrix);
  EXPECT_EQ(product.bytes(), 0);
  product.SetPrecision(Precision::kAuto, 64);
  EXPECT_EQ(product.reads_matrix(), product.precision() == Precision::kFp32);
  EXPECT_EQ(product.bytes(), product.reads_matrix() ? 0 : matrix->bytes() / 2);
  Product again(matrix);
  again.SetPrecision(Precision::kAuto, 64);
  EXPECT_EQ(again.precision(), product.precision());
  // What is in bf16 no backend takes over.
  Product bf16(matrix);
  bf16.SetPrecision(Precision::kBf16, 64);
  ASSERT_TRUE(bf16.Choose(Backend::kOneDnn, 64).ok());
  EXPECT_EQ(bf16.backend(), Backend::kNative);
  EXPECT_EQ(bf16.precision(), Precision::kBf16);
}

}  // namespace
}  // namespace ulfd::engine

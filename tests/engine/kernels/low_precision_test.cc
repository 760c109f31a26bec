// Products in bf16 and int8 against sums in double, of rounded and of exact numbers.
// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/low_precision.h"

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

// A number of a row or column as it is rounded, by how much that moves it at most, and the size of
// what float arithmetic sees of it.
struct Low {
  double value = 0, off = 0, size = 0;
};

// To 8 bits of mantissa; of two numbers as near to the even one.
Low ToBf16(float x) {
  if (x == 0) return {};
  const double ulp = std::ldexp(1.0, std::ilogb(x) - 7);
  return {std::nearbyint(x / ulp) * ulp, std::ldexp(std::abs(x), -8), std::abs(x)};
}

// Bytes from the least number of the row to the largest, 0 among them.
std::vector<Low> RowToInt8(const std::vector<float>& row) {
  float least = 0, most = 0;
  for (const float x : row) {
    least = std::min(x, least);
    most = std::max(x, most);
  }
  const float step = most / 255 - least / 255, zero = step == 0 ? 0 : std::rint(-least / step);
  std::vector<Low> low;
  for (const float x : row) {
    const float byte = std::min(255.0f, std::rint(std::fma(x, step == 0 ? 0 : 1 / step, zero)));
    low.push_back({double{step} * (byte - zero), 0.5001 * step, std::abs(x) + 2 * zero * step});
  }
  return low;
}

// Bytes up to the largest number of the column, both ways.
std::vector<Low> ColumnToInt8(const std::vector<float>& column) {
  float most = 0;
  for (const float w : column) most = std::max(most, std::abs(w));
  const float scale = most / 127;
  std::vector<Low> low;
  for (const float w : column) {
    low.push_back({double{scale} * std::rint(w / scale), 0.5001 * scale, std::abs(w)});
  }
  return low;
}

std::vector<Low> Rounded(Precision precision, const std::vector<float>& x, bool row) {
  if (precision == Precision::kInt8) return row ? RowToInt8(x) : ColumnToInt8(x);
  std::vector<Low> low;
  for (const float v : x) {
    low.push_back(precision == Precision::kBf16 ? ToBf16(v) : Low{v, 0, std::abs(v)});
  }
  return low;
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
  // What the blocks have of row r, and what they meet of column j.
  std::vector<float> Row(int64_t r) const {
    std::vector<float> row;
    for (const FcBlock& block : blocks) {
      row.insert(row.end(), block.x + r * block.stride, block.x + r * block.stride + block.k);
    }
    return row;
  }
  std::vector<float> Column(int64_t j) const {
    std::vector<float> column;
    int64_t w_row = 0;
    for (const FcBlock& block : blocks) {
      if (block.w_row != FcBlock::kNext) w_row = block.w_row;
      for (int64_t i = 0; i < block.k; ++i, ++w_row) column.push_back((*w)[w_row * n + j]);
    }
    return column;
  }
  Product RoundedProduct(Precision precision) const {
    std::vector<Product::Rows> parts;
    for (const FcBlock& block : blocks) parts.push_back({block.k, block.w_row});
    Product product(std::make_shared<const PackedMatrix>(PackedMatrix::Pack(w->data(), k, n, n, 1)),
                    parts);
    product.SetPrecision(precision, test.rows);
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

// Of precision p, a product of that shape.
Precision Wanted(Precision p, int64_t k, int64_t n) {
  if (k == 0 || (p == Precision::kInt8 && n <= MatrixView::kMaxColumns)) return Precision::kFp32;
  return p;
}

void Check(Precision precision, const Case& c) {
  SCOPED_TRACE(absl::StrCat("rows ", c.rows, " k ", absl::StrJoin(c.k, "+"), " n ", c.n, " init ",
                            static_cast<int>(c.init), " kind ", static_cast<int>(c.kind)));
  const Data d(c);
  GuardedFloats y(c.rows * d.n);
  const Product product = d.RoundedProduct(precision);
  ASSERT_EQ(product.precision(), Wanted(precision, d.k, d.n));
  Multiply(product, d.Call(y.data()));
  std::vector<std::vector<float>> columns;
  std::vector<std::vector<Low>> low_columns;
  for (int64_t j = 0; j < d.n; ++j) {
    columns.push_back(d.Column(j));
    low_columns.push_back(Rounded(product.precision(), columns.back(), /*row=*/false));
  }
  for (int64_t r = 0; r < c.rows; ++r) {
    const std::vector<float> row = d.Row(r);
    const std::vector<Low> low = Rounded(product.precision(), row, /*row=*/true);
    for (int64_t j = 0; j < d.n; ++j) {
      double exact = Start(d, r, j), rounded = exact, terms = std::abs(exact), bound = 0;
      for (int64_t i = 0; i < d.k; ++i) {
        const Low x = low[i], w = low_columns[j][i];
        exact += double{row[i]} * columns[j][i];
        rounded += x.value * w.value;
        terms += x.size * w.size;
        bound += std::abs(row[i]) * w.off + x.off * std::abs(columns[j][i]) + x.off * w.off;
      }
      const double got = y[r * d.n + j];
      // Sums in float; a sigmoid within 1.3e-4 of itself.
      const double sums = 1.2e-7 * (2 + std::sqrt(static_cast<double>(d.k))) * terms + 1e-6;
      const double act = c.kind == Kind::kSigmoid ? 1.3e-4 * Act(d, rounded, j) : 0;
      ASSERT_NEAR(got, Act(d, rounded, j), sums + act) << "y[" << r << ", " << j << "]";
      ASSERT_NEAR(got, Act(d, exact, j), bound + sums + act) << "y[" << r << ", " << j << "]";
    }
  }
}

class LowPrecisionTest : public ::testing::TestWithParam<Precision> {
 protected:
  void SetUp() override {
    if (!Has(GetParam())) {
      GTEST_SKIP() << "no " << InstructionsOf(GetParam()) << ", or ULFD_ISA leaves it out";
    }
    UseOneThread();
  }
  void Check(const Case& c) const { engine::Check(GetParam(), c); }
};

INSTANTIATE_TEST_SUITE_P(All, LowPrecisionTest,
                         ::testing::Values(Precision::kBf16, Precision::kInt8),
                         [](const ::testing::TestParamInfo<Precision>& info) {
                           return std::string(Name(info.param));
                         });

TEST_P(LowPrecisionTest, Shapes) {
  for (const int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 23, 50}) {
    for (const int64_t n :
         {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 23, 24, 25, 32, 33, 40, 41, 64, 80, 200}) {
      for (const int64_t k : {1, 2, 13, 31, 32, 33, 48, 64, 65}) Check({rows, {k}, n});
    }
  }
}

TEST_P(LowPrecisionTest, LongSumsAndTallCalls) {
  for (const int64_t rows : {1, 3, 10, 130}) {
    for (const int64_t n : {2, 40, 200}) {
      for (const int64_t k : {306, 641, 1299}) Check({rows, {k}, n, Init::kRow, Kind::kRelu});
    }
  }
  Check({2000, {36}, 80, Init::kRow, Kind::kSigmoid});
  Check({330, {1024}, 130, Init::kRow, Kind::kPrelu});
}

TEST_P(LowPrecisionTest, Blocks) {
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

TEST_P(LowPrecisionTest, StartsAndActivations) {
  for (const Init init :
       {Init::kNone, Init::kRow, Init::kRows, Init::kPeriod, Init::kRepeat, Init::kInPlace}) {
    for (const Kind kind : {Kind::kNone, Kind::kRelu, Kind::kPrelu, Kind::kSigmoid, Kind::kTanh}) {
      for (const int64_t n : {2, 13, 40}) Check({21, {33, 4}, n, init, kind});
    }
  }
}

// Sigmoids by table and one product, over all of their range.
TEST_P(LowPrecisionTest, SigmoidsAreCloseEverywhere) {
  const std::vector<float> w(8, 0.0f);
  Product product(std::make_shared<const PackedMatrix>(PackedMatrix::Pack(w.data(), 1, 8, 8, 1)));
  product.SetPrecision(GetParam(), 1);
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

TEST_P(LowPrecisionTest, BitsOfARowDependOnNothingElse) {
  for (const int64_t n : {1, 8, 40, 200}) {
    for (const int64_t k : {36, 305, 1100}) {
      const Data d({203, {k}, n, Init::kRow, Kind::kSigmoid});
      const Product product = d.RoundedProduct(GetParam());
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

TEST_P(LowPrecisionTest, NaNsAndInfinitiesStayInTheirRow) {
  for (const int64_t n : {1, 20, 40}) {
    const Data d({9, {21}, n, Init::kRow, Kind::kSigmoid});
    (*d.x[0])[4 * d.blocks[0].stride + 20] = std::nanf("");
    (*d.x[0])[6 * d.blocks[0].stride] = std::numeric_limits<float>::infinity();
    std::vector<float> y(9 * n);
    const Product product = d.RoundedProduct(GetParam());
    Multiply(product, d.Call(y.data()));
    for (int64_t r = 0; r < 9; ++r) {
      for (int64_t j = 0; j < n; ++j) {
        const bool none = product.precision() == Precision::kInt8 && r == 6;
        EXPECT_EQ(std::isnan(y[r * n + j]), r == 4 || none);
        if (r == 6 && !none) {
          EXPECT_NEAR(y[r * n + j], (*d.w)[j] > 0 ? 1 : 0, 1e-4);
        }
      }
    }
  }
}

// y = x w for one row.
std::vector<float> Times(Precision precision, const std::vector<float>& x,
                         const std::vector<float>& w, int64_t n) {
  const int64_t k = static_cast<int64_t>(x.size());
  Product product(std::make_shared<const PackedMatrix>(PackedMatrix::Pack(w.data(), k, n, n, 1)));
  product.SetPrecision(precision, 1);
  std::vector<float> y(n);
  const FcBlock block{x.data(), k, k};
  Multiply(product,
           {.blocks = absl::MakeConstSpan(&block, 1), .rows = 1, .y = y.data(), .y_stride = n});
  return y;
}

TEST_P(LowPrecisionTest, TakesEveryRangeOfNumbers) {
  for (const float size : {1e-45f, 1e-38f, 1e-30f, 1.0f, 1e30f, 1e37f}) {
    for (const float w : {0.0f, 1e-30f, 0.25f}) {
      const std::vector<float> y =
          Times(GetParam(), {size, -size, size / 2, 0, size}, std::vector<float>(40, w), 8);
      for (const float got : y) {
        const double want = 1.5 * w * size;
        EXPECT_NEAR(got, want, 0.03 * want + 1e-37) << size << " times " << w;
      }
    }
  }
  // Numbers of one sign far from 0, and none but zeros.
  const std::vector<float> y = Times(GetParam(), {1000, 1001, 1002}, std::vector<float>(24, 1), 8);
  EXPECT_NEAR(y[7], 3003, 12);
  EXPECT_EQ(Times(GetParam(), {0, 0}, std::vector<float>(16, 1), 8), std::vector<float>(8, 0));
}

TEST_P(LowPrecisionTest, AWeightThatIsNoNumberStaysInItsColumn) {
  std::vector<float> w(4 * 20, 0.5f);
  w[20 + 17] = std::nanf("");
  const std::vector<float> y = Times(GetParam(), {1, 2, 3, 4}, w, 20);
  for (int64_t j = 0; j < 20; ++j) EXPECT_EQ(std::isnan(y[j]), j == 17) << j;
}

// In bytes nothing would be left of the others.
TEST_P(LowPrecisionTest, AWeightFarBeyondTheOthersTakesNoneAway) {
  for (const float far : {1e4f, 1e30f, std::numeric_limits<float>::infinity()}) {
    std::vector<float> w(4 * 20, 0.5f);
    w[20 + 17] = far;
    const std::vector<float> y = Times(GetParam(), {1, 0, 3, 4}, w, 20);
    for (int64_t j = 0; j < 20; ++j) {
      if (j == 17 && !std::isfinite(far)) continue;
      EXPECT_NEAR(y[j], 4, 0.05) << j << " beside " << far;
    }
  }
}

// The largest bytes of both sides; longer sums might not fit 32 bits and stay in fp32.
TEST_P(LowPrecisionTest, SumsOfAnyLengthFit) {
  for (const int64_t k : {65536, 70000}) {
    const std::vector<float> y =
        Times(GetParam(), std::vector<float>(k, 1), std::vector<float>(k * 8, -2), 8);
    for (const float got : y) EXPECT_NEAR(got, -2.0 * static_cast<double>(k), 0.01 * k);
  }
}

TEST_P(LowPrecisionTest, NoBackendTakesOver) {
  const GuardedFloats w(512 * 256, 1);
  const auto matrix =
      std::make_shared<const PackedMatrix>(PackedMatrix::Pack(w.data(), 512, 256, 256, 1));
  Product product(matrix);
  product.SetPrecision(GetParam(), 64);
  ASSERT_TRUE(product.Choose(Backend::kOneDnn, 64).ok());
  EXPECT_EQ(product.backend(), Backend::kNative);
  EXPECT_EQ(product.precision(), GetParam());
  EXPECT_FALSE(product.reads_matrix());
  const int64_t scales = GetParam() == Precision::kInt8 ? 2 * 256 * 4 : 0;
  EXPECT_EQ(product.bytes(), matrix->bytes() / PerFloat(GetParam()) + scales);
}

TEST(AutoPrecision, TakesWhatIsFasterAndKeepsOneMatrix) {
  if (!Has(Precision::kBf16)) GTEST_SKIP() << "no AVX512-BF16, or ULFD_ISA leaves it out";
  UseOneThread();
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
}

}  // namespace
}  // namespace ulfd::engine

// Fully connected layers for every instruction set of this machine against sums in double.
// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/fc.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "tests/testing/float_arrays.h"

namespace ulfd::engine {
namespace {

using testing::GuardedFloats;
using Kind = Activation::Kind;

struct Shape {
  int64_t rows;
  std::vector<int64_t> k;  // Of the blocks.
  int64_t n;
};

enum class InitKind { kNone, kRow, kRows, kPeriod, kRepeat };

struct Case {
  Shape shape;
  InitKind init = InitKind::kNone;
  Kind kind = Kind::kNone;
  bool affine = false;
  bool borrow = false;
  bool transposed = false;
  bool shared_row = false;  // All blocks have one row for all.
  int64_t gap = 0;          // Of y, floats between rows.
  int64_t x_stride = 0;     // Of all blocks; 0: their widths and a little.
  int64_t cycle = 3;        // Of kPeriod and kRepeat.
};

std::string Name(const Case& c) {
  return absl::StrCat("rows ", c.shape.rows, " k ", absl::StrJoin(c.shape.k, "+"), " n ", c.shape.n,
                      " init ", static_cast<int>(c.init), " kind ", static_cast<int>(c.kind),
                      c.affine ? " affine" : "", c.borrow ? " borrowed" : "",
                      c.transposed ? " transposed" : "", c.shared_row ? " shared" : "");
}

// Everything that a call points to.
struct Data {
  explicit Data(const Case& c)
      : k(Sum(c.shape.k)),
        n(c.shape.n),
        w(k * n, 1),
        init(std::max<int64_t>(1, c.shape.rows) * n, 2),
        mean(n, 3),
        scale(n, 4, 0.5f, 2),
        beta(n, 5),
        slope(n, 6),
        dice_mean(n, 7),
        dice_scale(n, 8, 0.5f, 2),
        gamma(n, 9) {
    for (size_t i = 0; i < c.shape.k.size(); ++i) {
      const int64_t width = c.shape.k[i];
      // Rows apart by different gaps.
      const int64_t stride = c.shared_row     ? 0
                             : c.x_stride > 0 ? c.x_stride
                                              : width + static_cast<int64_t>(i % 3);
      const int64_t rows = c.shared_row ? 1 : c.shape.rows;
      x.push_back(
          std::make_unique<GuardedFloats>(rows == 0 ? 0 : (rows - 1) * stride + width, 10 + i));
      blocks.push_back({x.back()->data(), stride, width});
    }
    if (c.transposed) {
      packed = PackedMatrix::Pack(w.data(), k, n, 1, k);
    } else if (c.borrow) {
      packed = PackedMatrix::Borrow(w.data(), k, n, n);
    } else {
      packed = PackedMatrix::Pack(w.data(), k, n, n, 1);
    }
  }
  static int64_t Sum(const std::vector<int64_t>& v) {
    int64_t sum = 0;
    for (int64_t x : v) sum += x;
    return sum;
  }

  const int64_t k, n;
  GuardedFloats w, init, mean, scale, beta, slope, dice_mean, dice_scale, gamma;
  std::vector<std::unique_ptr<GuardedFloats>> x;
  std::vector<FcBlock> blocks;
  PackedMatrix packed;
};

FcCall CallOf(const Case& c, const Data& d) {
  FcCall call;
  call.blocks = d.blocks;
  call.rows = c.shape.rows;
  call.w = d.packed.view();
  if (c.init != InitKind::kNone) call.init = d.init.data();
  if (c.init != InitKind::kNone && c.init != InitKind::kRow) call.init_stride = d.n;
  if (c.init == InitKind::kPeriod) call.init_period = c.cycle;
  if (c.init == InitKind::kRepeat) call.init_repeat = c.cycle;
  if (c.affine) call.epilogue.affine = {d.mean.data(), d.scale.data(), d.beta.data()};
  call.epilogue.activation = {c.kind, d.slope.data(), d.dice_mean.data(), d.dice_scale.data(),
                              d.gamma.data()};
  call.y_stride = d.n + c.gap;
  return call;
}

double Finish(const Case& c, const Data& d, double y, int64_t j) {
  if (c.affine) y = (y - d.mean[j]) * d.scale[j] + d.beta[j];
  const auto sigmoid = [](double v) { return 1 / (1 + std::exp(-v)); };
  switch (c.kind) {
    case Kind::kNone:
      return y;
    case Kind::kRelu:
      return y < 0 ? 0 : y;
    case Kind::kPrelu:
      return y > 0 ? y : y * d.slope[j];
    case Kind::kSigmoid:
      return sigmoid(y);
    case Kind::kTanh:
      return std::tanh(y);
    case Kind::kDice: {
      const double p = sigmoid((y - d.dice_mean[j]) * d.dice_scale[j]);
      return p * y + (1 - p) * d.gamma[j] * y;
    }
  }
  return y;
}

double Expected(const Case& c, const Data& d, int64_t r, int64_t j) {
  double y = 0;
  if (c.init == InitKind::kRow) y = d.init[j];
  if (c.init == InitKind::kRows) y = d.init[r * d.n + j];
  if (c.init == InitKind::kPeriod) y = d.init[r % c.cycle * d.n + j];
  if (c.init == InitKind::kRepeat) y = d.init[r / c.cycle * d.n + j];
  int64_t k = 0;
  for (const FcBlock& block : d.blocks) {
    for (int64_t i = 0; i < block.k; ++i, ++k) {
      const float w = c.transposed ? d.w[j * d.k + k] : d.w[k * d.n + j];
      y += double{block.x[r * block.stride + i]} * w;
    }
  }
  return Finish(c, d, y, j);
}

void Check(const Case& c, Isa isa) {
  SCOPED_TRACE(absl::StrCat(engine::Name(isa), ": ", Name(c)));
  const Data d(c);
  FcCall call = CallOf(c, d);
  const int64_t rows = c.shape.rows;
  GuardedFloats y(rows == 0 ? 0 : (rows - 1) * call.y_stride + d.n);
  for (int64_t i = 0; i < y.size(); ++i) y[i] = 12345;
  call.y = y.data();
  Fc(call, isa);
  // Each of the k additions rounds a partial sum of at most the size of a few of the terms' sizes.
  const double root = std::sqrt(static_cast<double>(d.k));
  const double bound = 6e-8 * (16 + root) * (1 + static_cast<double>(d.k) / 16);
  int wrong = 0;
  for (int64_t r = 0; r < rows && wrong < 3; ++r) {
    for (int64_t j = 0; j < d.n && wrong < 3; ++j) {
      const double want = Expected(c, d, r, j);
      const double got = y[r * call.y_stride + j];
      if (std::abs(got - want) <= bound) continue;
      ++wrong;
      ADD_FAILURE() << "y[" << r << ", " << j << "] is " << got << ", want " << want;
    }
    for (int64_t j = d.n; j < call.y_stride && r + 1 < rows; ++j) {
      ASSERT_EQ(y[r * call.y_stride + j], 12345) << "behind row " << r;
    }
  }
}

class FcTest : public ::testing::TestWithParam<Isa> {};

TEST_P(FcTest, Shapes) {
  for (const int64_t rows : {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 23, 50}) {
    for (const int64_t n :
         {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 23, 24, 25, 32, 33, 40, 41, 64, 80, 200}) {
      Check({.shape = {rows, {24}, n}}, GetParam());
      Check({.shape = {rows, {13}, n}, .init = InitKind::kRow}, GetParam());
    }
  }
}

TEST_P(FcTest, LongSums) {
  for (const int64_t rows : {1, 3, 6, 10, 50, 130}) {
    for (const int64_t n : {1, 2, 40, 200}) {
      for (const int64_t k : {306, 320, 321, 640, 1100}) {
        Check({.shape = {rows, {k}, n}, .init = InitKind::kRow, .kind = Kind::kRelu}, GetParam());
      }
    }
  }
}

TEST_P(FcTest, TallCalls) {
  Check({.shape = {2000, {36}, 80}, .kind = Kind::kSigmoid}, GetParam());
  Check({.shape = {1000, {306}, 40}, .init = InitKind::kRows}, GetParam());
  Check({.shape = {997, {80}, 1}, .kind = Kind::kSigmoid}, GetParam());
}

// Rows 1 KB or a multiple of it apart are copied first.
TEST_P(FcTest, RowsThatFallIntoTheSameCacheSets) {
  const std::vector<std::vector<int64_t>> widths = {{256},     {512},          {1024},
                                                    {256, 30}, {7, 512, 0, 9}, {1300, 256, 768}};
  for (const auto& k : widths) {
    for (const int64_t rows : {23, 24, 131, 330}) {
      for (const int64_t n : {64, 70}) {
        Check({.shape = {rows, k, n}, .init = InitKind::kRow, .kind = Kind::kRelu}, GetParam());
      }
    }
  }
  // Few columns of long rows: as many rows at once as the copy has room for.
  Check({.shape = {2000, {20, 15}, 80}, .x_stride = 256}, GetParam());
  Check({.shape = {2000, {700}, 80}, .x_stride = 1024}, GetParam());
}

TEST_P(FcTest, Blocks) {
  const std::vector<std::vector<int64_t>> widths = {
      {},           {0}, {1}, {1, 1, 1}, {18, 18, 7}, {0, 5, 0, 9}, {36, 54, 54}, {200, 732, 106},
      {319, 2, 319}};
  for (const auto& k : widths) {
    for (const int64_t rows : {1, 2, 5, 7, 40}) {
      for (const int64_t n : {1, 3, 8, 40, 50}) {
        Check({.shape = {rows, k, n}, .init = InitKind::kRow}, GetParam());
      }
    }
  }
}

// Weights that stay in no cache near the core; panels of which some are no whole one.
TEST_P(FcTest, WideLayers) {
  for (const int64_t rows : {31, 32, 67}) {
    Check({.shape = {rows, {700, 400}, 130}, .init = InitKind::kRow}, GetParam());
    Check({.shape = {rows, {1100}, 128}, .gap = 3}, GetParam());
  }
}

TEST_P(FcTest, Starts) {
  for (const InitKind init :
       {InitKind::kRow, InitKind::kRows, InitKind::kPeriod, InitKind::kRepeat}) {
    for (const int64_t n : {1, 2, 4, 13, 40}) {
      Check({.shape = {14, {33}, n}, .init = init}, GetParam());
      Check({.shape = {50, {700}, n}, .init = init, .gap = 3}, GetParam());
    }
  }
}

// Pieces of 64 rows and more, whatever cycles they cut.
TEST_P(FcTest, Pieces) {
  for (const InitKind init :
       {InitKind::kNone, InitKind::kRow, InitKind::kRows, InitKind::kPeriod, InitKind::kRepeat}) {
    for (const int64_t cycle : {1, 7, 48, 60, 250}) {
      const Case c{.shape = {500, {20, 13}, 24}, .init = init, .gap = 2, .cycle = cycle};
      const Data d(c);
      FcCall call = CallOf(c, d);
      std::vector<float> whole(500 * call.y_stride), pieces = whole;
      call.y = whole.data();
      Fc(call, GetParam());
      call.y = pieces.data();
      std::vector<FcBlock> blocks = d.blocks;
      int count = 0;
      Pace pace;
      const auto run = [&](const FcCall& piece) {
        EXPECT_LT(piece.rows, 128);
        ++count;
        Fc(piece, GetParam());
        return absl::OkStatus();
      };
      EXPECT_TRUE(InPieces(call, absl::MakeSpan(blocks), Pace::kMillisecond, pace, run).ok());
      EXPECT_GE(count, 7);
      EXPECT_EQ(pieces, whole) << Name(c) << " cycle " << cycle;
    }
  }
}

TEST_P(FcTest, Epilogues) {
  for (const Kind kind :
       {Kind::kNone, Kind::kRelu, Kind::kPrelu, Kind::kSigmoid, Kind::kTanh, Kind::kDice}) {
    for (const bool affine : {false, true}) {
      for (const int64_t n : {1, 3, 6, 16, 27, 43}) {
        for (const int64_t rows : {1, 6, 20}) {
          Check({.shape = {rows, {20}, n},
                 .init = InitKind::kRow,
                 .kind = kind,
                 .affine = affine,
                 .gap = 2},
                GetParam());
        }
      }
    }
  }
}

TEST_P(FcTest, BorrowedAndTransposedWeights) {
  for (const int64_t n : {1, 2, 4, 5, 8, 12, 16, 21, 24, 30, 40, 64}) {
    for (const int64_t rows : {1, 2, 3, 17}) {
      Check({.shape = {rows, {30, 11}, n}, .borrow = true}, GetParam());
      Check({.shape = {rows, {30, 11}, n}, .transposed = true}, GetParam());
    }
    Check({.shape = {30, {900}, n}, .borrow = true}, GetParam());
  }
}

TEST_P(FcTest, OneLeftRowForAll) {
  Check({.shape = {5, {20, 7}, 12}, .init = InitKind::kRows, .shared_row = true}, GetParam());
  Check({.shape = {5, {20, 7}, 2}, .init = InitKind::kRows, .shared_row = true}, GetParam());
}

// A row of a big call has the bits that it has alone and in any other call.
TEST_P(FcTest, BitsOfARowDependOnNothingElse) {
  for (const int64_t n : {1, 3, 8, 17, 40, 80, 200}) {
    for (const int64_t k : {36, 306, 1100}) {
      const Case c{
          .shape = {203, {k}, n}, .init = InitKind::kRow, .kind = Kind::kDice, .affine = true};
      const Data d(c);
      FcCall call = CallOf(c, d);
      std::vector<float> all(203 * n);
      call.y = all.data();
      Fc(call, GetParam());
      for (const int64_t rows : {1, 2, 3, 4, 5, 7, 10, 50}) {
        for (const int64_t first : {int64_t{0}, int64_t{101}, 203 - rows}) {
          const FcBlock block{d.blocks[0].x + first * d.blocks[0].stride, d.blocks[0].stride, k};
          std::vector<float> some(rows * n);
          FcCall part = call;
          part.blocks = absl::MakeConstSpan(&block, 1);
          part.rows = rows;
          part.y = some.data();
          Fc(part, GetParam());
          EXPECT_EQ(std::memcmp(some.data(), all.data() + first * n, some.size() * sizeof(float)),
                    0)
              << "k " << k << " n " << n << " rows " << first << "+" << rows;
        }
      }
    }
  }
}

TEST_P(FcTest, NaNsAndInfinitiesStayInTheirRow) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const int64_t n : {1, 4, 20, 40}) {
    Case c{.shape = {9, {21}, n}, .init = InitKind::kRow, .kind = Kind::kSigmoid};
    Data d(c);
    (*d.x[0])[4 * d.blocks[0].stride + 20] = std::nanf("");
    (*d.x[0])[6 * d.blocks[0].stride] = inf;
    FcCall call = CallOf(c, d);
    std::vector<float> y(9 * n);
    call.y = y.data();
    Fc(call, GetParam());
    for (int64_t r = 0; r < 9; ++r) {
      for (int64_t j = 0; j < n; ++j) {
        const float got = y[r * n + j];
        if (r == 4) {
          EXPECT_TRUE(std::isnan(got));
        } else if (r == 6) {
          EXPECT_EQ(got, d.w[j] > 0 ? 1.0f : 0.0f);
        } else {
          EXPECT_NEAR(got, Expected(c, d, r, j), 1e-5);
        }
      }
    }
  }
}

TEST(PackedMatrix, TellsWhatItHolds) {
  const std::vector<float> w(40 * 50, 1.0f);
  EXPECT_EQ(PackedMatrix().bytes(), 0);
  // Columns are padded to 8.
  EXPECT_EQ(PackedMatrix::Pack(w.data(), 50, 40, 40, 1).bytes(), 50 * 40 * 4);
  EXPECT_EQ(PackedMatrix::Pack(w.data(), 50, 33, 40, 1).bytes(), 50 * 40 * 4);
  EXPECT_EQ(PackedMatrix::Pack(w.data(), 50, 3, 40, 1).bytes(), 50 * 3 * 4);
  EXPECT_EQ(PackedMatrix::Borrow(w.data(), 50, 40, 40).bytes(), 0);
  EXPECT_EQ(PackedMatrix::Borrow(w.data(), 50, 1, 1).bytes(), 0);
  EXPECT_EQ(PackedMatrix::Borrow(w.data(), 50, 2, 40).bytes(), 50 * 2 * 4);
}

INSTANTIATE_TEST_SUITE_P(Isas, FcTest, ::testing::ValuesIn(SupportedIsas()),
                         [](const auto& info) { return std::string(engine::Name(info.param)); });

}  // namespace
}  // namespace ulfd::engine

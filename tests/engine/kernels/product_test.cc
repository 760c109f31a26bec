// Products by each backend against Fc.
// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/product.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/kernels/fc.h"
#include "engine/tensor/onednn.h"
#include "gtest/gtest.h"
#include "tests/testing/float_arrays.h"

namespace ulfd::engine {
namespace {

using testing::GuardedFloats;

struct alignas(64) Line {
  char bytes[64];
};

// How the sums start.
enum class Init { kNone, kRow, kRows, kPeriod, kRepeat, kInPlace };

class ProductTest : public ::testing::TestWithParam<Backend> {
 protected:
  void SetUp() override { UseOneThread(); }

  // Columns of two tensors, which meet rows of the matrix out of order if `shuffled`.
  void Check(int64_t rows, int64_t k1, int64_t k2, int64_t n, bool shuffled, Init init,
             Activation::Kind kind) {
    SCOPED_TRACE(absl::StrCat(rows, " rows, ", k1, " + ", k2, " x ", n, ", init ",
                              static_cast<int>(init), ", kind ", static_cast<int>(kind)));
    const int64_t k = k1 + k2;
    const GuardedFloats w(k * n, 1), x1(rows * k1, 2), x2(k2, 3),
        start(std::max(rows, int64_t{3}) * n, 4);
    const auto matrix =
        std::make_shared<const PackedMatrix>(PackedMatrix::Pack(w.data(), k, n, n, 1));
    std::vector<FcBlock> blocks = {{x1.data(), k1, k1, shuffled ? k2 : FcBlock::kNext}};
    std::vector<Product::Rows> parts = {{k1, blocks[0].w_row}};
    if (k2 > 0) {
      blocks.push_back({x2.data(), 0, k2, shuffled ? 0 : FcBlock::kNext});
      parts.push_back({k2, blocks[1].w_row});
    }
    std::vector<float> want(rows * n), got(rows * n);
    FcCall call{.blocks = blocks, .rows = rows, .w = matrix->view(), .y_stride = n};
    if (init != Init::kNone) call.init = start.data();
    if (init != Init::kNone && init != Init::kRow) call.init_stride = n;
    if (init == Init::kPeriod) call.init_period = 3;
    if (init == Init::kRepeat) call.init_repeat = 3;
    call.epilogue.activation.kind = kind;
    if (init == Init::kInPlace) {
      std::copy_n(start.data(), rows * n, want.data());
      got = want;
      call.init = want.data();
    }
    call.y = want.data();
    Fc(call);

    Product product(matrix, parts);
    ASSERT_TRUE(product.Choose(GetParam(), rows).ok());
    EXPECT_EQ(product.backend(), GetParam());
    std::vector<Line> scratch(product.ScratchBytes(rows) / sizeof(Line) + 1);
    call.y = got.data();
    if (init == Init::kInPlace) call.init = got.data();
    ASSERT_TRUE(product.Run(call, scratch.data()).ok());
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(got[i], want[i], 4e-6 * std::sqrt(static_cast<double>(k)));
    }
  }
};

TEST_P(ProductTest, Shapes) {
  for (const int64_t rows : {1, 2, 5, 21, 64, 300}) {
    for (const auto& [k, n] : {std::pair<int64_t, int64_t>{1, 1}, {7, 3}, {36, 80}, {130, 41}}) {
      Check(rows, k, 0, n, false, Init::kRow, Activation::Kind::kNone);
      Check(rows, k, 9, n, false, Init::kNone, Activation::Kind::kRelu);
      Check(rows, k, 9, n, true, Init::kRow, Activation::Kind::kSigmoid);
    }
  }
}

TEST_P(ProductTest, StartsOfTheSums) {
  for (const Init init :
       {Init::kNone, Init::kRow, Init::kRows, Init::kPeriod, Init::kRepeat, Init::kInPlace}) {
    for (const int64_t k2 : {0, 5}) Check(21, 12, k2, 20, false, init, Activation::Kind::kTanh);
  }
}

TEST_P(ProductTest, NaNsSurviveActivations) {
  const int64_t k = 8, n = 5;
  const std::vector<float> w(k * n, 1.0f);
  std::vector<float> x(k, 1.0f), y(n);
  x[3] = std::nanf("");
  Product product(std::make_shared<const PackedMatrix>(PackedMatrix::Pack(w.data(), k, n, n, 1)));
  ASSERT_TRUE(product.Choose(GetParam(), 1).ok());
  std::vector<Line> scratch(product.ScratchBytes(1) / sizeof(Line) + 1);
  const FcBlock block{x.data(), k, k};
  for (const auto kind : {Activation::Kind::kRelu, Activation::Kind::kSigmoid}) {
    FcCall call{.blocks = absl::MakeConstSpan(&block, 1), .rows = 1, .y = y.data(), .y_stride = n};
    call.epilogue.activation.kind = kind;
    ASSERT_TRUE(product.Run(call, scratch.data()).ok());
    for (const float v : y) EXPECT_TRUE(std::isnan(v));
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, ProductTest,
                         ::testing::Values(Backend::kNative, Backend::kOneDnn),
                         [](const auto& info) { return std::string(Name(info.param)); });

// Whatever is chosen, a row's bits do not depend on how many rows there are.
TEST(ProductAuto, RowsDoNotDependOnEachOther) {
  UseOneThread();
  const int64_t k = 520, n = 260, rows = 70;
  const GuardedFloats w(k * n, 1), x(rows * k, 2);
  Product product(std::make_shared<const PackedMatrix>(PackedMatrix::Pack(w.data(), k, n, n, 1)));
  ASSERT_TRUE(product.Choose(Backend::kAuto, 64).ok());
  std::vector<Line> scratch(product.ScratchBytes(rows) / sizeof(Line) + 1);
  std::vector<float> all(rows * n), one(n);
  const auto run = [&](int64_t row, int64_t count, float* y) {
    const FcBlock block{x.data() + row * k, k, k};
    return product.Run(
        {.blocks = absl::MakeConstSpan(&block, 1), .rows = count, .y = y, .y_stride = n},
        scratch.data());
  };
  ASSERT_TRUE(run(0, rows, all.data()).ok());
  for (int64_t r = 0; r < rows; ++r) {
    ASSERT_TRUE(run(r, 1, one.data()).ok());
    EXPECT_TRUE(std::equal(one.begin(), one.end(), all.begin() + r * n)) << r;
  }
}

TEST(BackendNames, AreParsed) {
  for (const Backend backend : {Backend::kNative, Backend::kOneDnn, Backend::kAuto}) {
    EXPECT_EQ(*ParseBackend(Name(backend)), backend);
  }
  EXPECT_EQ(*ParseBackend("ONEDNN"), Backend::kOneDnn);
  EXPECT_EQ(ParseBackend("mkl").status().message(), "backend \"mkl\", want auto, onednn or native");
}

}  // namespace
}  // namespace ulfd::engine

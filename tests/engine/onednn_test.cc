// oneDNN as the engine uses it: GEMM against a naive loop, elementwise functions against double,
// and the thread settings with which OpenMP would leave output unwritten.
// SPDX-License-Identifier: Apache-2.0
// SPDX-License-Identifier: Apache-2.0
// SPDX-License-Identifier: Apache-2.0
// Apache-2.0
#include "engine/tensor/onednn.h"

#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace ulfd::engine {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Problem {
  bool transpose_a, transpose_b;
  int64_t m, n, k;
  int64_t padding;  // Of every row.
  bool accumulate;
};

// Runs the problem and a naive loop; padding must stay as it was.
void CheckGemm(const Problem& p) {
  SCOPED_TRACE(::testing::Message()
               << p.transpose_a << p.transpose_b << " " << p.m << "x" << p.n << "x" << p.k
               << " padding " << p.padding << " accumulate " << p.accumulate);
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  const int64_t a_rows = p.transpose_a ? p.k : p.m, a_columns = p.transpose_a ? p.m : p.k;
  const int64_t b_rows = p.transpose_b ? p.n : p.k, b_columns = p.transpose_b ? p.k : p.n;
  const int64_t lda = std::max<int64_t>(1, a_columns + p.padding);
  const int64_t ldb = std::max<int64_t>(1, b_columns + p.padding);
  const int64_t ldc = std::max<int64_t>(1, p.n + p.padding);
  std::vector<float> a(a_rows * lda), b(b_rows * ldb), c(p.m * ldc, 0.5f);
  for (float& v : a) v = normal(random);
  for (float& v : b) v = normal(random);
  const std::vector<float> before = c;
  const absl::Status status = Gemm(p.transpose_a, p.transpose_b, p.m, p.n, p.k, a.data(), lda,
                                   b.data(), ldb, p.accumulate, c.data(), ldc);
  ASSERT_TRUE(status.ok()) << status;
  for (int64_t i = 0; i < p.m; ++i) {
    for (int64_t j = 0; j < ldc; ++j) {
      if (j >= p.n) {
        ASSERT_EQ(c[i * ldc + j], before[i * ldc + j]);
        continue;
      }
      double want = p.accumulate ? before[i * ldc + j] : 0.0;
      for (int64_t l = 0; l < p.k; ++l) {
        want += double{p.transpose_a ? a[l * lda + i] : a[i * lda + l]} *
                double{p.transpose_b ? b[j * ldb + l] : b[l * ldb + j]};
      }
      ASSERT_NEAR(c[i * ldc + j], want, 1e-5 * (1 + std::sqrt(p.k))) << i << ", " << j;
    }
  }
}

TEST(Gemm, AgreesWithANaiveLoop) {
  UseOneThread();
  for (const bool transpose_a : {false, true}) {
    for (const bool transpose_b : {false, true}) {
      for (const bool accumulate : {false, true}) {
        for (const int64_t padding : {0, 3}) {
          for (const int64_t m : {0, 1, 7, 64}) {
            for (const int64_t n : {0, 1, 2, 33}) {
              for (const int64_t k : {0, 1, 5, 144}) {
                CheckGemm({transpose_a, transpose_b, m, n, k, padding, accumulate});
              }
            }
          }
        }
      }
    }
  }
}

TEST(Gemm, RefusesAStrideThatIsTooSmall) {
  UseOneThread();
  float a[4] = {}, b[4] = {}, c[4] = {};
  EXPECT_EQ(Gemm(false, false, 2, 2, 2, a, 1, b, 2, false, c, 2).code(),
            absl::StatusCode::kInternal);
}

double Exact(Eltwise::Function function, double x) {
  switch (function) {
    case Eltwise::Function::kSigmoid:
      return 1 / (1 + std::exp(-x));
    case Eltwise::Function::kTanh:
      return std::tanh(x);
    case Eltwise::Function::kExp:
      break;
  }
  return std::exp(x);
}

class EltwiseTest : public ::testing::TestWithParam<Eltwise::Function> {
 protected:
  void SetUp() override {
    UseOneThread();
    auto function = Eltwise::Create(GetParam());
    ASSERT_TRUE(function.ok()) << function.status();
    function_ = *std::move(function);
  }
  std::unique_ptr<const Eltwise> function_;
};

// Every length around the sizes that the primitives have, at any address, nothing written beyond.
TEST_P(EltwiseTest, AgreesWithDoubleForEveryLength) {
  for (const int64_t n :
       {0, 1, 127, 128, 129, 511, 512, 640, 1023, 1024, 1151, 1536, 8192, 8193, 19999}) {
    for (const int offset : {0, 1}) {
      std::vector<float> x(n + offset), y(n + offset + 1, 7.0f);
      for (int64_t i = 0; i < n; ++i) {
        x[i + offset] = -30.0f + 60.0f * static_cast<float>(i) / static_cast<float>(n);
      }
      const absl::Status status = function_->Run(x.data() + offset, y.data() + offset, n);
      ASSERT_TRUE(status.ok()) << status;
      for (int64_t i = 0; i < n; ++i) {
        const double want = Exact(GetParam(), x[i + offset]);
        ASSERT_NEAR(y[i + offset], want, 1e-6 * std::max(1.0, want)) << x[i + offset];
      }
      ASSERT_EQ(y[n + offset], 7.0f) << "written beyond " << n;
    }
  }
}

TEST_P(EltwiseTest, HandlesTheEndsOfTheRange) {
  const std::vector<float> x = {kNan, kInfinity, -kInfinity, 1e4f, -1e4f, 3e38f, -3e38f, 0.0f};
  for (const size_t copies : {1, 30}) {  // Through the buffer for what is left over, and directly.
    std::vector<float> in, y(x.size() * copies);
    for (size_t i = 0; i < copies; ++i) in.insert(in.end(), x.begin(), x.end());
    ASSERT_TRUE(function_->Run(in.data(), y.data(), static_cast<int64_t>(in.size())).ok());
    for (size_t i = 0; i < in.size(); ++i) {
      const double want = Exact(GetParam(), in[i]);
      if (std::isnan(want)) {
        EXPECT_TRUE(std::isnan(y[i])) << in[i];
      } else if (GetParam() == Eltwise::Function::kExp && want > 3e38) {
        EXPECT_EQ(y[i], kInfinity) << in[i];
      } else {
        EXPECT_NEAR(y[i], want, 1e-6) << in[i];
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Functions, EltwiseTest,
                         ::testing::Values(Eltwise::Function::kSigmoid, Eltwise::Function::kTanh,
                                           Eltwise::Function::kExp));

TEST(Eltwise, SigmoidAndTanhWorkInPlace) {
  UseOneThread();
  for (const auto function : {Eltwise::Function::kSigmoid, Eltwise::Function::kTanh}) {
    auto made = Eltwise::Create(function);
    ASSERT_TRUE(made.ok()) << made.status();
    std::vector<float> y(1300, 0.3f);
    ASSERT_TRUE((*made)->Run(y.data(), y.data(), 1300).ok());
    for (float v : y) ASSERT_NEAR(v, Exact(function, 0.3f), 1e-6);
  }
}

// With OMP_THREAD_LIMIT or OMP_DYNAMIC set and more than one thread asked for, libgomp hands out
// fewer threads than oneDNN has cut the work for, and half of the output stays unwritten.  CTest
// runs this binary a second and third time with those set (see CMakeLists.txt).
TEST(Threads, OneThreadWritesEverything) {
  constexpr int64_t kM = 200, kN = 256, kK = 64;
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, -1);
  for (size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&wrong, t] {
      UseOneThread();
      EXPECT_TRUE(UsesOneThread());
      std::vector<float> a(kM * kK, 1.0f), b(kK * kN, 1.0f);
      int bad = 0;
      for (int round = 0; round < 5; ++round) {
        std::vector<float> c(kM * kN, kNan);
        EXPECT_TRUE(
            Gemm(false, false, kM, kN, kK, a.data(), kK, b.data(), kN, false, c.data(), kN).ok());
        for (float v : c) bad += v != static_cast<float>(kK);
      }
      wrong[t] = bad;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int bad : wrong) EXPECT_EQ(bad, 0);
}

TEST(Threads, UsesOneThreadTellsWhetherItTookEffect) {
  if (std::getenv("ULFD_MANY_OMP_THREADS") == nullptr) {
    GTEST_SKIP() << "needs OMP_NUM_THREADS=4 from the start: CTest's onednn_test_many_threads";
  }
  std::thread([] {
    EXPECT_FALSE(UsesOneThread());
    UseOneThread();
    EXPECT_TRUE(UsesOneThread());
  }).join();
}

}  // namespace
}  // namespace ulfd::engine

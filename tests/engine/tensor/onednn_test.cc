// oneDNN as the engine uses it: elementwise functions against double, and the thread settings with
// which OpenMP would leave output unwritten.  (Convolution's values: convolution_test.cc.)
// SPDX-License-Identifier: Apache-2.0
#include "engine/tensor/onednn.h"

#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include "engine/tensor/onednn_convolution.h"
#include "gtest/gtest.h"

namespace ulfd::engine {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

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
// fewer threads than oneDNN has cut the work for, and the output of a 1x1 convolution, which is a
// product of matrices, stays unwritten.  CTest runs this binary a second and third time with those
// set (see CMakeLists.txt).
TEST(Threads, OneThreadWritesEverything) {
  constexpr int64_t kRows = 5, kIn = 16, kOut = 32, kSize = 20;
  const ConvolutionGeometry geometry{.in_channels = kIn, .out_channels = kOut};
  const std::vector<float> weights(kOut * kIn, 1.0f);
  auto convolution = Convolution::Create(geometry, weights, {}, kSize, kSize);
  ASSERT_TRUE(convolution.ok()) << convolution.status();
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, -1);
  for (size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&wrong, &convolution, t] {
      UseOneThread();
      EXPECT_TRUE(UsesOneThread());
      const std::vector<float> x(kRows * kIn * kSize * kSize, 1.0f);
      const size_t bytes = (*convolution)->ScratchBytes(kRows, kSize, kSize) / 64 * 64 + 64;
      const std::unique_ptr<void, decltype(&std::free)> scratch(std::aligned_alloc(64, bytes),
                                                                &std::free);
      int bad = 0;
      for (int round = 0; round < 5; ++round) {
        std::vector<float> y(kRows * kOut * kSize * kSize, kNan);
        EXPECT_TRUE(
            (*convolution)->Run(x.data(), kRows, kSize, kSize, y.data(), scratch.get()).ok());
        for (float v : y) bad += v != static_cast<float>(kIn);
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

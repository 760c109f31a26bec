// oneDNN under thread settings with which OpenMP would leave output unwritten.  (Convolution's
// values: convolution_test.cc.)
// SPDX-License-Identifier: Apache-2.0
#include "engine/tensor/onednn.h"

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
        Pace pace;
        EXPECT_TRUE(
            (*convolution)->Run(x.data(), kRows, kSize, kSize, y.data(), scratch.get(), pace).ok());
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

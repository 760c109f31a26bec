// Copies by strides against the definition, for runs of every length that has a way of its own.
// SPDX-License-Identifier: Apache-2.0
#include "engine/layers/common/strided_copy.h"

#include <cstdint>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"

namespace ulfd::engine {
namespace {

// `copy` has three axes.
template <class T>
void ExpectCopied(DType dtype, const StridedCopy& copy) {
  std::vector<T> x(20000), wanted;
  std::iota(x.begin(), x.end(), T{1});
  const StridedCopy::Axis outer = copy.axes[0], runs = copy.axes[1], inner = copy.axes[2];
  for (int64_t i = 0; i < outer.count; ++i) {
    for (int64_t j = 0; j < runs.count; ++j) {
      for (int64_t k = 0; k < inner.count; ++k) {
        wanted.push_back(x[copy.start + i * outer.step + j * runs.step + k * inner.step]);
      }
    }
  }
  // One more element, which stays.
  std::vector<T> found(wanted.size() + 1, T{-7});
  const Tensor from{dtype, {static_cast<int64_t>(x.size())}, x.data()};
  Tensor to{dtype, {static_cast<int64_t>(wanted.size())}, found.data()};
  copy.Run(from, to);
  wanted.push_back(T{-7});
  EXPECT_EQ(found, wanted) << runs.count << " runs of " << inner.count << ", step " << inner.step;
}

TEST(StridedCopyTest, CopiesRunsOfAnyLength) {
  for (const int64_t length : {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 40}) {
    for (const int64_t runs : {1, 2, 5}) {
      for (const int64_t step : {1, -1, 0, 2, 3}) {
        StridedCopy copy;
        copy.start = 200;
        copy.Add(3, 1000);
        copy.Add(runs, 131);
        copy.Add(length, step);
        ExpectCopied<float>(DType::kFloat32, copy);
        ExpectCopied<int32_t>(DType::kInt32, copy);
        ExpectCopied<int64_t>(DType::kInt64, copy);
      }
    }
  }
}

TEST(StridedCopyTest, TransposesMatrices) {
  StridedCopy copy;
  copy.Add(3, 600);
  copy.Add(13, 1);
  copy.Add(37, 13);
  ExpectCopied<float>(DType::kFloat32, copy);
  ExpectCopied<int64_t>(DType::kInt64, copy);
}

}  // namespace
}  // namespace ulfd::engine

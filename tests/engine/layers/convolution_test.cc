// The convolution against a reference that can be read: im2col and a product of matrices.
// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/layers/common/small_convolution.h"
#include "engine/tensor/onednn.h"
#include "engine/tensor/onednn_convolution.h"
#include "gtest/gtest.h"
#include "oneapi/dnnl/dnnl.h"

namespace ulfd::engine {
namespace {

using Geometry = ConvolutionGeometry;

struct Problem {
  Geometry geometry;
  int64_t rows = 1, height = 1, width = 1;
  std::vector<float> x, weights, bias;
};

std::vector<float> Random(int64_t n, std::mt19937& random) {
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& v : values) v = uniform(random);
  return values;
}

Problem MakeProblem(const Geometry& g, int64_t rows, int64_t height, int64_t width, unsigned seed) {
  std::mt19937 random(seed);
  Problem p{g, rows, height, width, {}, {}, {}};
  p.x = Random(rows * g.in_channels * height * width, random);
  p.weights =
      Random(g.out_channels * (g.in_channels / g.groups) * g.kernel[0] * g.kernel[1], random);
  p.bias = Random(g.out_channels, random);
  return p;
}

// One group of one image as a matrix [channels * kernel places, output places]: what each weight is
// multiplied with at each place of the output.
std::vector<double> Im2Col(const Problem& p, int64_t row, int64_t group) {
  const Geometry& g = p.geometry;
  const int64_t channels = g.in_channels / g.groups;
  const int64_t out_h = g.OutputSize(0, p.height), out_w = g.OutputSize(1, p.width);
  std::vector<double> matrix;
  for (int64_t c = group * channels; c < (group + 1) * channels; ++c) {
    for (int64_t u = 0; u < g.kernel[0]; ++u) {
      for (int64_t v = 0; v < g.kernel[1]; ++v) {
        for (int64_t i = 0; i < out_h; ++i) {
          for (int64_t j = 0; j < out_w; ++j) {
            const int64_t y = i * g.stride[0] + u * g.dilation[0] - g.pad[0];
            const int64_t x = j * g.stride[1] + v * g.dilation[1] - g.pad[1];
            const bool inside = y >= 0 && y < p.height && x >= 0 && x < p.width;
            matrix.push_back(inside ? p.x[((row * g.in_channels + c) * p.height + y) * p.width + x]
                                    : 0.0);
          }
        }
      }
    }
  }
  return matrix;
}

std::vector<double> Reference(const Problem& p) {
  const Geometry& g = p.geometry;
  const int64_t places = g.OutputSize(0, p.height) * g.OutputSize(1, p.width);
  const int64_t taps = g.in_channels / g.groups * g.kernel[0] * g.kernel[1];
  const int64_t outputs = g.out_channels / g.groups;
  std::vector<double> y;
  for (int64_t row = 0; row < p.rows; ++row) {
    for (int64_t group = 0; group < g.groups; ++group) {
      const std::vector<double> columns = Im2Col(p, row, group);
      for (int64_t o = group * outputs; o < (group + 1) * outputs; ++o) {
        for (int64_t place = 0; place < places; ++place) {
          double sum = p.bias.empty() ? 0 : p.bias[o];
          for (int64_t t = 0; t < taps; ++t) {
            sum += double{p.weights[o * taps + t]} * columns[t * places + place];
          }
          y.push_back(sum);
        }
      }
    }
  }
  return y;
}

struct Scratch {
  explicit Scratch(size_t bytes) : data(std::aligned_alloc(64, (bytes / 64 + 1) * 64)) {}
  ~Scratch() { std::free(data); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  void* data;
};

void ExpectNear(const std::vector<float>& found, const std::vector<double>& wanted) {
  for (size_t i = 0; i < wanted.size(); ++i) {
    ASSERT_NEAR(found[i], wanted[i], 1e-5 * std::max(1.0, std::abs(wanted[i]))) << "element " << i;
  }
}

// false: it is not for such images.
bool RunSmall(const Problem& p) {
  const SmallConvolution small(p.geometry, p.weights, p.bias);
  if (!small.Suits(p.height, p.width)) return false;
  const std::vector<double> wanted = Reference(p);
  std::vector<float> found(wanted.size(), NAN);
  const size_t bytes = small.ScratchBytes(p.height, p.width);
  const Scratch scratch(bytes);
  std::memset(scratch.data, 0xff, bytes);  // NaN.
  Pace pace;
  small.Run(p.x.data(), p.rows, p.height, p.width, found.data(), scratch.data, pace);
  ExpectNear(found, wanted);
  return true;
}

void ExpectRight(const Convolution& convolution, const Problem& p) {
  UseOneThread();
  const std::vector<double> wanted = Reference(p);
  std::vector<float> found(wanted.size(), NAN);
  const Scratch scratch(convolution.ScratchBytes(p.rows, p.height, p.width));
  Pace pace;
  const absl::Status status =
      convolution.Run(p.x.data(), p.rows, p.height, p.width, found.data(), scratch.data, pace);
  ASSERT_TRUE(status.ok()) << status;
  ExpectNear(found, wanted);
}

std::unique_ptr<const Convolution> Make(const Problem& p, int64_t height, int64_t width) {
  auto made = Convolution::Create(p.geometry, p.weights, p.bias, height, width);
  EXPECT_TRUE(made.ok()) << made.status();
  return made.ok() ? *std::move(made) : nullptr;
}

TEST(ConvolutionTest, AgreesWithIm2ColOnRandomGeometries) {
  std::mt19937 random(3);
  const auto pick = [&random](int64_t from, int64_t to) {
    return std::uniform_int_distribution<int64_t>(from, to)(random);
  };
  for (unsigned trial = 0; trial < 120; ++trial) {
    Geometry g;
    g.groups = pick(1, 3);
    g.in_channels = g.groups * pick(1, 9);
    g.out_channels = g.groups * pick(1, 9);
    for (int axis = 0; axis < 2; ++axis) {
      g.kernel[axis] = pick(1, 4);
      g.stride[axis] = pick(1, 3);
      g.dilation[axis] = pick(1, 2);
    }
    for (int64_t& side : g.pad) side = pick(0, 2);
    const int64_t height = pick(1, 9), width = pick(1, 9), rows = pick(1, 6);
    if (g.OutputSize(0, height) < 1 || g.OutputSize(1, width) < 1) continue;
    SCOPED_TRACE(absl::StrCat("trial ", trial));
    Problem p = MakeProblem(g, rows, height, width, trial);
    if (trial % 3 == 0) p.bias.clear();
    const auto convolution = Make(p, trial % 2 == 0 ? height : 0, trial % 2 == 0 ? width : 0);
    ASSERT_NE(convolution, nullptr);
    ExpectRight(*convolution, p);
  }
}

TEST(ConvolutionTest, SmallImagesAgreeWithIm2ColOnRandomGeometries) {
  std::mt19937 random(4);
  const auto pick = [&random](int64_t from, int64_t to) {
    return std::uniform_int_distribution<int64_t>(from, to)(random);
  };
  int small = 0, small_groups = 0;
  for (unsigned trial = 0; trial < 400; ++trial) {
    Geometry g;
    g.groups = trial % 2 == 0 ? 1 : pick(2, 5);
    g.in_channels = g.groups * (trial % 4 == 1 ? 1 : pick(1, 4));
    g.out_channels = g.groups * (trial % 4 == 1 ? 1 : pick(1, 11));
    for (int axis = 0; axis < 2; ++axis) {
      g.kernel[axis] = pick(1, 3);
      g.stride[axis] = pick(1, 3);
      g.dilation[axis] = pick(1, 2);
    }
    for (int64_t& side : g.pad) side = pick(0, 3);
    const int64_t height = pick(1, 9), width = pick(1, 40);
    if (g.OutputSize(0, height) < 1 || g.OutputSize(1, width) < 1) continue;
    SCOPED_TRACE(absl::StrCat("trial ", trial));
    Problem p = MakeProblem(g, pick(1, 3), height, width, trial);
    if (trial % 3 == 0) p.bias.clear();
    const bool suits = RunSmall(p);
    small += suits ? 1 : 0;
    small_groups += suits && g.groups > 1 ? 1 : 0;
  }
  EXPECT_GT(small, 300);
  EXPECT_GT(small_groups, 150);
}

int64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  int64_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

// Every number of rows is put together from the same few primitives.
TEST(ConvolutionTest, AnyNumberOfRows) {
  Geometry g{.in_channels = 8, .out_channels = 16};
  g.kernel = {3, 3};
  g.pad = {1, 1, 1, 1};
  const Problem largest = MakeProblem(g, 40, 6, 5, 1);
  const auto convolution = Make(largest, 6, 5);
  ASSERT_NE(convolution, nullptr);
  const int64_t held = convolution->bytes();
  for (int64_t rows : {1, 2, 3, 4, 5, 15, 16, 17, 21, 40}) {
    SCOPED_TRACE(rows);
    Problem p = largest;
    p.rows = rows;
    ExpectRight(*convolution, p);
  }
  EXPECT_EQ(convolution->bytes(), held);
}

// One value, as the definition says.
double ValueAt(const Problem& p, int64_t row, int64_t out, int64_t i, int64_t j) {
  const Geometry& g = p.geometry;
  const int64_t channels = g.in_channels / g.groups;
  const int64_t first = out / (g.out_channels / g.groups) * channels;
  double sum = p.bias[out];
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t u = 0; u < g.kernel[0]; ++u) {
      for (int64_t v = 0; v < g.kernel[1]; ++v) {
        const int64_t y = i * g.stride[0] + u * g.dilation[0] - g.pad[0];
        const int64_t x = j * g.stride[1] + v * g.dilation[1] - g.pad[1];
        if (y < 0 || y >= p.height || x < 0 || x >= p.width) continue;
        sum += double{p.x[((row * g.in_channels + first + c) * p.height + y) * p.width + x]} *
               p.weights[((out * channels + c) * g.kernel[0] + u) * g.kernel[1] + v];
      }
    }
  }
  return sum;
}

// Of images that take long: every 101st value.
void ExpectRightTiles(const Problem& p) {
  UseOneThread();
  const std::unique_ptr<const Convolution> convolution = Make(p, p.height, p.width);
  ASSERT_NE(convolution, nullptr);
  const Geometry& g = p.geometry;
  const int64_t out_h = g.OutputSize(0, p.height), out_w = g.OutputSize(1, p.width);
  std::vector<float> y(p.rows * g.out_channels * out_h * out_w, NAN);
  const Scratch scratch(convolution->ScratchBytes(p.rows, p.height, p.width));
  int looks = 0;
  const std::function<bool()> stop = [&looks] { return ++looks < 0; };
  Pace pace(&stop);
  ASSERT_TRUE(
      convolution->Run(p.x.data(), p.rows, p.height, p.width, y.data(), scratch.data, pace).ok());
  EXPECT_GE(looks, 2 * p.rows);
  EXPECT_TRUE(std::none_of(y.begin(), y.end(), [](float v) { return std::isnan(v); }));
  for (int64_t at = 0; at < static_cast<int64_t>(y.size()); at += 101) {
    const int64_t plane = at / (out_h * out_w);
    const double wanted =
        ValueAt(p, plane / g.out_channels, plane % g.out_channels, at / out_w % out_h, at % out_w);
    ASSERT_NEAR(y[at], wanted, 1e-5 * std::max(1.0, std::abs(wanted))) << "element " << at;
  }
}

TEST(ConvolutionTest, Tiles) {
  Geometry g{.in_channels = 16, .out_channels = 64, .groups = 2};
  g.kernel = {9, 5};
  g.stride = {2, 1};
  g.dilation = {1, 3};
  g.pad = {3, 2, 8, 1};
  Problem p = MakeProblem(g, 2, 400, 500, 1);
  for (float& x : p.x) x *= 0.1f;  // Sums of many products.
  ExpectRightTiles(p);
  // A row of them takes several tiles.
  g = {.in_channels = 1, .out_channels = 80};
  g.kernel = {2, 1500};
  g.pad = {0, 700, 1, 0};
  p = MakeProblem(g, 1, 2, 7000, 2);
  for (float& x : p.x) x *= 0.1f;
  ExpectRightTiles(p);
}

// With oneDNN's own choice, 1024, what requests with ever new sizes made would stay.
TEST(ConvolutionTest, OneDnnKeepsFewPrimitives) {
  const Problem p = MakeProblem({}, 1, 3, 3, 1);
  ASSERT_NE(Make(p, 3, 3), nullptr);
  int kept = 0;
  ASSERT_EQ(dnnl_get_primitive_cache_capacity(&kept), dnnl_success);
  EXPECT_LE(kept, 64);
}

// oneDNN writes code for each column of the output, which nobody charges for.
TEST(ConvolutionTest, WideImagesTakeLittleMemory) {
  const int64_t before = ResidentBytes();
  for (const int64_t stride : {1, 2}) {
    Geometry g{.in_channels = 1, .out_channels = 4};
    g.kernel = {1, 3};
    g.stride = {1, stride};
    const Problem p = MakeProblem(g, 1, 1, 3, 1);
    ASSERT_NE(Make(p, 1, int64_t{1} << 20), nullptr);
  }
  EXPECT_LT(ResidentBytes() - before, int64_t{256} << 20);
  Geometry g{.in_channels = 2, .out_channels = 3};
  g.kernel = {2, 3};
  g.stride = {1, 2};
  g.pad = {1, 1, 0, 1};
  const Problem p = MakeProblem(g, 3, 4, 2500, 1);
  const auto convolution = Make(p, p.height, p.width);
  ASSERT_NE(convolution, nullptr);
  ExpectRight(*convolution, p);
}

// A model is loaded by a thread that may use several OpenMP threads, and run by others that may
// not.
TEST(ConvolutionTest, MadeWithManyThreadsRunsWithOne) {
  Geometry g{.in_channels = 16, .out_channels = 32};
  g.kernel = {3, 3};
  const Problem p = MakeProblem(g, 5, 9, 9, 1);
  std::unique_ptr<const Convolution> convolution;
  std::thread([&] {
    const bool one = UsesOneThread();  // Not on a machine of several cores.
    convolution = Make(p, 9, 9);
    EXPECT_EQ(UsesOneThread(), one);
  }).join();
  ASSERT_NE(convolution, nullptr);
  ExpectRight(*convolution, p);
}

// More sizes of images than are kept, from several threads at once, in an order that evicts.
TEST(ConvolutionTest, ManySizesFromManyThreads) {
  Geometry g{.in_channels = 8, .out_channels = 8, .groups = 2};
  g.kernel = {3, 2};
  const Problem weights = MakeProblem(g, 1, 3, 3, 1);
  const auto convolution = Make(weights, 4, 4);
  ASSERT_NE(convolution, nullptr);
  const auto work = [&](int64_t first) {
    for (int64_t i = 0; i < 3 * Convolution::kMaxSizes; ++i) {
      const int64_t size = 3 + (first + i) % (2 * Convolution::kMaxSizes);
      Problem p = MakeProblem(g, 2, size, 20 - size, static_cast<unsigned>(size));
      p.weights = weights.weights;
      p.bias = weights.bias;
      ExpectRight(*convolution, p);
    }
  };
  std::thread a(work, 0), b(work, 3), c(work, 0);
  a.join();
  b.join();
  c.join();
  // One layout of the weights per primitive that is kept, at most (three numbers of rows each).
  const int64_t padded = 2 * 8 * 8 * 6 * static_cast<int64_t>(sizeof(float));
  EXPECT_LE(convolution->bytes(), 3 * Convolution::kMaxSizes * padded);
}

}  // namespace
}  // namespace ulfd::engine

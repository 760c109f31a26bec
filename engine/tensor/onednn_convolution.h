// 2-d convolution on oneDNN; part of the one place that talks to it (see onednn.h).
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_TENSOR_ONEDNN_CONVOLUTION_H_
#define ULFD_ENGINE_TENSOR_ONEDNN_CONVOLUTION_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/tensor/pace.h"

namespace ulfd::engine {

// What is convolved; pairs are (height, width), pad is (top, left, bottom, right).
struct ConvolutionGeometry {
  int64_t in_channels = 1, out_channels = 1;
  int64_t groups = 1;  // Divides both.
  std::array<int64_t, 2> kernel{1, 1}, stride{1, 1}, dilation{1, 1};
  std::array<int64_t, 4> pad{};

  // The size of the output for an input of that size along `axis` (0 height, 1 width); 0 or less:
  // no window fits.
  int64_t OutputSize(int axis, int64_t input) const;
  // The smallest input for an output of that size.
  int64_t InputSize(int axis, int64_t output) const;
};

// Convolution of images [rows, in_channels, h, w] with one set of weights.  Primitives are made per
// image size for a few numbers of rows that add up to any other, so that the number of rows never
// makes a new one; what they need of the weights in another layout is made once and shared.  Sizes
// of images beyond those made at Create are made on first use, at most kMaxSizes are kept.  An
// image that takes long is computed tile by tile.
//
// Thread-safe: Run may be called by any number of threads.  It takes a lock only to look a size up.
class Convolution {
 public:
  static constexpr int kMaxSizes = 8;

  // weights [out_channels, in_channels / groups, kernel] and bias [out_channels] (or empty) must
  // outlive the object.  `height` and `width`: the size to prepare for, 0 if it is not known.
  static absl::StatusOr<std::unique_ptr<const Convolution>> Create(
      const ConvolutionGeometry& geometry, absl::Span<const float> weights,
      absl::Span<const float> bias, int64_t height, int64_t width);
  virtual ~Convolution() = default;

  // What Run needs as scratch.
  virtual size_t ScratchBytes(int64_t rows, int64_t height, int64_t width) const = 0;
  // x and y are dense NCHW, of any alignment; scratch is 64-byte aligned.  REQUIRES: at least one
  // window fits; UsesOneThread().  INTERNAL if oneDNN fails.
  virtual absl::Status Run(const float* x, int64_t rows, int64_t height, int64_t width, float* y,
                           void* scratch, Pace& pace) const = 0;
  // Memory held beside the weights given.
  virtual int64_t bytes() const = 0;
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_TENSOR_ONEDNN_CONVOLUTION_H_

// Convolution of small images by our own matrix products: fields and steps by columns, as ranking
// models have them, for which preparing oneDNN's layouts takes longer than the products.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_LAYERS_COMMON_SMALL_CONVOLUTION_H_
#define ULFD_ENGINE_LAYERS_COMMON_SMALL_CONVOLUTION_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "engine/kernels/fc.h"
#include "engine/tensor/onednn_convolution.h"
#include "engine/tensor/pace.h"

namespace ulfd::engine {

// Immutable; any thread may use it.
class SmallConvolution {
 public:
  // weights [out_channels, in_channels / groups, kernel] and bias [out_channels] (or empty) must
  // outlive the object.
  SmallConvolution(const ConvolutionGeometry& geometry, absl::Span<const float> weights,
                   absl::Span<const float> bias);

  // Whether images of that size are for it.
  bool Suits(int64_t height, int64_t width) const;
  // What Run needs as scratch, 64-byte aligned.
  size_t ScratchBytes(int64_t height, int64_t width) const;
  // x [images, in_channels, height, width] to y [images, out_channels, height', width'].
  // REQUIRES: Suits(height, width); at least one window fits.
  void Run(const float* x, int64_t images, int64_t height, int64_t width, float* y, float* scratch,
           Pace& pace) const;
  // Memory held beside the weights given.
  int64_t bytes() const { return by_rows_.bytes(); }

 private:
  bool TakesRows(int64_t width) const;
  bool LiesAsColumns(int64_t height) const;
  int64_t ImagesAtOnce() const;
  void RunRows(const float* x, int64_t images, int64_t height, int64_t width, float* y,
               float* scratch, Pace& pace) const;
  void RunColumns(const float* x, int64_t height, int64_t width, float* y, float* scratch,
                  Pace& pace) const;
  void FillColumns(const float* x, int64_t height, int64_t width, float* columns) const;
  int64_t inner() const { return g_.in_channels * g_.kernel[0] * g_.kernel[1]; }

  const ConvolutionGeometry g_;
  const absl::Span<const float> weights_, bias_;
  PackedMatrix by_rows_;  // [inner, out_channels], if windows may take whole rows.
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_LAYERS_COMMON_SMALL_CONVOLUTION_H_

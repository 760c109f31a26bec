// Convolution of small images by our own loops: fields and steps by columns, as ranking models have
// them, for which preparing oneDNN's layouts takes longer than the products.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_LAYERS_COMMON_SMALL_CONVOLUTION_H_
#define ULFD_ENGINE_LAYERS_COMMON_SMALL_CONVOLUTION_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "engine/kernels/fc.h"
#include "engine/kernels/row_args.h"
#include "engine/tensor/onednn_convolution.h"
#include "engine/tensor/pace.h"

namespace ulfd::engine {

// Immutable; any thread may use it.
class SmallConvolution {
 public:
  // weights [out_channels, in_channels / groups, kernel] and bias [out_channels] (or empty); bias
  // must outlive the object.
  SmallConvolution(const ConvolutionGeometry& geometry, absl::Span<const float> weights,
                   absl::Span<const float> bias);

  // Whether images of that size are for it.
  bool Suits(int64_t height, int64_t width) const;
  // What Run needs as scratch, 64-byte aligned.
  size_t ScratchBytes(int64_t height, int64_t width) const;
  // x [images, in_channels, height, width] to y [images, out_channels, height', width'].
  // REQUIRES: Suits(height, width); at least one window fits.
  void Run(const float* x, int64_t images, int64_t height, int64_t width, float* y, void* scratch,
           Pace& pace) const;
  // Memory held beside the weights given.
  int64_t bytes() const;

 private:
  // How images lie that are read tap by tap: lines, each as `stride` phases of `phase` places, in
  // which the places of a tap follow each other.
  struct Lines {
    int64_t lines, phase;
    bool copied;  // Else the image is as it should be.
    int64_t floats(const ConvolutionGeometry& g) const {
      return g.in_channels * lines * g.stride[1] * phase;
    }
  };
  Lines LinesOf(int64_t height, int64_t width) const;
  bool TakesRows(int64_t width) const;
  bool IsFlat(int64_t width) const;
  bool IsDeep() const;
  int64_t ImagesAtOnce() const;
  void RunRows(const float* x, int64_t images, int64_t height, int64_t width, float* y,
               float* scratch, Pace& pace) const;
  void RunTaps(const float* x, int64_t images, int64_t height, int64_t width, float* y,
               void* scratch, Pace& pace) const;
  void CopyLines(const float* x, int64_t height, int64_t width, const Lines& lines,
                 float* to) const;
  // Of each group.
  int64_t channels() const { return g_.in_channels / g_.groups; }
  int64_t outputs() const { return g_.out_channels / g_.groups; }
  int64_t inner() const { return channels() * g_.kernel[0] * g_.kernel[1]; }
  int64_t TapWeights() const {
    return (outputs() + TapArgs::kGroup - 1) / TapArgs::kGroup * TapArgs::kGroup * inner();
  }
  int64_t Places(int64_t height, int64_t width) const {
    return g_.OutputSize(0, height) * g_.OutputSize(1, width);
  }

  const ConvolutionGeometry g_;
  const absl::Span<const float> bias_;
  PackedMatrix by_rows_;        // [inner, out_channels], if windows may take whole rows.
  std::vector<float> by_taps_;  // TapArgs::w of each group; empty if no image is for that.
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_LAYERS_COMMON_SMALL_CONVOLUTION_H_

// SPDX-License-Identifier: Apache-2.0
#include "engine/layers/common/small_convolution.h"

#include <algorithm>
#include <array>

namespace ulfd::engine {
namespace {

template <size_t n>
bool IsAll(const std::array<int64_t, n>& values, int64_t wanted) {
  return std::all_of(values.begin(), values.end(), [wanted](int64_t v) { return v == wanted; });
}

// The places of one row of windows that a tap meets the image at: y[j] = x[j * stride + offset] for
// j in [0, n), 0 outside the image's `width`, or where there is no such row (nullptr).
void CopyTap(const float* x, int64_t width, int64_t stride, int64_t offset, int64_t n, float* y) {
  if (x == nullptr) {
    std::fill_n(y, n, 0.0f);
    return;
  }
  const int64_t first = std::min(n, offset < 0 ? (-offset + stride - 1) / stride : 0);
  const int64_t left = width - offset;  // From the tap of window 0 to the edge.
  const int64_t end = std::max(first, left <= 0 ? 0 : std::min(n, (left - 1) / stride + 1));
  std::fill_n(y, first, 0.0f);
  if (stride == 1) {
    std::copy(x + offset + first, x + offset + end, y + first);
  } else {
    for (int64_t j = first; j < end; ++j) y[j] = x[j * stride + offset];
  }
  std::fill(y + end, y + n, 0.0f);
}

}  // namespace

SmallConvolution::SmallConvolution(const ConvolutionGeometry& geometry,
                                   absl::Span<const float> weights, absl::Span<const float> bias)
    : g_(geometry), weights_(weights), bias_(bias) {
  if (g_.kernel[1] > 1 && TakesRows(g_.kernel[1])) {
    by_rows_ = PackedMatrix::Pack(weights.data(), inner(), g_.out_channels, 1, inner());
  }
}

// Whether windows are whole rows of the image, one below the other: then they lie in it as they
// are.
bool SmallConvolution::TakesRows(int64_t width) const {
  return g_.groups == 1 && g_.in_channels == 1 && g_.kernel[1] == width && width > 1 &&
         IsAll(g_.pad, 0) && IsAll(g_.dilation, 1);
}

// Whether what each weight meets is a row of the image, or of the channels, as they lie.
bool SmallConvolution::LiesAsColumns(int64_t height) const {
  return IsAll(g_.stride, 1) && IsAll(g_.pad, 0) && g_.kernel[1] == 1 &&
         (g_.kernel[0] == 1 || (g_.kernel[0] == height && g_.dilation[0] == 1));
}

// Rows of one image and the next are as far apart as its own, so that one product does for several:
// what windows across two of them give is left out.
int64_t SmallConvolution::ImagesAtOnce() const { return g_.stride[0] == 1 ? 16 : 1; }

bool SmallConvolution::Suits(int64_t height, int64_t width) const {
  constexpr int64_t kFewPlaces = 64, kFewPlacesOfAll = 256, kFewChannels = 16, kFewColumns = 4096;
  const int64_t places = g_.OutputSize(0, height) * g_.OutputSize(1, width);
  const bool pixelwise = IsAll(g_.kernel, 1) && LiesAsColumns(height);
  const bool few = g_.in_channels < kFewChannels || g_.out_channels < kFewChannels;
  return TakesRows(width) ||
         (g_.groups == 1 && places > 0 &&
          (pixelwise ? places <= kFewPlaces
                     : few && (places <= kFewPlacesOfAll || inner() * places <= kFewColumns)));
}

size_t SmallConvolution::ScratchBytes(int64_t height, int64_t width) const {
  const int64_t places = g_.OutputSize(0, height) * g_.OutputSize(1, width);
  const int64_t floats =
      TakesRows(width) ? ImagesAtOnce() * height * g_.out_channels
                       : inner() * places + PackedMatrix::PackedFloats(
                                                inner(), std::min(places, MatrixView::kMaxColumns));
  return static_cast<size_t>(floats) * sizeof(float);
}

void SmallConvolution::Run(const float* x, int64_t images, int64_t height, int64_t width, float* y,
                           float* scratch, Pace& pace) const {
  const int64_t from = g_.in_channels * height * width;
  const int64_t to = g_.out_channels * g_.OutputSize(0, height) * g_.OutputSize(1, width);
  const int64_t at_once = TakesRows(width) ? ImagesAtOnce() : 1;
  for (int64_t i = 0; i < images && !pace.Stops(0); i += at_once) {
    if (TakesRows(width)) {
      RunRows(x + i * from, std::min(at_once, images - i), height, width, y + i * to, scratch,
              pace);
    } else {
      RunColumns(x + i * from, height, width, y + i * to, scratch, pace);
    }
  }
}

// y^T [places, outputs] = windows [places, inner] * weight^T.
void SmallConvolution::RunRows(const float* x, int64_t images, int64_t height, int64_t width,
                               float* y, float* scratch, Pace& pace) const {
  const int64_t places = g_.OutputSize(0, height), outputs = g_.out_channels;
  FcBlock windows{x, g_.stride[0] * width, inner()};
  FcInPieces({.rows = (images - 1) * height + places,
              .w = by_rows_.view(),
              .init = bias_.empty() ? nullptr : bias_.data(),
              .y = scratch,
              .y_stride = outputs},
             absl::MakeSpan(&windows, 1), pace);
  for (int64_t image = 0; image < images; ++image, scratch += height * outputs) {
    for (int64_t o = 0; o < outputs; ++o) {
      for (int64_t i = 0; i < places; ++i) *y++ = scratch[i * outputs + o];
    }
  }
}

// y [outputs, places] = weight * columns [inner, places].
void SmallConvolution::RunColumns(const float* x, int64_t height, int64_t width, float* y,
                                  float* scratch, Pace& pace) const {
  const int64_t places = g_.OutputSize(0, height) * g_.OutputSize(1, width), k = inner();
  const float* const columns = LiesAsColumns(height) ? x : scratch;
  if (columns == scratch) FillColumns(x, height, width, scratch);
  for (int64_t o = 0; o < g_.out_channels && !bias_.empty(); ++o) {
    std::fill_n(y + o * places, places, bias_[o]);
  }
  // Few columns have a layout of their own.
  const MatrixView view =
      places > MatrixView::kMaxColumns
          ? PackedMatrix::Borrow(columns, k, places, places).view()
          : PackedMatrix::PackInto(columns, k, places, places, 1, scratch + k * places);
  FcBlock weight{weights_.data(), k, k};
  FcInPieces({.rows = g_.out_channels,
              .w = view,
              .init = bias_.empty() ? nullptr : y,
              .init_stride = places,
              .y = y,
              .y_stride = places},
             absl::MakeSpan(&weight, 1), pace);
}

// What each weight meets at each place.
void SmallConvolution::FillColumns(const float* x, int64_t height, int64_t width,
                                   float* columns) const {
  const int64_t rows = g_.OutputSize(0, height), n = g_.OutputSize(1, width);
  for (int64_t c = 0; c < g_.in_channels; ++c, x += height * width) {
    for (int64_t u = 0; u < g_.kernel[0]; ++u) {
      for (int64_t v = 0; v < g_.kernel[1]; ++v) {
        for (int64_t i = 0; i < rows; ++i, columns += n) {
          const int64_t row = i * g_.stride[0] + u * g_.dilation[0] - g_.pad[0];
          const float* const from = row < 0 || row >= height ? nullptr : x + row * width;
          CopyTap(from, width, g_.stride[1], v * g_.dilation[1] - g_.pad[1], n, columns);
        }
      }
    }
  }
}

}  // namespace ulfd::engine

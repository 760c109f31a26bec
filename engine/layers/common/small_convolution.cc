// SPDX-License-Identifier: Apache-2.0
#include "engine/layers/common/small_convolution.h"

#include <algorithm>
#include <array>
#include <utility>

#include "engine/kernels/elementwise.h"

namespace ulfd::engine {
namespace {

// Up to which our loops are faster than oneDNN with its layouts: multiplications for one image;
// weights, where both sides have many channels.
constexpr int64_t kMostProducts = 1 << 22, kMostWeights = 1 << 14, kManyChannels = 16;

// Whether a line of n places leaves few lanes of its vectors, of 16, empty.
bool FillsVectors(int64_t n) { return (n + 15) / 16 * 16 * 3 <= n * 4; }

template <size_t n>
bool IsAll(const std::array<int64_t, n>& values, int64_t wanted) {
  return std::all_of(values.begin(), values.end(), [wanted](int64_t v) { return v == wanted; });
}

// Every so many places of a line: y[j] = x[j * stride + offset] for j in [0, n), 0 outside the
// image's `width`, or where there is no such line (nullptr).
void CopyPhase(const float* x, int64_t width, int64_t stride, int64_t offset, int64_t n, float* y) {
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
    : g_(geometry), bias_(bias) {
  if (g_.kernel[1] > 1 && TakesRows(g_.kernel[1])) {
    by_rows_ = PackedMatrix::Pack(weights.data(), inner(), g_.out_channels, 1, inner());
  }
  if (g_.groups != 1 || inner() * g_.out_channels > (IsDeep() ? kMostWeights : kMostProducts)) {
    return;
  }
  constexpr int64_t kGroup = TapArgs::kGroup;
  by_taps_.resize((g_.out_channels + kGroup - 1) / kGroup * kGroup * inner());
  for (int64_t o = 0; o < g_.out_channels; ++o) {
    float* const group = by_taps_.data() + o / kGroup * kGroup * inner();
    for (int64_t t = 0; t < inner(); ++t) group[t * kGroup + o % kGroup] = weights[o * inner() + t];
  }
}

int64_t SmallConvolution::bytes() const {
  return by_rows_.bytes() + static_cast<int64_t>(by_taps_.size() * sizeof(float));
}

bool SmallConvolution::IsDeep() const {
  return g_.in_channels >= kManyChannels && g_.out_channels >= kManyChannels;
}

// Whether windows are whole rows of the image, one below the other: then they lie in it as they
// are.
bool SmallConvolution::TakesRows(int64_t width) const {
  return g_.groups == 1 && g_.in_channels == 1 && g_.kernel[1] == width && width > 1 &&
         IsAll(g_.pad, 0) && IsAll(g_.dilation, 1);
}

// Rows of one image and the next are as far apart as its own, so that one product does for several:
// what windows across two of them give is left out.
int64_t SmallConvolution::ImagesAtOnce() const { return g_.stride[0] == 1 ? 16 : 1; }

// Whether lines of the output follow each other as those of the image do: then they are one.
bool SmallConvolution::IsFlat(int64_t width) const {
  return IsAll(g_.stride, 1) && g_.OutputSize(1, width) == width + g_.pad[1] + g_.pad[3];
}

bool SmallConvolution::Suits(int64_t height, int64_t width) const {
  if (TakesRows(width)) return true;
  const int64_t places = Places(height, width);
  if (by_taps_.empty() || places <= 0) return false;
  return places <= kMostProducts / (inner() * g_.out_channels) &&
         LinesOf(height, width).floats(g_) <= kMostProducts &&
         (!IsDeep() || FillsVectors(IsFlat(width) ? places : g_.OutputSize(1, width)));
}

SmallConvolution::Lines SmallConvolution::LinesOf(int64_t height, int64_t width) const {
  const int64_t stride = g_.stride[1], padded = width + g_.pad[1] + g_.pad[3];
  return {.lines = height + g_.pad[0] + g_.pad[2],
          .phase = (padded + stride - 1) / stride,
          .copied = stride != 1 || !IsAll(g_.pad, 0)};
}

size_t SmallConvolution::ScratchBytes(int64_t height, int64_t width) const {
  if (TakesRows(width)) {
    return static_cast<size_t>(ImagesAtOnce() * height * g_.out_channels) * sizeof(float);
  }
  const Lines lines = LinesOf(height, width);
  return static_cast<size_t>(inner()) * sizeof(int64_t) +
         static_cast<size_t>(lines.copied ? lines.floats(g_) : 0) * sizeof(float);
}

void SmallConvolution::Run(const float* x, int64_t images, int64_t height, int64_t width, float* y,
                           void* scratch, Pace& pace) const {
  if (!TakesRows(width)) return RunTaps(x, images, height, width, y, scratch, pace);
  const int64_t from = height * width, to = g_.out_channels * Places(height, width);
  const int64_t at_once = ImagesAtOnce();
  for (int64_t i = 0; i < images && !pace.Stops(0); i += at_once) {
    RunRows(x + i * from, std::min(at_once, images - i), height, width, y + i * to,
            static_cast<float*>(scratch), pace);
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

// Of each image: y [outputs, lines, places] = the sum of what each weight meets.
void SmallConvolution::RunTaps(const float* x, int64_t images, int64_t height, int64_t width,
                               float* y, void* scratch, Pace& pace) const {
  const Lines lines = LinesOf(height, width);
  const int64_t line = g_.stride[1] * lines.phase, places = Places(height, width);
  auto* const offsets = static_cast<int64_t*>(scratch);
  auto* const copy = reinterpret_cast<float*>(offsets + inner());
  int64_t* offset = offsets;
  for (int64_t c = 0; c < g_.in_channels; ++c) {
    for (int64_t u = 0; u < g_.kernel[0]; ++u) {
      for (int64_t v = 0; v < g_.kernel[1]; ++v) {
        const int64_t at = v * g_.dilation[1];
        *offset++ = (c * lines.lines + u * g_.dilation[0]) * line +
                    at % g_.stride[1] * lines.phase + at / g_.stride[1];
      }
    }
  }
  TapArgs args{.x_step = g_.stride[0] * line,
               .offsets = offsets,
               .taps = inner(),
               .w = by_taps_.data(),
               .bias = bias_.empty() ? nullptr : bias_.data(),
               .outputs = g_.out_channels,
               .rows = g_.OutputSize(0, height),
               .n = g_.OutputSize(1, width),
               .y_step = places};
  if (IsFlat(width)) args.n *= std::exchange(args.rows, 1);
  for (int64_t i = 0; i < images && !pace.Stops(inner() * places * g_.out_channels); ++i) {
    args.x = x + i * g_.in_channels * height * width;
    if (lines.copied) {
      CopyLines(args.x, height, width, lines, copy);
      args.x = copy;
    }
    args.y = y + i * g_.out_channels * places;
    TapRows(args);
  }
}

// With its padding, and each line's phases one after the other.
void SmallConvolution::CopyLines(const float* x, int64_t height, int64_t width, const Lines& lines,
                                 float* to) const {
  for (int64_t c = 0; c < g_.in_channels; ++c, x += height * width) {
    for (int64_t i = -g_.pad[0]; i < height + g_.pad[2]; ++i) {
      const float* const from = i < 0 || i >= height ? nullptr : x + i * width;
      for (int64_t phase = 0; phase < g_.stride[1]; ++phase, to += lines.phase) {
        CopyPhase(from, width, g_.stride[1], phase - g_.pad[1], lines.phase, to);
      }
    }
  }
}

}  // namespace ulfd::engine

// SPDX-License-Identifier: Apache-2.0
#include "engine/layers/common/small_convolution.h"

#include <algorithm>
#include <array>
#include <utility>

#include "engine/kernels/table.h"
#include "engine/layers/common/lanes.h"

namespace ulfd::engine {
namespace {

// Up to which our loops are faster than oneDNN with its layouts: multiplications for one image;
// weights, where both sides have many channels (of a group).
constexpr int64_t kMostProducts = 1 << 22, kMostWeights = 1 << 14, kManyChannels = 16;

// Whether a line of n places leaves few lanes of its vectors, of 16, empty.
bool FillsVectors(int64_t n) { return (n + 15) / 16 * 16 * 3 <= n * 4; }

template <size_t n>
bool IsAll(const std::array<int64_t, n>& values, int64_t wanted) {
  return std::all_of(values.begin(), values.end(), [wanted](int64_t v) { return v == wanted; });
}

// y[j] = x[j * stride].  Lines are short: calls of the library would take longer.
inline void CopyLine(const float* x, int64_t stride, int64_t n, float* y) {
  int64_t j = 0;
  Lanes low, high;
  for (; stride == 1 && j + kLanes <= n; j += kLanes) {
    Load(x + j, low);
    Store(low, y + j);
  }
  for (; stride == 2 && j + kLanes < n; j += kLanes) {  // The last one's neighbour may be nobody's.
    Load(x + 2 * j, low);
    Load(x + 2 * j + kLanes, high);
    Store(__builtin_shufflevector(low, high, 0, 2, 4, 6, 8, 10, 12, 14), y + j);
  }
  for (; j < n; ++j) y[j] = x[j * stride];
}

}  // namespace

SmallConvolution::SmallConvolution(const ConvolutionGeometry& geometry,
                                   absl::Span<const float> weights, absl::Span<const float> bias)
    : g_(geometry), bias_(bias) {
  if (g_.kernel[1] > 1 && TakesRows(g_.kernel[1])) {
    by_rows_ = PackedMatrix::Pack(weights.data(), inner(), g_.out_channels, 1, inner());
  }
  // oneDNN has loops of its own for many groups of one channel.
  if (channels() * outputs() == 1 && g_.groups >= kManyChannels) return;
  const int64_t weights_by_taps = g_.groups * TapWeights();
  if (weights_by_taps > (IsDeep() ? kMostWeights : kMostProducts)) return;
  by_taps_.resize(static_cast<size_t>(weights_by_taps));
  for (int64_t o = 0; o < g_.out_channels; ++o) {
    const int64_t within = o % outputs();
    float* const block = by_taps_.data() + o / outputs() * TapWeights() +
                         within / TapArgs::kGroup * TapArgs::kGroup * inner();
    for (int64_t t = 0; t < inner(); ++t) {
      block[t * TapArgs::kGroup + within % TapArgs::kGroup] = weights[o * inner() + t];
    }
  }
}

int64_t SmallConvolution::bytes() const {
  return by_rows_.bytes() + static_cast<int64_t>(by_taps_.size() * sizeof(float));
}

bool SmallConvolution::IsDeep() const {
  return channels() >= kManyChannels && outputs() >= kManyChannels;
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
  for (int64_t c = 0; c < channels(); ++c) {
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
               .outputs = outputs(),
               .rows = g_.OutputSize(0, height),
               .n = g_.OutputSize(1, width),
               .y_step = places};
  if (IsFlat(width)) args.n *= std::exchange(args.rows, 1);
  if (lines.copied) std::fill_n(copy, lines.floats(g_), 0.0f);
  for (int64_t i = 0; i < images && !pace.Stops(inner() * places * g_.out_channels); ++i) {
    const float* from = x + i * g_.in_channels * height * width;
    if (lines.copied) {
      CopyLines(from, height, width, lines, copy);
      from = copy;
    }
    for (int64_t group = 0; group < g_.groups; ++group) {
      const int64_t output = group * outputs();
      args.x = from + group * channels() * lines.lines * line;
      args.w = by_taps_.data() + group * TapWeights();
      args.bias = bias_.empty() ? nullptr : bias_.data() + output;
      args.y = y + (i * g_.out_channels + output) * places;
      Kernels().tap_rows(args);
    }
  }
}

// Each line's phases one after the other; what is padding stays as it is.
void SmallConvolution::CopyLines(const float* x, int64_t height, int64_t width, const Lines& lines,
                                 float* to) const {
  const int64_t stride = g_.stride[1], line = stride * lines.phase;
  for (int64_t phase = 0; phase < stride; ++phase) {
    // Place j of a phase is the image's `at` + j * stride.
    const int64_t at = phase - g_.pad[1];
    const int64_t first = at < 0 ? (-at + stride - 1) / stride : 0;
    const int64_t end = std::min(lines.phase, (width - at + stride - 1) / stride);
    const float* from = x + at + first * stride;
    for (int64_t c = 0; c < g_.in_channels && first < end; ++c) {
      float* y = to + (c * lines.lines + g_.pad[0]) * line + phase * lines.phase + first;
      for (int64_t i = 0; i < height; ++i, from += width, y += line) {
        CopyLine(from, stride, end - first, y);
      }
    }
  }
}

}  // namespace ulfd::engine

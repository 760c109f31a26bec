// Pooling over windows of images.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "engine/kernels/table.h"
#include "engine/layers/checks.h"
#include "engine/layers/common/lanes.h"
#include "engine/layers/common/multiversion.h"
#include "engine/layers/common/window.h"
#include "engine/layers/types/families.h"

namespace ulfd::engine {
namespace {

// One channel of one row; the image behind `x` is [height, width].  The last image ends at `end`.
struct Plane {
  const float *x, *end;
  int64_t height, width;
  float* y;
  int64_t out_height, out_width;
};

// Places of the image that a window covers along one axis, and how many it would cover if padding
// were image, too.
struct Span {
  int64_t begin, end, padded;
};
Span SpanOf(const Window& window, int axis, int64_t index, int64_t input) {
  const int64_t start = index * window.stride[axis] - window.pad[axis];
  const int64_t end = std::min(start + window.size[axis], input + window.pad[axis + 2]);
  return {std::max<int64_t>(start, 0), std::min(end, input), end - start};
}

// How a place of a window is added to what the others made; T is float or Lanes.  NaN stays NaN, as
// in torch.
struct Maximum {
  static constexpr ReduceOp kOp = ReduceOp::kMax;
  static constexpr float kOfNone = -std::numeric_limits<float>::infinity();
  template <class T>
  [[gnu::always_inline]] static void Add(const T& x, T& folded) {
    folded = x > folded ? x : folded;
    folded = x != x ? x : folded;
  }
};
struct Sum {
  static constexpr ReduceOp kOp = ReduceOp::kSum;
  static constexpr float kOfNone = 0.0f;
  template <class T>
  [[gnu::always_inline]] static void Add(const T& x, T& folded) {
    folded += x;
  }
};

// Of n places in a row.
template <class Fold>
[[gnu::always_inline]] inline float FoldRow(const float* x, int64_t n) {
  float result = Fold::kOfNone;
  int64_t i = 0;
  if (n >= kLanes) {
    // Sums of several are more exact than one.
    Lanes lanes = Lanes{} + Fold::kOfNone, next;
    for (; i + kLanes <= n; i += kLanes) {
      Load(x + i, next);
      Fold::Add(next, lanes);
    }
    float parts[kLanes];
    Store(lanes, parts);
    for (int half = kLanes / 2; half > 0; half /= 2) {
      for (int j = 0; j < half; ++j) Fold::Add(parts[j + half], parts[j]);
    }
    result = parts[0];
  }
  for (; i < n; ++i) Fold::Add(x[i], result);
  return result;
}

// Of each of n columns, whose `rows` rows follow each other.
template <class Fold>
[[gnu::always_inline]] inline void FoldColumns(const float* x, int64_t rows, int64_t n,
                                               float* __restrict y) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    Lanes lanes = Lanes{} + Fold::kOfNone, next;
    for (int64_t r = 0; r < rows; ++r) {
      Load(x + r * n + i, next);
      Fold::Add(next, lanes);
    }
    Store(lanes, y + i);
  }
  for (; i < n; ++i) {
    y[i] = Fold::kOfNone;
    for (int64_t r = 0; r < rows; ++r) Fold::Add(x[r * n + i], y[i]);
  }
}

// One place in kStride, 1, 3 or 4.
template <int64_t kStride>
[[gnu::always_inline]] inline void LoadEvery(const float* x, Lanes& to) {
  constexpr int64_t kVector = kLanes;
  Lanes second, third, fourth;
  Load(x, to);
  if constexpr (kStride == 1) return;
  Load(x + kVector, second);
  Load(x + 2 * kVector, third);
  if constexpr (kStride == 3) {
    to = __builtin_shufflevector(to, second, 0, 3, 6, 9, 12, 15, 0, 0);
    to = __builtin_shufflevector(to, third, 0, 1, 2, 3, 4, 5, 10, 13);
    return;
  }
  Load(x + 3 * kVector, fourth);
  to = __builtin_shufflevector(to, second, 0, 4, 8, 12, 0, 0, 0, 0);
  third = __builtin_shufflevector(third, fourth, 0, 4, 8, 12, 0, 0, 0, 0);
  to = __builtin_shufflevector(to, third, 0, 1, 2, 3, 8, 9, 10, 11);
}

// kLanes windows, of which the first starts at x.
template <class Fold, int64_t kStride>
[[gnu::always_inline]] inline void FoldVector(const float* x, int64_t size, Lanes& folded) {
  Lanes next, high;
  folded = Lanes{} + Fold::kOfNone;
  for (int64_t c = 0; kStride == 2 && c < size; c += 2) {  // Pairs are two places of each window.
    Load(x + c, next);
    Load(x + c + kLanes, high);
    Fold::Add(__builtin_shufflevector(next, high, 0, 2, 4, 6, 8, 10, 12, 14), folded);
    if (c + 1 == size) break;
    Fold::Add(__builtin_shufflevector(next, high, 1, 3, 5, 7, 9, 11, 13, 15), folded);
  }
  for (int64_t c = 0; kStride != 2 && c < size; ++c) {
    LoadEvery<kStride>(x + c, next);
    Fold::Add(next, folded);
  }
}

// The first of n windows of a row, as many as lanes can read without going beyond `end`; how many.
template <class Fold, int64_t kStride>
[[gnu::always_inline]] inline int64_t FoldVectors(const float* x, const float* end, int64_t size,
                                                  int64_t n, float* __restrict y) {
  const int64_t readable = std::max<int64_t>(0, (end - x - size + 1) / kStride - kLanes + 1);
  Lanes folded;
  int64_t j = 0;
  for (; j + kLanes <= n && j < readable; j += kLanes) {
    FoldVector<Fold, kStride>(x + j * kStride, size, folded);
    Store(folded, y + j);
  }
  if (j + kLanes <= n || j >= readable) return j;
  float last[kLanes];  // The others are of no window.
  FoldVector<Fold, kStride>(x + j * kStride, size, folded);
  Store(folded, last);
  std::copy_n(last, n - j, y + j);
  return n;
}

// Of n windows of a row, the first of which starts at x.  Memory ends at `end`.
template <class Fold>
[[gnu::always_inline]] inline void FoldWindows(const float* x, const float* end, int64_t size,
                                               int64_t stride, int64_t n, float* __restrict y) {
  int64_t j = 0;
  if (stride == 1) j = FoldVectors<Fold, 1>(x, end, size, n, y);
  if (stride == 2) j = FoldVectors<Fold, 2>(x, end, size, n, y);
  if (stride == 3) j = FoldVectors<Fold, 3>(x, end, size, n, y);
  if (stride == 4) j = FoldVectors<Fold, 4>(x, end, size, n, y);
  for (; j < n; ++j) {
    float folded = Fold::kOfNone;
    for (int64_t c = 0; c < size; ++c) Fold::Add(x[j * stride + c], folded);
    y[j] = folded;
  }
}

// Of the windows [from, to) of a row of `width` places, in memory that ends at `end`.
template <class Fold>
[[gnu::always_inline]] inline void FoldLine(const Window& window, const float* x, const float* end,
                                            int64_t width, int64_t from, int64_t to,
                                            float* __restrict y) {
  const int64_t size = window.size[1], stride = window.stride[1];
  for (int64_t j = from; j < to;) {
    const Span columns = SpanOf(window, 1, j, width);
    if (columns.end - columns.begin == size) {
      const int64_t n = std::min(to - j, (width - columns.end) / stride + 1);
      FoldWindows<Fold>(x + columns.begin, end, size, stride, n, y + j);
      j += n;
      continue;
    }
    float folded = Fold::kOfNone;  // A part of it is padding.
    for (int64_t c = columns.begin; c < columns.end; ++c) Fold::Add(x[c], folded);
    y[j++] = folded;
  }
}

// Whether rows of windows are as wide as the image: then those of the next one go on where they
// end.  More places than these fill vectors line by line.
constexpr int64_t kFewPlaces = 1 << 12;
bool TilesRows(const Window& window, const Plane& plane) {
  return plane.height * plane.width <= kFewPlaces && window.pad == std::array<int64_t, 4>{} &&
         window.size[1] <= window.stride[1] && plane.out_width * window.stride[1] == plane.width;
}

// A plane whose rows of windows go on so, by way of `lines`, [out_height, width]: all as one row.
template <class Fold>
[[gnu::always_inline]] inline void FoldTiles(const Window& window, const Plane& plane,
                                             float* lines) {
  for (int64_t i = 0; i < plane.out_height; ++i) {
    const Span rows = SpanOf(window, 0, i, plane.height);
    FoldColumns<Fold>(plane.x + rows.begin * plane.width, rows.end - rows.begin, plane.width,
                      lines + i * plane.width);
  }
  FoldWindows<Fold>(lines, lines + plane.out_height * plane.width, window.size[1], window.stride[1],
                    plane.out_height * plane.out_width, plane.y);
}

// Each row of windows of a plane: first down the columns, into `line` of the plane's width, then
// along what that gives, so many windows without a look at the pace.
template <class Fold>
[[gnu::always_inline]] inline void FoldPlane(const Window& window, const Plane& plane, float* line,
                                             int64_t at_once, Pace& pace) {
  const Span first = SpanOf(window, 1, 0, plane.width);
  const bool whole_rows = plane.out_width == 1 && first.begin == 0 && first.end == plane.width;
  const bool columns_alone = window.size[1] == 1 && plane.out_width == plane.width;
  float* y = plane.y;
  for (int64_t i = 0; i < plane.out_height; ++i, y += plane.out_width) {
    const Span rows = SpanOf(window, 0, i, plane.height);
    const int64_t count = std::max<int64_t>(rows.end - rows.begin, 0);
    const float *x = plane.x + rows.begin * plane.width, *end = plane.end;
    if (pace.Stops(count * plane.width)) return;
    if (whole_rows) {
      *y = FoldRow<Fold>(x, count * plane.width);
      continue;
    }
    if (count != 1 || columns_alone) {
      float* const folded = columns_alone ? y : line;
      FoldColumns<Fold>(x, count, plane.width, folded);
      if (columns_alone) continue;
      x = folded;
      end = folded + plane.width;
    }
    for (int64_t j = 0; j < plane.out_width; j += at_once) {
      const int64_t to = std::min(plane.out_width, j + at_once);
      if (pace.Stops((to - j) * window.size[1])) return;
      FoldLine<Fold>(window, x, end, plane.width, j, to, y);
    }
  }
}

// Each of so many planes, which follow each other, to one value.
void FoldWholePlanes(ReduceOp op, const Plane& plane, int64_t planes, Pace& pace) {
  const int64_t places = plane.height * plane.width, at_once = Pace::RowsAtOnce(places, 1);
  for (int64_t i = 0; i < planes; i += at_once) {
    const int64_t now = std::min(planes - i, at_once);
    if (pace.Stops(now * places)) return;
    Kernels().reduce(op, plane.x + i * places, plane.y + i, now, places, 1);
  }
}

// So many planes, which follow each other.
template <class Fold>
[[gnu::always_inline]] inline void FoldPlanes(const Window& window, Plane plane, int64_t planes,
                                              float* lines, Pace& pace) {
  const Span rows = SpanOf(window, 0, 0, plane.height), columns = SpanOf(window, 1, 0, plane.width);
  const bool short_planes = Pace::RowsAtOnce(plane.height * plane.width, 1) > 1;
  if (short_planes && plane.out_height * plane.out_width == 1 &&
      rows.end - rows.begin == plane.height && columns.end - columns.begin == plane.width) {
    return FoldWholePlanes(Fold::kOp, plane, planes, pace);
  }
  const bool tiles = TilesRows(window, plane);
  const int64_t reach = (plane.out_width - 1) * window.stride[1] + window.size[1];
  const int64_t work = plane.out_width * window.size[1], now = Pace::RowsAtOnce(work, 1);
  if (plane.height == 1 && window.pad == std::array<int64_t, 4>{} && reach <= plane.width &&
      now > 1) {  // Lines of whole windows, which need no look at the pace within.
    const int64_t together = tiles ? now : 1;
    for (int64_t i = 0; i < planes; i += together) {
      if (i % now == 0 && pace.Stops(now * work)) return;
      FoldWindows<Fold>(plane.x + i * plane.width, plane.end, window.size[1], window.stride[1],
                        std::min(planes - i, together) * plane.out_width,
                        plane.y + i * plane.out_width);
    }
    return;
  }
  const int64_t at_once = Pace::RowsAtOnce(window.size[1], 1);
  for (; planes > 0; --planes) {
    if (tiles) {
      if (pace.Stops(plane.height * plane.width)) return;
      FoldTiles<Fold>(window, plane, lines);
    } else {
      FoldPlane<Fold>(window, plane, lines, at_once, pace);
    }
    plane.x += plane.height * plane.width;
    plane.y += plane.out_height * plane.out_width;
  }
}
ULFD_MULTIVERSION void MaxPlanes(const Window& window, const Plane& plane, int64_t planes,
                                 float* lines, Pace& pace) {
  FoldPlanes<Maximum>(window, plane, planes, lines, pace);
}
ULFD_MULTIVERSION void SumPlanes(const Window& window, const Plane& plane, int64_t planes,
                                 float* lines, Pace& pace) {
  FoldPlanes<Sum>(window, plane, planes, lines, pace);
}

// Sums to means.  count_pad: padding counts as places, too.
void DividePlanes(const Window& window, bool count_pad, Plane plane, int64_t planes, Pace& pace) {
  // All windows are whole.
  if (!window.ceil && (count_pad || window.pad == std::array<int64_t, 4>{})) {
    const auto count = static_cast<float>(window.size[0] * window.size[1]);
    const int64_t n = planes * plane.out_height * plane.out_width;
    const int64_t at_once = Pace::RowsAtOnce(1, 1);
    for (int64_t i = 0; i < n && !pace.Stops(at_once); i += at_once, plane.y += at_once) {
      const int64_t now = std::min(at_once, n - i);
      Kernels().binary(BinaryOp::kDiv, {plane.y, 0, 1}, {&count, 0, 0}, plane.y, now, 1, now);
    }
    return;
  }
  for (; planes > 0; --planes) {
    for (int64_t i = 0; i < plane.out_height; ++i, plane.y += plane.out_width) {
      if (pace.Stops(plane.out_width)) return;
      const Span rows = SpanOf(window, 0, i, plane.height);
      for (int64_t j = 0; j < plane.out_width; ++j) {
        const Span columns = SpanOf(window, 1, j, plane.width);
        const int64_t count =
            count_pad ? rows.padded * columns.padded
                      : (rows.end - rows.begin) * std::max<int64_t>(columns.end - columns.begin, 0);
        plane.y[j] /= static_cast<float>(count);
      }
    }
  }
}

struct PoolingOptions {
  Window window;
  bool average = false, count_pad = false, global = false;
};

class PoolingKernel final : public Kernel {
 public:
  explicit PoolingKernel(const PoolingOptions& options) : options_(options) {}
  size_t ScratchBytes(absl::Span<const Tensor> in) const override {
    const int64_t width = in[0].dims[3], places = in[0].dims[2] * width;
    return static_cast<size_t>(places <= kFewPlaces ? places : width) * sizeof(float);
  }
  absl::Status Run(RunContext& ctx) const override {
    const Tensor& x = ctx.in[0];
    const Tensor& y = ctx.out[0];
    const Plane plane{x.f32(),   x.f32() + x.elements(), x.dims[2],
                      x.dims[3], ctx.out[0].f32(),       y.dims[2],
                      y.dims[3]};
    const int64_t planes = x.dims[0] * x.dims[1];
    Window window = options_.window;
    if (options_.global) window.size = {plane.height, plane.width};
    auto* const lines = static_cast<float*>(ctx.scratch);
    if (options_.average) {
      SumPlanes(window, plane, planes, lines, ctx.pace);
      DividePlanes(window, options_.count_pad, plane, planes, ctx.pace);
    } else {
      MaxPlanes(window, plane, planes, lines, ctx.pace);
    }
    return absl::OkStatus();
  }

 private:
  const PoolingOptions options_;
};

// max_pooling_layer; also the mean (pool: AVE).
class Pooling final : public Layer {
 public:
  static absl::StatusOr<std::unique_ptr<Layer>> Parse(const ParseContext& ctx) {
    const ulf::PoolingParameter& p = ctx.param.pooling_param();
    const bool average = p.pool() == ulf::PoolingParameter::AVE;
    if (p.has_count_include_pad() && !average) {
      return InvalidArgument(
          "pooling_param.count_include_pad: set, but only pool: AVE has a divisor");
    }
    Window window;
    if (p.global_pooling()) {
      if (p.kernel_size_size() + p.stride_size() + p.pad_size() > 0 || p.has_round_mode()) {
        return InvalidArgument(
            "pooling_param.global_pooling: true, want no kernel_size, stride, pad or round_mode "
            "beside it");
      }
    } else {
      ASSIGN_OR_RETURN(window, ReadWindow(p));
    }
    return std::unique_ptr<Layer>(
        new Pooling({window, average, p.count_include_pad(), p.global_pooling()}));
  }
  absl::StatusOr<TensorSpecs> Infer(absl::Span<const TensorSpec> in) const override {
    RETURN_IF_ERROR(WantImage(in));
    TensorSpec out = in[0];
    ASSIGN_OR_RETURN(out.shape, options_.window.Output(in[0], in[0].shape[1]));
    if (options_.global) out.shape[2] = out.shape[3] = Dim::Of(1);
    return OnlyOutput(std::move(out), in);
  }
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(absl::Span<const TensorSpec>) const override {
    return std::unique_ptr<Kernel>(new PoolingKernel(options_));
  }
  double Flops(absl::Span<const TensorSpec> in, absl::Span<const TensorSpec> out) const override {
    if (options_.global) return Layer::Flops(out, in);
    return static_cast<double>(options_.window.size[0] * options_.window.size[1]) *
           Layer::Flops(in, out);
  }
  std::string Describe() const override {
    return absl::StrCat("pool=", options_.average ? "AVE" : "MAX", " ",
                        options_.global ? "global_pooling" : options_.window.ToString(),
                        options_.average && !options_.count_pad ? " count_include_pad=false" : "");
  }

 private:
  explicit Pooling(const PoolingOptions& options) : options_(options) {}

  static absl::StatusOr<Window> ReadWindow(const ulf::PoolingParameter& p) {
    if (p.kernel_size().empty()) {
      return InvalidArgument(
          "pooling_param.kernel_size: none, want one value, or height and width (or "
          "global_pooling)");
    }
    Window window;
    ASSIGN_OR_RETURN(window.size, ReadPair("pooling_param.kernel_size", p.kernel_size(), 1, 1));
    ASSIGN_OR_RETURN(window.stride, ReadPair("pooling_param.stride", p.stride(), 1, 1));
    ASSIGN_OR_RETURN(window.pad, ReadPad("pooling_param.pad", p.pad()));
    window.ceil = p.round_mode() == ulf::PoolingParameter::CEIL;
    for (int side = 0; side < 4; ++side) {
      if (window.pad[side] < window.size[side % 2]) continue;
      return InvalidArgument("pooling_param.pad: ", window.pad[side],
                             ", want less than the window's ", window.size[side % 2],
                             " (a window of padding alone has no value)");
    }
    return window;
  }

  const PoolingOptions options_;
};

constexpr LayerType kTypes[] = {
    {.name = "max_pooling_layer",
     .summary = "maximum or mean of each window of an image, or of the whole image",
     .param_field = ulf::LayerParameter::kPoolingParamFieldNumber,
     .parse = &Pooling::Parse,
     .image_inputs = 1,
     .image_outputs = 1,
     .doc = {.formula = "y = the maximum (pool: AVE: the mean) of each window",
             .inputs = "x [rows, channels, height, width] float32",
             .source = "MaxPoolingLayer of the layer framework; torch.nn.MaxPool2d, AvgPool2d",
             .example_inputs = "x:2,4,4",
             .example_param = "pooling_param { kernel_size: 2 stride: 2 }"}},
};

}  // namespace

absl::Span<const LayerType> PoolingLayers() { return kTypes; }

}  // namespace ulfd::engine

// Pooling over windows of images.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/layers/checks.h"
#include "engine/layers/common/multiversion.h"
#include "engine/layers/common/window.h"
#include "engine/layers/types/families.h"

namespace ulfd::engine {
namespace {

// One channel of one row; the image behind `x` is [height, width].
struct Plane {
  const float* x;
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

// NaN stays NaN, as in torch.  Two selections of one comparison each, which need no branch.
[[gnu::always_inline]] inline float Larger(float a, float b) {
  const float larger = b > a ? b : a;
  return b != b ? b : larger;
}

ULFD_MULTIVERSION void MaxRow(const float* x, int64_t stride, float* __restrict y, int64_t n) {
  if (stride == 1) {
    for (int64_t i = 0; i < n; ++i) y[i] = Larger(y[i], x[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) y[i] = Larger(y[i], x[i * stride]);
  }
}
// Of n places in a row.
ULFD_MULTIVERSION float Largest(const float* x, int64_t n) {
  constexpr int kLanes = 8;
  float lanes[kLanes];
  std::fill_n(lanes, kLanes, -std::numeric_limits<float>::infinity());
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) lanes[j] = Larger(lanes[j], x[i + j]);
  }
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int j = 0; j < half; ++j) lanes[j] = Larger(lanes[j], lanes[j + half]);
  }
  for (; i < n; ++i) lanes[0] = Larger(lanes[0], x[i]);
  return lanes[0];
}
// Of each of n columns of a plane, whose rows follow each other.
ULFD_MULTIVERSION void LargestOfColumns(const float* x, int64_t rows, int64_t n,
                                        float* __restrict y) {
  constexpr int kLanes = 8;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    float lanes[kLanes];
    std::fill_n(lanes, kLanes, -std::numeric_limits<float>::infinity());
    for (int64_t r = 0; r < rows; ++r) {
      for (int j = 0; j < kLanes; ++j) lanes[j] = Larger(lanes[j], x[r * n + i + j]);
    }
    std::copy_n(lanes, kLanes, y + i);
  }
  for (; i < n; ++i) {
    float largest = -std::numeric_limits<float>::infinity();
    for (int64_t r = 0; r < rows; ++r) largest = Larger(largest, x[r * n + i]);
    y[i] = largest;
  }
}
// Of each window of so many planes, which follow each other.  REQUIRES: FewInRow.
constexpr int64_t kFewWindows = 8;
ULFD_MULTIVERSION void LargestOfWindows(const Window& window, Plane plane, int64_t planes) {
  Span columns[kFewWindows] = {};
  for (int64_t i = 0; i < plane.out_width; ++i) columns[i] = SpanOf(window, 1, i, plane.width);
  for (; planes > 0; --planes, plane.x += plane.height * plane.width) {
    for (int64_t i = 0; i < plane.out_height; ++i) {
      const Span rows = SpanOf(window, 0, i, plane.height);
      for (int64_t j = 0; j < plane.out_width; ++j) {
        float largest = -std::numeric_limits<float>::infinity();
        for (int64_t r = rows.begin; r < rows.end; ++r) {
          const float* const x = plane.x + r * plane.width;
          for (int64_t c = columns[j].begin; c < columns[j].end; ++c) {
            largest = Larger(largest, x[c]);
          }
        }
        *plane.y++ = largest;
      }
    }
  }
}
ULFD_MULTIVERSION void AddRow(const float* x, int64_t stride, float* __restrict y, int64_t n) {
  if (stride == 1) {
    for (int64_t i = 0; i < n; ++i) y[i] += x[i];
  } else {
    for (int64_t i = 0; i < n; ++i) y[i] += x[i * stride];
  }
}

// Adds what one row of the image gives to one row of windows: tap by tap, for all windows that the
// tap meets the image in.
template <class Combine>
void CombineRow(const Window& window, const Plane& plane, const float* x, float* y, Combine combine,
                Pace& pace) {
  const int64_t stride = window.stride[1];
  for (int64_t tap = 0; tap < window.size[1] && !pace.Stops(plane.out_width); ++tap) {
    const int64_t offset = tap - window.pad[1];
    const int64_t first = offset < 0 ? (-offset + stride - 1) / stride : 0;
    const int64_t left = plane.width - offset;  // Places from the tap in window 0 to the edge.
    const int64_t end = left <= 0 ? 0 : std::min(plane.out_width, (left - 1) / stride + 1);
    if (end > first) combine(x + first * stride + offset, stride, y + first, end - first);
  }
}

bool WholeRows(const Window& window, const Plane& plane) {
  const Span columns = SpanOf(window, 1, 0, plane.width);
  return plane.out_width == 1 && columns.begin == 0 && columns.end == plane.width;
}
bool OneWide(const Window& window, const Plane& plane) {
  return window.size[1] == 1 && plane.out_width == plane.width;
}
int64_t WorkOf(const Window& window, const Plane& plane) {
  return plane.out_height * plane.out_width * window.size[0] * window.size[1];
}
// Going through such rows tap by tap would be more calls than work.
bool FewInRow(const Window& window, const Plane& plane) {
  return plane.out_width <= kFewWindows && !WholeRows(window, plane) && !OneWide(window, plane) &&
         WorkOf(window, plane) <= Pace::kMillisecond;
}

void MaxPlane(const Window& window, const Plane& plane, Pace& pace) {
  const bool whole_rows = WholeRows(window, plane), one_wide = OneWide(window, plane);
  for (int64_t i = 0; i < plane.out_height; ++i) {
    float* y = plane.y + i * plane.out_width;
    const Span rows = SpanOf(window, 0, i, plane.height);
    if (pace.Stops((rows.end - rows.begin) * plane.width)) return;
    if (whole_rows) {
      *y = Largest(plane.x + rows.begin * plane.width, (rows.end - rows.begin) * plane.width);
      continue;
    }
    if (one_wide) {
      LargestOfColumns(plane.x + rows.begin * plane.width, rows.end - rows.begin, plane.width, y);
      continue;
    }
    std::fill_n(y, plane.out_width, -std::numeric_limits<float>::infinity());
    for (int64_t r = rows.begin; r < rows.end; ++r) {
      CombineRow(window, plane, plane.x + r * plane.width, y, MaxRow, pace);
    }
  }
}

// REQUIRES: FewInRow.
void MaxPlanes(const Window& window, Plane plane, int64_t planes, Pace& pace) {
  const int64_t work = WorkOf(window, plane), at_once = Pace::RowsAtOnce(work, 1);
  for (; planes > 0; planes -= at_once) {
    const int64_t count = std::min(planes, at_once);
    LargestOfWindows(window, plane, count);
    if (pace.Stops(count * work)) return;
    plane.x += count * plane.height * plane.width;
    plane.y += count * plane.out_height * plane.out_width;
  }
}

void AveragePlane(const Window& window, bool count_pad, const Plane& plane, Pace& pace) {
  for (int64_t i = 0; i < plane.out_height && !pace.Stops(plane.out_width); ++i) {
    float* y = plane.y + i * plane.out_width;
    std::fill_n(y, plane.out_width, 0.0f);
    const Span rows = SpanOf(window, 0, i, plane.height);
    for (int64_t r = rows.begin; r < rows.end; ++r) {
      CombineRow(window, plane, plane.x + r * plane.width, y, AddRow, pace);
    }
    for (int64_t j = 0; j < plane.out_width; ++j) {
      const Span columns = SpanOf(window, 1, j, plane.width);
      const int64_t count =
          count_pad ? rows.padded * columns.padded
                    : (rows.end - rows.begin) * std::max<int64_t>(columns.end - columns.begin, 0);
      y[j] /= static_cast<float>(count);
    }
  }
}

// All places of a plane.
ULFD_MULTIVERSION float PlaneSum(const float* x, int64_t n) {
  constexpr int kLanes = 16;  // Partial sums: vectorisable, and more exact than one.
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) lanes[j] += x[i + j];
  }
  float sum = 0;
  for (float lane : lanes) sum += lane;
  for (; i < n; ++i) sum += x[i];
  return sum;
}

class PoolingKernel final : public Kernel {
 public:
  PoolingKernel(const Window& window, bool average, bool count_pad, bool global)
      : window_(window), average_(average), count_pad_(count_pad), global_(global) {}
  absl::Status Run(RunContext& ctx) const override {
    const Tensor& x = ctx.in[0];
    const Tensor& y = ctx.out[0];
    Plane plane{x.f32(), x.dims[2], x.dims[3], ctx.out[0].f32(), y.dims[2], y.dims[3]};
    const int64_t places = plane.height * plane.width;
    Window window = window_;
    if (global_) window.size = {plane.height, plane.width};
    if (!average_ && FewInRow(window, plane)) {
      MaxPlanes(window, plane, x.dims[0] * x.dims[1], ctx.pace);
      return absl::OkStatus();
    }
    for (int64_t n = x.dims[0] * x.dims[1]; n > 0 && !ctx.pace.Stops(places); --n) {
      if (!average_) {
        MaxPlane(window, plane, ctx.pace);
      } else if (global_) {
        *plane.y = PlaneSum(plane.x, places) / static_cast<float>(places);
      } else {
        AveragePlane(window, count_pad_, plane, ctx.pace);
      }
      plane.x += places;
      plane.y += plane.out_height * plane.out_width;
    }
    return absl::OkStatus();
  }

 private:
  const Window window_;
  const bool average_, count_pad_, global_;
};

// max_pooling_layer: the maximum (or, pool: AVE, the mean) of each window of an image.
// Input   0 x [rows, channels, height, width] f32, any level.
// Weights none.
// Output  0 [rows, channels, height', width'], height' = (height + pads - kernel) / stride + 1,
//         rounded as round_mode says; level of x.
// Params  pooling_param: kernel_size (required unless global_pooling), stride (1), pad (0), pool
//         (MAX), round_mode (FLOOR), global_pooling (false: the window is the image),
//         count_include_pad (true, for AVE).
// Errors  InvalidArgument for another type or rank, a padding as large as the window, an input that
//         no window fits into, parameters that go with no pool or with global_pooling.
// Source  MaxPoolingLayer of the layer framework; field names of Caffe; torch.nn.MaxPool2d and
//         AvgPool2d (ceil_mode, count_include_pad).
class Pooling final : public Layer {
 public:
  static absl::StatusOr<std::unique_ptr<Layer>> Parse(const ParseContext& ctx) {
    const ulf::PoolingParameter& p = ctx.param.pooling_param();
    const bool average = p.pool() == ulf::PoolingParameter::AVE;
    if (p.has_count_include_pad() && !average) {
      return absl::InvalidArgumentError(
          "pooling_param.count_include_pad: set, but only pool: AVE has a divisor");
    }
    Window window;
    if (p.global_pooling()) {
      if (p.kernel_size_size() + p.stride_size() + p.pad_size() > 0 || p.has_round_mode()) {
        return absl::InvalidArgumentError(
            "pooling_param.global_pooling: true, want no kernel_size, stride, pad or round_mode "
            "beside it");
      }
    } else {
      ASSIGN_OR_RETURN(window, ReadWindow(p));
    }
    return std::unique_ptr<Layer>(
        new Pooling(window, average, p.count_include_pad(), p.global_pooling()));
  }
  absl::StatusOr<TensorSpecs> Infer(absl::Span<const TensorSpec> in) const override {
    RETURN_IF_ERROR(WantImage(in));
    TensorSpec out = in[0];
    ASSIGN_OR_RETURN(out.shape, window_.Output(in[0], in[0].shape[1]));
    if (global_) out.shape[2] = out.shape[3] = Dim::Of(1);
    return OnlyOutput(std::move(out), in);
  }
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(absl::Span<const TensorSpec>) const override {
    return std::unique_ptr<Kernel>(new PoolingKernel(window_, average_, count_pad_, global_));
  }
  std::string Describe() const override {
    return absl::StrCat("pool=", average_ ? "AVE" : "MAX", " ",
                        global_ ? "global_pooling" : window_.ToString(),
                        average_ && !count_pad_ ? " count_include_pad=false" : "");
  }

 private:
  Pooling(const Window& window, bool average, bool count_pad, bool global)
      : window_(window), average_(average), count_pad_(count_pad), global_(global) {}

  static absl::StatusOr<Window> ReadWindow(const ulf::PoolingParameter& p) {
    if (p.kernel_size().empty()) {
      return absl::InvalidArgumentError(
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
      return absl::InvalidArgumentError(
          absl::StrCat("pooling_param.pad: ", window.pad[side], ", want less than the window's ",
                       window.size[side % 2], " (a window of padding alone has no value)"));
    }
    return window;
  }

  const Window window_;
  const bool average_, count_pad_, global_;
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

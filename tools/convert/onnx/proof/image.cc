// The interpreter's operators on images.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "tools/convert/onnx/model/constant.h"
#include "tools/convert/onnx/operators/resize.h"
#include "tools/convert/onnx/proof/interpreter.h"

namespace ulfd::convert::reference {
namespace {

// Elements between two looks at the budget.
constexpr int64_t kOften = 1 << 12;

Results Resize(const Call& c) {
  if (!c.in[0]->is_float()) return Unimplemented("of integers");
  const bool old = c.node.op_type() == "Upsample" || c.opset < 11;
  ResizeRequest request;
  const auto floats = [&](size_t i) {
    std::vector<float> values;
    for (int64_t k = 0; c.Has(i) && k < c.in[i]->elements(); ++k) {
      values.push_back(static_cast<float>(c.in[i]->at(k)));
    }
    return values;
  };
  request.scales = floats(old ? 1 : 2);
  if (c.node.op_type() == "Upsample" && c.opset < 9) {
    request.scales = FloatsAttribute(c.node, "scales");
  }
  if (!old) {
    request.roi = floats(1);
    ASSIGN_OR_RETURN(request.sizes, ListOf(c, 3, "sizes"));
  }
  Array x = *c.in[0];
  for (size_t axis = 0; axis < x.dims.size(); ++axis) {
    ASSIGN_OR_RETURN(const ResizedAxis resized,
                     ResizeAxis(c.node, c.opset, request, static_cast<int>(axis),
                                static_cast<int>(x.rank()), x.dims[axis]));
    Sizes dims = x.dims;
    dims[axis] = resized.to;
    ASSIGN_OR_RETURN(const int64_t count, CountOf(c, dims));
    const int64_t inner = StridesOf(x.dims)[axis];
    std::vector<double> out(static_cast<size_t>(count));
    for (int64_t k = 0; k < count; ++k) {
      if (k % kOften == 0) RETURN_IF_ERROR(c.options.budget.Check());
      const int64_t i = k / inner % resized.to, outer = k / inner / resized.to;
      double sum = resized.bias[static_cast<size_t>(i)];
      for (int64_t from = 0; from < resized.from; ++from) {
        const double weight = resized.weight[static_cast<size_t>(from * resized.to + i)];
        if (weight != 0) sum += weight * x.at((outer * resized.from + from) * inner + k % inner);
      }
      out[static_cast<size_t>(k)] = c.Round(x.type, sum);
    }
    x = Floats(x.type, dims, std::move(out));
  }
  return One(std::move(x));
}

// A transposed convolution's sizes.
struct Transposed {
  int64_t group = 1, channels = 0, outputs = 0;
  Sizes image, kernel, strides, dilations;  // Per dimension of the image.
  Sizes cut;                                // What is cut in front.
  Sizes dims;                               // Of the result.
};

absl::StatusOr<Transposed> ReadTransposed(const Call& c) {
  const Array &x = *c.in[0], &weight = *c.in[1];
  if (x.rank() < 3 || weight.rank() != x.rank()) return Misfit(c, "want an image and its weight");
  const size_t rank = x.dims.size() - 2;
  const auto list = [&](const char* name, size_t size, int64_t otherwise) {
    Sizes values = IntsAttribute(c.node, name);
    if (values.empty()) values.assign(size, otherwise);
    return values;
  };
  const Sizes added = list("output_padding", rank, 0), pads = list("pads", 2 * rank, 0);
  const Sizes wanted = IntsAttribute(c.node, "output_shape");
  const std::string auto_pad = StringAttribute(c.node, "auto_pad", "NOTSET");
  const bool same = auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER";
  Transposed t{.group = IntAttribute(c.node, "group", 1),
               .channels = x.dims[1],
               .image = Sizes(x.dims.begin() + 2, x.dims.end()),
               .kernel = Sizes(weight.dims.begin() + 2, weight.dims.end()),
               .strides = list("strides", rank, 1),
               .dilations = list("dilations", rank, 1)};
  if (t.strides.size() != rank || t.dilations.size() != rank || added.size() != rank ||
      pads.size() != 2 * rank || (!wanted.empty() && wanted.size() != rank)) {
    return Misfit(c, "attributes of another rank");
  }
  if (t.group < 1 || t.channels % t.group != 0 || weight.dims[0] != t.channels) {
    return Misfit(c, "channels that do not fit");
  }
  t.outputs = weight.dims[1] * t.group;
  if (c.Has(2) && c.in[2]->elements() != t.outputs) return Misfit(c, "a bias of another size");
  t.dims = {x.dims[0], t.outputs};
  for (size_t d = 0; d < rank; ++d) {
    const int64_t whole =
        t.strides[d] * (t.image[d] - 1) + added[d] + (t.kernel[d] - 1) * t.dilations[d] + 1;
    const bool by_size = !wanted.empty() || same;
    const int64_t size = wanted.empty() ? t.image[d] * t.strides[d] : wanted[d];
    const int64_t cut = std::max<int64_t>(0, whole - size);
    t.cut.push_back(!by_size ? pads[d] : auto_pad == "SAME_LOWER" ? cut - cut / 2 : cut / 2);
    t.dims.push_back(by_size ? size : whole - pads[d] - pads[rank + d]);
  }
  return t;
}

// Where a pixel's value goes, times a cell of the kernel; -1: nowhere.
int64_t PlaceOf(const Transposed& t, int64_t pixel, int64_t cell) {
  int64_t place = 0, step = 1;
  for (size_t d = t.image.size(); d-- > 0;) {
    const int64_t at =
        pixel % t.image[d] * t.strides[d] + cell % t.kernel[d] * t.dilations[d] - t.cut[d];
    if (at < 0 || at >= t.dims[d + 2]) return -1;
    place += at * step;
    step *= t.dims[d + 2];
    pixel /= t.image[d];
    cell /= t.kernel[d];
  }
  return place;
}

// Every pixel adds the kernel, times its value, to the places behind its own.
// NOLINTNEXTLINE(readability-function-size): a loop per axis.
Results ConvTranspose(const Call& c) {
  const Array &x = *c.in[0], &weight = *c.in[1];
  ASSIGN_OR_RETURN(const Transposed t, ReadTransposed(c));
  ASSIGN_OR_RETURN(const int64_t count, CountOf(c, t.dims));
  std::vector<double> out(static_cast<size_t>(count), 0.0);
  const int64_t pixels = ProductOf(t.image), cells = ProductOf(t.kernel),
                places = ProductOf(t.dims, 2);
  const int64_t per_group = t.outputs / t.group, own = t.channels / t.group;
  for (int64_t pixel = 0; pixel < pixels; ++pixel) {
    for (int64_t cell = 0; cell < cells; ++cell) {
      RETURN_IF_ERROR(c.options.budget.Check());
      const int64_t place = PlaceOf(t, pixel, cell);
      for (int64_t r = 0; place >= 0 && r < x.dims[0]; ++r) {
        for (int64_t i = 0; i < t.channels; ++i) {
          const double value = x.at((r * t.channels + i) * pixels + pixel);
          for (int64_t o = 0; o < per_group; ++o) {
            const int64_t output = i / own * per_group + o;
            out[static_cast<size_t>((r * t.outputs + output) * places + place)] +=
                value * weight.at((i * per_group + o) * cells + cell);
          }
        }
      }
    }
  }
  for (int64_t k = 0; k < count; ++k) {
    double& value = out[static_cast<size_t>(k)];
    value = c.Round(x.type, value + (c.Has(2) ? c.in[2]->at(k / places % t.outputs) : 0));
  }
  return One(Floats(x.type, t.dims, std::move(out)));
}

// ----------------------------------------------------------------------- convolution, pooling

struct Window {
  Sizes kernel, strides, pads, dilations;  // Pads: all begins, then all ends.
  Sizes out;                               // Sizes of the result's spatial axes.
};

absl::StatusOr<Window> WindowOf(const Call& c, const Sizes& kernel, bool ceil_mode) {
  const Array& x = *c.in[0];
  Window w{.kernel = kernel,
           .strides = IntsAttribute(c.node, "strides"),
           .pads = IntsAttribute(c.node, "pads"),
           .dilations = IntsAttribute(c.node, "dilations")};
  const size_t n = kernel.size();
  if (w.strides.empty()) w.strides.assign(n, 1);
  if (w.pads.empty()) w.pads.assign(2 * n, 0);
  if (w.dilations.empty()) w.dilations.assign(n, 1);
  const std::string auto_pad = StringAttribute(c.node, "auto_pad", "NOTSET");
  const bool same = auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER";
  for (size_t d = 0; same && d < n && w.strides.size() == n && x.dims.size() == n + 2; ++d) {
    if (w.strides[d] < 1 || w.dilations.size() != n || w.pads.size() != 2 * n) break;
    const int64_t size = x.dims[d + 2], out = (size + w.strides[d] - 1) / w.strides[d];
    const int64_t extent = (kernel[d] - 1) * w.dilations[d] + 1;
    const int64_t pad = std::max<int64_t>(0, (out - 1) * w.strides[d] + extent - size);
    w.pads[d] = auto_pad == "SAME_UPPER" ? pad / 2 : pad - pad / 2;
    w.pads[n + d] = pad - w.pads[d];
  }
  if (w.strides.size() != n || w.pads.size() != 2 * n || w.dilations.size() != n ||
      x.dims.size() != n + 2) {
    return Misfit(c, "a window of another rank");
  }
  constexpr int64_t kMost = 1 << 20, kMostCells = 1 << 22;
  int64_t cells = 1;
  for (size_t d = 0; d < n; ++d) {
    for (const int64_t size :
         {w.kernel[d], w.strides[d], w.dilations[d], w.pads[d] + 1, w.pads[n + d] + 1}) {
      if (size < 1 || size > kMost) return Misfit(c, "a window that cannot be");
    }
    cells *= w.kernel[d];
    if (cells > kMostCells) return ResourceExhausted("a window of too many cells");
    const int64_t extent = (w.kernel[d] - 1) * w.dilations[d] + 1;
    const int64_t overhang = ceil_mode ? w.strides[d] - 1 : 0;
    const int64_t room = x.dims[d + 2] + w.pads[d] + w.pads[n + d] - extent + overhang;
    if (room < 0) return Misfit(c, "smaller than the window");
    int64_t out = room / w.strides[d] + 1;
    // The last window must begin within the input or the padding in front.
    if (ceil_mode && (out - 1) * w.strides[d] >= x.dims[d + 2] + w.pads[d]) --out;
    w.out.push_back(out);
  }
  return w;
}

// Calls fn(input place or -1 in the padding, kernel place) for the window at `out`.
template <typename Fn>
void WindowPlaces(const Window& w, const Sizes& image, const Sizes& out, Fn fn) {
  const size_t n = w.kernel.size();
  const int64_t cells = ProductOf(w.kernel);
  Sizes at(n, 0);
  for (int64_t cell = 0; cell < cells; ++cell, Step(w.kernel, at)) {
    int64_t place = 0;
    bool inside = true, counted = true;
    for (size_t d = 0; d < n; ++d) {
      const int64_t i = out[d] * w.strides[d] - w.pads[d] + at[d] * w.dilations[d];
      inside = inside && i >= 0 && i < image[d];
      counted = counted && i < image[d] + w.pads[n + d];
      place = place * image[d] + i;
    }
    fn(inside ? place : -1, cell, counted);
  }
}

template <typename Fn>
absl::Status EachWindow(const Call& c, const Window& w, Fn fn) {
  const int64_t count = ProductOf(w.out);
  Sizes at(w.out.size(), 0);
  for (int64_t k = 0; k < count; ++k, Step(w.out, at)) {
    RETURN_IF_ERROR(c.options.budget.Check());
    fn(k, at);
  }
  return absl::OkStatus();
}

// NOLINTNEXTLINE(readability-function-size): a loop per axis.
Results Conv(const Call& c) {
  RETURN_IF_ERROR(WantFloats(c));
  const Array &x = *c.in[0], &weight = *c.in[1];
  if (x.rank() < 3 || weight.rank() != x.rank()) return Misfit(c, "want an image and its weight");
  const Sizes image(x.dims.begin() + 2, x.dims.end());
  ASSIGN_OR_RETURN(const Window w,
                   WindowOf(c, Sizes(weight.dims.begin() + 2, weight.dims.end()), false));
  const int64_t group = IntAttribute(c.node, "group", 1);
  const int64_t channels = x.dims[1], outputs = weight.dims[0], per_group = weight.dims[1];
  if (group < 1 || outputs % group != 0 || per_group * group != channels) {
    return Misfit(c, "channels that do not fit");
  }
  if (c.Has(2) && c.in[2]->elements() != outputs) return Misfit(c, "a bias of another size");
  Sizes dims = {x.dims[0], outputs};
  dims.insert(dims.end(), w.out.begin(), w.out.end());
  ASSIGN_OR_RETURN(const int64_t count, CountOf(c, dims));
  const std::vector<double> in = ValuesOf(x), kernel = ValuesOf(weight);
  std::vector<double> out(static_cast<size_t>(count), 0.0);
  const int64_t pixels = ProductOf(image), places = ProductOf(w.out), cells = ProductOf(w.kernel);
  RETURN_IF_ERROR(EachWindow(c, w, [&](int64_t place, const Sizes& at) {
    WindowPlaces(w, image, at, [&](int64_t from, int64_t cell, bool) {
      if (from < 0) return;
      for (int64_t r = 0; r < x.dims[0]; ++r) {
        for (int64_t o = 0; o < outputs; ++o) {
          double& sum = out[static_cast<size_t>((r * outputs + o) * places + place)];
          const int64_t first = o / (outputs / group) * per_group;
          for (int64_t i = 0; i < per_group; ++i) {
            sum += in[static_cast<size_t>((r * channels + first + i) * pixels + from)] *
                   kernel[static_cast<size_t>((o * per_group + i) * cells + cell)];
          }
        }
      }
    });
  }));
  for (size_t k = 0; k < out.size(); ++k) {
    const int64_t o = static_cast<int64_t>(k) / places % outputs;
    out[k] = c.Round(x.type, out[k] + (c.Has(2) ? c.in[2]->at(o) : 0));
  }
  return One(Floats(x.type, dims, std::move(out)));
}

template <bool average>
Results Pool(const Call& c) {
  RETURN_IF_ERROR(WantFloats(c));
  const Array& x = *c.in[0];
  if (x.rank() < 3) return Misfit(c, "want an image");
  const Sizes image(x.dims.begin() + 2, x.dims.end());
  ASSIGN_OR_RETURN(const Window w, WindowOf(c, IntsAttribute(c.node, "kernel_shape"),
                                            IntAttribute(c.node, "ceil_mode", 0) != 0));
  const bool count_pad = IntAttribute(c.node, "count_include_pad", 0) != 0;
  Sizes dims = {x.dims[0], x.dims[1]};
  dims.insert(dims.end(), w.out.begin(), w.out.end());
  ASSIGN_OR_RETURN(const int64_t count, CountOf(c, dims));
  std::vector<double> out(static_cast<size_t>(count));
  const int64_t pixels = ProductOf(image), places = ProductOf(w.out);
  RETURN_IF_ERROR(EachWindow(c, w, [&](int64_t place, const Sizes& at) {
    for (int64_t plane = 0; plane < x.dims[0] * x.dims[1]; ++plane) {
      double most = -INFINITY, sum = 0;
      int64_t cells = 0;
      WindowPlaces(w, image, at, [&](int64_t from, int64_t, bool counted) {
        if (from >= 0 || (count_pad && counted)) ++cells;
        if (from < 0) return;
        most = std::max(most, x.at(plane * pixels + from));
        sum += x.at(plane * pixels + from);
      });
      const double value = average ? sum / static_cast<double>(cells) : most;
      out[static_cast<size_t>(plane * places + place)] = c.Round(x.type, value);
    }
  }));
  return One(Floats(x.type, dims, std::move(out)));
}

template <bool average>
Results GlobalPool(const Call& c) {
  RETURN_IF_ERROR(WantFloats(c));
  const Array& x = *c.in[0];
  if (x.rank() < 3) return Misfit(c, "want an image");
  Sizes dims = x.dims;
  std::fill(dims.begin() + 2, dims.end(), 1);
  const int64_t planes = x.dims[0] * x.dims[1];
  const int64_t pixels = planes == 0 ? 0 : x.elements() / planes;
  std::vector<double> out;
  for (int64_t plane = 0; plane < planes; ++plane) {
    double most = -INFINITY, sum = 0;
    for (int64_t i = 0; i < pixels; ++i) {
      most = std::max(most, x.at(plane * pixels + i));
      sum += x.at(plane * pixels + i);
    }
    out.push_back(c.Round(x.type, average ? sum / static_cast<double>(pixels) : most));
  }
  return One(Floats(x.type, dims, std::move(out)));
}

constexpr Operator kOperators[] = {
    {"Resize", 1, &Resize},
    {"Upsample", 1, &Resize},
    {"ConvTranspose", 2, &ConvTranspose},
    {"Conv", 2, &Conv},
    {"MaxPool", 1, &Pool</*average=*/false>},
    {"AveragePool", 1, &Pool</*average=*/true>},
    {"GlobalMaxPool", 1, &GlobalPool</*average=*/false>},
    {"GlobalAveragePool", 1, &GlobalPool</*average=*/true>},
};

}  // namespace

absl::Span<const Operator> ImageOperators() { return kOperators; }

}  // namespace ulfd::convert::reference

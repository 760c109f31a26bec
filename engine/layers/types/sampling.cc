// Layers that sample images between their places: roi_align (Mask R-CNN), spatial_transformer.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "engine/layers/checks.h"
#include "engine/layers/types/families.h"

namespace ulfd::engine {
namespace {

constexpr int64_t kMaxSide = 4096;  // Of an output.

// --------------------------------------------------------------------------------------- roi_align

struct RoiAlignParams {
  int64_t height = 0, width = 0;
  double scale = 1;
  int64_t samples = 0;  // Per cell and direction; 0: as many as the cell has places.
  bool end_inclusive = false;
};

// What a sample takes, in multiplications.
constexpr int64_t kSampleWork = 128;

// Where a sample lies between its four neighbours along one axis.
struct Between {
  int64_t low = 0, high = 0;
  double weight_low = 0, weight_high = 0;
};
Between Neighbours(double at, int64_t size) {
  at = std::max(at, 0.0);
  Between between;
  between.low = std::min(static_cast<int64_t>(at), size - 1);
  between.high = std::min(between.low + 1, size - 1);
  const double fraction = between.low == size - 1 ? 0.0 : at - static_cast<double>(between.low);
  between.weight_high = fraction;
  between.weight_low = 1 - fraction;
  return between;
}

class RoiAlignKernel final : public Kernel {
 public:
  explicit RoiAlignKernel(const RoiAlignParams& params) : p_(params) {}
  absl::Status Run(RunContext& ctx) const override {
    const Tensor& features = ctx.in[0];
    const int64_t regions = ctx.in[1].dims[0];
    const int64_t cells = p_.height * p_.width;
    for (int64_t r = 0; r < regions; ++r) {
      const float* region = ctx.in[1].f32() + r * 5;
      RETURN_IF_ERROR(Check(r, region, features));
      Align(region, features, ctx.out[0].f32() + r * features.dims[1] * cells, ctx.pace);
    }
    return absl::OkStatus();
  }

 private:
  // Of a cell along one axis; those within the image are a few of so many.
  static constexpr double kMaxSamples = 0x1p53;

  // A region along one axis, in places of the feature map.
  struct Side {
    double start, cell;
    int64_t samples;
  };
  Side SideOf(double begin, double end, int64_t cells) const {
    const double start = begin * p_.scale;
    const double stop = (end + (p_.end_inclusive ? 1 : 0)) * p_.scale;
    const double length = std::max(stop - start, 1.0);
    const double cell = length / static_cast<double>(cells);
    const double samples = std::clamp(std::ceil(cell), 1.0, kMaxSamples);
    return {start, cell, p_.samples > 0 ? p_.samples : static_cast<int64_t>(samples)};
  }

  absl::Status Check(int64_t index, const float* region, const Tensor& features) const {
    const auto error = [&](absl::string_view what) {
      return InvalidArgument("input 1: region ", index, " (", region[0], ", ", region[1], ", ",
                             region[2], ", ", region[3], ", ", region[4], "): ", what);
    };
    if (!std::all_of(region, region + 5, [](float v) { return std::abs(v) < 1e9f; })) {
      return error("want numbers below 1e9");
    }
    if (region[0] != std::floor(region[0]) || region[0] < 0 ||
        region[0] >= static_cast<float>(features.dims[0])) {
      return error(absl::StrCat("its first number, want a row of the features (0 to ",
                                features.dims[0] - 1, ")"));
    }
    const Side x = SideOf(region[1], region[3], p_.width),
               y = SideOf(region[2], region[4], p_.height);
    const auto outside = [](const Side& side, int64_t cells, int64_t size) {
      return side.start >= static_cast<double>(size) ||
             side.start + side.cell * static_cast<double>(cells) <= 0;
    };
    if (outside(x, p_.width, features.dims[3]) || outside(y, p_.height, features.dims[2])) {
      return error(absl::StrCat("lies outside the image of ", features.dims[2], " x ",
                                features.dims[3], " places"));
    }
    return absl::OkStatus();
  }

  // Samples [first, end) of cell `index` that count: those more than a place outside give 0.
  static std::pair<int64_t, int64_t> Inside(const Side& side, int64_t index, int64_t size) {
    const double step = side.cell / static_cast<double>(side.samples);
    const double start = side.start + static_cast<double>(index) * side.cell + step / 2;
    // One more on either side, so that rounding decides nothing: the loop checks again.
    const double first = std::floor((-1.0 - start) / step) - 1;
    const double end = std::ceil((static_cast<double>(size) - start) / step) + 2;
    const double count = static_cast<double>(side.samples);
    return {static_cast<int64_t>(std::clamp(first, 0.0, count)),
            static_cast<int64_t>(std::clamp(end, 0.0, count))};
  }
  static double At(const Side& side, int64_t cell, int64_t sample) {
    return side.start + static_cast<double>(cell) * side.cell +
           (static_cast<double>(sample) + 0.5) * side.cell / static_cast<double>(side.samples);
  }

  void Align(const float* region, const Tensor& features, float* y, Pace& pace) const {
    const int64_t channels = features.dims[1], height = features.dims[2], width = features.dims[3];
    const float* image =
        features.f32() + static_cast<int64_t>(region[0]) * channels * height * width;
    const Side across = SideOf(region[1], region[3], p_.width);
    const Side down = SideOf(region[2], region[4], p_.height);
    const double count = static_cast<double>(across.samples) * static_cast<double>(down.samples);
    for (int64_t c = 0; c < channels; ++c, image += height * width) {
      for (int64_t i = 0; i < p_.height; ++i) {
        for (int64_t j = 0; j < p_.width; ++j) {
          if (pace.Stops(kSampleWork)) return;
          *y++ =
              static_cast<float>(CellSum(image, height, width, down, i, across, j, pace) / count);
        }
      }
    }
  }
  static double CellSum(const float* image, int64_t height, int64_t width, const Side& down,
                        int64_t i, const Side& across, int64_t j, Pace& pace) {
    const auto [first_y, end_y] = Inside(down, i, height);
    const auto [first_x, end_x] = Inside(across, j, width);
    double sum = 0;
    for (int64_t a = first_y; a < end_y && !pace.Stops((end_x - first_x) * kSampleWork); ++a) {
      const double at_y = At(down, i, a);
      if (at_y < -1 || at_y > static_cast<double>(height)) continue;
      const Between y = Neighbours(at_y, height);
      for (int64_t b = first_x; b < end_x; ++b) {
        const double at_x = At(across, j, b);
        if (at_x < -1 || at_x > static_cast<double>(width)) continue;
        const Between x = Neighbours(at_x, width);
        sum += y.weight_low * (x.weight_low * image[y.low * width + x.low] +
                               x.weight_high * image[y.low * width + x.high]) +
               y.weight_high * (x.weight_low * image[y.high * width + x.low] +
                                x.weight_high * image[y.high * width + x.high]);
      }
    }
    return sum;
  }

  const RoiAlignParams p_;
};

// roi_align_layer (ROIAlign): each region is cut into pooled_h x pooled_w cells; a cell is the mean
// of its samples, each interpolated between the four nearest places.  Samples more than one place
// outside the image count as 0, nearer ones as the edge.  The level is that of the regions if the
// features have one row (of the user, say), else unknown: a region may look at any row of the
// request.  When it runs, a region that names no row, lies outside the image or is not finite is an
// error.
class RoiAlign final : public Layer {
 public:
  static absl::StatusOr<std::unique_ptr<Layer>> Parse(const ParseContext& ctx) {
    const ulf::ROIAlignParameter& p = ctx.param.roi_align_param();
    const std::pair<absl::string_view, int64_t> sizes[] = {{"pooled_h", p.pooled_h()},
                                                           {"pooled_w", p.pooled_w()}};
    for (const auto& [field, value] : sizes) {
      RETURN_IF_ERROR(WantBetween(absl::StrCat("roi_align_param.", field), value, 1, kMaxSide));
    }
    if (!(p.spatial_scale() > 0) || !std::isfinite(p.spatial_scale())) {
      return InvalidArgument("roi_align_param.spatial_scale: ", p.spatial_scale(),
                             ", want above 0");
    }
    if (p.roi_end_mode() != 0 && p.roi_end_mode() != 1) {
      return InvalidArgument("roi_align_param.roi_end_mode: ", p.roi_end_mode(), ", want 0 or 1");
    }
    if (p.sampling_ratio() > kMaxSide) {
      return InvalidArgument("roi_align_param.sampling_ratio: ", p.sampling_ratio(),
                             ", want at most ", kMaxSide);
    }
    return std::unique_ptr<Layer>(new RoiAlign({.height = p.pooled_h(),
                                                .width = p.pooled_w(),
                                                .scale = p.spatial_scale(),
                                                .samples = std::max<int64_t>(p.sampling_ratio(), 0),
                                                .end_inclusive = p.roi_end_mode() == 1}));
  }
  absl::StatusOr<TensorSpecs> Infer(absl::Span<const TensorSpec> in) const override {
    RETURN_IF_ERROR(WantImage(in));
    for (int axis : {2, 3}) {
      if (in[0].shape[axis] == Dim::Of(0)) return BadInput(0, in[0], "height and width above 0");
    }
    if (in[1].shape.rank() < 2 || !CouldBeEqual(in[1].shape.RowElements(), Dim::Of(5))) {
      return BadInput(1, in[1], "[regions, 5]: row of the features, x1, y1, x2, y2");
    }
    TensorSpec out{DType::kFloat32,
                   Shape({in[1].shape[0], in[0].shape[1], Dim::Of(p_.height), Dim::Of(p_.width)}),
                   Level::kUnknown};
    const Dim rows = in[0].shape[0];
    if (rows == Dim::Of(1) || rows == Dim::Users() || in[0].level == Level::kConstant) {
      out.level = LevelOf(out.shape, in);
    }
    return TensorSpecs{out};
  }
  void SuggestInputs(absl::Span<TensorSpec> in) const override {
    Suggest(in[1], Shape({Dim::Unknown(), Dim::Of(5)}), Level::kUnknown);
  }
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(absl::Span<const TensorSpec>) const override {
    return std::unique_ptr<Kernel>(new RoiAlignKernel(p_));
  }
  std::string Describe() const override {
    return absl::StrCat("pooled=", p_.height, "x", p_.width, " spatial_scale=", p_.scale,
                        " sampling_ratio=", p_.samples, " roi_end_mode=", p_.end_inclusive ? 1 : 0);
  }

 private:
  explicit RoiAlign(const RoiAlignParams& params) : p_(params) {}
  const RoiAlignParams p_;
};

// ----------------------------------------------------------------------------- spatial_transformer

// The six numbers of theta: fixed ones, and for the others their place in the second input.
struct Theta {
  std::array<double, 6> fixed{};
  std::array<int, 6> from{-1, -1, -1, -1, -1, -1};  // -1: fixed.
  int inputs = 0;
};

class SpatialTransformerKernel final : public Kernel {
 public:
  SpatialTransformerKernel(const Theta& theta, float border) : theta_(theta), border_(border) {}
  absl::Status Run(RunContext& ctx) const override {
    const Tensor& x = ctx.in[0];
    const Tensor& y = ctx.out[0];
    const int64_t x_row = x.dims[1] * x.dims[2] * x.dims[3];
    const int64_t y_row = y.dims[1] * y.dims[2] * y.dims[3];
    if (y.elements() == 0) return absl::OkStatus();
    for (int64_t row = 0; row < y.dims[0]; ++row) {
      std::array<double, 6> theta = theta_.fixed;
      if (theta_.inputs > 0) {
        const Tensor& given = ctx.in[1];
        const float* values = given.f32() + (given.dims[0] == 1 ? 0 : row) * theta_.inputs;
        for (int k = 0; k < 6; ++k) {
          if (theta_.from[k] >= 0) theta[k] = values[theta_.from[k]];
        }
      }
      Transform(theta, x, x.f32() + (x.dims[0] == 1 ? 0 : row) * x_row, y,
                ctx.out[0].f32() + row * y_row, ctx.pace);
    }
    return absl::OkStatus();
  }

 private:
  void Transform(const std::array<double, 6>& theta, const Tensor& x, const float* image,
                 const Tensor& y, float* out, Pace& pace) const {
    const int64_t out_h = y.dims[2], out_w = y.dims[3];
    for (int64_t i = 0; i < out_h && !pace.Stops(out_w * x.dims[1] * kSampleWork); ++i) {
      const double u = static_cast<double>(i) / static_cast<double>(out_h) * 2 - 1;
      for (int64_t j = 0; j < out_w; ++j) {
        const double v = static_cast<double>(j) / static_cast<double>(out_w) * 2 - 1;
        const double px = theta[0] * u + theta[1] * v + theta[2];
        const double py = theta[3] * u + theta[4] * v + theta[5];
        SamplePlaces((px + 1) / 2 * static_cast<double>(x.dims[2]),
                     (py + 1) / 2 * static_cast<double>(x.dims[3]), x, image, out + i * out_w + j,
                     out_h * out_w);
      }
    }
  }
  // All channels at row `down`, column `across`.
  void SamplePlaces(double down, double across, const Tensor& x, const float* image, float* out,
                    int64_t out_step) const {
    const int64_t height = x.dims[2], width = x.dims[3];
    std::array<int64_t, 4> places{};
    std::array<double, 4> weights{};
    int inside = 0;
    double inside_weight = 0;
    // Also false for NaN.
    if (down > -1 && down < static_cast<double>(height) && across > -1 &&
        across < static_cast<double>(width)) {
      const int64_t m = static_cast<int64_t>(std::floor(down));
      const int64_t n = static_cast<int64_t>(std::floor(across));
      for (int64_t corner = 0; corner < 4; ++corner) {
        const int64_t row = m + corner / 2, column = n + corner % 2;
        const double weight = (1 - std::abs(down - static_cast<double>(row))) *
                              (1 - std::abs(across - static_cast<double>(column)));
        if (row < 0 || row >= height || column < 0 || column >= width || weight <= 0) continue;
        places[inside] = row * width + column;
        weights[inside++] = weight;
        inside_weight += weight;
      }
    }
    const double rest = inside == 0 ? border_ : border_ * (1 - inside_weight);
    for (int64_t c = 0; c < x.dims[1]; ++c, image += height * width, out += out_step) {
      double value = rest;
      for (int k = 0; k < inside; ++k) value += weights[k] * image[places[k]];
      *out = static_cast<float>(value);
    }
  }

  const Theta theta_;
  const double border_;
};

// spatial_transformer_layer (SpatialTransformer): place (i, j) of the output is the image at
//   (x, y) = theta * (i/height'*2 - 1, j/width'*2 - 1, 1), read as row (x + 1)/2*height, column
//   (y + 1)/2*width, and interpolated: sum over the four nearest (m, n) of
//   (1 - |row - m|) * (1 - |column - n|) * image[m, n], border_value where the image has no (m, n).
// The published code has its slips: a closing bracket too late, so that only the second factor
// meets the image; abs, which cuts fractions off in C, for fabs.  Its first coordinate runs down,
// which is kept.
// One row of either input serves all rows of the other.  st_param is another published spelling of
// spatial_transform_param.
class SpatialTransformer final : public Layer {
 public:
  static absl::StatusOr<std::unique_ptr<Layer>> Parse(const ParseContext& ctx) {
    const ulf::LayerParameter& param = ctx.param;
    if (param.has_st_param() && param.has_spatial_transform_param()) {
      return InvalidArgument("has a spatial_transform_param and an st_param, want one of them");
    }
    auto layer = std::unique_ptr<SpatialTransformer>(new SpatialTransformer);
    RETURN_IF_ERROR(param.has_st_param() ? layer->Read(param.st_param())
                                         : layer->Read(param.spatial_transform_param()));
    const bool wants_theta = layer->theta_.inputs > 0;
    if (wants_theta != (param.bottom_size() == 2)) {
      return InvalidArgument(
          param.bottom_size(), param.bottom_size() == 1 ? " bottom" : " bottoms", ", want ",
          wants_theta ? absl::StrCat("2: theta is not fixed, its ", layer->theta_.inputs,
                                     " free elements are the second")
                      : "1: all of theta is fixed");
    }
    return std::unique_ptr<Layer>(std::move(layer));
  }
  absl::StatusOr<TensorSpecs> Infer(absl::Span<const TensorSpec> in) const override {
    RETURN_IF_ERROR(WantImage(in));
    TensorSpec out = in[0];
    if (theta_.inputs > 0) {
      if (in[1].shape.rank() < 2 ||
          !CouldBeEqual(in[1].shape.RowElements(), Dim::Of(theta_.inputs))) {
        return BadInput(1, in[1], "[rows, ", theta_.inputs, "] (theta)");
      }
      const std::optional<Dim> rows = Broadcast(in[0].shape[0], in[1].shape[0]);
      if (!rows.has_value()) {
        return BadInput(1, in[1], "1 row or as many as input 0's shape ", in[0].shape.ToString());
      }
      out.shape[0] = *rows;
    }
    for (int axis : {2, 3}) {
      if (in[0].shape[axis] == Dim::Of(0)) return BadInput(0, in[0], "height and width above 0");
      if (size_[axis - 2] > 0) out.shape[axis] = Dim::Of(size_[axis - 2]);
    }
    return OnlyOutput(std::move(out), in);
  }
  void SuggestInputs(absl::Span<TensorSpec> in) const override {
    if (theta_.inputs > 0) {
      Suggest(in[1], Shape({Dim::Unknown(), Dim::Of(theta_.inputs)}), Level::kUnknown);
    }
  }
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(absl::Span<const TensorSpec>) const override {
    return std::unique_ptr<Kernel>(new SpatialTransformerKernel(theta_, border_));
  }
  std::string Describe() const override {
    return absl::StrCat(
        "output=", size_[0], "x", size_[1],
        " theta=", theta_.inputs == 0 ? "fixed" : absl::StrCat(theta_.inputs, " from input 1"));
  }

 private:
  SpatialTransformer() = default;

  absl::Status Read(const ulf::SpatialTransformParameter& p) {
    RETURN_IF_ERROR(SetSize("spatial_transform_param.output_h", p.output_h(), 0));
    RETURN_IF_ERROR(SetSize("spatial_transform_param.output_w", p.output_w(), 1));
    border_ = p.border_value();
    const int given = p.affine_transform_size();
    if (given != 0 && given != 6) {
      return InvalidArgument("spatial_transform_param.affine_transform: ", given,
                             " values, want 6 (or none, and theta as the second bottom)");
    }
    for (int k = 0; k < 6; ++k) {
      if (given == 6) {
        theta_.fixed[k] = p.affine_transform(k);
      } else {
        theta_.from[k] = theta_.inputs++;
      }
    }
    return absl::OkStatus();
  }
  absl::Status Read(const ulf::SpatialTransformerParameter& p) {
    if (p.transform_type() != "affine") {
      return InvalidArgument("st_param.transform_type: \"", p.transform_type(),
                             "\", want \"affine\"");
    }
    if (p.sampler_type() != "bilinear") {
      return InvalidArgument("st_param.sampler_type: \"", p.sampler_type(),
                             "\", want \"bilinear\"");
    }
    RETURN_IF_ERROR(SetSize("st_param.output_H", p.output_h(), 0));
    RETURN_IF_ERROR(SetSize("st_param.output_W", p.output_w(), 1));
    const std::pair<bool, double> elements[6] = {
        {p.has_theta_1_1(), p.theta_1_1()}, {p.has_theta_1_2(), p.theta_1_2()},
        {p.has_theta_1_3(), p.theta_1_3()}, {p.has_theta_2_1(), p.theta_2_1()},
        {p.has_theta_2_2(), p.theta_2_2()}, {p.has_theta_2_3(), p.theta_2_3()}};
    for (int k = 0; k < 6; ++k) {
      if (elements[k].first) {
        theta_.fixed[k] = elements[k].second;
      } else {
        theta_.from[k] = theta_.inputs++;
      }
    }
    return absl::OkStatus();
  }
  absl::Status SetSize(absl::string_view field, int64_t value, int axis) {
    RETURN_IF_ERROR(WantBetween(field, value, 0, kMaxSide));
    size_[axis] = value;
    return absl::OkStatus();
  }

  Theta theta_;
  std::array<int64_t, 2> size_{};
  float border_ = 0;
};

constexpr LayerType kTypes[] = {
    {.name = "roi_align_layer",
     .summary = "regions of an image, each sampled on a fixed grid",
     .inputs = {2, 2},
     .param_field = ulf::LayerParameter::kRoiAlignParamFieldNumber,
     .parse = &RoiAlign::Parse,
     .aliases = "ROIAlign",
     .image_inputs = 1,
     .image_outputs = 1,
     .doc = {.formula =
                 "the mean of bilinear samples in each of pooled_h x pooled_w cells of a region",
             .inputs = "features [n, channels, height, width] float32\nregions [r, 5] float32: row "
                       "of the features, x1, y1, x2, y2",
             .source =
                 "ROIAlign of the extension operators; torchvision.ops.roi_align (aligned=False)",
             .example_inputs = "x@user:2,4,4;rois:5",
             .example_param = "roi_align_param { pooled_h: 2 pooled_w: 2 sampling_ratio: 2 }"}},
    {.name = "spatial_transformer_layer",
     .summary = "an image under an affine map, bilinear",
     .inputs = {1, 2},
     .param_field = ulf::LayerParameter::kSpatialTransformParamFieldNumber,
     .parse = &SpatialTransformer::Parse,
     .aliases = "SpatialTransformer SpatialTransform",
     .other_param_field = ulf::LayerParameter::kStParamFieldNumber,
     .image_inputs = 1,
     .image_outputs = 1,
     .doc = {.formula = "y at (i, j) = x at theta * (i/h*2 - 1, j/w*2 - 1, 1), bilinear, "
                        "border_value outside",
             .inputs = "x [rows, channels, height, width] float32\ntheta [rows, 6], or its "
                       "elements that no parameter fixes",
             .source = "SpatialTransformer of the extension operators; arXiv:1506.02025",
             .example_inputs = "x:2,3,3;theta:6",
             .example_param = "spatial_transform_param { output_h: 2 output_w: 2 }"}},
};

}  // namespace

absl::Span<const LayerType> SamplingLayers() { return kTypes; }

}  // namespace ulfd::engine

// Layers of detection heads: yolo, prior_box (SSD).
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "engine/kernels/table.h"
#include "engine/layers/checks.h"
#include "engine/layers/types/families.h"

namespace ulfd::engine {
namespace {

// ---------------------------------------------------------------------------------------- yolo

struct YoloHead {
  int64_t boxes = 0, coords = 0, classes = 0;
  bool softmax = false;     // Over the classes.
  bool background = false;  // The objectness is the logit of a class of its own.
  int64_t BoxChannels() const { return coords + 1 + classes; }
};

class YoloKernel final : public Kernel {
 public:
  explicit YoloKernel(const YoloHead& head) : head_(head) {}
  size_t ScratchBytes(absl::Span<const Tensor> in) const override {
    if (!head_.softmax || !head_.background) return 0;
    const int64_t places = in[0].dims[2] * in[0].dims[3];
    return static_cast<size_t>(places * (head_.classes + 1)) * sizeof(float);
  }
  absl::Status Run(RunContext& ctx) const override {
    const Tensor& x = ctx.in[0];
    const int64_t places = x.dims[2] * x.dims[3];
    if (x.elements() == 0) return absl::OkStatus();
    const float* from = x.f32();
    float* coords = ctx.out[0].f32();
    float* objects = ctx.out[1].f32();
    float* classes = ctx.out[2].f32();
    for (int64_t box = x.dims[0] * head_.boxes; box > 0; --box) {
      Kernels().unary(UnaryOp::kSigmoid, from, coords, 2 * places);  // x and y
      std::copy_n(from + 2 * places, (head_.coords - 2) * places, coords + 2 * places);
      RunClasses(from + head_.coords * places, places, static_cast<float*>(ctx.scratch), objects,
                 classes);
      from += head_.BoxChannels() * places;
      coords += head_.coords * places;
      objects += places;
      classes += head_.classes * places;
    }
    return absl::OkStatus();
  }

 private:
  // The classes follow the objectness in the input.
  void RunClasses(const float* object, int64_t places, float* scratch, float* objects,
                  float* classes) const {
    if (head_.softmax && head_.background) {
      Kernels().softmax(object, scratch, 1, head_.classes + 1, places, /*log=*/false);
      std::copy_n(scratch, places, objects);
      std::copy_n(scratch + places, head_.classes * places, classes);
      return;
    }
    if (head_.background) {
      std::copy_n(object, places, objects);
    } else {
      Kernels().unary(UnaryOp::kSigmoid, object, objects, places);
    }
    if (head_.softmax) {
      Kernels().softmax(object + places, classes, 1, head_.classes, places, /*log=*/false);
    } else {
      Kernels().unary(UnaryOp::kSigmoid, object + places, classes, head_.classes * places);
    }
  }

  const YoloHead head_;
};

// yolo_layer (Yolo).  Channels of x: for each box coords (x, y, w, h), one objectness, classes.  x,
// y: sigmoid; w, h: as they are; objectness: sigmoid; classes: sigmoid.  V2 with softmax: softmax
// over the classes; with background, too: over objectness and classes together; background alone:
// the objectness as it is.  Outputs: boxes*coords, boxes and boxes*classes channels.
class Yolo final : public Layer {
 public:
  static absl::StatusOr<std::unique_ptr<Layer>> Parse(const ParseContext& ctx) {
    const ulf::YoloParameter& p = ctx.param.yolo_param();
    const struct {
      absl::string_view field;
      int64_t value, min;
    } counts[] = {{"boxes", p.boxes(), 1}, {"coords", p.coords(), 2}, {"classes", p.classes(), 1}};
    for (const auto& count : counts) {
      RETURN_IF_ERROR(
          WantBetween(absl::StrCat("yolo_param.", count.field), count.value, count.min, kMaxCount));
    }
    if (p.softmaxtree()) {
      return InvalidArgument(
          "yolo_param.softmaxtree: true, want false (the published format names it without a "
          "definition)");
    }
    const bool v2 = p.yolo_version() == "V2";
    if (!v2 && p.yolo_version() != "V3") {
      return InvalidArgument("yolo_param.yolo_version: \"", p.yolo_version(),
                             "\", want \"V2\" or \"V3\"");
    }
    if (!v2 && (p.softmax() || p.background())) {
      ctx.notices.push_back(absl::StrCat("yolo_param.", p.softmax() ? "softmax" : "background",
                                         " has no effect on V3: every class gets a sigmoid"));
    }
    return std::unique_ptr<Layer>(new Yolo({.boxes = p.boxes(),
                                            .coords = p.coords(),
                                            .classes = p.classes(),
                                            .softmax = v2 && p.softmax(),
                                            .background = v2 && p.background()}));
  }
  absl::StatusOr<TensorSpecs> Infer(absl::Span<const TensorSpec> in) const override {
    RETURN_IF_ERROR(WantImage(in));
    const int64_t channels = head_.boxes * head_.BoxChannels();
    if (!CouldBeEqual(in[0].shape[1], Dim::Of(channels))) {
      return BadInput(0, in[0], channels, " channels (", head_.boxes, " boxes x (", head_.coords,
                      " coords + 1 + ", head_.classes, " classes))");
    }
    TensorSpecs out(3, in[0]);
    out[0].shape[1] = Dim::Of(head_.boxes * head_.coords);
    out[1].shape[1] = Dim::Of(head_.boxes);
    out[2].shape[1] = Dim::Of(head_.boxes * head_.classes);
    return out;
  }
  void SuggestInputs(absl::Span<TensorSpec> in) const override {
    Suggest(in[0],
            Shape({Dim::Unknown(), Dim::Of(head_.boxes * head_.BoxChannels()), Dim::Unknown(),
                   Dim::Unknown()}),
            Level::kUnknown);
  }
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(absl::Span<const TensorSpec>) const override {
    return std::unique_ptr<Kernel>(new YoloKernel(head_));
  }
  std::string Describe() const override {
    return absl::StrCat("boxes=", head_.boxes, " coords=", head_.coords, " classes=", head_.classes,
                        head_.softmax ? " softmax=true" : "",
                        head_.background ? " background=true" : "");
  }

 private:
  static constexpr int64_t kMaxCount = 65536;
  explicit Yolo(const YoloHead& head) : head_(head) {}
  const YoloHead head_;
};

// --------------------------------------------------------------------------------------- prior_box

struct BoxSize {
  float width, height;  // In pixels.
};

class PriorBoxKernel final : public Kernel {
 public:
  PriorBoxKernel(const ulf::PriorBoxParameter& p, std::vector<BoxSize> sizes)
      : p_(p), sizes_(std::move(sizes)) {}
  absl::Status Run(RunContext& ctx) const override {
    const Tensor& features = ctx.in[0];
    const int64_t height = features.dims[2], width = features.dims[3];
    const double image_w = ImageSide(ctx, 3), image_h = ImageSide(ctx, 2);
    const double step_w = Step(p_.step_w(), image_w, width);
    const double step_h = Step(p_.step_h(), image_h, height);
    float* y = ctx.out[0].f32();
    for (int64_t h = 0; h < height; ++h) {
      for (int64_t w = 0; w < width; ++w) {
        const double x_center = (static_cast<double>(w) + p_.offset()) * step_w;
        const double y_center = (static_cast<double>(h) + p_.offset()) * step_h;
        for (const BoxSize& size : sizes_) {
          *y++ = Limited((x_center - size.width / 2) / image_w);
          *y++ = Limited((y_center - size.height / 2) / image_h);
          *y++ = Limited((x_center + size.width / 2) / image_w);
          *y++ = Limited((y_center + size.height / 2) / image_h);
        }
      }
    }
    const int variances = p_.variance_size();
    const int64_t boxes = height * width * static_cast<int64_t>(sizes_.size());
    for (int64_t i = 0; i < 4 * boxes; ++i) {
      *y++ = variances == 0 ? 0.1f : p_.variance(variances == 1 ? 0 : static_cast<int>(i % 4));
    }
    return absl::OkStatus();
  }

 private:
  double ImageSide(const RunContext& ctx, int axis) const {
    if (p_.has_img_size()) return p_.img_size();
    if (p_.has_img_h()) return axis == 2 ? p_.img_h() : p_.img_w();
    return static_cast<double>(ctx.in[1].dims[axis]);
  }
  double Step(float stated, double image, int64_t places) const {
    if (p_.has_step()) return p_.step();
    return p_.has_step_h() ? stated : image / static_cast<double>(places);
  }
  float Limited(double value) const {
    return static_cast<float>(p_.clip() ? std::clamp(value, 0.0, 1.0) : value);
  }

  const ulf::PriorBoxParameter p_;
  const std::vector<BoxSize> sizes_;
};

// prior_box_layer (PriorBox): default boxes (xmin, ymin, xmax, ymax, as parts of the image) at
// every place of a feature map, then a variance for each number: [1, 2,
// height*width*num_priors*4].  Boxes per place, in this order, for each min_size: the square of
// that side; the square of sqrt(min*max), if there are max_sizes; for each aspect ratio r but 1:
// min*sqrt(r) wide, min/sqrt(r) high.  So num_priors = min_sizes * (1 + ratios) + max_sizes, ratios
// counted after flip.  Only the sizes of the inputs count, so that the output is constant unless
// one belongs to the ads (the plan then computes one request as a whole).
class PriorBox final : public Layer {
 public:
  static absl::StatusOr<std::unique_ptr<Layer>> Parse(const ParseContext& ctx) {
    const ulf::PriorBoxParameter& p = ctx.param.prior_box_param();
    RETURN_IF_ERROR(CheckSizes(p));
    RETURN_IF_ERROR(CheckImage(p, ctx.param.bottom_size()));
    return std::unique_ptr<Layer>(new PriorBox(p, SizesOf(p)));
  }
  absl::StatusOr<TensorSpecs> Infer(absl::Span<const TensorSpec> in) const override {
    RETURN_IF_ERROR(WantFloat32(in));
    Level level = Level::kConstant;
    for (int i = 0; i < static_cast<int>(in.size()); ++i) {
      RETURN_IF_ERROR(WantRank(in, i, 4, 4));
      for (int axis : {2, 3}) {
        if (in[i].shape[axis] == Dim::Of(0)) return BadInput(i, in[i], "height and width above 0");
      }
      level = Join(level, in[i].level);
    }
    const Dim numbers = Dim::Of(4 * static_cast<int64_t>(sizes_.size()));
    TensorSpec out{DType::kFloat32,
                   Shape({Dim::Of(1), Dim::Of(2),
                          Multiply(Multiply(in[0].shape[2], in[0].shape[3]), numbers)}),
                   level >= Level::kAd ? Level::kUnknown : Level::kConstant};
    return TensorSpecs{out};
  }
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(absl::Span<const TensorSpec>) const override {
    return std::unique_ptr<Kernel>(new PriorBoxKernel(p_, sizes_));
  }
  std::string Describe() const override { return absl::StrCat("num_priors=", sizes_.size()); }

 private:
  PriorBox(const ulf::PriorBoxParameter& p, std::vector<BoxSize> sizes)
      : p_(p), sizes_(std::move(sizes)) {}

  static absl::Status WantAboveZero(absl::string_view field,
                                    const google::protobuf::RepeatedField<float>& values) {
    for (float value : values) {
      if (value > 0 && std::isfinite(value)) continue;
      return InvalidArgument("prior_box_param.", field, ": ", value, ", want above 0");
    }
    return absl::OkStatus();
  }
  static absl::Status WantFew(absl::string_view field, int values) {
    constexpr int kMost = 1000;  // Each ratio is compared with all others.
    if (values <= kMost) return absl::OkStatus();
    return InvalidArgument("prior_box_param.", field, ": ", values, " values, want at most ",
                           kMost);
  }
  static absl::Status CheckSizes(const ulf::PriorBoxParameter& p) {
    if (p.min_size().empty()) {
      return InvalidArgument("prior_box_param.min_size: none, want at least one");
    }
    RETURN_IF_ERROR(WantFew("min_size", p.min_size_size()));
    RETURN_IF_ERROR(WantFew("aspect_ratio", p.aspect_ratio_size()));
    RETURN_IF_ERROR(WantAboveZero("min_size", p.min_size()));
    RETURN_IF_ERROR(WantAboveZero("max_size", p.max_size()));
    RETURN_IF_ERROR(WantAboveZero("aspect_ratio", p.aspect_ratio()));
    RETURN_IF_ERROR(WantAboveZero("variance", p.variance()));
    if (!p.max_size().empty() && p.max_size_size() != p.min_size_size()) {
      return InvalidArgument("prior_box_param.max_size: ", p.max_size_size(),
                             " values, want none or ", p.min_size_size(), ", one per min_size");
    }
    for (int i = 0; i < p.max_size_size(); ++i) {
      if (p.max_size(i) > p.min_size(i)) continue;
      return InvalidArgument("prior_box_param.max_size: ", p.max_size(i),
                             ", want above its min_size ", p.min_size(i));
    }
    const int variances = p.variance_size();
    if (variances != 0 && variances != 1 && variances != 4) {
      return InvalidArgument("prior_box_param.variance: ", variances, " values, want none, 1 or 4");
    }
    return absl::OkStatus();
  }
  static absl::Status CheckImage(const ulf::PriorBoxParameter& p, int bottoms) {
    const auto field = [](absl::string_view name, absl::string_view what) {
      return InvalidArgument("prior_box_param.", name, ": ", what);
    };
    if (p.has_img_size() && (p.has_img_h() || p.has_img_w())) {
      return field("img_size", "set, want no img_h or img_w beside it");
    }
    if (p.has_img_h() != p.has_img_w()) {
      return field(p.has_img_h() ? "img_w" : "img_h", "not set, want both img_h and img_w or none");
    }
    if (p.has_step() && (p.has_step_h() || p.has_step_w())) {
      return field("step", "set, want no step_h or step_w beside it");
    }
    if (p.has_step_h() != p.has_step_w()) {
      return field(p.has_step_h() ? "step_w" : "step_h",
                   "not set, want both step_h and step_w or none");
    }
    const bool stated = p.has_img_size() || p.has_img_h();
    if (stated && (p.has_img_size() ? p.img_size() < 1 : p.img_h() < 1 || p.img_w() < 1)) {
      return field(p.has_img_size() ? "img_size" : "img_h, img_w", "0, want 1 or more");
    }
    if ((p.has_step() && !(p.step() > 0)) ||
        (p.has_step_h() && !(p.step_h() > 0 && p.step_w() > 0))) {
      return field(p.has_step() ? "step" : "step_h, step_w",
                   "not above 0, want a number of pixels");
    }
    if (!stated && bottoms < 2) {
      return InvalidArgument("1 bottom, want 2 (features and image) or prior_box_param.img_size");
    }
    return absl::OkStatus();
  }
  static std::vector<BoxSize> SizesOf(const ulf::PriorBoxParameter& p) {
    std::vector<double> ratios;  // Without 1.
    const auto add = [&ratios](double ratio) {
      constexpr double kSame = 1e-6;
      if (std::abs(ratio - 1) < kSame) return;
      for (double known : ratios) {
        if (std::abs(ratio - known) < kSame) return;
      }
      ratios.push_back(ratio);
    };
    for (double ratio : p.aspect_ratio()) {
      const size_t before = ratios.size();
      add(ratio);
      if (p.flip() && ratios.size() > before) add(1 / ratio);
    }
    std::vector<BoxSize> sizes;
    for (int i = 0; i < p.min_size_size(); ++i) {
      const double min = p.min_size(i);
      sizes.push_back({p.min_size(i), p.min_size(i)});
      if (!p.max_size().empty()) {
        const float side = static_cast<float>(std::sqrt(min * p.max_size(i)));
        sizes.push_back({side, side});
      }
      for (double ratio : ratios) {
        sizes.push_back({static_cast<float>(min * std::sqrt(ratio)),
                         static_cast<float>(min / std::sqrt(ratio))});
      }
    }
    return sizes;
  }

  const ulf::PriorBoxParameter p_;
  const std::vector<BoxSize> sizes_;
};

constexpr LayerType kTypes[] = {
    {.name = "yolo_layer",
     .summary = "activations of a YOLO head: coordinates, objectness, classes",
     .outputs = {3, 3},
     .param_field = ulf::LayerParameter::kYoloParamFieldNumber,
     .parse = &Yolo::Parse,
     .aliases = "Yolo",
     .image_inputs = 1,
     .image_outputs = 7,
     .doc = {.formula = "sigmoid of x, y, objectness and classes of each box; V2 with softmax: "
                        "softmax over the classes",
             .inputs = "x [rows, boxes*(coords + 1 + classes), height, width] float32",
             .source = "Yolo of the extension operators; Darknet",
             .example_inputs = "x:14,2,2",
             .example_param = "yolo_param { boxes: 2 coords: 4 classes: 2 yolo_version: \"V3\" }"}},
    {.name = "prior_box_layer",
     .summary = "default boxes of a feature map and their variances",
     .inputs = {1, 2},
     .param_field = ulf::LayerParameter::kPriorBoxParamFieldNumber,
     .parse = &PriorBox::Parse,
     .aliases = "PriorBox",
     .image_inputs = 3,
     .doc =
         {.formula = "boxes (xmin, ymin, xmax, ymax) of each place for each size and aspect ratio, "
                     "then their variances",
          .inputs =
              "features and image [rows, channels, height, width] float32; only their sizes count",
          .source = "PriorBox of the extension operators; SSD",
          .example_inputs = "x@user:2,2,2",
          .example_param =
              "prior_box_param { min_size: 30 max_size: 60 aspect_ratio: 2 img_size: 300 }"}},
};

}  // namespace

absl::Span<const LayerType> DetectionLayers() { return kTypes; }

}  // namespace ulfd::engine

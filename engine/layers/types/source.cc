// Where tensors come from or come together: constant, fuse.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "engine/layers/checks.h"
#include "engine/layers/common/function_kernel.h"
#include "engine/layers/types/families.h"

namespace ulfd::engine {
namespace {

// ---------------------------------------------------------------------------------------- constant

// constant_layer.  A bottom, as in the layer guide's example, is ignored with a notice.
class Constant final : public Layer {
 public:
  static absl::StatusOr<std::unique_ptr<Layer>> Parse(const ParseContext& ctx) {
    if (!ctx.param.has_constant_param()) {
      return InvalidArgument("constant_param: absent, want the tensor");
    }
    const ulf::BlobData& blob = ctx.param.constant_param().blob_data();
    std::vector<int64_t> dims(blob.shape().begin(), blob.shape().end());
    int64_t elements = 1;
    for (int64_t d : dims) {
      if (d < 0) {
        return InvalidArgument("constant_param.blob_data.shape: ", ToString(dims),
                               ", want sizes of 0 or more");
      }
      elements = std::min<int64_t>(elements * d, int64_t{1} << 31);
    }
    if (elements != blob.data_size()) {
      return InvalidArgument("constant_param.blob_data: ", blob.data_size(), " values, want ",
                             elements, " for shape ", ToString(dims));
    }
    if (ctx.param.bottom_size() > 0) {
      ctx.notices.push_back(absl::StrCat("bottom \"", ctx.param.bottom(0),
                                         "\" is ignored: a constant reads nothing"));
    }
    return std::unique_ptr<Layer>(
        new Constant(Shape::Of(dims), std::vector<float>(blob.data().begin(), blob.data().end())));
  }
  absl::StatusOr<TensorSpecs> Infer(absl::Span<const TensorSpec>) const override {
    return TensorSpecs{TensorSpec{DType::kFloat32, shape_, Level::kConstant}};
  }
  Semantics semantics() const override {
    return {.op = Semantics::Op::kConstant, .constant = data_};
  }
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(absl::Span<const TensorSpec>) const override {
    return MakeKernel(
        [data = data_](RunContext& ctx) { std::copy(data.begin(), data.end(), ctx.out[0].f32()); });
  }
  std::string Describe() const override { return absl::StrCat("shape=", shape_.ToString()); }

 private:
  Constant(Shape shape, std::vector<float> data)
      : shape_(std::move(shape)), data_(std::move(data)) {}
  const Shape shape_;
  const std::vector<float> data_;
};

// ---------------------------------------------------------------------------------------- fuse

// fuse_layer: [1, a], the common input, whose row is repeated, and [N, b] side by side, columns in
// the order of the inputs.  The level is that of the other input.  Of several common_input_index
// only the first counts (a notice).
class Fuse final : public Layer {
 public:
  static absl::StatusOr<std::unique_ptr<Layer>> Parse(const ParseContext& ctx) {
    if (!ctx.param.has_fuse_param()) return std::unique_ptr<Layer>(new Fuse(0));
    const auto& indices = ctx.param.fuse_param().common_input_index();
    if (indices.empty()) {
      return InvalidArgument("fuse_param.common_input_index: empty, want 0 or 1");
    }
    if (indices[0] != 0 && indices[0] != 1) {
      return InvalidArgument("fuse_param.common_input_index: ", indices[0], ", want 0 or 1");
    }
    if (indices.size() > 1) {
      ctx.notices.push_back(absl::StrCat("fuse_param.common_input_index has ", indices.size(),
                                         " values: only the first, ", indices[0], ", counts"));
    }
    return std::unique_ptr<Layer>(new Fuse(indices[0]));
  }
  absl::StatusOr<TensorSpecs> Infer(absl::Span<const TensorSpec> in) const override {
    RETURN_IF_ERROR(WantOneType(in));
    for (int i = 0; i < 2; ++i) RETURN_IF_ERROR(WantRank(in, i, 2, 2));
    const Dim common = in[common_].shape[0];
    if (!CouldBeEqual(common, Dim::Of(1))) {
      return BadInput(common_, in[common_], "1 row (fuse_param.common_input_index names it)");
    }
    Dim rows = in[1 - common_].shape[0];
    if (rows == Dim::Of(1) && common.IsUsers()) rows = common;
    TensorSpec out{in[0].dtype, Shape({rows, Sum(in[0].shape[1], in[1].shape[1])}),
                   Level::kUnknown};
    // Exports leave embedding_param.level at 0 for user features, too, so that the common input may
    // look like the ads'. It has one row all the same, but then nothing is known of whose rows
    // these are.
    if (!common.IsAds()) out.level = LevelOf(out.shape, in);
    return TensorSpecs{out};
  }
  void SuggestInputs(absl::Span<TensorSpec> in) const override {
    Suggest(in[common_], Shape({Dim::Users(), Dim::Unknown()}), Level::kUser);
    Suggest(in[1 - common_], Shape({Dim::Ads(), Dim::Unknown()}), Level::kAd);
  }
  Semantics semantics() const override { return {.op = Semantics::Op::kFuse, .axis = common_}; }
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(absl::Span<const TensorSpec>) const override {
    return MakeKernel([](RunContext& ctx) {
      const Tensor& out = ctx.out[0];
      const size_t row = out.dims[1] * SizeOf(out.dtype);
      char* to = static_cast<char*>(ctx.out[0].data);
      for (const Tensor& x : ctx.in) {
        const size_t piece = x.dims[1] * SizeOf(x.dtype);
        const size_t step = x.dims[0] == 1 ? 0 : piece;
        const char* from = static_cast<const char*>(x.data);
        for (int64_t r = 0; r < out.dims[0] && piece > 0; ++r) {
          std::memcpy(to + r * row, from + r * step, piece);
        }
        to += piece;
      }
    });
  }
  std::string Describe() const override { return absl::StrCat("common_input_index=", common_); }

 private:
  explicit Fuse(int common) : common_(common) {}
  const int common_;
};

constexpr LayerType kTypes[] = {
    {.name = "constant_layer",
     .summary = "a tensor that is part of the graph",
     .inputs = {0, 1},
     .param_field = ulf::LayerParameter::kConstantParamFieldNumber,
     .parse = &Constant::Parse,
     .doc = {.formula = "y = constant_param.blob_data",
             .inputs = "none",
             .source = "ULF layer guide",
             .example_inputs = "+x:3",
             .example_param =
                 "constant_param { blob_data { shape: 1 shape: 3 data: 1 data: 2 data: 3 } }",
             .example_tail = "layer_params { name: \"use\" type: \"add_layer\" bottom: \"x\" "
                             "bottom: \"y\" top: \"z\" }"}},
    {.name = "fuse_layer",
     .summary = "two inputs side by side, the user's single row repeated",
     .inputs = {2, 2},
     .param_field = ulf::LayerParameter::kFuseParamFieldNumber,
     .parse = &Fuse::Parse,
     .doc =
         {.formula = "columns of both side by side, the user's row repeated",
          .inputs =
              "user [1, a], ads [rows, b] float32, in either order (fuse_param.common_input_index)",
          .source = "ULF layer guide",
          .example_inputs = "u@user:2;x:3",
          .example_param = "fuse_param { common_input_index: 0 }"}},
};

}  // namespace

absl::Span<const LayerType> SourceLayers() { return kTypes; }

}  // namespace ulfd::engine

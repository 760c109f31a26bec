// Caffe's fully connected, activation, elementwise and normalisation layers.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "tools/convert/caffe/layers.h"
#include "tools/convert/recipes.h"

namespace ulfd::convert {
namespace {

absl::Status WantValues(const CaffeNode& node, size_t blob, int64_t wanted,
                        absl::string_view what) {
  const std::vector<float>& values = node.blobs[blob].values;
  if (static_cast<int64_t>(values.size()) == wanted) return absl::OkStatus();
  return InvalidArgument("blob ", blob, ": ", values.size(), " values, want ", wanted, " (", what,
                         ")");
}

// InnerProduct: everything from `axis` on is one vector.  [.., k] x [n, k]^T + b.
absl::Status InnerProduct(CaffeNode& node) {
  const caffe::InnerProductParameter& p = node.layer.inner_product_param();
  RETURN_IF_ERROR(node.WantWeightAndBias(p.bias_term()));
  ASSIGN_OR_RETURN(const int axis, node.Axis("inner_product_param.axis", p.axis()));
  if (axis == 0) return Unimplemented("inner_product_param.axis 0 mixes rows");
  const int64_t n = p.num_output();
  ASSIGN_OR_RETURN(const int64_t k, InnerSize(node.builder, node.in(), axis - 1));
  RETURN_IF_ERROR(WantValues(node, 0, n * k, absl::StrCat("num_output ", n, " x ", k, " inputs")));
  std::vector<ulf::BlobData> weights = {
      MakeBlob(p.transpose() ? std::vector<int64_t>{k, n} : std::vector<int64_t>{n, k},
               node.blobs[0].values)};
  if (p.bias_term()) {
    RETURN_IF_ERROR(WantValues(node, 1, n, "num_output"));
    weights.push_back(MakeBlob({n}, node.blobs[1].values));
  }
  std::string in = node.in();
  const std::string& name = node.layer.name();
  // inner_product_layer reads rank 2 and 3 by the last dimension.
  if (node.rank() != axis + 1 || axis > 2) {
    in = node.builder.FreshTensor(absl::StrCat(node.out(), "/flat"));
    const std::vector<int64_t> flat =
        axis == 1 ? std::vector<int64_t>{0, k} : std::vector<int64_t>{0, -1, k};
    RETURN_IF_ERROR(AddReshape(node.builder, absl::StrCat(name, "/flat"), node.in(), flat, in));
  }
  const bool reshape_back = axis > 2;
  const std::string out =
      reshape_back ? node.builder.FreshTensor(absl::StrCat(node.out(), "/product")) : node.out();
  std::vector<int64_t> back(static_cast<size_t>(axis), 0);
  for (int d = 1; reshape_back && d < axis; ++d) back[d] = node.shape()[d].value();
  ulf::LayerParameter layer = MakeLayer("inner_product_layer", name, {in}, out);
  layer.mutable_inner_product_param()->set_transpose(!p.transpose());
  layer.mutable_inner_product_param()->set_bias_term(p.bias_term());
  RETURN_IF_ERROR(node.builder.AddLayer(std::move(layer), std::move(weights)));
  if (!reshape_back) return absl::OkStatus();
  back.push_back(n);
  return AddReshape(node.builder, absl::StrCat(name, "/shape"), out, back, node.out());
}

absl::Status Relu(CaffeNode& node) {
  const float slope = node.layer.relu_param().negative_slope();
  if (slope == 0) {
    return AddPlain(node.builder, "relu_layer", node.layer.name(), node.bottoms, node.out());
  }
  node.note = absl::StrCat("negative_slope ", slope, " is a weight");
  return AddPrelu(node.builder, node.layer.name(), node.in(), {slope}, node.out());
}

absl::Status Prelu(CaffeNode& node) {
  RETURN_IF_ERROR(node.WantBlobs(1, "slopes"));
  std::vector<float> slopes = node.blobs[0].values;
  if (node.layer.prelu_param().channel_shared()) {
    RETURN_IF_ERROR(WantValues(node, 0, 1, "channel_shared is true"));
  } else if (node.rank() > 1 && node.shape()[1].IsConst()) {
    RETURN_IF_ERROR(WantValues(node, 0, node.shape()[1].value(), "channels"));
  }
  return AddPrelu(node.builder, node.layer.name(), node.in(), slopes, node.out());
}

absl::Status Sigmoid(CaffeNode& node) {
  return AddPlain(node.builder, "sigmoid_layer", node.layer.name(), node.bottoms, node.out());
}

absl::Status TanH(CaffeNode& node) {
  return AddPlain(node.builder, "tanh_layer", node.layer.name(), node.bottoms, node.out());
}

absl::Status AbsVal(CaffeNode& node) {
  return AddExpression(node.builder, node.layer.name(), "abs(@0)", node.bottoms, node.out());
}

// Power: (shift + scale * x) ^ power.
absl::Status Power(CaffeNode& node) {
  const caffe::PowerParameter& p = node.layer.power_param();
  std::string text = "@0";
  if (p.scale() != 1) text = absl::StrCat(text, " * ", Number(p.scale()));
  if (p.shift() != 0) text = absl::StrCat(text, " + ", Number(p.shift()));
  if (p.power() != 1) text = absl::StrCat("pow(", text, ", ", Number(p.power()), ")");
  return AddExpression(node.builder, node.layer.name(), text, node.bottoms, node.out());
}

absl::Status Softmax(CaffeNode& node) {
  ASSIGN_OR_RETURN(const int axis,
                   node.Axis("softmax_param.axis", node.layer.softmax_param().axis()));
  return AddSoftmax(node.builder, node.layer.name(), node.in(), axis, node.out());
}

// A chain of layers with two bottoms.
absl::Status Chain(CaffeNode& node, absl::string_view type) {
  std::string sum = node.in(0);
  for (size_t i = 1; i < node.bottoms.size(); ++i) {
    const bool last = i + 1 == node.bottoms.size();
    const std::string out =
        last ? node.out() : node.builder.FreshTensor(absl::StrCat(node.out(), "/", i));
    const std::string name = last ? node.layer.name() : absl::StrCat(node.layer.name(), "/", i);
    RETURN_IF_ERROR(AddPlain(node.builder, type, name, {sum, node.bottoms[i]}, out));
    sum = out;
  }
  return absl::OkStatus();
}

absl::Status Eltwise(CaffeNode& node) {
  const caffe::EltwiseParameter& p = node.layer.eltwise_param();
  const bool weighted =
      std::any_of(p.coeff().begin(), p.coeff().end(), [](float c) { return c != 1; });
  if (p.coeff_size() > 0) {
    if (p.operation() != caffe::EltwiseParameter::SUM) {
      return InvalidArgument("eltwise_param.coeff is set, which only SUM has");
    }
    if (p.coeff_size() != node.layer.bottom_size()) {
      return InvalidArgument("eltwise_param.coeff: ", p.coeff_size(),
                             " values, want one for each of ", node.layer.bottom_size(),
                             " bottoms");
    }
  }
  if (p.operation() == caffe::EltwiseParameter::PROD) return Chain(node, "multiply_layer");
  if (p.operation() == caffe::EltwiseParameter::SUM && !weighted) return Chain(node, "add_layer");
  std::string text;
  for (int i = 0; i < node.layer.bottom_size(); ++i) {
    if (p.operation() == caffe::EltwiseParameter::MAX) {
      text = i == 0 ? "@0" : absl::StrCat("max(", text, ", @", i, ")");
    } else {
      absl::StrAppend(&text, i == 0 ? "" : " + ", Number(p.coeff(i)), " * @", i);
    }
  }
  return AddExpression(node.builder, node.layer.name(), text, node.bottoms, node.out());
}

// gamma and beta of a Scale layer; a layer without a bias has beta 0.
absl::Status ReadScale(const caffe::LayerParameter& layer, absl::Span<const CaffeBlob> blobs,
                       ChannelNorm& norm) {
  const bool bias = layer.scale_param().bias_term();
  if (blobs.size() != (bias ? 2U : 1U)) {
    return InvalidArgument("Scale \"", layer.name(), "\": has ", blobs.size(),
                           " blobs in the caffemodel, want ",
                           bias ? "2 (scale and bias)" : "1 (scale; bias_term is false)");
  }
  norm.gamma = blobs[0].values;
  norm.beta = bias ? blobs[1].values : std::vector<float>(norm.gamma.size(), 0.0f);
  if (norm.beta.size() != norm.gamma.size()) {
    return InvalidArgument("Scale \"", layer.name(), "\": blob 1: ", norm.beta.size(),
                           " values, want ", norm.gamma.size(), " like blob 0");
  }
  return absl::OkStatus();
}

absl::Status BatchNorm(CaffeNode& node) {
  RETURN_IF_ERROR(node.WantBlobs(3, "mean, variance and their scale factor"));
  const caffe::BatchNormParameter& p = node.layer.batch_norm_param();
  if (p.has_use_global_stats() && !p.use_global_stats()) {
    return Unimplemented(
        "batch_norm_param.use_global_stats is false: statistics of a request's own rows");
  }
  RETURN_IF_ERROR(WantValues(node, 2, 1, "scale factor"));
  const float factor = node.blobs[2].values[0] == 0 ? 0 : 1 / node.blobs[2].values[0];
  ChannelNorm norm;
  norm.eps = p.eps();
  norm.mean = node.blobs[0].values;
  norm.var = node.blobs[1].values;
  for (float& value : norm.mean) value *= factor;
  for (float& value : norm.var) value *= factor;
  const size_t channels = norm.mean.size();
  RETURN_IF_ERROR(WantValues(node, 1, static_cast<int64_t>(channels), "like blob 0"));
  if (node.rank() > 1 && node.shape()[1].IsConst()) {
    RETURN_IF_ERROR(WantValues(node, 0, node.shape()[1].value(), "channels"));
  }
  norm.gamma.assign(channels, 1.0f);
  norm.beta.assign(channels, 0.0f);
  if (node.scale != nullptr) {
    RETURN_IF_ERROR(ReadScale(*node.scale, node.scale_blobs, norm));
    if (norm.gamma.size() != channels) {
      return InvalidArgument("Scale \"", node.scale->name(), "\": blob 0: ", norm.gamma.size(),
                             " values, want ", channels, " (channels)");
    }
    node.note = absl::StrCat("together with Scale \"", node.scale->name(), "\"");
  }
  return AddNorm(node.builder, node.layer.name(), node.in(), 1, norm, node.out());
}

// Scale by a second bottom whose dimensions are those of the first from `axis` on.
absl::Status ScaleByBottom(CaffeNode& node) {
  if (node.layer.scale_param().bias_term()) {
    return Unimplemented("scale_param.bias_term with two bottoms");
  }
  ASSIGN_OR_RETURN(const int axis, node.Axis("scale_param.axis", node.layer.scale_param().axis()));
  if (axis + node.rank(1) > node.rank()) {
    return InvalidArgument("bottom 1: shape ", node.shape(1).ToString(), ", want at most ",
                           node.rank() - axis, " dimensions (scale_param.axis ", axis, ")");
  }
  std::string factor = node.in(1);
  if (node.rank(1) > 0 && axis + node.rank(1) < node.rank()) {
    std::vector<int64_t> shape(static_cast<size_t>(node.rank(1)), 0);
    shape.resize(static_cast<size_t>(node.rank() - axis), 1);
    factor = node.builder.FreshTensor(absl::StrCat(node.out(), "/factor"));
    RETURN_IF_ERROR(AddReshape(node.builder, absl::StrCat(node.layer.name(), "/factor"), node.in(1),
                               shape, factor));
  }
  return AddPlain(node.builder, "multiply_layer", node.layer.name(), {node.in(0), factor},
                  node.out());
}

absl::Status Scale(CaffeNode& node) {
  if (node.bottoms.size() == 2) return ScaleByBottom(node);
  const caffe::ScaleParameter& p = node.layer.scale_param();
  if (p.num_axes() != 1) {
    return Unimplemented("scale_param.num_axes ", p.num_axes(), ", want 1");
  }
  ASSIGN_OR_RETURN(const int axis, node.Axis("scale_param.axis", p.axis()));
  if (axis == 0) return Unimplemented("scale_param.axis 0 is a factor per row");
  ChannelNorm norm;
  RETURN_IF_ERROR(ReadScale(node.layer, node.blobs, norm));
  if (node.shape()[axis].IsConst()) {
    RETURN_IF_ERROR(WantValues(node, 0, node.shape()[axis].value(), "channels"));
  }
  norm.mean.assign(norm.gamma.size(), 0.0f);
  norm.var.assign(norm.gamma.size(), 1.0f);
  node.note = "mean 0, variance 1";
  return AddNorm(node.builder, node.layer.name(), node.in(), axis, norm, node.out());
}

constexpr CaffeType kTypes[] = {
    {"InnerProduct", {1, 1}, {1, 1}, {1, 2}, &InnerProduct},
    {"ReLU", {1, 1}, {1, 1}, {0, 0}, &Relu},
    {"PReLU", {1, 1}, {1, 1}, {1, 1}, &Prelu},
    {"Sigmoid", {1, 1}, {1, 1}, {0, 0}, &Sigmoid},
    {"TanH", {1, 1}, {1, 1}, {0, 0}, &TanH},
    {"AbsVal", {1, 1}, {1, 1}, {0, 0}, &AbsVal},
    {"Power", {1, 1}, {1, 1}, {0, 0}, &Power},
    {"Softmax", {1, 1}, {1, 1}, {0, 0}, &Softmax},
    {"Eltwise", {2, kMany}, {1, 1}, {0, 0}, &Eltwise},
    {"BatchNorm", {1, 1}, {1, 1}, {3, 3}, &BatchNorm},
    {"Scale", {1, 2}, {1, 1}, {0, 2}, &Scale},
};

}  // namespace

absl::Span<const CaffeType> BasicCaffeTypes() { return kTypes; }

}  // namespace ulfd::convert

// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/graph_builder.h"

#include <memory>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "engine/graph/graph_loader.h"
#include "engine/layers/layer.h"
#include "engine/layers/registry.h"
#include "engine/weights/weights.h"

namespace ulfd::convert {
namespace {

using engine::Dim;
using engine::Level;
using engine::Shape;
using engine::TensorSpec;

// Embedding layers are added without being parsed, so that nothing ever asks for a file.
class NoFiles final : public engine::ModelResources {
 public:
  absl::StatusOr<const blaze::EmbeddingConfig*> EmbeddingConf(const std::string& path) override {
    return Internal(path, " is not read during a conversion");
  }
  absl::StatusOr<TableRef> Table(const std::string& name) override {
    return Internal(name, " is not read during a conversion");
  }
};

std::vector<engine::Weight> Views(const ulf::LayerWeightsParameter& weights) {
  std::vector<engine::Weight> views;
  for (const ulf::BlobData& blob : weights.blob_datas()) {
    views.push_back(
        {absl::StrCat("weight ", views.size()),
         {blob.shape().begin(), blob.shape().end()},
         absl::MakeConstSpan(blob.data().data(), static_cast<size_t>(blob.data_size()))});
  }
  return views;
}

// `base`, or with the first number that is free: names are not given back, so `last` says which
// numbers need no look.
std::string Fresh(absl::string_view base, HashMap<std::string, int>& last,
                  absl::FunctionRef<bool(const std::string&)> taken) {
  int& number = last.emplace(base, 1).first->second;
  for (;; ++number) {
    std::string name = number == 1 ? std::string(base) : absl::StrCat(base, ".", number);
    if (!taken(name)) return name;
  }
}

}  // namespace

ulf::BlobData MakeBlob(absl::Span<const int64_t> dims, absl::Span<const float> values) {
  ulf::BlobData blob;
  for (const int64_t d : dims) blob.add_shape(static_cast<int32_t>(d));
  blob.mutable_data()->Add(values.begin(), values.end());
  return blob;
}

GraphBuilder::GraphBuilder(absl::string_view net_name) {
  if (!net_name.empty()) model_.net.set_name(std::string(net_name));
}

absl::Status GraphBuilder::AddInput(const std::string& name, Level level,
                                    absl::Span<const int64_t> row_shape, bool int64) {
  Shape::Dims dims = {level == Level::kUser ? Dim::Users() : Dim::Ads()};
  for (const int64_t d : row_shape) dims.push_back(Dim::Of(d));
  RETURN_IF_ERROR(Annotate(engine::CheckDims(row_shape), "input \"", name, "\""));
  const engine::DType dtype = int64 ? engine::DType::kInt64 : engine::InputDType(name);
  if (!specs_.emplace(name, TensorSpec{dtype, Shape(dims), level}).second) {
    return AlreadyExists("input \"", name, "\" is there twice");
  }
  input_tops_.push_back(name);
  ulfd::model::v1::InputConfig& config = *model_.manifest.add_inputs();
  config.set_name(name);
  config.set_level(level == Level::kUser ? ulfd::model::v1::INPUT_LEVEL_USER
                                         : ulfd::model::v1::INPUT_LEVEL_AD);
  for (const int64_t d : row_shape) config.add_row_shape(d);
  config.set_int64(int64);
  return absl::OkStatus();
}

void GraphBuilder::AddFeature(const std::string& name) {
  if (!reserved_.insert(absl::StrCat(name, ".ids")).second) return;
  for (const absl::string_view suffix : {".ids", ".values", ".segments"}) {
    input_tops_.push_back(absl::StrCat(name, suffix));
  }
}

absl::Status GraphBuilder::AddLayer(ulf::LayerParameter layer, std::vector<ulf::BlobData> weights) {
  layer.set_name(FreshLayer(layer.name()));
  ulf::LayerWeightsParameter blobs;
  blobs.set_name(layer.name());
  for (ulf::BlobData& blob : weights) *blobs.add_blob_datas() = std::move(blob);
  RETURN_IF_ERROR(InferTops(layer, blobs));
  layer_names_.insert(layer.name());
  added_types_.push_back(layer.type());
  if (blobs.blob_datas_size() > 0) *model_.weights.add_layer_weights_params() = std::move(blobs);
  *model_.net.add_layer_params() = std::move(layer);
  return absl::OkStatus();
}

absl::Status GraphBuilder::InferTops(const ulf::LayerParameter& layer,
                                     const ulf::LayerWeightsParameter& weights) {
  NoFiles resources;
  engine::Notices notices;
  const std::vector<engine::Weight> views = Views(weights);
  ASSIGN_OR_RETURN(
      const std::unique_ptr<engine::Layer> parsed,
      engine::ParseLayer(
          {.param = layer, .weights = views, .resources = resources, .notices = notices}));
  engine::TensorSpecs in;
  for (const std::string& bottom : layer.bottom()) {
    const TensorSpec* spec = Find(bottom);
    if (spec == nullptr) {
      return InvalidArgument("reads \"", bottom, "\", which no node before it makes");
    }
    in.push_back(*spec);
  }
  ASSIGN_OR_RETURN(const engine::TensorSpecs out, parsed->Infer(in));
  for (int i = 0; i < layer.top_size(); ++i) {
    RETURN_IF_ERROR(Annotate(engine::CheckDims(out[i].shape), layer.top(i)));
    specs_[layer.top(i)] = out[i];
  }
  return absl::OkStatus();
}

void GraphBuilder::AddEmbedding(ulf::LayerParameter layer, Level level,
                                absl::Span<const int64_t> widths) {
  layer.set_name(FreshLayer(layer.name()));
  layer_names_.insert(layer.name());
  const Dim rows = level == Level::kUser ? Dim::Users() : Dim::Ads();
  for (int i = 0; i < layer.top_size(); ++i) {
    specs_[layer.top(i)] = {engine::DType::kFloat32, Shape({rows, Dim::Of(widths[i])}), level};
  }
  added_types_.push_back(layer.type());
  *model_.net.add_layer_params() = std::move(layer);
}

const TensorSpec* GraphBuilder::Find(const std::string& tensor) const {
  const auto it = specs_.find(tensor);
  return it == specs_.end() ? nullptr : &it->second;
}

std::string GraphBuilder::FreshTensor(absl::string_view base) {
  return Fresh(base, last_tensor_, [&](const std::string& name) {
    return specs_.contains(name) || reserved_.contains(name);
  });
}

std::string GraphBuilder::FreshLayer(absl::string_view base) {
  return Fresh(base, last_layer_,
               [&](const std::string& name) { return layer_names_.contains(name); });
}

std::vector<std::string> GraphBuilder::TakeAddedTypes() { return std::exchange(added_types_, {}); }

ConvertedModel GraphBuilder::Finish() && {
  ulf::NetParameter net;
  net.Swap(&model_.net);
  model_.net.set_name(net.name());
  if (!input_tops_.empty()) {
    ulf::LayerParameter& input = *model_.net.add_layer_params();
    input.set_type("input_layer");
    for (const std::string& top : input_tops_) input.add_top(top);
  }
  for (ulf::LayerParameter& layer : *net.mutable_layer_params()) {
    model_.net.add_layer_params()->Swap(&layer);
  }
  return std::move(model_);
}

}  // namespace ulfd::convert

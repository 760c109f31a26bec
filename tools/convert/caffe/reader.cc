// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/caffe/reader.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bounded_parse.h"
#include "base/errors.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "engine/tensor/tensor.h"
#include "engine/weights/proto_file.h"

namespace ulfd::convert {
namespace {

constexpr int64_t kMaxFileBytes = (int64_t{1} << 31) - 1;  // Protobuf's own limit.

absl::StatusOr<CaffeBlob> ReadBlob(const caffe::BlobProto& proto) {
  CaffeBlob blob;
  if (proto.has_shape()) {
    blob.dims.assign(proto.shape().dim().begin(), proto.shape().dim().end());
  } else {
    blob.dims = {proto.num(), proto.channels(), proto.height(), proto.width()};
  }
  if (proto.double_data_size() > 0) {
    blob.values.assign(proto.double_data().begin(), proto.double_data().end());
  } else {
    blob.values.assign(proto.data().begin(), proto.data().end());
  }
  int64_t elements = 1;
  for (const int64_t d : blob.dims) {
    if (d < 0) {
      return InvalidArgument("shape ", engine::ToString(blob.dims), ", want sizes of 0 or more");
    }
    elements = engine::SaturatingMultiply(elements, d);
  }
  if (elements != static_cast<int64_t>(blob.values.size())) {
    return InvalidArgument(blob.values.size(), " values, want ", elements, " for shape ",
                           engine::ToString(blob.dims));
  }
  return blob;
}

template <typename Layer>
absl::Status ReadBlobs(const Layer& layer, CaffeNet& net) {
  if (layer.blobs_size() == 0) return absl::OkStatus();
  std::vector<CaffeBlob> blobs;
  for (const caffe::BlobProto& proto : layer.blobs()) {
    ASSIGN_OR_RETURN(CaffeBlob blob,
                     Annotate(ReadBlob(proto), "layer \"", layer.name(), "\" blob ", blobs.size()));
    blobs.push_back(std::move(blob));
  }
  if (!net.blobs.emplace(layer.name(), std::move(blobs)).second) {
    return InvalidArgument("layer \"", layer.name(), "\" has weights twice");
  }
  return absl::OkStatus();
}

absl::Status ReadWeights(const std::string& path, CaffeNet& net) {
  ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path, kMaxFileBytes));
  caffe::NetWeights weights;
  // Forks add fields of their own, so that unknown ones are no sign of a broken file here.
  if (!ParseBounded(bytes, weights)) {
    return InvalidArgument(
        path,
        ": truncated, or not a caffemodel (a binary NetParameter), or of too many small parts");
  }
  RETURN_IF_ERROR(engine::CheckStrings(weights, path));
  if (weights.layer_size() + weights.layers_size() == 0) {
    return InvalidArgument(path, ": has no layers; is it a caffemodel?");
  }
  for (const auto& layer : weights.layer()) {
    RETURN_IF_ERROR(Annotate(ReadBlobs(layer, net), path));
  }
  for (const auto& layer : weights.layers()) {
    RETURN_IF_ERROR(Annotate(ReadBlobs(layer, net), path));
  }
  return absl::OkStatus();
}

bool Meets(const caffe::NetState& state, const caffe::NetStateRule& rule) {
  const auto has_stage = [&](const std::string& stage) {
    return std::find(state.stage().begin(), state.stage().end(), stage) != state.stage().end();
  };
  if (rule.has_phase() && rule.phase() != caffe::TEST) return false;
  if (rule.has_min_level() && state.level() < rule.min_level()) return false;
  if (rule.has_max_level() && state.level() > rule.max_level()) return false;
  return std::all_of(rule.stage().begin(), rule.stage().end(), has_stage) &&
         std::none_of(rule.not_stage().begin(), rule.not_stage().end(), has_stage);
}

// Whether the layer is part of the net in the phase TEST.
template <typename Layer>
absl::StatusOr<bool> IsIncluded(const caffe::NetState& state, const Layer& layer) {
  if (layer.include_size() > 0 && layer.exclude_size() > 0) {
    return InvalidArgument("layer \"", layer.name(),
                           "\": has include and exclude rules, want one kind");
  }
  const auto met = [&](const caffe::NetStateRule& rule) { return Meets(state, rule); };
  if (layer.include_size() > 0) {
    return std::any_of(layer.include().begin(), layer.include().end(), met);
  }
  return std::none_of(layer.exclude().begin(), layer.exclude().end(), met);
}

struct V1Type {
  caffe::V1LayerParameter::LayerType number;
  const char* name;
};
using V1 = caffe::V1LayerParameter;
// The types that a converter knows, by their names of today.
constexpr V1Type kV1Types[] = {
    {V1::ABSVAL, "AbsVal"},
    {V1::ACCURACY, "Accuracy"},
    {V1::CONCAT, "Concat"},
    {V1::CONVOLUTION, "Convolution"},
    {V1::DECONVOLUTION, "Deconvolution"},
    {V1::DROPOUT, "Dropout"},
    {V1::ELTWISE, "Eltwise"},
    {V1::FLATTEN, "Flatten"},
    {V1::INNER_PRODUCT, "InnerProduct"},
    {V1::POOLING, "Pooling"},
    {V1::POWER, "Power"},
    {V1::RELU, "ReLU"},
    {V1::SIGMOID, "Sigmoid"},
    {V1::SILENCE, "Silence"},
    {V1::SLICE, "Slice"},
    {V1::SOFTMAX, "Softmax"},
    {V1::SPLIT, "Split"},
    {V1::TANH, "TanH"},
};

// Copies the fields that both messages have under one name: the type's parameters, bottoms, tops
// and blobs.
void CopyFields(const V1& from, caffe::LayerParameter& to) {
  const google::protobuf::Reflection* source = from.GetReflection();
  const google::protobuf::Reflection* target = to.GetReflection();
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  source->ListFields(from, &fields);
  for (const google::protobuf::FieldDescriptor* field : fields) {
    const google::protobuf::FieldDescriptor* same =
        to.GetDescriptor()->FindFieldByName(field->name());
    if (same == nullptr || same->message_type() != field->message_type()) continue;
    if (field->message_type() != nullptr && !field->is_repeated()) {
      target->MutableMessage(&to, same)->CopyFrom(source->GetMessage(from, field));
    }
  }
  *to.mutable_name() = from.name();
  to.mutable_bottom()->CopyFrom(from.bottom());
  to.mutable_top()->CopyFrom(from.top());
  to.mutable_blobs()->CopyFrom(from.blobs());
}

absl::StatusOr<caffe::LayerParameter> Upgrade(const V1& layer) {
  if (layer.type() == V1::NONE) {
    return InvalidArgument("layers \"", layer.name(), "\": has no type that is in use");
  }
  const auto* row = std::find_if(std::begin(kV1Types), std::end(kV1Types),
                                 [&](const V1Type& type) { return type.number == layer.type(); });
  caffe::LayerParameter upgraded;
  CopyFields(layer, upgraded);
  upgraded.set_type(row == std::end(kV1Types) ? V1::LayerType_Name(layer.type()) : row->name);
  return upgraded;
}

// The net's own inputs as an Input layer, the form of newer files.
absl::Status AddNetInputs(const caffe::NetParameter& net, caffe::NetParameter& result) {
  if (net.input_size() == 0) return absl::OkStatus();
  caffe::LayerParameter& layer = *result.add_layer();
  layer.set_name("input");
  layer.set_type("Input");
  constexpr int kDimsPerInput = 4;
  if (net.input_shape_size() == 0 && net.input_dim_size() != kDimsPerInput * net.input_size()) {
    return InvalidArgument("input_dim: ", net.input_dim_size(), " values, want 4 for each of ",
                           net.input_size(), net.input_size() == 1 ? " input" : " inputs");
  }
  if (net.input_shape_size() > 0 && net.input_shape_size() != net.input_size()) {
    return InvalidArgument("input_shape: ", net.input_shape_size(),
                           " shapes, want one for each of ", net.input_size(), " inputs");
  }
  for (int i = 0; i < net.input_size(); ++i) {
    layer.add_top(net.input(i));
    caffe::BlobShape& shape = *layer.mutable_input_param()->add_shape();
    if (net.input_shape_size() > 0) {
      shape = net.input_shape(i);
      continue;
    }
    for (int d = 0; d < kDimsPerInput; ++d) shape.add_dim(net.input_dim(kDimsPerInput * i + d));
  }
  return absl::OkStatus();
}

absl::Status Normalize(caffe::NetParameter&& net, CaffeNet& result) {
  if (net.layer_size() > 0 && net.layers_size() > 0) {
    return InvalidArgument("has `layer` and `layers`, want one of the two");
  }
  if (net.layer_size() + net.layers_size() == 0) return InvalidArgument("has no layers");
  result.net.set_name(net.name());
  RETURN_IF_ERROR(AddNetInputs(net, result.net));
  int dropped = 0;
  const auto take = [&](auto& layer) -> absl::StatusOr<bool> {
    ASSIGN_OR_RETURN(const bool included, IsIncluded(net.state(), layer));
    dropped += included ? 0 : 1;
    return included;
  };
  for (caffe::LayerParameter& layer : *net.mutable_layer()) {
    ASSIGN_OR_RETURN(const bool included, take(layer));
    if (included) result.net.add_layer()->Swap(&layer);
  }
  for (const V1& layer : net.layers()) {
    ASSIGN_OR_RETURN(const bool included, take(layer));
    if (!included) continue;
    ASSIGN_OR_RETURN(*result.net.add_layer(), Upgrade(layer));
  }
  if (dropped > 0) {
    result.notes.push_back(
        absl::StrCat(dropped, " layers left out that are not part of the phase TEST"));
  }
  return absl::OkStatus();
}

// Weights that no layer of the net has: usual when a net was cut after training.
void NoteUnusedBlobs(CaffeNet& net) {
  std::set<std::string> names;
  for (const caffe::LayerParameter& layer : net.net.layer()) names.insert(layer.name());
  for (const auto& [name, blobs] : net.blobs) {
    if (names.contains(name)) continue;
    net.notes.push_back(absl::StrCat("weights of layer \"", name,
                                     "\" are left out: the net has no layer of that name"));
  }
}

}  // namespace

absl::StatusOr<CaffeNet> ReadCaffe(const std::string& net_path, const std::string& weights_path) {
  ASSIGN_OR_RETURN(const std::string content, ReadFile(net_path, kMaxFileBytes));
  caffe::NetParameter net;
  const engine::ProtoFormat format = engine::DetectProtoFormat(content);
  if (format == engine::ProtoFormat::kText) {
    RETURN_IF_ERROR(engine::ParseTextProto(content, net_path, net));
  } else if (!ParseBounded(content, net)) {
    return InvalidArgument(
        net_path,
        ": truncated, or not a Caffe net (text or binary NetParameter), or of too "
        "many small parts");
  }
  RETURN_IF_ERROR(engine::CheckStrings(net, net_path));
  CaffeNet result;
  RETURN_IF_ERROR(Annotate(Normalize(std::move(net), result), net_path));
  if (!weights_path.empty()) {
    RETURN_IF_ERROR(ReadWeights(weights_path, result));
  } else {
    for (const caffe::LayerParameter& layer : result.net.layer()) {
      RETURN_IF_ERROR(Annotate(ReadBlobs(layer, result), net_path));
    }
  }
  NoteUnusedBlobs(result);
  return result;
}

}  // namespace ulfd::convert

// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/weights.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/errors.h"
#include "base/file.h"
#include "base/hash_map.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "engine/weights/ndarray_list.h"
#include "engine/weights/npy.h"
#include "engine/weights/npz.h"
#include "engine/weights/proto_file.h"

namespace ulfd::engine {
namespace {

// Whether a value is NaN or infinite: all bits of its exponent are set.  Integers in blocks,
// because the compiler turns this into vector code and a loop over std::isfinite it does not.
bool HasNonFinite(absl::Span<const float> values) {
  constexpr uint32_t kInfinity = 0x7f800000;
  constexpr size_t kBlock = 4096;
  for (size_t begin = 0; begin < values.size(); begin += kBlock) {
    uint32_t largest = 0;
    const size_t end = std::min(values.size(), begin + kBlock);
    for (size_t i = begin; i < end; ++i) {
      largest = std::max(largest, std::bit_cast<uint32_t>(values[i]) & 0x7fffffffU);
    }
    if (largest >= kInfinity) return true;
  }
  return false;
}

std::string LayerText(const ulf::NetParameter& net, int index) {
  const ulf::LayerParameter& layer = net.layer_params(index);
  return absl::StrCat("layer ", index, " \"", layer.name(), "\" (", layer.type(), ")");
}

// npz and NDArray list: arrays with names, which the layers list as arg_names.
class NamedWeights final : public WeightFile {
 public:
  NamedWeights(std::string path, std::string format, NpzArrays arrays)
      : path_(std::move(path)), format_(std::move(format)) {
    while (!arrays.empty()) {  // One at a time, so that only one is in memory twice.
      auto node = arrays.extract(arrays.begin());
      Array array;
      array.dims.assign(node.mapped().dims.begin(), node.mapped().dims.end());
      array.values = node.mapped().ToFloat32();
      bytes_ += static_cast<int64_t>(array.values.size() * sizeof(float));
      if (HasNonFinite(array.values)) non_finite_.push_back(node.key());
      arrays_.emplace(std::move(node.key()), std::move(array));
    }
  }

  absl::StatusOr<std::vector<std::vector<Weight>>> Match(
      const ulf::NetParameter& net) const override {
    std::vector<std::vector<Weight>> matched(static_cast<size_t>(net.layer_params_size()));
    for (int i = 0; i < net.layer_params_size(); ++i) {
      for (const std::string& name : net.layer_params(i).arg_names()) {
        const auto found = arrays_.find(name);
        if (found == arrays_.end()) {
          return InvalidArgument(LayerText(net, i), ": weight \"", name,
                                 "\" (arg_names) is not in ", path_);
        }
        matched[static_cast<size_t>(i)].push_back(
            Weight{name, found->second.dims, found->second.values});
      }
    }
    return matched;
  }

  int64_t Release(const HashSet<const float*>& arrays) override {
    int64_t released = 0;
    for (auto& [name, array] : arrays_) {
      if (!arrays.contains(array.values.data())) continue;
      released += static_cast<int64_t>(array.values.size() * sizeof(float));
      std::vector<float>().swap(array.values);
    }
    return released;
  }
  int64_t bytes() const override { return bytes_; }
  std::string format() const override { return format_; }
  std::vector<std::string> NonFiniteArrays() const override { return non_finite_; }

 private:
  struct Array {
    absl::InlinedVector<int64_t, 4> dims;
    std::vector<float> values;
  };
  std::string path_, format_;
  HashMap<std::string, Array> arrays_;
  int64_t bytes_ = 0;
  std::vector<std::string> non_finite_;
};

// ulf.NetWeightsParameter: lists of arrays under layer names.  The weights are views into the
// message.
class LayerNameWeights final : public WeightFile {
 public:
  static absl::StatusOr<std::unique_ptr<WeightFile>> Parse(absl::string_view content,
                                                           const std::string& path) {
    std::unique_ptr<LayerNameWeights> file(new LayerNameWeights(path));
    ASSIGN_OR_RETURN(file->format_,
                     ParseProto(content, path, ProtoFormat::kDetect, file->message_));
    RETURN_IF_ERROR(Annotate(file->Index(), path));
    return file;
  }

  absl::StatusOr<std::vector<std::vector<Weight>>> Match(
      const ulf::NetParameter& net) const override {
    std::vector<std::vector<Weight>> matched(static_cast<size_t>(net.layer_params_size()));
    HashSet<absl::string_view> names;
    for (int i = 0; i < net.layer_params_size(); ++i) {
      const std::string& name = net.layer_params(i).name();
      names.insert(name);
      const auto found = by_layer_.find(name);
      if (found != by_layer_.end()) matched[static_cast<size_t>(i)] = found->second;
    }
    for (const ulf::LayerWeightsParameter& layer : message_.layer_weights_params()) {
      if (names.contains(layer.name())) continue;
      return InvalidArgument(path_, ": has weights of layer \"", layer.name(),
                             "\", which the graph lacks");
    }
    return matched;
  }

  int64_t Release(const HashSet<const float*>& arrays) override {
    int64_t released = 0;
    for (ulf::LayerWeightsParameter& layer : *message_.mutable_layer_weights_params()) {
      for (ulf::BlobData& blob : *layer.mutable_blob_datas()) {
        if (!arrays.contains(blob.data().data())) continue;
        released += static_cast<int64_t>(blob.data_size() * sizeof(float));
        google::protobuf::RepeatedField<float>().Swap(blob.mutable_data());
      }
    }
    for (auto& [name, weights] : by_layer_) {
      for (Weight& weight : weights) {
        if (arrays.contains(weight.data.data())) weight.data = {};
      }
    }
    return released;
  }
  int64_t bytes() const override { return bytes_; }
  std::string format() const override {
    return format_ == ProtoFormat::kText ? "ulf text" : "ulf binary";
  }
  std::vector<std::string> NonFiniteArrays() const override { return non_finite_; }

 private:
  explicit LayerNameWeights(std::string path) : path_(std::move(path)) {}

  absl::Status Index() {
    for (const ulf::LayerWeightsParameter& layer : message_.layer_weights_params()) {
      const std::string prefix = absl::StrCat("layer \"", layer.name(), "\"");
      std::vector<Weight> weights;
      for (int i = 0; i < layer.blob_datas_size(); ++i) {
        const ulf::BlobData& blob = layer.blob_datas(i);
        Weight weight{
            absl::StrCat("weight ", i),
            {blob.shape().begin(), blob.shape().end()},
            absl::MakeConstSpan(blob.data().data(), static_cast<size_t>(blob.data_size()))};
        const std::string where = absl::StrCat(prefix, " ", weight.name);
        ASSIGN_OR_RETURN(const int64_t want,
                         Annotate(ArrayBytes(weight.dims, NumberType::kFloat32), where));
        const auto have = static_cast<int64_t>(weight.data.size() * sizeof(float));
        if (have != want) {
          return InvalidArgument(where, ": ", weight.data.size(), " values, want ",
                                 want / sizeof(float), " for shape [",
                                 absl::StrJoin(weight.dims, ", "), "]");
        }
        bytes_ += have;
        if (HasNonFinite(weight.data)) non_finite_.push_back(where);
        weights.push_back(std::move(weight));
      }
      if (!by_layer_.emplace(layer.name(), std::move(weights)).second) {
        return InvalidArgument(prefix, ": has weights twice");
      }
    }
    return absl::OkStatus();
  }

  std::string path_;
  ProtoFormat format_ = ProtoFormat::kText;
  ulf::NetWeightsParameter message_;
  HashMap<std::string, std::vector<Weight>> by_layer_;
  int64_t bytes_ = 0;
  std::vector<std::string> non_finite_;
};

class NoWeights final : public WeightFile {
 public:
  absl::StatusOr<std::vector<std::vector<Weight>>> Match(
      const ulf::NetParameter& net) const override {
    for (int i = 0; i < net.layer_params_size(); ++i) {
      if (net.layer_params(i).arg_names().empty()) continue;
      return InvalidArgument(LayerText(net, i), ": weight \"", net.layer_params(i).arg_names(0),
                             "\" (arg_names), but there is no weight file");
    }
    return std::vector<std::vector<Weight>>(static_cast<size_t>(net.layer_params_size()));
  }
  int64_t Release(const HashSet<const float*>&) override { return 0; }
  int64_t bytes() const override { return 0; }
  std::string format() const override { return "none"; }
  std::vector<std::string> NonFiniteArrays() const override { return {}; }
};

// The first bytes of a file; fewer of a shorter one.
absl::StatusOr<std::string> ReadHead(const std::string& path, size_t size) {
  ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path));
  std::string head(size, '\0');
  ASSIGN_OR_RETURN(const size_t got, file.Read(head.data(), head.size()));
  head.resize(got);
  return head;
}

}  // namespace

absl::StatusOr<std::unique_ptr<WeightFile>> WeightFile::Read(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string head, ReadHead(path, 8));
  if (absl::StartsWith(head, "PK")) {
    ASSIGN_OR_RETURN(NpzArrays arrays, ReadNpz(path));
    return std::make_unique<NamedWeights>(path, "npz", std::move(arrays));
  }
  ASSIGN_OR_RETURN(std::string content, ReadFile(path));
  if (IsNdarrayList(content)) {
    ASSIGN_OR_RETURN(NpzArrays arrays, Annotate(ParseNdarrayList(content), path, ": NDArray list"));
    content = std::string();  // Its arrays are copies.
    return std::make_unique<NamedWeights>(path, "ndarray list", std::move(arrays));
  }
  return LayerNameWeights::Parse(content, path);
}

std::unique_ptr<WeightFile> WeightFile::Empty() { return std::make_unique<NoWeights>(); }

}  // namespace ulfd::engine

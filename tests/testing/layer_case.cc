// Runs a layer case through the registry.
// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/layer_case.h"

#include <google/protobuf/text_format.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "engine/layers/registry.h"
#include "engine/tensor/element.h"

namespace ulfd::testing {
namespace {

using engine::DType;
using engine::Kernel;
using engine::Layer;
using engine::RunContext;
using engine::Tensor;
using engine::TensorSpec;
using engine::TensorSpecs;

constexpr size_t kAlignment = 64;
constexpr char kPoison = '\xff';  // Four of them are a NaN.

DType TypeOf(const Array& array) {
  if (array.dtype() == "int32") return DType::kInt32;
  if (array.dtype() == "int64") return DType::kInt64;
  return DType::kFloat32;
}

template <class T>
void Store(const Array& array, char* to) {
  for (int i = 0; i < array.values_size(); ++i) {
    const T value = static_cast<T>(array.values(i));
    std::memcpy(to + i * sizeof(T), &value, sizeof(T));
  }
}

void StoreAs(const Array& array, DType type, char* to) {
  switch (type) {
    case DType::kFloat32:
      return Store<float>(array, to);
    case DType::kInt32:
      return Store<int32_t>(array, to);
    case DType::kInt64:
      return Store<int64_t>(array, to);
  }
}

// `bytes` that start at a multiple of kAlignment plus `offset` and end with the allocation, so that
// AddressSanitizer sees a read beyond them.
class Memory {
 public:
  Memory(size_t bytes, size_t offset) : block_(nullptr, &std::free) {
    void* block = nullptr;
    if (posix_memalign(&block, kAlignment, bytes + offset + (bytes == 0)) != 0) std::abort();
    block_.reset(block);
    std::memset(block, kPoison, bytes + offset);
    data_ = static_cast<char*>(block) + offset;
  }
  char* data() const { return data_; }

 private:
  std::unique_ptr<void, decltype(&std::free)> block_;
  char* data_ = nullptr;
};

// Configurations and tables of a case.
class CaseResources final : public engine::ModelResources {
 public:
  explicit CaseResources(const LayerCase& layer_case)
      : directory_(std::filesystem::temp_directory_path() /
                   absl::StrCat("ulfd_layer_case_", getpid())) {
    for (const TextFile& conf : layer_case.confs()) {
      google::protobuf::TextFormat::ParseFromString(conf.text(), &confs_[conf.name()]);
    }
    for (const TextFile& table : layer_case.tables()) texts_[table.name()] = table.text();
  }
  ~CaseResources() override { std::filesystem::remove_all(directory_); }

  absl::StatusOr<const blaze::EmbeddingConfig*> EmbeddingConf(const std::string& path) override {
    const auto it = confs_.find(path);
    if (it == confs_.end()) return absl::NotFoundError(path);
    return &it->second;
  }
  absl::StatusOr<TableRef> Table(const std::string& name) override {
    if (!texts_.contains(name)) return absl::NotFoundError(name);
    for (size_t i = 0; i < tables_.size(); ++i) {
      if (tables_[i]->name() == name) return TableRef{tables_[i].get(), static_cast<int>(i)};
    }
    std::filesystem::create_directories(directory_);
    const std::string path = (directory_ / name).string();
    std::ofstream(path) << texts_[name];
    ASSIGN_OR_RETURN(auto table, engine::EmbeddingTable::LoadText(name, path, {}));
    tables_.push_back(std::move(table));
    return TableRef{tables_.back().get(), static_cast<int>(tables_.size()) - 1};
  }
  using Tables = std::vector<std::shared_ptr<const engine::EmbeddingTable>>;
  const Tables& tables() const { return tables_; }

 private:
  const std::filesystem::path directory_;
  std::map<std::string, blaze::EmbeddingConfig> confs_;
  std::map<std::string, std::string> texts_;
  Tables tables_;
};

TensorSpecs ConcreteSpecs(const std::vector<Tensor>& tensors) {
  TensorSpecs specs;
  for (const Tensor& t : tensors) {
    specs.push_back({t.dtype, engine::Shape::Of(t.dims), engine::Level::kUnknown});
  }
  return specs;
}

// Infers, prepares and runs a primitive layer.
absl::StatusOr<std::vector<OwnedTensor>> RunPrimitive(const Layer& layer,
                                                      const std::vector<Tensor>& in,
                                                      const CaseResources::Tables& tables) {
  const TensorSpecs in_specs = ConcreteSpecs(in);
  ASSIGN_OR_RETURN(const TensorSpecs specs, layer.Infer(in_specs));
  ASSIGN_OR_RETURN(const std::unique_ptr<Kernel> kernel, layer.Prepare(in_specs));
  std::vector<OwnedTensor> outputs(specs.size());
  std::vector<Memory> memory;
  std::vector<Tensor> out;
  for (size_t i = 0; i < specs.size(); ++i) {
    if (!specs[i].shape.IsConcrete()) {
      return absl::InternalError(absl::StrCat("output ", i, ": ", specs[i].shape.ToString(),
                                              " although every input is concrete"));
    }
    Tensor& tensor = outputs[i].tensor;
    tensor.dtype = specs[i].dtype;
    for (engine::Dim d : specs[i].shape.dims()) tensor.dims.push_back(d.value());
    memory.emplace_back(tensor.bytes(), 0);
    out.push_back(tensor);
    out.back().data = memory.back().data();
    outputs[i].spec = specs[i];
  }
  engine::RunCounters counters;
  counters.looked_up_ids.resize(tables.size());
  counters.missing_ids.resize(tables.size());
  const size_t scratch_bytes = kernel->ScratchBytes(in);
  const Memory scratch(scratch_bytes, 0);
  RunContext ctx{in, absl::MakeSpan(out), scratch.data(), &counters, tables};
  RETURN_IF_ERROR(kernel->Run(ctx));
  for (size_t i = 0; i < out.size(); ++i) {
    outputs[i].memory.assign(memory[i].data(), memory[i].data() + out[i].bytes());
    outputs[i].tensor.data = outputs[i].memory.data();
  }
  return outputs;
}

// Runs what a layer with so many outputs is made of.
absl::StatusOr<std::vector<OwnedTensor>> RunLowered(const Layer& layer, std::vector<Tensor> values,
                                                    size_t outputs) {
  const size_t inputs = values.size();
  engine::Lowering lowering(static_cast<int>(inputs), static_cast<int>(outputs));
  RETURN_IF_ERROR(layer.Lower(lowering));
  std::vector<OwnedTensor> made;  // Values behind the inputs.
  for (const engine::Lowering::Part& part : lowering.parts()) {
    std::vector<Tensor> in;
    for (const int value : part.inputs) in.push_back(values[value]);
    auto out = RunPrimitive(*part.layer, in, {});
    if (!out.ok()) return Annotate(out.status(), part.suffix);
    for (OwnedTensor& output : *out) {
      made.push_back(std::move(output));
      values.push_back(made.back().tensor);
    }
  }
  std::vector<OwnedTensor> results;
  for (const int value : lowering.outputs()) results.push_back(std::move(made[value - inputs]));
  return results;
}

}  // namespace

absl::StatusOr<LayerCases> ReadLayerCases(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  LayerCases cases;
  if (!file.good() || !google::protobuf::TextFormat::ParseFromString(text.str(), &cases)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " does not parse"));
  }
  return cases;
}

absl::StatusOr<LayerOutcome> RunLayerCase(const LayerCase& layer_case, Placement placement,
                                          Route route) {
  std::vector<Memory> memory;
  std::vector<engine::Weight> weights;
  for (const Array& array : layer_case.weights()) {
    engine::Weight weight;
    weight.name = array.name().empty() ? absl::StrCat("weight ", weights.size()) : array.name();
    weight.dims.assign(array.dims().begin(), array.dims().end());
    memory.emplace_back(array.values_size() * sizeof(float), sizeof(float));
    Store<float>(array, memory.back().data());
    weight.data =
        absl::MakeConstSpan(reinterpret_cast<float*>(memory.back().data()), array.values_size());
    weights.push_back(std::move(weight));
  }
  std::vector<Tensor> inputs;
  for (const Array& array : layer_case.inputs()) {
    Tensor tensor;
    tensor.dtype = TypeOf(array);
    tensor.dims.assign(array.dims().begin(), array.dims().end());
    const size_t element = SizeOf(tensor.dtype);
    memory.emplace_back(tensor.bytes(), placement == Placement::kOddAddress ? element : 0);
    StoreAs(array, tensor.dtype, memory.back().data());
    tensor.data = memory.back().data();
    inputs.push_back(std::move(tensor));
  }
  CaseResources resources(layer_case);
  LayerOutcome outcome;
  const engine::ParseContext ctx{.param = layer_case.layer(),
                                 .weights = weights,
                                 .resources = resources,
                                 .notices = outcome.notices,
                                 .guide_eps = layer_case.guide_eps()};
  ASSIGN_OR_RETURN(const std::unique_ptr<Layer> layer, engine::ParseLayer(ctx));
  engine::Notices ignored;
  ASSIGN_OR_RETURN(const engine::LayerType* type,
                   engine::FindLayerType(layer_case.layer().type(), ignored));
  if (!type->composite && route == Route::kOwn) {
    ASSIGN_OR_RETURN(outcome.outputs, RunPrimitive(*layer, inputs, resources.tables()));
    return outcome;
  }
  ASSIGN_OR_RETURN(const TensorSpecs whole, layer->Infer(ConcreteSpecs(inputs)));
  ASSIGN_OR_RETURN(outcome.outputs, RunLowered(*layer, inputs, whole.size()));
  for (size_t i = 0; i < whole.size(); ++i) {
    if (whole[i].shape == outcome.outputs[i].spec.shape) continue;
    return absl::InternalError(absl::StrCat("Infer says ", whole[i].shape.ToString(),
                                            ", its primitives ",
                                            outcome.outputs[i].spec.shape.ToString()));
  }
  return outcome;
}

std::string Difference(const LayerCase& layer_case, int index, const Tensor& found) {
  const Array& wanted = layer_case.outputs(index);
  if (found.dtype != TypeOf(wanted)) {
    return absl::StrCat(engine::Name(found.dtype), ", want ", engine::Name(TypeOf(wanted)));
  }
  const std::vector<int64_t> dims(wanted.dims().begin(), wanted.dims().end());
  if (absl::MakeConstSpan(found.dims) != absl::MakeConstSpan(dims)) {
    return absl::StrCat("shape ", engine::ToString(found.dims), ", want ", engine::ToString(dims));
  }
  const double tolerance = layer_case.tolerance() > 0 ? layer_case.tolerance() : 1e-5;
  for (int i = 0; i < wanted.values_size(); ++i) {
    const double value = engine::ElementOf(found, i);
    const double want = wanted.values(i);
    const bool same = std::isnan(want) ? std::isnan(value)
                      : std::isinf(want)
                          ? value == want
                          : std::abs(value - want) <= tolerance * std::max(1.0, std::abs(want));
    if (!same) return absl::StrCat("element ", i, ": ", value, ", want ", want);
  }
  return "";
}

}  // namespace ulfd::testing

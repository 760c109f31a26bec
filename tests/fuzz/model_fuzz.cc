// A version directory and a request: graph, weights, manifest, configurations and
// tables -> load -> run.
// SPDX-License-Identifier: Apache-2.0
#include <google/protobuf/text_format.h>

#include <cstring>
#include <deque>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "engine/layers/registry.h"
#include "engine/runtime/model.h"
#include "engine/tensor/onednn.h"
#include "tests/fuzz/bounded_load.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/model_case.pb.h"
#include "tests/fuzz/proto_mutator.h"

namespace {

using namespace ulfd::engine;
using ulfd::fuzz::ModelCase;

constexpr int64_t kMostElements = 1 << 16;  // Of an input of the request.

const std::vector<std::string>& Names() {
  static const auto* const names = [] {
    auto* const list = new std::vector<std::string>{"user.conf", "ad.conf", "t", "x", "y"};
    for (const LayerType* type : AllLayerTypes()) list->emplace_back(type->name);
    return list;
  }();
  return *names;
}

std::string Text(const google::protobuf::Message& message) {
  std::string text;
  google::protobuf::TextFormat::PrintToString(message, &text);
  return text;
}

// Only within the directory, which is emptied each time.
bool IsPlainName(const std::string& name) {
  return !name.empty() && name.size() < 100 && name[0] != '.' && !absl::StrContains(name, '/') &&
         !absl::StrContains(name, '\0');
}

std::string WriteDirectory(const ModelCase& model_case) {
  const std::string directory = ulfd::fuzz::EmptyScratch("case/1");
  const auto write = [](const std::string& name, const std::string& content) {
    if (IsPlainName(name)) ulfd::fuzz::WriteScratch("case/1/" + name, content);
  };
  write("graph_ulf.txt", Text(model_case.graph()));
  if (model_case.has_weights()) {
    write("weights.pb", model_case.weights().SerializePartialAsString());
  }
  if (model_case.has_manifest()) write("model.textproto", Text(model_case.manifest()));
  for (const auto& config : model_case.configs()) write(config.name(), Text(config.config()));
  for (const auto& table : model_case.tables()) write(table.name(), table.text());
  return directory;
}

// How many elements, or nothing if the request could not carry them.
std::optional<int64_t> Elements(const ulfd::fuzz::Input& input) {
  int64_t elements = 1;
  for (const int64_t d : input.shape()) {
    if (d < 0 || __builtin_mul_overflow(elements, d, &elements)) return std::nullopt;
  }
  if (elements > kMostElements || input.shape_size() > 16) return std::nullopt;
  return elements;
}

template <typename T>
void Fill(const ulfd::fuzz::Input& input, int64_t elements, std::vector<char>& buffer) {
  buffer.resize(static_cast<size_t>(elements) * sizeof(T));
  for (int64_t i = 0; i < elements && input.values_size() > 0; ++i) {
    const double value = input.values(static_cast<int>(i % input.values_size()));
    T converted = static_cast<T>(0);
    if (value >= static_cast<double>(std::numeric_limits<T>::lowest()) &&
        value < static_cast<double>(std::numeric_limits<T>::max())) {
      converted = static_cast<T>(value);
    }
    std::memcpy(buffer.data() + static_cast<size_t>(i) * sizeof(T), &converted, sizeof(T));
  }
}

// The request of the case.  The tensors point into it and into `buffers`.
std::vector<NamedTensor> Inputs(const ModelCase& model_case,
                                std::deque<std::vector<char>>& buffers) {
  std::vector<NamedTensor> inputs;
  for (const ulfd::fuzz::Input& input : model_case.inputs()) {
    const auto elements = Elements(input);
    // What parses as a request has names in UTF-8.
    if (!elements.has_value() || !ulfd::IsUtf8(input.name())) continue;
    std::vector<char>& buffer = buffers.emplace_back();
    Tensor tensor;
    switch (input.type()) {
      case 1:
        tensor.dtype = DType::kInt32;
        Fill<int32_t>(input, *elements, buffer);
        break;
      case 2:
        tensor.dtype = DType::kInt64;
        Fill<int64_t>(input, *elements, buffer);
        break;
      default:
        Fill<float>(input, *elements, buffer);
    }
    tensor.dims.assign(input.shape().begin(), input.shape().end());
    tensor.data = buffer.data();
    inputs.push_back({input.name(), tensor});
  }
  return inputs;
}

}  // namespace

ULFD_FUZZ_PROTO(ModelCase, ulfd::fuzz::ProtoForm::kText, Names())

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  UseOneThread();
  ModelCase model_case;
  if (!ulfd::fuzz::ReadMessage(ulfd::fuzz::ProtoForm::kText, data, size, model_case)) return 0;
  const auto model = ulfd::fuzz::LoadBounded(WriteDirectory(model_case));
  if (model == nullptr) return 0;
  model->WrittenPlan();
  model->OptimisedPlan();
  Workspace workspace;
  RunResult result;
  std::deque<std::vector<char>> buffers;
  const std::vector<NamedTensor> inputs = Inputs(model_case, buffers);
  const absl::Status optimised = model->Run(inputs, {}, workspace, result);
  ulfd::fuzz::CheckMessage(optimised);
  if (optimised.ok()) model->Cancellations(nullptr);
  const absl::Status written =
      model->Run(inputs, {.keep_all = true, .reference = true}, workspace, result);
  ulfd::fuzz::CheckMessage(written);
  if (written.ok()) model->Cancellations(&result);
  return 0;
}

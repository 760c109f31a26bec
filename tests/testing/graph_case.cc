// A whole graph with inputs and expected outputs, as data.
// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/graph_case.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/tensor/element.h"
#include "engine/weights/npz.h"

namespace ulfd::testing {

namespace {

using nlohmann::json;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double ToDouble(const json& value) {
  if (value.is_number()) return value.get<double>();
  return value.is_string() ? std::stod(value.get<std::string>()) : std::nan("");
}

CaseArray ToArray(const json& value) {
  CaseArray array{value.at("dtype"), value.at("shape"), {}};
  for (const json& v : value.at("data")) array.values.push_back(ToDouble(v));
  return array;
}

CaseArray ToCase(const engine::NpyArray& array) {
  CaseArray result{.shape = {array.dims.begin(), array.dims.end()}};
  switch (array.type) {
    case engine::NumberType::kInt64:
      result.dtype = "int64";
      break;
    case engine::NumberType::kInt32:
      result.dtype = "int32";
      break;
    default:
      result.dtype = "float64";
  }
  const size_t n = static_cast<size_t>(array.elements());
  result.values.resize(n);
  if (array.type == engine::NumberType::kFloat64) {
    std::memcpy(result.values.data(), array.bytes.data(), n * sizeof(double));
  } else if (array.type == engine::NumberType::kInt64 || array.type == engine::NumberType::kInt32) {
    const std::vector<int64_t> ints = array.ToInt64();
    result.values.assign(ints.begin(), ints.end());
  } else {
    const std::vector<float> floats = array.ToFloat32();
    result.values.assign(floats.begin(), floats.end());
  }
  return result;
}

std::map<std::string, std::string> Strings(const json& object, const char* key) {
  if (!object.contains(key)) return {};
  return object.at(key).get<std::map<std::string, std::string>>();
}

std::map<std::string, CaseArray> Arrays(const json& object, const char* key) {
  std::map<std::string, CaseArray> arrays;
  if (!object.contains(key)) return arrays;
  for (const auto& [name, value] : object.at(key).items()) arrays[name] = ToArray(value);
  return arrays;
}

// Python's json.dump writes bare NaN and Infinity, which JSON does not have.
std::string QuoteNonFinite(std::string text) {
  for (const std::string word : {"-Infinity", "Infinity", "NaN"}) {
    for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
      const char before = at > 0 ? text[at - 1] : ' ';
      if (before != ' ' && before != '[' && before != ',') continue;
      text.replace(at, word.size(), "\"" + word + "\"");
      ++at;
    }
  }
  return text;
}

void WriteFile(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path) << text;
}

template <typename T>
std::vector<char> ToBytes(const std::vector<double>& values) {
  std::vector<char> bytes(values.size() * sizeof(T));
  for (size_t i = 0; i < values.size(); ++i) {
    const T value = static_cast<T>(values[i]);
    std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
  }
  return bytes;
}

}  // namespace

std::vector<GraphCase> ReadGraphCases(const std::string& path) {
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::vector<GraphCase> cases;
  for (const json& value : json::parse(QuoteNonFinite(text))) {
    GraphCase graph_case;
    graph_case.name = value.at("name");
    graph_case.graph = value.at("graph");
    graph_case.weights_text = value.value("weights_text", "");
    graph_case.manifest = value.value("manifest", "");
    graph_case.must_refuse = value.value("must_refuse", "");
    graph_case.confs = Strings(value, "embedding_conf");
    graph_case.tables = Strings(value, "tables");
    graph_case.inputs = Arrays(value, "inputs");
    graph_case.expected = Arrays(value, "expected");
    cases.push_back(std::move(graph_case));
  }
  return cases;
}

std::string WriteModelDirectory(const GraphCase& graph_case, const std::string& base) {
  const std::filesystem::path directory = std::filesystem::path(base) / graph_case.name / "1";
  std::filesystem::create_directories(directory);
  WriteFile(directory / "graph_ulf.txt", graph_case.graph);
  if (!graph_case.weights_text.empty())
    WriteFile(directory / "weights.pb", graph_case.weights_text);
  if (!graph_case.manifest.empty()) WriteFile(directory / "model.textproto", graph_case.manifest);
  for (const auto& [name, text] : graph_case.confs) WriteFile(directory / name, text);
  for (const auto& [name, text] : graph_case.tables) WriteFile(directory / name, text);
  return directory.string();
}

std::optional<engine::Backend> BackendOfEnvironment() {
  const char* name = std::getenv("ULFD_TEST_BACKEND");
  if (name == nullptr) return std::nullopt;
  return engine::ParseBackend(name).value();
}

std::map<std::string, CaseArray> ReadArrays(const std::string& path) {
  const engine::NpzArrays read = engine::ReadNpz(path).value();
  std::map<std::string, CaseArray> arrays;
  for (const auto& [name, array] : read) arrays[name] = ToCase(array);
  return arrays;
}

std::string InputManifest(const GraphCase& graph_case) {
  std::string text;
  for (const auto& [name, array] : graph_case.inputs) {
    if (absl::StrContains(name, ".") || array.shape.size() < 2) continue;
    absl::StrAppend(&text, "inputs { name: \"", name, "\" level: INPUT_LEVEL_",
                    array.shape[0] == 1 ? "USER" : "AD");
    for (size_t d = 1; d < array.shape.size(); ++d) {
      absl::StrAppend(&text, " row_shape: ", array.shape[d]);
    }
    absl::StrAppend(&text, " }\n");
  }
  return text;
}

CaseInputs::CaseInputs(const std::map<std::string, CaseArray>& arrays) {
  for (const auto& [name, array] : arrays) {
    engine::Tensor tensor;
    const auto at = buffers_.try_emplace(name).first;  // The tensor's name points here.
    std::vector<char>& buffer = at->second;
    if (array.dtype == "int64") {
      tensor.dtype = engine::DType::kInt64;
      buffer = ToBytes<int64_t>(array.values);
    } else if (array.dtype == "int32") {
      tensor.dtype = engine::DType::kInt32;
      buffer = ToBytes<int32_t>(array.values);
    } else {
      buffer = ToBytes<float>(array.values);
    }
    tensor.dims.assign(array.shape.begin(), array.shape.end());
    tensor.data = buffer.data();
    tensors_.push_back({at->first, tensor});
  }
}

double Error(const engine::Tensor& found, const CaseArray& wanted, double min_scale) {
  if (!std::equal(found.dims.begin(), found.dims.end(), wanted.shape.begin(), wanted.shape.end())) {
    return kInfinity;
  }
  double scale = min_scale, error = 0;
  for (double w : wanted.values) scale = std::isfinite(w) ? std::max(scale, std::abs(w)) : scale;
  for (size_t i = 0; i < wanted.values.size(); ++i) {
    const double w = wanted.values[i], f = engine::ElementOf(found, static_cast<int64_t>(i));
    if (std::isfinite(w) && std::isfinite(f)) {
      error = std::max(error, std::abs(f - w) / scale);
    } else if (std::isnan(w) ? !std::isnan(f) : w != f) {
      return kInfinity;
    }
  }
  return error;
}

}  // namespace ulfd::testing

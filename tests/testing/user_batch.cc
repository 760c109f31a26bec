// Made-up requests of one user and of batches of users.
// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/user_batch.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

namespace ulfd::testing {

namespace {

using engine::DType;
using engine::Level;
using engine::NamedTensor;
using engine::Tensor;

template <typename T>
void Append(T value, std::vector<char>& data) {
  const char* const bytes = reinterpret_cast<const char*>(&value);
  data.insert(data.end(), bytes, bytes + sizeof(T));
}

// One value like one of `sample`.
void Draw(const Tensor& sample, std::mt19937& random, std::vector<char>& data) {
  const int64_t n = std::max<int64_t>(sample.elements(), 1);
  const int64_t i = std::uniform_int_distribution<int64_t>(0, n - 1)(random);
  const bool any = sample.elements() > 0;
  switch (sample.dtype) {
    case DType::kFloat32: {
      const float noise = std::uniform_real_distribution<float>(-0.1f, 0.1f)(random);
      return Append<float>((any ? sample.f32()[i] : 1.0f) + noise, data);
    }
    case DType::kInt32:
      return Append<int32_t>(any ? sample.i32()[i] : 1, data);
    case DType::kInt64:
      return Append<int64_t>(any ? sample.i64()[i] : 1, data);
  }
}

}  // namespace

void OwnedRequest::Point() {
  tensors_.clear();
  for (Input& input : inputs_) {
    tensors_.push_back({input.name, {input.dtype, input.dims, input.data.data()}});
  }
}

OwnedRequest OwnedRequest::Make(const engine::ModelInfo& info, absl::Span<const NamedTensor> sample,
                                int64_t ads, int ids_per_row, std::mt19937& random) {
  std::map<std::string, Tensor> samples;
  for (const NamedTensor& tensor : sample) samples[std::string(tensor.name)] = tensor.tensor;
  OwnedRequest request;
  for (const engine::FeatureInfo& feature : info.features) {
    const int64_t rows = feature.level == Level::kUser ? 1 : ads;
    Input ids{info.inputs[feature.ids].name, DType::kInt64, {0}, {}};
    Input values{info.inputs[feature.values].name, DType::kFloat32, {0}, {}};
    Input segments{info.inputs[feature.segments].name, DType::kInt32, {rows}, {}};
    const Tensor one{DType::kFloat32, {0}, nullptr};
    for (int64_t r = 0; r < rows; ++r) {
      const int32_t count = std::uniform_int_distribution<int32_t>(0, ids_per_row)(random);
      Append(count, segments.data);
      for (int32_t i = 0; i < count; ++i) {
        Draw(samples.at(ids.name), random, ids.data);
        Draw(one, random, values.data);
      }
      ids.dims[0] = values.dims[0] += count;
    }
    for (Input* input : {&ids, &values, &segments}) request.inputs_.push_back(std::move(*input));
  }
  for (const engine::InputInfo& info_input : info.inputs) {
    if (info_input.feature >= 0 || !info_input.used) continue;
    const Tensor& like = samples.at(info_input.name);
    Input input{info_input.name, like.dtype, like.dims, {}};
    if (!input.dims.empty()) input.dims[0] = info_input.level == Level::kUser ? 1 : ads;
    int64_t elements = 1;
    for (int64_t d : input.dims) elements *= d;
    for (int64_t i = 0; i < elements; ++i) Draw(like, random, input.data);
    request.inputs_.push_back(std::move(input));
  }
  request.Point();
  return request;
}

OwnedRequest OwnedRequest::Join(absl::Span<const OwnedRequest> users) {
  OwnedRequest joined = users[0];
  for (const OwnedRequest& user : users.subspan(1)) {
    for (size_t i = 0; i < joined.inputs_.size(); ++i) {
      Input& to = joined.inputs_[i];
      const Input& from = user.inputs_[i];
      to.dims[0] += from.dims[0];
      to.data.insert(to.data.end(), from.data.begin(), from.data.end());
    }
  }
  joined.Point();
  return joined;
}

std::vector<OwnedOutput> Keep(const engine::RunResult& result) {
  std::vector<OwnedOutput> outputs;
  for (const Tensor& tensor : result.outputs) {
    OwnedOutput output{tensor.dims, {}};
    for (int64_t i = 0; i < tensor.elements(); ++i) {
      switch (tensor.dtype) {
        case DType::kFloat32:
          output.values.push_back(tensor.f32()[i]);
          break;
        case DType::kInt32:
          output.values.push_back(static_cast<float>(tensor.i32()[i]));
          break;
        case DType::kInt64:
          output.values.push_back(static_cast<float>(tensor.i64()[i]));
          break;
      }
    }
    outputs.push_back(std::move(output));
  }
  return outputs;
}

std::vector<OwnedOutput> Join(const engine::ModelInfo& info,
                              absl::Span<const std::vector<OwnedOutput>> users) {
  std::vector<OwnedOutput> joined = users[0];
  for (const std::vector<OwnedOutput>& user : users.subspan(1)) {
    for (size_t o = 0; o < joined.size(); ++o) {
      if (info.outputs[o].level == Level::kConstant) continue;
      joined[o].dims[0] += user[o].dims[0];
      joined[o].values.insert(joined[o].values.end(), user[o].values.begin(), user[o].values.end());
    }
  }
  return joined;
}

double Difference(absl::Span<const OwnedOutput> a, absl::Span<const OwnedOutput> b) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (a.size() != b.size()) return kInfinity;
  double error = 0;
  for (size_t o = 0; o < a.size(); ++o) {
    if (a[o].dims != b[o].dims) return kInfinity;
    double scale = 1;
    for (float v : b[o].values)
      scale = std::isfinite(v) ? std::max<double>(scale, std::abs(v)) : scale;
    for (size_t i = 0; i < b[o].values.size(); ++i) {
      const double x = a[o].values[i], y = b[o].values[i];
      if (std::isfinite(x) != std::isfinite(y) || std::isnan(x) != std::isnan(y)) return kInfinity;
      if (std::isfinite(x)) error = std::max(error, std::abs(x - y) / scale);
    }
  }
  return error;
}

}  // namespace ulfd::testing

// SPDX-License-Identifier: Apache-2.0
#include "tools/model/made_up_inputs.h"

#include <cmath>
#include <random>
#include <utility>

#include "base/errors.h"

namespace ulfd::tools {
namespace {

using engine::Level;
using engine::NpyArray;

void AddFeature(const engine::Model& model, int index, int64_t ads, int64_t user_ids,
                engine::NpzArrays& arrays) {
  const engine::ModelInfo& info = model.info();
  const engine::FeatureInfo& feature = info.features[index];
  const bool of_user = feature.level == Level::kUser;
  if (feature.max_ids_per_row > 0) user_ids = std::min<int64_t>(user_ids, feature.max_ids_per_row);
  const std::vector<int64_t> ids =
      model.SampleIds(index, of_user ? user_ids : ads, static_cast<uint64_t>(index) << 32);
  const int64_t count = static_cast<int64_t>(ids.size());
  std::vector<int32_t> segments(1, static_cast<int32_t>(count));
  if (!of_user) {
    segments.assign(ads, 0);
    std::fill_n(segments.begin(), count, 1);  // Ads without an id where the table has too few.
  }
  arrays[info.inputs[feature.ids].name] = NpyArray::FromInt64({count}, ids.data());
  arrays[info.inputs[feature.segments].name] =
      NpyArray::FromInt32({static_cast<int64_t>(segments.size())}, segments.data());
}

absl::StatusOr<std::vector<int64_t>> DimsFor(const engine::InputInfo& input, int64_t ads) {
  std::vector<int64_t> dims;
  bool known = input.shape.ranked();
  for (const engine::Dim& dim : input.shape.dims()) {
    known &= !dim.IsUnknown();
    dims.push_back(dim.value() * (dim.IsAds() ? ads : 1));
  }
  if (!known) {
    return FailedPrecondition(
        "the shape of input \"", input.name,
        "\" is not known: give --inputs=FILE.npz, or state it in the manifest (inputs)");
  }
  return dims;
}

template <typename T>
std::vector<T> Ones(int64_t count) {
  return std::vector<T>(static_cast<size_t>(count), T{1});
}

}  // namespace

absl::StatusOr<engine::NpzArrays> MakeUpInputs(const engine::Model& model, int64_t ads,
                                               int64_t user_ids) {
  const engine::ModelInfo& info = model.info();
  engine::NpzArrays arrays;
  for (size_t f = 0; f < info.features.size(); ++f) {
    AddFeature(model, static_cast<int>(f), ads, user_ids, arrays);
  }
  std::minstd_rand random(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (const engine::InputInfo& input : info.inputs) {
    if (!input.used || input.feature >= 0) continue;
    absl::StatusOr<std::vector<int64_t>> dims = DimsFor(input, ads);
    if (!dims.ok()) return dims.status();
    int64_t count = 1;
    for (int64_t d : *dims) count *= d;
    switch (input.dtype) {
      case engine::DType::kInt32:
        arrays[input.name] = NpyArray::FromInt32(*std::move(dims), Ones<int32_t>(count).data());
        break;
      case engine::DType::kInt64:
        arrays[input.name] = NpyArray::FromInt64(*std::move(dims), Ones<int64_t>(count).data());
        break;
      case engine::DType::kFloat32:
        std::vector<float> values(static_cast<size_t>(count));
        for (float& value : values) value = uniform(random);
        if (input.integers_below > 0) {
          for (float& value : values) value = std::round(value);
        }
        arrays[input.name] = NpyArray::FromFloat32(*std::move(dims), values.data());
        break;
    }
  }
  return arrays;
}

int64_t AdsOf(const engine::ModelInfo& info, const engine::NpzArrays& arrays) {
  for (const engine::InputInfo& input : info.inputs) {
    const auto array = arrays.find(input.name);
    if (input.level != Level::kAd || array == arrays.end() || array->second.dims.empty()) continue;
    if (input.feature >= 0) {
      const engine::FeatureInfo& feature = info.features[input.feature];
      const bool has_segments = arrays.count(info.inputs[feature.segments].name) > 0;
      // Without segments there is one id per ad.
      const int rows = has_segments ? feature.segments : feature.ids;
      if (&input != &info.inputs[rows]) continue;
    } else if (!input.shape.ranked() || input.shape.rank() == 0 ||
               !(input.shape[0] == engine::Dim::Ads())) {
      continue;
    }
    return array->second.dims[0];
  }
  return 1;
}

}  // namespace ulfd::tools

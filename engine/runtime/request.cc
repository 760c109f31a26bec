// SPDX-License-Identifier: Apache-2.0
#include "engine/runtime/request.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "base/errors.h"
#include "base/status_macros.h"

namespace ulfd::engine {

namespace {

void SetVector(DType dtype, int64_t n, void* data, Tensor& tensor) {
  tensor.dtype = dtype;
  tensor.data = data;
  if (tensor.dims.size() == 1) {
    tensor.dims[0] = n;
  } else {
    tensor.dims.assign(1, n);
  }
}

class Filler {
 public:
  Filler(const ModelInfo& info, Request& request) : info_(info), request_(request) {}

  absl::Status Fill(absl::Span<const int64_t> ads_per_user) {
    RETURN_IF_ERROR(FillUsers(ads_per_user));
    const size_t n = info_.inputs.size();
    request_.inputs.resize(n);
    request_.user_counts.resize(n);
    for (size_t i = 0; i < n; ++i) {
      const InputInfo& input = info_.inputs[i];
      if (input.feature >= 0) continue;
      if (request_.given[i] != nullptr) {
        request_.inputs[i] = *request_.given[i];
        MakeColumn(input, request_.inputs[i]);
        RETURN_IF_ERROR(CheckIntegers(input, request_.inputs[i]));
      } else if (input.used) {
        return Missing(i);
      } else {
        request_.inputs[i] = Tensor{};
      }
    }
    RETURN_IF_ERROR(ReserveOnes());
    for (const FeatureInfo& feature : info_.features) RETURN_IF_ERROR(FillFeature(feature));
    return absl::OkStatus();
  }

 private:
  const std::string& name(int input) const { return info_.inputs[input].name; }

  absl::Status Missing(size_t input) const {
    return InvalidArgument("input \"", info_.inputs[input].name, "\" is missing");
  }

  // A number per row is a column of them where that is stated: plans are of stated shapes.
  static void MakeColumn(const InputInfo& input, Tensor& tensor) {
    const bool column = input.shape_stated && input.shape.ranked() && input.shape.rank() == 2 &&
                        input.shape[1] == Dim::Of(1);
    if (column && tensor.dims.size() == 1) tensor.dims.push_back(1);
  }

  static absl::Status CheckIntegers(const InputInfo& input, const Tensor& given) {
    if (input.integers_below == 0) return absl::OkStatus();
    const auto n = static_cast<size_t>(given.elements());
    return given.dtype == DType::kInt64 ? CheckValues(input, absl::MakeConstSpan(given.i64(), n))
                                        : CheckValues(input, absl::MakeConstSpan(given.f32(), n));
  }

  template <class T>
  static absl::Status CheckValues(const InputInfo& input, absl::Span<const T> values) {
    const auto limit = static_cast<T>(input.integers_below);
    for (size_t i = 0; i < values.size(); ++i) {
      const T value = values[i];
      if (value > -limit && value < limit &&
          (std::is_integral_v<T> || value == std::trunc(value))) {
        continue;
      }
      return InvalidArgument("input \"", input.name, "\": element ", i, " is ", value,
                             ", want a whole number of a magnitude below ", input.integers_below);
    }
    return absl::OkStatus();
  }

  absl::Status FillUsers(absl::Span<const int64_t> ads_per_user) {
    request_.user_begin.clear();
    if (ads_per_user.empty()) return absl::OkStatus();
    request_.user_begin.push_back(0);
    for (size_t u = 0; u < ads_per_user.size(); ++u) {
      const int64_t ads = ads_per_user[u];
      if (ads < 0 || ads > INT32_MAX) {
        return InvalidArgument("ads_per_user[", u, "] is ", ads, ", want 0 to ", INT32_MAX);
      }
      request_.user_begin.push_back(request_.user_begin.back() + ads);
    }
    return absl::OkStatus();
  }

  // Before anything points there.
  absl::Status ReserveOnes() {
    int64_t most = 0;
    for (const FeatureInfo& feature : info_.features) {
      const Tensor* ids = request_.given[feature.ids];
      if (ids == nullptr && info_.inputs[feature.ids].used) return Missing(feature.ids);
      if (ids == nullptr) continue;
      if (request_.given[feature.segments] == nullptr) most = std::max(most, ids->elements());
    }
    if (most > static_cast<int64_t>(request_.ones.size())) request_.ones.resize(most, 1);
    return absl::OkStatus();
  }

  absl::Status FillFeature(const FeatureInfo& feature) {
    if (request_.given[feature.ids] == nullptr) {  // Nobody reads it.
      SetVector(DType::kInt64, 0, nullptr, request_.inputs[feature.ids]);
      SetVector(DType::kFloat32, 0, nullptr, request_.inputs[feature.values]);
      SetVector(DType::kInt32, 0, nullptr, request_.inputs[feature.segments]);
      return absl::OkStatus();
    }
    const Tensor& ids = *request_.given[feature.ids];
    const int64_t count = ids.elements();
    SetVector(ids.dtype, count, ids.data, request_.inputs[feature.ids]);
    // A tensor without data stands for "all ones".
    void* values_data = nullptr;
    if (const Tensor* values = request_.given[feature.values]; values != nullptr) {
      if (values->elements() != count) {
        return InvalidArgument("input \"", name(feature.values), "\": ", values->elements(),
                               " values, want ", count, ", one per id of \"", name(feature.ids),
                               "\"");
      }
      // An empty array has no address of its own, and nothing to read either.
      if (count > 0) values_data = values->data;
    }
    SetVector(DType::kFloat32, count, values_data, request_.inputs[feature.values]);
    return request_.given[feature.segments] == nullptr ? MakeSegments(feature, count)
                                                       : CheckSegments(feature, count);
  }

  absl::Status CheckIdsOfRow(const FeatureInfo& feature, int64_t row, int64_t ids) const {
    if (feature.max_ids_per_row == 0 || ids <= feature.max_ids_per_row) return absl::OkStatus();
    return InvalidArgument("feature \"", feature.name, "\": row ", row, " has ", ids,
                           " ids, want up to ", feature.max_ids_per_row);
  }

  absl::Status MakeSegments(const FeatureInfo& feature, int64_t count) {
    Tensor& segments = request_.inputs[feature.segments];
    if (feature.level != Level::kUser) {
      SetVector(DType::kInt32, count, request_.ones.data(), segments);
      return absl::OkStatus();
    }
    if (request_.users() == 1) {
      RETURN_IF_ERROR(CheckIdsOfRow(feature, 0, count));
      request_.user_counts[feature.segments] = static_cast<int32_t>(count);
      SetVector(DType::kInt32, 1, &request_.user_counts[feature.segments], segments);
      return absl::OkStatus();
    }
    if (count != request_.users()) {
      return InvalidArgument("input \"", name(feature.segments), "\" is missing, and \"",
                             name(feature.ids), "\" has ", count, " ids, not one for each of ",
                             request_.users(), " users");
    }
    SetVector(DType::kInt32, count, request_.ones.data(), segments);
    return absl::OkStatus();
  }

  absl::Status CheckSegments(const FeatureInfo& feature, int64_t count) {
    const Tensor& given = *request_.given[feature.segments];
    const int32_t* counts = given.i32();
    const int64_t rows = given.elements();
    int64_t sum = 0;
    int32_t least = 0, most = 0;
    for (int64_t r = 0; r < rows; ++r) {
      sum += counts[r];
      least = std::min(least, counts[r]);
      most = std::max(most, counts[r]);
    }
    if (least < 0) {
      const int64_t row =
          std::find_if(counts, counts + rows, [](int32_t n) { return n < 0; }) - counts;
      return InvalidArgument("input \"", name(feature.segments), "\": row ", row, " has ",
                             counts[row], " ids, want 0 or more");
    }
    if (sum != count) {
      return InvalidArgument("input \"", name(feature.segments), "\": rows add up to ", sum,
                             " ids, want ", count, ", the length of \"", name(feature.ids), "\"");
    }
    RETURN_IF_ERROR(CheckIdsOfRow(feature, std::find(counts, counts + rows, most) - counts, most));
    SetVector(DType::kInt32, rows, given.data, request_.inputs[feature.segments]);
    return absl::OkStatus();
  }

  const ModelInfo& info_;
  Request& request_;
};

}  // namespace

absl::Status FillRequest(const ModelInfo& info, absl::Span<const int64_t> ads_per_user,
                         Request& request) {
  return Filler(info, request).Fill(ads_per_user);
}

}  // namespace ulfd::engine

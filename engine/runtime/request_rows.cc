// SPDX-License-Identifier: Apache-2.0
#include "engine/runtime/request_rows.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/status_macros.h"

namespace ulfd::engine {

Level LevelOfDense(const InputInfo& input, int64_t rows) {
  return input.level == Level::kAd && !input.stated && rows == 1 ? Level::kUnknown : input.level;
}

absl::Status CheckCounts(absl::Span<const int32_t> counts, int64_t ids, absl::string_view what) {
  int64_t sum = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] < 0) {
      return InvalidArgument(what, "[", i, "] is ", counts[i], ", want 0 or more");
    }
    sum += counts[i];
  }
  if (sum == ids) return absl::OkStatus();
  return InvalidArgument(what, " sum to ", sum, ", want ", ids, ", the number of ids");
}

absl::Status AgreeOnAds(absl::string_view kind, absl::string_view name, int64_t rows,
                        std::optional<absl::string_view>& told_by, int64_t& ads) {
  if (!told_by.has_value()) {
    told_by = name;
    ads = rows;
  }
  if (rows == ads) return absl::OkStatus();
  return InvalidArgument(kind, " \"", name, "\": ", rows, " rows, but ", kind, " \"", *told_by,
                         "\" has ", ads, ": every ad ", kind, " has one row per ad");
}

namespace {

class RowSettler {
 public:
  RowSettler(const ModelInfo& info, absl::Span<Tensor* const> given) : info_(info), given_(given) {}

  absl::StatusOr<RequestRows> Settle() {
    for (const FeatureInfo& feature : info_.features) {
      if (given_[feature.ids] != nullptr) RETURN_IF_ERROR(CountFeature(feature));
    }
    for (size_t i = 0; i < info_.inputs.size(); ++i) {
      if (info_.inputs[i].feature < 0 && given_[i] != nullptr) RETURN_IF_ERROR(CountDense(i));
    }
    if (!ads_from_.has_value()) rows_.ads = loose_rows_;
    for (const FeatureInfo& feature : info_.features) RETURN_IF_ERROR(TakeUserOnce(feature));
    for (size_t i = 0; i < info_.inputs.size(); ++i) {
      if (info_.inputs[i].feature < 0) RETURN_IF_ERROR(TakeUserOnce(static_cast<int>(i)));
    }
    return rows_;
  }

 private:
  absl::Status Count(absl::string_view name, Level level, int64_t rows) {
    if (level == Level::kAd) return AgreeOnAds("input", name, rows, ads_from_, rows_.ads);
    if (level == Level::kUnknown) loose_rows_ = std::max(loose_rows_, rows);
    return absl::OkStatus();
  }

  absl::Status CountFeature(const FeatureInfo& feature) {
    for (const int index : {feature.ids, feature.values, feature.segments}) {
      if (given_[index] != nullptr) given_[index]->dims = {given_[index]->elements()};
    }
    const int64_t ids = given_[feature.ids]->dims[0];
    if (const Tensor* values = given_[feature.values];
        values != nullptr && values->dims[0] != ids) {
      return InvalidArgument("input \"", info_.inputs[feature.values].name, "\": ", values->dims[0],
                             " values, want ", ids, ", the length of \"",
                             info_.inputs[feature.ids].name, "\"");
    }
    if (given_[feature.segments] == nullptr) {
      const int64_t rows = feature.level == Level::kUser ? 1 : ids;
      return Count(info_.inputs[feature.ids].name, feature.level, rows);
    }
    const Tensor& segments = *given_[feature.segments];
    const std::string& name = info_.inputs[feature.segments].name;
    std::vector<int32_t> counts(segments.dims[0]);
    std::copy_n(static_cast<const char*>(segments.data), segments.bytes(),
                reinterpret_cast<char*>(counts.data()));
    RETURN_IF_ERROR(CheckCounts(counts, ids, absl::StrCat("input \"", name, "\": counts")));
    return Count(name, feature.level, segments.dims[0]);
  }

  absl::Status CountDense(size_t index) {
    const InputInfo& input = info_.inputs[index];
    const Tensor& tensor = *given_[index];
    if (tensor.rank() == 0) {
      return InvalidArgument("input \"", input.name, "\": no dimensions, want rows first");
    }
    return Count(input.name, LevelOfDense(input, tensor.dims[0]), tensor.dims[0]);
  }

  absl::Status WantEqualRows(int index, int64_t rows) const {
    const std::string& name = info_.inputs[index].name;
    const Tensor& tensor = *given_[index];
    if (rows != rows_.ads || rows == 0) {
      return InvalidArgument("input \"", name, "\": ", rows,
                             " rows, want 1: it belongs to the user");
    }
    const auto* const bytes = static_cast<const char*>(tensor.data);
    const size_t row_bytes = tensor.bytes() / rows;
    // What has no elements may have no address.
    for (int64_t row = 1; row < rows && row_bytes > 0; ++row) {
      if (std::memcmp(bytes, bytes + row * row_bytes, row_bytes) == 0) continue;
      return InvalidArgument("input \"", name, "\": ", rows, " rows, of which row ", row,
                             " is not like the first, want 1: it belongs to the user");
    }
    return absl::OkStatus();
  }

  void TakeOnce(int index, int64_t rows) {
    given_[index]->dims[0] /= rows;
    ++rows_.tiled_inputs;
  }

  absl::Status TakeUserOnce(int index) {
    const InputInfo& input = info_.inputs[index];
    if (given_[index] == nullptr || input.level != Level::kUser) return absl::OkStatus();
    const int64_t rows = given_[index]->dims[0];
    const Dim width = input.shape.RowElements();
    // One of another width is refused in the shape that its caller knows.
    const bool fits = !input.shape_stated || !width.IsConst() ||
                      given_[index]->elements() == rows * width.value();
    if (rows == 1 || !fits) return absl::OkStatus();
    RETURN_IF_ERROR(WantEqualRows(index, rows));
    TakeOnce(index, rows);
    return absl::OkStatus();
  }

  absl::Status TakeUserOnce(const FeatureInfo& feature) {
    const bool counted = given_[feature.ids] != nullptr && given_[feature.segments] != nullptr;
    if (!counted || feature.level != Level::kUser) return absl::OkStatus();
    const int64_t rows = given_[feature.segments]->dims[0];
    if (rows == 1) return absl::OkStatus();
    // As many ids in each row first: only then do rows of ids begin where they seem to.
    for (const int index : {feature.segments, feature.ids, feature.values}) {
      if (given_[index] != nullptr) RETURN_IF_ERROR(WantEqualRows(index, rows));
    }
    for (const int index : {feature.segments, feature.ids, feature.values}) {
      if (given_[index] != nullptr) TakeOnce(index, rows);
    }
    return absl::OkStatus();
  }

  const ModelInfo& info_;
  const absl::Span<Tensor* const> given_;
  RequestRows rows_;
  std::optional<absl::string_view> ads_from_;  // The input that told the number of ads.
  int64_t loose_rows_ = 1;                     // The most rows of inputs without a level.
};

}  // namespace

absl::StatusOr<RequestRows> SettleRows(const ModelInfo& info, absl::Span<Tensor* const> given) {
  return RowSettler(info, given).Settle();
}

}  // namespace ulfd::engine

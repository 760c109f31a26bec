// SPDX-License-Identifier: Apache-2.0
#include "server/models/merged_request.h"

#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"

namespace ulfd::server {
namespace {

using engine::FeatureInfo;
using engine::InputInfo;
using engine::Level;
using engine::ModelInfo;
using engine::Tensor;

absl::Status DoNotFit(const InputInfo& input, absl::string_view why) {
  return InvalidArgument("input \"", input.name, "\": ", why);
}

template <typename T>
void Append(const T* values, int64_t n, std::vector<char>& data) {
  const char* const bytes = reinterpret_cast<const char*>(values);
  if (n > 0) data.insert(data.end(), bytes, bytes + n * static_cast<int64_t>(sizeof(T)));
}

void Append(const Tensor& tensor, std::vector<char>& data) {
  Append(static_cast<const char*>(tensor.data), static_cast<int64_t>(tensor.bytes()), data);
}

// The tensors one behind the other.
std::vector<char> Concatenate(const std::vector<const Tensor*>& tensors) {
  int64_t bytes = 0;
  for (const Tensor* tensor : tensors) bytes += static_cast<int64_t>(tensor->bytes());
  std::vector<char> data;
  data.reserve(static_cast<size_t>(bytes));
  for (const Tensor* tensor : tensors) Append(*tensor, data);
  return data;
}

int64_t ElementsOf(const std::vector<const Tensor*>& tensors) {
  int64_t count = 0;
  for (const Tensor* tensor : tensors) count += tensor->elements();
  return count;
}

// Whether all parts give it (then `some`, too), or none.
bool AllOrNone(const std::vector<const Tensor*>& column, bool& some) {
  const auto given = std::count_if(column.begin(), column.end(),
                                   [](const Tensor* tensor) { return tensor != nullptr; });
  some = given > 0;
  return given == 0 || given == static_cast<int64_t>(column.size());
}

}  // namespace

bool CanMerge(const engine::Model& model) {
  const ModelInfo& info = model.info();
  if (!model.joins_users()) return false;
  if (!info.row_separable) return true;
  return std::all_of(info.outputs.begin(), info.outputs.end(), [](const engine::OutputInfo& out) {
    return out.level == Level::kUser || out.level == Level::kAd || out.level == Level::kConstant;
  });
}

absl::Status MergedRequest::Arrange(const engine::Model& model, absl::Span<const Part> parts) {
  columns_.assign(model.info().inputs.size(), Column(parts.size(), nullptr));
  for (size_t p = 0; p < parts.size(); ++p) {
    for (const engine::NamedTensor& input : parts[p].inputs) {
      const int index = model.FindInput(input.name);
      if (index < 0 || columns_[index][p] != nullptr) {
        return InvalidArgument("input \"", input.name, "\": unknown, or given twice");
      }
      columns_[index][p] = &input.tensor;
    }
  }
  return absl::OkStatus();
}

absl::Status MergedRequest::Join(const engine::Model& model, absl::Span<const Part> parts) {
  const ModelInfo& info = model.info();
  inputs_.clear();
  data_.clear();
  data_.reserve(info.inputs.size());
  ads_.clear();
  begins_.assign(1, 0);
  fetched_.tables.clear();
  for (const Part& part : parts) {
    if (part.fetched != nullptr) {
      fetched_.tables.resize(part.fetched->tables.size());
      for (size_t t = 0; t < fetched_.tables.size(); ++t) {
        fetched_.tables[t].Borrow(part.fetched->tables[t]);
      }
    }
    ads_.push_back(part.ads);
    begins_.push_back(begins_.back() + part.ads);
  }
  RETURN_IF_ERROR(Arrange(model, parts));
  for (const FeatureInfo& feature : info.features) RETURN_IF_ERROR(JoinFeature(info, feature));
  for (size_t i = 0; i < info.inputs.size(); ++i) {
    if (info.inputs[i].feature < 0) RETURN_IF_ERROR(JoinDense(info.inputs[i], columns_[i]));
  }
  return absl::OkStatus();
}

void MergedRequest::Add(const InputInfo& input, engine::TensorDims dims, std::vector<char> data) {
  data_.push_back(std::move(data));
  inputs_.push_back({input.name, {input.dtype, std::move(dims), data_.back().data()}});
}

absl::Status MergedRequest::JoinDense(const InputInfo& input, const Column& column) {
  bool some = false;
  if (!AllOrNone(column, some)) return DoNotFit(input, "given by some requests, not by others");
  if (!some) return absl::OkStatus();
  engine::TensorDims dims = column[0]->dims;
  int64_t rows = 0;
  for (const Tensor* tensor : column) {
    if (tensor->dtype != input.dtype) return DoNotFit(input, "of several types");
    if (dims.empty() || tensor->dims.size() != dims.size() ||
        !std::equal(dims.begin() + 1, dims.end(), tensor->dims.begin() + 1)) {
      return DoNotFit(input, "rows of several shapes");
    }
    rows += tensor->dims[0];
  }
  dims[0] = rows;
  Add(input, std::move(dims), Concatenate(column));
  return absl::OkStatus();
}

absl::Status MergedRequest::JoinFeature(const ModelInfo& info, const FeatureInfo& feature) {
  const Column& ids = columns_[feature.ids];
  const InputInfo& input = info.inputs[feature.ids];
  bool some = false;
  if (!AllOrNone(ids, some)) return DoNotFit(input, "given by some requests, not by others");
  if (!some) return absl::OkStatus();
  Add(input, {ElementsOf(ids)}, Concatenate(ids));
  if (feature.values >= 0) JoinValues(info.inputs[feature.values], columns_[feature.values], ids);
  if (feature.segments >= 0) {
    JoinSegments(info.inputs[feature.segments], feature.level, columns_[feature.segments], ids);
  }
  return absl::OkStatus();
}

void MergedRequest::JoinValues(const InputInfo& input, const Column& values, const Column& ids) {
  bool some = false;
  AllOrNone(values, some);
  if (!some) return;  // All ones.
  const int64_t count = ElementsOf(ids);
  std::vector<char> data;
  data.reserve(static_cast<size_t>(count) * sizeof(float));
  for (size_t p = 0; p < ids.size(); ++p) {
    const int64_t n = ids[p]->elements();
    if (values[p] != nullptr) {
      Append(*values[p], data);
    } else {
      const std::vector<float> ones(static_cast<size_t>(n), 1.0f);
      Append(ones.data(), n, data);
    }
  }
  Add(input, {count}, std::move(data));
}

void MergedRequest::JoinSegments(const InputInfo& input, Level level, const Column& segments,
                                 const Column& ids) {
  bool some = false;
  AllOrNone(segments, some);
  if (!some && level != Level::kUser) return;  // One id per row.
  std::vector<char> data;
  int64_t rows = 0;
  for (size_t p = 0; p < ids.size(); ++p) {
    const int64_t n = ids[p]->elements();
    if (segments[p] != nullptr) {
      rows += segments[p]->elements();
      Append(*segments[p], data);
    } else if (level == Level::kUser) {  // All ids in the user's row.
      ++rows;
      const auto all = static_cast<int32_t>(n);
      Append(&all, 1, data);
    } else {
      rows += n;
      const std::vector<int32_t> ones(static_cast<size_t>(n), 1);
      Append(ones.data(), n, data);
    }
  }
  Add(input, {rows}, std::move(data));
}

absl::Status MergedRequest::Cut(const ModelInfo& info, const engine::RunResult& all, int64_t index,
                                engine::RunResult& one) const {
  one.outputs.resize(all.outputs.size());
  one.tensors.clear();
  one.stats = all.stats;
  const auto users = static_cast<int64_t>(ads_.size());
  for (size_t o = 0; o < all.outputs.size(); ++o) {
    const Tensor& from = all.outputs[o];
    Tensor& to = one.outputs[o];
    to = from;
    if (info.outputs[o].level == Level::kConstant) continue;
    const bool of_users = info.outputs[o].level == Level::kUser;
    const int64_t rows = of_users ? users : begins_.back();
    if (from.dims.empty() || from.dims[0] != rows) {
      return Internal("output \"", info.outputs[o].name, "\" of a batch of ", users,
                      " users: shape ", engine::ToString(from.dims), ", want ", rows, " rows");
    }
    to.dims[0] = of_users ? 1 : ads_[index];
    if (rows == 0) continue;
    const int64_t row_bytes = static_cast<int64_t>(from.bytes()) / rows;
    to.data = static_cast<char*>(from.data) + (of_users ? index : begins_[index]) * row_bytes;
  }
  return absl::OkStatus();
}

void ShareMissingIds(const engine::Model& model, absl::Span<const MergedRequest::Part> parts,
                     const engine::FetchedRows* fetched, absl::Span<const int64_t> missing,
                     std::vector<std::vector<int64_t>>& missing_of) {
  missing_of.assign(parts.size(), std::vector<int64_t>(missing.size(), 0));
  if (std::all_of(missing.begin(), missing.end(), [](int64_t n) { return n == 0; })) return;
  std::vector<int64_t> sums(missing.size(), 0);
  for (size_t p = 0; p < parts.size(); ++p) {
    model.ForEachMissingId(parts[p].inputs, fetched,
                           [&](size_t table, int64_t) { ++missing_of[p][table]; });
    for (size_t t = 0; t < sums.size(); ++t) sums[t] += missing_of[p][t];
  }
  // A run counts an id once per layer that looks it up: each part by so many times as the whole.
  for (std::vector<int64_t>& counts : missing_of) {
    for (size_t t = 0; t < sums.size(); ++t) {
      if (sums[t] > 0) counts[t] = counts[t] * missing[t] / sums[t];
    }
  }
}

}  // namespace ulfd::server

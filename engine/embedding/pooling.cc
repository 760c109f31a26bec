// Ids -> rows of a table -> columns of a block.
// SPDX-License-Identifier: Apache-2.0
#include "engine/embedding/pooling.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace ulfd::engine {
namespace {

// How far ahead of its use an id's bucket and a row are fetched: enough loads in flight to hide a
// cache miss.
constexpr size_t kBucketsAhead = 16;
constexpr size_t kRowsAhead = 8;

inline void Set(const float* __restrict row, float value, int64_t dim, float* __restrict out) {
  for (int64_t c = 0; c < dim; ++c) out[c] = value * row[c];
}

inline void Accumulate(const float* __restrict row, float value, int64_t dim,
                       float* __restrict out) {
  for (int64_t c = 0; c < dim; ++c) out[c] += value * row[c];
}

// Walks over the ids of a feature and fetches rows ahead.
struct RowCursor {
  const EmbeddingTable& table;
  const FeatureInput& input;
  const float* const* rows;

  const float* Row(size_t i) const {
    if (i + kRowsAhead < input.ids.size()) table.PrefetchRow(rows[i + kRowsAhead]);
    return rows[i];
  }
  float Value(size_t i) const { return input.values == nullptr ? 1.0f : input.values[i]; }
};

void PoolSum(const PoolingSpec& spec, const RowCursor& cursor, size_t begin, size_t count,
             float* out) {
  bool started = false;
  for (size_t i = begin; i < begin + count; ++i) {
    const float* row = cursor.Row(i);
    if (row == nullptr) continue;
    if (started) {
      Accumulate(row, cursor.Value(i), spec.dim, out);
    } else {
      Set(row, cursor.Value(i), spec.dim, out);
    }
    started = true;
  }
  if (!started) {
    std::fill_n(out, spec.dim, 0.0f);
  } else if (spec.pooling == Pooling::kAvg && count > 1) {
    const auto divisor = static_cast<float>(count);
    for (int64_t c = 0; c < spec.dim; ++c) out[c] /= divisor;
  }
}

void PoolAssign(const PoolingSpec& spec, const RowCursor& cursor, size_t begin, size_t count,
                float* out) {
  const auto slots = static_cast<size_t>(spec.trunc_num);
  const size_t first = spec.keep_last ? slots - count : 0;
  std::fill_n(out, first * spec.dim, 0.0f);
  for (size_t k = 0; k < count; ++k) {
    float* slot = out + (first + k) * spec.dim;
    if (const float* row = cursor.Row(begin + k); row != nullptr) {
      Set(row, cursor.Value(begin + k), spec.dim, slot);
    } else {
      std::fill_n(slot, spec.dim, 0.0f);
    }
  }
  std::fill_n(out + (first + count) * spec.dim, (slots - first - count) * spec.dim, 0.0f);
}

}  // namespace

absl::Status CheckSegments(const FeatureInput& input) {
  int64_t sum = 0;
  for (size_t row = 0; row < input.segments.size(); ++row) {
    if (input.segments[row] < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("segments[", row, "] is ", input.segments[row], ", want at least 0"));
    }
    sum += input.segments[row];
  }
  if (sum == static_cast<int64_t>(input.ids.size())) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("segments sum to ", sum, ", want ", input.ids.size(), ", the number of ids"));
}

absl::Status LookUp(const EmbeddingTable& table, absl::Span<const int64_t> ids, const float** rows,
                    int64_t* missing) {
  for (size_t i = 0; i < std::min(kBucketsAhead, ids.size()); ++i) table.Prefetch(ids[i]);
  const float* missing_row = table.missing_row();
  int64_t misses = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i + kBucketsAhead < ids.size()) table.Prefetch(ids[i + kBucketsAhead]);
    rows[i] = table.Find(ids[i]);
    if (rows[i] != nullptr) continue;
    ++misses;
    rows[i] = missing_row;
    if (table.missing_keys() != MissingKeys::kError) continue;
    *missing += misses;
    return absl::InvalidArgumentError(
        absl::StrCat("id ", ids[i], " is not in table \"", table.name(), "\""));
  }
  *missing += misses;
  return absl::OkStatus();
}

void Pool(const PoolingSpec& spec, const EmbeddingTable& table, const FeatureInput& input,
          const float* const* rows, float* out, int64_t stride) {
  const RowCursor cursor{table, input, rows};
  const bool assign = spec.pooling == Pooling::kAssign;
  const bool truncate = assign || spec.trunc_num > 0;
  const auto most = static_cast<size_t>(spec.trunc_num);
  size_t begin = 0;
  for (size_t r = 0; r < input.segments.size(); ++r) {
    const auto all = static_cast<size_t>(input.segments[r]);
    const size_t count = truncate ? std::min(all, most) : all;
    const size_t from = spec.keep_last ? begin + all - count : begin;
    float* row_out = out + static_cast<int64_t>(r) * stride;
    if (assign) {
      PoolAssign(spec, cursor, from, count, row_out);
    } else {
      PoolSum(spec, cursor, from, count, row_out);
    }
    begin += all;
  }
}

}  // namespace ulfd::engine

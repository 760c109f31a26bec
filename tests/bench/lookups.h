// Requests of lookups in a table, and the same rows by their addresses.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TESTS_BENCH_LOOKUPS_H_
#define ULFD_TESTS_BENCH_LOOKUPS_H_

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "engine/embedding/pooling.h"
#include "engine/embedding/table_builder.h"

namespace ulfd::bench {

inline constexpr int64_t kIdsPerRequest = 2000;  // In features of 200.

// Id of row i; odd ids are in no table.
inline int64_t IdOf(int64_t i) { return i * 2; }

// `consecutive`: the id of row i is i instead.
inline absl::StatusOr<std::unique_ptr<const engine::EmbeddingTable>> MakeTable(
    int64_t rows, int64_t dim, bool consecutive = false) {
  engine::TableBuilder builder(dim);
  RETURN_IF_ERROR(builder.Reserve(rows));
  for (int64_t i = 0; i < rows; ++i) {
    ASSIGN_OR_RETURN(float* row, builder.NextRow());
    std::fill_n(row, dim, static_cast<float>(i % 1000));
    builder.Commit(consecutive ? i : IdOf(i));
  }
  ASSIGN_OR_RETURN(auto made, builder.Finish());
  return engine::EmbeddingTable::Make("bench", std::move(made), {});
}

// Some ids of a table and where their rows are (or those of other ids, for ids that the table
// lacks).
struct LookupRequest {
  std::vector<int64_t> ids;
  std::vector<const float*> rows;
};

// `hits` of 100 ids are in the table, whose rows the gather reads.
inline LookupRequest MakeLookups(const engine::EmbeddingTable& table, int hits,
                                 std::mt19937_64& random) {
  const bool consecutive = table.base()->first_id.has_value();
  LookupRequest made;
  for (int64_t i = 0; i < kIdsPerRequest; ++i) {
    const auto row = static_cast<int64_t>(random() % static_cast<uint64_t>(table.rows()));
    const bool hit = static_cast<int>(random() % 100) < hits;
    const int64_t id = consecutive ? row : IdOf(row);
    made.ids.push_back(hit ? id : consecutive ? id + table.rows() : id + 1);
    made.rows.push_back(static_cast<const float*>(table.Find(id)));
  }
  return made;
}

inline void PrefetchFloats(const float* row, int64_t dim) {
  for (int64_t c = 0; c < dim; c += 16) __builtin_prefetch(row + c);
  __builtin_prefetch(row + dim - 1);
}

// The sum of the rows, each asked for 16 ahead, by code that knows their length at compile time.
template <int64_t kDim>
void GatherDim(const std::vector<const float*>& rows, float* sum) {
  constexpr size_t kAhead = 16;
  float total[kDim] = {};
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i + kAhead < rows.size()) PrefetchFloats(rows[i + kAhead], kDim);
    for (int64_t c = 0; c < kDim; ++c) total[c] += rows[i][c];
  }
  std::copy_n(total, kDim, sum);
}

// What PoolFeatures wants, for one request at a time.
class LookupPass {
 public:
  // `bag`: ids whose rows are summed.
  LookupPass(const engine::EmbeddingTable& table, int32_t bag)
      : scratch_(kIdsPerRequest * engine::kPoolingScratchBytes),
        segments_(kFeatureIds / bag, bag),
        out_(static_cast<size_t>(kIdsPerRequest / bag * table.dim())),
        outputs_(kIdsPerRequest / kFeatureIds) {
    for (size_t f = 0; f < outputs_.size(); ++f) {
      outputs_[f] = {{.pooling = engine::Pooling::kSum, .dim = table.dim()},
                     out_.data() + f * segments_.size() * static_cast<size_t>(table.dim()),
                     table.dim()};
      jobs_.push_back({.table = &table,
                       .input = {{}, nullptr, segments_},
                       .outputs = {&outputs_[f], 1},
                       .missing = &missing_});
    }
  }
  absl::Status Run(const LookupRequest& request) {
    for (size_t f = 0; f < jobs_.size(); ++f) {
      jobs_[f].input.ids = absl::MakeConstSpan(request.ids).subspan(f * kFeatureIds, kFeatureIds);
    }
    size_t failed = 0;
    engine::Pace pace;
    return PoolFeatures(jobs_, scratch_.data(), pace, &failed);
  }
  // The sums of the last request, bag by bag.
  const std::vector<float>& out() const { return out_; }
  int64_t missing() const { return missing_; }

 private:
  static constexpr int64_t kFeatureIds = 200;
  std::vector<char> scratch_;
  std::vector<int32_t> segments_;
  std::vector<float> out_;
  std::vector<engine::PoolingOutput> outputs_;
  std::vector<engine::FeatureJob> jobs_;
  int64_t missing_ = 0;
};

}  // namespace ulfd::bench

#endif  // ULFD_TESTS_BENCH_LOOKUPS_H_

// The target of embedding lookups: one pass over a request's ids against a bare gather of the same
// rows.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "benchmark/benchmark.h"
#include "engine/embedding/pooling.h"
#include "engine/embedding/table_builder.h"
#include "tests/bench/targets.h"

namespace ulfd::bench {
namespace {

constexpr int64_t kKeys = 40000000, kDim = 18;
constexpr int64_t kRequests = 500;  // Together far more rows than any cache holds.
constexpr int64_t kIds = 2000;      // Of a request, in features of 200, in bags of 10.
constexpr int64_t kFeatureIds = 200, kBag = 10;
constexpr double kTarget = 1.3;
constexpr int64_t kNeededBytes = int64_t{7}
                                 << 30;  // Table, index while it is made, and room to spare.

int64_t AvailableBytes() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    long kib = 0;
    if (std::sscanf(line.c_str(), "MemAvailable: %ld kB", &kib) == 1) return int64_t{kib} * 1024;
  }
  return 0;
}

absl::StatusOr<std::unique_ptr<const engine::EmbeddingTable>> MakeTable() {
  engine::TableBuilder builder(kDim);
  RETURN_IF_ERROR(builder.Reserve(kKeys));
  for (int64_t key = 0; key < kKeys; ++key) {
    ASSIGN_OR_RETURN(float* row, builder.NextRow());
    std::fill_n(row, kDim, static_cast<float>(key % 1000));
    builder.Commit(key);
  }
  ASSIGN_OR_RETURN(auto rows, builder.Finish());
  return engine::EmbeddingTable::Make("lookups", std::move(rows), {});
}

// The same ids for both: as ids, and as the addresses of their rows.
struct LookupRequest {
  std::vector<int64_t> ids;
  std::vector<const float*> rows;
};

// What PoolFeatures wants, for one request at a time.
class Pass {
 public:
  explicit Pass(const engine::EmbeddingTable& table)
      : scratch_(kIds * engine::kPoolingScratchBytes),
        segments_(kFeatureIds / kBag, kBag),
        out_(static_cast<size_t>(kIds / kBag * kDim)),
        outputs_(kIds / kFeatureIds) {
    for (size_t f = 0; f < outputs_.size(); ++f) {
      outputs_[f] = {{.pooling = engine::Pooling::kSum, .dim = kDim},
                     out_.data() + f * segments_.size() * kDim,
                     kDim};
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
    return engine::PoolFeatures(jobs_, scratch_.data(), &failed);
  }
  // INTERNAL unless the sums of the last request are right.
  absl::Status Check(const LookupRequest& request) const {
    for (int64_t bag = 0; bag < kIds / kBag; ++bag) {
      float sum = 0;  // Whole numbers: exact in any order.
      for (int64_t i = 0; i < kBag; ++i) sum += request.rows[bag * kBag + i][0];
      for (int64_t c = 0; c < kDim; ++c) {
        if (out_[bag * kDim + c] == sum) continue;
        return absl::InternalError(
            absl::StrFormat("bag %d column %d: %g, want %g", bag, c, out_[bag * kDim + c], sum));
      }
    }
    return missing_ == 0 ? absl::OkStatus() : absl::InternalError("ids are missing");
  }

 private:
  std::vector<char> scratch_;
  std::vector<int32_t> segments_;
  std::vector<float> out_;
  std::vector<engine::PoolingOutput> outputs_;
  std::vector<engine::FeatureJob> jobs_;
  int64_t missing_ = 0;
};

// Sums the rows, asking for them 16 ahead; one length, known at compile time.
void Gather(const LookupRequest& request) {
  constexpr size_t kAhead = 16;
  float sum[kDim] = {};
  const std::vector<const float*>& rows = request.rows;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i + kAhead < rows.size()) {
      __builtin_prefetch(rows[i + kAhead]);
      __builtin_prefetch(rows[i + kAhead] + kDim - 1);
    }
    for (int64_t c = 0; c < kDim; ++c) sum[c] += rows[i][c];
  }
  benchmark::DoNotOptimize(sum);
}

}  // namespace

absl::Status MeasureLookups(TargetContext& context, const std::string& row) {
  TargetLine line{.row = row,
                  .work = "one pass of lookups, 40 M keys of 18 floats: over a bare gather",
                  .target = absl::StrFormat("at most %.3g x", kTarget)};
  if (AvailableBytes() < kNeededBytes) {
    Skip(context, row, line.work, line.target, "less than 7 GiB of memory available");
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const auto table, MakeTable());
  std::mt19937_64 random(3);
  std::vector<LookupRequest> requests(kRequests);
  for (LookupRequest& request : requests) {
    for (int64_t i = 0; i < kIds; ++i) {
      request.ids.push_back(static_cast<int64_t>(random() % kKeys));
      request.rows.push_back(static_cast<const float*>(table->Find(request.ids.back())));
    }
  }
  Pass pass(*table);
  RETURN_IF_ERROR(pass.Run(requests[0]));
  RETURN_IF_ERROR(pass.Check(requests[0]));
  // The gather is half of the requests ahead, so that neither finds what the other one brought into
  // the cache.
  int64_t passed = 0, gathered = kRequests / 2;
  ASSIGN_OR_RETURN(const Turns turns,
                   RunInTurns({{"pass", [&] { return pass.Run(requests[passed++ % kRequests]); }},
                               {"gather",
                                [&] {
                                  Gather(requests[gathered++ % kRequests]);
                                  return absl::OkStatus();
                                }}},
                              context.turns));
  const Spread ratio = SpreadOf(Ratios(turns.seconds[0], turns.seconds[1]));
  line.reached = Format(ratio, " x");
  line.verdict = ratio.median <= kTarget ? Verdict::kReached : Verdict::kMissed;
  line.numbers = {{"ratio", ratio.median}, {"ratio_low", ratio.low}, {"ratio_high", ratio.high}};
  line.detail = absl::StrFormat(
      "%.1f and %.1f ns per id; table %.2f GB", SpreadOf(turns.seconds[0]).median / kIds * 1e9,
      SpreadOf(turns.seconds[1]).median / kIds * 1e9, static_cast<double>(table->bytes()) * 1e-9);
  context.lines.push_back(std::move(line));
  return absl::OkStatus();
}

}  // namespace ulfd::bench

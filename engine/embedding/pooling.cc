// Ids -> rows of a table -> columns of a block.
// SPDX-License-Identifier: Apache-2.0
#include "engine/embedding/pooling.h"

#include <algorithm>
#include <array>
#include <limits>

#include "absl/strings/str_cat.h"
#include "engine/embedding/row_pooling.h"
#include "engine/status_macros.h"

namespace ulfd::engine {
namespace {

// Ids that a stage of the pass handles before the next one does: enough loads in flight to hide a
// cache miss, few enough for what was fetched to be there still when it is used.
constexpr size_t kWindow = 16;

// A place in the ids of all jobs, one after the other.
struct Cursor {
  size_t job = 0;
  size_t id = 0;        // Of the job.
  size_t position = 0;  // Of all ids.
};

// The pass.  Three stages run one window apart: the first asks for what leads from the id to its
// row, the second for the row, the third compares ids.
class LookupPass {
 public:
  // `rows`: one per id.
  LookupPass(absl::Span<const FeatureJob> jobs, const float** rows) : jobs_(jobs), rows_(rows) {}

  // Makes sure that rows()[0 .. end - 1] are final.
  absl::Status Advance(size_t end) {
    while (checked_.position < end) {
      Hash(checked_.position + 3 * kWindow);
      Locate(checked_.position + 2 * kWindow);
      RETURN_IF_ERROR(Check(checked_.position + kWindow));
    }
    return absl::OkStatus();
  }
  const float* const* rows() const { return rows_; }
  // The job for which Advance failed.
  size_t failed() const { return failed_; }

 private:
  // Calls stage(job, first id, position of that, count) for each job's ids between the cursor and
  // `end`, and moves the cursor there or behind the last id.
  template <typename Stage>
  inline void Walk(Cursor& cursor, size_t end, Stage stage) const {
    while (cursor.position < end && cursor.job < jobs_.size()) {
      const FeatureJob& job = jobs_[cursor.job];
      const size_t count = std::min(job.input.ids.size() - cursor.id, end - cursor.position);
      stage(job, cursor.id, cursor.position, count);
      cursor.id += count;
      cursor.position += count;
      if (cursor.id == job.input.ids.size()) {
        ++cursor.job;
        cursor.id = 0;
      }
    }
  }

  void Hash(size_t end) {
    Walk(hashed_, end, [this](const FeatureJob& job, size_t id, size_t at, size_t count) {
      for (size_t i = 0; i < count; ++i) {
        const uint64_t hash = HashKey(job.input.ids[id + i]);
        hashes_[(at + i) % kHashes] = hash;
        job.table->PrefetchCandidate(hash);
      }
    });
  }

  void Locate(size_t end) {
    Walk(located_, end, [this](const FeatureJob& job, size_t, size_t at, size_t count) {
      for (size_t i = 0; i < count; ++i) {
        rows_[at + i] = job.table->Candidate(hashes_[(at + i) % kHashes]);
        job.table->PrefetchRow(rows_[at + i]);
      }
    });
  }

  absl::Status Check(size_t end) {
    absl::Status status;
    Walk(checked_, end, [&](const FeatureJob& job, size_t id, size_t at, size_t count) {
      const int64_t* ids = job.input.ids.data() + id;
      const float* stand_in = job.table->missing_row();
      size_t misses = 0;
      for (size_t i = 0; i < count; ++i) {
        const bool holds = EmbeddingTable::Holds(rows_[at + i], ids[i]);
        rows_[at + i] = holds ? rows_[at + i] : stand_in;
        misses += holds ? 0 : 1;
      }
      *job.missing += static_cast<int64_t>(misses);
      if (misses > 0 && job.table->missing_keys() == MissingKeys::kError && status.ok()) {
        status = Refuse(job, at, absl::MakeConstSpan(ids, count));
        failed_ = static_cast<size_t>(&job - jobs_.data());
      }
    });
    return status;
  }

  // Under kError a row is nullptr where the table lacks the id.
  absl::Status Refuse(const FeatureJob& job, size_t at, absl::Span<const int64_t> ids) const {
    size_t i = 0;
    while (rows_[at + i] != nullptr) ++i;
    return absl::InvalidArgumentError(
        absl::StrCat("id ", ids[i], " is not in table \"", job.table->name(), "\""));
  }

  static constexpr size_t kHashes = 4 * kWindow;  // Hash is at most 3 windows ahead of Locate.

  const absl::Span<const FeatureJob> jobs_;
  const float** const rows_;
  Cursor hashed_, located_, checked_;
  std::array<uint64_t, kHashes> hashes_;  // By position, from Hash to Locate.
  size_t failed_ = 0;
};

void PoolRows(const RowPooling& loops, const PoolingOutput& output, PoolingRun& run, size_t row) {
  const PoolingSpec& spec = output.spec;
  const bool assign = spec.pooling == Pooling::kAssign;
  if (spec.width() == 0) return;
  run.dim = spec.dim;
  run.most = assign || spec.trunc_num > 0 ? spec.trunc_num : std::numeric_limits<int64_t>::max();
  run.keep_last = spec.keep_last;
  run.out = output.out + static_cast<int64_t>(row) * output.stride;
  run.stride = output.stride;
  (assign ? loops.assign : spec.pooling == Pooling::kAvg ? loops.avg : loops.sum)(run);
}

// The feature whose first id is at position `first`.
absl::Status PoolFeature(const FeatureJob& job, const RowPooling& loops, size_t first,
                         LookupPass& pass) {
  const absl::Span<const int32_t> segments = job.input.segments;
  size_t begin = 0;
  for (size_t row = 0; row < segments.size();) {
    size_t end = begin, next = row;
    while (next < segments.size() && end < begin + kWindow) {
      end += static_cast<size_t>(segments[next++]);
    }
    RETURN_IF_ERROR(pass.Advance(first + end));
    PoolingRun run;
    run.rows = pass.rows() + first + begin;
    run.values = job.input.values == nullptr ? nullptr : job.input.values + begin;
    run.segments = segments.data() + row;
    run.row_count = next - row;
    for (const PoolingOutput& output : job.outputs) PoolRows(loops, output, run, row);
    row = next;
    begin = end;
  }
  return absl::OkStatus();
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

absl::Status PoolFeatures(absl::Span<const FeatureJob> jobs, void* scratch, size_t* failed) {
  const RowPooling loops = BestRowPooling();
  LookupPass pass(jobs, static_cast<const float**>(scratch));
  size_t first = 0;
  for (const FeatureJob& job : jobs) {
    absl::Status status = PoolFeature(job, loops, first, pass);
    if (!status.ok()) {
      *failed = pass.failed();
      return status;
    }
    first += job.input.ids.size();
  }
  return absl::OkStatus();
}

}  // namespace ulfd::engine

// Ids -> rows of a table -> columns of a block.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_EMBEDDING_POOLING_H_
#define ULFD_ENGINE_EMBEDDING_POOLING_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/embedding/table.h"
#include "engine/tensor/pace.h"

namespace ulfd::engine {

enum class Pooling : uint8_t { kSum, kAvg, kAssign };

// How one item of a block pools its feature.
struct PoolingSpec {
  Pooling pooling = Pooling::kSum;
  int64_t dim = 0;        // Of the table.
  int64_t trunc_num = 0;  // kAssign: slots.  Others: at most so many ids of a row count; 0: all.
  // Which ids survive truncation, and kAssign: on which side they stand (see Pool).
  bool keep_last = true;

  // Columns that the item fills.
  int64_t width() const { return pooling == Pooling::kAssign ? dim * trunc_num : dim; }
};

// One feature of a request.
struct FeatureInput {
  absl::Span<const int64_t> ids;
  const float* values = nullptr;       // Per id; nullptr: all 1.
  absl::Span<const int32_t> segments;  // Ids per row.
};

// INVALID_ARGUMENT unless the segments are not negative and sum to the number of ids.
absl::Status CheckSegments(const FeatureInput& input);

// Where an item's columns go: `out` is its first column in row 0 of a block, `stride` the floats
// from one row of the block to the next.
struct PoolingOutput {
  PoolingSpec spec;
  float* out = nullptr;
  int64_t stride = 0;
};

// One feature of a request with everything that is done to it; it is looked up once, however many
// outputs read it.  Several layers may put their features into one list.
struct FeatureJob {
  const EmbeddingTable* table = nullptr;
  FeatureInput input;
  absl::Span<const PoolingOutput> outputs;  // Of the dim of the table.
  int64_t* missing = nullptr;               // Grows by the ids that the table lacks, whether or not
                                            // truncation drops them.
  const RowSet* fetched = nullptr;          // Where the rows are, if the table has a tier.
};

// Scratch of PoolFeatures, per id of all features.
constexpr size_t kPoolingScratchBytes = sizeof(const void*);

// Looks up and pools all features in one pass: while the rows of some ids are summed up, those of
// the next ids, of whatever feature, are on their way from memory.  Every output gets width()
// columns in every row, its segments.size() rows.  With n ids in a row:
//   kSum     sum of value * row, in the order of the ids.
//   kAvg     that, divided by n (after truncation), counting ids that the table lacks.
//   kAssign  slot s (dim columns) holds value * row of id s; keep_last: of id n - trunc_num + s, so
//            that the last trunc_num ids stand at the right end.  Slots without an id are zeros.
// No ids give zeros, and so do, alone, ids that the table lacks (unless it has a missing_row()).
// Rows that were not fetched in time count as such, but not as missing.
// `scratch`: kPoolingScratchBytes per id, aligned for a pointer.  INVALID_ARGUMENT under
// MissingKeys::kError, naming table and id, DATA_LOSS where a mapped file is damaged; *failed is
// then the job, and outputs are undefined; so they are with the pace's status once that stops.
// Allocates nothing unless it fails.  REQUIRES: CheckSegments(input) of every job.
absl::Status PoolFeatures(absl::Span<const FeatureJob> jobs, void* scratch, Pace& pace,
                          size_t* failed);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_EMBEDDING_POOLING_H_

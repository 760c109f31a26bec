// Ids -> rows of a table -> columns of a block.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_EMBEDDING_POOLING_H_
#define ULFD_ENGINE_EMBEDDING_POOLING_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/embedding/table.h"

namespace ulfd::engine {

enum class Pooling : uint8_t { kSum, kAvg, kAssign };

// How one item of a block pools its feature.
struct PoolingSpec {
  Pooling pooling = Pooling::kSum;
  int64_t dim = 0;        // Of the table.
  int64_t trunc_num = 0;  // kAssign: slots.  Others: at most so many ids of a row count; 0: all.
  bool keep_last =
      true;  // Which ids survive truncation, and kAssign: on which side they stand (see Pool).

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

// Looks up all ids once, for every item that reads them: rows[i] is the row of ids[i], the table's
// default row, or nullptr for zeros.  Adds the ids that the table lacks to *missing, whether or not
// truncation drops them later. INVALID_ARGUMENT under MissingKeys::kError, naming table and id.
absl::Status LookUp(const EmbeddingTable& table, absl::Span<const int64_t> ids, const float** rows,
                    int64_t* missing);

// Pools looked-up rows into width() columns of every row of a block; `out` is the first of them,
// `stride` the floats from one row of the block to the next.  With n ids in a row:
//   kSum     sum of value * row.
//   kAvg     that, divided by n (after truncation), counting ids that the table lacks.
//   kAssign  slot s (dim columns) holds value * row of id s; keep_last: of id n - trunc_num + s, so
//   that the last
//            trunc_num ids stand at the right end.  Slots without an id are zeros.
// No ids give zeros.  REQUIRES: CheckSegments(input).
void Pool(const PoolingSpec& spec, const EmbeddingTable& table, const FeatureInput& input,
          const float* const* rows, float* out, int64_t stride);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_EMBEDDING_POOLING_H_

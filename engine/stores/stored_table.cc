// SPDX-License-Identifier: Apache-2.0
#include "engine/stores/stored_table.h"

#include <xxhash.h>

#include "base/errors.h"
#include "base/text.h"
#include "engine/embedding/row_format.h"

namespace ulfd::engine {

namespace pb = ulfd::store::v1;

pb::StoredTable DescribeRows(const RowSorter& sorter, const RowReport& report) {
  pb::StoredTable table;
  table.set_version(kStoredTableVersion);
  table.set_rows(report.rows);
  table.set_dim(report.dim);
  table.set_format(std::string(Name(sorter.options().format)));
  table.set_mean_row(sorter.EncodedMean());
  return table;
}

absl::StatusOr<pb::StoredTable> ParseStoredTable(absl::string_view bytes) {
  constexpr int64_t kMaxDim = int64_t{1} << 24;
  pb::StoredTable table;
  if (!table.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) || table.version() == 0) {
    return DataLoss("what it says of the table is damaged");
  }
  if (table.version() != kStoredTableVersion) {
    return InvalidArgument("version ", table.version(), ", want ", kStoredTableVersion);
  }
  const auto format = RowFormatOf(table.format());
  if (!format.has_value()) {
    return DataLoss("rows of format ", Quote(table.format()), ", want fp32, fp16, bf16 or int8");
  }
  if (table.dim() < 1 || table.dim() > kMaxDim) {
    return DataLoss("rows of ", table.dim(), " values, want 1 to 2^24");
  }
  if (table.rows() < 1) return DataLoss(table.rows(), " rows");
  const size_t row_bytes = RowBytes(*format, table.dim());
  if (table.mean_row().size() != row_bytes) {
    return DataLoss("a mean row of ", table.mean_row().size(), " bytes, want ", row_bytes);
  }
  if (!IsFinite(*format, table.mean_row().data(), table.dim())) {
    return DataLoss("a value of its mean row is not finite");
  }
  return table;
}

StoredTableInfo InfoOf(const pb::StoredTable& table) {
  return {.rows = table.rows(),
          .dim = table.dim(),
          .format = *RowFormatOf(table.format()),
          .digest = table.digest(),
          .mean_row = table.mean_row()};
}

RowDigest::RowDigest() : state_(XXH3_createState()) {
  XXH3_128bits_reset(static_cast<XXH3_state_t*>(state_));
}

RowDigest::~RowDigest() { XXH3_freeState(static_cast<XXH3_state_t*>(state_)); }

void RowDigest::Add(absl::string_view record) {
  XXH3_128bits_update(static_cast<XXH3_state_t*>(state_), record.data(), record.size());
}

std::string RowDigest::Get() const {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical,
                           XXH3_128bits_digest(static_cast<const XXH3_state_t*>(state_)));
  return std::string(reinterpret_cast<const char*>(canonical.digest), sizeof canonical.digest);
}

}  // namespace ulfd::engine

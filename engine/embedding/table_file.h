// Table files (*.ulft): tables that are mapped as they are.  docs/table-file.md has every byte.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_EMBEDDING_TABLE_FILE_H_
#define ULFD_ENGINE_EMBEDDING_TABLE_FILE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/file.h"
#include "engine/embedding/table.h"

namespace ulfd::engine {

inline constexpr size_t kTableAlign = 4096;           // Where sections begin.
inline constexpr size_t kTableBlockBytes = 64 << 10;  // What has a checksum.
// What a load reads as a whole, in about a tenth of a second; a larger file would keep it waiting.
inline constexpr uint64_t kCheckedTableBytes = uint64_t{256} << 20;

// The first bytes of a file, as they lie there; numbers are little-endian.
struct TableFileHeader {
  static constexpr char kMagic[9] = "ULFT\r\n\x1a\n";
  static constexpr uint32_t kByteOrder = 0x01020304;
  static constexpr uint32_t kHashed = 1, kConsecutive = 2;  // Versions: what leads to slots.

  char magic[8];
  uint32_t byte_order;
  uint32_t version;
  uint64_t file_bytes;
  uint64_t rows;
  uint64_t dim;
  uint32_t format;  // RowFormat.
  uint32_t part_shift;
  uint64_t part_slots;  // kConsecutive: the first id.
  uint64_t parts;       // kConsecutive: 0.
  uint64_t slot_bytes;
  uint64_t displaced;      // Keys.
  uint64_t sums_checksum;  // XXH3-64 of the blocks' checksums.
  uint64_t checksum;       // XXH3-64 of what stands before it.

  bool consecutive() const { return version == kConsecutive; }
  int64_t first_id() const { return static_cast<int64_t>(part_slots); }  // REQUIRES: consecutive.
  PerfectHash::Shape shape() const { return {part_shift, part_slots, parts}; }
  // Without the one of the mean row.
  uint64_t slots() const { return consecutive() ? rows : shape().slots(); }
};
static_assert(sizeof(TableFileHeader) == 96);

// Where the sections of a file are, in the order of the file.  Pilots begin at kTableAlign, slots,
// displaced keys and checksums each at the next multiple of it.
struct TableFileLayout {
  uint64_t slots = 0, displaced = 0, sums = 0, end = 0;
  uint64_t blocks = 0;  // Of kTableBlockBytes, from kTableAlign to `sums`.
};
// Of numbers that ReadTableHeader checked, or that were made here.
TableFileLayout LayoutOf(const TableFileHeader& header);

// What `checksum` has to be.
uint64_t ChecksumOf(const TableFileHeader& header);
uint64_t ChecksumOf(absl::Span<const char> bytes);
// What tells contents apart, 16 bytes: all of the header, and by way of checksums all of the file.
std::string DigestOf(const TableFileHeader& header);

// Whether the file begins like a table file, of any version and byte order.
absl::StatusOr<bool> IsTableFile(const InputFile& file);

// The header, with everything in it checked against the size of the file: no lookup in a file that
// passes reads beyond it.  INVALID_ARGUMENT or DATA_LOSS, naming file and what is wrong.
absl::StatusOr<TableFileHeader> ReadTableHeader(const InputFile& file);

// Maps a table file.  Reads the header and the displaced keys, a thousandth of all; the rest is
// checked by the functions below alone.  A file of the same digest that is open already for the
// same owner (LoadLimits), as by another version, is shared, and this one left alone.  Errors name
// the file.
absl::StatusOr<std::shared_ptr<const TableRows>> OpenTableFile(const InputFile& file);

// Calls `row` with every id and its row, until it fails; the order is that of the slots.
absl::Status ForEachRow(const TableRows& rows,
                        absl::FunctionRef<absl::Status(int64_t id, const char* row)> row);

// Reads all of the file and compares its checksums, before a load, unless it is larger than
// kCheckedTableBytes, or open for the owner already (FindOpenTable), or no table file.  DATA_LOSS,
// naming file and bytes.
absl::Status CheckTableFile(const std::string& path);

// Compares the checksums of rows that serve, reading their file beside them, and marks what is
// damaged: lookups there fail from then on (EmbeddingTable::CheckRead), and all lookups if it is no
// row but what leads to rows.  DATA_LOSS, naming file and bytes, if anything is; the error of
// `go_on`, which is told how many bytes were read since it was last asked.
absl::Status CheckMappedTable(const TableRows& rows,
                              absl::FunctionRef<absl::Status(size_t bytes)> go_on);

// Reads all of the file: checksums, whether each id is where lookups seek it, whether values are
// finite.  `progress`: told bytes of those to read.  DATA_LOSS, naming file and byte or id.
absl::Status VerifyTableFile(const std::string& path,
                             absl::FunctionRef<void(uint64_t done, uint64_t all)> progress);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_EMBEDDING_TABLE_FILE_H_

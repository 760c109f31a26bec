// SPDX-License-Identifier: Apache-2.0
#include "engine/embedding/table_file.h"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/load_scope.h"
#include "base/mapped_file.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "engine/embedding/open_tables.h"

namespace ulfd::engine {
namespace {

// Sections are read and written as they lie there.
static_assert(std::endian::native == std::endian::little);

constexpr uint64_t kMaxDim = uint64_t{1} << 24;

uint64_t AlignUp(uint64_t offset) { return (offset + kTableAlign - 1) / kTableAlign * kTableAlign; }

// The numbers that sizes are made of, each small enough for their products.
absl::Status CheckNumbers(const std::string& path, const TableFileHeader& header) {
  const auto wrong = [&path](absl::string_view field, uint64_t value) {
    return DataLoss(path, ": header: ", field, " is ", value);
  };
  if (header.dim < 1 || header.dim > kMaxDim) return wrong("dim", header.dim);
  if (header.format >= kRowFormats) return wrong("row format", header.format);
  const bool sound = header.consecutive() ? header.part_shift == 0 && header.parts == 0
                                          : PerfectHash::IsSound(header.shape());
  if (!sound) return wrong("parts", header.parts);
  const uint64_t most = header.consecutive() ? PerfectHash::kMaxKeys : header.slots();
  if (header.rows < 1 || header.rows > most) return wrong("rows", header.rows);
  if (header.displaced > (header.consecutive() ? 0 : header.rows)) {
    return wrong("displaced keys", header.displaced);
  }
  const size_t used = TableRows::kIdBytes + RowBytes(static_cast<RowFormat>(header.format),
                                                     static_cast<int64_t>(header.dim));
  if (header.slot_bytes < used || header.slot_bytes > 2 * used + 64 ||
      header.slot_bytes % sizeof(float) != 0) {
    return wrong("slot bytes", header.slot_bytes);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<PerfectHash::Displaced>> ReadDisplaced(const InputFile& file,
                                                                  const TableFileHeader& header) {
  std::vector<PerfectHash::Displaced> displaced(header.displaced);
  const size_t bytes = displaced.size() * sizeof(PerfectHash::Displaced);
  ASSIGN_OR_RETURN(const size_t got, file.ReadAt(static_cast<int64_t>(LayoutOf(header).displaced),
                                                 reinterpret_cast<char*>(displaced.data()), bytes));
  if (got < bytes) return DataLoss(file.path(), ": was cut while it was opened");
  return displaced;
}

}  // namespace

TableFileLayout LayoutOf(const TableFileHeader& header) {
  TableFileLayout layout;
  layout.slots = AlignUp(kTableAlign + header.shape().buckets());
  layout.displaced = AlignUp(layout.slots + (header.slots() + 1) * header.slot_bytes);
  layout.sums = AlignUp(layout.displaced + header.displaced * sizeof(PerfectHash::Displaced));
  layout.blocks = (layout.sums - kTableAlign + kTableBlockBytes - 1) / kTableBlockBytes;
  layout.end = layout.sums + layout.blocks * sizeof(uint64_t);
  return layout;
}

uint64_t ChecksumOf(absl::Span<const char> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

uint64_t ChecksumOf(const TableFileHeader& header) {
  return XXH3_64bits(&header, offsetof(TableFileHeader, checksum));
}

std::string DigestOf(const TableFileHeader& header) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(&header, sizeof header));
  return std::string(reinterpret_cast<const char*>(canonical.digest), sizeof canonical.digest);
}

absl::StatusOr<bool> IsTableFile(const InputFile& file) {
  char magic[sizeof TableFileHeader::magic];
  ASSIGN_OR_RETURN(const size_t got, file.ReadAt(0, magic, sizeof magic));
  return got == sizeof magic && std::memcmp(magic, TableFileHeader::kMagic, sizeof magic) == 0;
}

absl::StatusOr<TableFileHeader> ReadTableHeader(const InputFile& file) {
  const std::string& path = file.path();
  TableFileHeader header = {};
  ASSIGN_OR_RETURN(const size_t got,
                   file.ReadAt(0, reinterpret_cast<char*>(&header), sizeof header));
  if (std::memcmp(header.magic, TableFileHeader::kMagic, sizeof header.magic) != 0) {
    return InvalidArgument(path, ": no table file");
  }
  if (got < sizeof header) {
    return DataLoss(path, ": cut after ", got, " bytes, within the header");
  }
  if (header.byte_order == __builtin_bswap32(TableFileHeader::kByteOrder)) {
    return InvalidArgument(path, ": of a machine with the other byte order; build it again here");
  }
  if (header.byte_order != TableFileHeader::kByteOrder) {
    return DataLoss(path, ": byte 8: no byte order");
  }
  if (header.version != TableFileHeader::kHashed && !header.consecutive()) {
    return InvalidArgument(path, ": version ", header.version, ", want ", TableFileHeader::kHashed,
                           " or ", TableFileHeader::kConsecutive);
  }
  if (header.checksum != ChecksumOf(header)) {
    return DataLoss(path, ": byte ", offsetof(TableFileHeader, checksum),
                    ": the checksum of the header is another");
  }
  RETURN_IF_ERROR(CheckNumbers(path, header));
  const uint64_t end = LayoutOf(header).end;
  if (header.file_bytes != end)
    return DataLoss(path, ": header: the sections do not make the size");
  if (static_cast<uint64_t>(file.size()) != end) {
    return DataLoss(path, ": ", file.size(), " bytes, the header says ", end);
  }
  return header;
}

absl::StatusOr<std::shared_ptr<const TableRows>> OpenTableFile(const InputFile& file) {
  ASSIGN_OR_RETURN(const TableFileHeader header, ReadTableHeader(file));
  std::string digest = DigestOf(header);
  if (auto shared = FindOpenTable(digest); shared != nullptr) return shared;
  ASSIGN_OR_RETURN(std::vector<PerfectHash::Displaced> displaced, ReadDisplaced(file, header));
  auto rows = std::make_shared<TableRows>();
  ASSIGN_OR_RETURN(rows->file, MappedFile::Map(file));
  rows->digest = std::move(digest);
  rows->dim = static_cast<int64_t>(header.dim);
  rows->rows = static_cast<int64_t>(header.rows);
  rows->format = static_cast<RowFormat>(header.format);
  rows->slot_bytes = header.slot_bytes;
  rows->used_bytes = TableRows::kIdBytes + RowBytes(rows->format, rows->dim);
  rows->slots = rows->file->data() + LayoutOf(header).slots;
  if (header.consecutive()) {
    rows->first_id = header.first_id();
  } else {
    const auto* const pilots = reinterpret_cast<const uint8_t*>(rows->file->data()) + kTableAlign;
    ASSIGN_OR_RETURN(rows->hash,
                     Annotate(PerfectHash::FromPilots(header.shape(), pilots, std::move(displaced)),
                              file.path()));
  }
  AddOpenTable(rows);
  return rows;
}

namespace {

// Calls `damaged` with bytes that are not those that were written, and `progress` with the end of
// what was read, until one fails.
absl::Status CompareSums(const InputFile& file, const TableFileHeader& header,
                         absl::FunctionRef<absl::Status(uint64_t begin, uint64_t end)> damaged,
                         absl::FunctionRef<absl::Status(uint64_t done)> progress) {
  const TableFileLayout layout = LayoutOf(header);
  std::vector<uint64_t> sums(layout.blocks);
  const auto size = sums.size() * sizeof(uint64_t);
  ASSIGN_OR_RETURN(size_t got, file.ReadAt(static_cast<int64_t>(layout.sums),
                                           reinterpret_cast<char*>(sums.data()), size));
  if (got < size || XXH3_64bits(sums.data(), size) != header.sums_checksum) {
    return damaged(layout.sums, layout.end);  // There is nothing to compare with.
  }
  std::vector<char> block(kTableBlockBytes);
  for (uint64_t b = 0; b < layout.blocks; ++b) {
    const uint64_t begin = kTableAlign + b * kTableBlockBytes;
    const uint64_t bytes = std::min<uint64_t>(kTableBlockBytes, layout.sums - begin);
    ASSIGN_OR_RETURN(got, file.ReadAt(static_cast<int64_t>(begin), block.data(), bytes));
    if (got < bytes || ChecksumOf({block.data(), bytes}) != sums[b]) {
      RETURN_IF_ERROR(damaged(begin, begin + bytes));
    }
    RETURN_IF_ERROR(progress(begin + bytes));
  }
  return absl::OkStatus();
}

absl::Status VerifySums(const InputFile& file, const TableFileHeader& header,
                        absl::FunctionRef<void(uint64_t, uint64_t)> progress) {
  constexpr size_t kGap = kTableAlign - sizeof header;  // In no block.
  char gap[kGap];
  ASSIGN_OR_RETURN(const size_t got, file.ReadAt(sizeof header, gap, kGap));
  if (got < kGap || std::any_of(gap, gap + kGap, [](char c) { return c != 0; })) {
    return DataLoss(file.path(), ": bytes ", sizeof header, " to ", kTableAlign,
                    " are damaged: not all zeros");
  }
  return CompareSums(
      file, header,
      [&](uint64_t begin, uint64_t end) -> absl::Status {
        return DataLoss(file.path(), ": bytes ", begin, " to ", end, " are damaged");
      },
      [&](uint64_t done) {
        progress(done / 2, header.file_bytes);
        return LoadScope::Check();
      });
}

}  // namespace

absl::Status CheckMappedTable(const TableRows& rows,
                              absl::FunctionRef<absl::Status(size_t bytes)> go_on) {
  const MappedFile& file = *rows.file;
  const auto slots = static_cast<uint64_t>(rows.slots - file.data());
  const uint64_t slots_end = slots + rows.slot_count() * rows.slot_bytes;
  TableFileHeader header;
  std::memcpy(&header, file.data(), sizeof header);
  RETURN_IF_ERROR(file.Check());
  if (DigestOf(header) != rows.digest) {
    file.MarkDamaged(0, file.size());
    return file.Check();
  }
  uint64_t read = kTableAlign;
  RETURN_IF_ERROR(CompareSums(
      file.file(), header,
      [&](uint64_t begin, uint64_t end) {
        const bool of_rows = begin >= slots && end <= slots_end;
        file.MarkDamaged(of_rows ? begin : 0, of_rows ? end : file.size());
        return absl::OkStatus();
      },
      [&](uint64_t done) {
        const size_t bytes = done - read;
        file.file().Forget(static_cast<int64_t>(std::exchange(read, done)), bytes);
        return go_on(bytes);
      }));
  return file.Check();
}

absl::Status ForEachRow(const TableRows& rows,
                        absl::FunctionRef<absl::Status(int64_t id, const char* row)> row) {
  const size_t piece = std::max<size_t>(1, (size_t{8} << 20) / rows.slot_bytes);  // Of slots.
  for (size_t slot = 0; slot < rows.slot_count(); ++slot) {
    if (slot % piece == 0 && rows.file != nullptr) {
      StartReading(rows.Slot(slot),
                   std::min(2 * piece, rows.slot_count() - slot) * rows.slot_bytes);
    }
    const int64_t id = TableRows::IdOf(rows.Row(slot));
    if (rows.SlotOf(id) != slot) continue;  // Unused.
    RETURN_IF_ERROR(row(id, rows.Row(slot)));
  }
  return absl::OkStatus();
}

absl::Status CheckTableFile(const std::string& path) {
  ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path));
  ASSIGN_OR_RETURN(const bool is_table_file, IsTableFile(file));
  if (!is_table_file) return absl::OkStatus();
  ASSIGN_OR_RETURN(const TableFileHeader header, ReadTableHeader(file));
  if (header.file_bytes > kCheckedTableBytes || FindOpenTable(DigestOf(header)) != nullptr) {
    return absl::OkStatus();
  }
  return VerifySums(file, header, [](uint64_t, uint64_t) {});
}

absl::Status VerifyTableFile(const std::string& path,
                             absl::FunctionRef<void(uint64_t done, uint64_t all)> progress) {
  ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path));
  ASSIGN_OR_RETURN(const TableFileHeader header, ReadTableHeader(file));
  RETURN_IF_ERROR(VerifySums(file, header, progress));
  ASSIGN_OR_RETURN(const std::shared_ptr<const TableRows> rows, OpenTableFile(file));
  uint64_t found = 0;
  RETURN_IF_ERROR(ForEachRow(*rows, [&](int64_t id, const char* row) {
    if (!IsFinite(rows->format, row, rows->dim)) {
      return DataLoss(path, ": id ", id, ": a value is not finite");
    }
    if (++found % 65536 != 0) return absl::OkStatus();
    progress(header.file_bytes / 2 + header.file_bytes * found / header.rows / 2,
             header.file_bytes);
    return LoadScope::Check();
  }));
  RETURN_IF_ERROR(rows->file->Check());
  if (found == header.rows) return absl::OkStatus();
  return DataLoss(path, ": ", found, " ids where lookups seek them, want ", header.rows);
}

}  // namespace ulfd::engine

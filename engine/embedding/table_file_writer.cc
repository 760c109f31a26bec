// SPDX-License-Identifier: Apache-2.0
#include "engine/embedding/table_file_writer.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/errors.h"
#include "base/load_scope.h"
#include "base/status_macros.h"
#include "engine/embedding/table_builder.h"
#include "engine/embedding/table_file.h"

namespace ulfd::engine {

TableFileWriter::TableFileWriter(std::string path, TableFileOptions options)
    : path_(std::move(path)),
      options_(std::move(options)),
      rows_(path_, {.format = options_.format,
                    .memory_bytes = options_.memory_bytes,
                    .unnamed = options_.unnamed,
                    .keep_consecutive = true}) {}

absl::Status TableFileWriter::Begin(int64_t dim, int64_t about_rows) {
  std::error_code ignored;
  if (!options_.unnamed && std::filesystem::exists(path_, ignored) &&
      !std::filesystem::is_regular_file(path_, ignored)) {
    return InvalidArgument(path_, " is there and no regular file, want a place for a table file");
  }
  RETURN_IF_ERROR(rows_.Begin(dim, about_rows));
  if (slot_bytes_ > 0) return absl::OkStatus();
  slot_bytes_ = BestSlotBytes(rows_.record_bytes());
  return options_.unnamed ? file_.OpenUnnamed(path_) : file_.OpenBeside(path_);
}

class TableFileWriter::Slots {
 public:
  // `filler`: an id of the table.
  Slots(size_t record_bytes, size_t slot_bytes, size_t memory_bytes, int64_t filler)
      : record_bytes_(record_bytes),
        slot_bytes_(slot_bytes),
        memory_bytes_(memory_bytes),
        filler_(filler) {}

  void Add(uint64_t hash, const char* record) {
    hashes_.push_back(hash);
    records_.insert(records_.end(), record, record + record_bytes_);
  }
  // Makes the slots of the part of what was added.
  absl::StatusOr<absl::Span<const char>> Place(size_t part, PerfectHashBuilder& hash) {
    const size_t first = part * hash.shape().part_slots;
    slots_.assign(hash.shape().part_slots * slot_bytes_, 0);
    // An id that is in another slot makes a slot one that no lookup accepts.
    for (size_t s = 0; s < hash.shape().part_slots; ++s) {
      std::memcpy(slots_.data() + s * slot_bytes_, &filler_, sizeof filler_);
    }
    hash.AddPart(part, hashes_);
    for (size_t i = 0; i < hashes_.size(); ++i) {
      const char* const record = records_.data() + i * record_bytes_;
      if (hash.IsDisplaced(hashes_[i])) {
        displaced_.insert(displaced_.end(), record, record + record_bytes_);
      } else {
        std::memcpy(slots_.data() + (hash.Slot(hashes_[i]) - first) * slot_bytes_, record,
                    record_bytes_);
      }
    }
    hashes_.clear();
    records_.clear();
    if (displaced_.size() <= memory_bytes_) return absl::Span<const char>(slots_);
    return ResourceExhausted("too many ids of one hash bucket for --memory");
  }
  // Records that were displaced, one after the other.
  const std::vector<char>& displaced() const { return displaced_; }

 private:
  const size_t record_bytes_, slot_bytes_, memory_bytes_;
  const int64_t filler_;
  std::vector<uint64_t> hashes_;
  std::vector<char> records_, slots_, displaced_;
};

absl::StatusOr<TableFileReport> TableFileWriter::Finish() {
  TableFileReport report;
  ASSIGN_OR_RETURN(static_cast<RowReport&>(report), rows_.Finish());
  TableFileHeader header = {};
  std::memcpy(header.magic, TableFileHeader::kMagic, sizeof header.magic);
  header.byte_order = TableFileHeader::kByteOrder;
  header.rows = static_cast<uint64_t>(report.rows);
  header.dim = static_cast<uint64_t>(report.dim);
  header.format = static_cast<uint32_t>(options_.format);
  header.slot_bytes = slot_bytes_;
  RETURN_IF_ERROR(rows_.first_id().has_value() ? WriteConsecutive(header) : WriteHashed(header));
  RETURN_IF_ERROR(WriteMeanRow(header));
  RETURN_IF_ERROR(WriteSums(header));
  RETURN_IF_ERROR(Publish());
  report.bytes = header.file_bytes;
  report.displaced = static_cast<int64_t>(header.displaced);
  return report;
}

absl::Status TableFileWriter::WriteConsecutive(TableFileHeader& header) {
  header.version = TableFileHeader::kConsecutive;
  header.part_slots = static_cast<uint64_t>(*rows_.first_id());
  const auto rows = static_cast<int64_t>(header.rows);
  const size_t piece = std::max<size_t>(slot_bytes_, size_t{1} << 20);
  std::vector<char> slots;
  uint64_t offset = LayoutOf(header).slots;
  SortedRows sorted(rows_);
  RETURN_IF_ERROR(sorted.Start());
  for (int64_t done = 1; done <= rows; ++done) {
    slots.insert(slots.end(), sorted.record(), sorted.record() + rows_.record_bytes());
    slots.resize(slots.size() + slot_bytes_ - rows_.record_bytes());
    RETURN_IF_ERROR(sorted.Next());
    if (slots.size() < piece && done < rows) continue;
    RETURN_IF_ERROR(file_.WriteAt(offset, slots.data(), slots.size()));
    RETURN_IF_ERROR(GoOn(done, rows));
    offset += slots.size();
    slots.clear();
  }
  return absl::OkStatus();
}

absl::Status TableFileWriter::WriteHashed(TableFileHeader& header) {
  PerfectHashBuilder builder;
  RETURN_IF_ERROR(builder.Begin(header.rows));
  header.version = TableFileHeader::kHashed;
  header.part_shift = static_cast<uint32_t>(builder.shape().part_shift);
  header.part_slots = builder.shape().part_slots;
  header.parts = builder.shape().parts;
  SortedRows sorted(rows_);
  RETURN_IF_ERROR(sorted.Start());
  // However long rows are, a part of the table is held.
  const size_t memory_bytes = std::max<size_t>(static_cast<size_t>(options_.memory_bytes) / 4,
                                               header.part_slots * slot_bytes_);
  Slots slots(rows_.record_bytes(), slot_bytes_, memory_bytes, sorted.id());
  RETURN_IF_ERROR(WriteParts(LayoutOf(header).slots, static_cast<int64_t>(header.rows), sorted,
                             builder, slots));
  const PerfectHash hash = builder.Finish();
  header.displaced = hash.displaced().size();
  return WriteRest(header, hash, slots);
}

absl::Status TableFileWriter::Publish() {
  if (options_.unnamed) return absl::OkStatus();
  RETURN_IF_ERROR(file_.Sync());
  return file_.TakePlaceOf(path_);
}

// The slots of all parts, from byte `begin` on.
absl::Status TableFileWriter::WriteParts(uint64_t begin, int64_t rows, SortedRows& sorted,
                                         PerfectHashBuilder& hash, Slots& slots) {
  int64_t done = 0;
  for (size_t part = 0; part < hash.shape().parts; ++part) {
    for (; !sorted.empty() && hash.PartOf(sorted.key()) == part; ++done) {
      slots.Add(sorted.key(), sorted.record());
      RETURN_IF_ERROR(sorted.Next());
    }
    ASSIGN_OR_RETURN(const absl::Span<const char> bytes, slots.Place(part, hash));
    RETURN_IF_ERROR(file_.WriteAt(begin + part * bytes.size(), bytes.data(), bytes.size()));
    RETURN_IF_ERROR(GoOn(done, rows));
  }
  return absl::OkStatus();
}

absl::Status TableFileWriter::GoOn(int64_t done, int64_t rows) const {
  RETURN_IF_ERROR(LoadScope::Check());
  return options_.progress ? options_.progress(done, rows) : absl::OkStatus();
}

// Pilots, and displaced keys with their rows.
absl::Status TableFileWriter::WriteRest(const TableFileHeader& header, const PerfectHash& hash,
                                        const Slots& slots) {
  const TableFileLayout layout = LayoutOf(header);
  const size_t record_bytes = rows_.record_bytes();
  for (size_t at = 0; at < slots.displaced().size(); at += record_bytes) {
    const char* const record = slots.displaced().data() + at;
    int64_t id;
    std::memcpy(&id, record, sizeof id);
    RETURN_IF_ERROR(
        file_.WriteAt(layout.slots + hash.Slot(HashKey(id)) * slot_bytes_, record, record_bytes));
  }
  RETURN_IF_ERROR(file_.WriteAt(kTableAlign, reinterpret_cast<const char*>(hash.pilots()),
                                hash.shape().buckets()));
  return file_.WriteAt(layout.displaced, reinterpret_cast<const char*>(hash.displaced().data()),
                       hash.displaced().size() * sizeof(PerfectHash::Displaced));
}

absl::Status TableFileWriter::WriteMeanRow(const TableFileHeader& header) {
  std::string mean(slot_bytes_, '\0');
  const std::string row = rows_.EncodedMean();
  row.copy(mean.data() + TableRows::kIdBytes, row.size());
  return file_.WriteAt(LayoutOf(header).slots + header.slots() * slot_bytes_, mean.data(),
                       mean.size());
}

// Checksums, and the header.
absl::Status TableFileWriter::WriteSums(TableFileHeader& header) {
  const TableFileLayout layout = LayoutOf(header);
  RETURN_IF_ERROR(file_.Resize(layout.end));
  std::vector<uint64_t> sums;
  std::vector<char> block(kTableBlockBytes);
  for (uint64_t at = kTableAlign; at < layout.sums; at += kTableBlockBytes) {
    const size_t bytes = std::min<uint64_t>(kTableBlockBytes, layout.sums - at);
    RETURN_IF_ERROR(file_.ReadAt(at, block.data(), bytes));
    sums.push_back(ChecksumOf({block.data(), bytes}));
  }
  const auto* const bytes = reinterpret_cast<const char*>(sums.data());
  RETURN_IF_ERROR(file_.WriteAt(layout.sums, bytes, sums.size() * sizeof(uint64_t)));
  header.sums_checksum = ChecksumOf({bytes, sums.size() * sizeof(uint64_t)});
  header.file_bytes = layout.end;
  header.checksum = ChecksumOf(header);
  return file_.WriteAt(0, reinterpret_cast<const char*>(&header), sizeof header);
}

}  // namespace ulfd::engine

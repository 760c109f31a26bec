// Writes table files of any size in bounded memory.
// SPDX-License-Identifier: Apache-2.0
#include "engine/embedding/table_file_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <queue>

#include "absl/strings/str_cat.h"
#include "base/load_scope.h"
#include "base/status_macros.h"
#include "engine/embedding/table_file.h"

namespace ulfd::engine {

OutputFile::~OutputFile() {
  if (fd_ >= 0) close(fd_);
}

absl::Status OutputFile::Failed(absl::string_view what) const {
  return absl::ErrnoToStatus(errno, absl::StrCat(path_, ": ", what));
}

absl::Status OutputFile::Open(const std::string& path) {
  path_ = path;
  fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  return fd_ < 0 ? Failed("cannot be created") : absl::OkStatus();
}

absl::Status OutputFile::OpenUnnamed(const std::string& directory) {
  path_ = absl::StrCat("an unnamed file in ", directory);
  fd_ = open(directory.c_str(), O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
  return fd_ < 0 ? Failed("cannot be created") : absl::OkStatus();
}

std::string OutputFile::DescriptorPath() const { return absl::StrCat("/proc/self/fd/", fd_); }

absl::Status OutputFile::WriteAt(uint64_t offset, const char* from, size_t size) {
  while (size > 0) {
    const ssize_t n = pwrite(fd_, from, size, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Failed("cannot be written");
    offset += static_cast<uint64_t>(n);
    from += n;
    size -= static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

absl::Status OutputFile::ReadAt(uint64_t offset, char* to, size_t size) const {
  while (size > 0) {
    const ssize_t n = pread(fd_, to, size, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Failed("cannot be read");
    if (n == 0) return absl::DataLossError(absl::StrCat(path_, ": was cut while it was written"));
    offset += static_cast<uint64_t>(n);
    to += n;
    size -= static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

absl::Status OutputFile::Resize(uint64_t size) {
  return ftruncate(fd_, static_cast<off_t>(size)) == 0 ? absl::OkStatus() : Failed("cannot grow");
}

absl::Status OutputFile::Sync() { return fsync(fd_) == 0 ? absl::OkStatus() : Failed("fsync"); }

// Each run has a window of its rows in memory; a heap finds the least hash.
class TableFileWriter::Runs {
 public:
  Runs(const OutputFile& file, const std::vector<uint64_t>& rows, size_t record_bytes,
       size_t memory_bytes)
      : file_(file), record_bytes_(record_bytes) {
    window_rows_ = std::max<size_t>(1, memory_bytes / rows.size() / record_bytes);
    uint64_t offset = 0;
    for (const uint64_t count : rows) {
      runs_.emplace_back();
      runs_.back().offset = offset;
      runs_.back().left = count;
      offset += count * record_bytes;
    }
  }
  absl::Status Start() {
    for (size_t r = 0; r < runs_.size(); ++r) RETURN_IF_ERROR(Offer(r));
    return absl::OkStatus();
  }
  bool empty() const { return heap_.empty(); }
  // Of the next record.
  uint64_t hash() const { return heap_.top().first; }
  const char* record() const { return runs_[heap_.top().second].At(record_bytes_); }
  absl::Status Next() {
    const size_t run = heap_.top().second;
    heap_.pop();
    ++runs_[run].next;
    return Offer(run);
  }

 private:
  struct Run {
    const char* At(size_t record_bytes) const { return window.data() + next * record_bytes; }
    uint64_t offset = 0, left = 0;  // Of what is not in the window yet.
    std::vector<char> window;
    size_t next = 0;  // In the window.
  };
  using Head = std::pair<uint64_t, size_t>;  // Hash, run.

  absl::Status Offer(size_t r) {
    Run& run = runs_[r];
    if (run.next * record_bytes_ == run.window.size()) {
      const size_t rows = std::min<uint64_t>(window_rows_, run.left);
      run.window.resize(rows * record_bytes_);
      run.next = 0;
      if (rows == 0) return absl::OkStatus();
      RETURN_IF_ERROR(file_.ReadAt(run.offset, run.window.data(), run.window.size()));
      run.offset += run.window.size();
      run.left -= rows;
    }
    int64_t id;
    std::memcpy(&id, run.At(record_bytes_), sizeof id);
    heap_.emplace(HashKey(id), r);
    return absl::OkStatus();
  }

  const OutputFile& file_;
  const size_t record_bytes_;
  size_t window_rows_ = 0;
  std::vector<Run> runs_;
  std::priority_queue<Head, std::vector<Head>, std::greater<>> heap_;
};

TableFileWriter::TableFileWriter(std::string path, TableFileOptions options)
    : path_(std::move(path)),
      new_path_(absl::StrCat(path_, ".new")),
      options_(std::move(options)) {}

TableFileWriter::~TableFileWriter() {
  if (dim_ > 0 && !options_.unnamed)
    unlink(new_path_.c_str());  // Is there no more once it has its name.
}

absl::Status TableFileWriter::Begin(int64_t dim, int64_t about_rows) {
  if (dim_ == 0) return Begun(dim, about_rows);
  if (dim_ == dim) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("rows of ", dim, " values, those before have ", dim_));
}

absl::Status TableFileWriter::Begun(int64_t dim, int64_t about_rows) {
  if (dim < 1 || dim > (int64_t{1} << 24)) {
    return absl::InvalidArgumentError(absl::StrCat("rows of ", dim, " values, want 1 to 2^24"));
  }
  RETURN_IF_ERROR(OpenFiles());
  dim_ = dim;
  slot_bytes_ = BestSlotBytes(record_bytes());
  row_.resize(static_cast<size_t>(dim));
  decoded_.resize(row_.size());
  mean_.emplace(dim);
  const size_t each = record_bytes() + sizeof(order_[0]);
  records_per_run_ = std::clamp<size_t>(static_cast<size_t>(options_.memory_bytes) / each, 1,
                                        std::numeric_limits<uint32_t>::max());
  const size_t first_run = std::min(records_per_run_, static_cast<size_t>(about_rows) + 1);
  records_.reserve(first_run * record_bytes());
  order_.reserve(first_run);
  return absl::OkStatus();
}

absl::Status TableFileWriter::OpenFiles() {
  if (options_.unnamed) {
    RETURN_IF_ERROR(spill_.OpenUnnamed(path_));
    return file_.OpenUnnamed(path_);
  }
  RETURN_IF_ERROR(spill_.Open(new_path_));
  unlink(new_path_.c_str());
  return file_.Open(new_path_);
}

absl::StatusOr<char*> TableFileWriter::NextRecord(int64_t id) {
  if (order_.size() == records_per_run_) RETURN_IF_ERROR(Spill());
  const size_t at = records_.size();
  records_.resize(at + record_bytes());
  std::memcpy(records_.data() + at, &id, sizeof id);
  order_.emplace_back(HashKey(id), static_cast<uint32_t>(order_.size()));
  ++report_.rows;
  return records_.data() + at + TableRows::kIdBytes;
}

absl::Status TableFileWriter::CommitEncoded(int64_t id, const char* row) {
  ASSIGN_OR_RETURN(char* const encoded, NextRecord(id));
  std::memcpy(encoded, row, record_bytes() - TableRows::kIdBytes);
  return absl::OkStatus();
}

absl::Status TableFileWriter::Commit(int64_t id) {
  ASSIGN_OR_RETURN(char* const encoded, NextRecord(id));
  if (!EncodeRow(options_.format, row_.data(), dim_, encoded)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "id ", id, ": a value is not finite, or too large for ", Name(options_.format)));
  }
  mean_->Add(row_.data());
  NoteError(id, encoded);
  return absl::OkStatus();
}

void TableFileWriter::NoteError(int64_t id, const char* encoded) {
  DecodeRow(options_.format, encoded, dim_, decoded_.data());
  for (size_t c = 0; c < row_.size(); ++c) {
    const double error = std::abs(double{decoded_[c]} - double{row_[c]});
    squared_errors_ += error * error;
    squares_ += double{row_[c]} * double{row_[c]};
    if (error > report_.largest_error) {
      report_.largest_error = error;
      report_.largest_error_id = id;
    }
  }
}

absl::Status TableFileWriter::Spill() {
  RETURN_IF_ERROR(LoadScope::Check());
  std::sort(order_.begin(), order_.end());
  uint64_t offset = 0;
  for (const uint64_t rows : run_rows_) offset += rows * record_bytes();
  std::vector<char> sorted;
  const size_t piece = std::max<size_t>(record_bytes(), size_t{1} << 20);
  for (const auto& [hash, record] : order_) {
    const char* const from = records_.data() + record * record_bytes();
    sorted.insert(sorted.end(), from, from + record_bytes());
    if (sorted.size() < piece) continue;
    RETURN_IF_ERROR(spill_.WriteAt(offset, sorted.data(), sorted.size()));
    offset += sorted.size();
    sorted.clear();
  }
  RETURN_IF_ERROR(spill_.WriteAt(offset, sorted.data(), sorted.size()));
  run_rows_.push_back(order_.size());
  order_.clear();
  records_.clear();
  return absl::OkStatus();
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
    return absl::ResourceExhaustedError("too many ids of one hash bucket for --memory");
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
  if (report_.rows == 0) return absl::InvalidArgumentError("no rows, want at least one");
  RETURN_IF_ERROR(Spill());
  records_ = {};
  order_ = {};
  PerfectHashBuilder builder;
  RETURN_IF_ERROR(builder.Begin(static_cast<size_t>(report_.rows)));
  const auto memory = static_cast<size_t>(options_.memory_bytes);
  if (builder.shape().part_slots > memory / 4 / slot_bytes_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("rows of ", dim_, " values need --memory of at least ",
                     4 * (builder.shape().part_slots + 1) * slot_bytes_, " bytes"));
  }
  TableFileHeader header = {};
  std::memcpy(header.magic, TableFileHeader::kMagic, sizeof header.magic);
  header.byte_order = TableFileHeader::kByteOrder;
  header.version = TableFileHeader::kVersion;
  header.rows = static_cast<uint64_t>(report_.rows);
  header.dim = static_cast<uint64_t>(dim_);
  header.format = static_cast<uint32_t>(options_.format);
  header.part_shift = static_cast<uint32_t>(builder.shape().part_shift);
  header.part_slots = builder.shape().part_slots;
  header.parts = builder.shape().parts;
  header.slot_bytes = slot_bytes_;

  int64_t filler = 0;
  RETURN_IF_ERROR(spill_.ReadAt(0, reinterpret_cast<char*>(&filler), sizeof filler));
  Slots slots(record_bytes(), slot_bytes_, memory / 4, filler);
  RETURN_IF_ERROR(WriteParts(LayoutOf(header).slots, builder, slots));
  std::vector<PerfectHash::Displaced> displaced;
  ASSIGN_OR_RETURN(const PerfectHash hash, builder.Finish(&displaced));
  header.displaced = displaced.size();
  RETURN_IF_ERROR(WriteRest(LayoutOf(header), hash, slots, displaced));
  RETURN_IF_ERROR(WriteSums(header));
  RETURN_IF_ERROR(Publish());
  const auto values = static_cast<double>(report_.rows) * static_cast<double>(dim_);
  report_.dim = dim_;
  report_.bytes = header.file_bytes;
  report_.displaced = static_cast<int64_t>(header.displaced);
  report_.root_mean_square_error = std::sqrt(squared_errors_ / values);
  report_.root_mean_square = std::sqrt(squares_ / values);
  return report_;
}

absl::Status TableFileWriter::Publish() {
  if (options_.unnamed) return absl::OkStatus();
  RETURN_IF_ERROR(file_.Sync());
  if (std::rename(new_path_.c_str(), path_.c_str()) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat(path_, ": cannot be renamed to"));
}

// The slots of all parts, from byte `begin` on.
absl::Status TableFileWriter::WriteParts(uint64_t begin, PerfectHashBuilder& hash, Slots& slots) {
  Runs runs(spill_, run_rows_, record_bytes(), static_cast<size_t>(options_.memory_bytes) / 4);
  RETURN_IF_ERROR(runs.Start());
  std::optional<uint64_t> last;
  int64_t done = 0;
  for (size_t part = 0; part < hash.shape().parts; ++part) {
    for (; !runs.empty() && hash.PartOf(runs.hash()) == part; ++done) {
      if (runs.hash() == last) {  // Equal hashes are equal ids.
        int64_t id;
        std::memcpy(&id, runs.record(), sizeof id);
        return absl::InvalidArgumentError(absl::StrCat("id ", id, " has two rows"));
      }
      last = runs.hash();
      slots.Add(runs.hash(), runs.record());
      RETURN_IF_ERROR(runs.Next());
    }
    ASSIGN_OR_RETURN(const absl::Span<const char> bytes, slots.Place(part, hash));
    RETURN_IF_ERROR(file_.WriteAt(begin + part * bytes.size(), bytes.data(), bytes.size()));
    RETURN_IF_ERROR(LoadScope::Check());
    if (options_.progress) options_.progress(done, report_.rows);
  }
  return absl::OkStatus();
}

// Pilots, the mean row, and displaced keys with their rows.
absl::Status TableFileWriter::WriteRest(const TableFileLayout& layout, const PerfectHash& hash,
                                        const Slots& slots,
                                        absl::Span<const PerfectHash::Displaced> displaced) {
  for (size_t at = 0; at < slots.displaced().size(); at += record_bytes()) {
    const char* const record = slots.displaced().data() + at;
    int64_t id;
    std::memcpy(&id, record, sizeof id);
    RETURN_IF_ERROR(
        file_.WriteAt(layout.slots + hash.Slot(HashKey(id)) * slot_bytes_, record, record_bytes()));
  }
  std::vector<char> mean(slot_bytes_);
  EncodeRow(options_.format, mean_->Get().data(), dim_, mean.data() + TableRows::kIdBytes);
  RETURN_IF_ERROR(
      file_.WriteAt(layout.slots + hash.slots() * slot_bytes_, mean.data(), mean.size()));
  RETURN_IF_ERROR(file_.WriteAt(kTableAlign, reinterpret_cast<const char*>(hash.pilots()),
                                hash.shape().buckets()));
  return file_.WriteAt(layout.displaced, reinterpret_cast<const char*>(displaced.data()),
                       displaced.size() * sizeof(PerfectHash::Displaced));
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

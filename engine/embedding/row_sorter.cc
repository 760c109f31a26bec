// SPDX-License-Identifier: Apache-2.0
#include "engine/embedding/row_sorter.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/errors.h"
#include "base/load_scope.h"
#include "base/status_macros.h"
#include "engine/embedding/key_hash.h"

namespace ulfd::engine {
namespace {

int64_t IdOf(const char* record) {
  int64_t id;
  std::memcpy(&id, record, sizeof id);
  return id;
}

}  // namespace

RowSorter::RowSorter(std::string path, const RowSorterOptions& options)
    : path_(std::move(path)), options_(options) {}

absl::Status RowSorter::Begin(int64_t dim, int64_t about_rows) {
  if (dim_ == 0) return Begun(dim, about_rows);
  if (dim_ == dim) return absl::OkStatus();
  return InvalidArgument("rows of ", dim, " values, those before have ", dim_);
}

absl::Status RowSorter::Begun(int64_t dim, int64_t about_rows) {
  if (dim < 1 || dim > (int64_t{1} << 24)) {
    return InvalidArgument("rows of ", dim, " values, want 1 to 2^24");
  }
  RETURN_IF_ERROR(options_.unnamed ? spill_.OpenUnnamed(path_) : spill_.OpenBeside(path_));
  dim_ = dim;
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

uint64_t RowSorter::KeyOf(int64_t id) const {
  if (!first_id_.has_value()) return HashKey(id);
  return TableRows::Distance(*first_id_, id);
}

absl::StatusOr<char*> RowSorter::NextRecord(int64_t id) {
  if (report_.rows == 0 && options_.keep_consecutive) first_id_ = id;
  if (first_id_.has_value() &&
      (id < *first_id_ || KeyOf(id) != static_cast<uint64_t>(report_.rows))) {
    RETURN_IF_ERROR(SortByHash());
  }
  if (order_.size() == records_per_run_) RETURN_IF_ERROR(Spill());
  const size_t at = records_.size();
  records_.resize(at + record_bytes());
  std::memcpy(records_.data() + at, &id, sizeof id);
  order_.emplace_back(KeyOf(id), static_cast<uint32_t>(order_.size()));
  ++report_.rows;
  return records_.data() + at + sizeof id;
}

absl::Status RowSorter::CommitEncoded(int64_t id, const char* row) {
  ASSIGN_OR_RETURN(char* const encoded, NextRecord(id));
  std::memcpy(encoded, row, record_bytes() - sizeof id);
  return absl::OkStatus();
}

absl::Status RowSorter::Commit(int64_t id) {
  ASSIGN_OR_RETURN(char* const encoded, NextRecord(id));
  if (!EncodeRow(options_.format, row_.data(), dim_, encoded)) {
    return InvalidArgument("id ", id, ": a value is not finite, or too large for ",
                           Name(options_.format));
  }
  mean_->Add(row_.data());
  NoteError(id, encoded);
  return absl::OkStatus();
}

void RowSorter::NoteError(int64_t id, const char* encoded) {
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

absl::Status RowSorter::Spill() {
  uint64_t offset = 0;
  for (const uint64_t rows : run_rows_) offset += rows * record_bytes();
  run_rows_.push_back(order_.size());
  return WriteRun(offset);
}

absl::Status RowSorter::SortByHash() {
  RETURN_IF_ERROR(Spill());
  first_id_.reset();
  uint64_t offset = 0;
  for (const uint64_t rows : run_rows_) {
    records_.resize(rows * record_bytes());
    RETURN_IF_ERROR(spill_.ReadAt(offset, records_.data(), records_.size()));
    for (uint32_t record = 0; record < rows; ++record) {
      order_.emplace_back(KeyOf(IdOf(records_.data() + record * record_bytes())), record);
    }
    RETURN_IF_ERROR(WriteRun(offset));
    offset += rows * record_bytes();
  }
  return absl::OkStatus();
}

absl::Status RowSorter::WriteRun(uint64_t offset) {
  RETURN_IF_ERROR(LoadScope::Check());
  std::sort(order_.begin(), order_.end());
  std::vector<char> sorted;
  const size_t piece = std::max<size_t>(record_bytes(), size_t{1} << 20);
  for (const auto& [key, record] : order_) {
    const char* const from = records_.data() + record * record_bytes();
    sorted.insert(sorted.end(), from, from + record_bytes());
    if (sorted.size() < piece) continue;
    RETURN_IF_ERROR(spill_.WriteAt(offset, sorted.data(), sorted.size()));
    offset += sorted.size();
    sorted.clear();
  }
  RETURN_IF_ERROR(spill_.WriteAt(offset, sorted.data(), sorted.size()));
  order_.clear();
  records_.clear();
  return absl::OkStatus();
}

absl::StatusOr<RowReport> RowSorter::Finish() {
  if (report_.rows == 0) return InvalidArgument("no rows, want at least one");
  RETURN_IF_ERROR(Spill());
  records_ = {};
  order_ = {};
  const auto values = static_cast<double>(report_.rows) * static_cast<double>(dim_);
  report_.dim = dim_;
  report_.root_mean_square_error = std::sqrt(squared_errors_ / values);
  report_.root_mean_square = std::sqrt(squares_ / values);
  return report_;
}

std::string RowSorter::EncodedMean() const {
  std::string row(RowBytes(options_.format, dim_), '\0');
  EncodeRow(options_.format, mean_->Get().data(), dim_, row.data());
  return row;
}

SortedRows::SortedRows(const RowSorter& sorter)
    : sorter_(sorter), record_bytes_(sorter.record_bytes()) {
  const std::vector<uint64_t>& rows = sorter.run_rows_;
  const auto memory_bytes = static_cast<size_t>(sorter.options_.memory_bytes) / 4;
  window_rows_ = std::max<size_t>(1, memory_bytes / rows.size() / record_bytes_);
  uint64_t offset = 0;
  for (const uint64_t count : rows) {
    runs_.emplace_back();
    runs_.back().offset = offset;
    runs_.back().left = count;
    offset += count * record_bytes_;
  }
}

absl::Status SortedRows::Start() {
  for (size_t r = 0; r < runs_.size(); ++r) RETURN_IF_ERROR(Offer(r));
  return absl::OkStatus();
}

int64_t SortedRows::id() const { return IdOf(record()); }

absl::Status SortedRows::Next() {
  const auto [before, run] = heap_.top();
  const int64_t id_before = id();
  heap_.pop();
  ++runs_[run].next;
  RETURN_IF_ERROR(Offer(run));
  if (empty() || key() != before) return absl::OkStatus();
  // Equal keys are equal ids.
  return InvalidArgument("id ", id_before, " has two rows");
}

absl::Status SortedRows::Offer(size_t r) {
  Run& run = runs_[r];
  if (run.next * record_bytes_ == run.window.size()) {
    const size_t rows = std::min<uint64_t>(window_rows_, run.left);
    run.window.resize(rows * record_bytes_);
    run.next = 0;
    if (rows == 0) return absl::OkStatus();
    RETURN_IF_ERROR(sorter_.spill_.ReadAt(run.offset, run.window.data(), run.window.size()));
    run.offset += run.window.size();
    run.left -= rows;
  }
  heap_.emplace(sorter_.KeyOf(IdOf(run.At(record_bytes_))), r);
  return absl::OkStatus();
}

}  // namespace ulfd::engine

// The rows that a request needs of a table whose rows are not in memory.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_EMBEDDING_ROW_SET_H_
#define ULFD_ENGINE_EMBEDDING_ROW_SET_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "engine/embedding/key_hash.h"

namespace ulfd::engine {

// The more is known, the greater.
enum class RowState : uint8_t {
  kLate,     // Nobody has brought it yet.
  kMissing,  // The table lacks the id.
  kPresent,
};

// Ids, each once, and their rows as far as they are there.  Filled by one thread at a time; any
// number may call Find afterwards.
class RowSet {
 public:
  // Forgets everything.  `row_bytes`: of each row.
  void Reset(size_t row_bytes);
  void AddIds(absl::Span<const int64_t> ids);
  // What Reserve will allocate.
  size_t reserve_bytes() const { return ids_.size() * stride_; }
  // After the last AddIds: makes room for the rows; all are late.
  void Reserve();

  size_t size() const { return ids_.size(); }
  absl::Span<const int64_t> ids() const { return ids_; }
  size_t row_bytes() const { return row_bytes_; }
  // Where row i lies or, after Reserve, belongs.
  char* row(size_t i) { return const_cast<char*>(rows_[i]); }
  RowState state(size_t i) const { return states_[i]; }
  void set_state(size_t i, RowState state) { states_[i] = state; }
  int64_t CountLate() const;

  // Adds the ids and what is there of their rows, which stay where they are: `other` must outlive
  // this set.  Where sets differ, the row that is there counts, whoever has it.  Not on a set that
  // was reserved.
  void Borrow(const RowSet& other);

  // The row of `id`; nullptr: the table lacks it; LateRow(): nobody brought it, or asked for it.
  const void* Find(int64_t id) const { return Find(id, HashKey(id)); }
  const void* Find(int64_t id, uint64_t hash) const {
    const uint32_t i = PlaceOf(id, hash);
    if (i == kNone || states_[i] == RowState::kLate) return LateRow();
    return states_[i] == RowState::kPresent ? rows_[i] : nullptr;
  }
  // A byte that Find of that hash reads first.
  const uint8_t* FirstByte(uint64_t hash) const {
    return reinterpret_cast<const uint8_t*>(&places_[SecretHash(hash) & mask_]);
  }
  static const void* LateRow() { return &kLateRow; }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  static const char kLateRow;

  // Of the id in ids_.
  uint32_t PlaceOf(int64_t id, uint64_t hash) const {
    for (uint64_t p = SecretHash(hash);; ++p) {
      const uint32_t i = places_[p & mask_];
      if (i == kNone || ids_[i] == id) return i;
    }
  }
  // The place of the id, which is added if it is new.
  uint32_t Add(int64_t id);
  void Grow();

  size_t row_bytes_ = 0, stride_ = 0;
  std::vector<int64_t> ids_;
  std::vector<const char*> rows_;
  std::vector<RowState> states_;
  // Open addressing: indices into ids_, at most half of them taken.
  std::vector<uint32_t> places_ = std::vector<uint32_t>(16, kNone);
  uint64_t mask_ = 15;
  std::unique_ptr<char[]> memory_;
  size_t memory_bytes_ = 0;
};

// What a request needs of all tables of a model.
struct FetchedRows {
  std::vector<RowSet> tables;  // Per ModelInfo::tables; unused for those in memory.

  // Ids whose rows are not there, each once per table.
  int64_t CountLate() const {
    int64_t late = 0;
    for (const RowSet& rows : tables) late += rows.CountLate();
    return late;
  }
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_EMBEDDING_ROW_SET_H_

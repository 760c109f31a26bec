// SPDX-License-Identifier: Apache-2.0
#include "engine/embedding/row_set.h"

#include <algorithm>

namespace ulfd::engine {

const char RowSet::kLateRow = 0;

void RowSet::Reset(size_t row_bytes) {
  row_bytes_ = row_bytes;
  stride_ = (row_bytes + 15) / 16 * 16;
  ids_.clear();
  rows_.clear();
  states_.clear();
  std::fill(places_.begin(), places_.end(), kNone);
}

void RowSet::Grow() {
  places_.assign(places_.size() * 2, kNone);
  mask_ = places_.size() - 1;
  for (size_t i = 0; i < ids_.size(); ++i) {
    uint64_t p = KeyHash()(ids_[i]);
    while (places_[p & mask_] != kNone) ++p;
    places_[p & mask_] = static_cast<uint32_t>(i);
  }
}

uint32_t RowSet::Add(int64_t id) {
  uint64_t p = KeyHash()(id);
  for (uint32_t i; (i = places_[p & mask_]) != kNone; ++p) {
    if (ids_[i] == id) return i;
  }
  const auto added = static_cast<uint32_t>(ids_.size());
  places_[p & mask_] = added;
  ids_.push_back(id);
  rows_.push_back(nullptr);
  states_.push_back(RowState::kLate);
  if (2 * ids_.size() > places_.size()) Grow();
  return added;
}

void RowSet::AddIds(absl::Span<const int64_t> ids) {
  for (const int64_t id : ids) Add(id);
}

void RowSet::Reserve() {
  if (memory_bytes_ < reserve_bytes()) {
    memory_bytes_ = 0;
    memory_ = std::make_unique_for_overwrite<char[]>(reserve_bytes());
    memory_bytes_ = reserve_bytes();
  }
  for (size_t i = 0; i < ids_.size(); ++i) rows_[i] = memory_.get() + i * stride_;
}

int64_t RowSet::CountLate() const {
  return std::count(states_.begin(), states_.end(), RowState::kLate);
}

void RowSet::Borrow(const RowSet& other) {
  for (size_t from = 0; from < other.ids_.size(); ++from) {
    const uint32_t i = Add(other.ids_[from]);
    // A row that one of them found is a row: another one may have looked before it was written.
    if (states_[i] >= other.states_[from]) continue;
    rows_[i] = other.rows_[from];
    states_[i] = other.states_[from];
  }
}

}  // namespace ulfd::engine

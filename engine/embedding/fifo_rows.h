// Rows of one size under keys, in a bounded number of entries.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_EMBEDDING_FIFO_ROWS_H_
#define ULFD_ENGINE_EMBEDDING_FIFO_ROWS_H_

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "base/hash_map.h"

namespace ulfd::engine {

// S3-FIFO (Yang et al., SOSP 2023): what is new waits in a small queue, and only what is asked for
// again there, or soon after it has left, comes into the main one.  A hit moves nothing.  `Note` is
// kept beside each row.  Not thread-safe.
template <typename Key, typename Note, typename Hash = typename absl::flat_hash_set<Key>::hasher>
class FifoRows {
 private:
  struct Entry {
    Key key{};
    Note note{};
    uint8_t hits = 0;  // Since it came, or was looked at by the main queue; at most kMaxHits.
  };
  // Of the hash of a key, and its entry or kNone.
  struct Place {
    uint32_t hash = 0, entry = UINT32_MAX;
  };
  // absl's tables have at most 16/7 places, of a byte more, for each that was reserved, and an
  // eighth more are.
  static constexpr size_t kLeftBytes = (2 * sizeof(uint64_t) + 1) * 18 / 7 + 1;

 public:
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr uint8_t kMaxHits = 3;
  // Of an entry beside its row: itself, places in queues and maps, and those of who has left.
  static constexpr size_t kEntryBytes =
      sizeof(Entry) + 4 * sizeof(Place) + sizeof(uint32_t) + 2 * sizeof(uint64_t) + kLeftBytes;

  // Once, before anything else.  Pages of rows come as they are written.
  void Reserve(int64_t capacity, size_t row_bytes) {
    capacity_ = capacity;
    row_bytes_ = row_bytes;
    const auto rows = static_cast<size_t>(capacity);
    rows_ = std::make_unique_for_overwrite<char[]>(rows * row_bytes);
    entries_.reserve(rows);
    places_.resize(std::bit_ceil(2 * rows + 1));
    // An eighth more, or what has been erased would make it grow.
    left_number_.reserve(rows + rows / 8 + 2);
  }

  int64_t size() const { return static_cast<int64_t>(entries_.size()); }

  // The entry of `key`, or kNone.  Entries stay what they are until the next Add.
  uint32_t Find(const Key& key) const {
    return FindPlace(key, [&](uint32_t entry) { return entries_[entry].key == key; }).entry;
  }
  // The entry of `key`, of another key, or kNone: without a look at entries, which may be far away.
  uint32_t FindLikely(const Key& key) const {
    return FindPlace(key, [](uint32_t) { return true; }).entry;
  }
  // Whether the entry, which may be kNone or gone, is that of `key`.
  bool IsOf(uint32_t entry, const Key& key) const {
    return entry < entries_.size() && entries_[entry].key == key;
  }
  // Brings closer what FindLikely(key) reads; what is then read of an entry.
  void PrefetchKey(const Key& key) const { __builtin_prefetch(&places_[Home(key)]); }
  void PrefetchRow(uint32_t entry) const {
    constexpr size_t kLine = 64;
    __builtin_prefetch(&entries_[entry]);
    const char* const row = rows_.get() + entry * row_bytes_;
    for (size_t at = 0; at < row_bytes_; at += kLine) __builtin_prefetch(row + at);
  }
  // Notes that somebody wanted the entry.
  void Hit(uint32_t entry) {
    uint8_t& hits = entries_[entry].hits;
    hits = std::min<uint8_t>(hits + 1, kMaxHits);
  }
  // Makes an entry, whose row is anything, for a key that has none.  REQUIRES: a capacity over 0.
  // After std::bad_alloc everything is forgotten.
  uint32_t Add(const Key& key) {
    try {
      uint32_t entry = 0;
      if (size() < capacity_) {
        entry = static_cast<uint32_t>(entries_.size());
        entries_.emplace_back();
      } else {
        entry = Evict();
      }
      entries_[entry] = {.key = key};
      (left_number_.erase(Hash()(key)) > 0 ? main_ : small_).push_back(entry);
      uint64_t place = Home(key);
      while (places_[place].entry != kNone) place = Next(place);
      places_[place] = {HashOf(key), entry};
      return entry;
    } catch (const std::bad_alloc&) {
      // A queue may lack an entry now.  Room in the tables stays (clear would give it back).
      std::fill(places_.begin(), places_.end(), Place{});
      left_number_.erase(left_number_.begin(), left_number_.end());
      entries_.clear();
      small_.clear();
      main_.clear();
      left_.clear();
      throw;
    }
  }

  const Key& key(uint32_t entry) const { return entries_[entry].key; }
  Note& note(uint32_t entry) { return entries_[entry].note; }
  const Note& note(uint32_t entry) const { return entries_[entry].note; }
  uint8_t hits(uint32_t entry) const { return entries_[entry].hits; }
  char* row(uint32_t entry) { return rows_.get() + entry * row_bytes_; }
  const std::deque<uint32_t>& small() const { return small_; }  // Oldest first.
  const std::deque<uint32_t>& main() const { return main_; }

 private:
  // The small queue's part of the entries.
  static constexpr int64_t kSmallPart = 10;

  // Frees an entry and returns it.
  uint32_t Evict() {
    for (;;) {
      const auto small = static_cast<int64_t>(small_.size());
      const bool from_small = main_.empty() || small * kSmallPart >= capacity_;
      std::deque<uint32_t>& queue = from_small && small > 0 ? small_ : main_;
      const uint32_t entry = queue.front();
      queue.pop_front();
      Entry& candidate = entries_[entry];
      if (&queue == &small_) {
        if (candidate.hits > 1) {
          candidate.hits = 0;
          main_.push_back(entry);
          continue;
        }
        NoteLeft(Hash()(candidate.key));
        return Forget(entry);
      }
      if (candidate.hits == 0) return Forget(entry);
      --candidate.hits;
      main_.push_back(entry);
    }
  }
  uint32_t Forget(uint32_t entry) {
    uint64_t hole = Home(entries_[entry].key);
    while (places_[hole].entry != entry) hole = Next(hole);
    // What follows comes closer to where it belongs, up to the next gap.
    for (uint64_t p = Next(hole); places_[p].entry != kNone; p = Next(p)) {
      const uint64_t mask = places_.size() - 1;
      if (((p - places_[p].hash) & mask) < ((p - hole) & mask)) continue;
      places_[hole] = places_[p];
      hole = p;
    }
    places_[hole] = {};
    return entry;
  }

  static uint32_t HashOf(const Key& key) { return static_cast<uint32_t>(Hash()(key)); }
  uint64_t Home(const Key& key) const { return HashOf(key) & (places_.size() - 1); }
  uint64_t Next(uint64_t place) const { return (place + 1) & (places_.size() - 1); }
  // The first place of the key's hash whose entry is right, or an empty one.
  template <typename Right>
  Place FindPlace(const Key& key, Right right) const {
    const uint32_t hash = HashOf(key);
    for (uint64_t p = Home(key);; p = Next(p)) {
      const Place& place = places_[p];
      if (place.entry == kNone || (place.hash == hash && right(place.entry))) return place;
    }
  }
  void NoteLeft(uint64_t hash) {
    const uint64_t number = next_number_++;
    left_.emplace_back(hash, number);
    left_number_[hash] = number;
    if (static_cast<int64_t>(left_.size()) <= capacity_) return;
    const auto [oldest, its_number] = left_.front();
    left_.pop_front();
    const auto it = left_number_.find(oldest);
    if (it != left_number_.end() && it->second == its_number) left_number_.erase(it);
  }

  int64_t capacity_ = 0;
  size_t row_bytes_ = 0;
  // Open addressing, at most half of it taken.
  std::vector<Place> places_;
  std::vector<Entry> entries_;
  std::unique_ptr<char[]> rows_;       // As many as entries may come to be.
  std::deque<uint32_t> small_, main_;  // Oldest first.
  // Hashes of keys that left the small queue, the oldest first, each with its number; what came
  // back meanwhile has another number, or none.
  std::deque<std::pair<uint64_t, uint64_t>> left_;
  // Has room for all from the start: absl's tables do not outlive a want of memory.
  HashMap<uint64_t, uint64_t> left_number_;
  uint64_t next_number_ = 0;
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_EMBEDDING_FIFO_ROWS_H_

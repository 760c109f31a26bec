// LruCache: values under keys, in a bounded number of bytes; the least recently used goes first.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_BASE_LRU_CACHE_H_
#define ULFD_BASE_LRU_CACHE_H_

#include <cstdint>
#include <iterator>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "base/mutex.h"

namespace ulfd {

struct CacheStats {
  int64_t entries = 0, bytes = 0;  // Held now.
  int64_t hits = 0, misses = 0;    // Of Find, so far.
};

// Keys are compared in full: two that share a hash never answer for each other.  Values stay alive
// with who has them.  Thread-safe.
template <typename Value>
class LruCache {
 public:
  // max_bytes: of keys, values and what holds them.
  explicit LruCache(int64_t max_bytes) : max_bytes_(max_bytes) {}

  // nullptr: there is none.
  std::shared_ptr<const Value> Find(absl::string_view key) {
    MutexLock lock(mu_);
    const auto found = by_key_.find(key);
    if (found == by_key_.end()) {
      ++stats_.misses;
      return nullptr;
    }
    ++stats_.hits;
    entries_.splice(entries_.begin(), entries_, found->second);
    return found->second->value;
  }

  // Replaces what was under the key; a value larger than the cache is left out.  value_bytes: what
  // the value takes.
  void Insert(std::string key, std::shared_ptr<const Value> value, int64_t value_bytes) {
    const int64_t bytes = static_cast<int64_t>(key.size()) + value_bytes + kEntryBytes;
    std::list<Entry> added, gone;  // Allocated and freed without the lock.
    added.push_back({std::move(key), std::move(value), bytes});
    MutexLock lock(mu_);
    if (const auto old = by_key_.find(added.front().key); old != by_key_.end()) {
      Drop(old->second, gone);
    }
    if (bytes > max_bytes_) return;
    by_key_.emplace(added.front().key, added.begin());
    entries_.splice(entries_.begin(), added);
    stats_.bytes += bytes;
    ++stats_.entries;
    while (stats_.bytes > max_bytes_) Drop(std::prev(entries_.end()), gone);
  }

  // Drops the least recently used entry, if there is one and `drops` says so of its value.
  template <typename Drops>
  void DropOldest(Drops drops) {
    std::list<Entry> gone;  // Freed without the lock.
    MutexLock lock(mu_);
    if (!entries_.empty() && drops(*entries_.back().value)) Drop(std::prev(entries_.end()), gone);
  }

  CacheStats stats() const {
    MutexLock lock(mu_);
    return stats_;
  }

 private:
  // Of an entry beside its key and its value: nodes of list and map, and what the allocator adds.
  static constexpr int64_t kEntryBytes = 256;

  struct Entry {
    std::string key;
    std::shared_ptr<const Value> value;
    int64_t bytes;
  };
  using Entries = std::list<Entry>;

  void Drop(typename Entries::iterator entry, Entries& gone) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    stats_.bytes -= entry->bytes;
    --stats_.entries;
    by_key_.erase(entry->key);
    gone.splice(gone.begin(), entries_, entry);
  }

  const int64_t max_bytes_;
  mutable Mutex mu_;
  Entries entries_ ABSL_GUARDED_BY(mu_);  // Most recently used first.
  std::map<absl::string_view, typename Entries::iterator> by_key_ ABSL_GUARDED_BY(mu_);
  CacheStats stats_ ABSL_GUARDED_BY(mu_);
};

}  // namespace ulfd

#endif  // ULFD_BASE_LRU_CACHE_H_

// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/arena_layout.h"

#include <algorithm>
#include <limits>

#include "engine/tensor/tensor.h"

namespace ulfd::engine {

int64_t Aligned(int64_t bytes) {
  constexpr int64_t kAlignment = 64;
  return SaturatingAdd(std::max<int64_t>(bytes, 1), kAlignment - 1) / kAlignment * kAlignment;
}

namespace {

// A list of free ranges, merged where they touch.
class FreeList {
 public:
  // First fit; grows the arena if nothing fits.
  int64_t Take(int64_t bytes) {
    for (size_t i = 0; i < ranges_.size(); ++i) {
      Range& range = ranges_[i];
      if (range.bytes < bytes) continue;
      const int64_t offset = range.offset;
      range.offset += bytes;
      range.bytes -= bytes;
      if (range.bytes == 0) ranges_.erase(ranges_.begin() + static_cast<int64_t>(i));
      return offset;
    }
    if (!ranges_.empty() && ranges_.back().offset + ranges_.back().bytes == end_) {
      const int64_t offset = ranges_.back().offset;
      ranges_.pop_back();
      end_ = SaturatingAdd(offset, bytes);
      return offset;
    }
    const int64_t offset = end_;
    end_ = SaturatingAdd(end_, bytes);
    return offset;
  }

  void Give(int64_t offset, int64_t bytes) {
    const auto at = std::lower_bound(ranges_.begin(), ranges_.end(), offset,
                                     [](const Range& r, int64_t o) { return r.offset < o; });
    auto it = ranges_.insert(at, Range{offset, bytes});
    if (it + 1 != ranges_.end() && it->offset + it->bytes == (it + 1)->offset) {
      it->bytes += (it + 1)->bytes;
      ranges_.erase(it + 1);
    }
    if (it != ranges_.begin() && (it - 1)->offset + (it - 1)->bytes == it->offset) {
      (it - 1)->bytes += it->bytes;
      ranges_.erase(it);
    }
  }

  int64_t end() const { return end_; }

 private:
  struct Range {
    int64_t offset, bytes;
  };
  std::vector<Range> ranges_;
  int64_t end_ = 0;
};

}  // namespace

ArenaLayout LayOut(std::vector<Lifetime> lifetimes, size_t values) {
  std::stable_sort(lifetimes.begin(), lifetimes.end(),
                   [](const Lifetime& a, const Lifetime& b) { return a.first < b.first; });
  ArenaLayout layout;
  layout.offsets.assign(values, -1);
  FreeList free;
  std::vector<Lifetime> alive;  // A heap: the one that ends next is in front.
  const auto ends_later = [](const Lifetime& a, const Lifetime& b) { return a.last > b.last; };
  for (const Lifetime& lifetime : lifetimes) {
    // A step's outputs never lie where its inputs lay: `last` itself is still alive.
    while (!alive.empty() && alive.front().last < lifetime.first) {
      free.Give(layout.offsets[alive.front().value], Aligned(alive.front().bytes));
      std::pop_heap(alive.begin(), alive.end(), ends_later);
      alive.pop_back();
    }
    layout.offsets[lifetime.value] = free.Take(Aligned(lifetime.bytes));
    layout.bytes = free.end();
    if (layout.bytes == std::numeric_limits<int64_t>::max()) return layout;  // Nobody has that.
    alive.push_back(lifetime);
    std::push_heap(alive.begin(), alive.end(), ends_later);
  }
  return layout;
}

}  // namespace ulfd::engine

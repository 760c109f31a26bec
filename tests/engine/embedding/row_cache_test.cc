// Rows in memory: RowSet against a map, the cache against S3-FIFO written down plainly, lifetimes,
// and many threads.
// SPDX-License-Identifier: Apache-2.0
#include "engine/embedding/row_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <map>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/load_scope.h"
#include "engine/embedding/row_set.h"

namespace ulfd::engine {
namespace {

using std::chrono::seconds;

constexpr size_t kRowBytes = 8;

std::string RowOf(int64_t id) {
  std::string row(kRowBytes, '\0');
  std::memcpy(row.data(), &id, sizeof id);
  return row;
}

RowSet SetOf(const std::vector<int64_t>& ids) {
  RowSet rows;
  rows.Reset(kRowBytes);
  rows.AddIds(ids);
  rows.Reserve();
  return rows;
}

TEST(RowSetTest, KnowsEachIdOnce) {
  std::mt19937_64 random(1);
  RowSet rows;
  for (int round = 0; round < 3; ++round) {  // A set is used again.
    rows.Reset(kRowBytes);
    std::map<int64_t, size_t> places;
    std::vector<int64_t> ids = {0, -1, INT64_MIN, INT64_MAX};
    for (int i = 0; i < 1000; ++i) ids.push_back(static_cast<int64_t>(random() % 500));
    rows.AddIds(ids);
    rows.Reserve();
    for (size_t i = 0; i < rows.size(); ++i) {
      ASSERT_TRUE(places.emplace(rows.ids()[i], i).second);
    }
    EXPECT_EQ(rows.CountLate(), static_cast<int64_t>(rows.size()));
    for (const int64_t id : ids) EXPECT_EQ(rows.Find(id), RowSet::LateRow());
    for (size_t i = 0; i < rows.size(); ++i) {
      if (i % 3 == 0) continue;
      rows.set_state(i, i % 3 == 1 ? RowState::kMissing : RowState::kPresent);
      std::memcpy(rows.row(i), RowOf(rows.ids()[i]).data(), kRowBytes);
    }
    for (const int64_t id : ids) {
      const size_t place = places.at(id);
      const void* const found = rows.Find(id);
      if (place % 3 == 0) {
        EXPECT_EQ(found, RowSet::LateRow());
      } else if (place % 3 == 1) {
        EXPECT_EQ(found, nullptr);
      } else {
        EXPECT_EQ(std::memcmp(found, RowOf(id).data(), kRowBytes), 0);
      }
    }
    EXPECT_EQ(rows.Find(501), RowSet::LateRow()) << "an id that nobody asked for";
  }
}

TEST(RowSetTest, BorrowsWhatOthersHave) {
  RowSet a = SetOf({1, 2, 3}), b = SetOf({2, 3, 4});
  a.set_state(0, RowState::kPresent);
  a.set_state(1, RowState::kMissing);
  b.set_state(1, RowState::kPresent);  // 3, which `a` has not.
  RowSet both;
  both.Borrow(a);
  both.Borrow(b);
  EXPECT_EQ(both.size(), 4u);
  EXPECT_EQ(both.Find(1), a.row(0));
  EXPECT_EQ(both.Find(2), nullptr);
  EXPECT_EQ(both.Find(3), b.row(1));
  EXPECT_EQ(both.Find(4), RowSet::LateRow());
}

// One call looked before the row was written, or where it was not: the others' rows are none the
// worse for that.
TEST(RowSetTest, ARowOfOneCountsForAllThatItIsJoinedWith) {
  RowSet lacks = SetOf({1}), has = SetOf({1}), waits = SetOf({1});
  lacks.set_state(0, RowState::kMissing);
  has.set_state(0, RowState::kPresent);
  std::vector<const RowSet*> order = {&lacks, &has, &waits};
  std::sort(order.begin(), order.end());
  do {
    RowSet all;
    for (const RowSet* const one : order) all.Borrow(*one);
    EXPECT_EQ(all.Find(1), has.row(0));
  } while (std::next_permutation(order.begin(), order.end()));
}

// The rules of the paper for one shard, in the simplest words.
class PlainS3Fifo {
 public:
  explicit PlainS3Fifo(size_t capacity) : capacity_(capacity) {}

  bool Find(int64_t id) {
    const auto it = hits_.find(id);
    if (it == hits_.end()) return false;
    it->second = std::min(it->second + 1, 3);
    return true;
  }
  void Insert(int64_t id) {
    if (hits_.contains(id)) return;
    if (hits_.size() == capacity_) Evict();
    bool was_here = false;
    for (auto& left : left_) {
      if (left.second && left.first == id) {
        was_here = true;
        left.second = false;
      }
    }
    (was_here ? main_ : small_).push_back(id);
    hits_[id] = 0;
  }

 private:
  void Evict() {
    while (true) {
      if (main_.empty() || small_.size() * 10 >= capacity_) {
        const int64_t id = small_.front();
        small_.pop_front();
        if (hits_[id] > 1) {
          hits_[id] = 0;
          main_.push_back(id);
          continue;
        }
        hits_.erase(id);
        left_.emplace_back(id, true);
        if (left_.size() > capacity_) left_.pop_front();
        return;
      }
      const int64_t id = main_.front();
      main_.pop_front();
      if (hits_[id] == 0) {
        hits_.erase(id);
        return;
      }
      --hits_[id];
      main_.push_back(id);
    }
  }

  const size_t capacity_;
  std::deque<int64_t> small_, main_;
  std::deque<std::pair<int64_t, bool>> left_;
  std::unordered_map<int64_t, int> hits_;
};

// Ids of one shard.
std::vector<int64_t> IdsOfOneShard(size_t count) {
  std::vector<int64_t> ids;
  for (int64_t id = 0; ids.size() < count; ++id) {
    if (HashKey(id) >> 60 == 5) ids.push_back(id);
  }
  return ids;
}

TEST(RowCacheTest, KeepsWhatS3FifoKeeps) {
  const RowCacheOptions options{.max_bytes = 16 * 50 * (kRowBytes + RowCache::kEntryBytes)};
  for (const double skew : {0.6, 1.0, 1.4}) {
    RowCache cache(options, kRowBytes);
    ASSERT_EQ(cache.capacity(), 16 * 50);
    PlainS3Fifo plain(50);
    const std::vector<int64_t> ids = IdsOfOneShard(400);
    std::vector<double> weights;
    for (size_t i = 0; i < ids.size(); ++i) weights.push_back(1 / std::pow(i + 1, skew));
    std::discrete_distribution<size_t> draw(weights.begin(), weights.end());
    std::mt19937_64 random(7);
    int64_t hits = 0;
    for (int step = 0; step < 20000; ++step) {
      const int64_t id = ids[draw(random)];
      RowSet rows = SetOf({id});
      const bool found = cache.Find(rows, TimePoint()) == 1;
      ASSERT_EQ(found, plain.Find(id)) << "step " << step << " skew " << skew;
      hits += found;
      if (found) {
        ASSERT_EQ(std::memcmp(rows.row(0), RowOf(id).data(), kRowBytes), 0);
        continue;
      }
      cache.Insert(id, RowOf(id).data(), TimePoint());
      plain.Insert(id);
    }
    EXPECT_GT(hits, 1000);
    EXPECT_EQ(cache.bytes(), 50 * static_cast<int64_t>(kRowBytes + RowCache::kEntryBytes));
  }
}

TEST(RowCacheTest, OneScanDoesNotDriveOutWhatIsHot) {
  RowCache cache({.max_bytes = 16 * 100 * (kRowBytes + RowCache::kEntryBytes)}, kRowBytes);
  const std::vector<int64_t> ids = IdsOfOneShard(5000);
  const auto ask = [&](int64_t id) {
    RowSet rows = SetOf({id});
    const bool found = cache.Find(rows, TimePoint()) == 1;
    if (!found) cache.Insert(id, RowOf(id).data(), TimePoint());
    return found;
  };
  for (int round = 0; round < 4; ++round) {
    for (size_t i = 0; i < 50; ++i) ask(ids[i]);
  }
  for (size_t i = 50; i < ids.size(); ++i) ask(ids[i]);
  int left = 0;
  for (size_t i = 0; i < 50; ++i) left += ask(ids[i]);
  EXPECT_EQ(left, 50);
}

TEST(RowCacheTest, ForgetsAfterItsLifetimes) {
  RowCache cache({.row_lifetime = seconds(60), .missing_lifetime = seconds(5)}, kRowBytes);
  const TimePoint begin = TimePoint() + seconds(1000);
  cache.Insert(1, RowOf(1).data(), begin);
  cache.Insert(2, nullptr, begin);
  RowSet rows = SetOf({1, 2, 3});
  EXPECT_EQ(cache.Find(rows, begin + seconds(4)), 2);
  EXPECT_EQ(rows.state(0), RowState::kPresent);
  EXPECT_EQ(rows.state(1), RowState::kMissing);
  EXPECT_EQ(rows.state(2), RowState::kLate);
  rows = SetOf({1, 2});
  EXPECT_EQ(cache.Find(rows, begin + seconds(5)), 1);
  EXPECT_EQ(rows.state(1), RowState::kLate);
  cache.Insert(2, RowOf(7).data(), begin + seconds(5));  // It came into being meanwhile.
  rows = SetOf({1, 2});
  EXPECT_EQ(cache.Find(rows, begin + seconds(59)), 2);
  EXPECT_EQ(std::memcmp(rows.row(1), RowOf(7).data(), kRowBytes), 0);
  rows = SetOf({1, 2});
  EXPECT_EQ(cache.Find(rows, begin + seconds(60)), 1);
  EXPECT_EQ(rows.state(0), RowState::kLate);
}

TEST(RowCacheTest, KeepsNothingWithoutRoom) {
  RowCache cache({.max_bytes = 100}, kRowBytes);
  cache.Insert(1, RowOf(1).data(), TimePoint());
  RowSet rows = SetOf({1});
  EXPECT_EQ(cache.Find(rows, TimePoint()), 0);
  EXPECT_EQ(cache.max_bytes(), 0);
}

TEST(RowCacheTest, GivesEveryThreadWholeRows) {
  RowCache cache({.max_bytes = 16 * 20 * (kRowBytes + RowCache::kEntryBytes)}, kRowBytes);
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&cache, t] {
      std::mt19937_64 random(t);
      for (int step = 0; step < 2000; ++step) {
        std::vector<int64_t> ids;
        for (int i = 0; i < 20; ++i) ids.push_back(static_cast<int64_t>(random() % 1000));
        RowSet rows = SetOf(ids);
        cache.Find(rows, TimePoint());
        for (size_t i = 0; i < rows.size(); ++i) {
          const std::string row = RowOf(rows.ids()[i]);
          if (rows.state(i) == RowState::kPresent) {
            ASSERT_EQ(std::memcmp(rows.row(i), row.data(), kRowBytes), 0);
          } else {
            cache.Insert(rows.ids()[i], row.data(), TimePoint());
          }
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(RowCacheTest, HasRightRowsOrNoneWhereverMemoryEnds) {
  RowCache cache({.max_bytes = 16 * 20 * (kRowBytes + RowCache::kEntryBytes)}, kRowBytes);
  std::mt19937_64 random(5);
  std::vector<int64_t> ids;
  for (int64_t id = 0; id < 1000; ++id) ids.push_back(id);
  int refused = 0;
  int64_t found = 0;
  for (int i = 0; i < 50000; ++i) {
    const auto id = static_cast<int64_t>(random() % ids.size());
    const std::string row = RowOf(id);
    try {
      const LoadScope scope({.max_memory_bytes = i % 2 == 0 ? 0 : INT64_MAX});
      cache.Insert(id, row.data(), TimePoint());
    } catch (const std::bad_alloc&) {
      ++refused;
    }
    if (i % 1000 != 0) continue;
    RowSet rows = SetOf(ids);
    found += cache.Find(rows, TimePoint() + seconds(1));
    for (size_t r = 0; r < rows.size(); ++r) {
      if (rows.state(r) == RowState::kLate) continue;
      ASSERT_EQ(std::string(rows.row(r), kRowBytes), RowOf(rows.ids()[r]));
    }
  }
  EXPECT_GT(refused, 10);
  EXPECT_GT(found, 1000);
}

}  // namespace
}  // namespace ulfd::engine

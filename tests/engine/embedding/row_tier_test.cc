// Tiers: what is read, what is not read twice, what is late, and how lookups see it.
// SPDX-License-Identifier: Apache-2.0
#include "engine/embedding/row_tier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <limits>
#include <map>
#include <new>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include "base/mutex.h"
#include "engine/embedding/pooling.h"
#include "engine/embedding/table.h"

namespace ulfd::engine {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;
using Clock = std::chrono::steady_clock;

constexpr int64_t kDim = 2;

// What a test store has and does.
struct Shelf {
  std::map<int64_t, std::vector<float>> rows;
  Mutex mu;
  CondVar changed;
  std::vector<std::vector<int64_t>> reads ABSL_GUARDED_BY(mu);  // Ids of each read.
  bool closed ABSL_GUARDED_BY(mu) = false;                      // Reads wait until their deadline.
  absl::Status failure ABSL_GUARDED_BY(mu);                     // Of every read.
  bool no_memory ABSL_GUARDED_BY(mu) = false;                   // Reads throw.

  void Open() {
    MutexLock lock(mu);
    closed = false;
    changed.NotifyAll();
  }
  void AwaitReads(size_t count) {
    MutexLock lock(mu);
    while (reads.size() < count) changed.Wait(mu);
  }
};

class ShelfStore final : public RowStore {
 public:
  explicit ShelfStore(Shelf& shelf, const void* backend = nullptr)
      : shelf_(shelf), backend_(backend == nullptr ? this : backend) {
    info_.dim = kDim;
    info_.rows = static_cast<int64_t>(shelf.rows.size());
    const float mean[kDim] = {0.5f, 0.25f};
    info_.mean_row.assign(reinterpret_cast<const char*>(mean), sizeof mean);
    info_.digest = "shelf";
  }
  const StoredTableInfo& table() const override { return info_; }
  const void* backend() const override { return backend_; }
  int64_t bytes() const override { return 0; }
  void Read(absl::Span<RowRead* const> reads, TimePoint deadline) const override {
    MutexLock lock(shelf_.mu);
    std::vector<int64_t> ids;
    for (RowRead* read : reads) {
      for (const size_t i : read->wanted) ids.push_back(read->rows->ids()[i]);
    }
    shelf_.reads.push_back(ids);
    shelf_.changed.NotifyAll();
    if (shelf_.no_memory) throw std::bad_alloc();
    while (shelf_.closed) {
      if (!shelf_.changed.WaitUntil(shelf_.mu, deadline)) return;
    }
    for (RowRead* read : reads) {
      read->status = shelf_.failure;
      if (!shelf_.failure.ok()) continue;
      for (const size_t i : read->wanted) {
        const auto row = shelf_.rows.find(read->rows->ids()[i]);
        const bool has = row != shelf_.rows.end();
        read->rows->set_state(i, has ? RowState::kPresent : RowState::kMissing);
        if (has) std::memcpy(read->rows->row(i), row->second.data(), kDim * sizeof(float));
      }
    }
  }

 private:
  Shelf& shelf_;
  const void* const backend_;
  StoredTableInfo info_;
};

RowSet SetOf(const std::vector<int64_t>& ids) {
  RowSet rows;
  rows.Reset(kDim * sizeof(float));
  rows.AddIds(ids);
  rows.Reserve();
  return rows;
}

class RowTierTest : public ::testing::Test {
 protected:
  RowTierTest() {
    for (int64_t id = 0; id < 100; ++id) {
      shelf_.rows[id] = {static_cast<float>(id), static_cast<float>(-id)};
    }
    tier_ = std::make_shared<RowTier>(std::make_unique<ShelfStore>(shelf_), RowTierOptions());
  }

  absl::Status Fetch(RowSet& rows, milliseconds within = seconds(20)) {
    const RowTier::Fetch fetch{.tier = tier_.get(), .rows = &rows, .name = &name_};
    return RowTier::FetchAll({&fetch, 1}, Clock::now() + within);
  }
  std::vector<std::vector<int64_t>> Reads() {
    MutexLock lock(shelf_.mu);
    return shelf_.reads;
  }

  const std::string name_ = "items";
  Shelf shelf_;
  std::shared_ptr<RowTier> tier_;
};

// The key whose HashKey that is.
int64_t KeyOf(uint64_t hash) {
  hash ^= hash >> 33;
  hash *= 0x9cb4b2f8129337dbULL;
  hash ^= hash >> 33;
  hash *= 0x4f74430c22a54005ULL;
  return static_cast<int64_t>(hash ^ (hash >> 33));
}

// Half a million ids that any mask takes for one: with a hash that everybody knows they would take
// minutes.
TEST(RowSet, IdsThatWereChosenToMeetDoNot) {
  std::vector<int64_t> ids;
  for (uint64_t i = 0; i < 500'000; ++i) ids.push_back(KeyOf(i << 24));
  ASSERT_EQ(HashKey(ids[77]), uint64_t{77} << 24);
  RowSet rows;
  rows.Reset(8);
  rows.AddIds(ids);
  EXPECT_EQ(rows.size(), ids.size());
  std::unordered_set<int64_t, KeyHash> under_way(ids.begin(), ids.end());
  EXPECT_EQ(under_way.size(), ids.size());
}

TEST_F(RowTierTest, ReadsWhatIsNotInMemory) {
  RowSet rows = SetOf({3, 200, 5});
  tier_->Find(rows);
  EXPECT_EQ(rows.CountLate(), 3);
  ASSERT_TRUE(Fetch(rows).ok());
  EXPECT_EQ(rows.CountLate(), 0);
  EXPECT_EQ(static_cast<const float*>(rows.Find(5))[1], -5);
  EXPECT_EQ(rows.Find(200), nullptr);
  RowSet again = SetOf({5, 200, 7});
  tier_->Find(again);
  EXPECT_EQ(again.CountLate(), 1) << "a row and a missing id are kept";
  ASSERT_TRUE(Fetch(again).ok());
  EXPECT_THAT(Reads(), ElementsAre(UnorderedElementsAre(3, 200, 5), ElementsAre(7)));
  const RowTierStats stats = tier_->stats();
  EXPECT_EQ(stats.hits, 2);
  EXPECT_EQ(stats.misses, 4);
}

TEST_F(RowTierTest, SendsOneReadForTablesOfOneBackend) {
  Shelf other;
  other.rows[1] = {9, 9};
  RowTier a(std::make_unique<ShelfStore>(shelf_, this), {});
  RowTier b(std::make_unique<ShelfStore>(shelf_, this), {});
  RowTier c(std::make_unique<ShelfStore>(other), {});
  RowSet of_a = SetOf({1}), of_b = SetOf({2}), of_c = SetOf({1});
  const RowTier::Fetch fetches[] = {{&a, &of_a, &name_}, {&c, &of_c, &name_}, {&b, &of_b, &name_}};
  ASSERT_TRUE(RowTier::FetchAll(fetches, Clock::now() + seconds(20)).ok());
  EXPECT_THAT(Reads(), ElementsAre(ElementsAre(1, 2)));
  EXPECT_EQ(static_cast<const float*>(of_c.Find(1))[0], 9);
}

TEST_F(RowTierTest, ReadsARowOnceForAll) {
  {
    MutexLock lock(shelf_.mu);
    shelf_.closed = true;
  }
  std::vector<RowSet> sets;
  for (int i = 0; i < 8; ++i) sets.push_back(SetOf({1, 2, 3}));
  std::vector<std::thread> threads;
  for (RowSet& rows : sets) {
    threads.emplace_back([this, &rows] { EXPECT_TRUE(Fetch(rows).ok()); });
  }
  shelf_.AwaitReads(1);
  shelf_.Open();
  for (std::thread& thread : threads) thread.join();
  for (const RowSet& rows : sets) EXPECT_EQ(rows.CountLate(), 0);
  EXPECT_EQ(Reads().size(), 1u);
}

TEST_F(RowTierTest, LeavesLateWhatTakesLonger) {
  {
    MutexLock lock(shelf_.mu);
    shelf_.closed = true;
  }
  RowSet first = SetOf({1, 2}), second = SetOf({2, 3});
  std::thread other([&] { EXPECT_TRUE(Fetch(first, milliseconds(60000)).ok()); });
  shelf_.AwaitReads(1);
  ASSERT_TRUE(Fetch(second, milliseconds(20)).ok());
  EXPECT_EQ(second.CountLate(), 2);
  shelf_.Open();
  other.join();
  EXPECT_EQ(first.CountLate(), 0);
  ASSERT_TRUE(Fetch(second).ok());  // Nothing is left behind by who gave up.
  EXPECT_EQ(second.CountLate(), 0);
}

TEST_F(RowTierTest, TellsErrorsAndGoesOn) {
  {
    MutexLock lock(shelf_.mu);
    shelf_.failure = absl::DataLossError("shelf: broken");
  }
  RowSet rows = SetOf({1});
  const absl::Status status = Fetch(rows);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("table \"items\": shelf: broken"));
  EXPECT_EQ(rows.CountLate(), 1);
  EXPECT_EQ(tier_->stats().failures, 1);
  {
    MutexLock lock(shelf_.mu);
    shelf_.failure = absl::OkStatus();
  }
  ASSERT_TRUE(Fetch(rows).ok());
  EXPECT_EQ(rows.CountLate(), 0);
}

TEST_F(RowTierTest, LeavesLateWhatIsNotFinite) {
  const float no_number = std::numeric_limits<float>::quiet_NaN();
  shelf_.rows[1] = {1, no_number};
  shelf_.rows[2] = {-std::numeric_limits<float>::infinity(), 0};
  RowSet rows = SetOf({1, 2, 3});
  const absl::Status status = Fetch(rows);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(status.message(), "table \"items\": id 1: a value of its row is not finite");
  EXPECT_THAT(std::vector({rows.state(0), rows.state(1), rows.state(2)}),
              ElementsAre(RowState::kLate, RowState::kLate, RowState::kPresent));
  EXPECT_EQ(tier_->Read({{1}}, Clock::now() + seconds(20)).status().code(),
            absl::StatusCode::kDataLoss);
  // Nothing of it is kept: it is right once the store is.
  shelf_.rows[1] = {1, 2};
  shelf_.rows[2] = {3, 4};
  ASSERT_TRUE(Fetch(rows).ok());
  EXPECT_EQ(rows.CountLate(), 0);
}

TEST_F(RowTierTest, ReadsAheadWhatIsHot) {
  for (const std::vector<int64_t>& ids :
       std::vector<std::vector<int64_t>>{{9, 500}, {7, 500}, {7, 8, 9}, {7}}) {
    RowSet rows = SetOf(ids);
    tier_->Find(rows);
    ASSERT_TRUE(Fetch(rows).ok());
  }
  // 8 was asked for once, 500 is missing.
  EXPECT_THAT(tier_->HotIds(), ElementsAre(7, 9));

  RowTier other(std::make_unique<ShelfStore>(shelf_), RowTierOptions());
  ASSERT_TRUE(other.ReadAhead({{7, 9, 700}}, Clock::now() + seconds(20)).ok());
  EXPECT_THAT(Reads().back(), UnorderedElementsAre(7, 9, 700));
  EXPECT_THAT(other.HotIds(), UnorderedElementsAre(7, 9)) << "for the next start, if it is soon";
  RowSet rows = SetOf({7, 8, 9, 700});
  other.Find(rows);
  EXPECT_EQ(rows.state(0), RowState::kPresent);
  EXPECT_EQ(rows.state(1), RowState::kLate);
  EXPECT_EQ(rows.state(2), RowState::kPresent);
  EXPECT_EQ(static_cast<const float*>(rows.Find(9))[1], -9);
  EXPECT_EQ(rows.state(3), RowState::kLate);
  {
    MutexLock lock(shelf_.mu);
    shelf_.failure = absl::DataLossError("torn");
  }
  EXPECT_EQ(other.ReadAhead({{1}}, Clock::now() + seconds(20)).message(), "torn");
  // No time, no read.
  EXPECT_TRUE(other.ReadAhead({{1}}, Clock::now()).ok());
}

TEST_F(RowTierTest, AReadThatEndsForWantOfMemoryHoldsUpNobody) {
  {
    MutexLock lock(shelf_.mu);
    shelf_.no_memory = true;
  }
  RowSet rows = SetOf({1, 2});
  EXPECT_THROW(Fetch(rows).IgnoreError(), std::bad_alloc);
  EXPECT_EQ(rows.CountLate(), 2);
  {
    MutexLock lock(shelf_.mu);
    shelf_.no_memory = false;
  }
  ASSERT_TRUE(Fetch(rows).ok());
  EXPECT_EQ(rows.CountLate(), 0);
}

// Sums ids 1, 200 (missing) and 2 (late).
std::vector<float> Pool(const EmbeddingTable& table, RowSet& rows, int64_t* missing) {
  const std::vector<int64_t> ids = {1, 200, 2};
  const std::vector<int32_t> segments = {3};
  std::vector<float> out(kDim);
  const PoolingOutput output{.spec = {.dim = kDim}, .out = out.data(), .stride = kDim};
  const FeatureJob job{.table = &table,
                       .input = {.ids = ids, .segments = segments},
                       .outputs = {&output, 1},
                       .missing = missing,
                       .fetched = &rows};
  std::vector<const void*> scratch(ids.size());
  size_t failed = 0;
  Pace pace;
  EXPECT_TRUE(PoolFeatures({&job, 1}, scratch.data(), pace, &failed).ok());
  return out;
}

TEST_F(RowTierTest, LookupsFollowThePolicyOfTheTable) {
  RowSet rows = SetOf({1, 200});
  ASSERT_TRUE(Fetch(rows).ok());
  rows.AddIds(std::vector<int64_t>{2});
  struct {
    MissingKeys policy;
    std::vector<float> sum;
  } const cases[] = {{MissingKeys::kZero, {1, -1}},
                     {MissingKeys::kDefaultRow, {1 + 2 * 10, -1 - 2 * 10}},
                     {MissingKeys::kMeanRow, {1 + 2 * 0.5f, -1 + 2 * 0.25f}}};
  for (const auto& c : cases) {
    const auto table =
        EmbeddingTable::MakeTiered("items", tier_, {.missing_keys = c.policy, .default_id = 10});
    ASSERT_TRUE(table.ok()) << table.status();
    int64_t missing = 0;
    EXPECT_EQ(Pool(**table, rows, &missing), c.sum);
    EXPECT_EQ(missing, 1) << "what is late is not missing";
    EXPECT_EQ((*table)->dim(), kDim);
    EXPECT_EQ((*table)->rows(), 100);
    EXPECT_EQ((*table)->digest(), "shelf");
  }
  const auto none = EmbeddingTable::MakeTiered(
      "items", tier_, {.missing_keys = MissingKeys::kDefaultRow, .default_id = 200});
  EXPECT_EQ(none.status().message(), "lacks the default id 200");
}

}  // namespace
}  // namespace ulfd::engine

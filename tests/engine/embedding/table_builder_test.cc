// PerfectHash and TableBuilder: every key has its slot, whatever the keys; rows stay with their
// ids.
// SPDX-License-Identifier: Apache-2.0
#include "engine/embedding/table_builder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "engine/embedding/perfect_hash.h"

namespace ulfd::engine {
namespace {

PerfectHash Build(const std::vector<uint64_t>& hashes) {
  auto hash = PerfectHash::Build(hashes);
  EXPECT_TRUE(hash.ok()) << hash.status();
  return *std::move(hash);
}

void ExpectPerfect(const PerfectHash& hash, const std::vector<uint64_t>& hashes) {
  std::set<size_t> slots;
  for (const uint64_t h : hashes) {
    const size_t slot = hash.Slot(h);
    ASSERT_LT(slot, hash.slots());
    ASSERT_TRUE(slots.insert(slot).second) << "of " << hashes.size() << " keys";
  }
}

TEST(PerfectHash, GivesEveryKeyASlotOfItsOwn) {
  std::mt19937_64 random(1);
  for (const size_t n : {1, 2, 3, 4, 10, 100, 3071, 3072, 3073, 6145, 100000}) {
    std::set<uint64_t> keys;
    while (keys.size() < n) keys.insert(random());
    const std::vector<uint64_t> hashes(keys.begin(), keys.end());
    const PerfectHash hash = Build(hashes);
    ExpectPerfect(hash, hashes);
    EXPECT_LE(static_cast<double>(hash.slots()), static_cast<double>(n) * 1.1 + 40) << n;
    EXPECT_LE(static_cast<double>(hash.displaced().size()), static_cast<double>(n) * 0.01 + 1) << n;
    for (int i = 0; i < 1000; ++i) EXPECT_LT(hash.Slot(random()), hash.slots());  // Any key.
  }
}

TEST(PerfectHash, CopesWithKeysOfOneBucket) {
  std::vector<uint64_t> hashes;
  for (uint64_t i = 0; i < 5000; ++i) hashes.push_back((uint64_t{1} << 63) + i);
  for (uint64_t i = 0; i < 5000; ++i) hashes.push_back((uint64_t{3} << 62) + (i << 20));
  const PerfectHash hash = Build(hashes);
  ExpectPerfect(hash, hashes);
  EXPECT_GT(hash.displaced().size(), 4000u);  // Not by pilots; that many keys fit no bucket.
}

absl::StatusOr<std::unique_ptr<const EmbeddingTable>> TableOf(TableBuilder& builder) {
  auto rows = builder.Finish();
  if (!rows.ok()) return rows.status();
  return EmbeddingTable::Make("t", *std::move(rows), {});
}

TEST(TableBuilder, RowsStayWithTheirIds) {
  for (const int64_t dim : {1, 12, 13, 18, 36}) {
    for (const int64_t rows : {1, 2, 17, 5000}) {
      TableBuilder builder(dim);
      std::vector<int64_t> ids = {0, -1, std::numeric_limits<int64_t>::min(),
                                  std::numeric_limits<int64_t>::max()};
      while (static_cast<int64_t>(ids.size()) < rows) {
        ids.push_back(static_cast<int64_t>(ids.size()) * 1000);
      }
      ids.resize(rows);
      for (int64_t i = 0; i < rows; ++i) {
        const auto row = builder.NextRow();
        ASSERT_TRUE(row.ok());
        for (int64_t c = 0; c < dim; ++c) (*row)[c] = static_cast<float>(i * dim + c);
        builder.Commit(ids[i]);
      }
      const auto table = TableOf(builder);
      ASSERT_TRUE(table.ok()) << table.status();
      for (int64_t i = 0; i < rows; ++i) {
        const auto* row = static_cast<const float*>((*table)->Find(ids[i]));
        ASSERT_NE(row, nullptr) << ids[i];
        for (int64_t c = 0; c < dim; ++c) ASSERT_EQ(row[c], static_cast<float>(i * dim + c));
        ASSERT_EQ((*table)->Find(ids[i] ^ 0x55), nullptr);
      }
      // The limit of a loaded model: 1.3 x ids and rows (and some pages).
      EXPECT_LE(static_cast<double>((*table)->bytes()),
                1.3 * static_cast<double>(rows * (8 + 4 * dim)) + 3 * 4096);
    }
  }
}

TEST(TableBuilder, FindsAndDropsDuplicates) {
  const auto fill = [](TableBuilder& builder) {
    for (const int64_t id : {5, 3, 9, 3, 5, 9, 3}) {
      **builder.NextRow() = static_cast<float>(builder.rows());
      builder.Commit(id);
    }
  };
  TableBuilder strict(1);
  EXPECT_EQ(strict.Finish().status().message(), "no rows, want at least one");
  fill(strict);
  const auto twice = strict.FindDuplicate();
  ASSERT_TRUE(twice.has_value());
  EXPECT_EQ(twice->id, 3);
  EXPECT_EQ(twice->first_row, 1);
  EXPECT_EQ(twice->row, 3);
  EXPECT_EQ(strict.Finish().status().message(), "id 3 has two rows, 1 and 3");
  EXPECT_EQ(strict.DropDuplicates(), 4);
  EXPECT_FALSE(strict.FindDuplicate().has_value());
  const auto table = TableOf(strict);
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ((*table)->rows(), 3);
  EXPECT_EQ(*static_cast<const float*>((*table)->Find(5)), 0);
  EXPECT_EQ(*static_cast<const float*>((*table)->Find(3)), 1);
  EXPECT_EQ(*static_cast<const float*>((*table)->Find(9)), 2);
}

}  // namespace
}  // namespace ulfd::engine

// SPDX-License-Identifier: Apache-2.0
#include "base/lru_cache.h"

#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace ulfd {
namespace {

void Insert(LruCache<std::string>& cache, const std::string& key, std::string value) {
  const auto bytes = static_cast<int64_t>(value.size());
  cache.Insert(key, std::make_shared<std::string>(std::move(value)), bytes);
}

TEST(LruCacheTest, KeepsTheMostRecentlyUsedWithinItsBytes) {
  LruCache<std::string> cache(10000);
  for (const char* key : {"a", "b", "c", "d", "e"}) Insert(cache, key, std::string(2000, 'v'));
  EXPECT_EQ(cache.stats().entries, 4);
  EXPECT_LE(cache.stats().bytes, 10000);
  EXPECT_EQ(cache.Find("a"), nullptr);
  ASSERT_NE(cache.Find("b"), nullptr);
  Insert(cache, "f", std::string(2000, 'v'));
  EXPECT_NE(cache.Find("b"), nullptr);
  EXPECT_EQ(cache.Find("c"), nullptr);
  EXPECT_EQ(cache.stats().hits, 2);
  EXPECT_EQ(cache.stats().misses, 2);
}

TEST(LruCacheTest, LeavesOutWhatIsLargerThanItself) {
  LruCache<std::string> cache(10000);
  Insert(cache, "small", "v");
  Insert(cache, "large", std::string(10000, 'v'));
  EXPECT_EQ(cache.Find("large"), nullptr);
  EXPECT_NE(cache.Find("small"), nullptr);
}

TEST(LruCacheTest, ReplacesWhatWasUnderTheKey) {
  LruCache<std::string> cache(10000);
  Insert(cache, "u", "first");
  Insert(cache, "u", "second");
  EXPECT_EQ(*cache.Find("u"), "second");
  EXPECT_EQ(cache.stats().entries, 1);
  Insert(cache, "u", std::string(10000, 'v'));
  EXPECT_EQ(cache.Find("u"), nullptr);
  EXPECT_EQ(cache.stats().bytes, 0);
}

TEST(LruCacheTest, DropsTheOldestThatIsToGo) {
  LruCache<std::string> cache(10000);
  for (const char* key : {"a", "b", "c"}) Insert(cache, key, key);
  ASSERT_NE(cache.Find("a"), nullptr);
  cache.DropOldest([](const std::string& value) { return value == "a"; });
  EXPECT_EQ(cache.stats().entries, 3);
  cache.DropOldest([](const std::string& value) { return value == "b"; });
  EXPECT_EQ(cache.Find("b"), nullptr);
  for (int i = 0; i < 3; ++i) cache.DropOldest([](const std::string&) { return true; });
  EXPECT_EQ(cache.stats().bytes, 0);
}

// What is evicted stays with who has it.
TEST(LruCacheTest, ManyThreads) {
  LruCache<std::string> cache(20000);
  const auto work = [&cache] {
    for (int i = 0; i < 5000; ++i) {
      const std::string key = absl::StrCat(i % 100);
      const auto found = cache.Find(key);
      if (found != nullptr) {
        ASSERT_EQ(*found, key + std::string(500, 'v'));
      } else {
        Insert(cache, key, key + std::string(500, 'v'));
      }
    }
  };
  std::thread other(work);
  work();
  other.join();
  EXPECT_LE(cache.stats().bytes, 20000);
  EXPECT_EQ(cache.stats().hits + cache.stats().misses, 10000);
}

}  // namespace
}  // namespace ulfd

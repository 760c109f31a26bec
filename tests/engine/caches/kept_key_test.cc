// Content that differs has other keys.
// SPDX-License-Identifier: Apache-2.0
#include "engine/caches/kept_key.h"

#include <set>
#include <string>

#include "gtest/gtest.h"

namespace ulfd::engine {
namespace {

KeptKey KeyOf(const std::string& text) {
  KeptHasher hasher;
  hasher.AddCount(text.size());
  hasher.Add(text.data(), text.size());
  return hasher.key();
}

TEST(KeptHasherTest, TellsApartWhatDiffersInOneBit) {
  for (const size_t bytes : {1, 63, 64, 65, 1224}) {
    const std::string text(bytes, 'a');
    EXPECT_EQ(KeyOf(text), KeyOf(text));
    EXPECT_NE(KeyOf(text), KeyOf(text + std::string(1, '\0')));
    for (size_t bit = 0; bit < 8 * bytes; ++bit) {
      std::string other = text;
      other[bit / 8] = static_cast<char>(other[bit / 8] ^ (1 << bit % 8));
      const KeptKey a = KeyOf(text), b = KeyOf(other);
      for (size_t w = 0; w < a.words.size(); ++w) ASSERT_NE(a.words[w], b.words[w]) << bit;
    }
  }
}

// Around 64 KB, from where on keys are hashed again, and at several times that.
TEST(KeptHasherTest, TellsApartWhatIsLong) {
  for (const size_t bytes : {65471, 65472, 65473, 65536, 131072, 1000000}) {
    std::string text(bytes, 'a');
    const KeptKey key = KeyOf(text);
    EXPECT_EQ(KeyOf(text), key);
    EXPECT_NE(KeyOf(text + std::string(1, '\0')), key);
    for (size_t at = 0; at < bytes; at += 997) {
      text[at] = 'b';
      ASSERT_NE(KeyOf(text), key) << at;
      text[at] = 'a';
    }
  }
}

// Chapters of equal content are told apart by their places.
TEST(KeptHasherTest, TellsOrdersOfChaptersApart) {
  std::string first(65536, 'a'), second(65536, 'b');
  std::set<uint64_t> seen;
  for (const std::string& text :
       {first + second + second, second + first + second, second + second + first}) {
    seen.insert(KeyOf(text).words[0]);
  }
  EXPECT_EQ(seen.size(), 3u);
}

TEST(KeptHasherTest, GivesWhatIsTooLongAKeyOfItsOwn) {
  const std::string text(17 << 20, 'a');
  EXPECT_NE(KeyOf(text), KeyOf(text));
}

}  // namespace
}  // namespace ulfd::engine

// NH of every instruction set against its definition.
// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <random>
#include <vector>

#include "engine/kernels/isa.h"
#include "engine/kernels/table.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ulfd::engine {
namespace {

// Whole blocks, the last 64 bytes where some are left, zeros behind fewer than 64.
std::vector<uint32_t> BlocksOf(const std::vector<char>& data) {
  const size_t block = kHashBlockBytes;
  std::vector<char> bytes = data;
  if (data.size() < block) {
    bytes.resize(block);
  } else if (data.size() % block > 0) {
    bytes.resize(data.size() / block * block);
    bytes.insert(bytes.end(), data.end() - block, data.end());
  }
  std::vector<uint32_t> words(bytes.size() / sizeof(uint32_t));
  std::memcpy(words.data(), bytes.data(), bytes.size());
  return words;
}

TEST(Hash, EveryInstructionSetGivesTheSumsOfNh) {
  constexpr size_t kSums = 4;
  std::mt19937 random(1);
  std::vector<uint32_t> secret(7 * kHashBlockWords + kHashMoreWords);
  for (uint32_t& word : secret) word = static_cast<uint32_t>(random());
  for (const size_t bytes : {1, 8, 63, 64, 65, 72, 127, 128, 320, 328}) {
    std::vector<char> data(bytes);
    for (char& byte : data) byte = static_cast<char>(random());
    const std::vector<uint32_t> words = BlocksOf(data);
    std::vector<uint64_t> wanted(kSums, 7);  // What is there is added to.
    for (size_t t = 0; t < kSums; ++t) {
      const uint32_t* const key = &secret[(1 + t) * kHashBlockWords];
      for (size_t i = 0; i < words.size(); i += 2) {
        const uint32_t a = words[i] + key[i], b = words[i + 1] + key[i + 1];
        wanted[t] += uint64_t{a} * b;
      }
    }
    for (const Isa isa : SupportedIsas()) {
      std::vector<uint64_t> sums(kSums, 7);
      std::vector<char> moved(bytes + 1);  // An odd address.
      std::memcpy(moved.data() + 1, data.data(), bytes);
      KernelsOf(isa).hash(moved.data() + 1, static_cast<int64_t>(bytes), &secret[kHashBlockWords],
                          sums.data());
      EXPECT_EQ(sums, wanted) << Name(isa) << " of " << bytes;
    }
  }
}

}  // namespace
}  // namespace ulfd::engine

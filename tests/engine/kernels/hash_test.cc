// NH of every instruction set against its definition.
// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/hash.h"

#include <cstring>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ulfd::engine {
namespace {

TEST(Hash, EveryInstructionSetGivesTheSumsOfNh) {
  constexpr size_t kBlocks = 5, kPairs = 8, kSums = 4;
  std::mt19937 random(1);
  std::vector<uint32_t> data(kBlocks * kHashBlockBytes / sizeof(uint32_t));
  std::vector<uint32_t> secret(kBlocks * kHashBlockWords + kHashMoreWords);
  for (uint32_t& word : data) word = static_cast<uint32_t>(random());
  for (uint32_t& word : secret) word = static_cast<uint32_t>(random());
  std::vector<uint64_t> wanted(kSums, 7);  // What is there is added to.
  for (size_t t = 0; t < kSums; ++t) {
    const uint32_t* const key = &secret[t * kPairs];
    for (size_t i = 0; i < data.size(); i += 2) {
      const uint32_t a = data[i] + key[i], b = data[i + 1] + key[i + 1];
      wanted[t] += uint64_t{a} * b;
    }
  }
  for (const Isa isa : SupportedIsas()) {
    std::vector<uint64_t> sums(kSums, 7);
    // In two pieces, the second from an odd address.
    std::vector<char> moved(data.size() * sizeof(uint32_t) + 1);
    std::memcpy(moved.data() + 1, data.data(), data.size() * sizeof(uint32_t));
    KernelsOf(isa).hash(data.data(), 2, secret.data(), sums.data());
    KernelsOf(isa).hash(moved.data() + 1 + 2 * kHashBlockBytes, kBlocks - 2,
                        &secret[2 * kHashBlockWords], sums.data());
    EXPECT_EQ(sums, wanted) << Name(isa);
  }
}

}  // namespace
}  // namespace ulfd::engine

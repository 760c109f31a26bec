// Random numbers that are the same everywhere for a seed, cheap enough for a stream per user.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_LOAD_RANDOM_H_
#define ULFD_TOOLS_LOAD_RANDOM_H_

#include <cmath>
#include <cstdint>

namespace ulfd::tools {

// xoshiro256** (Blackman and Vigna), its state filled by splitmix64.  Not thread-safe.
class Random {
 public:
  explicit Random(uint64_t seed) {
    for (uint64_t& word : state_) word = Mix(seed += 0x9E3779B97F4A7C15);
  }
  // Independent streams of one seed.
  Random(uint64_t seed, uint64_t stream) : Random(seed ^ Mix(stream + 0x632BE59BD9B4E019)) {}

  uint64_t Next() {
    const uint64_t result = Rotate(state_[1] * 5, 7) * 9;
    const uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = Rotate(state_[3], 45);
    return result;
  }
  // In [0, 1).
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1p-53; }
  // In [0, n); n > 0.
  uint64_t Below(uint64_t n) {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(Next()) * n) >> 64);
  }
  // Of mean 1.
  double Exponential() { return -std::log1p(-Uniform()); }
  // Of mean 0 and variance 1 (Box and Muller).
  double Normal() {
    const double radius = std::sqrt(2 * Exponential());
    return radius * std::cos(2 * M_PI * Uniform());
  }

 private:
  static uint64_t Rotate(uint64_t x, int k) { return x << k | x >> (64 - k); }
  static uint64_t Mix(uint64_t z) {
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    return z ^ z >> 31;
  }
  uint64_t state_[4];
};

}  // namespace ulfd::tools

#endif  // ULFD_TOOLS_LOAD_RANDOM_H_

// Arrays of made-up floats that end where memory does, for tests of kernels.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TESTS_TESTING_FLOAT_ARRAYS_H_
#define ULFD_TESTS_TESTING_FLOAT_ARRAYS_H_

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <random>
#include <vector>

#include "absl/types/span.h"

namespace ulfd::testing {

// Floats whose last one is the last before a page that must not be touched, so that whoever reads
// behind the end, even with a vector, dies.  As unaligned as the length makes it.
class GuardedFloats {
 public:
  explicit GuardedFloats(int64_t size) : size_(size) {
    const int64_t page = 4096;
    mapped_ = (size * static_cast<int64_t>(sizeof(float)) + page - 1) / page * page + page;
    map_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map_ == MAP_FAILED) std::abort();
    char* guard = static_cast<char*>(map_) + mapped_ - page;
    if (mprotect(guard, page, PROT_NONE) != 0) std::abort();
    data_ = reinterpret_cast<float*>(guard) - size;
  }
  // Evenly distributed in [low, high).
  GuardedFloats(int64_t size, uint32_t seed, float low = -1, float high = 1) : GuardedFloats(size) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> value(low, high);
    for (int64_t i = 0; i < size; ++i) data_[i] = value(random);
  }
  explicit GuardedFloats(const std::vector<float>& values)
      : GuardedFloats(static_cast<int64_t>(values.size())) {
    for (size_t i = 0; i < values.size(); ++i) data_[i] = values[i];
  }
  GuardedFloats(const GuardedFloats&) = delete;
  GuardedFloats& operator=(const GuardedFloats&) = delete;
  ~GuardedFloats() { munmap(map_, mapped_); }

  float* data() { return data_; }
  const float* data() const { return data_; }
  int64_t size() const { return size_; }
  float& operator[](int64_t i) { return data_[i]; }
  float operator[](int64_t i) const { return data_[i]; }
  absl::Span<const float> span() const { return {data_, static_cast<size_t>(size_)}; }

 private:
  int64_t size_;
  int64_t mapped_ = 0;
  void* map_ = nullptr;
  float* data_ = nullptr;
};

}  // namespace ulfd::testing

#endif  // ULFD_TESTS_TESTING_FLOAT_ARRAYS_H_

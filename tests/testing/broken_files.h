// Broken versions of a good file: cut anywhere, bits flipped, pieces overwritten.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TESTS_TESTING_BROKEN_FILES_H_
#define ULFD_TESTS_TESTING_BROKEN_FILES_H_

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>

#include "absl/functional/function_ref.h"

namespace ulfd {

// Calls `read` with every proper prefix of `good`.
inline void ForEachPrefix(const std::string& good,
                          absl::FunctionRef<void(const std::string&)> read) {
  for (size_t size = 0; size < good.size(); ++size) read(good.substr(0, size));
}

// Calls `read` with `rounds` damaged copies of `good`: one to four bytes set to anything, to 0xff
// or changed in one bit, and at times a run of bytes repeated or taken out.  The same copies on
// every run.
inline void ForEachDamage(const std::string& good, int rounds,
                          absl::FunctionRef<void(const std::string&)> read) {
  std::mt19937 random(20240607);
  const auto below = [&random](size_t n) { return static_cast<size_t>(random() % n); };
  for (int round = 0; round < rounds; ++round) {
    std::string bad = good;
    for (size_t hit = 1 + below(4); hit > 0; --hit) {
      char& byte = bad[below(bad.size())];
      switch (below(3)) {
        case 0:
          byte = static_cast<char>(below(256));
          break;
        case 1:
          byte = static_cast<char>(0xff);
          break;
        default:
          byte = static_cast<char>(byte ^ (1 << below(8)));
          break;
      }
    }
    const size_t at = below(bad.size());
    if (round % 8 == 6) bad.insert(at, bad.substr(at, 1 + below(16)));
    if (round % 8 == 7) bad.erase(at, 1 + below(16));
    read(bad);
  }
}

}  // namespace ulfd

#endif  // ULFD_TESTS_TESTING_BROKEN_FILES_H_

// Counts the calling thread's allocations: malloc and its relatives, which operator new calls, too.
// Linked into a test, it stands before the C library's functions.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TESTS_TESTING_ALLOCATION_COUNTER_H_
#define ULFD_TESTS_TESTING_ALLOCATION_COUNTER_H_

#include <cstdint>

namespace ulfd::testing {

struct Allocations {
  int64_t own = 0;      // By this program.
  int64_t library = 0;  // By oneDNN or OpenMP, in calls that we make: their working memory.
};

// Starts and stops counting on the calling thread.
void StartCounting();
Allocations StopCounting();

}  // namespace ulfd::testing

#endif  // ULFD_TESTS_TESTING_ALLOCATION_COUNTER_H_

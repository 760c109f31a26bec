// What one load may take: where its files may lie, how long it may last, how much memory it may
// hold.  Bound to the thread that loads, so that everything below it - readers, passes, packing,
// warm-up - keeps to it without a parameter of its own.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_BASE_LOAD_SCOPE_H_
#define ULFD_BASE_LOAD_SCOPE_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"

namespace ulfd {

struct LoadLimits {
  // Whose files they are: the model.  What one owner can write is not taken for another's.
  std::string owner;
  // Resolved paths (realpath) of directories.  Files that are opened must lie in one of them or
  // below, once every symbolic link is followed.  Empty: anywhere.
  std::vector<std::string> roots;
  // Held at a time by what the thread allocates with operator new and by embedding tables.
  int64_t max_memory_bytes = std::numeric_limits<int64_t>::max();
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
  // Set by another thread to end the load; null: never.  Outlives the scope.
  const std::atomic<bool>* cancelled = nullptr;
};

// While one exists, its limits hold for the calling thread; one in another makes the inner one's
// limits hold and ends with the outer one, and its memory counts for both.
//
// An allocation beyond max_memory_bytes throws std::bad_alloc, and so does, soon, one after the
// deadline or once cancelled: no step can forget to look at the time.  Who makes a scope catches it
// and asks Check() for the reason.  Memory is counted where it is allocated and no longer where
// another thread frees it.
class LoadScope {
 public:
  explicit LoadScope(LoadLimits limits);
  ~LoadScope();
  LoadScope(const LoadScope&) = delete;
  LoadScope& operator=(const LoadScope&) = delete;

  // Of the calling thread; null: no load.
  static const LoadScope* Current();

  // Why the calling thread's load must end, if it must: FAILED_PRECONDITION past the deadline,
  // CANCELLED, RESOURCE_EXHAUSTED once memory was refused.  OK without a load.  To be asked every
  // few milliseconds by what allocates nothing; takes some 30 ns.
  static absl::Status Check();

  // Counts memory that does not come from operator new.  RESOURCE_EXHAUSTED, and nothing is
  // counted, if it is too much.  A negative number gives back.
  static absl::Status Charge(int64_t bytes);

  const LoadLimits& limits() const { return limits_; }
  // Highest number of bytes held so far.
  int64_t peak_bytes() const { return peak_bytes_; }

  // Allocations are counted, but never refused, while one exists: for calls into libraries that an
  // exception would leave in disorder.
  class WithoutRefusals {
   public:
    WithoutRefusals();
    ~WithoutRefusals();
    WithoutRefusals(const WithoutRefusals&) = delete;
    WithoutRefusals& operator=(const WithoutRefusals&) = delete;

   private:
    LoadScope* const scope_;
  };

  // For operator new and delete alone.  False: refused.
  static bool Allocate(size_t bytes);
  static void Allocated(void* memory);
  static void Freed(void* memory);

 private:
  static LoadLimits Within(LoadLimits limits, const LoadScope* outer);
  // Whether it is cancelled or late.
  bool IsOver() const;
  absl::Status Why() const;

  const LoadLimits limits_;
  LoadScope* const outer_;
  int64_t bytes_ = 0, peak_bytes_ = 0;
  int64_t refused_bytes_ = 0;  // Of the first allocation that was refused; 0: none.
  int64_t held_when_refused_ = 0;
  int unlimited_ = 0;  // WithoutRefusals that exist.
};

// Why memory could not be had, for who catches std::bad_alloc or std::length_error.
absl::Status AllocationFailure();

// f(), or AllocationFailure() if that throws for want of memory.  `f` returns absl::Status,
// absl::StatusOr, or nothing, which is OK.
template <typename F>
auto WithinMemory(F f)
    -> std::conditional_t<std::is_void_v<decltype(f())>, absl::Status, decltype(f())> {
  try {
    if constexpr (std::is_void_v<decltype(f())>) {
      f();
      return absl::OkStatus();
    } else {
      return f();
    }
  } catch (const std::bad_alloc&) {
    return AllocationFailure();
  } catch (const std::length_error&) {
    return AllocationFailure();
  }
}

}  // namespace ulfd

#endif  // ULFD_BASE_LOAD_SCOPE_H_

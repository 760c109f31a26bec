// Denormal numbers as zeros, for arithmetic that must not depend on what the numbers are.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_TENSOR_FLUSH_DENORMALS_H_
#define ULFD_ENGINE_TENSOR_FLUSH_DENORMALS_H_

#include <cstdint>

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace ulfd::engine {

// While it lives, the calling thread reads denormal numbers as 0 and writes 0 where a result would
// be one.  A CPU may take a hundred times as long for them (Intel's do), so that the values of a
// request or the weights of a model would decide how long a run takes.
class FlushDenormals {
 public:
  FlushDenormals() : before_(Get()) { Set(before_ | kFlush); }
  ~FlushDenormals() { Set(before_); }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
#if defined(__x86_64__)
  static constexpr uint64_t kFlush = 1u << 15 | 1u << 6;  // MXCSR: results (FTZ), operands (DAZ).
  static uint64_t Get() { return _mm_getcsr(); }
  static void Set(uint64_t value) { _mm_setcsr(static_cast<unsigned>(value)); }
#elif defined(__aarch64__)
  static constexpr uint64_t kFlush = 1u << 24;  // FPCR: FZ.
  static uint64_t Get() {
    uint64_t value;
    asm volatile("mrs %0, fpcr" : "=r"(value));
    return value;
  }
  static void Set(uint64_t value) { asm volatile("msr fpcr, %0" : : "r"(value)); }
#else
  static constexpr uint64_t kFlush = 0;
  static uint64_t Get() { return 0; }
  static void Set(uint64_t) {}
#endif

  const uint64_t before_;
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_TENSOR_FLUSH_DENORMALS_H_

// The machine's floating-point peak.
// SPDX-License-Identifier: Apache-2.0
#include "engine/tensor/fma_peak.h"

#include <algorithm>
#include <chrono>
#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace ulfd::engine {
namespace {

constexpr int kChains =
    12;  // Independent sums: latency times throughput of today's FMA units, with room.
constexpr int64_t kSteps = 200000;

#if defined(__x86_64__)
__attribute__((target("avx512f"))) float RunAvx512() {
  __m512 sum[kChains];
  for (int i = 0; i < kChains; ++i) sum[i] = _mm512_set1_ps(static_cast<float>(i));
  const __m512 a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(0.001f);
  for (int64_t step = 0; step < kSteps; ++step) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) sum[i] = _mm512_fmadd_ps(sum[i], a, b);
  }
  __m512 total = sum[0];
  for (int i = 1; i < kChains; ++i) total = _mm512_add_ps(total, sum[i]);
  return _mm512_cvtss_f32(total);
}

__attribute__((target("avx2,fma"))) float RunAvx2() {
  __m256 sum[kChains];
  for (int i = 0; i < kChains; ++i) sum[i] = _mm256_set1_ps(static_cast<float>(i));
  const __m256 a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(0.001f);
  for (int64_t step = 0; step < kSteps; ++step) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) sum[i] = _mm256_fmadd_ps(sum[i], a, b);
  }
  __m256 total = sum[0];
  for (int i = 1; i < kChains; ++i) total = _mm256_add_ps(total, sum[i]);
  return _mm256_cvtss_f32(total);
}
#elif defined(__aarch64__)
float RunNeon() {
  float32x4_t sum[kChains];
  for (int i = 0; i < kChains; ++i) sum[i] = vdupq_n_f32(static_cast<float>(i));
  const float32x4_t a = vdupq_n_f32(0.999f), b = vdupq_n_f32(0.001f);
  for (int64_t step = 0; step < kSteps; ++step) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) sum[i] = vfmaq_f32(sum[i], a, b);
  }
  float32x4_t total = sum[0];
  for (int i = 1; i < kChains; ++i) total = vaddq_f32(total, sum[i]);
  return vaddvq_f32(total);
}
#endif

float RunPlain() {
  float sum[kChains];
  for (int i = 0; i < kChains; ++i) sum[i] = static_cast<float>(i);
  for (int64_t step = 0; step < kSteps; ++step) {
    for (float& s : sum) s = s * 0.999f + 0.001f;
  }
  float total = 0;
  for (const float s : sum) total += s;
  return total;
}

struct Kernel {
  float (*run)();
  int lanes;
};

Kernel Widest() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return {RunAvx512, 16};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return {RunAvx2, 8};
#elif defined(__aarch64__)
  return {RunNeon, 4};
#endif
  return {RunPlain, 1};
}

}  // namespace

double ProbeFmaPeakGflops() {
  const Kernel kernel = Widest();
  const auto begin = std::chrono::steady_clock::now();
  [[maybe_unused]] volatile float sink = kernel.run();  // What nobody reads need not be computed.
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  return 2.0 * kChains * kSteps * kernel.lanes / took.count() / 1e9;
}

double MeasureFmaPeakGflops() {
  double best = 0;  // Others may have been disturbed.
  for (int round = 0; round < 8; ++round) best = std::max(best, ProbeFmaPeakGflops());
  return best;
}

}  // namespace ulfd::engine

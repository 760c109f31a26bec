// SPDX-License-Identifier: Apache-2.0
#include "engine/tensor/fma_peak.h"

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace ulfd::engine {
namespace {

// Independent sums: latency times throughput of today's FMA units, with room.
constexpr int kChains = 12;
constexpr int64_t kSteps = 200000;

using Floats4 [[gnu::vector_size(16)]] = float;
using Floats8 [[gnu::vector_size(32)]] = float;
using Floats16 [[gnu::vector_size(64)]] = float;

// Compiled into each of the functions below, for its instructions.
template <typename Vec>
[[gnu::always_inline]] inline float Run() {
  Vec sum[kChains];
  // From 2 on: 1 stays 1, which a compiler can see.
  for (int i = 0; i < kChains; ++i) sum[i] = Vec{} + static_cast<float>(i + 2);
  for (int64_t step = 0; step < kSteps; ++step) {
#pragma GCC unroll 12
    for (Vec& s : sum) s = s * 0.999f + 0.001f;
  }
  Vec total = sum[0];
  for (int i = 1; i < kChains; ++i) total += sum[i];
  return total[0];
}

#if defined(__x86_64__)
[[gnu::target("avx512f")]] float RunAvx512() { return Run<Floats16>(); }
[[gnu::target("avx2,fma")]] float RunAvx2() { return Run<Floats8>(); }
#endif
float RunPlain() { return Run<Floats4>(); }

struct Kernel {
  float (*run)();
  int lanes;
};

Kernel Widest() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return {RunAvx512, 16};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return {RunAvx2, 8};
#endif
  return {RunPlain, 4};
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

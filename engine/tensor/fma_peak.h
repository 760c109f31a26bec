// The machine's floating-point peak, measured beside each benchmark and profile: absolute times say
// little without it, because a shared machine drifts by a third within minutes.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_TENSOR_FMA_PEAK_H_
#define ULFD_ENGINE_TENSOR_FMA_PEAK_H_

namespace ulfd::engine {

// GFLOP/s that one thread reaches with independent fused multiply-adds on registers, with the
// widest instructions that both this CPU and this program know (AVX-512, AVX2, or plain code).
// Takes about 10 ms.
double MeasureFmaPeakGflops();
// The same from one short round (1 ms), for comparisons in turns.
double ProbeFmaPeakGflops();

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_TENSOR_FMA_PEAK_H_

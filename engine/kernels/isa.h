// Which instruction set the kernels use: the best of the machine, or the one that ULFD_ISA names.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_KERNELS_ISA_H_
#define ULFD_ENGINE_KERNELS_ISA_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ulfd::engine {

enum class Isa : uint8_t {
  kPortable,  // Baseline of the compiler's target (SSE2 on x86-64).
  kNeon,      // Advanced SIMD, which every AArch64 has.
  kAvx2,      // AVX2 and FMA.
  kAvx512,    // AVX-512F.
  kAmx,       // The same, and AMX with AVX512-BF16 and AVX512-VNNI for products in bf16 and int8.
};

// "portable", "neon", "avx2", "avx512", "amx": what ULFD_ISA is set to.
absl::string_view Name(Isa isa);

// What this machine can run (instructions and the registers that the operating system saves), the
// slowest first; the last is the best.  Never empty.
std::vector<Isa> SupportedIsas();

// The instruction set for a value of the environment variable ULFD_ISA: the machine's best for
// nullptr and "".  INVALID_ARGUMENT, naming the values that are possible here, for any other text
// that names none or one that this machine lacks.
absl::StatusOr<Isa> ChooseIsa(const char* ulfd_isa);

// ChooseIsa of the environment, read once, by the first caller.  Whoever loads models reports the
// error: kernels then run with the machine's best.
const absl::StatusOr<Isa>& IsaOfEnvironment();

// What kernels use unless told otherwise: IsaOfEnvironment(), or the machine's best if that is an
// error.
Isa ActiveIsa();

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_KERNELS_ISA_H_

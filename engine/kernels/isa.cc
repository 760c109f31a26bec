// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/isa.h"

#include <cstdlib>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "engine/kernels/table.h"

namespace ulfd::engine {

#if defined(__x86_64__)
namespace {

bool HasAmx() {
  if (!__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512bf16") ||
      !__builtin_cpu_supports("avx512vnni")) {
    return false;
  }
  // Not every compiler's runtime knows its names: leaf 7.0, EDX, AMX-BF16, AMX-TILE, AMX-INT8.
  constexpr unsigned kAmxBits = 1u << 22 | 1u << 24 | 1u << 25;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0 || (edx & kAmxBits) != kAmxBits) {
    return false;
  }
  // Tiles are 8 KB of state a thread, which a process asks for (Linux' x86/xstate.rst).
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace
#endif

absl::string_view Name(Isa isa) {
  static constexpr absl::string_view kNames[] = {"portable", "neon", "avx2", "avx512", "amx"};
  return kNames[static_cast<size_t>(isa)];
}

std::vector<Isa> SupportedIsas() {
  std::vector<Isa> isas = {Isa::kPortable};
#if defined(__x86_64__)
  // The compiler's runtime asks cpuid for the instructions and XGETBV for the registers.
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return isas;
  isas.push_back(Isa::kAvx2);
  if (!__builtin_cpu_supports("avx512f")) return isas;
  isas.push_back(Isa::kAvx512);
  if (HasAmx()) isas.push_back(Isa::kAmx);
#elif defined(__aarch64__)
  isas.push_back(Isa::kNeon);
#endif
  return isas;
}

absl::StatusOr<Isa> ChooseIsa(const char* ulfd_isa) {
  const std::vector<Isa> supported = SupportedIsas();
  const absl::string_view wanted = ulfd_isa == nullptr ? "" : ulfd_isa;
  if (wanted.empty()) return supported.back();
  std::string names;
  for (const Isa isa : supported) {
    if (Name(isa) == wanted) return isa;
    absl::StrAppend(&names, names.empty() ? "" : ", ", Name(isa));
  }
  return InvalidArgument("environment variable ULFD_ISA: \"", wanted, "\", want one of ", names,
                         " (what this machine runs), or none for the best");
}

const absl::StatusOr<Isa>& IsaOfEnvironment() {
  static const absl::StatusOr<Isa>& isa =
      *new absl::StatusOr<Isa>(ChooseIsa(std::getenv("ULFD_ISA")));
  return isa;
}

Isa ActiveIsa() {
  static const Isa isa = IsaOfEnvironment().ok() ? *IsaOfEnvironment() : SupportedIsas().back();
  return isa;
}

const KernelTable& KernelsOf(Isa isa) {
#if defined(__x86_64__)
  if (isa >= Isa::kAvx512) return Avx512Kernels();
  if (isa == Isa::kAvx2) return Avx2Kernels();
#elif defined(__aarch64__)
  if (isa == Isa::kNeon) return NeonKernels();
#endif
  return PortableKernels();
}

const KernelTable& Kernels() {
  static const KernelTable& kernels = KernelsOf(ActiveIsa());
  return kernels;
}

}  // namespace ulfd::engine

// ULFD_MULTIVERSION: compiles a function twice, for AVX2+FMA machines and for any x86-64, and picks
// one at load.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_LAYERS_COMMON_MULTIVERSION_H_
#define ULFD_ENGINE_LAYERS_COMMON_MULTIVERSION_H_

// Empty under sanitizers (the resolvers run before their runtime is up) and where the compiler
// lacks it.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(ULFD_SANITIZED)
#define ULFD_MULTIVERSION __attribute__((target_clones("arch=x86-64-v3", "default")))
#else
#define ULFD_MULTIVERSION
#endif

#endif  // ULFD_ENGINE_LAYERS_COMMON_MULTIVERSION_H_

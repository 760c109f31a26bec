// Random ranking graphs with widths as in production, for the differential benchmark.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TESTS_BENCH_RANDOM_MODEL_H_
#define ULFD_TESTS_BENCH_RANDOM_MODEL_H_

#include <cstdint>
#include <functional>

#include "tests/bench/scratch_model.h"

namespace ulfd::bench {

// Writes a graph that `seed` determines into `m`: user and ad columns, a user history, and 4 to 20
// layers or blocks of layers (a DIN attention among them) whose shapes fit: products, formulas,
// recurrences, convolutions, choices.  tests/make_random_graphs.py makes smaller ones, with
// lookups, and says what values they have.
void BuildRandomModel(ScratchModel& m, uint32_t seed);
// The same with choices made by `choose`, which gives any numbers: for fuzzers.
void BuildRandomModel(ScratchModel& m, std::function<uint32_t()> choose);

}  // namespace ulfd::bench

#endif  // ULFD_TESTS_BENCH_RANDOM_MODEL_H_

// Runs a loaded model under Google Benchmark.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TESTS_BENCH_MODEL_BENCH_H_
#define ULFD_TESTS_BENCH_MODEL_BENCH_H_

#include <cstdint>
#include <string>

#include "engine/runtime/model.h"

namespace ulfd::bench {

struct MadeUpIds {
  int64_t per_user = 100;   // Ids of user features whose names end in "list".
  int64_t table_rows = 97;  // Ids are 0..table_rows-1.
};

// Registers NAME/1, NAME/10, NAME/50, NAME/200 and NAME/1000: one thread, one request of that many
// ads at a time, everything that Model::Run does.  Counters: ads/s, requests/s, and the FMA peak
// measured right after the runs.  `model` is borrowed until the benchmarks have run.
void RegisterModel(const std::string& name, const engine::Model& model, const MadeUpIds& ids);

// Runs what is registered.  Returns main's exit code: 1 if a flag was not understood or a run
// failed.
int RunAll(int argc, char** argv);

}  // namespace ulfd::bench

#endif  // ULFD_TESTS_BENCH_MODEL_BENCH_H_

// Where the time of a request goes, step by step.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TESTS_BENCH_PROFILE_H_
#define ULFD_TESTS_BENCH_PROFILE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/runtime/model.h"

namespace ulfd::bench {

// Runs the request for about `seconds` and returns a table: the steps of the plan that ran, those
// that take longest first, with time per request, share, and GFLOP/s by the plan's own count.  What
// Run does around the steps stands at the end.
absl::StatusOr<std::string> ProfileTable(const engine::Model& model,
                                         absl::Span<const engine::NamedTensor> inputs, int64_t ads,
                                         double seconds);

}  // namespace ulfd::bench

#endif  // ULFD_TESTS_BENCH_PROFILE_H_

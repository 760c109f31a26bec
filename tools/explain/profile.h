// Where the time of a request goes, step by step.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_EXPLAIN_PROFILE_H_
#define ULFD_TOOLS_EXPLAIN_PROFILE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/runtime/model.h"

namespace ulfd::tools {

// Times are medians over the runs, in microseconds, on one thread.
struct Profile {
  bool optimised = false;  // Of which plan.
  int64_t ads = 0;
  int64_t runs = 0;
  double peak_gflops = 0;  // Of one thread, measured before and after the runs: the higher.
  double request_us = 0;   // A whole run, without timing of steps.
  struct Step {
    double us = 0;  // Of all tiles; without what reading the clock costs.
    double gflops = 0;
    double share_of_peak = 0, share_of_request = 0;
  };
  std::vector<Step> steps;  // Of that plan.
  double steps_us = 0;      // Sum.  The rest of the request: shapes, inputs, copies of outputs.
};

struct ProfileOptions {
  int64_t ads = 0;         // Rows of the inputs, for FLOPs.
  double seconds = 1;      // For all runs together, but at least 10.
  bool reference = false;  // The plan as written instead of the optimised one.
  bool made_up = false;    // Of inputs that nobody sent: NaN and infinity are no error.
};

// Runs the model on `inputs` again and again.  REQUIRES: engine::UsesOneThread().
absl::StatusOr<Profile> MeasureProfile(const engine::Model& model,
                                       absl::Span<const engine::NamedTensor> inputs,
                                       const ProfileOptions& options);

}  // namespace ulfd::tools

#endif  // ULFD_TOOLS_EXPLAIN_PROFILE_H_

// Recorded requests that lie beside a model are scored before it is published: that warms it with
// what it will really be asked, and a model that scores otherwise than it should never serves.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SCORING_GOLDEN_CHECK_H_
#define ULFD_SERVER_SCORING_GOLDEN_CHECK_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/runtime/model.h"
#include "server/scoring/decoded_request.h"

namespace ulfd::server {

// Recordings per version that are scored; more are left out, with a notice.
inline constexpr int kMaxGoldenRequests = 1000;

// Scores every record of <directory>/warmup/*.pb and *.ulfrec: files of the recorder
// (base/recording/recording_file.h), or a single serialised ulfd.recording.v1.Recording each.
// Requests are read as calls are, limits included.  Where a record holds outputs, those are
// compared; the manifest's golden_tolerance says how exactly.  FAILED_PRECONDITION names file,
// record, output, row, what was found and what was wanted.  `notices`: what an operator should
// know.  `run`: for the runs.  REQUIRES: UsesOneThread().
absl::Status CheckRecordings(const engine::Model& model, const std::string& directory,
                             const RequestLimits& limits, const engine::RunOptions& run,
                             std::vector<std::string>& notices);

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SCORING_GOLDEN_CHECK_H_

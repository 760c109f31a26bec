// The engine's results -> replies of the native API, and the choice of the best ads.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SCORING_RESPONSE_ENCODER_H_
#define ULFD_SERVER_SCORING_RESPONSE_ENCODER_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/runtime/model.h"
#include "proto/predict.pb.h"
#include "server/scoring/call_summary.h"
#include "server/scoring/decoded_request.h"

namespace ulfd::server {

// The best ads of one column.
struct Ranking {
  std::vector<int32_t> indices;  // Rows, best first; ties in row order, NaN last.
  std::vector<float> scores;     // The column's values at these rows.
};

// Of the values that EncodeResponse would take from such outputs, whose data is not looked at.
int64_t ReplyBytes(const DecodedRequest& decoded, const engine::ModelInfo& info,
                   absl::Span<const engine::Tensor> outputs);

// The `choice.k` highest rows of `tensor`, the output `info`, in the column.  INVALID_ARGUMENT if
// it has not one row per ad, is not float32, or lacks the column.
absl::StatusOr<Ranking> RankAds(const engine::Tensor& tensor, const engine::OutputInfo& info,
                                const TopKChoice& choice, int64_t ads);

// Fills outputs, indices, scores, missing_ids and request_id.  Outputs with one row per ad are cut
// to the ranked rows under top_k, others (of the user, constants) stay whole.
absl::Status EncodeResponse(const ulfd::v1::PredictRequest& request, const DecodedRequest& decoded,
                            const engine::ModelInfo& info, const engine::RunResult& result,
                            ulfd::v1::PredictResponse& response);

// Values that are NaN or infinite in the wanted outputs and the one that top_k ranks by, in all of
// their rows: NaNs rank last and would not be seen among the first.
int64_t CountNonFinite(const engine::RunResult& result, const DecodedRequest& decoded);

// Cut to microseconds.
void FillTimings(const CallTimes& times, ulfd::v1::Timings& out);

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SCORING_RESPONSE_ENCODER_H_

// Whose rows the inputs of a request are, as clients send them that know no user: each input has
// its rows in front, and the user's may come once per ad.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_RUNTIME_REQUEST_ROWS_H_
#define ULFD_ENGINE_RUNTIME_REQUEST_ROWS_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/plan/model_info.h"
#include "engine/tensor/tensor.h"

namespace ulfd::engine {

// Whose rows so many rows of a dense input are.  That they are the ads' is a guess where nothing
// states it: a single one may be the user's.
Level LevelOfDense(const InputInfo& input, int64_t rows);

// Non-negative and summing to `ids`; `what` begins the error ("feature \"mid\": counts").
absl::Status CheckCounts(absl::Span<const int32_t> counts, int64_t ids, absl::string_view what);

// Every input of the ads has one row per ad: takes `rows` for their number, `ads`, if `told_by` is
// nothing; INVALID_ARGUMENT, which names that and `name`, unless they are as many.  `kind`:
// "feature".
absl::Status AgreeOnAds(absl::string_view kind, absl::string_view name, int64_t rows,
                        std::optional<absl::string_view>& told_by, int64_t& ads);

struct RequestRows {
  int64_t ads = 1;
  int64_t tiled_inputs = 0;  // Of the user, sent once per ad.
};

// `given`: per input of the model what the request has for it, or null.  The data may lie at any
// address.  Of the user's rows, which have to be the same for all ads, the first is left.  Parts of
// features become vectors.  INVALID_ARGUMENT names the input that is not as long as others want, or
// whose rows are not the same.
absl::StatusOr<RequestRows> SettleRows(const ModelInfo& info, absl::Span<Tensor* const> given);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_RUNTIME_REQUEST_ROWS_H_

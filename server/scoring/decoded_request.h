// A checked request as the engine's tensors, and the checks that the decoders of all APIs share.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SCORING_DECODED_REQUEST_H_
#define ULFD_SERVER_SCORING_DECODED_REQUEST_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/runtime/model.h"
#include "engine/tensor/numbers.h"

namespace ulfd::server {

struct RequestLimits {
  int64_t max_ads = 2000;
  int64_t max_ids = 1000000;             // Of all sparse features together.
  int64_t max_ids_per_feature = 500000;  // Of each.
  // What a request may take for values, scratch and outputs; 0: no limit.  Unit: bytes.
  int64_t max_memory_bytes = int64_t{256} << 20;
  int64_t max_message_bytes = int64_t{16} << 20;
};
inline constexpr size_t kMaxRequestIdBytes = 128;

// What of the best ads is wanted.
struct TopKChoice {
  int64_t k = 0;   // 0: all ads, in the order of the request.
  int output = 0;  // Index into ModelInfo::outputs.
  int column = 0;  // Negative: from the end.
};

// A checked request, ready to run.  The tensors borrow from the request, from the model and from
// `made`.
struct DecodedRequest {
  std::vector<engine::NamedTensor> inputs;
  int64_t ads = 0;
  std::vector<int> outputs;  // Indices into ModelInfo::outputs, as wanted.
  TopKChoice top_k;
  int64_t tiled_inputs = 0;  // Of the user, sent once per ad.
  int64_t late_ids = 0;  // Whose rows did not come in time; not of the decoder, but of the call.
  // Segments that the request leaves out, columns of matrices, ids without their padding, numbers
  // that were given in another type.
  std::deque<std::vector<int32_t>> made;
  std::deque<std::vector<int64_t>> made_ids;
  std::deque<std::vector<float>> made_floats;
  int64_t made_bytes = 0;  // Of numbers; see CountMade.
};

// `0 ads, want 1..2000` unless the number is allowed.
absl::Status CheckAds(int64_t ads, const RequestLimits& limits);
// `600000 ids, want at most 500000 of one feature`, or at most max_ids with those of the features
// before it, `total`.
absl::Status CheckIds(int64_t ids, int64_t total, const RequestLimits& limits,
                      absl::string_view what);
// Number of elements, or INVALID_ARGUMENT for a shape that cannot be (engine::CheckDims).
absl::StatusOr<int64_t> CountElements(absl::Span<const int64_t> shape, absl::string_view what);
// Numbers of a byte, and columns that several inputs have, become many times what was sent:
// RESOURCE_EXHAUSTED where all that is made for the request is more than a message may be.
absl::Status CountMade(int64_t numbers, engine::DType dtype, const RequestLimits& limits,
                       absl::string_view what, DecodedRequest& decoded);
// Those numbers as engine::NumbersAs has them, in what `decoded` has made, which is counted.
absl::StatusOr<void*> MakeNumbers(const engine::NumberArray& array,
                                  absl::Span<const int64_t> columns, engine::DType want,
                                  const RequestLimits& limits, absl::string_view what,
                                  DecodedRequest& decoded);
// As how many ads so many values of a dense input count: by the width of a row, where it is known.
// Where more rows than max_ads are sure to be refused, as no more than those: it would keep others
// out of the queue until then.  `shape`: the request's.
int64_t RowsOfValues(const engine::InputInfo& input, absl::Span<const int64_t> shape,
                     int64_t values, const RequestLimits& limits);
// As how many ads so many ids count.
int64_t RowsOfIds(int64_t ids);
// Where the model states the shape of the input: the rank and every dimension that is a number must
// agree, and the leading one with the level, where that is stated, too.
absl::Status CheckStatedShape(const engine::InputInfo& input, absl::Span<const int64_t> shape,
                              int64_t ads, absl::string_view what);
// Which of the model's names may have been meant (DidYouMean); where none is close
// `; the model has "a", "b", ...` with the first few, "" if it has none.
std::string SuggestNames(absl::string_view wrong, const std::vector<absl::string_view>& known);
// Index of the output; INVALID_ARGUMENT with suggestions.
absl::StatusOr<int> FindOutputNamed(const engine::Model& model, absl::string_view name);
// Which outputs are wanted: all if `names` is empty; INVALID_ARGUMENT for unknown and repeated
// names.
absl::Status ChooseOutputs(const engine::Model& model, const std::vector<absl::string_view>& names,
                           std::vector<int>& outputs);
}  // namespace ulfd::server

#endif  // ULFD_SERVER_SCORING_DECODED_REQUEST_H_

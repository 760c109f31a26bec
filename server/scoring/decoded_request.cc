// SPDX-License-Identifier: Apache-2.0
#include "server/scoring/decoded_request.h"

#include <algorithm>
#include <numeric>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/closest_names.h"
#include "base/errors.h"
#include "base/status_macros.h"

namespace ulfd::server {

using engine::DType;
using engine::InputInfo;
using engine::Model;

absl::Status CheckAds(int64_t ads, const RequestLimits& limits) {
  if (ads >= 1 && ads <= limits.max_ads) return absl::OkStatus();
  return InvalidArgument(ads, " ads, want 1..", limits.max_ads);
}

absl::Status CheckIds(int64_t ids, int64_t total, const RequestLimits& limits,
                      absl::string_view what) {
  if (ids > limits.max_ids_per_feature) {
    return InvalidArgument(what, ": ", ids, " ids, want at most ", limits.max_ids_per_feature,
                           " (limits.max_ids_per_feature)");
  }
  if (total <= limits.max_ids) return absl::OkStatus();
  return InvalidArgument(what, ": brings the request to ", total, " ids, want at most ",
                         limits.max_ids, " (limits.max_ids_per_request)");
}

absl::StatusOr<int64_t> CountElements(absl::Span<const int64_t> shape, absl::string_view what) {
  if (const absl::Status possible = engine::CheckDims(shape); !possible.ok()) {
    return InvalidArgument(what, ": ", possible.message());
  }
  int64_t product = 1;
  for (int64_t dim : shape) product *= dim;
  return product;
}

absl::Status CountMade(int64_t numbers, DType dtype, const RequestLimits& limits,
                       absl::string_view what, DecodedRequest& decoded) {
  decoded.made_bytes += numbers * static_cast<int64_t>(engine::SizeOf(dtype));
  if (decoded.made_bytes <= limits.max_message_bytes) return absl::OkStatus();
  return ResourceExhausted(what, ": in the types that the model wants, the inputs up to this one ",
                           "take ", decoded.made_bytes, " bytes, more than ",
                           limits.max_message_bytes, " (limits.max_message_bytes)");
}

absl::StatusOr<void*> MakeNumbers(const engine::NumberArray& array,
                                  absl::Span<const int64_t> columns, DType want,
                                  const RequestLimits& limits, absl::string_view what,
                                  DecodedRequest& decoded) {
  const int64_t count =
      columns.empty() ? array.elements() : array.dims[0] * static_cast<int64_t>(columns.size());
  RETURN_IF_ERROR(CountMade(count, want, limits, what, decoded));
  const auto make = [&](auto& made) -> absl::StatusOr<void*> {
    using T = typename std::decay_t<decltype(made)>::value_type::value_type;
    ASSIGN_OR_RETURN(std::vector<T> numbers,
                     engine::NumbersAs<T>(array, columns, engine::Fractions::kCut, what));
    return made.emplace_back(std::move(numbers)).data();
  };
  if (want == DType::kInt32) return make(decoded.made);
  if (want == DType::kInt64) return make(decoded.made_ids);
  return make(decoded.made_floats);
}

int64_t RowsOfValues(const InputInfo& input, absl::Span<const int64_t> shape, int64_t values,
                     const RequestLimits& limits) {
  // A row of unknown width is taken for a wide one: the price of a request whose shape the model
  // leaves open is then too low rather than too high.
  constexpr int64_t kWide = 256;
  const engine::Dim row = input.shape.RowElements();
  const int64_t width = row.IsConst() && row.value() > 0 ? row.value() : kWide;
  const int64_t rows = (values + width - 1) / width;
  const bool bound = input.shape_stated || (!shape.empty() && shape[0] > limits.max_ads);
  return bound ? std::min<int64_t>(rows, limits.max_ads) : rows;
}

int64_t RowsOfIds(int64_t ids) {
  // More than most ads have.
  constexpr int64_t kMany = 128;
  return ids / kMany;
}

absl::Status CheckStatedShape(const InputInfo& input, absl::Span<const int64_t> shape, int64_t ads,
                              absl::string_view what) {
  if (!input.shape_stated || !input.shape.ranked()) return absl::OkStatus();
  bool ok = input.shape.rank() == static_cast<int>(shape.size());
  // A leading dimension is guessed where the level is.
  for (int i = input.stated ? 0 : 1; ok && i < input.shape.rank(); ++i) {
    const engine::Dim& dim = input.shape[i];
    if (dim.IsConst() || dim.IsUsers()) ok = shape[i] == dim.value();
    if (dim.IsAds()) ok = shape[i] == dim.value() * ads;
  }
  if (ok) return absl::OkStatus();
  return InvalidArgument(what, ": shape ", engine::ToString(shape), ", want ",
                         input.shape.ToString());
}

std::string SuggestNames(absl::string_view wrong, const std::vector<absl::string_view>& known) {
  std::string close = DidYouMean(wrong, known);
  if (known.empty() || !close.empty()) return close;
  constexpr size_t kMaxListed = 8;
  const std::vector<absl::string_view> first(
      known.begin(), known.begin() + static_cast<int64_t>(std::min(known.size(), kMaxListed)));
  return absl::StrCat("; the model has \"", absl::StrJoin(first, "\", \""), "\"",
                      known.size() > kMaxListed ? ", ..." : "");
}

absl::StatusOr<int> FindOutputNamed(const Model& model, absl::string_view name) {
  const int index = model.FindOutput(name);
  if (index >= 0) return index;
  std::vector<absl::string_view> known;
  for (const engine::OutputInfo& output : model.info().outputs) known.push_back(output.name);
  return InvalidArgument("output \"", name, "\": unknown", SuggestNames(name, known));
}

absl::Status ChooseOutputs(const Model& model, const std::vector<absl::string_view>& names,
                           std::vector<int>& outputs) {
  outputs.clear();
  if (names.empty()) {
    outputs.resize(model.info().outputs.size());
    std::iota(outputs.begin(), outputs.end(), 0);
    return absl::OkStatus();
  }
  std::vector<bool> seen(model.info().outputs.size());
  for (absl::string_view name : names) {
    ASSIGN_OR_RETURN(const int index, FindOutputNamed(model, name));
    if (seen[index]) {
      return InvalidArgument("output \"", name, "\": asked for twice");
    }
    seen[index] = true;
    outputs.push_back(index);
  }
  return absl::OkStatus();
}

}  // namespace ulfd::server

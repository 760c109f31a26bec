// SPDX-License-Identifier: Apache-2.0
#include "tools/model/id_matrix.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "tools/model/npz_inputs.h"

namespace ulfd::tools {

absl::Status SplitMatrix(const std::string& matrix, const std::string& feature,
                         std::optional<int64_t> padding, engine::NpzArrays& arrays) {
  auto given = arrays.extract(matrix);
  if (given.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const engine::NpyArray array,
                   ConvertInput(matrix, std::move(given.mapped()), engine::DType::kInt64));
  const std::vector<int64_t>& dims = array.dims;
  if (dims.size() != 1 && dims.size() != 2) {
    return absl::InvalidArgumentError(absl::StrCat("input \"", matrix, "\": ", dims.size(),
                                                   " dimensions, want [rows, ids] or [rows]"));
  }
  const size_t width = dims.size() == 1 ? 1 : static_cast<size_t>(dims[1]);
  const std::vector<int64_t> elements = array.ToInt64();
  std::vector<int64_t> ids;
  std::vector<int32_t> counts(static_cast<size_t>(dims[0]), 0);
  bool ended = false;  // The ids of the row.
  for (size_t i = 0; i < elements.size(); ++i) {
    int32_t& count = counts[i / width];
    ended = i % width != 0 && (ended || (count > 0 && elements[i] == padding));
    if (elements[i] == padding) continue;
    if (ended) {
      return absl::InvalidArgumentError(
          absl::StrCat("input \"", matrix, "\": row ", i / width, ": the padding id ", *padding,
                       " between ids, want it before or behind them"));
    }
    ids.push_back(elements[i]);
    ++count;
  }
  for (const char* part : {".ids", ".values", ".segments"}) {
    if (!arrays.contains(feature + part)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("inputs \"", matrix, "\" and \"", feature, part, "\": want one of the two"));
  }
  arrays[feature + ".ids"] =
      engine::NpyArray::FromInt64({static_cast<int64_t>(ids.size())}, ids.data());
  arrays[feature + ".segments"] = engine::NpyArray::FromInt32({dims[0]}, counts.data());
  return absl::OkStatus();
}

}  // namespace ulfd::tools

// Sparse features that come as one matrix of ids.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_MODEL_ID_MATRIX_H_
#define ULFD_TOOLS_MODEL_ID_MATRIX_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "engine/weights/npz.h"

namespace ulfd::tools {

// An array that is all of a sparse feature, ids [rows, n] or [rows], becomes the feature's parts.
// `padding`: the id that fills up rows before or behind their ids, if there is one.  Nothing
// happens without such an array.
absl::Status SplitMatrix(const std::string& matrix, const std::string& feature,
                         std::optional<int64_t> padding, engine::NpzArrays& arrays);

}  // namespace ulfd::tools

#endif  // ULFD_TOOLS_MODEL_ID_MATRIX_H_

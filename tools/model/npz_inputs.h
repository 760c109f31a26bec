// Arrays of an npz file as inputs of a model: names checked, element types converted where nothing
// is lost.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_MODEL_NPZ_INPUTS_H_
#define ULFD_TOOLS_MODEL_NPZ_INPUTS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/runtime/model.h"
#include "engine/tensor/tensor.h"
#include "engine/weights/npz.h"

namespace ulfd::tools {

// `array` with elements of the wanted type.  float64 and float16 become float32 by rounding; every
// other conversion must be exact.  INVALID_ARGUMENT names the input and the first element that does
// not fit.
absl::StatusOr<engine::NpyArray> ConvertInput(const std::string& name, engine::NpyArray array,
                                              engine::DType wanted);

// INVALID_ARGUMENT naming every array that is none of the model's `known` inputs, and the inputs
// there are.
absl::Status CheckInputNames(const engine::NpzArrays& arrays,
                             const std::vector<std::string>& known);

// Elements of each row of a matrix that are a sparse feature, or a dense input with rows of
// `row_shape`.  No columns: all.
struct MatrixPart {
  std::string name;
  bool sparse = false;
  std::optional<int64_t> padding;  // The id that fills up rows, before or behind their ids.
  std::vector<int64_t> columns, row_shape;
  engine::DType dtype = engine::DType::kFloat32;  // Of a dense one.
};

// An array `matrix`, [rows, ...] with so many elements in each row, becomes its parts; 0: any
// number, [rows, n] or [rows].  Nothing happens without such an array.
absl::Status SplitMatrix(const std::string& matrix, int64_t columns,
                         const std::vector<MatrixPart>& parts, engine::NpzArrays& arrays);

// The arrays in the types that the model wants, and the user's rows once, whatever the ads.
// INVALID_ARGUMENT names the input whose rows are not as many as others have, or want.
absl::StatusOr<engine::NpzArrays> ConvertInputs(engine::NpzArrays arrays,
                                                const engine::ModelInfo& info);
// The arrays of the file in the types that the model wants, by name.
absl::StatusOr<engine::NpzArrays> ReadInputs(const std::string& path,
                                             const engine::ModelInfo& info);
// In the order of the model's inputs; they point into `arrays` and `info`.
std::vector<engine::NamedTensor> InputViews(const engine::ModelInfo& info,
                                            engine::NpzArrays& arrays);

}  // namespace ulfd::tools

#endif  // ULFD_TOOLS_MODEL_NPZ_INPUTS_H_

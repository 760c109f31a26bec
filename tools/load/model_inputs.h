// What a server says about the inputs of a model, the same for both APIs.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_LOAD_MODEL_INPUTS_H_
#define ULFD_TOOLS_LOAD_MODEL_INPUTS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/tensor/numbers.h"
#include "proto/open_inference.pb.h"
#include "proto/predict.pb.h"

namespace ulfd::tools {

// A sparse feature: ids per row.
struct SparseInput {
  std::string name;
  bool of_user = false;
  int64_t max_ids_per_row = 0;  // 0: any number, or not known.
};

// No input of a request has more values: a server may say anything of its shapes.
inline constexpr int64_t kMostValues = int64_t{1} << 28;

struct DenseInput {
  std::string name;
  engine::NumberType type = engine::NumberType::kFloat32;
  bool of_user = false;       // `user_rows` rows; otherwise one row per ad.
  int64_t user_rows = 1;      // Only foreign servers have more than one.
  std::vector<int64_t> dims;  // Without the rows.
};

struct ModelInputs {
  std::vector<SparseInput> sparse;
  std::vector<DenseInput> dense;
};

// Shapes that the metadata leaves open, by input, the rows included ({1, 100}).
using StatedShapes = std::map<std::string, std::vector<int64_t>>;

// FAILED_PRECONDITION names an input whose shape is neither known nor stated, INVALID_ARGUMENT a
// stated one that the model has not.
absl::StatusOr<ModelInputs> InputsOf(const ulfd::v1::GetModelMetadataResponse& metadata,
                                     const StatedShapes& stated);
// Of any KServe server: inputs with a variable first dimension have a row per ad; those of ulfd
// that belong together (f.ids, f.values, f.segments) are one sparse feature.  UNIMPLEMENTED for an
// input of strings.
absl::StatusOr<ModelInputs> InputsOf(const inference::ModelMetadataResponse& metadata,
                                     const StatedShapes& stated);

}  // namespace ulfd::tools

#endif  // ULFD_TOOLS_LOAD_MODEL_INPUTS_H_

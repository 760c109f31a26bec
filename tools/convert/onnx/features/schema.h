// Schema files: what the columns of one matrix are called, and whose they are.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_CONVERT_ONNX_FEATURES_SCHEMA_H_
#define ULFD_TOOLS_CONVERT_ONNX_FEATURES_SCHEMA_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/tensor/tensor.h"

namespace ulfd::convert {

// Neighbouring columns of a matrix that are one input of the converted model.
struct SchemaField {
  std::string name;
  bool sparse = false;  // Ids, or numbers.
  engine::Level level = engine::Level::kAd;
  int64_t vocabulary = 0;  // Of a sparse field: its ids are below it; 0: the table says.
  int64_t first = 0, length = 1;

  int64_t end() const { return first + length; }
};

// Fields in the order of the matrix, without gaps from column 0 on.
using Schema = std::vector<SchemaField>;

// Reads CSV: the line "column,kind,side,vocabulary,length", then a line per field: its name,
// "sparse" or "dense", "user" or "ad", and two numbers that may be left empty (none; 1).
// INVALID_ARGUMENT names file and line.
absl::StatusOr<Schema> ReadSchema(const std::string& path);

}  // namespace ulfd::convert

#endif  // ULFD_TOOLS_CONVERT_ONNX_FEATURES_SCHEMA_H_

// Columns of inputs on their way to the tables that look them up.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_CONVERT_ONNX_FEATURES_IDS_H_
#define ULFD_TOOLS_CONVERT_ONNX_FEATURES_IDS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/tensor/tensor.h"
#include "onnx/onnx_pb.h"
#include "tools/convert/onnx/features/schema.h"
#include "tools/convert/onnx/model/constant.h"

namespace ulfd::convert {

// An input of the graph.
struct OnnxInput {
  std::string name;
  engine::Level level = engine::Level::kAd;
  Dims dims;  // The first is users or ads.
  int element_type = 0;
  Schema schema;  // Empty: its columns have no names.

  // Null: the column has no name.
  const SchemaField* FieldAt(int64_t column) const;
  // Elements of a row.  REQUIRES: dimensions that are numbers.
  int64_t RowElements() const;
};

// A column (an element of a row) of an input, times a number, plus a number: fields may share a
// table.
struct IdColumn {
  const OnnxInput* input = nullptr;
  int64_t at = 0, scale = 1, offset = 0;

  bool SameFormula(const IdColumn& other) const {
    return scale == other.scale && offset == other.offset;
  }
  const SchemaField* field() const { return input->FieldAt(at); }
};

// The dimension of rows; -1: there is none, as the user's one row was squeezed.
int RowsAxis(const Dims& dims);

// Columns, rearranged, or what is computed from each of them alone.
struct Ids {
  std::shared_ptr<const std::vector<IdColumn>> columns;  // Per element of a row, in its order.
  Dims dims;                                             // As ONNX sees it; see RowsAxis.
  int type = 0;                                          // onnx::TensorProto::DataType
  bool cut = false;  // Floats that were cast to integers, or those that lost their upper bits.
  // The node that computes them, element by element; null: they are the columns by their formulas.
  const onnx::NodeProto* made_by = nullptr;
  int depth = 0;  // Of what such nodes compute from each other.

  int64_t count() const { return static_cast<int64_t>(columns->size()); }
  engine::Dim rows() const;
  const IdColumn& first() const { return columns->front(); }
  std::vector<int64_t> places() const;  // Of the columns.
  bool is_uniform() const;              // One formula for all columns.
  bool SameColumns(const Ids& other) const;
};

// All columns of the input; nothing if those are too many or depend on the request.
std::shared_ptr<const std::vector<IdColumn>> ColumnsOf(const OnnxInput& input);

// An input of a node: either, or neither.
struct IdArgument {
  const Ids* ids = nullptr;
  const Constant* constant = nullptr;
};

// What a node that only moves elements within their rows makes of the columns, per output.
// UNIMPLEMENTED for any other.
absl::StatusOr<std::vector<Ids>> MoveIds(const onnx::NodeProto& node, int64_t opset,
                                         absl::Span<const IdArgument> arguments);
// Integers of the columns, plus or times constants.  UNIMPLEMENTED for anything else.
absl::StatusOr<Ids> ScaleIds(const onnx::NodeProto& node, int64_t opset,
                             absl::Span<const IdArgument> arguments);

// Negative ids that are told apart: -1 to -kNegativeIds.  Where something is computed from ids
// before they are looked up, all below have to become the same.
inline constexpr int64_t kNegativeIds = 128;

// Columns that are followed one by one.
inline constexpr int64_t kMaxColumns = 1 << 20;

}  // namespace ulfd::convert

#endif  // ULFD_TOOLS_CONVERT_ONNX_FEATURES_IDS_H_

// What values say of their rows, and values that are made up to have some.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_CONVERT_ONNX_ROWS_ROW_VALUES_H_
#define ULFD_TOOLS_CONVERT_ONNX_ROWS_ROW_VALUES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "onnx/onnx_pb.h"
#include "tools/convert/onnx/proof/interpreter.h"

namespace ulfd::convert {

// Equal, or both NaN: a row without steps may have that.
bool Same(double a, double b);

// Whether entry i along the axis is entry i % period.
bool IsRepeated(const reference::Array& x, size_t axis, int64_t period);

// Of several axes, the last one's entries.
size_t ColumnsOf(const reference::Array& x);

// Of integers: the first row, and what each has more than the one before in every column, if that
// is always so.
struct Progression {
  std::vector<int64_t> first, steps;
};
std::optional<Progression> ProgressionOf(const reference::Array& x, size_t axis);

// Integers that are made up.  What is not masked is to differ, for rows to be told apart; some are
// places among two, others divide.
struct Range {
  int64_t least, below;
};
inline constexpr Range kRanges[] = {{0, 3}, {0, 2}, {1, 3}};

// Values of an input whose rows differ, from row `first` on; 0 rows: as many as it says.  Null: too
// many.
std::optional<reference::Array> MakeUpRows(const onnx::ValueInfoProto& input, int64_t rows,
                                           Range range = {0, 2}, int64_t first = 0);

// Made-up places as ones that a table has along the axis: it may have few.
reference::Array PlacesWithin(const reference::Array& places, const reference::Array& table,
                              int64_t axis);

}  // namespace ulfd::convert

#endif  // ULFD_TOOLS_CONVERT_ONNX_ROWS_ROW_VALUES_H_

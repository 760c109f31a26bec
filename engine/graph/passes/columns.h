// Where the columns of a tensor come from.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_GRAPH_PASSES_COLUMNS_H_
#define ULFD_ENGINE_GRAPH_PASSES_COLUMNS_H_

#include <cstdint>
#include <vector>

#include "engine/graph/editor.h"

namespace ulfd::engine {

// Columns [offset, offset + width) of `value`, whose rows are seen flat.
struct Columns {
  ValueId value = kNoValue;
  int64_t offset = 0, width = 0;
};

// The place of a value among the inputs of a node that is being made; added if it is none yet.
int PlaceInput(ValueId value, std::vector<ValueId>& inputs);

// Elements of a row: everything but the leading dimension.  -1: not a number.
int64_t RowWidth(const Shape& shape);

// The columns of `value`, seen as [rows, flat], as columns of the tensors that fuse, concat, slice,
// reshape and broadcast chains copied them from; those have the rows of `value` or a single one
// (the user's).  Neighbours are joined.  The nodes in between are added to `through`.
std::vector<Columns> TraceColumns(const GraphEditor& editor, ValueId value,
                                  std::vector<int>& through);

// The same for rank 3 and the last dimension only: concat chains along axis 2.
std::vector<Columns> TraceLastAxis(const GraphEditor& editor, ValueId value,
                                   std::vector<int>& through);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_GRAPH_PASSES_COLUMNS_H_

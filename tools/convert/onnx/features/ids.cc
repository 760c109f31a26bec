// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/onnx/features/ids.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "tools/convert/onnx/model/types.h"

namespace ulfd::convert {
namespace {

using engine::Dim;
using Columns = std::vector<IdColumn>;

// A constant with numbers in place of what depends on the request, whose rows are `rows`.
absl::StatusOr<Constant> WithRows(Constant constant, int64_t rows) {
  for (auto* dims : {&constant.dims, &constant.ints}) {
    for (Dim& d : *dims) {
      if (d.IsUnknown()) return Unimplemented("");
      if (!d.IsConst()) d = Dim::Of(d.value() * rows);
    }
  }
  return constant;
}

// Sizes of what is in front of the axis of rows, and of what is behind.
std::pair<int64_t, int64_t> AroundRows(const Dims& dims, int axis) {
  std::pair<int64_t, int64_t> around = {1, 1};
  for (int d = 0; d < static_cast<int>(dims.size()); ++d) {
    if (d != axis) (d < axis ? around.first : around.second) *= dims[d].value();
  }
  return around;
}

// The places of the columns of a row, of `rows` rows: place p of row r is r * total + first + p.
Constant PlacesOf(const Ids& ids, int64_t rows, int64_t first, int64_t total) {
  std::vector<int64_t> sizes;
  for (const Dim& d : ids.dims) sizes.push_back(d.IsConst() ? d.value() : rows);
  const auto [front, behind] = AroundRows(ids.dims, RowsAxis(ids.dims));
  std::vector<Dim> places;
  places.reserve(static_cast<size_t>(rows * ids.count()));
  for (int64_t f = 0; f < front; ++f) {
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t begin = row * total + first + f * behind;
      for (int64_t i = 0; i < behind; ++i) places.push_back(Dim::Of(begin + i));
    }
  }
  return IntConstant(sizes, std::move(places));
}

bool IsMove(const onnx::NodeProto& node) {
  constexpr const char* kMoves[] = {"Identity",  "Reshape", "Flatten",   "Squeeze",
                                    "Unsqueeze", "Gather",  "Transpose", "Slice",
                                    "Split",     "Concat",  "Expand",    "Tile"};
  return (node.domain().empty() || node.domain() == "ai.onnx") &&
         std::any_of(std::begin(kMoves), std::end(kMoves),
                     [&](const char* op) { return node.op_type() == op; });
}

// What is moved, side by side, with the rows that stand for those of the request.
struct Moved {
  const Ids* like = nullptr;
  Columns columns;
  Dim rows = Dim::Users();

  // The user has one row; three of the ads show what does not keep to them.
  int64_t row_count() const { return rows.IsAds() ? 3 : 1; }
  int64_t total() const { return static_cast<int64_t>(columns.size()); }
};

absl::StatusOr<Moved> WhatMoves(const onnx::NodeProto& node,
                                absl::Span<const IdArgument> arguments) {
  Moved moved;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const Ids* const ids = arguments[i].ids;
    // Concat moves all that it reads, any other its first input.
    if ((ids != nullptr) != (i == 0 || node.op_type() == "Concat")) {
      return Unimplemented("");
    }
    if (ids == nullptr) continue;
    if (moved.like == nullptr) moved.like = ids;
    const Ids& like = *moved.like;
    if (ids->type != like.type || ids->cut != like.cut || ids->made_by != like.made_by) {
      return Unimplemented("");
    }
    // Masks are repeated by what reads them.
    const bool repeats = node.op_type() == "Expand" || node.op_type() == "Tile";
    if (repeats && (ids->made_by != nullptr || !IsIdType(ids->type))) {
      return Unimplemented("");
    }
    if (ids->rows().IsAds()) moved.rows = Dim::Ads();
    if (ids->count() > kMaxColumns - moved.total()) return Unimplemented("");
    moved.columns.insert(moved.columns.end(), ids->columns->begin(), ids->columns->end());
  }
  if (moved.like == nullptr) return Unimplemented("");
  return moved;
}

// The columns at the places of a row, if each row along the axis has its own there.
absl::StatusOr<Columns> ColumnsAt(const Moved& moved, const Constant& places, int axis) {
  const int64_t rows = moved.row_count(), count = places.elements() / rows;
  const auto [front, behind] = AroundRows(places.dims, axis);
  Columns columns;
  columns.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = i / behind * rows * behind + i % behind;
    const int64_t place = places.dim(at).value();
    if (place >= moved.total()) return Unimplemented("");
    for (int64_t row = 1; row < rows; ++row) {
      if (places.dim(at + row * behind).value() != row * moved.total() + place) {
        return Unimplemented("");
      }
    }
    columns.push_back(moved.columns[static_cast<size_t>(place)]);
  }
  return columns;
}

// The columns at the places.  The ads' rows may be along any axis, the user's in front or nowhere.
absl::StatusOr<Ids> At(const Moved& moved, const Constant& places) {
  const int64_t count = places.elements() / moved.row_count();
  if (count < 1 || count > kMaxColumns) return Unimplemented("");
  Ids ids = *moved.like;
  ids.dims = places.dims;
  const auto take = [&](int axis) {
    absl::StatusOr<Columns> columns = ColumnsAt(moved, places, axis);
    if (!columns.ok()) return false;
    if (axis >= 0) ids.dims[axis] = moved.rows;
    ids.columns = std::make_shared<const Columns>(*std::move(columns));
    return true;
  };
  const int rank = static_cast<int>(places.dims.size());
  if (moved.rows.IsUsers()) {
    if (take(rank > 0 && places.dims[0] == Dim::Of(1) ? 0 : -1)) return ids;
    return Unimplemented("");
  }
  for (int axis = 0; axis < rank; ++axis) {
    if (places.dims[axis] == Dim::Of(moved.row_count()) && take(axis)) return ids;
  }
  return Unimplemented("");
}

}  // namespace

int RowsAxis(const Dims& dims) {
  const auto rows =
      std::find_if(dims.begin(), dims.end(), [](const Dim& d) { return !d.IsConst(); });
  return rows == dims.end() ? -1 : static_cast<int>(rows - dims.begin());
}

Dim Ids::rows() const {
  const int axis = RowsAxis(dims);
  return axis < 0 ? Dim::Users() : dims[axis];
}

int64_t OnnxInput::RowElements() const {
  int64_t total = 1;
  for (size_t d = 1; d < dims.size(); ++d) total *= dims[d].value();
  return total;
}

const SchemaField* OnnxInput::FieldAt(int64_t column) const {
  const auto after =
      std::upper_bound(schema.begin(), schema.end(), column,
                       [](int64_t at, const SchemaField& field) { return at < field.first; });
  return after == schema.begin() ? nullptr : &*(after - 1);
}

std::vector<int64_t> Ids::places() const {
  std::vector<int64_t> places;
  for (const IdColumn& column : *columns) places.push_back(column.at);
  return places;
}

bool Ids::is_uniform() const {
  return std::all_of(columns->begin(), columns->end(),
                     [&](const IdColumn& column) { return column.SameFormula(first()); });
}

bool Ids::SameColumns(const Ids& other) const {
  return std::equal(
      columns->begin(), columns->end(), other.columns->begin(), other.columns->end(),
      [](const IdColumn& a, const IdColumn& b) { return a.input == b.input && a.at == b.at; });
}

std::shared_ptr<const Columns> ColumnsOf(const OnnxInput& input) {
  int64_t count = 1;
  for (size_t d = 1; d < input.dims.size(); ++d) {
    if (!input.dims[d].IsConst() || input.dims[d].value() > kMaxColumns / count) return nullptr;
    count *= input.dims[d].value();
  }
  Columns columns(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) columns[static_cast<size_t>(i)] = {.input = &input, .at = i};
  return std::make_shared<const Columns>(std::move(columns));
}

// Moves numbers of the columns as it would constants.
absl::StatusOr<std::vector<Ids>> MoveIds(const onnx::NodeProto& node, int64_t opset,
                                         absl::Span<const IdArgument> arguments) {
  if (!IsMove(node)) return Unimplemented("");
  ASSIGN_OR_RETURN(const Moved moved, WhatMoves(node, arguments));
  std::vector<Constant> values;
  int64_t first = 0;
  for (const IdArgument& argument : arguments) {
    values.emplace_back();
    if (argument.ids != nullptr) {
      values.back() = PlacesOf(*argument.ids, moved.row_count(), first, moved.total());
      first += argument.ids->count();
    } else if (argument.constant != nullptr) {
      ASSIGN_OR_RETURN(values.back(), WithRows(*argument.constant, moved.row_count()));
    }
  }
  std::vector<const Constant*> inputs;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const bool given = arguments[i].ids != nullptr || arguments[i].constant != nullptr;
    // What is not known is no input that is left out.
    if (!given && !node.input(static_cast<int>(i)).empty()) return Unimplemented("");
    inputs.push_back(given ? &values[i] : nullptr);
  }
  const absl::StatusOr<std::vector<Constant>> places = FoldNode(node, opset, inputs);
  // Something that is wrong is said by the operator's converter.
  if (!places.ok()) return Unimplemented("");
  std::vector<Ids> results;
  for (const Constant& output : *places) {
    ASSIGN_OR_RETURN(Ids ids, At(moved, output));
    results.push_back(std::move(ids));
  }
  return results;
}

absl::StatusOr<Ids> ScaleIds(const onnx::NodeProto& node, int64_t opset,
                             absl::Span<const IdArgument> arguments) {
  const std::string& op = node.op_type();
  if ((op != "Add" && op != "Sub" && op != "Mul") || arguments.size() != 2) {
    return Unimplemented("");
  }
  const bool first = arguments[0].ids != nullptr;
  const Ids* const from = arguments[first ? 0 : 1].ids;
  const Constant* const other = arguments[first ? 1 : 0].constant;
  if (from == nullptr || other == nullptr || !IsIdType(from->type) || from->made_by != nullptr ||
      other->is_float || (op == "Sub" && !first) || !IsNumbers(other->dims)) {
    return Unimplemented("");
  }
  // The number of each column: a row of zeros, plus the constant.
  Constant zeros = PlacesOf(*from, 1, 0, 0);
  std::fill(zeros.ints.begin(), zeros.ints.end(), Dim::Of(0));
  onnx::NodeProto add;
  add.set_op_type("Add");
  const auto sums = FoldNode(add, opset, {&zeros, other});
  if (!sums.ok() || (*sums)[0].dims != zeros.dims) return Unimplemented("");
  ASSIGN_OR_RETURN(const std::vector<int64_t> values, (*sums)[0].ToInts());
  constexpr int64_t kMost = int64_t{1} << 31;
  Columns columns = *from->columns;
  for (size_t i = 0; i < columns.size(); ++i) {
    IdColumn& column = columns[i];
    if (std::abs(values[i]) > kMost) return Unimplemented("");
    if (op == "Mul") {
      column.scale *= values[i];
      column.offset *= values[i];
    } else {
      column.offset += op == "Add" ? values[i] : -values[i];
    }
    if (column.scale < 1 || column.scale > kMost || std::abs(column.offset) > kMost) {
      return Unimplemented("");
    }
  }
  Ids ids = *from;
  ids.columns = std::make_shared<const Columns>(std::move(columns));
  return ids;
}

}  // namespace ulfd::convert

// Embedding tables of an ONNX model.
// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/onnx_features.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "tools/convert/onnx_layers.h"
#include "tools/convert/onnx_types.h"
#include "tools/convert/recipes.h"

namespace ulfd::convert {
namespace {

using engine::Dim;
using engine::Level;

// Columns of a row that are followed one by one, and how many in all rearrangements of a graph.
constexpr int64_t kMaxColumns = 1 << 20, kMaxColumnsMade = 1 << 26;

bool IsFloat(int type) {
  return type == onnx::TensorProto::FLOAT || type == onnx::TensorProto::DOUBLE;
}
bool IsInteger(int type) {
  return type == onnx::TensorProto::INT64 || type == onnx::TensorProto::INT32;
}

// A name as a file may have it.
std::string FileName(const std::string& name) {
  std::string file = name;
  for (char& c : file) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.' && c != '-' && c != '_') {
      c = '_';
    }
  }
  while (!file.empty() && (file[0] == '.' || file[0] == '_')) file.erase(0, 1);
  return file.empty() ? "table" : file;
}

// The scalar of a constant operand; NaN if it is none.
double Scalar(const Constant* constant) {
  if (constant == nullptr || constant->elements() != 1) return NAN;
  if (constant->is_float) return constant->f32(0);
  return constant->dim(0).IsConst() ? static_cast<double>(constant->dim(0).value()) : NAN;
}

// NaN where it has no value.
double Evaluate(const std::string& op, bool integers, double a, double b) {
  if (op == "Equal") return a == b ? 1 : 0;
  if (op == "Greater") return a > b ? 1 : 0;
  if (op == "Less") return a < b ? 1 : 0;
  if (op == "GreaterOrEqual") return a >= b ? 1 : 0;
  if (op == "LessOrEqual") return a <= b ? 1 : 0;
  if (op == "Add") return a + b;
  if (op == "Sub") return a - b;
  if (op == "Mul") return a * b;
  if (!integers) return a / b;  // Div
  return b == 0 ? NAN : std::trunc(a / b);
}

// Whether the shape is [rows, width].
bool IsFlat(const Dims& dims, int64_t width) {
  return dims.size() == 2 && dims[1] == Dim::Of(width);
}

// For a reshape of the tensor's rows, which may be the user's where those of `dims` are the ads'.
absl::StatusOr<std::vector<int64_t>> RowSizes(const GraphBuilder& builder,
                                              const std::string& tensor, Dims dims) {
  const engine::Shape& shape = builder.Find(tensor)->shape;
  dims[0] = shape[0];
  return ReshapeSizes(shape, dims);
}

bool IsBinary(const std::string& op) {
  return IsComparison(op) || op == "Add" || op == "Sub" || op == "Mul" || op == "Div";
}

}  // namespace

const SchemaField* OnnxInput::FieldAt(int64_t column) const {
  const auto after =
      std::upper_bound(schema.begin(), schema.end(), column,
                       [](int64_t at, const SchemaField& field) { return at < field.first; });
  return after == schema.begin() ? nullptr : &*(after - 1);
}

const Constant* OnnxFeatures::Known(const std::string& name) const {
  const auto found = shapes_.find(name);
  return found != shapes_.end() ? &found->second : graph_.FindConstant(name);
}

std::map<int64_t, int64_t> OnnxFeatures::IdRows(const std::string& input) const {
  std::map<int64_t, int64_t> rows;
  if (const auto found = ids_of_.find(input); found != ids_of_.end()) {
    for (const auto& [column, tables] : found->second) rows[column] = tables.least;
  }
  return rows;
}

// Whether every column is an id, as a whole number.
bool OnnxFeatures::AreIds(const Ids& ids) const {
  const auto found = ids_of_.find(ids.input);
  if (found == ids_of_.end() || !(ids.cut || IsInteger(inputs_.at(ids.input).element_type))) {
    return false;
  }
  return std::all_of(ids.columns->begin(), ids.columns->end(),
                     [&](const Column& column) { return found->second.contains(column.at); });
}

std::vector<int64_t> OnnxFeatures::Ids::places() const {
  std::vector<int64_t> places;
  for (const Column& column : *columns) places.push_back(column.at);
  return places;
}

bool OnnxFeatures::Ids::is_uniform() const {
  return std::all_of(columns->begin(), columns->end(),
                     [&](const Column& column) { return column.SameFormula(columns->front()); });
}

// Rows of the largest table that looks one of the ids up.
int64_t OnnxFeatures::RowsOf(const Ids& ids) const {
  int64_t rows = 0;
  const std::map<int64_t, TableRows>& tables = ids_of_.at(ids.input);
  for (const Column& column : *ids.columns) rows = std::max(rows, tables.at(column.at).most);
  return rows;
}

// Ids that the table has a row for, per column.  Fields that share a large table, one behind the
// other, have the rows up to the next one: each with all rows behind it would be many times the
// table.
std::vector<int64_t> OnnxFeatures::RowsPerColumn(const Ids& ids, const Constant& table) const {
  constexpr int64_t kMaxCopied = 1 << 24;
  std::vector<int64_t> rows;
  int64_t total = 0;
  for (const Column& column : *ids.columns) {
    const int64_t last = table.dims[0].value() - 1 - column.offset;
    rows.push_back(last < 0 ? 0 : last / column.scale + 1);
    const SchemaField* const field = inputs_.at(ids.input).FieldAt(column.at);
    if (field != nullptr && field->vocabulary > 0) {
      rows.back() = std::min(rows.back(), field->vocabulary);
    }
    total += std::min(rows.back(), kMaxCopied);
  }
  if (ids.is_uniform() || total <= kMaxCopied) return rows;
  for (size_t i = 0; i < rows.size(); ++i) {
    const Column& own = (*ids.columns)[i];
    for (const Column& other : *ids.columns) {
      if (own.scale != 1 || other.scale != 1 || other.offset <= own.offset) continue;
      rows[i] = std::min(rows[i], other.offset - own.offset);
    }
  }
  return rows;
}

// Columns with the same formula, and of the same field of a schema, in order.
std::vector<OnnxFeatures::Ids> OnnxFeatures::OnePerFeature(const Ids& ids) const {
  const OnnxInput& input = inputs_.at(ids.input);
  std::vector<Ids> parts;
  for (size_t i = 0; i < ids.columns->size();) {
    std::vector<Column> columns;
    for (const Column& first = (*ids.columns)[i];
         i < ids.columns->size() && (*ids.columns)[i].SameFormula(first) &&
         input.FieldAt((*ids.columns)[i].at) == input.FieldAt(first.at);
         ++i) {
      columns.push_back((*ids.columns)[i]);
    }
    Ids part = ids;
    part.dims = {ids.dims[0], Dim::Of(static_cast<int64_t>(columns.size()))};
    part.columns = std::make_shared<const std::vector<Column>>(std::move(columns));
    parts.push_back(std::move(part));
  }
  return parts;
}

// Of columns of one field.
Level OnnxFeatures::LevelOf(const Ids& ids) const {
  const OnnxInput& input = inputs_.at(ids.input);
  const SchemaField* const field = input.FieldAt(ids.columns->front().at);
  return field == nullptr ? input.level : field->level;
}

void OnnxFeatures::StartFrom(const OnnxInput& input) {
  int64_t count = 1;
  for (size_t d = 1; d < input.dims.size(); ++d) {
    if (!input.dims[d].IsConst() || input.dims[d].value() > kMaxColumns / count) return;
    count *= input.dims[d].value();
  }
  if (!IsInteger(input.element_type) && !IsFloat(input.element_type)) return;
  std::vector<Column> columns(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) columns[static_cast<size_t>(i)].at = i;
  ids_[input.name] = {.input = input.name,
                      .columns = std::make_shared<const std::vector<Column>>(std::move(columns)),
                      .dims = input.dims,
                      .type = input.element_type};
}

// Follows every input through what only rearranges it, to the tables that look it up.
void OnnxFeatures::FindIdColumns() {
  for (const auto& [name, input] : inputs_) StartFrom(input);
  for (const onnx::NodeProto& node : proto_.node()) {
    if (FoldConstant(node, true) || node.input_size() == 0) continue;
    const Constant* const table = Known(node.input(0));
    const auto looked_up = node.input_size() > 1 ? ids_.find(node.input(1)) : ids_.end();
    if (node.op_type() == "Gather" && table != nullptr && looked_up != ids_.end()) {
      if (table->dims.empty() || !table->dims[0].IsConst()) continue;
      if (IntAttribute(node, "axis", 0) != 0) continue;
      const std::vector<int64_t> all_rows = RowsPerColumn(looked_up->second, *table);
      for (size_t i = 0; i < all_rows.size(); ++i) {
        const int64_t rows = all_rows[i], column = (*looked_up->second.columns)[i].at;
        const auto [it, added] =
            ids_of_[looked_up->second.input].try_emplace(column, TableRows{rows, rows});
        it->second = {std::min(it->second.least, rows), std::max(it->second.most, rows)};
      }
      continue;
    }
    for (const std::string& input : node.input()) {
      const auto ids = ids_.find(input);
      if (ids == ids_.end()) continue;
      const absl::StatusOr<std::vector<Ids>> parts = Rearrange(node, ids->second);
      for (size_t i = 0; parts.ok() && i < parts->size(); ++i) {
        ids_[node.output(static_cast<int>(i))] = (*parts)[i];
      }
      break;
    }
  }
  ids_.clear();
  shapes_.clear();
  columns_made_ = 0;
}

void OnnxFeatures::Scan(Problems& problems) {
  FindIdColumns();
  for (const auto& [name, input] : inputs_) {
    if (IsFeature(name)) StartFrom(input);
  }
  for (const onnx::NodeProto& node : proto_.node()) ScanNode(node, problems);
  for (const onnx::ValueInfoProto& output : proto_.output()) {
    const auto ids = ids_.find(output.name());
    if (ids == ids_.end()) continue;
    if (const absl::Status status = Materialize(output.name(), ids->second); !status.ok()) {
      problems.Add(output.name(), "output", status.message());
    }
  }
}

// Whether the node's output is a constant.  While columns are searched, what is computed from the
// shapes of inputs is kept aside: the main pass knows those of all values.
bool OnnxFeatures::FoldConstant(const onnx::NodeProto& node, bool searching) {
  std::vector<const Constant*> inputs;
  Constant shape;
  const auto ids = node.input_size() > 0 ? ids_.find(node.input(0)) : ids_.end();
  bool aside = false;
  if ((node.op_type() == "Shape" || node.op_type() == "Size") && ids != ids_.end()) {
    shape.dims = ids->second.dims;
    inputs.push_back(&shape);
    aside = searching;
  } else {
    for (const std::string& input : node.input()) {
      inputs.push_back(input.empty() ? nullptr : Known(input));
      if (!input.empty() && inputs.back() == nullptr) return false;
      aside |= shapes_.contains(input);
    }
  }
  if (!CanFold(node.op_type())) return false;
  absl::StatusOr<std::vector<Constant>> folded = FoldNode(node, graph_.opset(), inputs);
  if (!folded.ok()) return false;  // The main pass says why.
  for (size_t i = 0; i < folded->size(); ++i) {
    const std::string& output = node.output(static_cast<int>(i));
    if (aside) {
      shapes_[output] = std::move((*folded)[i]);
    } else {
      graph_.Define(output, std::move((*folded)[i]));
    }
  }
  if (!aside) handled_.insert(&node);
  return true;
}

void OnnxFeatures::ScanNode(const onnx::NodeProto& node, Problems& problems) {
  if (handled_.contains(&node) || FoldConstant(node, false)) return;
  for (const std::string& input : node.input()) {
    const auto ids = ids_.find(input);
    if (ids == ids_.end()) continue;
    if (const absl::Status status = ScanIds(node, ids->second); !status.ok()) {
      problems.Add(node.name().empty() ? node.output(0) : node.name(), node.op_type(),
                   status.message());
      handled_.insert(&node);
    }
    return;
  }
}

absl::Status OnnxFeatures::ScanIds(const onnx::NodeProto& node, const Ids& ids) {
  if (node.op_type() == "Gather" && node.input_size() > 1 && ids_.contains(node.input(1)) &&
      graph_.FindConstant(node.input(0)) != nullptr && AreIds(ids) &&
      IntAttribute(node, "axis", 0) == 0) {
    handled_.insert(&node);
    return LookUp(node, ids);
  }
  const bool computes = IsBinary(node.op_type());
  absl::StatusOr<std::vector<Ids>> results = absl::UnimplementedError("");
  if (!computes || AreIds(ids)) results = Rearrange(node, ids);
  if (absl::IsUnimplemented(results.status()) && AreIds(ids)) {
    absl::StatusOr<Ids> result = ApplyFunction(node, ids);
    if (result.ok()) {
      results = std::vector<Ids>{*std::move(result)};
    } else {
      results = result.status();
    }
  }
  if (results.ok()) {
    for (size_t i = 0; i < results->size(); ++i) {
      ids_[node.output(static_cast<int>(i))] = std::move((*results)[i]);
    }
    handled_.insert(&node);
    return absl::OkStatus();
  }
  if (!absl::IsUnimplemented(results.status())) return results.status();
  // Something else reads the values: they become a tensor.
  for (const std::string& input : node.input()) {
    if (const auto found = ids_.find(input); found != ids_.end()) {
      RETURN_IF_ERROR(Materialize(input, found->second));
    }
  }
  return absl::OkStatus();
}

// What the node, which only moves elements within their rows or changes their type, makes of the
// columns, per output.  UNIMPLEMENTED for any other.
absl::StatusOr<std::vector<OnnxFeatures::Ids>> OnnxFeatures::Rearrange(const onnx::NodeProto& node,
                                                                       const Ids& ids) {
  const std::string& op = node.op_type();
  absl::StatusOr<Ids> result = absl::UnimplementedError("");
  if (!node.domain().empty() && node.domain() != "ai.onnx") return result.status();
  if (op == "Concat") {
    result = Joined(node, ids);
  } else if (op == "Add" || op == "Sub" || op == "Mul") {
    result = Computed(node, ids);
  } else if (!ids_.contains(node.input(0))) {
    return result.status();
  } else if (op == "Split") {
    return Parts(node, ids);
  } else if (op == "Identity") {
    result = ids;
  } else if (op == "Cast") {
    const auto to = static_cast<int>(IntAttribute(node, "to", 0));
    if (!IsFloat(to) && !IsInteger(to)) return result.status();
    result = ids;
    const bool cuts = IsInteger(to) && IsFloat(ids.type);
    if (ids.function != nullptr && (cuts || IsFloat(to))) {
      std::vector<double> values = *ids.function;
      for (double& value : values) {
        value = cuts ? std::trunc(value) : static_cast<double>(static_cast<float>(value));
      }
      result->function = std::make_shared<const std::vector<double>>(std::move(values));
    }
    result->cut |= cuts;
    result->type = to;
  } else if (op == "Reshape" || op == "Squeeze" || op == "Unsqueeze" || op == "Flatten") {
    result = Reshaped(node, ids);
  } else if (op == "Gather" || op == "Slice" || op == "Transpose") {
    result = Picked(node, ids);
  }
  RETURN_IF_ERROR(result.status());
  return std::vector<Ids>{*std::move(result)};
}

// Integers of the columns, plus or times constants.
absl::StatusOr<OnnxFeatures::Ids> OnnxFeatures::Computed(const onnx::NodeProto& node,
                                                         Ids ids) const {
  const std::string& op = node.op_type();
  const bool first = ids_.contains(node.input(0));
  const Constant* const other = Known(node.input(first ? 1 : 0));
  if (!IsInteger(ids.type) || ids.function != nullptr || other == nullptr || other->is_float ||
      (op == "Sub" && !first) || !IsNumbers(other->dims) || other->dims.size() > ids.dims.size()) {
    return absl::UnimplementedError("");
  }
  ASSIGN_OR_RETURN(const std::vector<int64_t> values, other->ToInts());
  std::vector<int64_t> places = {0};
  int64_t stride = 1;
  // From the last axis to the first: which value each element of a row has.
  for (size_t back = 1; back <= ids.dims.size(); ++back) {
    const Dim own = ids.dims[ids.dims.size() - back];
    const Dim size =
        back <= other->dims.size() ? other->dims[other->dims.size() - back] : Dim::Of(1);
    if (size != Dim::Of(1) && size != own) return absl::UnimplementedError("");
    if (back == ids.dims.size()) break;
    std::vector<int64_t> next;
    for (int64_t i = 0; i < own.value(); ++i) {
      for (const int64_t place : places) {
        next.push_back(place + (size == Dim::Of(1) ? 0 : i * stride));
      }
    }
    places = std::move(next);
    stride *= size.value();
  }
  constexpr int64_t kMost = int64_t{1} << 31;
  std::vector<Column> columns = *ids.columns;
  for (size_t i = 0; i < columns.size(); ++i) {
    const int64_t value = values[static_cast<size_t>(places[i])];
    Column& column = columns[i];
    if (std::abs(value) > kMost) return absl::UnimplementedError("");
    if (op == "Mul") {
      column.scale *= value;
      column.offset *= value;
    } else {
      column.offset += op == "Add" ? value : -value;
    }
    if (column.scale < 1 || column.scale > kMost || std::abs(column.offset) > kMost) {
      return absl::UnimplementedError("");
    }
  }
  ids.columns = std::make_shared<const std::vector<Column>>(std::move(columns));
  return ids;
}

absl::StatusOr<OnnxFeatures::Ids> OnnxFeatures::ApplyFunction(const onnx::NodeProto& node,
                                                              const Ids& ids) const {
  const std::string& op = node.op_type();
  Ids out = ids;
  std::vector<double> values;
  const auto rows = static_cast<size_t>(RowsOf(ids));
  const bool integers = !IsFloat(ids.type);
  if (!ids.is_uniform()) return absl::UnimplementedError("");
  const Column formula = ids.columns->front();
  const auto value_of = [&](size_t id) {
    return ids.function != nullptr
               ? (*ids.function)[id]
               : static_cast<double>(static_cast<int64_t>(id) * formula.scale + formula.offset);
  };
  if (op == "Not" || op == "Cast") {
    if (op == "Cast" && IntAttribute(node, "to", 0) != onnx::TensorProto::BOOL) {
      return absl::UnimplementedError("");
    }
    for (size_t i = 0; i < rows; ++i) {
      const double value = value_of(i);
      values.push_back((value != 0) == (op == "Cast") ? 1 : 0);
    }
    out.type = onnx::TensorProto::BOOL;
  } else if (IsBinary(op)) {
    const bool first = ids_.contains(node.input(0));
    const Constant* other = graph_.FindConstant(node.input(first ? 1 : 0));
    const double scalar = Scalar(other);
    if (std::isnan(scalar) ||
        static_cast<int>(other->dims.size()) > static_cast<int>(ids.dims.size())) {
      return absl::UnimplementedError("");
    }
    for (size_t i = 0; i < rows; ++i) {
      const double id = value_of(i);
      double value =
          first ? Evaluate(op, integers, id, scalar) : Evaluate(op, integers, scalar, id);
      if (!integers) value = static_cast<double>(static_cast<float>(value));
      if (!std::isfinite(value)) return absl::UnimplementedError("");
      values.push_back(value);
    }
    if (IsComparison(op)) out.type = onnx::TensorProto::BOOL;
  } else {
    return absl::UnimplementedError("");
  }
  std::vector<Column> columns = *ids.columns;
  for (Column& column : columns) column = {.at = column.at};
  out.columns = std::make_shared<const std::vector<Column>>(std::move(columns));
  out.function = std::make_shared<const std::vector<double>>(std::move(values));
  return out;
}

absl::StatusOr<OnnxFeatures::Ids> OnnxFeatures::Reshaped(const onnx::NodeProto& node,
                                                         Ids ids) const {
  // The same operators on constants say what becomes of the shape: a uniform one of these
  // dimensions is enough, but for Reshape, whose sizes are counted here.
  const std::string& op = node.op_type();
  Dims to;
  if (op == "Flatten" && IntAttribute(node, "axis", 1) == 1) {
    to = {ids.dims[0], Dim::Of(ids.count())};
  } else if (op == "Reshape") {
    const Constant* shape = node.input_size() > 1 ? Known(node.input(1)) : nullptr;
    if (shape == nullptr || IntAttribute(node, "allowzero", 0) != 0) {
      return absl::UnimplementedError("");
    }
    ASSIGN_OR_RETURN(const Dims wanted, shape->ToDims());
    Dim known = Dim::Of(1);
    int open = -1;
    for (int64_t i = 0; i < static_cast<int64_t>(wanted.size()); ++i) {
      Dim d = wanted[static_cast<size_t>(i)];
      if (d == Dim::Of(0) && i < static_cast<int64_t>(ids.dims.size())) d = ids.dims[i];
      if (d == Dim::Of(1) && i == 0 && ids.dims[0].IsUsers()) d = ids.dims[0];
      if (d == Dim::Of(-1)) {
        open = static_cast<int>(i);
      } else {
        known = engine::Multiply(known, d);
      }
      to.push_back(d);
    }
    if (open >= 0) {
      const auto rest = engine::Divide(engine::Multiply(ids.dims[0], Dim::Of(ids.count())), known);
      if (!rest.has_value()) return absl::InvalidArgumentError("shape does not fit the ids");
      to[open] = *rest;
    }
  } else if (op == "Squeeze" || op == "Unsqueeze") {
    std::vector<int64_t> axes = IntsAttribute(node, "axes");
    if (node.input_size() > 1 && Known(node.input(1)) != nullptr) {
      ASSIGN_OR_RETURN(axes, Known(node.input(1))->ToInts());
    }
    if (axes.empty()) return absl::UnimplementedError("");
    to = ids.dims;
    const int64_t rank = static_cast<int64_t>(to.size() + (op == "Unsqueeze" ? axes.size() : 0));
    ASSIGN_OR_RETURN(std::vector<int> order, WantAxes(axes, rank));
    if (op == "Squeeze") std::reverse(order.begin(), order.end());
    for (const int axis : order) {
      if (op == "Unsqueeze") {
        to.insert(to.begin() + axis, Dim::Of(1));
      } else {
        if (axis == 0 || to[static_cast<size_t>(axis)] != Dim::Of(1)) {
          return absl::UnimplementedError("");
        }
        to.erase(to.begin() + axis);
      }
    }
  }
  // Not a row per user or ad any more: the main pass can tell whether that can be.
  if (to.empty() || to[0] != ids.dims[0]) return absl::UnimplementedError("");
  Dim rest = Dim::Of(1);
  for (size_t d = 1; d < to.size(); ++d) rest = engine::Multiply(rest, to[d]);
  if (rest != Dim::Of(ids.count())) {
    return absl::InvalidArgumentError(absl::StrCat("ids of shape ", DimsText(ids.dims), " become ",
                                                   DimsText(to), ", another number of them"));
  }
  ids.dims = std::move(to);
  return ids;
}

std::shared_ptr<const std::vector<OnnxFeatures::Column>> OnnxFeatures::At(
    const Ids& ids, const std::vector<int64_t>& places) {
  std::vector<Column> columns;
  columns.reserve(places.size());
  for (const int64_t place : places) columns.push_back((*ids.columns)[static_cast<size_t>(place)]);
  return std::make_shared<const std::vector<Column>>(std::move(columns));
}

// The columns at the places at[d] along each axis after the rows.
absl::StatusOr<OnnxFeatures::Ids> OnnxFeatures::WithColumns(
    Ids ids, Dims dims, const std::vector<std::vector<int64_t>>& at) {
  std::vector<int64_t> places = {0};
  for (size_t d = 0; d < at.size(); ++d) {
    const auto size = static_cast<int64_t>(places.size() * at[d].size());
    columns_made_ += size;
    if (size > kMaxColumns || columns_made_ > kMaxColumnsMade) {
      return absl::UnimplementedError("too many columns to follow");
    }
    std::vector<int64_t> next;
    next.reserve(static_cast<size_t>(size));
    const int64_t length = ids.dims[d + 1].value();
    for (const int64_t place : places) {
      for (const int64_t i : at[d]) next.push_back(place * length + i);
    }
    places = std::move(next);
  }
  ids.columns = At(ids, places);
  ids.dims = std::move(dims);
  return ids;
}

absl::StatusOr<OnnxFeatures::Ids> OnnxFeatures::Picked(const onnx::NodeProto& node, Ids ids) {
  const auto rank = static_cast<int64_t>(ids.dims.size());
  const auto list = [&](int input, const char* attribute) -> absl::StatusOr<std::vector<int64_t>> {
    if (input >= node.input_size() || node.input(input).empty()) {
      return IntsAttribute(node, attribute);
    }
    if (Known(node.input(input)) == nullptr) return absl::UnimplementedError("");
    return Known(node.input(input))->ToInts();
  };
  std::vector<std::vector<int64_t>> at;
  for (size_t d = 1; d < ids.dims.size(); ++d) {
    at.emplace_back(static_cast<size_t>(ids.dims[d].value()));
    std::iota(at.back().begin(), at.back().end(), 0);
  }
  Dims dims = ids.dims;
  if (node.op_type() == "Gather") {
    ASSIGN_OR_RETURN(const int axis, WantAxis(IntAttribute(node, "axis", 0), rank));
    const Constant* const indices = Known(node.input(1));
    if (indices == nullptr || axis == 0 || indices->dims.size() > 1) {
      return absl::UnimplementedError("");
    }
    ASSIGN_OR_RETURN(std::vector<int64_t> picks, indices->ToInts());
    for (int64_t& pick : picks) {
      ASSIGN_OR_RETURN(pick, WantAxis(pick, dims[axis].value()));
    }
    at[static_cast<size_t>(axis) - 1] = picks;
    dims[axis] = Dim::Of(static_cast<int64_t>(picks.size()));
    if (indices->dims.empty()) dims.erase(dims.begin() + axis);
    return WithColumns(std::move(ids), std::move(dims), at);
  }
  if (node.op_type() == "Transpose") {
    std::vector<int64_t> perm = IntsAttribute(node, "perm");
    if (static_cast<int64_t>(perm.size()) != rank || rank == 0 || perm[0] != 0) {
      return absl::UnimplementedError("");
    }
    ASSIGN_OR_RETURN(ids, WithColumns(std::move(ids), dims, at));  // Counts what is made.
    std::vector<int64_t> strides(perm.size(), 1), columns = {0};
    for (size_t d = perm.size() - 1; d-- > 1;) strides[d] = strides[d + 1] * dims[d + 1].value();
    for (size_t d = 1; d < perm.size(); ++d) {
      ASSIGN_OR_RETURN(const int axis, WantAxis(perm[d], rank));
      if (axis == 0) return absl::UnimplementedError("");
      ids.dims[d] = dims[axis];
      std::vector<int64_t> next;
      for (const int64_t place : columns) {
        for (int64_t i = 0; i < dims[axis].value(); ++i) next.push_back(place + i * strides[axis]);
      }
      columns = std::move(next);
      if (columns.size() > ids.columns->size()) return absl::UnimplementedError("");
    }
    ids.columns = At(ids, columns);
    return ids;
  }
  ASSIGN_OR_RETURN(const std::vector<int64_t> starts, list(1, "starts"));
  ASSIGN_OR_RETURN(const std::vector<int64_t> ends, list(2, "ends"));
  ASSIGN_OR_RETURN(const std::vector<int64_t> axes, list(3, "axes"));
  ASSIGN_OR_RETURN(const std::vector<int64_t> steps, list(4, "steps"));
  if (ends.size() != starts.size() || (!axes.empty() && axes.size() != starts.size()) ||
      (!steps.empty() && steps.size() != starts.size())) {
    return absl::InvalidArgumentError("starts, ends, axes and steps have different lengths");
  }
  for (size_t i = 0; i < starts.size(); ++i) {
    ASSIGN_OR_RETURN(const int axis,
                     WantAxis(axes.empty() ? static_cast<int64_t>(i) : axes[i], rank));
    const int64_t step = steps.empty() ? 1 : steps[i];
    constexpr int64_t kEverything = int64_t{1} << 30;
    if (axis == 0 && starts[i] == 0 && ends[i] >= kEverything && step == 1) continue;
    if (axis == 0 || step < 1) return absl::UnimplementedError("");
    const int64_t size = dims[axis].value();
    const auto clamp = [&](int64_t place) {
      return std::clamp<int64_t>(place < 0 ? place + size : place, 0, size);
    };
    std::vector<int64_t>& places = at[static_cast<size_t>(axis) - 1];
    places.clear();
    const int64_t end = clamp(ends[i]);
    for (int64_t place = clamp(starts[i]); place < end; place += std::min(step, size)) {
      places.push_back(place);
    }
    if (places.empty()) return absl::InvalidArgumentError("the slice is empty");
    dims[axis] = Dim::Of(static_cast<int64_t>(places.size()));
  }
  return WithColumns(std::move(ids), std::move(dims), at);
}

absl::StatusOr<std::vector<OnnxFeatures::Ids>> OnnxFeatures::Parts(const onnx::NodeProto& node,
                                                                   const Ids& ids) {
  const auto rank = static_cast<int64_t>(ids.dims.size());
  ASSIGN_OR_RETURN(const int axis, WantAxis(IntAttribute(node, "axis", 0), rank));
  if (axis == 0) return absl::UnimplementedError("");
  std::vector<int64_t> lengths = IntsAttribute(node, "split");
  if (node.input_size() > 1 && !node.input(1).empty()) {
    if (Known(node.input(1)) == nullptr) return absl::UnimplementedError("");
    ASSIGN_OR_RETURN(lengths, Known(node.input(1))->ToInts());
  }
  ASSIGN_OR_RETURN(lengths,
                   SplitSizes(std::move(lengths), node.output_size(), ids.dims[axis].value()));
  std::vector<Ids> parts;
  int64_t begin = 0;
  for (const int64_t length : lengths) {
    std::vector<std::vector<int64_t>> at;
    for (int64_t d = 1; d < rank; ++d) {
      at.emplace_back(static_cast<size_t>(d == axis ? length : ids.dims[d].value()));
      std::iota(at.back().begin(), at.back().end(), d == axis ? begin : 0);
    }
    Dims dims = ids.dims;
    dims[axis] = Dim::Of(length);
    ASSIGN_OR_RETURN(Ids part, WithColumns(ids, std::move(dims), at));
    parts.push_back(std::move(part));
    begin += length;
  }
  return parts;
}

// Columns of one input side by side along the last axis.
absl::StatusOr<OnnxFeatures::Ids> OnnxFeatures::Joined(const onnx::NodeProto& node,
                                                       const Ids& ids) {
  const auto rank = static_cast<int64_t>(ids.dims.size());
  ASSIGN_OR_RETURN(const int axis, WantAxis(IntAttribute(node, "axis", 0), rank));
  if (axis == 0 || axis + 1 != rank) return absl::UnimplementedError("");
  int64_t outer = 1, total = 0;
  for (int64_t d = 1; d < axis; ++d) outer *= ids.dims[d].value();
  std::vector<const Ids*> parts;
  for (const std::string& input : node.input()) {
    const auto part = ids_.find(input);
    if (part == ids_.end()) return absl::UnimplementedError("");
    const Ids& other = part->second;
    if (other.input != ids.input || other.type != ids.type || other.cut != ids.cut ||
        other.function != ids.function || other.dims.size() != ids.dims.size() ||
        !std::equal(other.dims.begin(), other.dims.begin() + axis, ids.dims.begin())) {
      return absl::UnimplementedError("");
    }
    parts.push_back(&other);
    total += other.count() / outer;
  }
  columns_made_ += total * outer;
  if (total * outer > kMaxColumns || columns_made_ > kMaxColumnsMade) {
    return absl::UnimplementedError("too many columns to follow");
  }
  std::vector<Column> columns;
  for (int64_t o = 0; o < outer; ++o) {
    for (const Ids* part : parts) {
      const int64_t length = part->count() / outer;
      columns.insert(columns.end(), part->columns->begin() + o * length,
                     part->columns->begin() + (o + 1) * length);
    }
  }
  Ids joined = ids;
  joined.columns = std::make_shared<const std::vector<Column>>(std::move(columns));
  joined.dims[axis] = Dim::Of(total);
  return joined;
}

// A name that neither an input of the ONNX model nor one of ours has.
std::string OnnxFeatures::FreeName(const std::string& wanted) const {
  const auto taken = [&](const std::string& name) {
    return inputs_.contains(name) ||
           std::any_of(bindings_.begin(), bindings_.end(),
                       [&](const Binding& binding) { return binding.name == name; });
  };
  std::string name = wanted;
  for (int i = 2; taken(name); ++i) name = absl::StrCat(wanted, "_", i);
  return name;
}

namespace {

// "x" for all columns, "x_3" for one, "x_3_7" for neighbours.
std::string ColumnsName(const std::string& input, const std::vector<int64_t>& columns,
                        int64_t total) {
  bool neighbours = true;
  for (size_t i = 1; i < columns.size(); ++i) neighbours &= columns[i] == columns[i - 1] + 1;
  if (neighbours && static_cast<int64_t>(columns.size()) == total) return input;
  if (columns.size() == 1) return absl::StrCat(input, "_", columns[0]);
  if (neighbours) return absl::StrCat(input, "_", columns.front(), "_", columns.back());
  constexpr size_t kShort = 4;
  if (columns.size() <= kShort) {
    return absl::StrCat(input, "_columns_", absl::StrJoin(columns, "_"));
  }
  return absl::StrCat(input, "_columns_", columns.front(), "_to_", columns.back());
}

// "column 3", "columns 3 to 7", "columns 1, 5".
std::string ColumnsText(const std::vector<int64_t>& columns) {
  if (columns.size() == 1) return absl::StrCat("column ", columns[0]);
  bool neighbours = true;
  for (size_t i = 1; i < columns.size(); ++i) neighbours &= columns[i] == columns[i - 1] + 1;
  if (neighbours) return absl::StrCat("columns ", columns.front(), " to ", columns.back());
  return absl::StrCat("columns ", absl::StrJoin(columns, ", "));
}

int64_t RowElements(const OnnxInput& input) {
  int64_t total = 1;
  for (size_t d = 1; d < input.dims.size(); ++d) total *= input.dims[d].value();
  return total;
}

}  // namespace

// What columns of one field are called, where the name is free.
std::string OnnxFeatures::NameOf(const std::string& input,
                                 const std::vector<int64_t>& columns) const {
  const OnnxInput& source = inputs_.at(input);
  const SchemaField* const field = source.FieldAt(columns[0]);
  if (field == nullptr) return ColumnsName(input, columns, RowElements(source));
  std::vector<int64_t> own = columns;
  for (int64_t& column : own) column -= field->first;
  return ColumnsName(field->name, own, field->length);
}

std::string OnnxFeatures::FeatureOf(const Ids& ids) {
  const std::vector<int64_t> columns = ids.places();
  std::string& name = features_[{ids.input, columns}];
  if (name.empty()) {
    name = NameOf(ids.input, columns);
    if (name != ids.input) name = FreeName(name);
    bindings_.push_back({.input = ids.input,
                         .name = name,
                         .level = LevelOf(ids),
                         .sparse = true,
                         .columns = columns});
  }
  return name;
}

std::string OnnxFeatures::AddTable(const std::string& wanted, TableSource source) {
  std::string name = FileName(wanted);
  for (int i = 2; tables_.contains(name); ++i) name = absl::StrCat(FileName(wanted), ".", i);
  tables_[name] = std::move(source);
  return name;
}

absl::Status OnnxFeatures::LookUp(const onnx::NodeProto& node, const Ids& ids) {
  const Constant& table = *graph_.FindConstant(node.input(0));
  if (ids.function != nullptr) {
    return absl::UnimplementedError("looks up what is computed from ids, want the ids");
  }
  if (!table.is_float || table.dims.empty() || table.dims.size() > 2) {
    return absl::UnimplementedError(
        absl::StrCat("a table of shape ", DimsText(table.dims), ", want floats [ids, width]"));
  }
  const int64_t width = table.dims.size() == 2 ? table.dims[1].value() : 1;
  const std::vector<int64_t> rows = RowsPerColumn(ids, table);
  Dims dims = ids.dims;
  if (table.dims.size() == 2) dims.push_back(Dim::Of(width));
  const std::vector<Ids> parts = OnePerFeature(ids);
  if (parts.size() == 1) {
    return LookUpPart(node, ids, rows[0], node.output(0), std::move(dims));
  }
  Join join{.output = node.output(0), .dims = std::move(dims)};
  size_t first = 0;
  for (const Ids& part : parts) {
    join.parts.push_back(absl::StrCat(join.output, "/part", first));
    RETURN_IF_ERROR(LookUpPart(node, part, rows[first], join.parts.back(),
                               {ids.dims[0], Dim::Of(part.count() * width)}));
    first += part.columns->size();
  }
  joins_.push_back(std::move(join));
  return absl::OkStatus();
}

// Ids that all have the same formula.  ONNX counts rows below 0 from the table's end.
absl::Status OnnxFeatures::LookUpPart(const onnx::NodeProto& node, const Ids& ids, int64_t rows,
                                      const std::string& output, Dims dims) {
  const Constant& table = *graph_.FindConstant(node.input(0));
  const int64_t width = table.dims.size() == 2 ? table.dims[1].value() : 1;
  const Column formula = ids.columns->front();
  if (rows < 1) return absl::InvalidArgumentError("ids that are all beyond the table");
  std::string key = node.input(0);
  if (!formula.SameFormula({}) || rows < table.dims[0].value()) {
    key = absl::StrCat(key, "_", formula.scale, "_", formula.offset, "_", rows);
  }
  std::string& name = table_of_[key];
  if (name.empty()) {
    const int64_t all = table.dims[0].value();
    name = AddTable(key, {.rows = rows,
                          .dim = width,
                          .read = [values = table, width, formula, all](int64_t i, float* row) {
                            int64_t from = i * formula.scale + formula.offset;
                            if (from < 0) from += all;
                            for (int64_t c = 0; c < width; ++c) {
                              row[c] = from < 0 ? 0 : values.f32(from * width + c);
                            }
                          }});
  }
  lookups_.push_back({.node = &node,
                      .output = output,
                      .feature = FeatureOf(ids),
                      .table = name,
                      .level = LevelOf(ids),
                      .count = ids.count(),
                      .width = width,
                      .dims = std::move(dims)});
  return absl::OkStatus();
}

absl::Status OnnxFeatures::Materialize(const std::string& name, const Ids& ids) {
  if (!materialized_.insert(name).second) return absl::OkStatus();
  if (!AreIds(ids)) {
    numbers_.push_back({.output = name, .ids = ids});
    return absl::OkStatus();
  }
  const std::vector<Ids> parts = OnePerFeature(ids);
  if (parts.size() == 1) return MaterializePart(name, ids, ids.dims);
  Join join{.output = name, .dims = ids.dims};
  for (const Ids& part : parts) {
    join.parts.push_back(absl::StrCat(name, "/part", join.parts.size()));
    RETURN_IF_ERROR(MaterializePart(join.parts.back(), part, part.dims));
  }
  joins_.push_back(std::move(join));
  return absl::OkStatus();
}

// A slot without an id, or with one that the table lacks, gives zeros.  So that it counts as id 0,
// which pads, the table has the differences from what id 0 gives.
absl::Status OnnxFeatures::MaterializePart(const std::string& output, const Ids& ids, Dims dims) {
  const std::shared_ptr<const std::vector<double>> function = ids.function;
  const Column formula = ids.columns->front();
  const double offset = function == nullptr ? static_cast<double>(formula.offset)
                        : function->empty() ? 0
                                            : function->front();
  constexpr int64_t kExact = 1 << 24;  // Integers that a float has.
  if (function == nullptr &&
      std::max(std::abs(formula.offset), RowsOf(ids)) > kExact / formula.scale) {
    return absl::UnimplementedError("numbers beyond 2^24 are computed from ids");
  }
  const std::string feature = FeatureOf(ids);
  const std::string table = AddTable(
      absl::StrCat(feature, "_values"),
      {.rows = RowsOf(ids), .dim = 1, .read = [function, formula, offset](int64_t i, float* row) {
         *row =
             static_cast<float>(function == nullptr ? static_cast<double>(i * formula.scale)
                                                    : (*function)[static_cast<size_t>(i)] - offset);
       }});
  lookups_.push_back({.output = output,
                      .feature = feature,
                      .table = table,
                      .level = LevelOf(ids),
                      .count = ids.count(),
                      .width = 1,
                      .dims = std::move(dims),
                      .offset = static_cast<float>(offset)});
  return absl::OkStatus();
}

// The dense inputs that hold the columns of `input` which are used as numbers.
absl::Status OnnxFeatures::EmitInputs(const std::string& input, Report& report) {
  std::set<int64_t> columns;
  for (const Numbers& numbers : numbers_) {
    if (numbers.ids.input == input) {
      for (const Column& column : *numbers.ids.columns) columns.insert(column.at);
    }
  }
  const OnnxInput& source = inputs_.at(input);
  std::vector<Run>& runs = runs_[input];
  for (const int64_t column : columns) {
    if (runs.empty() || runs.back().first + runs.back().count != column ||
        source.FieldAt(runs.back().first) != source.FieldAt(column)) {
      runs.push_back({.first = column});
    }
    ++runs.back().count;
  }
  for (Run& run : runs) {
    std::vector<int64_t> own(static_cast<size_t>(run.count));
    std::iota(own.begin(), own.end(), run.first);
    const SchemaField* const field = source.FieldAt(run.first);
    const Level level = field == nullptr ? source.level : field->level;
    std::string wanted = NameOf(input, own);
    // The name that it would have is the ids'.
    if (FreeName(wanted) != wanted) wanted = absl::StrCat(wanted, "_values");
    run.name = FreeName(wanted);
    RETURN_IF_ERROR(graph_.builder().AddInput(run.name, level, {run.count}));
    if (level == Level::kAd) graph_.SetAdReference(run.name);
    report.AddInput(level,
                    absl::StrCat(run.name, " ", graph_.builder().Find(run.name)->shape.ToString(),
                                 " float32, ", ColumnsText(own), " of \"", input, "\""));
    bindings_.push_back(
        {.input = input, .name = run.name, .level = level, .columns = std::move(own)});
  }
  return absl::OkStatus();
}

// The value out of the dense inputs that hold its columns.
absl::Status OnnxFeatures::EmitNumbers(const Numbers& numbers) {
  GraphBuilder& builder = graph_.builder();
  const std::vector<int64_t> columns = numbers.ids.places();
  const std::vector<Run>& runs = runs_.at(numbers.ids.input);
  std::vector<OnnxValue> parts;
  for (size_t i = 0; i < columns.size();) {
    const auto run = std::find_if(runs.begin(), runs.end(), [&](const Run& r) {
      return columns[i] >= r.first && columns[i] < r.first + r.count;
    });
    size_t end = i + 1;
    while (end < columns.size() && columns[end] == columns[end - 1] + 1 &&
           columns[end] < run->first + run->count) {
      ++end;
    }
    const auto length = static_cast<int64_t>(end - i);
    std::string part = run->name;
    if (length != run->count) {
      part = graph_.Top(absl::StrCat(numbers.output, "/part"));
      RETURN_IF_ERROR(AddSlice(builder, part, run->name, 1, columns[i] - run->first, length, part));
    }
    parts.push_back(graph_.Whole(part));
    i = end;
  }
  std::string tensor = parts[0].tensor;
  if (parts.size() > 1) {
    tensor = graph_.Top(absl::StrCat(numbers.output, "/columns"));
    RETURN_IF_ERROR(JoinColumns(graph_, parts, tensor, tensor));
  }
  const bool is_float = IsFloat(inputs_.at(numbers.ids.input).element_type);
  if (numbers.ids.cut && is_float) {
    const std::string cut = graph_.Top(absl::StrCat(numbers.output, "/cut"));
    RETURN_IF_ERROR(AddExpression(builder, cut, Truncated("@0"), {tensor}, cut));
    tensor = cut;
  }
  if (!IsFlat(numbers.ids.dims, numbers.ids.count())) {
    const std::string shaped = graph_.Top(absl::StrCat(numbers.output, "/shape"));
    ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, RowSizes(builder, tensor, numbers.ids.dims));
    RETURN_IF_ERROR(AddReshape(builder, shaped, tensor, sizes, shaped));
    tensor = shaped;
  }
  if (!is_float && IsInteger(numbers.ids.type)) {
    graph_.MarkRounded(numbers.output, numbers.ids.input);
  }
  graph_.Define(numbers.output, graph_.Whole(tensor, numbers.ids.dims));
  builder.TakeAddedTypes();
  return absl::OkStatus();
}

// Kinds and vocabularies that the model contradicts.
absl::Status OnnxFeatures::CheckSchema() const {
  for (const auto& [name, input] : inputs_) {
    const auto ids = ids_of_.find(name);
    for (const SchemaField& field : input.schema) {
      bool looked_up = false, is_number = false;
      for (int64_t column = field.first; column < field.end(); ++column) {
        looked_up |= ids != ids_of_.end() && ids->second.contains(column);
        for (const Numbers& numbers : numbers_) {
          const std::vector<int64_t> places = numbers.ids.places();
          is_number |= numbers.ids.input == name &&
                       std::find(places.begin(), places.end(), column) != places.end();
        }
      }
      if (field.sparse ? is_number && !looked_up : looked_up) {
        return absl::InvalidArgumentError(
            absl::StrCat("the schema calls column \"", field.name, "\" ",
                         field.sparse ? "sparse, but no table is looked up with it"
                                      : "dense, but a table is looked up with it"));
      }
      if (!looked_up || field.vocabulary == 0) continue;
      for (int64_t column = field.first; column < field.end(); ++column) {
        const auto rows = ids->second.find(column);
        if (rows == ids->second.end() || rows->second.least >= field.vocabulary) continue;
        return absl::InvalidArgumentError(
            absl::StrCat("the schema gives column \"", field.name, "\" ", field.vocabulary,
                         " ids, but its table has ", rows->second.least));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status OnnxFeatures::Emit(Report& report) {
  RETURN_IF_ERROR(CheckSchema());
  std::vector<Group> groups;
  for (const Lookup& lookup : lookups_) {
    // One layer reads one table per feature; a second table of a feature starts another layer.
    auto group = std::find_if(groups.begin(), groups.end(), [&](const Group& g) {
      const auto table = g.tables.find(lookup.feature);
      return g.level == lookup.level && (table == g.tables.end() || table->second == lookup.table);
    });
    if (group == groups.end()) group = groups.insert(groups.end(), Group{.level = lookup.level});
    group->tables[lookup.feature] = lookup.table;
    group->lookups.push_back(lookup);
  }
  int index = 0;
  for (const Group& group : groups) RETURN_IF_ERROR(EmitGroup(group, ++index, report));
  for (const Join& join : joins_) RETURN_IF_ERROR(EmitJoin(join));
  Describe(report);
  graph_.builder().model().tables.insert(tables_.begin(), tables_.end());
  for (const auto& [name, input] : inputs_) {
    if (IsFeature(name)) RETURN_IF_ERROR(EmitInputs(name, report));
  }
  for (const auto& [name, columns] : ids_of_) {
    int64_t rows = 0;
    for (const auto& [column, tables] : columns) rows = std::max(rows, tables.most);
    report.notes.push_back(absl::StrCat("ids of \"", name, "\" outside 0..", rows - 1,
                                        " give zeros (ONNX refuses them, or counts from the end)"));
  }
  for (const Numbers& numbers : numbers_) RETURN_IF_ERROR(EmitNumbers(numbers));
  return absl::OkStatus();
}

// A line per feature.
void OnnxFeatures::Describe(Report& report) const {
  std::map<std::string, std::set<std::string>> tables;
  std::map<std::string, std::string> lines;
  for (const Lookup& lookup : lookups_) {
    tables[lookup.feature].insert(lookup.table);
    lines[lookup.feature] =
        absl::StrCat(lookup.count == 1 ? "one id" : absl::StrCat(lookup.count, " ids"),
                     lookup.level == Level::kUser ? " of the user" : " per ad");
  }
  for (const auto& [feature, line] : lines) {
    const auto binding =
        std::find_if(bindings_.begin(), bindings_.end(),
                     [&, name = feature](const Binding& b) { return b.name == name; });
    report.AddInput(
        binding->level,
        absl::StrCat(feature, ": ", line, ", looked up in ", absl::StrJoin(tables[feature], ", "),
                     binding->name == binding->input
                         ? ""
                         : absl::StrCat(", ", ColumnsText(binding->columns), " of \"",
                                        binding->input, "\"")));
  }
}

absl::Status OnnxFeatures::EmitGroup(const Group& group, int index, Report& report) {
  GraphBuilder& builder = graph_.builder();
  const bool user = group.level == Level::kUser;
  const std::string conf_name = absl::StrCat(user ? "user" : "ad", "_embedding_", index, ".conf");
  blaze::EmbeddingConfig& conf = builder.model().embedding_confs[conf_name];
  ulf::LayerParameter layer;
  layer.set_type("embedding_layer");
  layer.set_name(absl::StrCat(user ? "user" : "ad", "_embedding_", index));
  layer.mutable_embedding_param()->set_embedding_conf_path(conf_name);
  layer.mutable_embedding_param()->set_level(user ? 1 : 0);
  for (const auto& [feature, table] : group.tables) {
    blaze::EmbeddingFeatureGroupConfig& config = *conf.add_feature_group_config();
    config.set_feature_group(feature);
    config.set_table_name(table);
    config.set_dim(static_cast<int32_t>(tables_.at(table).dim));
    builder.AddFeature(feature);
    for (const char* part : {".ids", ".values", ".segments"}) {
      layer.add_bottom(absl::StrCat(feature, part));
    }
  }
  std::vector<int64_t> widths;
  std::vector<std::string> tops;
  for (const Lookup& lookup : group.lookups) {
    blaze::EmbeddingBlockConfigItem& item =
        *conf.add_block_config()->add_embedding_block_config_item();
    item.set_feature_group(lookup.feature);
    if (lookup.count > 1) {
      item.set_udf_type(blaze::kAssign);
      item.set_trunc_direction(blaze::kInorder);
      item.set_trunc_num(static_cast<int32_t>(lookup.count));
    }
    widths.push_back(lookup.count * lookup.width);
    const bool direct = lookup.offset == 0 && IsFlat(lookup.dims, widths.back());
    tops.push_back(graph_.Top(direct ? lookup.output : absl::StrCat(lookup.output, "/rows")));
    layer.add_top(tops.back());
  }
  builder.AddEmbedding(std::move(layer), group.level, widths);
  if (!user) graph_.SetAdReference(tops[0]);
  for (size_t i = 0; i < tops.size(); ++i) {
    const Lookup& lookup = group.lookups[i];
    RETURN_IF_ERROR(EmitValue(lookup, tops[i]));
    if (lookup.node == nullptr) continue;
    report.rows.push_back({lookup.node->name().empty() ? lookup.output : lookup.node->name(),
                           lookup.node->op_type(),
                           {"embedding_layer"},
                           absl::StrCat("feature ", lookup.feature, ", table ", lookup.table)});
  }
  builder.TakeAddedTypes();
  return absl::OkStatus();
}

absl::Status OnnxFeatures::EmitJoin(const Join& join) {
  GraphBuilder& builder = graph_.builder();
  std::vector<OnnxValue> parts;
  for (const std::string& part : join.parts) parts.push_back(*graph_.FindValue(part));
  std::string tensor = graph_.Top(absl::StrCat(join.output, "/joined"));
  RETURN_IF_ERROR(JoinColumns(graph_, parts, tensor, tensor));
  if (join.dims.size() != 2) {
    const std::string shaped = graph_.Top(join.output);
    ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, RowSizes(builder, tensor, join.dims));
    RETURN_IF_ERROR(AddReshape(builder, shaped, tensor, sizes, shaped));
    tensor = shaped;
  }
  graph_.Define(join.output, graph_.Whole(tensor, join.dims));
  builder.TakeAddedTypes();
  return absl::OkStatus();
}

// The look-up's value out of its top of the embedding layer, [rows, count * width].
absl::Status OnnxFeatures::EmitValue(const Lookup& lookup, const std::string& rows) {
  GraphBuilder& builder = graph_.builder();
  std::string tensor = rows;
  if (!IsFlat(lookup.dims, lookup.count * lookup.width)) {
    tensor = graph_.Top(lookup.offset == 0 ? lookup.output : absl::StrCat(lookup.output, "/shape"));
    ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, RowSizes(builder, rows, lookup.dims));
    RETURN_IF_ERROR(AddReshape(builder, tensor, rows, sizes, tensor));
  }
  if (lookup.offset != 0) {
    const std::string sum = graph_.Top(lookup.output);
    RETURN_IF_ERROR(
        AddExpression(builder, sum, absl::StrCat("@0 + ", Number(lookup.offset)), {tensor}, sum));
    tensor = sum;
  }
  graph_.Define(lookup.output, graph_.Whole(tensor, lookup.dims));
  return absl::OkStatus();
}

}  // namespace ulfd::convert

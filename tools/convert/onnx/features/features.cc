// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/onnx/features/features.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "tools/convert/onnx/model/budget.h"
#include "tools/convert/onnx/model/types.h"
#include "tools/convert/onnx/operators/layers.h"
#include "tools/convert/recipes.h"

namespace ulfd::convert {
namespace {

using engine::Dim;
using engine::Level;

// Columns in all rearrangements of a graph.
constexpr int64_t kMaxColumnsMade = 1 << 26;

// A name as a file may have it, with room for an ending.
std::string FileName(const std::string& name) {
  std::string file = name;
  for (char& c : file) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.' && c != '-' && c != '_') {
      c = '_';
    }
  }
  constexpr size_t kLongest = 200;
  while (!file.empty() && (file[0] == '.' || file[0] == '_')) file.erase(0, 1);
  file.resize(std::min(file.size(), kLongest));
  return file.empty() ? "table" : file;
}

}  // namespace

const Constant* OnnxFeatures::Known(const std::string& name) const {
  const auto found = shapes_.find(name);
  return found != shapes_.end() ? &found->second : graph_.FindConstant(name);
}

std::map<int64_t, IdRange> OnnxFeatures::IdRanges(const std::string& input) const {
  std::map<int64_t, IdRange> ranges;
  if (const auto found = ids_of_.find(input); found != ids_of_.end()) {
    for (const auto& [column, tables] : found->second) ranges[column] = tables.all;
  }
  return ranges;
}

// Whether a table could be looked up with every column.
bool OnnxFeatures::CouldBeIds(const Ids& ids) const {
  return ids.cut || IsIdType(ids.first().input->element_type);
}

// Whether every column is an id, as a whole number.
bool OnnxFeatures::AreIds(const Ids& ids) const {
  return std::all_of(ids.columns->begin(), ids.columns->end(), [&](const IdColumn& column) {
    const auto found = ids_of_.find(column.input->name);
    return found != ids_of_.end() && found->second.contains(column.at) &&
           (ids.cut || IsIdType(column.input->element_type));
  });
}

// Rows of the largest table that looks one of the ids up.
int64_t OnnxFeatures::RowsOf(const Ids& ids) const {
  int64_t rows = 0;
  for (const IdColumn& column : *ids.columns) {
    rows = std::max(rows, ids_of_.at(column.input->name).at(column.at).most);
  }
  return rows;
}

// Ids that the table has a row for, per column.  Fields that share a large table, one behind the
// other, have the rows up to the next one: each with all rows behind it would be many times the
// table.
std::vector<int64_t> OnnxFeatures::RowsPerColumn(const Ids& ids, const Constant& table) const {
  constexpr int64_t kMaxCopied = 1 << 24;
  std::vector<int64_t> rows;
  int64_t total = 0;
  for (const IdColumn& column : *ids.columns) {
    const int64_t last = table.dims[0].value() - 1 - column.offset;
    rows.push_back(last < 0 ? 0 : last / column.scale + 1);
    const SchemaField* const field = column.field();
    if (field != nullptr && field->vocabulary > 0) {
      rows.back() = std::min(rows.back(), field->vocabulary);
    }
    total += std::min(rows.back(), kMaxCopied);
  }
  if (ids.is_uniform() || total <= kMaxCopied) return rows;
  for (size_t i = 0; i < rows.size(); ++i) {
    const IdColumn& own = (*ids.columns)[i];
    for (const IdColumn& other : *ids.columns) {
      if (own.scale != 1 || other.scale != 1 || other.offset <= own.offset) continue;
      rows[i] = std::min(rows[i], other.offset - own.offset);
    }
  }
  return rows;
}

// Columns of one input with the same formula, and of the same field of a schema, in order.
std::vector<Ids> OnnxFeatures::OnePerFeature(const Ids& ids) const {
  std::vector<Ids> parts;
  for (size_t i = 0; i < ids.columns->size();) {
    std::vector<IdColumn> columns;
    for (const IdColumn& first = (*ids.columns)[i]; i < ids.columns->size(); ++i) {
      const IdColumn& column = (*ids.columns)[i];
      if (column.input != first.input || !column.SameFormula(first) ||
          column.field() != first.field()) {
        break;
      }
      columns.push_back(column);
    }
    Ids part = ids;
    part.dims = {ids.rows(), Dim::Of(static_cast<int64_t>(columns.size()))};
    part.columns = std::make_shared<const std::vector<IdColumn>>(std::move(columns));
    parts.push_back(std::move(part));
  }
  return parts;
}

// Of columns of one field.
Level OnnxFeatures::LevelOf(const Ids& ids) const {
  const SchemaField* const field = ids.first().field();
  return field == nullptr ? ids.first().input->level : field->level;
}

void OnnxFeatures::StartFrom(const OnnxInput& input) {
  if (!IsIdType(input.element_type) && !IsPlainFloat(input.element_type)) return;
  auto columns = ColumnsOf(input);
  if (columns == nullptr) return;
  ids_[input.name] = {
      .columns = std::move(columns), .dims = input.dims, .type = input.element_type};
}

// Ids of the columns that are looked up in the table.
void OnnxFeatures::FindIds(const Ids& ids, const Constant& table) {
  std::vector<IdRange> ranges;
  if (ids.made_by != nullptr) {
    const absl::StatusOr<IdRange> range = RangeInto(ids, table.dims[0].value());
    if (!range.ok()) return;
    ranges.assign(ids.columns->size(), *range);
  } else {
    for (const int64_t rows : RowsPerColumn(ids, table)) {
      const IdColumn& column = (*ids.columns)[ranges.size()];
      const int64_t below = (table.dims[0].value() + column.offset) / column.scale;
      ranges.push_back({-std::clamp<int64_t>(below, 0, kNegativeIds), rows});
    }
  }
  for (size_t i = 0; i < ranges.size(); ++i) {
    const IdColumn& column = (*ids.columns)[i];
    const auto [it, added] = ids_of_[column.input->name].try_emplace(
        column.at, TableRows{.all = ranges[i], .most = ranges[i].end});
    TableRows& rows = it->second;
    rows.all = {std::max(rows.all.first, ranges[i].first), std::min(rows.all.end, ranges[i].end),
                rows.all.all_below && ranges[i].all_below};
    rows.most = std::max(rows.most, ranges[i].end);
  }
}

// Follows every input through what only rearranges it, to the tables that look it up.
void OnnxFeatures::FindIdColumnsOf(const onnx::NodeProto& node) {
  if (FoldConstant(node, true) || node.input_size() == 0) return;
  const Constant* const table = Known(node.input(0));
  const auto looked_up = node.input_size() > 1 ? ids_.find(node.input(1)) : ids_.end();
  if (node.op_type() == "Gather" && table != nullptr && looked_up != ids_.end()) {
    if (table->dims.empty() || !table->dims[0].IsConst()) return;
    if (IntAttribute(node, "axis", 0) != 0) return;
    FindIds(looked_up->second, *table);
    return;
  }
  absl::StatusOr<std::vector<Ids>> parts = Rearrange(node);
  for (size_t i = 0; parts.ok() && i < parts->size(); ++i) {
    ids_[node.output(static_cast<int>(i))] = (*parts)[i];
  }
  if (parts.ok()) return;
  if (absl::StatusOr<Ids> result = ApplyFunction(node, true); result.ok()) {
    ids_[node.output(0)] = *std::move(result);
  }
}

absl::Status OnnxFeatures::FindIdColumns() {
  for (const auto& [name, input] : inputs_) StartFrom(input);
  RETURN_IF_ERROR(ForEachNode(proto_, [&](const auto& node) { FindIdColumnsOf(node); }));
  ids_.clear();
  shapes_.clear();
  columns_made_ = 0;
  return absl::OkStatus();
}

absl::Status OnnxFeatures::Scan(Problems& problems) {
  RETURN_IF_ERROR(FindIdColumns());
  for (const auto& [name, input] : inputs_) {
    if (IsFeature(name)) StartFrom(input);
  }
  RETURN_IF_ERROR(ForEachNode(proto_, [&](const auto& node) { ScanNode(node, problems); }));
  for (const onnx::ValueInfoProto& output : proto_.output()) {
    const auto ids = ids_.find(output.name());
    if (ids == ids_.end()) continue;
    if (const absl::Status status = Materialize(output.name(), ids->second); !status.ok()) {
      problems.Add(output.name(), "output", status.message());
    }
  }
  return absl::OkStatus();
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
  if (!CanFold(node)) return false;
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
  const bool computes = IsIdFunction(node.op_type()) && node.op_type() != "Cast";
  absl::StatusOr<std::vector<Ids>> results = Unimplemented("");
  if (!computes || AreIds(ids)) results = Rearrange(node);
  // Columns of several inputs are followed to tables only.
  for (size_t i = 0; results.ok() && i < results->size(); ++i) {
    const Ids& result = (*results)[i];
    const bool one_input =
        std::all_of(result.columns->begin(), result.columns->end(),
                    [&](const IdColumn& column) { return column.input == result.first().input; });
    if (!one_input && !AreIds(result)) results = Unimplemented("");
  }
  if (absl::IsUnimplemented(results.status()) && AreIds(ids)) {
    absl::StatusOr<Ids> result = ApplyFunction(node, false);
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

std::vector<IdArgument> OnnxFeatures::ArgumentsOf(const onnx::NodeProto& node) const {
  std::vector<IdArgument> arguments;
  for (const std::string& input : node.input()) {
    const auto ids = ids_.find(input);
    arguments.push_back({.ids = ids == ids_.end() ? nullptr : &ids->second,
                         .constant = input.empty() ? nullptr : Known(input)});
  }
  return arguments;
}

// What the node, which only moves elements within their rows, changes their type or adds to them,
// makes of the columns, per output.  UNIMPLEMENTED for any other.
absl::StatusOr<std::vector<Ids>> OnnxFeatures::Rearrange(const onnx::NodeProto& node) {
  const std::vector<IdArgument> arguments = ArgumentsOf(node);
  for (const IdArgument& argument : arguments) {
    if (argument.ids != nullptr) columns_made_ += argument.ids->count();
  }
  if (columns_made_ > kMaxColumnsMade) return Unimplemented("too many columns to follow");
  if (node.op_type() == "Cast" && arguments[0].ids != nullptr) {
    const auto to = static_cast<int>(IntAttribute(node, "to", 0));
    if (!IsPlainFloat(to) && !IsIdType(to)) return Unimplemented("");
    Ids result = *arguments[0].ids;
    const bool cuts = IsIdType(to) && (IsPlainFloat(result.type) ||
                                       (to != result.type && to == onnx::TensorProto::INT32));
    if (result.made_by != nullptr) result.made_by = &node;
    result.cut |= cuts;
    result.type = to;
    return std::vector<Ids>{std::move(result)};
  }
  if (absl::StatusOr<Ids> scaled = ScaleIds(node, graph_.opset(), arguments); scaled.ok()) {
    return std::vector<Ids>{*std::move(scaled)};
  }
  return MoveIds(node, graph_.opset(), arguments);
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

}  // namespace

// What columns of one field are called, where the name is free.
std::string OnnxFeatures::NameOf(const OnnxInput& input,
                                 const std::vector<int64_t>& columns) const {
  const SchemaField* const field = input.FieldAt(columns[0]);
  if (field == nullptr) return ColumnsName(input.name, columns, input.RowElements());
  std::vector<int64_t> own = columns;
  for (int64_t& column : own) column -= field->first;
  return ColumnsName(field->name, own, field->length);
}

std::string OnnxFeatures::FeatureOf(const Ids& ids) {
  const std::vector<int64_t> columns = ids.places();
  const OnnxInput& input = *ids.first().input;
  std::string& name = features_[{input.name, columns}];
  if (name.empty()) {
    name = NameOf(input, columns);
    if (name != input.name) name = FreeName(name);
    bindings_.push_back({.input = input.name,
                         .name = name,
                         .level = LevelOf(ids),
                         .sparse = true,
                         .columns = columns});
  }
  return name;
}

std::string OnnxFeatures::AddTable(const std::string& wanted, TableSource source) {
  // The ending is that of no other file of a version.
  const std::string base = FileName(wanted);
  std::string name = absl::StrCat(base, ".ulft");
  for (int i = 2; tables_.contains(name); ++i) name = absl::StrCat(base, ".", i, ".ulft");
  tables_[name] = std::move(source);
  return name;
}

absl::Status OnnxFeatures::LookUp(const onnx::NodeProto& node, const Ids& ids) {
  const Constant& table = *graph_.FindConstant(node.input(0));
  RETURN_IF_ERROR(WantTable(table));
  const int64_t width = table.elements() / table.dims[0].value();
  const std::vector<int64_t> rows = ids.made_by == nullptr
                                        ? RowsPerColumn(ids, table)
                                        : std::vector<int64_t>(ids.columns->size(), RowsOf(ids));
  Dims dims = ids.dims;
  dims.insert(dims.end(), table.dims.begin() + 1, table.dims.end());
  const std::vector<Ids> parts = OnePerFeature(ids);
  if (parts.size() == 1) {
    return LookUpPart(node, ids, rows[0], node.output(0), std::move(dims));
  }
  Join join{.output = node.output(0), .dims = std::move(dims)};
  size_t first = 0;
  for (const Ids& part : parts) {
    join.parts.push_back(absl::StrCat(join.output, "/part", first));
    RETURN_IF_ERROR(LookUpPart(node, part, rows[first], join.parts.back(),
                               {ids.rows(), Dim::Of(part.count() * width)}));
    first += part.columns->size();
  }
  joins_.push_back(std::move(join));
  return absl::OkStatus();
}

// The table that has, for each id, the row of the table `name` that the ids stand for.  ONNX counts
// rows below 0 from the table's end.
absl::StatusOr<std::string> OnnxFeatures::TableOf(const std::string& name, const Ids& ids,
                                                  int64_t rows) {
  const Constant& table = *graph_.FindConstant(name);
  const int64_t all = table.dims[0].value(), width = table.elements() / all;
  const IdColumn formula = ids.first();
  std::string key = name;
  if (ids.made_by != nullptr) {
    key = absl::StrCat(key, "_", ids.made_by->output(0));
  } else if (!formula.SameFormula({}) || rows < all) {
    key = absl::StrCat(key, "_", formula.scale, "_", formula.offset, "_", rows);
  }
  std::string& known = table_of_[key];
  if (!known.empty()) return known;
  IdRange range{-kNegativeIds, rows};
  std::shared_ptr<const std::vector<double>> computed;
  if (ids.made_by != nullptr) {
    constexpr int64_t kMostElements = int64_t{1} << 26;
    if (rows > kMostElements / width) {
      return Unimplemented("looks up what is computed from too many ids");
    }
    ASSIGN_OR_RETURN(std::vector<double> values, ValuesOf(ids, range));
    computed = std::make_shared<const std::vector<double>>(std::move(values));
  } else {
    range.first = -std::clamp<int64_t>((all + formula.offset) / formula.scale, 0, kNegativeIds);
  }
  known = AddTable(
      key, {.first = range.first,
            .rows = range.end - range.first,
            .dim = width,
            .read = [values = table, width, formula, all, computed, range](int64_t id, float* row) {
              int64_t from =
                  computed == nullptr
                      ? id * formula.scale + formula.offset
                      : static_cast<int64_t>((*computed)[static_cast<size_t>(id - range.first)]);
              if (from < 0) from += all;
              for (int64_t c = 0; c < width; ++c) {
                row[c] = from < 0 || from >= all ? 0 : values.number(from * width + c);
              }
            }});
  RETURN_IF_ERROR(KeepBelow(ids, known));
  return known;
}

// Ids that all have the same formula.
absl::Status OnnxFeatures::LookUpPart(const onnx::NodeProto& node, const Ids& ids, int64_t rows,
                                      const std::string& output, Dims dims) {
  if (rows < 1) return InvalidArgument("ids that are all beyond the table");
  const Constant& table = *graph_.FindConstant(node.input(0));
  ASSIGN_OR_RETURN(std::string name, TableOf(node.input(0), ids, rows));
  lookups_.push_back({.node = &node,
                      .output = output,
                      .feature = FeatureOf(ids),
                      .table = std::move(name),
                      .level = LevelOf(ids),
                      .count = ids.count(),
                      .width = table.elements() / table.dims[0].value(),
                      .dims = std::move(dims)});
  return absl::OkStatus();
}

absl::Status OnnxFeatures::Materialize(const std::string& name, const Ids& ids) {
  if (!materialized_.insert(name).second) return absl::OkStatus();
  // Ids far below 0 are numbers that no table has.
  if (!AreIds(ids) || (ids.made_by == nullptr && TakesAllBelow(ids))) {
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
  const IdRange range{-kNegativeIds, RowsOf(ids)};
  ASSIGN_OR_RETURN(std::vector<double> values, ValuesOf(ids, range));
  const double offset = values[kNegativeIds];
  constexpr double kExact = 1 << 24;  // Integers that a float has.
  double most = 1;
  for (double& value : values) {
    most = std::max(most, std::fabs(value));
    const bool exact = std::fabs(value) < kExact && std::fabs(value - offset) < kExact;
    if (IsIdType(ids.type) && !exact) {
      return Unimplemented("numbers of 2^24 or more are computed from ids");
    }
    value -= offset;
  }
  const std::string feature = FeatureOf(ids);
  const std::string table =
      AddTable(absl::StrCat(feature, "_values"),
               {.first = range.first,
                .rows = range.end - range.first,
                .dim = 1,
                .read = [values = std::make_shared<const std::vector<double>>(std::move(values)),
                         range](int64_t id, float* row) {
                  *row = static_cast<float>((*values)[static_cast<size_t>(id - range.first)]);
                }});
  RETURN_IF_ERROR(KeepBelow(ids, table));
  lookups_.push_back({.output = output,
                      .feature = feature,
                      .table = table,
                      .level = LevelOf(ids),
                      .count = ids.count(),
                      .width = 1,
                      .dims = std::move(dims),
                      .offset = static_cast<float>(offset),
                      .most = IsIdType(ids.type) ? most : 0});
  return absl::OkStatus();
}

absl::Status ApplySchema(const std::string& path, std::map<std::string, OnnxInput>& inputs) {
  ASSIGN_OR_RETURN(Schema schema, ReadSchema(path));
  OnnxInput* matrix = nullptr;
  std::vector<std::string> shapes;
  for (auto& [name, input] : inputs) {
    shapes.push_back(absl::StrCat(name, " ", DimsText(input.dims)));
    int64_t columns = 1;
    for (size_t d = 1; d < input.dims.size(); ++d) {
      columns *= input.dims[d].IsConst() ? input.dims[d].value() : 0;
    }
    if (columns != schema.back().end()) continue;
    if (matrix != nullptr) {
      return InvalidArgument(path, ": its ", columns, " columns fit \"", matrix->name, "\" and \"",
                             name, "\", want one");
    }
    matrix = &input;
  }
  if (matrix == nullptr) {
    return InvalidArgument(path, ": its ", schema.back().end(),
                           " columns fit no input: ", absl::StrJoin(shapes, ", "));
  }
  for (const SchemaField& field : schema) {
    if (field.level != Level::kAd || matrix->level != Level::kUser) continue;
    return InvalidArgument(path, ": column \"", field.name, "\" is the ads', but input \"",
                           matrix->name, "\" has one row of the user");
  }
  matrix->schema = std::move(schema);
  return absl::OkStatus();
}

}  // namespace ulfd::convert

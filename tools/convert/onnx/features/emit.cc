// Embedding tables of an ONNX model: the features, layers and inputs that the scan has found.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "tools/convert/onnx/features/features.h"
#include "tools/convert/onnx/model/types.h"
#include "tools/convert/onnx/operators/layers.h"
#include "tools/convert/recipes.h"

namespace ulfd::convert {
namespace {

using engine::Dim;
using engine::Level;

// Whether the shape is [rows, width].
bool IsFlat(const Dims& dims, int64_t width) {
  return dims.size() == 2 && RowsAxis(dims) == 0 && dims[1] == Dim::Of(width);
}

// The tensor [rows, width] as a value of these dimensions, in a tensor called `name` where it takes
// another one.  Its rows may be the user's where those of `dims` are the ads'.
absl::StatusOr<OnnxValue> Shaped(OnnxGraph& graph, const std::string& tensor, int64_t width,
                                 const Dims& dims, const std::string& name) {
  if (IsFlat(dims, width)) return graph.Whole(tensor, dims);
  const int axis = RowsAxis(dims);
  Dims rows_first = dims;
  if (axis >= 0) rows_first.erase(rows_first.begin() + axis);
  rows_first.insert(rows_first.begin(), axis < 0 ? Dim::Users() : dims[axis]);
  const engine::Shape shape = graph.builder().Find(tensor)->shape;
  Dims sizes = rows_first;
  sizes[0] = shape[0];
  ASSIGN_OR_RETURN(const std::vector<int64_t> to, ReshapeSizes(shape, sizes));
  RETURN_IF_ERROR(AddReshape(graph.builder(), name, tensor, to, name));
  OnnxValue value = graph.Whole(name, rows_first);
  return axis < 0 ? WithoutAxis(std::move(value), 0) : MoveAxis(std::move(value), 0, axis);
}

// "column 3", "columns 3 to 7", "columns 1, 5".
std::string ColumnsText(const std::vector<int64_t>& columns) {
  if (columns.size() == 1) return absl::StrCat("column ", columns[0]);
  bool neighbours = true;
  for (size_t i = 1; i < columns.size(); ++i) neighbours &= columns[i] == columns[i - 1] + 1;
  if (neighbours) return absl::StrCat("columns ", columns.front(), " to ", columns.back());
  return absl::StrCat("columns ", absl::StrJoin(columns, ", "));
}

}  // namespace

// The dense inputs that hold the columns of `input` which are used as numbers.
absl::Status OnnxFeatures::EmitInputs(const std::string& input, Report& report) {
  std::set<int64_t> columns;
  for (const Numbers& numbers : numbers_) {
    if (numbers.ids.first().input->name == input) {
      for (const IdColumn& column : *numbers.ids.columns) columns.insert(column.at);
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
    std::string wanted = NameOf(source, own);
    // The name that it would have is the ids', or that of the matrix that both are of.
    if (wanted == input || FreeName(wanted) != wanted) wanted = absl::StrCat(wanted, "_values");
    run.name = FreeName(wanted);
    const bool wide = graph_.IsInt64(input);
    RETURN_IF_ERROR(graph_.builder().AddInput(run.name, level, {run.count}, wide));
    if (level == Level::kAd) graph_.SetAdReference(run.name);
    report.AddInput(
        level,
        absl::StrCat(run.name, " ", graph_.builder().Find(run.name)->shape.ToString(),
                     wide ? " int64, " : " float32, ", ColumnsText(own), " of \"", input, "\""));
    bindings_.push_back(
        {.input = input, .name = run.name, .level = level, .columns = std::move(own)});
  }
  return absl::OkStatus();
}

// Columns i to end of the value, neighbours in the run, as its dense input has them.
absl::StatusOr<std::string> OnnxFeatures::EmitColumns(const Numbers& numbers, size_t i, size_t end,
                                                      const Run& run) {
  GraphBuilder& builder = graph_.builder();
  const IdColumn& column = (*numbers.ids.columns)[i];
  const auto length = static_cast<int64_t>(end - i);
  std::string part = run.name;
  if (length != run.count) {
    part = graph_.Top(absl::StrCat(numbers.output, "/part"));
    RETURN_IF_ERROR(AddSlice(builder, part, run.name, 1, column.at - run.first, length, part));
  }
  return part;
}

// What is computed of them, as float32.
absl::StatusOr<std::string> OnnxFeatures::EmitFormula(const Numbers& numbers,
                                                      const IdColumn& column,
                                                      const std::string& part) {
  const bool plain = column.SameFormula({});
  if (plain && !graph_.IsInt64(column.input->name)) return part;
  const std::string made = graph_.Top(absl::StrCat(numbers.output, "/formula"));
  std::string text = IsPlainFloat(column.input->element_type) ? "trunc(@0)" : "@0";
  if (!plain) absl::StrAppend(&text, " * ", column.scale, " + ", column.offset);
  RETURN_IF_ERROR(AddExpression(graph_.builder(), made, text, {part}, made));
  return made;
}

// The value out of the dense inputs that hold its columns.
absl::Status OnnxFeatures::EmitNumbers(const Numbers& numbers) {
  GraphBuilder& builder = graph_.builder();
  const std::vector<IdColumn>& columns = *numbers.ids.columns;
  const OnnxInput& input = *numbers.ids.first().input;
  const std::vector<Run>& runs = runs_.at(input.name);
  std::vector<OnnxValue> parts;
  std::string part;
  for (size_t i = 0; i < columns.size();) {
    const auto run = std::find_if(runs.begin(), runs.end(), [&](const Run& r) {
      return columns[i].at >= r.first && columns[i].at < r.first + r.count;
    });
    size_t end = i + 1;
    while (end < columns.size() && columns[end].at == columns[end - 1].at + 1 &&
           columns[end].at < run->first + run->count && columns[end].SameFormula(columns[i])) {
      ++end;
    }
    ASSIGN_OR_RETURN(part, EmitColumns(numbers, i, end, *run));
    ASSIGN_OR_RETURN(const std::string made, EmitFormula(numbers, columns[i], part));
    parts.push_back(graph_.Whole(made));
    i = end;
  }
  std::string tensor = parts[0].tensor;
  if (parts.size() > 1) {
    tensor = graph_.Top(absl::StrCat(numbers.output, "/columns"));
    RETURN_IF_ERROR(JoinColumns(graph_, parts, tensor, tensor));
  }
  const bool is_float = IsPlainFloat(input.element_type);
  if (numbers.ids.cut && is_float) {
    const std::string cut = graph_.Top(absl::StrCat(numbers.output, "/cut"));
    RETURN_IF_ERROR(AddExpression(builder, cut, "trunc(@0)", {tensor}, cut));
    tensor = cut;
  }
  ASSIGN_OR_RETURN(OnnxValue value, Shaped(graph_, tensor, numbers.ids.count(), numbers.ids.dims,
                                           graph_.Top(absl::StrCat(numbers.output, "/shape"))));
  if (!is_float) {
    IntegerBound bound{.inputs = {input.name}, .factor = 1};
    for (const IdColumn& column : columns) {
      bound.factor = std::max(bound.factor, static_cast<double>(column.scale));
      bound.plus = std::max(bound.plus, std::fabs(static_cast<double>(column.offset)));
    }
    // What single precision has loses no bits.
    if (numbers.ids.cut) LimitTo(bound, graph_);
    if (IsIdType(numbers.ids.type)) {
      graph_.MarkInput(numbers.output, input.name);
      graph_.SetBound(numbers.output, std::move(bound));
    }
  }
  graph_.Define(numbers.output, std::move(value));
  if (graph_.IsInt64(input.name) && parts.size() == 1 && columns[0].SameFormula({})) {
    ASSIGN_OR_RETURN(OnnxValue wide, Shaped(graph_, part, numbers.ids.count(), numbers.ids.dims,
                                            graph_.Top(absl::StrCat(numbers.output, "/wide"))));
    graph_.SetInt64(numbers.output, std::move(wide));
  }
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
          is_number |= numbers.ids.first().input == &input &&
                       std::find(places.begin(), places.end(), column) != places.end();
        }
      }
      if (field.sparse ? is_number && !looked_up : looked_up) {
        return InvalidArgument("the schema calls column \"", field.name, "\" ",
                               field.sparse ? "sparse, but no table is looked up with it"
                                            : "dense, but a table is looked up with it");
      }
      if (!looked_up || field.vocabulary == 0) continue;
      for (int64_t column = field.first; column < field.end(); ++column) {
        const auto rows = ids->second.find(column);
        if (rows == ids->second.end() || rows->second.all.end >= field.vocabulary) continue;
        return InvalidArgument("the schema gives column \"", field.name, "\" ", field.vocabulary,
                               " ids, but its table has ", rows->second.all.end);
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
    bool all_below = true;
    for (const auto& [column, tables] : columns) {
      rows = std::max(rows, tables.most);
      all_below &= tables.all.all_below;
    }
    report.notes.push_back(
        all_below
            ? absl::StrCat("ids of \"", name, "\" from ", rows,
                           " on are taken as those far below 0 (ONNX refuses them)")
            : absl::StrCat("ids of \"", name,
                           "\" that a table lacks give zeros, and masks as id 0: ", "those from ",
                           rows, " on, and below -", std::min(rows, kNegativeIds),
                           rows > kNegativeIds ? ", which ONNX counts from the table's end" : ""));
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
  std::vector<OnnxValue> parts;
  for (const std::string& part : join.parts) parts.push_back(*graph_.FindValue(part));
  const std::string joined = graph_.Top(absl::StrCat(join.output, "/joined"));
  RETURN_IF_ERROR(JoinColumns(graph_, parts, joined, joined));
  int64_t width = 1;
  for (const Dim& d : join.dims) width *= d.IsConst() ? d.value() : 1;
  ASSIGN_OR_RETURN(OnnxValue value,
                   Shaped(graph_, joined, width, join.dims, graph_.Top(join.output)));
  graph_.Define(join.output, std::move(value));
  graph_.MarkSmall(join.output);
  graph_.builder().TakeAddedTypes();
  return absl::OkStatus();
}

// The look-up's value out of its top of the embedding layer, [rows, count * width].
absl::Status OnnxFeatures::EmitValue(const Lookup& lookup, const std::string& rows) {
  std::string tensor = rows;
  if (lookup.offset != 0) {
    tensor = graph_.Top(absl::StrCat(lookup.output, "/sum"));
    RETURN_IF_ERROR(AddExpression(graph_.builder(), tensor,
                                  absl::StrCat("@0 + ", Number(lookup.offset)), {rows}, tensor));
  }
  ASSIGN_OR_RETURN(OnnxValue value, Shaped(graph_, tensor, lookup.count * lookup.width, lookup.dims,
                                           graph_.Top(lookup.output)));
  graph_.Define(lookup.output, std::move(value));
  graph_.MarkSmall(lookup.output);
  if (lookup.most > 0) graph_.SetBound(lookup.output, {.plus = lookup.most});
  return absl::OkStatus();
}

}  // namespace ulfd::convert

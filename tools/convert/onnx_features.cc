// Embedding tables of an ONNX model.
// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/onnx_features.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "tools/convert/recipes.h"

namespace ulfd::convert {
namespace {

using engine::Dim;
using engine::Level;

// Operators between an input of ids and the Gather that looks them up.
bool KeepsIds(const std::string& op) {
  for (const char* kept :
       {"Cast", "Identity", "Squeeze", "Unsqueeze", "Reshape", "Flatten", "Gather", "Slice"}) {
    if (op == kept) return true;
  }
  return false;
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

double Evaluate(const std::string& op, double a, double b) {
  if (op == "Equal") return a == b ? 1 : 0;
  if (op == "Greater") return a > b ? 1 : 0;
  if (op == "Less") return a < b ? 1 : 0;
  if (op == "GreaterOrEqual") return a >= b ? 1 : 0;
  if (op == "LessOrEqual") return a <= b ? 1 : 0;
  if (op == "Add") return a + b;
  if (op == "Sub") return a - b;
  return a * b;  // Mul
}

// Whether the shape is [rows, width].
bool IsFlat(const Dims& dims, int64_t width) {
  return dims.size() == 2 && dims[1] == Dim::Of(width);
}

bool IsBinary(const std::string& op) {
  for (const char* known :
       {"Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual", "Add", "Sub", "Mul"}) {
    if (op == known) return true;
  }
  return false;
}

}  // namespace

bool OnnxFeatures::TraceToInput(const std::string& name, std::string* input) const {
  std::string at = name;
  for (int steps = 0; steps <= proto_.node_size(); ++steps) {
    if (inputs_.contains(at)) {
      *input = at;
      return true;
    }
    const auto maker =
        std::find_if(proto_.node().begin(), proto_.node().end(), [&](const onnx::NodeProto& node) {
          return std::find(node.output().begin(), node.output().end(), at) != node.output().end();
        });
    if (maker == proto_.node().end() || !KeepsIds(maker->op_type())) return false;
    at = maker->input(0);
  }
  return false;
}

void OnnxFeatures::FindIdInputs() {
  for (const onnx::NodeProto& node : proto_.node()) {
    if (node.op_type() != "Gather" || IntAttribute(node, "axis", 0) != 0) continue;
    const auto table = std::find_if(
        proto_.initializer().begin(), proto_.initializer().end(),
        [&](const onnx::TensorProto& tensor) { return tensor.name() == node.input(0); });
    std::string input;
    if (table == proto_.initializer().end() || table->dims_size() < 1) continue;
    if (!TraceToInput(node.input(1), &input)) continue;
    int64_t& rows = id_inputs_[input];
    rows = std::max<int64_t>(rows, table->dims(0));
  }
}

void OnnxFeatures::Scan(Problems& problems) {
  FindIdInputs();
  for (const auto& [name, rows] : id_inputs_) {
    const OnnxInput& input = inputs_.at(name);
    Ids ids{.input = name, .dims = input.dims};
    for (size_t d = 1; d < input.dims.size(); ++d) {
      if (!input.dims[d].IsConst()) {
        problems.Add(name, "input",
                     absl::StrCat("shape ", DimsText(input.dims),
                                  ": how many ids a row has is not known; --dims can state it"));
        return;
      }
      ids.count *= input.dims[d].value();
    }
    ids_[name] = ids;
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

void OnnxFeatures::FoldConstant(const onnx::NodeProto& node) {
  std::vector<const Constant*> inputs;
  for (const std::string& input : node.input()) {
    inputs.push_back(input.empty() ? nullptr : graph_.FindConstant(input));
    if (!input.empty() && inputs.back() == nullptr) return;
  }
  if (!CanFold(node.op_type())) return;
  absl::StatusOr<Constant> folded = FoldNode(node, graph_.opset(), inputs);
  if (!folded.ok()) return;  // The main pass says why.
  graph_.Define(node.output(0), *std::move(folded));
  handled_.insert(&node);
}

void OnnxFeatures::ScanNode(const onnx::NodeProto& node, Problems& problems) {
  if (node.op_type() == "Shape") {
    const auto ids = ids_.find(node.input(0));
    if (ids == ids_.end()) return FoldConstant(node);
    const Constant shape{.dims = ids->second.dims};
    const Constant* inputs[] = {&shape};
    absl::StatusOr<Constant> dims = FoldNode(node, graph_.opset(), inputs);
    if (!dims.ok()) return problems.Add(node.name(), node.op_type(), dims.status().message());
    graph_.Define(node.output(0), *std::move(dims));
    handled_.insert(&node);
    return;
  }
  FoldConstant(node);
  if (handled_.contains(&node)) return;
  for (const std::string& input : node.input()) {
    const auto ids = ids_.find(input);
    if (ids == ids_.end()) continue;
    if (const absl::Status status = ScanIds(node, ids->second); !status.ok()) {
      problems.Add(node.name().empty() ? node.output(0) : node.name(), node.op_type(),
                   status.message());
      handled_.insert(&node);
    }
    if (handled_.contains(&node)) return;
  }
}

absl::Status OnnxFeatures::ScanIds(const onnx::NodeProto& node, const Ids& ids) {
  if (node.op_type() == "Gather" && node.input_size() > 1 && ids_.contains(node.input(1)) &&
      graph_.FindConstant(node.input(0)) != nullptr) {
    handled_.insert(&node);
    return LookUp(node, ids);
  }
  absl::StatusOr<Ids> result = Apply(node, ids);
  if (result.ok()) {
    ids_[node.output(0)] = *std::move(result);
    handled_.insert(&node);
    return absl::OkStatus();
  }
  if (!absl::IsUnimplemented(result.status())) return result.status();
  // Something else reads the values: they become a tensor.
  for (const std::string& input : node.input()) {
    if (const auto found = ids_.find(input); found != ids_.end()) {
      RETURN_IF_ERROR(Materialize(input, found->second));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<OnnxFeatures::Ids> OnnxFeatures::Apply(const onnx::NodeProto& node,
                                                      const Ids& ids) const {
  const std::string& op = node.op_type();
  if (op == "Identity") return ids;
  if (op == "Reshape" || op == "Squeeze" || op == "Unsqueeze" || op == "Flatten") {
    return Reshaped(node, ids);
  }
  if ((op == "Gather" || op == "Slice") && node.input(0) != "" && ids_.contains(node.input(0))) {
    return Columns(node, ids);
  }
  return ApplyFunction(node, ids);
}

absl::StatusOr<OnnxFeatures::Ids> OnnxFeatures::ApplyFunction(const onnx::NodeProto& node,
                                                              const Ids& ids) const {
  const std::string& op = node.op_type();
  Ids out = ids;
  if (op == "Cast" && IntAttribute(node, "to", 0) != onnx::TensorProto::BOOL) return out;
  std::vector<double> values;
  const auto rows = static_cast<size_t>(id_inputs_.at(ids.input));
  for (size_t i = 0; i < rows; ++i) {
    values.push_back(ids.function != nullptr ? (*ids.function)[i] : static_cast<double>(i));
  }
  if (op == "Not" || op == "Cast") {
    for (double& value : values) value = (value != 0) == (op == "Cast") ? 1 : 0;
  } else if (IsBinary(op)) {
    const bool first = ids_.contains(node.input(0));
    const Constant* other = graph_.FindConstant(node.input(first ? 1 : 0));
    const double scalar = Scalar(other);
    if (std::isnan(scalar) ||
        static_cast<int>(other->dims.size()) > static_cast<int>(ids.dims.size())) {
      return absl::UnimplementedError("");
    }
    for (double& value : values) {
      value = first ? Evaluate(op, value, scalar) : Evaluate(op, scalar, value);
    }
  } else {
    return absl::UnimplementedError("");
  }
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
    to = {ids.dims[0], Dim::Of(ids.count)};
  } else if (op == "Reshape") {
    const Constant* shape = graph_.FindConstant(node.input(1));
    if (shape == nullptr) return absl::UnimplementedError("");
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
      const auto rest = engine::Divide(engine::Multiply(ids.dims[0], Dim::Of(ids.count)), known);
      if (!rest.has_value()) return absl::InvalidArgumentError("shape does not fit the ids");
      to[open] = *rest;
    }
  } else if (op == "Squeeze" || op == "Unsqueeze") {
    std::vector<int64_t> axes = IntsAttribute(node, "axes");
    if (node.input_size() > 1 && graph_.FindConstant(node.input(1)) != nullptr) {
      ASSIGN_OR_RETURN(axes, graph_.FindConstant(node.input(1))->ToInts());
    }
    to = ids.dims;
    const int64_t rank = static_cast<int64_t>(to.size() + (op == "Unsqueeze" ? axes.size() : 0));
    for (int64_t& axis : axes) {
      ASSIGN_OR_RETURN(axis, WantAxis(axis, rank));
    }
    std::sort(axes.begin(), axes.end());
    if (op == "Squeeze") std::reverse(axes.begin(), axes.end());
    for (const int64_t axis : axes) {
      if (op == "Unsqueeze") {
        to.insert(to.begin() + axis, Dim::Of(1));
      } else {
        to.erase(to.begin() + axis);
      }
    }
  }
  if (to.empty() || to[0] != ids.dims[0]) {
    return absl::InvalidArgumentError(absl::StrCat("ids of shape ", DimsText(ids.dims), " become ",
                                                   DimsText(to), ", want the rows in front"));
  }
  ids.dims = std::move(to);
  return ids;
}

absl::StatusOr<OnnxFeatures::Ids> OnnxFeatures::Columns(const onnx::NodeProto& node,
                                                        Ids ids) const {
  if (ids.dims.size() != 2) return absl::UnimplementedError("");
  const auto number = [&](int input) {
    const Constant* c =
        input < node.input_size() ? graph_.FindConstant(node.input(input)) : nullptr;
    return c != nullptr && c->elements() == 1 && c->dim(0).IsConst() ? c->dim(0).value()
                                                                     : int64_t{-1} << 40;
  };
  const int64_t width = ids.dims[1].value();
  if (node.op_type() == "Gather") {
    ASSIGN_OR_RETURN(const int axis, WantAxis(IntAttribute(node, "axis", 0), 2));
    const int64_t at = number(1) < 0 ? number(1) + width : number(1);
    if (axis != 1 || at < 0 || at >= width) return absl::UnimplementedError("");
    ids.first += at;
    ids.count = 1;
    const bool scalar = graph_.FindConstant(node.input(1))->dims.empty();
    ids.dims = scalar ? Dims{ids.dims[0]} : Dims{ids.dims[0], Dim::Of(1)};
    return ids;
  }
  if (node.input_size() < 4 || (number(3) != 1 && number(3) != -1)) {
    return absl::UnimplementedError("");
  }
  if (node.input_size() > 4 && number(4) != 1) return absl::UnimplementedError("");
  const auto clamp = [&](int64_t at) {
    return std::clamp<int64_t>(at < 0 ? at + width : at, 0, width);
  };
  const int64_t begin = clamp(number(1)), end = clamp(number(2));
  if (end <= begin) return absl::InvalidArgumentError("the slice is empty");
  ids.first += begin;
  ids.count = end - begin;
  ids.dims[1] = Dim::Of(ids.count);
  return ids;
}

std::string OnnxFeatures::FeatureOf(const Ids& ids) const {
  int64_t total = 1;
  const Dims& dims = inputs_.at(ids.input).dims;
  for (size_t d = 1; d < dims.size(); ++d) total *= dims[d].value();
  if (ids.count == total) return ids.input;
  if (ids.count == 1) return absl::StrCat(ids.input, "_", ids.first);
  return absl::StrCat(ids.input, "_", ids.first, "_", ids.first + ids.count - 1);
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
  if (!table.is_float || table.dims.size() > 2) {
    return absl::UnimplementedError(
        absl::StrCat("a table of shape ", DimsText(table.dims), ", want floats [ids, width]"));
  }
  const int64_t width = table.dims.size() == 2 ? table.dims[1].value() : 1;
  std::string& name = table_of_[node.input(0)];
  if (name.empty()) {
    name = AddTable(node.input(0), {.rows = table.dims[0].value(),
                                    .dim = width,
                                    .read = [values = table, width](int64_t i, float* row) {
                                      for (int64_t c = 0; c < width; ++c) {
                                        row[c] = values.f32(i * width + c);
                                      }
                                    }});
  }
  Dims dims = ids.dims;
  if (table.dims.size() == 2) dims.push_back(Dim::Of(width));
  lookups_.push_back({.node = &node,
                      .output = node.output(0),
                      .feature = FeatureOf(ids),
                      .table = name,
                      .level = inputs_.at(ids.input).level,
                      .count = ids.count,
                      .width = width,
                      .dims = std::move(dims)});
  return absl::OkStatus();
}

// A slot without an id, or with one that the table lacks, gives zeros.  So that it counts as id 0,
// which pads, the table has the differences from what id 0 gives.
absl::Status OnnxFeatures::Materialize(const std::string& name, const Ids& ids) {
  if (!materialized_.insert(name).second) return absl::OkStatus();
  const std::shared_ptr<const std::vector<double>> function = ids.function;
  const double offset = function == nullptr || function->empty() ? 0 : function->front();
  const std::string table =
      AddTable(absl::StrCat(FeatureOf(ids), "_values"),
               {.rows = id_inputs_.at(ids.input),
                .dim = 1,
                .read = [function, offset](int64_t i, float* row) {
                  *row = static_cast<float>(function == nullptr
                                                ? static_cast<double>(i)
                                                : (*function)[static_cast<size_t>(i)] - offset);
                }});
  lookups_.push_back({.output = name,
                      .feature = FeatureOf(ids),
                      .table = table,
                      .level = inputs_.at(ids.input).level,
                      .count = ids.count,
                      .width = 1,
                      .dims = ids.dims,
                      .offset = static_cast<float>(offset)});
  return absl::OkStatus();
}

absl::Status OnnxFeatures::Emit(Report& report) {
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
  Describe(report);
  graph_.builder().model().tables.insert(tables_.begin(), tables_.end());
  for (const auto& [name, rows] : id_inputs_) {
    report.notes.push_back(absl::StrCat("ids of \"", name, "\" outside 0..", rows - 1,
                                        " give zeros (ONNX refuses them, or counts from the end)"));
  }
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
    report.inputs.push_back(
        absl::StrCat(feature, ": ", line, ", looked up in ", absl::StrJoin(tables[feature], ", ")));
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

// The look-up's value out of its top of the embedding layer, [rows, count * width].
absl::Status OnnxFeatures::EmitValue(const Lookup& lookup, const std::string& rows) {
  GraphBuilder& builder = graph_.builder();
  std::string tensor = rows;
  if (!IsFlat(lookup.dims, lookup.count * lookup.width)) {
    tensor = graph_.Top(lookup.offset == 0 ? lookup.output : absl::StrCat(lookup.output, "/shape"));
    ASSIGN_OR_RETURN(const std::vector<int64_t> sizes,
                     ReshapeSizes(builder.Find(rows)->shape, lookup.dims));
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

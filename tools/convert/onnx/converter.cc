// ONNX to ULF: inputs and their levels, embedding tables, then node by node.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/errors.h"
#include "base/hash_map.h"
#include "base/load_scope.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "engine/runtime/model.h"
#include "tools/convert/convert.h"
#include "tools/convert/model_writer.h"
#include "tools/convert/onnx/features/features.h"
#include "tools/convert/onnx/model/budget.h"
#include "tools/convert/onnx/model/formulas.h"
#include "tools/convert/onnx/model/functions.h"
#include "tools/convert/onnx/model/graph.h"
#include "tools/convert/onnx/model/types.h"
#include "tools/convert/onnx/operators/layers.h"
#include "tools/convert/onnx/proof/proof.h"
#include "tools/convert/onnx/reader.h"
#include "tools/convert/onnx/rewrites/rewrites.h"
#include "tools/convert/onnx/rows/example_rows.h"
#include "tools/convert/onnx/rows/fixed_rows.h"
#include "tools/convert/recipes.h"

namespace ulfd::convert {
namespace {

using engine::Dim;
using engine::Level;

bool Lists(const std::vector<std::string>& names, absl::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

class OnnxConverter {
 public:
  OnnxConverter(const OnnxModel& model, const ConvertOptions& options, std::string source,
                std::set<std::string> int64_inputs)
      : model_(model),
        proto_(model.proto.graph()),
        options_(options),
        source_(std::move(source)),
        builder_(proto_.name()),
        graph_(builder_, model.opset),
        features_(proto_, inputs_, graph_) {
    report_.source = absl::StrCat("ONNX model ", source_, " (operator set ", model.opset, ")");
    report_.notes = model.notes;
    graph_.SetInt64Inputs(std::move(int64_inputs));
  }

  absl::StatusOr<ConvertedModel> Convert() {
    for (const onnx::TensorProto& tensor : proto_.initializer()) {
      ASSIGN_OR_RETURN(Constant constant, Annotate(ReadTensor(tensor), source_, ": initializer \"",
                                                   tensor.name(), "\""));
      graph_.Define(tensor.name(), std::move(constant));
    }
    RETURN_IF_ERROR(Annotate(ReadInputs(), source_));
    CountUses();
    InferTypes(proto_, graph_);
    RETURN_IF_ERROR(Annotate(features_.Scan(problems_), source_));
    RETURN_IF_ERROR(problems_.empty() ? PrepareInputs() : absl::OkStatus());
    for (const bool constants : {true, false}) {  // First: nodes look at those of their readers.
      const auto convert = [&](const onnx::NodeProto& node) {
        if ((node.op_type() == "Constant") == constants) ConvertNode(node);
      };
      RETURN_IF_ERROR(Annotate(ForEachNode(proto_, convert), source_));
    }
    if (!branches_.empty()) return absl::AbortedError("there are branches to take");
    RETURN_IF_ERROR(problems_.ToStatus(source_));
    RETURN_IF_ERROR(Annotate(RefuseConstants(), source_));
    RETURN_IF_ERROR(Annotate(RefuseLosses(), source_));
    RETURN_IF_ERROR(Annotate(NameOutputs(), source_));
    StateLimits();
    StateMatrices();
    if (report_.user_inputs.empty()) {
      report_.notes.push_back(
          "no input is the user's: --user_inputs or --schema says what all ads of a request share");
    }
    if (report_.ad_inputs.empty()) {
      report_.notes.push_back(
          "no input is the ads', whose rows an export of one example does not show: --ad_inputs");
    }
    const auto is_half = [&](const onnx::NodeProto& node) {
      return node.output_size() > 0 && graph_.TypeOf(node.output(0)) == onnx::TensorProto::FLOAT16;
    };
    if (std::any_of(proto_.node().begin(), proto_.node().end(), is_half)) {
      report_.notes.push_back("what the model computes in half precision is in single precision");
    }
    if (folded_ > 0) {
      report_.notes.push_back(
          absl::StrCat(folded_, " nodes (constants, shapes) were computed while converting"));
    }
    return std::move(builder_).Finish();
  }

  // The branches of If nodes whose condition is a constant, and the passes of loops that have a
  // constant number, if Convert was ABORTED for them.
  const Branches& branches() const { return branches_; }
  // Integers of which requests may only have what float32 has.  After Convert.
  std::set<std::string> RoundedInputs() const;
  Report TakeReport() { return std::move(report_); }
  // What became of the inputs.  After Convert.
  Translation TakeTranslation();

 private:
  absl::Status ReadInputs();
  absl::StatusOr<Level> LevelOf(const onnx::ValueInfoProto& input);
  absl::Status CheckOptions() const;
  void CountUses();
  absl::Status PrepareInputs();
  absl::Status AddDenseInput(const OnnxInput& input);
  void ConvertNode(const onnx::NodeProto& node);
  absl::Status RunConverter(const onnx::NodeProto& node, const std::string& name);
  absl::StatusOr<bool> Fold(const onnx::NodeProto& node);
  absl::Status CheckShapes(const onnx::NodeProto& node) const;
  absl::Status RefuseConstants() const;
  absl::Status RefuseLosses() const;
  absl::Status NameOutputs();
  int64_t LimitOf(const std::string& input) const;
  void StateLimits();
  void StateMatrices();

  const OnnxModel& model_;
  const onnx::GraphProto& proto_;
  const ConvertOptions& options_;
  const std::string source_;
  GraphBuilder builder_;
  OnnxGraph graph_;
  std::map<std::string, OnnxInput> inputs_;
  OnnxFeatures features_;
  Report report_;
  Problems problems_;
  HashMap<std::string, int> uses_;
  HashMap<std::string, const onnx::NodeProto*> only_reader_;
  HashMap<std::string, const onnx::ValueInfoProto*> value_infos_;
  std::set<std::string> broken_;
  std::set<const onnx::NodeProto*> absorbed_;
  std::vector<Binding> bindings_;  // Of dense inputs that have no ids.
  Branches branches_;
  int folded_ = 0;
  bool sums_rows_ = false;  // Whether some nodes reduce rows.
};

// Flags first, then what the leading dimension says.
absl::StatusOr<Level> OnnxConverter::LevelOf(const onnx::ValueInfoProto& input) {
  const auto& shape = input.type().tensor_type().shape();
  const bool user = Lists(options_.user_inputs, input.name());
  const bool ad = Lists(options_.ad_inputs, input.name());
  if (user && ad) {
    return InvalidArgument("input \"", input.name(), "\" is in --user_inputs and --ad_inputs");
  }
  if (!input.type().has_tensor_type() || shape.dim_size() == 0) {
    return InvalidArgument("input \"", input.name(), "\": no tensor with rows in front");
  }
  const auto& rows = shape.dim(0);
  const std::string name = absl::AsciiStrToLower(rows.dim_param());
  if (rows.has_dim_value() && rows.dim_value() != 1) {
    return InvalidArgument("input \"", input.name(), "\": leading dimension ", rows.dim_value(),
                           ", want one with a name (PyTorch: dynamic_axes) or 1 for the user; "
                           "--ad_inputs takes it for the ads', --user_inputs for a list of the "
                           "user's");
  }
  if (user || rows.has_dim_value() || name == "user" || name == "users") return Level::kUser;
  for (const char* known : {"ads", "ad", "batch", "batch_size", "n", "items", "candidates"}) {
    if (ad || name == known) return Level::kAd;
  }
  report_.notes.push_back(absl::StrCat("the leading dimension \"", rows.dim_param(),
                                       "\" of input \"", input.name(),
                                       "\" is taken for the ads: --user_inputs says otherwise"));
  return Level::kAd;
}

absl::Status OnnxConverter::ReadInputs() {
  for (const onnx::ValueInfoProto& info : proto_.input()) {
    if (graph_.FindConstant(info.name()) != nullptr) continue;  // An initializer's declaration.
    ASSIGN_OR_RETURN(const Level level, LevelOf(info));
    OnnxInput input{
        .name = info.name(), .level = level, .element_type = info.type().tensor_type().elem_type()};
    input.dims.push_back(level == Level::kUser ? Dim::Users() : Dim::Ads());
    const auto& shape = info.type().tensor_type().shape();
    if (level == Level::kUser && !shape.dim(0).has_dim_value()) graph_.SetUserRowsByName();
    int64_t elements = 1;
    for (int d = 1; d < shape.dim_size(); ++d) {
      const int64_t size = shape.dim(d).has_dim_value() ? shape.dim(d).dim_value() : 1;
      if (size < 1 || elements > kMaxRowElements / size) {
        return InvalidArgument("input \"", info.name(), "\": dimension ", d, " is ", size,
                               ", want at least 1 and at most ", kMaxRowElements,
                               " values per row");
      }
      elements *= size;
      input.dims.push_back(shape.dim(d).has_dim_value() ? Dim::Of(shape.dim(d).dim_value())
                                                        : Dim::Unknown());
    }
    inputs_[info.name()] = std::move(input);
  }
  RETURN_IF_ERROR(CheckOptions());
  return options_.schema.empty() ? absl::OkStatus() : ApplySchema(options_.schema, inputs_);
}

absl::Status OnnxConverter::CheckOptions() const {
  const std::pair<const char*, const std::vector<std::string>*> flags[] = {
      {"--user_inputs", &options_.user_inputs}, {"--ad_inputs", &options_.ad_inputs}};
  for (const auto& [flag, names] : flags) {
    for (const std::string& name : *names) {
      if (inputs_.contains(name)) continue;
      return InvalidArgument(flag, " names \"", name,
                             "\", which is no input of the model; its inputs: ",
                             absl::StrJoin(inputs_, ", ", [](std::string* out, const auto& entry) {
                               absl::StrAppend(out, entry.first);
                             }));
    }
  }
  return absl::OkStatus();
}

void OnnxConverter::CountUses() {
  for (const onnx::NodeProto& node : proto_.node()) {
    for (const std::string& input : node.input()) {
      only_reader_[input] = ++uses_[input] == 1 ? &node : nullptr;
    }
    for (const std::string& output : node.output()) builder_.Reserve(output);
  }
  for (const onnx::ValueInfoProto& info : proto_.value_info())
    value_infos_.emplace(info.name(), &info);
  for (const onnx::ValueInfoProto& output : proto_.output()) {
    ++uses_[output.name()];
    only_reader_[output.name()] = nullptr;
  }
  absl::erase_if(only_reader_, [](const auto& entry) { return entry.second == nullptr; });
}

absl::Status OnnxConverter::PrepareInputs() {
  for (const auto& [name, input] : inputs_) {
    if (features_.IsFeature(name) || !uses_.contains(name)) continue;
    RETURN_IF_ERROR(Annotate(AddDenseInput(input), source_, ": input \"", name, "\""));
  }
  return Annotate(features_.Emit(report_), source_);
}

absl::Status OnnxConverter::AddDenseInput(const OnnxInput& input) {
  std::vector<int64_t> row_shape;
  for (size_t d = 1; d < input.dims.size(); ++d) {
    if (!input.dims[d].IsConst()) {
      const auto is_input = [&](const auto& info) { return info.name() == input.name; };
      const auto info = std::find_if(proto_.input().begin(), proto_.input().end(), is_input);
      const auto& dim = info->type().tensor_type().shape().dim(static_cast<int>(d));
      return InvalidArgument("shape ", DimsText(input.dims), ": --dims=", dim.dim_param(),
                             "=SIZE can state dimension ", d);
    }
    row_shape.push_back(input.dims[d].value());
  }
  // One number per row is a column: a manifest has no other way to say it.
  if (row_shape.empty()) row_shape = {1};
  const bool is_bool = input.element_type == onnx::TensorProto::BOOL;
  // ULF reads an input called "mask" as int32, and those with these endings as parts of a feature.
  const bool mask = input.name == "mask" && is_bool;
  const bool taken = input.name == "mask" || absl::EndsWith(input.name, ".ids") ||
                     absl::EndsWith(input.name, ".segments");
  const std::string name = taken && !mask ? absl::StrCat(input.name, "_values") : input.name;
  const bool wide = graph_.IsInt64(input.name);
  RETURN_IF_ERROR(builder_.AddInput(name, input.level, row_shape, wide));
  std::string tensor = name;
  if (wide) {
    tensor = graph_.Top(absl::StrCat(name, "/float"));
    RETURN_IF_ERROR(AddExpression(builder_, tensor, "@0", {name}, tensor));
    builder_.TakeAddedTypes();
  }
  if (mask) {
    const std::string one = graph_.Top("mask/one"), zero = graph_.Top("mask/zero");
    RETURN_IF_ERROR(AddConstant(builder_, one, MakeBlob({1}, {1.0f}), one));
    RETURN_IF_ERROR(AddConstant(builder_, zero, MakeBlob({1}, {0.0f}), zero));
    tensor = graph_.Top("mask/float");
    RETURN_IF_ERROR(AddPlain(builder_, "where_layer", tensor, {name, one, zero}, tensor));
    builder_.TakeAddedTypes();
  }
  OnnxValue value = graph_.Whole(tensor);
  if (input.dims.size() == 1) {
    value.dims.pop_back();
    value.axes.pop_back();
  }
  if (input.level == Level::kAd) graph_.SetAdReference(tensor);
  if (wide) graph_.SetInt64(input.name, {name, value.dims, value.axes});
  graph_.Define(input.name, std::move(value));
  const bool integers = graph_.IsInteger(input.name);
  if (integers && !IsShortInteger(input.element_type)) graph_.MarkInput(input.name, input.name);
  report_.AddInput(input.level, absl::StrCat(name, " ", builder_.Find(name)->shape.ToString(),
                                             mask       ? " int32, above 0 is true"
                                             : wide     ? " int64"
                                             : integers ? " float32; whole numbers"
                                                        : " float32"));
  bindings_.push_back({.input = input.name, .name = name, .level = input.level});
  if (name != input.name) {
    report_.notes.push_back(absl::StrCat("input \"", input.name, "\" is called \"", name,
                                         "\": ULF gives the other name a type of its own"));
  }
  return absl::OkStatus();
}

// true: the node's output is a constant now.
absl::StatusOr<bool> OnnxConverter::Fold(const onnx::NodeProto& node) {
  std::vector<const Constant*> inputs;
  Constant shape;
  const bool asks_shape = node.op_type() == "Shape" || node.op_type() == "Size";
  if (asks_shape && node.input_size() == 1 && graph_.FindValue(node.input(0)) != nullptr) {
    shape.dims = graph_.FindValue(node.input(0))->dims;
    inputs.push_back(&shape);
  } else {
    for (const std::string& input : node.input()) {
      inputs.push_back(input.empty() ? nullptr : graph_.FindConstant(input));
      if (!input.empty() && inputs.back() == nullptr) return false;
    }
  }
  if (!CanFold(node)) return false;
  absl::StatusOr<std::vector<Constant>> constants = FoldNode(node, graph_.opset(), inputs);
  // Layers may compute what cannot be held: a constant per row of the request.
  if (!constants.ok() && FindOnnxType(node.op_type()) != nullptr) return false;
  RETURN_IF_ERROR(constants.status());
  for (size_t i = 0; i < constants->size(); ++i) {
    graph_.Define(node.output(static_cast<int>(i)), std::move((*constants)[i]));
  }
  return true;
}

void OnnxConverter::ConvertNode(const onnx::NodeProto& node) {
  if (features_.Handles(&node)) {
    const std::string& output = node.output(0);
    if (graph_.FindConstant(output) != nullptr) {
      ++folded_;
    } else if (graph_.FindValue(output) == nullptr) {
      broken_.insert(output);
    }
    return;
  }
  if (absorbed_.contains(&node)) return;
  const std::string name = node.name().empty() ? node.output(0) : node.name();
  const bool known =
      FindOnnxType(node.op_type()) != nullptr || CanFold(node) || node.op_type() == "If";
  for (const std::string& input : node.input()) {
    if (known && (broken_.contains(input) || (inputs_.contains(input) && !problems_.empty() &&
                                              graph_.FindValue(input) == nullptr))) {
      // What it reads is on the list already.
      for (const std::string& output : node.output()) broken_.insert(output);
      return;
    }
  }
  const std::optional<int64_t> decision = DecisionOf(node, [&](const std::string& name) {
    const Constant* const constant = graph_.FindConstant(name);
    const bool known = constant != nullptr && !constant->is_float && IsNumbers(constant->dims) &&
                       constant->elements() == 1 && constant->dim(0).IsConst();
    return known ? std::optional(constant->dim(0).value()) : std::nullopt;
  });
  if (decision.has_value()) {
    branches_[node.output(0)] = *decision;
    for (const std::string& output : node.output()) broken_.insert(output);
    return;
  }
  if (const absl::Status status = RunConverter(node, name); !status.ok()) {
    problems_.Add(name, node.op_type(), status.message());
    for (const std::string& output : node.output()) broken_.insert(output);
  }
}

absl::Status OnnxConverter::RunConverter(const onnx::NodeProto& node, const std::string& name) {
  if (!node.domain().empty() && node.domain() != "ai.onnx") {
    return Unimplemented(WhyNot(node));
  }
  OnnxNode work{
      .graph = graph_, .node = node, .uses = uses_, .only_reader = only_reader_, .name = name};
  ASSIGN_OR_RETURN(const bool rows, ConvertRowNumbers(work));
  ASSIGN_OR_RETURN(const bool folded, rows ? false : Fold(node));
  if (folded) {
    ++folded_;
    return absl::OkStatus();
  }
  absl::Status status;
  if (!rows) {
    const OnnxType* type = FindOnnxType(node.op_type());
    if (type == nullptr) return Unimplemented(WhyNot(node));
    const auto reader = only_reader_.find(node.output(0));
    ComposeFormula(node, graph_);
    RETURN_IF_ERROR(
        CheckIntegers(node, graph_, reader == only_reader_.end() ? nullptr : reader->second));
    // Products take them apart, so that nothing is repeated.
    if (node.op_type() != "MatMul") RETURN_IF_ERROR(RepeatMergedRows(work));
    status = graph_.UsesFormula(node.output(0)) ? ConvertFormula(work) : type->convert(work);
  }
  std::vector<std::string> added = builder_.TakeAddedTypes();
  if (work.absorbed != nullptr) {
    absorbed_.insert(work.absorbed);
    if (!status.ok()) broken_.insert(work.absorbed->output(0));
  }
  RETURN_IF_ERROR(status);
  if (work.across_rows && model_.keeps_rows) {
    return Unimplemented("across rows, of which a mask may choose some");
  }
  sums_rows_ |= work.across_rows && absl::StartsWith(node.op_type(), "Reduce");
  MarkIntegers(node, graph_);
  RETURN_IF_ERROR(CheckShapes(work.absorbed != nullptr ? *work.absorbed : node));
  report_.rows.push_back({name, node.op_type(), std::move(added), work.note});
  if (work.absorbed != nullptr) {
    report_.rows.push_back({work.absorbed->name(),
                            work.absorbed->op_type(),
                            {},
                            absl::StrCat("part of \"", name, "\"")});
  }
  return absl::OkStatus();
}

// Our shapes against ONNX's own inference, where both say a number.
absl::Status OnnxConverter::CheckShapes(const onnx::NodeProto& node) const {
  for (const std::string& output : node.output()) {
    const OnnxValue* value = graph_.FindValue(output);
    if (value == nullptr || !model_.inferred) continue;
    const auto info = value_infos_.find(output);
    if (info == value_infos_.end()) continue;
    const auto& tensor = info->second->type().tensor_type();
    if (!tensor.has_shape()) continue;
    const auto& shape = tensor.shape();
    bool fits = shape.dim_size() == value->rank();
    for (int d = 0; fits && d < shape.dim_size(); ++d) {
      const auto& dim = shape.dim(d);
      fits = !dim.has_dim_value() || !value->dims[d].IsConst() ||
             value->dims[d].value() == dim.dim_value();
    }
    if (fits) continue;
    std::vector<std::string> dims;
    for (const auto& dim : shape.dim()) {
      dims.push_back(dim.has_dim_value() ? absl::StrCat(dim.dim_value()) : dim.dim_param());
    }
    return InvalidArgument("\"", output, "\": shape ", DimsText(value->dims), ", but ONNX infers [",
                           absl::StrJoin(dims, ", "), "]");
  }
  return absl::OkStatus();
}

// What a model looks up by hand is not in the graph that torch.onnx.export traces: the example's
// scores are, as constants, whatever rows the inputs have, if any input is left.
absl::Status OnnxConverter::RefuseConstants() const {
  const auto any_rows = [](const onnx::ValueInfoProto& input) {
    const auto& shape = input.type().tensor_type().shape();
    return shape.dim_size() > 0 && !shape.dim(0).has_dim_value();
  };
  const auto is_constant = [&](const onnx::ValueInfoProto& output) {
    const Constant* const constant = graph_.FindConstant(output.name());
    return constant != nullptr && constant->is_float &&
           std::all_of(constant->dims.begin(), constant->dims.end(),
                       [](engine::Dim dim) { return dim.IsConst(); });
  };
  const bool rows =
      inputs_.empty() || std::any_of(proto_.input().begin(), proto_.input().end(), any_rows);
  if (proto_.output().empty() || !rows ||
      !std::all_of(proto_.output().begin(), proto_.output().end(), is_constant)) {
    return absl::OkStatus();
  }
  return Unimplemented("output \"", proto_.output(0).name(),
                       "\" is a constant, as all outputs are: what the example of the export gave");
}

// Beside outputs that have rows, one for all rows is a loss of training, which torch.onnx.export
// writes wrong where the model adds to it in place.
absl::Status OnnxConverter::RefuseLosses() const {
  std::vector<std::string> losses, scores;
  for (const onnx::ValueInfoProto& output : proto_.output()) {
    const OnnxValue* const value = graph_.FindValue(output.name());
    if (value == nullptr) continue;  // A constant.
    (IsNumbers(value->dims) ? losses : scores).push_back(output.name());
  }
  if (!sums_rows_ || scores.empty() || losses.empty()) return absl::OkStatus();
  return Unimplemented("output \"", losses[0],
                       "\" is one for all rows of a request, as a loss of training ",
                       "is, beside outputs that have rows; leave it out of the export");
}

absl::Status OnnxConverter::NameOutputs() {
  std::vector<std::pair<std::string, std::string>> renames;  // Output, tensor.
  for (const onnx::ValueInfoProto& output : proto_.output()) {
    ASSIGN_OR_RETURN(const OnnxValue value,
                     Annotate(graph_.ValueOf(output.name()), "output \"", output.name(), "\""));
    if (const std::string* source = graph_.RoundedFrom(output.name())) {
      const IntegerBound* const bound = graph_.BoundOf(output.name());
      if (bound == nullptr || !LimitTo(*bound, graph_)) {
        return Unimplemented("output \"", output.name(), "\" gives integers of input \"", *source,
                             "\" back, which ULF has in single precision");
      }
    }
    if (graph_.TypeOf(output.name()) == onnx::TensorProto::FLOAT16) {
      return Unimplemented(
          "output \"", output.name(),
          "\" is in half precision, which ULF lacks; cast it to float in the model");
    }
    ASSIGN_OR_RETURN(std::string tensor,
                     Annotate(graph_.Full(value), "output \"", output.name(), "\""));
    renames.emplace_back(output.name(), std::move(tensor));
  }
  // A name that is taken (the output is a view of it) is replaced last.
  std::stable_sort(renames.begin(), renames.end(), [&](const auto& a, const auto& b) {
    return (builder_.Find(a.first) == nullptr) > (builder_.Find(b.first) == nullptr);
  });
  for (const auto& [name, tensor] : renames) {
    if (name != tensor) {
      RETURN_IF_ERROR(AddRename(builder_, absl::StrCat(name, "/output"), tensor, name));
    }
  }
  for (const onnx::ValueInfoProto& output : proto_.output()) {
    builder_.model().manifest.add_outputs(output.name());
    report_.outputs.push_back(
        absl::StrCat(output.name(), " ", builder_.Find(output.name())->shape.ToString()));
  }
  return absl::OkStatus();
}

// Of integers that requests are checked for; 0: none.
int64_t OnnxConverter::LimitOf(const std::string& input) const {
  const auto limit = graph_.limits().find(input);
  if (limit != graph_.limits().end()) return limit->second;
  return graph_.IsInt64(input) ? engine::kDoubleIntegers : 0;
}

std::set<std::string> OnnxConverter::RoundedInputs() const {
  std::set<std::string> rounded;
  for (const auto& [name, limit] : graph_.limits()) {
    const bool wider = limit <= engine::kFloatIntegers && IsIdType(graph_.TypeOf(name));
    if (wider) rounded.insert(name);
  }
  return rounded;
}

void OnnxConverter::StateLimits() {
  bindings_.insert(bindings_.end(), features_.bindings().begin(), features_.bindings().end());
  for (ulfd::model::v1::InputConfig& config : *builder_.model().manifest.mutable_inputs()) {
    for (const Binding& binding : bindings_) {
      if (binding.sparse || binding.name != config.name() || LimitOf(binding.input) == 0) continue;
      config.set_integers_below(LimitOf(binding.input));
      report_.notes.push_back(absl::StrCat(
          "requests whose \"", config.name(), "\" has integers of ", LimitOf(binding.input),
          " or more are refused: ", graph_.IsInt64(binding.input) ? "double" : "float32",
          " would round them, or what is computed of them"));
    }
  }
  for (const Binding& binding : bindings_) {
    if (!binding.sparse) continue;
    ulfd::model::v1::FeatureConfig& config = *builder_.model().manifest.add_features();
    config.set_name(binding.name);
    config.set_max_ids_per_row(static_cast<int32_t>(binding.columns.size()));
  }
}

// What a request may send as the ONNX model has it, though the converted one has it in parts.
void OnnxConverter::StateMatrices() {
  std::map<std::string, std::vector<const Binding*>> parts;
  for (const Binding& binding : bindings_) parts[binding.input].push_back(&binding);
  for (const auto& [name, bindings] : parts) {
    // What a request has no rows in front of is told by its columns.
    const bool moved = Lists(model_.rowless, name) || Lists(model_.moved, name);
    const bool whole = bindings.size() == 1 && bindings[0]->name == name;
    if (whole && !(moved && bindings[0]->sparse)) continue;
    const OnnxInput& input = inputs_.at(name);
    const auto is_number = [](const engine::Dim& dim) { return dim.IsConst(); };
    if (!std::all_of(input.dims.begin() + 1, input.dims.end(), is_number)) continue;
    ulfd::model::v1::InputMatrix& matrix = *builder_.model().manifest.add_matrices();
    matrix.set_name(name);
    matrix.set_columns(input.RowElements());
    for (const Binding* binding : bindings) {
      ulfd::model::v1::MatrixPart& part = *matrix.add_parts();
      part.set_name(binding->name);
      for (const int64_t column : binding->columns) part.add_columns(column);
    }
  }
}

Translation OnnxConverter::TakeTranslation() {
  Translation translation{.bindings = std::move(bindings_)};
  for (const onnx::ValueInfoProto& info : proto_.input()) {
    const auto found = inputs_.find(info.name());
    if (found == inputs_.end()) continue;
    const OnnxInput& input = found->second;
    SourceInput source{.name = input.name,
                       .type = input.element_type,
                       .level = input.level,
                       .rows = info.type().tensor_type().shape().dim(0).dim_param(),
                       .integers_below = LimitOf(input.name),
                       .places = graph_.PlacesOf(input.name),
                       .ids = features_.IdRanges(input.name)};
    for (const SchemaField& field : input.schema) {
      for (int64_t column = field.first; column < field.end(); ++column) {
        if (field.level == Level::kUser) source.user_columns.insert(column);
      }
    }
    for (size_t d = 1; d < input.dims.size(); ++d) {
      // What nothing reads may have dimensions without a number.
      source.row_shape.push_back(input.dims[d].IsConst() ? input.dims[d].value() : 1);
    }
    translation.inputs.push_back(std::move(source));
  }
  return translation;
}

struct Conversion {
  ConvertedModel model;
  Report report;
  Translation translation;
};

absl::StatusOr<Conversion> Translate(const OnnxModel& model, const ConvertOptions& options,
                                     const std::string& path) {
  // A copy whose branches are taken, and whose rows stay in their places, if there are any.
  std::optional<OnnxModel> straight;
  const bool cut = CutsParts(model.proto.graph());
  if (cut || HasLoops(model.proto.graph()) || ChoosesRows(model.proto.graph())) {
    straight = model;
    straight->inferred = false;
    onnx::GraphProto& graph = *straight->proto.mutable_graph();
    const bool bags = UnrollBags(graph, model.opset);
    const bool heads = cut && StackBesideRows(graph, model.opset);
    straight->keeps_rows = KeepAllRows(graph, model.opset);
    if (!bags && !heads && !straight->keeps_rows) straight.reset();
  }
  std::set<std::string> int64_inputs;
  std::optional<absl::StatusOr<Conversion>> rounding;  // The same without them.
  for (;;) {
    OnnxConverter converter(straight.has_value() ? *straight : model, options, path, int64_inputs);
    absl::StatusOr<ConvertedModel> converted = converter.Convert();
    if (absl::IsAborted(converted.status())) {
      if (!straight.has_value()) straight = model;
      RETURN_IF_ERROR(
          Annotate(TakeBranches(*straight->proto.mutable_graph(), converter.branches()), path));
      WritePlainly(*straight->proto.mutable_graph(), model.opset);
      ReadIdioms(*straight->proto.mutable_graph(), model.opset);
      continue;
    }
    const auto whole = [&]() -> absl::StatusOr<Conversion> {
      RETURN_IF_ERROR(converted.status());
      return Conversion{*std::move(converted), converter.TakeReport(), converter.TakeTranslation()};
    };
    absl::StatusOr<Conversion> conversion = whole();
    // Integers that float32 would round are int64, if more of them are taken then.
    const std::set<std::string> rounded = converter.RoundedInputs();
    if (rounding.has_value()) {
      const bool more = !rounding->ok() || rounded != int64_inputs;
      return conversion.ok() && more ? std::move(conversion) : *std::move(rounding);
    }
    if (rounded.empty()) return conversion;
    rounding = std::move(conversion);
    int64_inputs = rounded;
  }
}

absl::StatusOr<Conversion> TranslateWithinBudget(const OnnxModel& model,
                                                 const ConvertOptions& options,
                                                 const std::string& path) {
  const LoadScope budget(BudgetOf(model.proto));
  return WithinBudget(path, [&] { return Translate(model, options, path); });
}

// Has a model that runs with one number of rows alone take as many as a request has.  False: it
// is none.
bool FreeFixedRows(OnnxModel& model) {
  onnx::GraphProto& graph = *model.proto.mutable_graph();
  std::vector<std::string> inputs;
  for (const onnx::ValueInfoProto& input : graph.input()) {
    const auto& shape = input.type().tensor_type().shape();
    if (shape.dim_size() > 0 && !shape.dim(0).has_dim_value()) inputs.push_back(input.name());
  }
  const int64_t rows = inputs.empty() ? 0 : FixedRows(model, inputs);
  if (rows == 0) return false;
  graph.clear_value_info();
  model.inferred = false;
  model.notes.push_back(absl::StrCat("the model runs with ", rows,
                                     " rows alone, those of the export's example; they are taken ",
                                     "to be as many as a request has"));
  return FollowRows(graph, model.opset, rows, inputs, false).ok();
}

absl::StatusOr<Report> ConvertModel(const OnnxModel& model, const std::string& model_path,
                                    const std::string& out, const ConvertOptions& options) {
  ASSIGN_OR_RETURN(Conversion conversion, TranslateWithinBudget(model, options, model_path));
  Report& report = conversion.report;
  const auto finish = [&](const engine::Model& loaded) -> absl::StatusOr<std::string> {
    if (!options.verify) {
      report.notes.push_back("not proved: --no_verify");
      return report.ToString();
    }
    absl::StatusOr<std::string> proof =
        WithinMemory([&] { return Prove(model, conversion.translation, loaded); });
    if (absl::IsFailedPrecondition(proof.status())) {
      return FailedPrecondition(model_path,
                                ": the converted model is not the same as the ONNX model, and ",
                                "was not written: ", proof.status().message());
    }
    if (!proof.ok()) {
      const bool fails = absl::IsInvalidArgument(proof.status());  // With --no_verify, too.
      return absl::Status(proof.status().code(),
                          absl::StrCat(model_path, ": cannot be proved, and was not written: ",
                                       proof.status().message(),
                                       fails ? "" : "; --no_verify writes it without a proof"));
    }
    report.notes.push_back(*proof);
    return report.ToString();
  };
  RETURN_IF_ERROR(WriteModel(conversion.model, model_path, finish, out));
  return std::move(report);
}

}  // namespace

absl::StatusOr<Report> ConvertOnnx(const std::string& model_path, const std::string& out,
                                   const ConvertOptions& options) {
  ASSIGN_OR_RETURN(OnnxModel model, ReadOnnx(model_path, options));
  absl::StatusOr<Report> report = ConvertModel(model, model_path, out, options);
  if (report.ok() || absl::IsResourceExhausted(report.status())) return report;
  if (FreeFixedRows(model)) {
    absl::StatusOr<Report> freed = ConvertModel(model, model_path, out, options);
    if (freed.ok()) return freed;
  }
  if (model.rowless.empty()) return report;
  return absl::Status(
      report.status().code(),
      absl::StrCat(report.status().message(), "; without rows, and taken for the ",
                   "user's: ", absl::StrJoin(model.rowless, ", "), "; --ad_inputs says otherwise"));
}

}  // namespace ulfd::convert

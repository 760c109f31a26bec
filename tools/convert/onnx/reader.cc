// ONNX files.  The only place that calls ONNX's library, whose errors are exceptions.
// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/onnx/reader.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/bounded_parse.h"
#include "base/errors.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "engine/directory/model_directory.h"
#include "onnx/checker.h"
#include "onnx/defs/schema.h"
#include "onnx/shape_inference/implementation.h"
#include "tools/convert/onnx/model/budget.h"
#include "tools/convert/onnx/model/constant.h"
#include "tools/convert/onnx/model/functions.h"
#include "tools/convert/onnx/rewrites/rewrites.h"
#include "tools/convert/onnx/rows/example_rows.h"
#include "tools/convert/onnx/rows/rows_in_front.h"

namespace ulfd::convert {
namespace {

constexpr int64_t kMaxFileBytes = (int64_t{1} << 31) - 1;  // Protobuf's own limit.

// Where an external initializer's bytes are.
struct ExternalData {
  std::string location;
  int64_t offset = 0, length = -1;
};

absl::StatusOr<ExternalData> ReadEntries(const onnx::TensorProto& tensor) {
  ExternalData data;
  for (const onnx::StringStringEntryProto& entry : tensor.external_data()) {
    int64_t* number = entry.key() == "offset"   ? &data.offset
                      : entry.key() == "length" ? &data.length
                                                : nullptr;
    if (entry.key() == "location") data.location = entry.value();
    if (number == nullptr) continue;
    if (!absl::SimpleAtoi(entry.value(), number) || *number < 0) {
      return InvalidArgument("external data: ", entry.key(), " \"", entry.value(),
                             "\", want a number of bytes");
    }
  }
  return data;
}

// Replaces the reference to a file by the bytes.
absl::Status LoadExternal(const std::string& directory, onnx::TensorProto& tensor) {
  ASSIGN_OR_RETURN(const ExternalData data, ReadEntries(tensor));
  ASSIGN_OR_RETURN(const std::string path,
                   engine::PathWithin(directory, directory, data.location, "external data"));
  ASSIGN_OR_RETURN(const int64_t wanted, TensorBytes(tensor));
  if (data.length >= 0 && data.length != wanted) {
    return InvalidArgument("external data: length ", data.length, ", want ", wanted,
                           " bytes for its shape");
  }
  const absl::StatusOr<InputFile> file = InputFile::Open(path);
  if (absl::IsNotFound(file.status())) {
    return InvalidArgument("external data: there is no file ", data.location, " beside the model");
  }
  RETURN_IF_ERROR(Annotate(file.status(), "external data"));
  const int64_t size = file->size();
  if (data.offset > size || wanted > size - data.offset) {
    return InvalidArgument("external data: ", data.location, " has ", size, " bytes, want ", wanted,
                           " from byte ", data.offset);
  }
  std::string bytes(static_cast<size_t>(wanted), '\0');
  ASSIGN_OR_RETURN(const size_t got, file->ReadAt(data.offset, bytes.data(), bytes.size()));
  if (got < bytes.size()) {
    return Unavailable("external data: ", path, ": changed while read");
  }
  tensor.set_raw_data(std::move(bytes));
  tensor.clear_external_data();
  tensor.clear_data_location();
  return absl::OkStatus();
}

// Its bytes are there, and as many as its shape says: libonnx reads past the end of fewer.
absl::Status CompleteTensor(const std::string& directory, onnx::TensorProto& tensor) {
  if (tensor.data_location() == onnx::TensorProto::EXTERNAL) return LoadExternal(directory, tensor);
  // Types that are no numbers are refused where they are used.
  return tensor.has_raw_data() && TensorBytes(tensor).ok() ? CheckRawData(tensor)
                                                           : absl::OkStatus();
}

absl::Status CompleteTensors(const std::string& directory, onnx::GraphProto& graph);

// An attribute of a node may hold tensors, and graphs with tensors.  libonnx divides by strides.
absl::Status CompleteTensors(const std::string& directory, onnx::AttributeProto& attribute) {
  if (attribute.name() == "strides") {
    for (const int64_t stride : attribute.ints()) {
      if (stride < 1) {
        return InvalidArgument("attribute strides: ", stride, ", want at least 1");
      }
    }
  }
  if (attribute.has_t()) RETURN_IF_ERROR(CompleteTensor(directory, *attribute.mutable_t()));
  for (onnx::TensorProto& tensor : *attribute.mutable_tensors()) {
    RETURN_IF_ERROR(CompleteTensor(directory, tensor));
  }
  if (attribute.has_g()) RETURN_IF_ERROR(CompleteTensors(directory, *attribute.mutable_g()));
  for (onnx::GraphProto& graph : *attribute.mutable_graphs()) {
    RETURN_IF_ERROR(CompleteTensors(directory, graph));
  }
  return absl::OkStatus();
}

absl::Status CompleteTensors(const std::string& directory,
                             google::protobuf::RepeatedPtrField<onnx::NodeProto>& nodes) {
  for (onnx::NodeProto& node : nodes) {
    const std::string& name =
        node.name().empty() && node.output_size() > 0 ? node.output(0) : node.name();
    for (onnx::AttributeProto& attribute : *node.mutable_attribute()) {
      RETURN_IF_ERROR(Annotate(CompleteTensors(directory, attribute), "node \"", name, "\""));
    }
  }
  return absl::OkStatus();
}

absl::Status CompleteTensors(const std::string& directory, onnx::GraphProto& graph) {
  if (graph.sparse_initializer_size() > 0) {
    return Unimplemented("initializer \"", graph.sparse_initializer(0).values().name(),
                         "\" is sparse, want a dense one");
  }
  for (onnx::TensorProto& tensor : *graph.mutable_initializer()) {
    RETURN_IF_ERROR(
        Annotate(CompleteTensor(directory, tensor), "initializer \"", tensor.name(), "\""));
  }
  return CompleteTensors(directory, *graph.mutable_node());
}

absl::Status CompleteTensors(const std::string& directory, onnx::ModelProto& model) {
  for (onnx::FunctionProto& function : *model.mutable_functions()) {
    RETURN_IF_ERROR(Annotate(CompleteTensors(directory, *function.mutable_node()),
                             absl::StrCat("function \"", function.name(), "\"")));
  }
  return CompleteTensors(directory, *model.mutable_graph());
}

// Names become names of layers and tensors, which end up in messages and replies.
absl::Status CheckNames(const onnx::GraphProto& graph) {
  std::vector<const std::string*> names = {&graph.name()};
  for (const onnx::NodeProto& node : graph.node()) {
    names.push_back(&node.name());
    names.push_back(&node.op_type());
    for (const std::string& name : node.input()) names.push_back(&name);
    for (const std::string& name : node.output()) names.push_back(&name);
    for (const onnx::AttributeProto& attribute : node.attribute()) {
      RETURN_IF_ERROR(CheckNames(attribute.g()));
    }
  }
  for (const auto* values : {&graph.input(), &graph.output()}) {
    for (const onnx::ValueInfoProto& value : *values) {
      names.push_back(&value.name());
      for (const auto& dim : value.type().tensor_type().shape().dim()) {
        names.push_back(&dim.dim_param());
      }
    }
  }
  for (const onnx::TensorProto& tensor : graph.initializer()) names.push_back(&tensor.name());
  for (const std::string* name : names) {
    if (!IsUtf8(*name)) {
      return InvalidArgument("name ", Quote(*name), " is not UTF-8");
    }
  }
  return absl::OkStatus();
}

// Numbers below 1 stand for any size, as runtimes take them.  What --dims may have to state of an
// input gets a name.
void NameDims(onnx::GraphProto& graph) {
  const auto name = [](auto& values, bool inputs) {
    for (onnx::ValueInfoProto& value : values) {
      if (!value.type().has_tensor_type() || !value.type().tensor_type().has_shape()) continue;
      auto& shape = *value.mutable_type()->mutable_tensor_type()->mutable_shape();
      for (int d = 0; d < shape.dim_size(); ++d) {
        auto& dim = *shape.mutable_dim(d);
        if (dim.has_dim_value() && dim.dim_value() < 1) dim.clear_dim_value();
        if (inputs && d > 0 && !dim.has_dim_value() && dim.dim_param().empty()) {
          dim.set_dim_param(absl::StrCat(value.name(), ":", d));
        }
      }
    }
  };
  name(*graph.mutable_input(), true);
  name(*graph.mutable_output(), false);
}

absl::Status SetDims(const std::map<std::string, int64_t>& dims, onnx::GraphProto& graph) {
  std::set<std::string> names;
  const auto set = [&](auto& values, bool inputs) {
    for (onnx::ValueInfoProto& value : values) {
      if (!value.type().has_tensor_type() || !value.type().tensor_type().has_shape()) continue;
      auto& shape = *value.mutable_type()->mutable_tensor_type()->mutable_shape();
      for (auto& dim : *shape.mutable_dim()) {
        if (inputs && dim.has_dim_param()) names.insert(dim.dim_param());
        const auto found = dims.find(dim.dim_param());
        if (dim.has_dim_param() && found != dims.end()) dim.set_dim_value(found->second);
      }
    }
  };
  set(*graph.mutable_input(), true);
  set(*graph.mutable_output(), false);
  set(*graph.mutable_value_info(), false);
  for (const auto& [name, value] : dims) {
    if (names.contains(name)) continue;
    return InvalidArgument("--dims names \"", name, "\", which is no dimension of an input");
  }
  return absl::OkStatus();
}

// Whether ONNX's library accepts the model; then all values have the shapes that it inferred.  What
// it says otherwise does not decide: it is stricter than what runs models, and older than some.
bool Infer(onnx::ModelProto& model) {
  try {
    onnx::checker::check_model(model);
    // It reads the sizes of what it has no type for, where a node before went wrong: first without.
    for (const bool sizes : {false, true}) {
      const onnx::ShapeInferenceOptions options(/*check_type_val=*/true, /*strict_mode_val=*/1,
                                                /*data_prop_val=*/sizes);
      onnx::shape_inference::InferShapes(model, onnx::OpSchemaRegistry::Instance(), options);
    }
    return true;
  } catch (const std::exception&) {
    model.mutable_graph()->clear_value_info();
    return false;
  }
}

// Before operator set 11 axes count from the front; exporters write others, too, of which the
// library infers shapes that are not so.
bool CountsAxesFromTheEnd(const onnx::GraphProto& graph) {
  return absl::c_any_of(graph.node(), [](const onnx::NodeProto& node) {
    return (node.op_type() == "Unsqueeze" || node.op_type() == "Squeeze") &&
           absl::c_any_of(IntsAttribute(node, "axes"), [](int64_t axis) { return axis < 0; });
  });
}

// What Debian 12's library knows.
constexpr int64_t kLibrarySet = 17, kLibraryFormat = 8;

std::string NodeText(const onnx::NodeProto& node) {
  return absl::StrCat("node \"",
                      node.name().empty() && node.output_size() > 0 ? node.output(0) : node.name(),
                      "\" (", node.op_type(), "): ");
}

using AttributeType = onnx::AttributeProto::AttributeType;
using AttributeTypes = std::map<std::string, std::set<AttributeType>>;

// By name: those of all operators that the library knows, and of others that are converted.
AttributeTypes TypesByName() {
  AttributeTypes types;
  for (const onnx::OpSchema& schema : onnx::OpSchemaRegistry::get_all_schemas_with_history()) {
    for (const auto& [name, attribute] : schema.attributes()) types[name].insert(attribute.type);
  }
  const std::pair<AttributeType, const char*> newer[] = {
      {onnx::AttributeProto::INT,
       "aggregate_function antialias block_size kv_num_heads left_window_size num_groups "
       "output_dtype post_transform q_num_heads right_window_size"},
      {onnx::AttributeProto::INTS, "leaf_targetids nodes_falseleafs nodes_trueleafs tree_roots"},
      {onnx::AttributeProto::FLOAT, "scale softcap"},
      {onnx::AttributeProto::STRING, "approximate keep_aspect_ratio_policy"},
      {onnx::AttributeProto::TENSOR, "nodes_hitrates nodes_modes"}};
  for (const auto& [type, names] : newer) {
    for (const absl::string_view name : absl::StrSplit(names, ' ')) {
      types[std::string(name)].insert(type);
    }
  }
  return types;
}

// Each attribute is of its operator's type: of another one it would be read as 0, or as not there.
absl::Status CheckTypes(const onnx::NodeProto& node, const onnx::OpSchema* schema,
                        const AttributeTypes& by_name) {
  for (const onnx::AttributeProto& attribute : node.attribute()) {
    if (!attribute.has_type()) continue;  // Early versions of the format state none.
    std::set<AttributeType> wanted;
    if (schema != nullptr && schema->attributes().contains(attribute.name())) {
      wanted = {schema->attributes().at(attribute.name()).type};
    } else if (const auto found = by_name.find(attribute.name()); found != by_name.end()) {
      wanted = found->second;
    }
    if (wanted.empty() || wanted.contains(attribute.type())) continue;
    return InvalidArgument(NodeText(node), "attribute ", attribute.name(), " is of type ",
                           onnx::AttributeProto::AttributeType_Name(attribute.type()), ", want ",
                           onnx::AttributeProto::AttributeType_Name(*wanted.begin()));
  }
  return absl::OkStatus();
}

// Nodes have the inputs and outputs that their operators need, and a first output; those of bodies,
// too.
absl::Status CheckNodes(const onnx::GraphProto& graph, int64_t opset,
                        const AttributeTypes& by_name) {
  for (const onnx::NodeProto& node : graph.node()) {
    const bool standard = node.domain().empty() || node.domain() == "ai.onnx";
    const onnx::OpSchema* const schema =
        standard ? onnx::OpSchemaRegistry::Schema(
                       node.op_type(), static_cast<int>(std::min(opset, kLibrarySet)), "")
                 : nullptr;
    // Inputs are never fewer in later versions; what is new has one.
    const int least = schema != nullptr ? schema->min_input() : standard ? 1 : 0;
    int given = node.input_size();
    for (int i = 0; i < std::min(least, node.input_size()); ++i) {
      if (node.input(i).empty()) given = i;
    }
    const int made = schema != nullptr ? std::max(schema->min_output(), 1) : 1;
    if (given < least || node.output_size() < made || node.output(0).empty()) {
      return InvalidArgument(NodeText(node), given, " inputs and ", node.output_size(),
                             " outputs, want at least ", least, " and ", made);
    }
    const onnx::OpSchema* const types =
        standard ? schema : onnx::OpSchemaRegistry::Schema(node.op_type(), node.domain());
    RETURN_IF_ERROR(CheckTypes(node, types, by_name));
    for (const onnx::AttributeProto& attribute : node.attribute()) {
      RETURN_IF_ERROR(
          Annotate(CheckNodes(attribute.g(), opset, by_name), "attribute ", attribute.name()));
    }
  }
  return absl::OkStatus();
}

// Every name is made once, and before it is read.
absl::Status CheckStructure(const onnx::GraphProto& graph, int64_t opset) {
  RETURN_IF_ERROR(CheckNodes(graph, opset, TypesByName()));
  std::set<std::string> known;
  for (const onnx::ValueInfoProto& input : graph.input()) {
    if (!known.insert(input.name()).second) {
      return InvalidArgument("input \"", input.name(), "\" is there twice");
    }
  }
  for (const onnx::TensorProto& tensor : graph.initializer()) known.insert(tensor.name());
  for (const onnx::NodeProto& node : graph.node()) {
    for (const std::string& input : node.input()) {
      if (input.empty() || known.contains(input)) continue;
      return InvalidArgument(NodeText(node), "reads \"", input,
                             "\", which nothing before it makes");
    }
    for (const std::string& output : node.output()) {
      if (output.empty() || known.insert(output).second) continue;
      return InvalidArgument(NodeText(node), "makes \"", output, "\", which is there already");
    }
  }
  for (const onnx::ValueInfoProto& output : graph.output()) {
    if (known.contains(output.name())) continue;
    return InvalidArgument("output \"", output.name(), "\" is made by no node");
  }
  return absl::OkStatus();
}

// A first output that is left out gets a name: nodes are told apart by it.
void NameFirstOutputs(onnx::GraphProto& graph) {
  for (onnx::NodeProto& node : *graph.mutable_node()) {
    for (onnx::AttributeProto& attribute : *node.mutable_attribute()) {
      if (attribute.has_g()) NameFirstOutputs(*attribute.mutable_g());
    }
    if (node.output_size() < 2 || !node.output(0).empty()) continue;
    node.set_output(0, absl::StrCat("without", absl::StrJoin(node.output(), "/")));
  }
}

constexpr int64_t kOldest = 7;

// Whether operators of the older set are those of the oldest one that is converted.
bool IsAsOldest(const onnx::GraphProto& graph, int64_t opset) {
  return std::all_of(graph.node().begin(), graph.node().end(), [&](const onnx::NodeProto& node) {
    const onnx::OpSchema* const schema =
        onnx::OpSchemaRegistry::Schema(node.op_type(), kOldest, node.domain());
    return schema != nullptr && schema->since_version() <= opset;
  });
}

int64_t RowsOf(const onnx::ValueInfoProto& value) {
  const auto& shape = value.type().tensor_type().shape();
  return shape.dim_size() > 0 ? shape.dim(0).dim_value() : 0;
}

onnx::TensorShapeProto::Dimension& LeadingDim(onnx::ValueInfoProto& value) {
  return *value.mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim(0);
}

// Whether a number says how many rows it has, even if they are one for all.
bool HasRows(const onnx::ValueInfoProto& value) {
  const auto& tensor = value.type().tensor_type();
  return tensor.has_shape() && (tensor.shape().dim_size() == 0 || RowsOf(value) > 0);
}

// The rows of the export's example, if each input has as many, above 1, or is the user's one row,
// and no output has others; 0: it is not so.
int64_t SharedRows(const std::vector<onnx::ValueInfoProto*>& inputs,
                   const onnx::GraphProto& graph) {
  int64_t rows = 0;
  for (const onnx::ValueInfoProto* const input : inputs) rows = std::max(rows, RowsOf(*input));
  const auto has_them = [&](const onnx::ValueInfoProto& output) { return RowsOf(output) == rows; };
  const bool some_have_one =
      absl::c_any_of(inputs, [](const auto* input) { return RowsOf(*input) == 1; });
  const bool all =
      absl::c_all_of(inputs,
                     [&](const auto* input) { return has_them(*input) || RowsOf(*input) == 1; }) &&
      absl::c_all_of(graph.output(),
                     [&](const auto& output) { return has_them(output) || !HasRows(output); }) &&
      (!some_have_one || absl::c_any_of(graph.output(), has_them));
  return all && rows > 1 ? rows : 0;
}

// Rows that are the ads' are as many as a request has, whatever the export's example had.  What the
// exporter says of shapes behind them is not so, then.
absl::Status FreeRows(const ConvertOptions& options, OnnxModel& model) {
  onnx::GraphProto& graph = *model.proto.mutable_graph();
  std::vector<onnx::ValueInfoProto*> inputs = RequestInputs(graph);
  int64_t rows = SharedRows(inputs, graph);
  if (rows > 0) {
    model.notes.push_back(absl::StrCat("the ", rows, " rows that inputs and outputs have are ",
                                       "as many as a request has"));
    std::erase_if(inputs, [&](const auto* input) { return RowsOf(*input) != rows; });
  } else {
    // The users' inputs, too, if they have the rows of the ads' example.
    const auto is_ad = [&](const onnx::ValueInfoProto* input) {
      return RowsOf(*input) > 0 && absl::c_linear_search(options.ad_inputs, input->name());
    };
    const auto ad = absl::c_find_if(inputs, is_ad);
    if (ad == inputs.end()) return absl::OkStatus();
    rows = RowsOf(**ad);
    std::erase_if(inputs, [&](const onnx::ValueInfoProto* input) {
      return !is_ad(input) &&
             (RowsOf(*input) != rows || !absl::c_linear_search(options.user_inputs, input->name()));
    });
  }
  UnrollFixedBags(graph, model.opset);
  graph.clear_value_info();
  for (onnx::ValueInfoProto& output : *graph.mutable_output()) {
    if (output.type().tensor_type().shape().dim_size() > 0) LeadingDim(output).clear_value();
  }
  const auto follow = [&] {
    std::vector<std::string> names;
    for (onnx::ValueInfoProto* const input : inputs) {
      LeadingDim(*input).set_dim_param("ads");
      names.push_back(input->name());
    }
    return FollowRows(graph, model.opset, rows, names, true);
  };
  absl::Status followed = follow();
  const auto users = std::partition(inputs.begin(), inputs.end(), [&](const auto* input) {
    return !absl::c_linear_search(options.user_inputs, input->name());
  });
  if (followed.ok() || rows > 1 || users == inputs.end()) return followed;
  // With a row for each ad, users meet other users' ads: torch.mm(ads, user.t()).  It is one, then.
  std::for_each(users, inputs.end(), [](auto* user) { LeadingDim(*user).set_dim_value(1); });
  inputs.erase(users, inputs.end());
  return follow();
}

// Labels are strings for some exporters; beside them are scores.
void DropStrings(OnnxModel& model) {
  onnx::GraphProto& graph = *model.proto.mutable_graph();
  const auto is_string = [](const onnx::ValueInfoProto& output) {
    return output.type().tensor_type().elem_type() == onnx::TensorProto::STRING;
  };
  if (absl::c_all_of(graph.output(), is_string)) return;
  google::protobuf::RepeatedPtrField<onnx::ValueInfoProto> outputs;
  for (onnx::ValueInfoProto& output : *graph.mutable_output()) {
    if (is_string(output)) {
      model.notes.push_back(absl::StrCat("output \"", output.name(),
                                         "\" is left out: it is strings, which ULF lacks"));
    } else {
      outputs.Add()->Swap(&output);
    }
  }
  const bool dropped = outputs.size() < graph.output_size();
  graph.mutable_output()->Swap(&outputs);
  if (!dropped) return;
  DropUnread(graph);
  std::set<std::string> read;
  for (const onnx::NodeProto& node : graph.node()) {
    read.insert(node.input().begin(), node.input().end());
  }
  google::protobuf::RepeatedPtrField<onnx::TensorProto> constants;
  for (onnx::TensorProto& tensor : *graph.mutable_initializer()) {
    const bool labels =
        tensor.data_type() == onnx::TensorProto::STRING && !read.contains(tensor.name());
    if (!labels) constants.Add()->Swap(&tensor);
  }
  graph.mutable_initializer()->Swap(&constants);
}

absl::Status Complete(const std::string& directory, const ConvertOptions& options,
                      OnnxModel& model) {
  for (const onnx::OperatorSetIdProto& set : model.proto.opset_import()) {
    if (set.domain().empty() || set.domain() == "ai.onnx") model.opset = set.version();
  }
  constexpr int64_t kNewest = 28, kNewestFormat = 14;
  if (model.opset > 0 && model.opset < kOldest && IsAsOldest(model.proto.graph(), model.opset)) {
    model.opset = kOldest;
  }
  if (model.opset < kOldest || model.opset > kNewest) {
    return InvalidArgument("operator set ", model.opset, ", want ", kOldest, " to ", kNewest);
  }
  if (model.proto.ir_version() > kNewestFormat) {
    return InvalidArgument("format version ", model.proto.ir_version(), ", want at most ",
                           kNewestFormat);
  }
  RETURN_IF_ERROR(CheckNames(model.proto.graph()));
  RETURN_IF_ERROR(CompleteTensors(directory, model.proto));
  {
    const LoadScope budget(BudgetOf(model.proto));
    RETURN_IF_ERROR(InlineFunctions(model.proto));
  }
  RETURN_IF_ERROR(CheckNames(model.proto.graph()));
  NameFirstOutputs(*model.proto.mutable_graph());
  RETURN_IF_ERROR(CheckStructure(model.proto.graph(), model.opset));
  DropStrings(model);
  SkipCopies(*model.proto.mutable_graph());
  ReadIdioms(*model.proto.mutable_graph(), model.opset);
  WriteComposites(*model.proto.mutable_graph(), model.opset);
  WritePlainly(*model.proto.mutable_graph(), model.opset);
  NameDims(*model.proto.mutable_graph());
  RETURN_IF_ERROR(SetDims(options.dims, *model.proto.mutable_graph()));
  PutRowsInFront(options, model);
  RETURN_IF_ERROR(FreeRows(options, model));
  AddUserRows(options, model);
  RETURN_IF_ERROR(CheckStructure(model.proto.graph(), model.opset));
  constexpr int64_t kAxesFromTheEnd = 11;
  model.inferred = model.opset <= kLibrarySet && model.proto.ir_version() <= kLibraryFormat &&
                   (model.opset >= kAxesFromTheEnd || !CountsAxesFromTheEnd(model.proto.graph())) &&
                   Infer(model.proto);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<OnnxModel> ReadOnnx(const std::string& path, const ConvertOptions& options) {
  ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path, kMaxFileBytes));
  OnnxModel model;
  if (!ParseBounded(bytes, model.proto) || !model.proto.has_graph()) {
    return InvalidArgument(path, ": truncated, or not an ONNX model, or of too many small parts");
  }
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  const std::string directory = parent.empty() ? "." : parent.string();
  RETURN_IF_ERROR(Annotate(Complete(directory, options, model), path));
  return model;
}

}  // namespace ulfd::convert

// SPDX-License-Identifier: Apache-2.0
#include "tools/model/layer_docs.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/text_format.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "engine/layers/registry.h"
#include "tools/cli/text_table.h"

namespace ulfd::tools {

namespace {

using google::protobuf::FieldDescriptor;

struct ExampleInput {
  std::string name;
  bool user = false, bottom = true;
  std::vector<std::string> dims;  // After the rows.
};

std::vector<ExampleInput> ExampleInputs(absl::string_view text) {
  std::vector<ExampleInput> inputs;
  for (absl::string_view entry : absl::StrSplit(text, ';', absl::SkipEmpty())) {
    ExampleInput input;
    input.bottom = !absl::ConsumePrefix(&entry, "+");
    const std::vector<absl::string_view> parts = absl::StrSplit(entry, absl::MaxSplits(':', 1));
    absl::string_view name = parts[0];
    input.user = absl::ConsumeSuffix(&name, "@user");
    input.name = std::string(name);
    if (parts.size() > 1) input.dims = absl::StrSplit(parts[1], ',');
    inputs.push_back(std::move(input));
  }
  return inputs;
}

// Weights in text form: small numbers that differ, all above 0 (one may be a variance).
std::string WeightsText(absl::string_view shapes) {
  std::string blobs;
  int next = 0;
  for (absl::string_view shape : absl::StrSplit(shapes, ';', absl::SkipEmpty())) {
    int64_t elements = 1;
    absl::StrAppend(&blobs, "  blob_datas {");
    for (absl::string_view dim : absl::StrSplit(shape, ',')) {
      int64_t size = 0;
      if (absl::SimpleAtoi(dim, &size)) elements *= size;
      absl::StrAppend(&blobs, " shape: ", dim);
    }
    for (int64_t i = 0; i < elements; ++i) absl::StrAppend(&blobs, " data: 0.", 1 + next++ % 9);
    absl::StrAppend(&blobs, " }\n");
  }
  return blobs.empty()
             ? ""
             : absl::StrCat("layer_weights_params {\n  name: \"example\"\n", blobs, "}\n");
}

std::string Range(const engine::Arity& arity) {
  if (arity.max >= engine::Arity::kAny) return absl::StrCat(arity.min, " or more");
  if (arity.min == arity.max) return absl::StrCat(arity.min);
  return absl::StrCat(arity.min, " to ", arity.max);
}

// "float32 = 0.5", "list of int32", "text = \"V3\"".
std::string FieldText(const FieldDescriptor& field) {
  std::string type = field.type_name();
  if (field.message_type() != nullptr) type = field.message_type()->name();
  if (const google::protobuf::EnumDescriptor* choice = field.enum_type(); choice != nullptr) {
    std::vector<std::string> names;
    names.reserve(static_cast<size_t>(choice->value_count()));
    for (int i = 0; i < choice->value_count(); ++i) names.push_back(choice->value(i)->name());
    type = absl::StrJoin(names, " | ");
  }
  if (field.is_repeated()) return absl::StrCat("list of ", type);
  if (field.is_required()) return absl::StrCat(type, ", required");
  if (!field.has_default_value()) return absl::StrCat(type, ", optional");
  const google::protobuf::Message* const defaults =
      google::protobuf::MessageFactory::generated_factory()->GetPrototype(field.containing_type());
  std::string value;
  google::protobuf::TextFormat::PrintFieldValueToString(*defaults, &field, -1, &value);
  return absl::StrCat(type, " = ", value);
}

std::string ParameterText(int number) {
  const FieldDescriptor* message =
      number == 0 ? nullptr : ulf::LayerParameter::descriptor()->FindFieldByNumber(number);
  if (message == nullptr) return "";
  std::string text = absl::StrCat("  ", message->name(), " (field ", number, ")\n");
  for (int i = 0; i < message->message_type()->field_count(); ++i) {
    const FieldDescriptor& field = *message->message_type()->field(i);
    absl::StrAppend(&text, "    ", field.name(), ": ", FieldText(field), "\n");
  }
  return text;
}

std::string Indented(absl::string_view text, absl::string_view indent) {
  std::string out;
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    absl::StrAppend(&out, indent, line, "\n");
  }
  return out;
}

}  // namespace

std::vector<ExampleFile> LayerExample(const engine::LayerType& type) {
  const engine::LayerDoc& doc = type.doc;
  if (doc.example_inputs.empty()) return {};
  std::string tops, bottoms, manifest;
  for (const ExampleInput& input : ExampleInputs(doc.example_inputs)) {
    absl::StrAppend(&tops, " top: \"", input.name, "\"");
    if (input.bottom) absl::StrAppend(&bottoms, " bottom: \"", input.name, "\"");
    if (input.dims.empty()) continue;
    absl::StrAppend(&manifest, "inputs { name: \"", input.name, "\" level: INPUT_LEVEL_",
                    input.user ? "USER" : "AD", " row_shape: [", absl::StrJoin(input.dims, ", "),
                    "] }\n");
  }
  std::string layer_tops;
  for (int i = 0; i < type.outputs.min; ++i) {
    absl::StrAppend(&layer_tops, " top: \"y", i == 0 ? "" : absl::StrCat(i), "\"");
  }
  std::string graph = absl::StrCat("layer_params { type: \"input_layer\"", tops,
                                   " }\nlayer_params {\n  name: \"example\" type: \"", type.name,
                                   "\"", bottoms, layer_tops, "\n");
  if (!doc.example_param.empty()) absl::StrAppend(&graph, "  ", doc.example_param, "\n");
  absl::StrAppend(&graph, "}\n");
  if (!doc.example_tail.empty()) absl::StrAppend(&graph, doc.example_tail, "\n");
  std::vector<ExampleFile> files = {{"graph_ulf.txt", graph}};
  if (std::string weights = WeightsText(doc.example_weights); !weights.empty()) {
    files.push_back({"weights.pb", std::move(weights)});
  }
  if (!manifest.empty()) files.push_back({"model.textproto", std::move(manifest)});
  const std::vector<std::string> more = absl::StrSplit(doc.example_files, '|', absl::SkipEmpty());
  for (size_t i = 0; i + 1 < more.size(); i += 2) files.push_back({more[i], more[i + 1]});
  return files;
}

std::string LayerList(absl::Span<const engine::LayerType* const> more) {
  TextTable table({"type", "also", "inputs", "weights", "what it computes"});
  std::vector<const engine::LayerType*> types = engine::AllLayerTypes();
  types.insert(types.end(), more.begin(), more.end());
  for (const engine::LayerType* type : types) {
    table.AddRow({std::string(type->name), absl::StrReplaceAll(type->aliases, {{" ", ", "}}),
                  Range(type->inputs), Range(type->weights), std::string(type->summary)});
  }
  return table.ToString();
}

std::string LayerPage(const engine::LayerType& type) {
  const engine::LayerDoc& doc = type.doc;
  std::string page = absl::StrCat(type.name, ": ", type.summary, "\n");
  if (!type.aliases.empty()) {
    absl::StrAppend(&page, "also: ", absl::StrReplaceAll(type.aliases, {{" ", ", "}}), "\n");
  }
  absl::StrAppend(&page, "\nformula\n", Indented(doc.formula, "  "));
  absl::StrAppend(&page, "\ninputs (", Range(type.inputs), ")\n", Indented(doc.inputs, "  "));
  absl::StrAppend(&page, "\nweights (", Range(type.weights), ")\n",
                  Indented(doc.weights.empty() ? "none" : doc.weights, "  "));
  absl::StrAppend(&page, "\noutputs (", Range(type.outputs), ")\n");
  const std::string parameters =
      absl::StrCat(ParameterText(type.param_field), ParameterText(type.other_param_field));
  absl::StrAppend(&page, "\nparameters\n", parameters.empty() ? "  none\n" : parameters);
  if (type.composite || type.decomposable) {
    absl::StrAppend(&page, "\nmade of other layers: ",
                    type.composite ? "always" : "in tests, beside its kernel (decomposable)", "\n");
  }
  absl::StrAppend(&page, "\nsource\n", Indented(doc.source, "  "));
  absl::StrAppend(&page, "\nexample (a version directory that loads; --example=DIR writes it)\n");
  for (const ExampleFile& file : LayerExample(type)) {
    absl::StrAppend(&page, "  ", file.name, "\n", Indented(file.content, "    "));
  }
  return page;
}

}  // namespace ulfd::tools

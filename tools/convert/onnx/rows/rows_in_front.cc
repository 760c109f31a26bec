// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/onnx/rows/rows_in_front.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "tools/convert/onnx/model/functions.h"
#include "tools/convert/onnx/rewrites/rewriter.h"

namespace ulfd::convert {
namespace {

using Shape = onnx::TensorShapeProto;

const Shape& ShapeOf(const onnx::ValueInfoProto& value) {
  return value.type().tensor_type().shape();
}

Shape& ShapeOf(onnx::ValueInfoProto* value) {
  return *value->mutable_type()->mutable_tensor_type()->mutable_shape();
}

// Whether its shape is known: [] is one, too.
bool HasShape(const onnx::ValueInfoProto& value) { return value.type().tensor_type().has_shape(); }

// Squeeze or Unsqueeze, of the first axis.
onnx::NodeProto OnFirstAxis(const char* op, const std::string& input, const std::string& output,
                            OnnxModel& model) {
  onnx::NodeProto node;
  node.set_op_type(op);
  node.set_name(absl::StrCat(output, "/", op));
  node.add_input(input);
  node.add_output(output);
  if (model.opset < kAxesAreInputs) {
    SetInts(node, "axes", {0});
    return node;
  }
  onnx::TensorProto& axes = *model.proto.mutable_graph()->add_initializer();
  axes.set_name(absl::StrCat(node.name(), "/axes"));
  axes.set_data_type(onnx::TensorProto::INT64);
  axes.add_dims(1);
  axes.add_int64_data(0);
  node.add_input(axes.name());
  return node;
}

// What reads the input, reads what the node makes of it.
void ReadThrough(onnx::NodeProto node, const std::string& input, onnx::GraphProto& graph) {
  RenameValue(input, node.output(0), graph);
  google::protobuf::RepeatedPtrField<onnx::NodeProto> nodes;
  *nodes.Add() = std::move(node);
  nodes.MergeFrom(graph.node());
  graph.mutable_node()->Swap(&nodes);
}

std::string AsExported(const std::string& name) { return absl::StrCat(name, "/as_exported"); }

void DropFirstAxis(Shape& shape) { shape.mutable_dim()->DeleteSubrange(0, 1); }

// The name of the axis behind a batch; empty: there is none.
std::string AxisBehindBatch(const onnx::ValueInfoProto& value, const ConvertOptions& options) {
  const Shape& shape = ShapeOf(value);
  if (shape.dim_size() < 2 || shape.dim(1).has_dim_value()) return "";
  const Shape::Dimension& batch = shape.dim(0);
  if (batch.has_dim_value()) return batch.dim_value() == 1 ? shape.dim(1).dim_param() : "";
  const std::string name = absl::AsciiStrToLower(batch.dim_param());
  for (const char* ads : {"ads", "ad", "items", "candidates"}) {
    if (name == ads) return "";
  }
  return absl::c_linear_search(options.ad_inputs, value.name()) ? "" : shape.dim(1).dim_param();
}

// The axis that an input has behind the batch, and every output there or in front.
std::string AdsAxis(const std::vector<onnx::ValueInfoProto*>& inputs, const ConvertOptions& options,
                    const onnx::GraphProto& graph) {
  for (const onnx::ValueInfoProto* input : inputs) {
    std::string axis = AxisBehindBatch(*input, options);
    const auto has_it = [&](const onnx::ValueInfoProto& output) {
      const Shape& shape = ShapeOf(output);
      return AxisBehindBatch(output, options) == axis ||
             (shape.dim_size() > 0 && shape.dim(0).dim_param() == axis);
    };
    if (!axis.empty() && absl::c_all_of(graph.output(), has_it)) return axis;
  }
  return "";
}

// Behind the user's batch.
void PutAdsInFront(const ConvertOptions& options, OnnxModel& model) {
  onnx::GraphProto& graph = *model.proto.mutable_graph();
  const std::vector<onnx::ValueInfoProto*> inputs = RequestInputs(graph);
  const std::string axis = AdsAxis(inputs, options, graph);
  if (axis.empty()) return;
  for (onnx::ValueInfoProto* input : inputs) {
    if (AxisBehindBatch(*input, options) == axis) {
      DropFirstAxis(ShapeOf(input));
      const std::string& name = input->name();
      ReadThrough(OnFirstAxis("Unsqueeze", name, AsExported(name), model), name, graph);
      model.moved.push_back(name);
    } else if (Shape& shape = ShapeOf(input); shape.dim_size() > 0) {
      const Shape::Dimension& rows = shape.dim(0);
      if (!rows.has_dim_value() && rows.dim_param() != axis) shape.mutable_dim(0)->set_dim_value(1);
    }
  }
  for (onnx::ValueInfoProto& output : *graph.mutable_output()) {
    if (AxisBehindBatch(output, options) != axis) continue;
    DropFirstAxis(ShapeOf(&output));
    const std::string made = AsExported(output.name());
    RenameValue(output.name(), made, graph);
    *graph.add_node() = OnFirstAxis("Squeeze", made, output.name(), model);
  }
  graph.clear_value_info();
  model.notes.push_back(absl::StrCat("the axis \"", axis, "\" behind the batch has the ads of one ",
                                     "user: they come in front, and the batch is the user's row"));
}

// Behind a number of steps.
void PutRowsBeforeSteps(OnnxModel& model) {
  onnx::GraphProto& graph = *model.proto.mutable_graph();
  const std::vector<onnx::ValueInfoProto*> inputs = RequestInputs(graph);
  std::set<std::string> rows;  // Names of those in front.
  const auto add = [&](const onnx::ValueInfoProto& value) {
    if (ShapeOf(value).dim_size() > 0) rows.insert(ShapeOf(value).dim(0).dim_param());
  };
  for (const onnx::ValueInfoProto* input : inputs) add(*input);
  for (const onnx::ValueInfoProto& output : graph.output()) add(output);
  rows.erase("");
  for (onnx::ValueInfoProto* input : inputs) {
    Shape& shape = ShapeOf(input);
    if (shape.dim_size() == 0 || !shape.dim(0).has_dim_value()) continue;
    int axis = 1;
    while (axis < shape.dim_size() && !rows.contains(shape.dim(axis).dim_param())) ++axis;
    if (axis == shape.dim_size()) continue;
    std::vector<int64_t> back(shape.dim_size());
    for (int d = axis; d > 0; --d) shape.mutable_dim()->SwapElements(d, d - 1);
    for (int d = 0; d < shape.dim_size(); ++d) back[d] = d < axis ? d + 1 : d == axis ? 0 : d;
    onnx::NodeProto transpose;
    transpose.set_op_type("Transpose");
    transpose.add_input(input->name());
    transpose.add_output(AsExported(input->name()));
    transpose.set_name(transpose.output(0));
    SetInts(transpose, "perm", back);
    ReadThrough(std::move(transpose), input->name(), graph);
    model.moved.push_back(input->name());
    model.notes.push_back(absl::StrCat("the rows of input \"", input->name(), "\" come in front, ",
                                       "before its steps"));
  }
}

}  // namespace

void PutRowsInFront(const ConvertOptions& options, OnnxModel& model) {
  PutAdsInFront(options, model);
  PutRowsBeforeSteps(model);
}

void AddUserRows(const ConvertOptions& options, OnnxModel& model) {
  const std::vector<onnx::ValueInfoProto*> inputs = RequestInputs(*model.proto.mutable_graph());
  const auto has_rows = [](const onnx::ValueInfoProto* input) {
    return !HasShape(*input) ||
           (ShapeOf(*input).dim_size() > 0 && !ShapeOf(*input).dim(0).has_dim_value());
  };
  const bool some_have = absl::c_any_of(inputs, has_rows);
  for (onnx::ValueInfoProto* input : inputs) {
    const bool one = ShapeOf(*input).dim_size() > 0 && ShapeOf(*input).dim(0).dim_value() == 1;
    const bool user = some_have || absl::c_linear_search(options.user_inputs, input->name());
    const bool ad = absl::c_linear_search(options.ad_inputs, input->name());
    if (has_rows(input) || one || !user || ad) continue;
    const std::string& name = input->name();
    ReadThrough(OnFirstAxis("Squeeze", name, AsExported(name), model), name,
                *model.proto.mutable_graph());
    Shape shape;
    shape.add_dim()->set_dim_value(1);
    shape.MergeFrom(ShapeOf(*input));
    ShapeOf(input) = std::move(shape);
    model.rowless.push_back(name);
    model.notes.push_back(
        absl::StrCat("input \"", name, "\" has no rows: it is taken for the user's"));
  }
}

}  // namespace ulfd::convert

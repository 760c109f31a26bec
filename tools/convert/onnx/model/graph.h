// An ONNX graph on its way to ULF: what every name stands for, and what converters ask for.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_CONVERT_ONNX_MODEL_GRAPH_H_
#define ULFD_TOOLS_CONVERT_ONNX_MODEL_GRAPH_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/hash_map.h"
#include "onnx/onnx_pb.h"
#include "tools/convert/graph_builder.h"
#include "tools/convert/onnx/model/constant.h"

namespace ulfd::convert {

// A computed ONNX tensor: a view of a ULF tensor.  Transposes, added and dropped dimensions of 1
// and Expand only change the view; what reads it asks for the form that it needs.
struct OnnxValue {
  std::string tensor;  // Of the builder.
  Dims dims;           // As ONNX sees it.
  // Per ONNX axis: the tensor's axis, or -1 for a dimension that the tensor lacks.  A dimension
  // that is larger here than in the tensor is repeated; axes of the tensor that none names have
  // size 1.
  std::vector<int> axes;

  int rank() const { return static_cast<int>(dims.size()); }
};

// Integers of 8 and 16 bits, which single precision has.
bool IsShortInteger(int type);

// The view with axis `from` in the place `to`.
OnnxValue MoveAxis(OnnxValue x, int from, int to);

// The same places of every row of a tensor, as masked_select with a mask of constants takes them.
struct RowMask {
  Dims dims;
  std::vector<int64_t> places;  // In a row, flattened.
};

// Integers of which row r has r * scale, plus a value: x[arange(rows), i] is exported as a Gather
// with them along the rows and steps of x, merged, or as a GatherND with [r, i], and x[:, 2:4] = y
// as a ScatterND with [[r, 2], [r, 3]].  Where x has its steps in front, row r has r plus a value
// times the rows.
struct RowNumbers {
  engine::Dim count = engine::Dim::Ads();  // Rows: the users or the ads, or what each has, merged.
  int64_t scale = 1;                       // 0: the value times the rows, without their numbers.
  bool steps_first = false;
  std::string plus;  // Empty: nothing.  Of two along the last axis: what follows the number.
  // Of the integers; the first are the rows, along others they are repeated.  A multiple of the
  // rows: so many for each row, one after the other.
  Dims dims = {count};
  // What follows the row's number along the last axis: the same in every row, flattened.
  std::vector<std::vector<int64_t>> beside;
  int64_t shift = 0;        // Added to each.
  bool shape_only = false;  // They were added to others, for the shape of the sum.
};

// How large integers can be: factor * (the limit of these inputs) + plus.
struct IntegerBound {
  std::set<std::string> inputs;
  double factor = 0, plus = 0;
};

// How integers are computed of inputs that are int64, for expression_layer, which does it in
// double: what their own tensor holds is rounded.
struct IntegerFormula {
  // A name, and what only moves its elements since.
  struct Input {
    std::string name;
    std::vector<const onnx::NodeProto*> moves;
  };
  std::string text;
  std::vector<Input> inputs;  // @0, @1, ...
};

// Names to constants and values.  Errors do not name the node.
class OnnxGraph {
 public:
  OnnxGraph(GraphBuilder& builder, int64_t opset) : builder_(builder), opset_(opset) {}

  GraphBuilder& builder() { return builder_; }
  int64_t opset() const { return opset_; }

  void Define(const std::string& name, Constant constant);
  void Define(const std::string& name, OnnxValue value);
  // Null if the name stands for something else.
  const Constant* FindConstant(const std::string& name) const;
  const OnnxValue* FindValue(const std::string& name) const;

  // onnx::TensorProto::DataType of a name; 0: not known.
  void SetType(const std::string& name, int type) { types_[name] = type; }
  int TypeOf(const std::string& name) const;
  bool IsInteger(const std::string& name) const;
  // Integers of the input `input`, as single precision has them: exact up to 2^24, rounded beyond.
  // Null: the value is exact, or no integer.
  void MarkRounded(const std::string& name, const std::string& input) { rounded_[name] = input; }
  // Integers of the input, as it is: rounded, unless it is limited.
  void MarkInput(const std::string& name, const std::string& input) {
    MarkRounded(name, input);
    SetBound(name, {.inputs = {input}, .factor = 1});
  }
  const std::string* RoundedFrom(const std::string& name) const;
  // Rounded integers that small numbers have been added to.
  void MarkStepped(const std::string& name) { stepped_.insert(name); }
  bool IsStepped(const std::string& name) const { return stepped_.contains(name); }
  // Bounds of integers that are computed from inputs, and the inputs' own.
  void SetBound(const std::string& name, IntegerBound bound) { bounds_[name] = std::move(bound); }
  const IntegerBound* BoundOf(const std::string& name) const;
  // Requests with integers of these inputs that are not below are refused.
  void LimitInputs(const IntegerBound& of, int64_t below);
  // Sums over the rows of a request.
  void MarkRowSum(const std::string& name) { row_sums_.insert(name); }
  bool IsRowSum(const std::string& name) const { return row_sums_.contains(name); }
  // Integers that are exact for this.
  void MarkExact(const std::string& name) { exact_.insert(name); }
  bool IsExact(const std::string& name) const { return exact_.contains(name); }
  // By input: what its integers must be below.
  const std::map<std::string, int64_t>& limits() const { return limits_; }

  // Inputs that are int64.
  void SetInt64Inputs(std::set<std::string> inputs) { int64_inputs_ = std::move(inputs); }
  bool IsInt64(const std::string& input) const { return int64_inputs_.contains(input); }
  // `name` has these integers of such an input, in float32, and `wide` as they are.
  void SetInt64(const std::string& name, OnnxValue wide);
  // How integers are computed of them; null: not so.
  void SetFormula(const std::string& name, IntegerFormula formula) {
    formulas_[name] = std::move(formula);
  }
  const IntegerFormula* FindFormula(const std::string& name) const;
  // The node that makes it is that formula: its own operator would round.
  void UseFormula(const std::string& name) { formulas_used_.insert(name); }
  bool UsesFormula(const std::string& name) const { return formulas_used_.contains(name); }

  // Integers that are all below 2^24, as rows and numbers of tables are.
  void MarkSmall(const std::string& name) { small_.insert(name); }
  bool IsSmall(const std::string& name) const { return small_.contains(name); }
  // In half precision, and nothing has computed with it there: the model wants the rounding.
  void MarkOnlyHalved(const std::string& name) { only_halved_.insert(name); }
  bool IsOnlyHalved(const std::string& name) const { return only_halved_.contains(name); }
  // Integers of the input tell places among so many steps.
  void NotePlaces(const std::string& input, int64_t steps);
  // The fewest that were noted; 0: none.
  int64_t PlacesOf(const std::string& input) const;

  // Indices that are a mask; null: they are not.
  void SetMask(const std::string& name, RowMask mask) { masks_[name] = std::move(mask); }
  const RowMask* FindMask(const std::string& name) const;

  // Null: they are no numbers of rows.
  void SetRowNumbers(const std::string& name, RowNumbers rows) { rows_[name] = std::move(rows); }
  const RowNumbers* FindRowNumbers(const std::string& name) const;

  // The whole tensor as a value, with the shape that the engine inferred.
  OnnxValue Whole(const std::string& tensor) const;
  // The same, with dimensions that the caller knows better (repeated ones).
  OnnxValue Whole(const std::string& tensor, Dims dims) const;
  // A value for any name: a constant becomes a constant_layer.
  absl::StatusOr<OnnxValue> ValueOf(const std::string& name);
  absl::StatusOr<OnnxValue> ValueOf(const Constant& constant, absl::string_view base);

  // What a tensor that ValueOf made of a constant holds; null for any other.
  const Constant* ConstantBehind(const std::string& tensor) const;

  // A tensor whose axis i is axis i of the value; repeated dimensions have size 1 (or are the
  // user's row).  Adds a transpose or reshape layer where the view is not that already.
  absl::StatusOr<std::string> Plain(const OnnxValue& value);
  // Plain, and nothing repeated.
  absl::StatusOr<std::string> Full(const OnnxValue& value);
  // The same value, with the rows of the request first in the tensor behind it, where they are
  // elsewhere: layers that cut want them there.
  absl::StatusOr<OnnxValue> RowsInFront(const OnnxValue& value);
  // Whether the axis is repeated.
  bool IsRepeated(const OnnxValue& value, int axis) const;
  // Whether the tensor behind the value has the user's row in front.
  bool RowsAreUsers(const OnnxValue& value) const;
  // Value with the axes (and Full if one of them is repeated), for layers that compute along them.
  absl::StatusOr<std::string> PlainAlong(const OnnxValue& value, absl::Span<const int> axes);

  // Whether all inputs of the user have one row by the model, not only by the conversion's options.
  bool user_has_one_row() const { return user_has_one_row_; }
  void SetUserRowsByName() { user_has_one_row_ = false; }

  // A tensor [1]: how many ads the request has.
  absl::StatusOr<std::string> AdCount();
  // [ads]: 0, 1, 2, ...
  absl::StatusOr<OnnxValue> AdNumbers();
  // A tensor of [ads, k] or more, of which only the rows matter: the first ad input or feature.
  void SetAdReference(const std::string& tensor);

  // The tensor for an ONNX name: called the same unless a tensor of that name is there already.
  std::string Top(const std::string& name) const {
    return builder_.Find(name) == nullptr ? name : builder_.FreshTensor(name);
  }

 private:
  std::vector<int> UserInFront(const OnnxValue& value) const;
  absl::StatusOr<std::string> FullMerged(OnnxValue value);
  absl::StatusOr<std::string> FullBehind(const OnnxValue& value, int axis);
  absl::StatusOr<std::string> AdColumn(const std::string& base);
  absl::StatusOr<std::string> AdOnes();
  absl::StatusOr<std::string> ExpandRows(const std::string& tensor);
  absl::StatusOr<OnnxValue> RowCounts(const Constant& constant, const std::string& tensor);

  GraphBuilder& builder_;
  const int64_t opset_;
  bool user_has_one_row_ = true;
  std::string ad_reference_, ad_ones_, ad_count_, ad_numbers_;
  HashMap<std::string, Constant> constants_;
  HashMap<std::string, OnnxValue> values_;
  HashMap<std::string, Constant> behind_;  // By tensor.
  HashMap<std::string, RowMask> masks_;
  HashMap<std::string, RowNumbers> rows_;
  HashMap<std::string, int> types_;
  HashMap<std::string, std::string> rounded_;
  HashMap<std::string, IntegerBound> bounds_;
  std::map<std::string, int64_t> limits_;
  std::set<std::string> int64_inputs_;
  HashMap<std::string, IntegerFormula> formulas_;
  HashSet<std::string> stepped_, small_, exact_, row_sums_, only_halved_, formulas_used_;
  HashMap<std::string, int64_t> places_;  // By input.
};

// What a converter of one node works on.
struct OnnxNode {
  OnnxGraph& graph;
  const onnx::NodeProto& node;
  // All uses of a name in the graph, outputs included.
  const HashMap<std::string, int>& uses;
  const HashMap<std::string, const onnx::NodeProto*>& only_reader;
  std::string name;          // The node's own, or its first output's.
  std::string note;          // For the report.
  bool across_rows = false;  // Whether the converter made layers that run across rows.
  // The node whose work was done here, too (MatMul: the Add of its bias), or null.
  const onnx::NodeProto* absorbed = nullptr;

  // The same for another node that stands for a part of this one; it must outlive the result.
  OnnxNode With(const onnx::NodeProto& part) const {
    return {.graph = graph, .node = part, .uses = uses, .only_reader = only_reader, .name = name};
  }
  GraphBuilder& builder() { return graph.builder(); }
  bool Has(int i) const { return i < node.input_size() && !node.input(i).empty(); }
  const Constant* constant(int i) const {
    return Has(i) ? graph.FindConstant(node.input(i)) : nullptr;
  }
  absl::StatusOr<OnnxValue> value(int i);
  // The output's tensor name; `out` of the absorbing node where there is one.
  const std::string& output(int i = 0) const {
    return absorbed != nullptr ? absorbed->output(0) : node.output(i);
  }
  std::string Top(int i = 0) const { return graph.Top(output(i)); }
  // A tensor name for something in between.
  std::string Scratch(absl::string_view what) const;
  // Output i is the tensor, or that with dimensions known better.
  void Set(const std::string& tensor, int i = 0);
  void Set(const std::string& tensor, Dims dims, int i = 0);
  void Set(OnnxValue value, int i = 0);
};

struct OnnxType {
  const char* op;
  absl::Status (*convert)(OnnxNode& node);
};

absl::Span<const OnnxType> ElementwiseOnnxTypes();  // elementwise.cc
absl::Span<const OnnxType> MatrixOnnxTypes();       // matrix.cc
absl::Span<const OnnxType> ShapeOnnxTypes();        // shape.cc
absl::Span<const OnnxType> NormOnnxTypes();         // norm.cc
absl::Span<const OnnxType> LossOnnxTypes();         // loss.cc
absl::Span<const OnnxType> ImageOnnxTypes();        // image.cc
absl::Span<const OnnxType> ResizeOnnxTypes();       // resize.cc
absl::Span<const OnnxType> SelectOnnxTypes();       // select.cc
absl::Span<const OnnxType> RecurrentOnnxTypes();    // recurrent.cc

// The row of one of these tables; null: none has the operator.
const OnnxType* FindOnnxType(const std::string& op);  // operators/layers.cc

// The node's layers, as the formula of its output has them.
absl::Status ConvertFormula(OnnxNode& node);  // elementwise.cc

// Converts what makes numbers of rows or reads them; false: the node does neither.
absl::StatusOr<bool> ConvertRowNumbers(OnnxNode& node);  // row_numbers.cc

// Sizes as reshape_layer takes them: 0 where the dimension stays in its place, -1 for the one that
// depends on the request.  INVALID_ARGUMENT if two do.
absl::StatusOr<std::vector<int64_t>> ReshapeSizes(const engine::Shape& from, const Dims& to);

}  // namespace ulfd::convert

#endif  // ULFD_TOOLS_CONVERT_ONNX_MODEL_GRAPH_H_

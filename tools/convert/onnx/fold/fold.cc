// Operators computed while converting, on constants.  Numbers are left to the interpreter; here is
// what it does not know: sizes that depend on the request, and one value for whatever rows it has.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "onnx/onnx_pb.h"
#include "tools/convert/onnx/model/constant.h"
#include "tools/convert/onnx/proof/interpreter.h"

namespace ulfd::convert {
namespace {

using engine::Dim;

struct Call {
  const onnx::NodeProto& node;
  int64_t opset;
  absl::Span<const Constant* const> in;  // Null: left out.
  bool Has(size_t i) const { return i < in.size() && in[i] != nullptr; }
};
using Outputs = absl::StatusOr<std::vector<Constant>>;
Outputs One(Constant constant) { return std::vector<Constant>{std::move(constant)}; }

// ---------------------------------------------------------------------------------- numbers

absl::StatusOr<reference::Array> ArrayOf(const Constant& c) {
  RETURN_IF_ERROR(WantNumbers(c));
  if (!c.is_float) {
    ASSIGN_OR_RETURN(std::vector<int64_t> values, c.ToInts());
    return reference::Ints(onnx::TensorProto::INT64, c.sizes(), std::move(values));
  }
  reference::Array array{.dims = c.sizes(), .stored = c.floats};
  if (c.uniform) {
    ASSIGN_OR_RETURN(std::vector<float> values, c.ToFloats());
    array.stored = std::make_shared<const std::vector<float>>(std::move(values));
  }
  return array;
}

Constant ConstantOf(const reference::Array& array) {
  if (!array.is_float()) {
    std::vector<Dim> values;
    values.reserve(array.ints->size());
    for (const int64_t value : *array.ints) values.push_back(Dim::Of(value));
    return IntConstant(array.dims, std::move(values));
  }
  Constant constant = FloatConstant(array.dims, {});
  constant.floats = array.stored != nullptr ? array.stored
                                            : std::make_shared<const std::vector<float>>(
                                                  array.floats->begin(), array.floats->end());
  return constant;
}

Outputs ByDefinition(const Call& call) {
  constexpr auto kTime = std::chrono::seconds(5);
  std::vector<reference::Array> arrays(call.in.size());
  std::vector<const reference::Array*> given(call.in.size(), nullptr);
  for (size_t i = 0; i < call.in.size(); ++i) {
    if (!call.Has(i)) continue;
    ASSIGN_OR_RETURN(arrays[i], ArrayOf(*call.in[i]));
    given[i] = &arrays[i];
  }
  reference::RunOptions options;
  options.budget.deadline = std::chrono::steady_clock::now() + kTime;
  options.budget.max_elements = kMaxElements;
  ASSIGN_OR_RETURN(const std::vector<reference::Array> results,
                   reference::Compute(call.node, call.opset, options, std::move(given)));
  std::vector<Constant> outputs;
  // Operators have outputs that nodes do not ask for.
  const size_t asked = std::max<size_t>(1, static_cast<size_t>(call.node.output_size()));
  for (size_t i = 0; i < std::min(asked, results.size()); ++i) {
    outputs.push_back(ConstantOf(results[i]));
  }
  return outputs;
}

// ---------------------------------------------------------------------------------- sizes

// An operator that moves elements without a look at them: inputs [first, end), but for one.
struct Move {
  const char* op;
  size_t first, end, but = SIZE_MAX;
};
constexpr Move kMoves[] = {
    {"Reshape", 0, 1}, {"Flatten", 0, 1},   {"Squeeze", 0, 1},        {"Unsqueeze", 0, 1},
    {"Expand", 0, 1},  {"Transpose", 0, 1}, {"Concat", 0, SIZE_MAX},  {"Slice", 0, 1},
    {"Split", 0, 1},   {"Gather", 0, 1},    {"GatherElements", 0, 1}, {"Tile", 0, 1},
    {"Where", 1, 3},   {"Identity", 0, 1},  {"Dropout", 0, 1},        {"ScatterElements", 0, 3, 1},
};

bool HasSizes(const Constant* c) {
  return c != nullptr && std::any_of(c->ints.begin(), c->ints.end(),
                                     [](const Dim& value) { return !value.IsConst(); });
}

// Moves the places of sizes in a list of all.
Outputs MoveSizes(const Call& call, const Move& move) {
  std::vector<Dim> sizes;
  std::vector<Constant> places(call.in.size());
  std::vector<const Constant*> in(call.in.begin(), call.in.end());
  for (size_t i = move.first; i < std::min(move.end, in.size()); ++i) {
    if (i == move.but) continue;
    if (in[i] == nullptr || in[i]->is_float) {
      return InvalidArgument("sizes beside what is none");
    }
    places[i] = *in[i];
    for (Dim& value : places[i].ints) {
      sizes.push_back(value);
      value = Dim::Of(static_cast<int64_t>(sizes.size()) - 1);
    }
    in[i] = &places[i];
  }
  ASSIGN_OR_RETURN(std::vector<Constant> outputs, ByDefinition({call.node, call.opset, in}));
  for (Constant& output : outputs) {
    for (Dim& value : output.ints) value = sizes[static_cast<size_t>(value.value())];
  }
  return outputs;
}

absl::StatusOr<Dim> SizeOf(const std::string& op, Dim a, Dim b) {
  for (const Dim& d : {a, b}) {
    // What is larger is no size, and a product might not fit.
    if (std::abs(static_cast<double>(d.value())) <= static_cast<double>(kMaxRowElements)) continue;
    return InvalidArgument(op, " of ", a.ToString(), " and ", b.ToString(), ", want sizes");
  }
  const bool numbers = a.IsConst() && b.IsConst();
  if (op == "Mul") return engine::Multiply(a, b);
  if (op == "Add" && (numbers || b == Dim::Of(0))) {
    return numbers ? Dim::Of(a.value() + b.value()) : a;
  }
  if (op == "Sub" && (numbers || b == Dim::Of(0))) {
    return numbers ? Dim::Of(a.value() - b.value()) : a;
  }
  if (op == "Div" && b != Dim::Of(0)) {
    if (numbers) return Dim::Of(a.value() / b.value());
    const std::optional<Dim> quotient = engine::Divide(a, b);
    if (quotient.has_value() && !quotient->IsUnknown()) return *quotient;
  }
  if (op == "Equal") {
    if (a == b && !a.IsUnknown()) return Dim::Of(1);
    // A number of rows is at least 0, so that it is no marker such as -1.
    if (numbers || (a.IsConst() && a.value() < 0) || (b.IsConst() && b.value() < 0)) {
      return Dim::Of(0);
    }
  }
  return InvalidArgument(op, " of ", a.ToString(), " and ", b.ToString(),
                         " depends on the request");
}

Outputs ComputeSizes(const Call& call) {
  const Constant &a = *call.in[0], &b = *call.in[1];
  if (a.is_float || b.is_float) return InvalidArgument("sizes beside what is none");
  ASSIGN_OR_RETURN(const reference::Sizes dims, reference::BroadcastSizes(a.sizes(), b.sizes()));
  const reference::Sizes strides[] = {reference::BroadcastStrides(a.sizes(), dims),
                                      reference::BroadcastStrides(b.sizes(), dims)};
  std::vector<Dim> values;
  absl::Status status;
  reference::Walk(dims, strides, [&](const int64_t* at) {
    const absl::StatusOr<Dim> value = SizeOf(call.node.op_type(), a.dim(at[0]), b.dim(at[1]));
    status.Update(value.status());
    values.push_back(value.value_or(Dim()));
  });
  RETURN_IF_ERROR(status);
  return One(IntConstant(dims, std::move(values)));
}

// How many elements a list of sizes stands for: the dimensions that a Dense layer of Keras merges.
Outputs MultiplySizes(const Call& call) {
  const Constant& x = *call.in[0];
  if (x.is_float || x.dims.size() != 1 || IntAttribute(call.node, "noop_with_empty_axes", 0) != 0) {
    return Unimplemented("a product of what is no list of sizes");
  }
  Dim product = Dim::Of(1);
  for (const Dim& size : x.ints) {
    ASSIGN_OR_RETURN(product, SizeOf("Mul", product, size));
  }
  const bool kept = IntAttribute(call.node, "keepdims", 1) != 0;
  return One(IntConstant(kept ? reference::Sizes{1} : reference::Sizes{}, {product}));
}

// torch.onnx.export writes it of the -1 of an Expand, which keeps a dimension.
Outputs AbsoluteSizes(const Constant& x) {
  Constant out = x;
  for (Dim& value : out.ints) {
    if (value.IsConst() && value.value() < 0) {
      ASSIGN_OR_RETURN(value, SizeOf("Mul", value, Dim::Of(-1)));
    }
  }
  return One(std::move(out));
}

Outputs CastSizes(const Constant& x, int64_t to) {
  Constant out = x;
  for (Dim& value : out.ints) {
    if (to == onnx::TensorProto::BOOL) value = Dim::Of(value == Dim::Of(0) ? 0 : 1);
  }
  return One(std::move(out));
}

// ---------------------------------------------------------------------------------- one value

bool IsOneValue(const Constant* c) {
  return c == nullptr || c->uniform || (IsNumbers(c->dims) && c->elements() == 1);
}

bool IsElementwise(const std::string& op) {
  const auto table = reference::ElementwiseOperators();
  return std::any_of(table.begin(), table.end(),
                     [&](const reference::Operator& entry) { return op == entry.op; });
}

// An elementwise operator on inputs of one value each: that is computed once.
Outputs ComputeOnce(const Call& call) {
  std::vector<Constant> values(call.in.size());
  std::vector<const Constant*> in(call.in.size(), nullptr);
  Dims dims;
  for (size_t i = 0; i < call.in.size(); ++i) {
    if (!call.Has(i)) continue;
    ASSIGN_OR_RETURN(dims, BroadcastDims(dims, call.in[i]->dims));
    values[i] = *call.in[i];
    values[i].dims.clear();
    values[i].uniform = false;
    in[i] = &values[i];
  }
  ASSIGN_OR_RETURN(std::vector<Constant> outputs, FoldNode(call.node, call.opset, in));
  for (Constant& output : outputs) {
    output.dims = dims;
    output.uniform = true;
  }
  return outputs;
}

absl::StatusOr<std::vector<int64_t>> ListOf(const Call& call, size_t input, const char* attribute) {
  if (call.Has(input)) return call.in[input]->ToInts();
  return IntsAttribute(call.node, attribute);
}

absl::StatusOr<Dims> Unsqueezed(const Call& call) {
  ASSIGN_OR_RETURN(const std::vector<int64_t> stated, ListOf(call, 1, "axes"));
  Dims dims = call.in[0]->dims;
  ASSIGN_OR_RETURN(const std::vector<int> axes,
                   WantAxes(stated, static_cast<int64_t>(dims.size() + stated.size())));
  for (const int axis : axes) dims.insert(dims.begin() + axis, Dim::Of(1));
  return dims;
}

absl::StatusOr<Dims> Squeezed(const Call& call) {
  ASSIGN_OR_RETURN(const std::vector<int64_t> stated, ListOf(call, 1, "axes"));
  const Dims& dims = call.in[0]->dims;
  ASSIGN_OR_RETURN(const std::vector<int> axes,
                   WantAxes(stated, static_cast<int64_t>(dims.size())));
  Dims kept;
  for (size_t d = 0; d < dims.size(); ++d) {
    const bool named =
        axes.empty() || std::binary_search(axes.begin(), axes.end(), static_cast<int>(d));
    if (!named || dims[d] != Dim::Of(1)) kept.push_back(dims[d]);
  }
  return kept;
}

absl::StatusOr<Dims> Sliced(const Call& call) {
  Dims dims = call.in[0]->dims;
  ASSIGN_OR_RETURN(const std::vector<int64_t> starts, ListOf(call, 1, "starts"));
  ASSIGN_OR_RETURN(const std::vector<int64_t> ends, ListOf(call, 2, "ends"));
  ASSIGN_OR_RETURN(std::vector<int64_t> axes, ListOf(call, 3, "axes"));
  ASSIGN_OR_RETURN(std::vector<int64_t> steps, ListOf(call, 4, "steps"));
  if (axes.empty()) {
    axes.resize(starts.size());
    std::iota(axes.begin(), axes.end(), 0);
  }
  if (steps.empty()) steps.assign(starts.size(), 1);
  if (ends.size() != starts.size() || axes.size() != starts.size() ||
      steps.size() != starts.size()) {
    return InvalidArgument("starts, ends, axes and steps have different lengths");
  }
  for (size_t i = 0; i < starts.size(); ++i) {
    ASSIGN_OR_RETURN(const int axis, WantAxis(axes[i], static_cast<int64_t>(dims.size())));
    if (!dims[axis].IsConst()) {
      return Unimplemented("cuts rows of the request out of a constant");
    }
    ASSIGN_OR_RETURN(const SliceRange range,
                     RangeOf(starts[i], ends[i], steps[i], dims[axis].value()));
    dims[axis] = Dim::Of(range.count);
  }
  return dims;
}

absl::StatusOr<Dims> Reshaped(const Call& call) {
  if (!call.Has(1)) return Unimplemented("a constant per row in another shape");
  ASSIGN_OR_RETURN(const Dims wanted, call.in[1]->ToDims());
  const auto product = [](const Dims& dims) {
    return std::accumulate(dims.begin(), dims.end(), Dim::Of(1), engine::Multiply);
  };
  const Dim count = product(wanted);
  // 0 and -1 are no sizes.
  const bool sizes = std::all_of(wanted.begin(), wanted.end(),
                                 [](const Dim& d) { return !d.IsConst() || d.value() > 0; });
  if (sizes && count == product(call.in[0]->dims) && !count.IsUnknown()) return wanted;
  return Unimplemented("a constant per row in another shape");
}

absl::StatusOr<Dims> Expanded(const Call& call) {
  if (!call.Has(1)) return InvalidArgument("input 1 is missing");
  ASSIGN_OR_RETURN(const Dims wanted, call.in[1]->ToDims());
  return BroadcastDims(call.in[0]->dims, wanted);
}

// What becomes of the shape of a constant of one value.
struct ShapeRule {
  const char* op;
  absl::StatusOr<Dims> (*dims)(const Call&);
};
constexpr ShapeRule kShapeRules[] = {{"Unsqueeze", &Unsqueezed},
                                     {"Squeeze", &Squeezed},
                                     {"Slice", &Sliced},
                                     {"Reshape", &Reshaped},
                                     {"Expand", &Expanded}};

template <typename Row, size_t n>
const Row* FindRow(const Row (&table)[n], const std::string& op) {
  for (const Row& row : table) {
    if (op == row.op) return &row;
  }
  return nullptr;
}

// Whether the first input is one value in a shape that numbers do not tell, or becomes so.
bool IsPerRow(const Call& call) {
  const Constant& x = *call.in[0];
  if (x.uniform) return call.node.op_type() != "Reshape" || !IsNumbers(x.dims);
  if (call.node.op_type() != "Expand" || !call.Has(1) || !HasSizes(call.in[1])) return false;
  // Equal values (a GRU's first state) may be repeated per user or ad.
  const auto equal = [](const auto& values) {
    return std::adjacent_find(values.begin(), values.end(), std::not_equal_to<>()) == values.end();
  };
  return x.elements() > 0 && (x.is_float ? equal(*x.floats) : equal(x.ints));
}

// ---------------------------------------------------------------------------------- shapes

Constant ShapeOf(const onnx::NodeProto& node, const Dims& dims) {
  if (node.op_type() == "Size") {
    return IntConstant({},
                       {std::accumulate(dims.begin(), dims.end(), Dim::Of(1), engine::Multiply)});
  }
  const auto rank = static_cast<int64_t>(dims.size());
  const auto place = [&](const char* name, int64_t otherwise) {
    const int64_t at = IntAttribute(node, name, otherwise);
    return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank);
  };
  const int64_t start = place("start", 0), end = std::max(start, place("end", rank));
  return IntConstant({end - start}, {dims.begin() + start, dims.begin() + end});
}

Outputs ConstantOfShape(const Call& call) {
  Constant out = FloatConstant({}, {0.0f});
  if (const auto* const value = FindAttribute(call.node, "value"); value != nullptr) {
    ASSIGN_OR_RETURN(out, ReadTensor(value->t()));
    if (out.elements() != 1) {
      return InvalidArgument("value of shape ", DimsText(out.dims), ", want one element");
    }
  }
  out.uniform = true;
  ASSIGN_OR_RETURN(out.dims, call.in[0]->ToDims());
  return One(std::move(out));
}

}  // namespace

bool CanFold(const onnx::NodeProto& node) {
  return node.op_type() == "Constant" ||
         (reference::IsKnown(node) && !absl::StrContains(node.op_type(), "Sequence"));
}

absl::StatusOr<std::vector<Constant>> FoldNode(const onnx::NodeProto& node, int64_t opset,
                                               absl::Span<const Constant* const> inputs) {
  const Call call{node, opset, inputs};
  const std::string& op = node.op_type();
  if (!call.Has(0)) return ByDefinition(call);
  const Constant& x = *inputs[0];
  if (op == "Shape" || op == "Size") return One(ShapeOf(node, x.dims));
  if (op == "ConstantOfShape") return ConstantOfShape(call);
  const int64_t cast = op == "Cast" ? IntAttribute(node, "to", 0) : 0;
  if (x.is_float && reference::IsFloatType(static_cast<int>(cast))) return One(x);
  const bool uniform = std::any_of(inputs.begin(), inputs.end(),
                                   [](const Constant* c) { return c != nullptr && c->uniform; });
  if (uniform && IsElementwise(op) && std::all_of(inputs.begin(), inputs.end(), IsOneValue)) {
    return ComputeOnce(call);
  }
  if (const ShapeRule* const rule = FindRow(kShapeRules, op); rule != nullptr && IsPerRow(call)) {
    Constant out = x;
    ASSIGN_OR_RETURN(out.dims, rule->dims(call));
    out.uniform = true;
    return One(std::move(out));
  }
  if (const Move* const move = FindRow(kMoves, op); move != nullptr) {
    const auto moved =
        inputs.subspan(std::min(move->first, inputs.size()), move->end - move->first);
    return std::any_of(moved.begin(), moved.end(), HasSizes) ? MoveSizes(call, *move)
                                                             : ByDefinition(call);
  }
  if (std::none_of(inputs.begin(), inputs.end(), HasSizes)) return ByDefinition(call);
  if (cast != 0 && !reference::IsFloatType(static_cast<int>(cast))) return CastSizes(x, cast);
  if (op == "ReduceProd") return MultiplySizes(call);
  if (op == "Abs") return AbsoluteSizes(x);
  const bool computed = op == "Mul" || op == "Div" || op == "Add" || op == "Sub" || op == "Equal";
  return computed && call.Has(1) ? ComputeSizes(call) : ByDefinition(call);
}

}  // namespace ulfd::convert

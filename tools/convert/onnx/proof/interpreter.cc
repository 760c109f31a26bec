// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/onnx/proof/interpreter.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/errors.h"
#include "base/hash_map.h"
#include "base/load_scope.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "tools/convert/onnx/model/constant.h"

namespace ulfd::convert::reference {
namespace {

const Operator* FindOperator(const onnx::NodeProto& node) {
  if (!node.domain().empty() && node.domain() != "ai.onnx") return nullptr;
  for (const auto table :
       {ElementwiseOperators(), MovementOperators(), ProductOperators(), AxisOperators(),
        SelectOperators(), ImageOperators(), RecurrentOperators(), TreeOperators()}) {
    for (const Operator& entry : table) {
      if (node.op_type() == entry.op) return &entry;
    }
  }
  return nullptr;
}

int ComputedType(int type) {
  const bool half = type == onnx::TensorProto::FLOAT16 || type == onnx::TensorProto::BFLOAT16;
  return half ? static_cast<int>(onnx::TensorProto::FLOAT) : type;
}

Results Constants(const Call& call) {
  for (const onnx::AttributeProto& attribute : call.node.attribute()) {
    if (attribute.name() == "value") {
      ASSIGN_OR_RETURN(Array array, ReadArray(attribute.t()));
      return One(std::move(array));
    }
    if (attribute.name() == "value_float") {
      return One(Floats(onnx::TensorProto::FLOAT, {}, {double{attribute.f()}}));
    }
    if (attribute.name() == "value_floats") {
      return One(Floats(onnx::TensorProto::FLOAT, {attribute.floats_size()},
                        {attribute.floats().begin(), attribute.floats().end()}));
    }
    if (attribute.name() == "value_int") {
      return One(Ints(onnx::TensorProto::INT64, {}, {attribute.i()}));
    }
    if (attribute.name() == "value_ints") {
      return One(Ints(onnx::TensorProto::INT64, {attribute.ints_size()},
                      {attribute.ints().begin(), attribute.ints().end()}));
    }
  }
  return Unimplemented("a constant of another kind");
}

}  // namespace

absl::StatusOr<Array> ReadArray(const onnx::TensorProto& tensor) {
  ASSIGN_OR_RETURN(const Constant constant, ReadTensor(tensor));
  Array array{.type = ComputedType(tensor.data_type()), .dims = constant.sizes()};
  if (constant.is_float) {
    array.stored = constant.floats;
    return array;
  }
  std::vector<int64_t> values;
  values.reserve(constant.ints.size());
  for (const engine::Dim& value : constant.ints) values.push_back(value.value());
  array.ints = std::make_shared<const std::vector<int64_t>>(std::move(values));
  return array;
}

bool IsOfValues(const absl::Status& status) {
  return absl::IsOutOfRange(status) || absl::StrContains(status.message(), kDividedByZero) ||
         absl::StrContains(status.message(), kNoInteger);
}

bool IsKnown(const onnx::NodeProto& node) { return FindOperator(node) != nullptr; }

absl::StatusOr<std::vector<Array>> Compute(const onnx::NodeProto& node, int64_t opset,
                                           const RunOptions& options,
                                           std::vector<const Array*> inputs) {
  const Call call{.node = node, .opset = opset, .options = options, .in = std::move(inputs)};
  if (node.op_type() == "Constant") return Constants(call);
  const Operator* const entry = FindOperator(node);
  if (entry == nullptr) {
    return Unimplemented("operator ", node.op_type(), " is not known to the proof");
  }
  for (size_t i = 0; i < entry->inputs; ++i) {
    if (!call.Has(i)) return InvalidArgument("input ", i, " is missing");
  }
  return entry->run(call);
}

int64_t Array::elements() const { return ProductOf(dims); }

double Array::at(int64_t i) const {
  const auto k = static_cast<size_t>(i);
  if (stored != nullptr) return double{(*stored)[k]};
  return floats != nullptr ? (*floats)[k] : static_cast<double>((*ints)[k]);
}

absl::Status Budget::Check() const {
  RETURN_IF_ERROR(LoadScope::Check());
  if (std::chrono::steady_clock::now() < deadline) return absl::OkStatus();
  return ResourceExhausted("takes longer than the proof may");
}

absl::StatusOr<Evaluator> Evaluator::Make(const OnnxModel& model) {
  Evaluator evaluator(model);
  for (const onnx::TensorProto& tensor : model.proto.graph().initializer()) {
    ASSIGN_OR_RETURN(evaluator.initializers_[tensor.name()],
                     Annotate(ReadArray(tensor), "initializer \"", tensor.name(), "\""));
  }
  return evaluator;
}

namespace {

// How often the nodes read each name; what their branches read stays until the end.
void CountReaders(const onnx::GraphProto& graph, HashMap<std::string, int>& readers) {
  for (const onnx::NodeProto& node : graph.node()) {
    for (const std::string& input : node.input()) ++readers[input];
    for (const onnx::AttributeProto& attribute : node.attribute()) {
      if (!attribute.has_g()) continue;
      CountReaders(attribute.g(), readers);
      for (const onnx::NodeProto& inner : attribute.g().node()) {
        for (const std::string& input : inner.input()) ++readers[input];
      }
    }
  }
  for (const onnx::ValueInfoProto& output : graph.output()) ++readers[output.name()];
}

// Of a graph within a node.
absl::StatusOr<std::map<std::string, Array>> ConstantsOf(const onnx::GraphProto& graph) {
  std::map<std::string, Array> constants;
  for (const onnx::TensorProto& tensor : graph.initializer()) {
    ASSIGN_OR_RETURN(constants[tensor.name()], ReadArray(tensor));
  }
  return constants;
}

}  // namespace

Evaluator::Find Evaluator::Within(const std::map<std::string, Array>& own, const Find& outer) {
  return [&](const std::string& name) {
    const auto it = own.find(name);
    return it == own.end() ? outer(name) : &it->second;
  };
}

absl::StatusOr<std::map<std::string, Array>> Evaluator::Run(
    const std::map<std::string, Array>& inputs, const RunOptions& options) const {
  const Find initializer = [&](const std::string& name) -> const Array* {
    const auto it = initializers_.find(name);
    return it == initializers_.end() ? nullptr : &it->second;
  };
  return RunGraph(model_->proto.graph(), Within(inputs, initializer), options);
}

absl::StatusOr<std::vector<Array>> Evaluator::RunBranch(const onnx::NodeProto& node,
                                                        const Find& outer,
                                                        const RunOptions& options) const {
  const Array* const condition = node.input_size() == 1 ? outer(node.input(0)) : nullptr;
  if (condition == nullptr || condition->ints == nullptr || condition->elements() != 1) {
    return InvalidArgument("want a condition");
  }
  const char* const wanted = condition->at(0) != 0 ? "then_branch" : "else_branch";
  const onnx::AttributeProto* const branch = FindAttribute(node, wanted);
  if (branch == nullptr) return InvalidArgument("has no ", wanted);
  const onnx::GraphProto& graph = branch->g();
  ASSIGN_OR_RETURN(const auto own, ConstantsOf(graph));
  ASSIGN_OR_RETURN(const auto values, RunGraph(graph, Within(own, outer), options));
  std::vector<Array> results;
  for (const onnx::ValueInfoProto& output : graph.output()) {
    results.push_back(values.at(output.name()));
  }
  return results;
}

namespace {

// Entries of the passes of a loop, one behind the other.
absl::StatusOr<Array> Stacked(const std::vector<Array>& entries) {
  Sizes dims = entries.front().dims;
  const int64_t size = ProductOf(dims);
  Elements all(entries.front().type, size * static_cast<int64_t>(entries.size()));
  for (const Array& entry : entries) {
    if (entry.dims != dims) return InvalidArgument("passes with other shapes");
    for (int64_t i = 0; i < size; ++i) all.Add(entry, i);
  }
  dims.insert(dims.begin(), static_cast<int64_t>(entries.size()));
  return all.Take(std::move(dims));
}

}  // namespace

// Loops that carry nothing from pass to pass.
absl::StatusOr<std::vector<Array>> Evaluator::RunLoop(const onnx::NodeProto& node,
                                                      const Find& outer,
                                                      const RunOptions& options) const {
  const Array* const passes = node.input_size() >= 2 ? outer(node.input(0)) : nullptr;
  const Array* const begins =
      node.input_size() >= 2 && !node.input(1).empty() ? outer(node.input(1)) : nullptr;
  const int carried = node.input_size() - 2;
  if (passes == nullptr || passes->elements() != 1 || node.attribute_size() != 1 ||
      !node.attribute(0).has_g() || node.attribute(0).g().input_size() != carried + 2 ||
      node.attribute(0).g().output_size() < carried + 1 ||
      (begins != nullptr && (begins->elements() != 1 || begins->at(0) == 0))) {
    return Unimplemented("a loop of another form");
  }
  const onnx::GraphProto& body = node.attribute(0).g();
  ASSIGN_OR_RETURN(auto own, ConstantsOf(body));
  own[body.input(1).name()] = Ints(onnx::TensorProto::BOOL, {}, {1});
  std::vector<Array> results;
  for (int i = 0; i < carried; ++i) {
    const Array* const first = outer(node.input(i + 2));
    if (first == nullptr) return InvalidArgument("reads what nothing makes");
    results.push_back(*first);
  }
  std::vector<std::vector<Array>> entries(static_cast<size_t>(body.output_size() - 1 - carried));
  for (int64_t pass = 0; pass < static_cast<int64_t>(passes->at(0)); ++pass) {
    RETURN_IF_ERROR(options.budget.Check());
    own[body.input(0).name()] = Ints(onnx::TensorProto::INT64, {}, {pass});
    for (int i = 0; i < carried; ++i) {
      own[body.input(i + 2).name()] = results[static_cast<size_t>(i)];
    }
    ASSIGN_OR_RETURN(const auto values, RunGraph(body, Within(own, outer), options));
    const Array& goes_on = values.at(body.output(0).name());
    if (goes_on.elements() != 1 || goes_on.at(0) == 0) {
      return Unimplemented("a loop that ends early");
    }
    for (int i = 0; i < carried; ++i) {
      results[static_cast<size_t>(i)] = values.at(body.output(i + 1).name());
    }
    for (size_t i = 0; i < entries.size(); ++i) {
      entries[i].push_back(values.at(body.output(static_cast<int>(i) + 1 + carried).name()));
    }
  }
  for (const std::vector<Array>& of_output : entries) {
    if (of_output.empty()) return Unimplemented("a loop without a pass");
    ASSIGN_OR_RETURN(Array all, Stacked(of_output));
    results.push_back(std::move(all));
  }
  return results;
}

absl::StatusOr<std::map<std::string, Array>> Evaluator::RunGraph(const onnx::GraphProto& graph,
                                                                 const Find& outer,
                                                                 const RunOptions& options) const {
  std::map<std::string, Array> values;
  // How many readers of a value are left, so that it goes when nobody wants it any more.
  HashMap<std::string, int> readers;
  CountReaders(graph, readers);
  const auto find = [&](const std::string& name) -> const Array* {
    const auto it = values.find(name);
    return it != values.end() ? &it->second : outer(name);
  };
  int64_t live = 0;
  for (const onnx::NodeProto& node : graph.node()) {
    const std::string text = absl::StrCat(
        "node \"", !node.name().empty() || node.output_size() == 0 ? node.name() : node.output(0),
        "\" (", node.op_type(), ")");
    RETURN_IF_ERROR(Annotate(options.budget.Check(), text));
    std::vector<const Array*> arguments;
    for (const std::string& input : node.input()) {
      arguments.push_back(input.empty() ? nullptr : find(input));
      if (!input.empty() && arguments.back() == nullptr) {
        return InvalidArgument(text, ": nothing makes \"", input, "\"");
      }
    }
    ASSIGN_OR_RETURN(std::vector<Array> results,
                     Annotate(node.op_type() == "If" ? RunBranch(node, find, options)
                              : node.op_type() == "Loop"
                                  ? RunLoop(node, find, options)
                                  : Compute(node, model_->opset, options, std::move(arguments)),
                              text));
    for (int i = 0; i < node.output_size(); ++i) {
      if (node.output(i).empty()) continue;
      if (static_cast<size_t>(i) >= results.size()) {
        if (!readers.contains(node.output(i))) continue;
        return Unimplemented(text, ": output ", i, " is not known to the proof");
      }
      live += results[static_cast<size_t>(i)].elements();
      values[node.output(i)] = std::move(results[static_cast<size_t>(i)]);
    }
    if (live > options.budget.max_live) {
      return ResourceExhausted(text, ": takes more memory than the proof may");
    }
    if (options.keep_all) continue;
    for (const std::string& input : node.input()) {
      const auto it = values.find(input);
      if (it == values.end() || --readers[input] > 0) continue;
      live -= it->second.elements();
      values.erase(it);
    }
  }
  for (const onnx::ValueInfoProto& output : graph.output()) {
    const Array* const array = find(output.name());
    if (array == nullptr) {
      return InvalidArgument("nothing makes output \"", output.name(), "\"");
    }
    if (!values.contains(output.name())) values[output.name()] = *array;
  }
  return values;
}

// ------------------------------------------------------------------------------------- shared

Array Floats(int type, Sizes dims, std::vector<double> values) {
  return {.type = ComputedType(type),
          .dims = std::move(dims),
          .floats = std::make_shared<const std::vector<double>>(std::move(values))};
}

Array Ints(int type, Sizes dims, std::vector<int64_t> values) {
  return {.type = type,
          .dims = std::move(dims),
          .ints = std::make_shared<const std::vector<int64_t>>(std::move(values))};
}

std::vector<double> ValuesOf(const Array& array) {
  if (array.floats != nullptr) return *array.floats;
  std::vector<double> values(static_cast<size_t>(array.elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = array.at(static_cast<int64_t>(i));
  return values;
}

bool IsFloatType(int type) {
  return type == onnx::TensorProto::FLOAT || type == onnx::TensorProto::DOUBLE ||
         type == onnx::TensorProto::FLOAT16 || type == onnx::TensorProto::BFLOAT16;
}

int64_t Wrap(int type, int64_t value) {
  switch (type) {
    case onnx::TensorProto::INT32:
      return static_cast<int32_t>(value);
    case onnx::TensorProto::UINT32:
      return static_cast<uint32_t>(value);
    case onnx::TensorProto::INT16:
      return static_cast<int16_t>(value);
    case onnx::TensorProto::UINT16:
      return static_cast<uint16_t>(value);
    case onnx::TensorProto::INT8:
      return static_cast<int8_t>(value);
    case onnx::TensorProto::UINT8:
      return static_cast<uint8_t>(value);
    case onnx::TensorProto::BOOL:
      return value != 0 ? 1 : 0;
    default:
      return value;
  }
}

absl::StatusOr<int64_t> CountOf(const Call& call, const Sizes& dims) {
  int64_t count = 1;
  for (const int64_t d : dims) {
    if (d < 0) return InvalidArgument("a dimension of ", d);
    if (d > 0 && count > call.options.budget.max_elements / d) {
      return ResourceExhausted("shape [", absl::StrJoin(dims, ", "),
                               "] is more than the proof may hold");
    }
    count *= d;
  }
  return count;
}

int64_t ProductOf(const Sizes& dims, size_t from, size_t to) {
  int64_t product = 1;
  for (size_t d = 0; d < dims.size(); ++d) product *= from <= d && d < to ? dims[d] : 1;
  return product;
}

void Step(const Sizes& dims, Sizes& at) {
  for (size_t d = dims.size(); d-- > 0;) {
    if (++at[d] < dims[d]) break;
    at[d] = 0;
  }
}

Sizes StridesOf(const Sizes& dims) {
  Sizes strides(dims.size(), 1);
  for (size_t d = dims.size(); d-- > 1;) strides[d - 1] = strides[d] * dims[d];
  return strides;
}

Sizes BroadcastStrides(const Sizes& from, const Sizes& to) {
  const Sizes own = StridesOf(from);
  Sizes strides(to.size(), 0);
  for (size_t back = 1; back <= from.size() && back <= to.size(); ++back) {
    if (from[from.size() - back] != 1) strides[to.size() - back] = own[from.size() - back];
  }
  return strides;
}

absl::StatusOr<Sizes> BroadcastSizes(const Sizes& a, const Sizes& b) {
  Sizes out(std::max(a.size(), b.size()), 1);
  for (size_t back = 1; back <= out.size(); ++back) {
    const int64_t x = back <= a.size() ? a[a.size() - back] : 1;
    const int64_t y = back <= b.size() ? b[b.size() - back] : 1;
    if (x != y && x != 1 && y != 1) {
      return InvalidArgument("shapes [", absl::StrJoin(a, ", "), "] and [", absl::StrJoin(b, ", "),
                             "] do not broadcast");
    }
    out[out.size() - back] = x == 1 ? y : x;
  }
  return out;
}

absl::StatusOr<size_t> AxisOf(int64_t axis, int64_t rank) {
  const int64_t index = axis < 0 ? axis + rank : axis;
  if (index >= 0 && index < rank) return static_cast<size_t>(index);
  return InvalidArgument("axis ", axis, " of ", rank);
}

absl::StatusOr<Sizes> ListOf(const Call& call, size_t input, const char* attribute) {
  if (!call.Has(input)) return IntsAttribute(call.node, attribute);
  if (call.in[input]->ints == nullptr) {
    return InvalidArgument("input ", input, ", want integers");
  }
  return *call.in[input]->ints;
}

absl::Status Misfit(const Call& call, absl::string_view what) {
  std::vector<std::string> shapes;
  for (const Array* x : call.in) {
    shapes.push_back(x == nullptr ? "-" : absl::StrCat("[", absl::StrJoin(x->dims, ", "), "]"));
  }
  return InvalidArgument("inputs of shapes ", absl::StrJoin(shapes, " "), ": ", what);
}

absl::Status WantFloats(const Call& call) {
  for (const Array* x : call.in) {
    if (x != nullptr && !x->is_float()) {
      return Unimplemented(call.node.op_type(), " of integers");
    }
  }
  return absl::OkStatus();
}

Array Pick(const Array& x, Sizes dims, const std::vector<int64_t>& from) {
  Elements out(x.type, static_cast<int64_t>(from.size()));
  for (const int64_t i : from) out.Add(x, i);
  return out.Take(std::move(dims));
}

Elements::Elements(int type, int64_t count) : type_(type) {
  if (IsFloatType(type)) {
    floats_.reserve(static_cast<size_t>(count));
  } else {
    ints_.reserve(static_cast<size_t>(count));
  }
}

void Elements::Add(const Array& x, int64_t i) {
  if (IsFloatType(type_)) {
    floats_.push_back(x.at(i));
  } else {
    ints_.push_back((*x.ints)[static_cast<size_t>(i)]);
  }
}

Array Elements::Take(Sizes dims) {
  return IsFloatType(type_) ? Floats(type_, std::move(dims), std::move(floats_))
                            : Ints(type_, std::move(dims), std::move(ints_));
}

}  // namespace ulfd::convert::reference

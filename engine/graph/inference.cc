// SPDX-License-Identifier: Apache-2.0
#include "engine/graph/inference.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/load_scope.h"
#include "base/status_macros.h"
#include "base/text.h"

namespace ulfd::engine {

namespace {

bool IsUnstatedInput(const Graph& graph, const GraphSpecs& specs, ValueId id) {
  return graph.values[id].kind == Value::Kind::kInput && !specs[id].shape.ranked();
}

// Asks every layer that reads an undescribed input what it would expect there; the first answer
// stays. only_type: "" for all layers.
void Suggest(const Graph& graph, absl::string_view only_type, const GraphSpecs& known,
             GraphSpecs& specs) {
  std::vector<TensorSpec> inputs;
  for (const Node& node : graph.nodes) {
    if (!only_type.empty() && node.type != only_type) continue;
    bool wanted = false;
    inputs.clear();
    for (ValueId id : node.inputs) {
      inputs.push_back(known[id]);
      wanted |= IsUnstatedInput(graph, specs, id);
    }
    if (!wanted) continue;
    node.layer->SuggestInputs(absl::MakeSpan(inputs));
    for (size_t i = 0; i < inputs.size(); ++i) {
      const ValueId id = node.inputs[i];
      if (IsUnstatedInput(graph, specs, id) && inputs[i].shape.ranked()) {
        specs[id].shape = inputs[i].shape;
        specs[id].level = inputs[i].level;
      }
    }
  }
}

Dim RowsOf(Level level) {
  if (level == Level::kUser) return Dim::Users();
  if (level == Level::kAd) return Dim::Ads();
  return Dim::Unknown();
}

}  // namespace

GraphSpecs StatedSpecs(const Graph& graph, absl::Span<const InputStatement> statements) {
  GraphSpecs specs(graph.values.size());
  for (size_t i = 0; i < specs.size(); ++i) {
    const Value& value = graph.values[i];
    specs[i].dtype = value.dtype;
    if (value.kind == Value::Kind::kConstant) {
      specs[i].shape = Shape::Of(value.constant_dims);
      specs[i].level = Level::kConstant;
    }
  }
  for (const InputStatement& statement : statements) {
    if (!statement.row_shape.has_value()) continue;
    TensorSpec& spec = specs[statement.input];
    Shape::Dims dims = {RowsOf(statement.level)};
    for (int64_t d : *statement.row_shape) dims.push_back(Dim::Of(d));
    spec.shape = Shape(std::move(dims));
    spec.level = statement.level;
  }
  Suggest(graph, "embedding_layer", specs, specs);
  return specs;
}

namespace {

// Widths of undescribed inputs, worked out backwards from the weights of layers behind them:
// through elementwise layers, and through concat and fuse where all other widths are known.
class WidthsBackwards {
 public:
  // `inferred`: every value, with what is known of inputs so far.
  WidthsBackwards(const Graph& graph, const GraphSpecs& inferred)
      : inferred_(inferred), wanted_(graph.values.size(), -1) {
    for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) Follow(*node);
  }

  // Whether this may be [rows, columns], with who knows how many columns.
  static bool IsOpen(const Shape& shape) {
    return !shape.ranked() || (shape.rank() == 2 && shape[1].IsUnknown());
  }

  // Columns of [rows, columns]; -1: cannot be told.
  int64_t WidthOf(ValueId id) const {
    const Shape& shape = inferred_[id].shape;
    if (IsOpen(shape)) return wanted_[id];
    return shape.rank() == 2 && shape[1].IsConst() ? shape[1].value() : -1;
  }

 private:
  using Op = Semantics::Op;

  void Want(ValueId id, int64_t width) {
    if (IsOpen(inferred_[id].shape) && wanted_[id] < 0 && width > 0) wanted_[id] = width;
  }

  void Follow(const Node& node) {
    std::vector<TensorSpec> inputs;
    for (ValueId id : node.inputs) inputs.push_back(inferred_[id]);
    node.layer->SuggestInputs(absl::MakeSpan(inputs));
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Shape& shape = inputs[i].shape;
      if (!shape.ranked() || shape.rank() != 2 || !shape[1].IsConst()) continue;
      Want(node.inputs[i], shape[1].value());
    }
    if (node.outputs.size() != 1) return;
    const Semantics semantics = node.layer->semantics();
    switch (semantics.op) {
      case Op::kRelu:
      case Op::kSigmoid:
      case Op::kTanh:
      case Op::kPrelu:
      case Op::kBatchNorm:
      case Op::kDice:
      case Op::kSoftmax:
      case Op::kLayerNorm:
      case Op::kAdd:
      case Op::kSubtract:
      case Op::kMultiply:
      case Op::kDivide:
        for (ValueId id : node.inputs) Want(id, WidthOf(node.outputs[0]));
        return;
      case Op::kConcat:
        if (semantics.axis == 1) SideBySide(node);
        return;
      case Op::kFuse:
        SideBySide(node);
        return;
      default:
        return;
    }
  }

  // What is left of the whole width for the only input whose width is not known.
  void SideBySide(const Node& node) {
    int64_t left = WidthOf(node.outputs[0]);
    ValueId open = kNoValue;
    for (ValueId id : node.inputs) {
      const int64_t width = WidthOf(id);
      if (width < 0 && open != kNoValue) return;
      if (width < 0) open = id;
      left -= std::max<int64_t>(0, width);
    }
    if (open != kNoValue) Want(open, left);
  }

  const GraphSpecs& inferred_;
  std::vector<int64_t> wanted_;  // Per value whose width is open.
};

// Gives undescribed inputs the widths that follow from weights; each may tell the next.
void SuggestWidths(const Graph& graph, GraphSpecs& specs) {
  for (bool found = true; found;) {
    found = false;
    GraphSpecs inferred = specs;
    if (!InferGraph(graph, inferred).ok()) return;
    const WidthsBackwards widths(graph, inferred);
    for (ValueId id : graph.inputs) {
      Shape& shape = specs[id].shape;
      if (!WidthsBackwards::IsOpen(shape) || widths.WidthOf(id) < 0) continue;
      if (!shape.ranked()) shape = Shape({Dim::Unknown(), Dim::Unknown()});
      shape[1] = Dim::Of(widths.WidthOf(id));
      found = true;
    }
  }
}

// Whether the layer puts its inputs side by side, one of which has a single row: then all have.
bool JoinsOneRow(const Node& node, const GraphSpecs& inferred) {
  const Semantics semantics = node.layer->semantics();
  if (semantics.op != Semantics::Op::kConcat || semantics.axis == 0) return false;
  return std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) {
    const Shape& shape = inferred[id].shape;
    if (!shape.ranked() || shape.rank() < 2) return false;
    return shape[0].IsUsers() || (shape[0].IsConst() && shape[0].value() == 1);
  });
}

// Values of which a layer says that they have the user's one row (fuse's common input, a literal
// leading 1, a concat beside the user's), and everything that those are computed from.
std::vector<bool> UserValues(const Graph& graph, const GraphSpecs& inferred) {
  std::vector<bool> user(graph.values.size(), false);
  std::vector<TensorSpec> inputs;
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    const bool needed =
        JoinsOneRow(*node, inferred) || std::any_of(node->outputs.begin(), node->outputs.end(),
                                                    [&](ValueId id) { return user[id]; });
    inputs.assign(node->inputs.size(), TensorSpec{});
    node->layer->SuggestInputs(absl::MakeSpan(inputs));
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (needed || inputs[i].level == Level::kUser) user[node->inputs[i]] = true;
    }
  }
  return user;
}

void SetLevel(Level level, TensorSpec& spec) {
  spec.level = level;
  if (spec.shape.rank() > 0 && spec.shape[0].IsUnknown()) spec.shape[0] = RowsOf(level);
}

}  // namespace

GraphSpecs SuggestedSpecs(const Graph& graph, const GraphSpecs& stated, const GraphSpecs& inferred,
                          absl::Span<const InputStatement> statements) {
  GraphSpecs specs = stated;
  Suggest(graph, "", inferred, specs);
  SuggestWidths(graph, specs);
  for (const InputStatement& statement : statements) {
    TensorSpec& spec = specs[statement.input];
    if (statement.level == Level::kUnknown || stated[statement.input].shape.ranked()) continue;
    spec.level = statement.level;
    if (spec.shape.ranked() && spec.shape.rank() > 0) spec.shape[0] = RowsOf(statement.level);
  }
  const std::vector<bool> user = UserValues(graph, inferred);
  std::vector<bool> free_length(graph.values.size(), false);
  for (const Node& node : graph.nodes) {
    if (node.type != "embedding_layer") continue;
    for (size_t i = 0; i + 2 < node.inputs.size(); i += 3) {
      free_length[node.inputs[i]] = free_length[node.inputs[i + 1]] = true;
      // Ids and values go with their segments.
      const ValueId segments = node.inputs[i + 2];
      if (specs[segments].level == Level::kUnknown) {
        SetLevel(user[segments] ? Level::kUser : Level::kAd, specs[segments]);
      }
      for (size_t part = 0; part < 2; ++part) {
        TensorSpec& spec = specs[node.inputs[i + part]];
        if (spec.level == Level::kUnknown) spec.level = specs[segments].level;
      }
    }
  }
  for (ValueId id : graph.inputs) {
    if (specs[id].level != Level::kUnknown || !specs[id].shape.ranked() || free_length[id])
      continue;
    SetLevel(user[id] ? Level::kUser : Level::kAd, specs[id]);
  }
  return specs;
}

absl::Status InferNode(const Graph& graph, const Node& node, GraphSpecs& specs) {
  absl::InlinedVector<TensorSpec, 8> inputs;
  bool ranked = true;
  for (ValueId id : node.inputs) {
    inputs.push_back(specs[id]);
    ranked &= specs[id].shape.ranked();
  }
  if (!ranked) {
    for (ValueId id : node.outputs) specs[id] = TensorSpec{};
    return absl::OkStatus();
  }
  absl::StatusOr<TensorSpecs> outputs = node.layer->Infer(inputs);
  if (!outputs.ok()) {
    std::string text = absl::StrCat(node.Label(), ": ", outputs.status().message());
    for (size_t i = 0; i < inputs.size(); ++i) {
      absl::StrAppend(&text, i == 0 ? "; input " : ", input ", i, " is \"",
                      graph.values[node.inputs[i]].name, "\" ", inputs[i].shape.ToString());
    }
    return absl::Status(outputs.status().code(), text);
  }
  if (outputs->size() != node.outputs.size()) {
    return InvalidArgument(node.Label(), ": names ", node.outputs.size(), " tops, makes ",
                           outputs->size());
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const absl::Status possible = CheckDims((*outputs)[i].shape);
    if (!possible.ok()) {
      return InvalidArgument(node.Label(), ": output \"", graph.values[node.outputs[i]].name,
                             "\": ", possible.message());
    }
    specs[node.outputs[i]] = std::move((*outputs)[i]);
  }
  return absl::OkStatus();
}

absl::Status InferGraph(const Graph& graph, GraphSpecs& specs) {
  for (size_t id = 0; id < graph.values.size(); ++id) {
    const Value& value = graph.values[id];
    if (value.kind == Value::Kind::kComputed) continue;
    RETURN_IF_ERROR(Annotate(CheckDims(specs[id].shape),
                             value.kind == Value::Kind::kInput ? "input" : "constant", " \"",
                             value.name, "\""));
  }
  for (const Node& node : graph.nodes) {
    RETURN_IF_ERROR(LoadScope::Check());
    RETURN_IF_ERROR(InferNode(graph, node, specs));
  }
  return absl::OkStatus();
}

ItemValues::ItemValues(const Graph& graph, const GraphSpecs& specs)
    : graph_(graph), specs_(specs), has_(graph.values.size(), false) {
  for (ValueId id : graph.inputs) has_[id] = specs[id].level == Level::kAd;
}

ItemValues::Part ItemValues::Add(const Node& node) {
  bool of_ads = false, given = true;
  for (ValueId id : node.inputs) {
    of_ads |= has_[id];
    given &= graph_.values[id].kind == Value::Kind::kInput;
    if (!has_[id] && specs_[id].level != Level::kConstant) return Part::kOther;
  }
  const bool lookup = node.type == "embedding_layer";
  for (ValueId id : node.outputs) of_ads &= specs_[id].level == Level::kAd;
  if (!of_ads || (lookup && !given)) return Part::kOther;
  for (ValueId id : node.outputs) has_[id] = true;
  return lookup ? Part::kLookup : Part::kItem;
}

}  // namespace ulfd::engine

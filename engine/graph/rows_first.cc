// SPDX-License-Identifier: Apache-2.0
#include "engine/graph/rows_first.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/hash_map.h"
#include "engine/layers/checks.h"
#include "engine/layers/types/building_blocks.h"

namespace ulfd::engine {
namespace {

using Op = Semantics::Op;
using Sizes = std::vector<int64_t>;

// How a tensor lies in one whose rows come first: of its axis `axis`, which has before * rows *
// behind elements, the rows were taken to the front; all else is in its order.
struct Form {
  ValueId value = kNoValue;  // [rows, everything else]
  int axis = 0;
  int64_t before = 1, behind = 1;

  bool plain() const { return axis == 0 && before == 1 && behind == 1; }
  bool same_rows(const Form& other) const {
    return before == other.before && behind == other.behind;
  }
};

// The one axis with rows; -1: none, or several.
int RowsAxis(const Shape& shape) {
  int found = -1;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i].IsConst()) continue;
    if (found >= 0 || shape[i].IsUnknown()) return -1;
    found = i;
  }
  return found;
}

// Elements along axes [from, to), rows left out.
int64_t Count(const Shape& shape, int from, int to) {
  int64_t count = 1;
  for (int i = from; i < to; ++i) count *= shape[i].IsConst() ? shape[i].value() : 1;
  return count;
}

// Axes of a layer's operands with the rows in front.
struct Frame {
  int rank = 0;
  Form form;  // Of one of them; whose value does not matter.

  // Where an axis other than that of the rows is.
  int Index(int axis) const {
    if (axis < form.axis) return axis + 1;
    return axis + (form.before > 1 ? 1 : 0) + (form.behind > 1 ? 1 : 0);
  }
  // Dimensions behind the rows, of which axis i has size(i).
  template <typename SizeFn>
  Sizes Behind(SizeFn size, bool rows) const {
    Sizes sizes;
    for (int i = 0; i < rank; ++i) {
      if (i != form.axis) {
        sizes.push_back(size(i));
        continue;
      }
      if (form.before > 1) sizes.push_back(rows ? form.before : 1);
      if (form.behind > 1) sizes.push_back(rows ? form.behind : 1);
    }
    return sizes;
  }
};

class Rewriter {
 public:
  Rewriter(const GraphSpecs& specs, Graph& graph) : specs_(specs), graph_(graph) {}

  bool Run() {
    const size_t values = graph_.values.size();
    bool needed = false;
    for (const Node& node : graph_.nodes) {
      if (IsFine(node)) {
        nodes_.push_back(node);
        continue;
      }
      needed = true;
      if (Rewrite(node)) continue;
      graph_.values.resize(values);
      return false;
    }
    const auto moved = [&](const NamedValue& named) { return forms_.contains(named.value); };
    if (!needed || std::any_of(graph_.outputs.begin(), graph_.outputs.end(), moved)) {
      graph_.values.resize(values);
      return false;
    }
    graph_.nodes = std::move(nodes_);
    auto& tensors = graph_.tensors;
    tensors.erase(std::remove_if(tensors.begin(), tensors.end(), moved), tensors.end());
    return true;
  }

 private:
  const Shape& shape(ValueId id) const { return specs_[id].shape; }

  // Whether all that the node reads and makes is proved, now that rows were moved before it.
  bool IsFine(const Node& node) {
    return std::none_of(node.inputs.begin(), node.inputs.end(),
                        [&](ValueId id) { return forms_.contains(id); }) &&
           InferNode(graph_, node, specs_).ok() &&
           std::none_of(node.outputs.begin(), node.outputs.end(),
                        [&](ValueId id) { return specs_[id].level == Level::kUnknown; });
  }

  // Nothing: it has no rows, or not just once.
  std::optional<Form> FormOf(ValueId id) const {
    const auto found = forms_.find(id);
    if (found != forms_.end()) return found->second;
    if (!shape(id).ranked() || RowsAxis(shape(id)) != 0 || shape(id)[0].value() != 1) {
      return std::nullopt;
    }
    return Form{.value = id};
  }

  ValueId Add(const Node& origin, absl::string_view suffix, absl::string_view type,
              std::shared_ptr<const Layer> layer, std::vector<ValueId> inputs,
              ValueId output = kNoValue) {
    if (output == kNoValue) {
      output = graph_.AddValue({.name = absl::StrCat(origin.name, "/", suffix)});
    }
    Node node{.file_index = origin.file_index,
              .name = absl::StrCat(origin.name, "/", suffix),
              .type = std::string(type),
              .members = origin.members,
              .layer = std::move(layer),
              .inputs = std::move(inputs),
              .outputs = {output}};
    nodes_.push_back(std::move(node));
    return output;
  }
  ValueId AddReshape(const Node& origin, ValueId in, Sizes behind, bool rows = true,
                     ValueId output = kNoValue) {
    behind.insert(behind.begin(), rows ? -1 : 1);
    return Add(origin, "shape", "reshape_layer", MakeReshape(std::move(behind)), {in}, output);
  }

  // Output i of the node is `form`; under its own name, if the rows are in front.
  bool Done(const Node& node, const Form& form, size_t i = 0) {
    const ValueId output = node.outputs[i];
    if (!form.plain()) {
      forms_[output] = form;
      return true;
    }
    const Shape& wanted = shape(output);
    Sizes behind;
    for (int i = 1; i < wanted.rank(); ++i) behind.push_back(wanted[i].value());
    AddReshape(node, form.value, std::move(behind), true, output);
    specs_[output].level = wanted[0].IsAds() ? Level::kAd : Level::kUser;
    return true;
  }

  // An operand of a layer whose result has that frame; nothing if that cannot be.
  std::optional<ValueId> Operand(const Node& node, ValueId id, const Frame& frame) {
    const Shape& own = shape(id);
    if (!own.ranked() || own.rank() > frame.rank) return std::nullopt;
    const int skipped = frame.rank - own.rank();
    const auto size = [&](int axis) {
      return axis < skipped || !own[axis - skipped].IsConst() ? 1 : own[axis - skipped].value();
    };
    const int rows = RowsAxis(own);
    if (rows < 0) {
      if (!own.IsConcrete()) return std::nullopt;
      if (own.rank() < frame.rank - frame.form.axis) return id;  // All of it is behind the rows.
      if (size(frame.form.axis) != 1) return std::nullopt;
      return AddReshape(node, id, frame.Behind(size, false), false);
    }
    const std::optional<Form> form = FormOf(id);
    if (!form.has_value()) return std::nullopt;
    // A user's row under other dimensions is the same for all that stands there.
    const bool aligned = specs_[id].level == Level::kUser && skipped > 0 && form->plain();
    if (!aligned && (form->axis + skipped != frame.form.axis || !form->same_rows(frame.form))) {
      return std::nullopt;
    }
    return AddReshape(node, form->value, frame.Behind(size, !aligned));
  }

  // The frame of a result of that shape, by the operands that have its rows.
  std::optional<Frame> FrameOf(const Node& node, const Shape& result) const {
    const int axis = result.ranked() ? RowsAxis(result) : -1;
    if (axis < 0) return std::nullopt;
    for (ValueId id : node.inputs) {
      const std::optional<Form> form = FormOf(id);
      if (form.has_value() && form->axis + result.rank() - shape(id).rank() == axis &&
          form->before * form->behind == result[axis].value()) {
        return Frame{result.rank(), {kNoValue, axis, form->before, form->behind}};
      }
    }
    return std::nullopt;
  }

  // A layer that does the same along other axes: `axis` is where the rows are in its result.
  bool Along(const Node& node, const Frame& frame, std::shared_ptr<const Layer> layer, int axis) {
    std::vector<ValueId> inputs;
    for (ValueId id : node.inputs) {
      const std::optional<ValueId> operand = Operand(node, id, frame);
      if (!operand.has_value()) return false;
      inputs.push_back(*operand);
    }
    const ValueId value = Add(node, "rows_first", node.type, std::move(layer), std::move(inputs));
    return Done(node, {value, axis, frame.form.before, frame.form.behind});
  }

  bool Rewrite(const Node& node) {
    const Semantics semantics = node.layer->semantics();
    const Shape &in = shape(node.inputs[0]), &out = shape(node.outputs[0]);
    if (!in.ranked() || !out.ranked()) return false;
    if (ChoiceAxisOf(*node.layer) > 0) return Choice(node);
    if (node.outputs.size() != 1) return false;
    switch (semantics.op) {
      case Op::kReshape:
        return Reshape(node);
      case Op::kTranspose:
        return Transpose(node, semantics.perm);
      case Op::kFullyConnected:
        return semantics.bias_rows <= 1 && LastAxis(node, in[in.rank() - 1]);
      case Op::kLayerNorm:
        return LastAxis(node, in[in.rank() - 1]);
      case Op::kPrelu:
      case Op::kBatchNorm:
      case Op::kDice:
        return LastAxis(node, Dim::Of(semantics.params->period));
      case Op::kSoftmax:
      case Op::kSum:
      case Op::kConcat:
        return AlongAxis(node, semantics);
      case Op::kSlice:
        return Slice(node, semantics);
      case Op::kBroadcast:
        return Broadcast(node);
      case Op::kBatchDot: {
        const std::optional<Frame> frame = FrameOf(node, out);
        return frame.has_value() && frame->form.axis + 2 < out.rank() &&
               std::all_of(node.inputs.begin(), node.inputs.end(),
                           [&](ValueId id) { return shape(id).rank() >= 3; }) &&
               Along(node, *frame, node.layer, frame->form.axis);
      }
      case Op::kAdd:
      case Op::kSubtract:
      case Op::kMultiply:
      case Op::kDivide:
      case Op::kWhere:
      case Op::kRelu:
      case Op::kSigmoid:
      case Op::kTanh:
        return Elementwise(node);
      default:
        return ExpressionOf(*node.layer) != nullptr && Elementwise(node);
    }
  }

  bool Elementwise(const Node& node) {
    const std::optional<Frame> frame = FrameOf(node, shape(node.outputs[0]));
    return frame.has_value() && Along(node, *frame, node.layer, frame->form.axis);
  }

  bool AlongAxis(const Node& node, const Semantics& semantics) {
    const std::optional<Form> form = FormOf(node.inputs[0]);
    if (!form.has_value() || semantics.axis == form->axis) return false;
    const Frame frame{shape(node.inputs[0]).rank(), *form};
    const int axis = frame.Index(semantics.axis);
    if (semantics.op == Op::kSoftmax) return Along(node, frame, MakeSoftmax(axis), form->axis);
    if (semantics.op == Op::kConcat) return Along(node, frame, MakeConcat(axis), form->axis);
    return Along(node, frame, MakeSum(axis), form->axis - (semantics.axis < form->axis ? 1 : 0));
  }

  // Pieces of each of the rows that lie in one.
  bool Slice(const Node& node, const Semantics& semantics) {
    constexpr int64_t kMaxPieces = 4096;
    const std::optional<Form> form = FormOf(node.inputs[0]);
    if (!form.has_value() || form->axis != 0 || !semantics.contiguous) return false;
    const Shape& in = shape(node.inputs[0]);
    const int64_t each = form->before * form->behind, width = Count(in, 1, in.rank());
    if (each > kMaxPieces / static_cast<int64_t>(semantics.pieces.size())) return false;
    std::vector<Semantics::Piece> pieces;
    for (int64_t i = 0; i < each; ++i) {
      for (const Semantics::Piece& piece : semantics.pieces) {
        pieces.push_back({i * width + piece.offset, piece.elements});
      }
    }
    const ValueId value = Add(node, "rows_first", node.type, MakeSlice(pieces), {form->value});
    return Done(node, {value, 0, form->before, form->behind});
  }

  bool Broadcast(const Node& node) {
    const Shape& out = shape(node.outputs[0]);
    const std::optional<Frame> frame = FrameOf(node, out);
    const std::optional<ValueId> operand =
        frame.has_value() ? Operand(node, node.inputs[0], *frame) : std::nullopt;
    if (!operand.has_value()) return false;
    Sizes sizes = frame->Behind([&](int axis) { return out[axis].value(); }, true);
    sizes.insert(sizes.begin(), 0);
    const ValueId value =
        Add(node, "rows_first", node.type, MakeBroadcast(std::move(sizes)), {*operand});
    return Done(node, {value, frame->form.axis, frame->form.before, frame->form.behind});
  }

  bool Choice(const Node& node) {
    const int axis = ChoiceAxisOf(*node.layer);
    if (node.inputs.size() == 2) return axis == 1 && Take(node);
    const std::optional<Form> form = FormOf(node.inputs[0]);
    if (!form.has_value() || form->axis == axis) return false;
    const Frame frame{shape(node.inputs[0]).rank(), *form};
    const std::optional<ValueId> operand = Operand(node, node.inputs[0], frame);
    if (!operand.has_value()) return false;
    const ValueId best =
        Add(node, "rows_first", node.type, TopKAlong(*node.layer, frame.Index(axis)), {*operand});
    const ValueId places = graph_.AddValue({.name = absl::StrCat(node.name, "/places")});
    nodes_.back().outputs.push_back(places);
    return Done(node, {best, form->axis, form->before, form->behind}) &&
           Done(node, {places, form->axis, form->before, form->behind}, 1);
  }

  // Entries of one row, which all rows of places share.
  bool Take(const Node& node) {
    const Shape &from = shape(node.inputs[0]), &places = shape(node.inputs[1]);
    const std::optional<Form> form = FormOf(node.inputs[1]);
    const bool one = from.rank() > 0 && (from[0] == Dim::Of(1) || from[0] == Dim::Users());
    if (!form.has_value() || form->axis != 0 || !one || forms_.contains(node.inputs[0])) {
      return false;
    }
    Sizes behind;
    for (int i = 1; i < places.rank(); ++i) behind.push_back(places[i].value());
    behind[0] *= form->before * form->behind;  // Along which it chooses.
    const ValueId value = Add(node, "rows_first", node.type, node.layer,
                              {node.inputs[0], AddReshape(node, form->value, std::move(behind))});
    return Done(node, {value, 0, form->before, form->behind});
  }

  // A layer over rows of `width`, wherever else they lie.
  bool LastAxis(const Node& node, Dim width) {
    const std::optional<Form> form = FormOf(node.inputs[0]);
    const Shape& in = shape(node.inputs[0]);
    if (!form.has_value() || !width.IsConst() || width.value() < 1 ||
        Count(in, form->axis + 1, in.rank()) % width.value() != 0 || form->axis + 1 == in.rank()) {
      return false;
    }
    const int64_t all = Count(in, 0, in.rank()) * form->before * form->behind;
    Sizes behind = {all / width.value(), width.value()};
    if (behind[0] == 1) behind.erase(behind.begin());
    const ValueId flat = AddReshape(node, form->value, std::move(behind));
    return Done(node, {Add(node, "rows_first", node.type, node.layer, {flat}), form->axis,
                       form->before, form->behind});
  }

  // The same elements in the same order, but for the rows.
  bool Reshape(const Node& node) {
    const std::optional<Form> form = FormOf(node.inputs[0]);
    const Shape &in = shape(node.inputs[0]), &out = shape(node.outputs[0]);
    const int axis = RowsAxis(out);
    if (!form.has_value() || axis < 0) return false;
    const int64_t ahead = Count(in, 0, form->axis) * form->before;
    const int64_t before = ahead / Count(out, 0, axis);
    if (before < 1 || before * Count(out, 0, axis) != ahead || out[axis].value() % before != 0) {
      return false;
    }
    return Done(node, {form->value, axis, before, out[axis].value() / before});
  }

  bool Transpose(const Node& node, const std::vector<int>& perm) {
    const std::optional<Form> form = FormOf(node.inputs[0]);
    if (!form.has_value()) return false;
    const Frame frame{shape(node.inputs[0]).rank(), *form};
    std::vector<int> order = {0};
    int axis = 0;
    for (int i = 0; i < frame.rank; ++i) {
      if (perm[i] != form->axis) {
        order.push_back(frame.Index(perm[i]));
        continue;
      }
      axis = i;
      int at = form->axis + 1;
      if (form->before > 1) order.push_back(at++);
      if (form->behind > 1) order.push_back(at);
    }
    ValueId value = form->value;
    if (!std::is_sorted(order.begin(), order.end())) {
      const std::optional<ValueId> operand = Operand(node, node.inputs[0], frame);
      if (!operand.has_value()) return false;
      value = Add(node, "rows_first", node.type, MakeTranspose(std::move(order)), {*operand});
    }
    return Done(node, {value, axis, form->before, form->behind});
  }

  GraphSpecs specs_;
  Graph& graph_;
  std::vector<Node> nodes_;
  HashMap<ValueId, Form> forms_;  // Of values that are no tensors any more.
};

}  // namespace

bool PutRowsFirst(const GraphSpecs& specs, Graph& graph) { return Rewriter(specs, graph).Run(); }

}  // namespace ulfd::engine

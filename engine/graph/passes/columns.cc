// SPDX-License-Identifier: Apache-2.0
#include "engine/graph/passes/columns.h"

#include <algorithm>

namespace ulfd::engine {

namespace {

using Op = Semantics::Op;

// Layers that one trace goes through: each concat of a tensor with itself doubles the blocks.  What
// lies beyond counts as made where the trace ended.  A pass may trace from every node, so that in
// all it goes through some millions.
constexpr int kMaxSteps = 1 << 14;
int MaxSteps(const GraphEditor& editor) {
  return std::min(kMaxSteps, (1 << 24) / std::max(1, editor.size()));
}

class ColumnTracer {
 public:
  ColumnTracer(const GraphEditor& editor, Dim rows, std::vector<int>& through)
      : editor_(editor), rows_(rows), max_steps_(MaxSteps(editor)), through_(through) {}

  void Trace(ValueId value, int64_t offset, int64_t width) {
    const int producer = editor_.Producer(value);
    if (producer >= 0 && steps_ < max_steps_ && Through(producer, offset, width)) {
      through_.push_back(producer);
      return;
    }
    if (!found_.empty() && found_.back().value == value &&
        found_.back().offset + found_.back().width == offset) {
      found_.back().width += width;
      return;
    }
    found_.push_back({value, offset, width});
  }

  std::vector<Columns> Take() { return std::move(found_); }

 private:
  // Rows of the traced tensor, or one for all of them.
  bool FitsRows(ValueId value) const {
    const Shape& shape = editor_.shape(value);
    return shape.rank() >= 2 && editor_.spec(value).dtype == DType::kFloat32 &&
           RowWidth(shape) >= 0 &&
           (shape[0] == rows_ || shape[0] == Dim::Users() || shape[0] == Dim::Of(1));
  }

  bool Through(int index, int64_t offset, int64_t width) {
    ++steps_;
    const Node& node = editor_.node(index);
    const Semantics& semantics = editor_.semantics(index);
    for (ValueId id : node.inputs) {
      if (semantics.op == Op::kBroadcast && id != node.inputs[0]) continue;
      if (!FitsRows(id)) return false;
    }
    switch (semantics.op) {
      case Op::kFuse:
        return SideBySide(node, offset, width);
      case Op::kConcat: {
        const Shape& shape = editor_.shape(node.outputs[0]);
        for (int d = 1; d < semantics.axis; ++d) {
          if (shape[d] != Dim::Of(1)) return false;
        }
        return semantics.axis >= 1 && SideBySide(node, offset, width);
      }
      case Op::kReshape:
      case Op::kBroadcast: {
        const Shape& in = editor_.shape(node.inputs[0]);
        const Shape& out = editor_.shape(node.outputs[0]);
        if (RowWidth(in) != RowWidth(out)) return false;
        if (semantics.op == Op::kReshape && in[0] != out[0]) return false;
        // With the same number of elements per row, only the leading dimension is repeated, unless
        // ranks differ.
        if (semantics.op == Op::kBroadcast && in.rank() != out.rank()) return false;
        Trace(node.inputs[0], offset, width);
        return true;
      }
      case Op::kSlice:
        return semantics.contiguous && Pieces(node, semantics, offset, width);
      default:
        return false;
    }
  }

  bool SideBySide(const Node& node, int64_t offset, int64_t width) {
    int64_t start = 0;
    for (ValueId id : node.inputs) {
      const int64_t columns = RowWidth(editor_.shape(id));
      const int64_t from = std::max(offset, start), to = std::min(offset + width, start + columns);
      if (from < to) Trace(id, from - start, to - from);
      start += columns;
    }
    return true;
  }

  bool Pieces(const Node& node, const Semantics& semantics, int64_t offset, int64_t width) {
    int64_t start = 0;
    for (const Semantics::Piece& piece : semantics.pieces) {
      const int64_t from = std::max(offset, start),
                    to = std::min(offset + width, start + piece.elements);
      if (from < to) Trace(node.inputs[0], piece.offset + from - start, to - from);
      start += piece.elements;
    }
    return true;
  }

  const GraphEditor& editor_;
  const Dim rows_;
  const int max_steps_;
  std::vector<int>& through_;
  int steps_ = 0;
  std::vector<Columns> found_;
};

void TraceConcat(const GraphEditor& editor, ValueId value, std::vector<int>& through,
                 std::vector<Columns>& found) {
  const int producer = editor.Producer(value);
  const Shape& shape = editor.shape(value);
  if (producer >= 0 && editor.semantics(producer).op == Op::kConcat &&
      editor.semantics(producer).axis == 2 && shape.rank() == 3 && found.size() < kMaxSteps) {
    through.push_back(producer);
    for (ValueId id : editor.node(producer).inputs) TraceConcat(editor, id, through, found);
    return;
  }
  found.push_back({value, 0, shape[shape.rank() - 1].value()});
}

}  // namespace

int PlaceInput(ValueId value, std::vector<ValueId>& inputs) {
  const auto it = std::find(inputs.begin(), inputs.end(), value);
  if (it != inputs.end()) return static_cast<int>(it - inputs.begin());
  inputs.push_back(value);
  return static_cast<int>(inputs.size()) - 1;
}

int64_t RowWidth(const Shape& shape) {
  const Dim width = shape.RowElements();
  return width.IsConst() ? width.value() : -1;
}

std::vector<Columns> TraceColumns(const GraphEditor& editor, ValueId value,
                                  std::vector<int>& through) {
  const Shape& shape = editor.shape(value);
  ColumnTracer tracer(editor, shape[0], through);
  tracer.Trace(value, 0, RowWidth(shape));
  return tracer.Take();
}

std::vector<Columns> TraceLastAxis(const GraphEditor& editor, ValueId value,
                                   std::vector<int>& through) {
  std::vector<Columns> found;
  TraceConcat(editor, value, through, found);
  return found;
}

}  // namespace ulfd::engine

// Computes at load what depends on constants only.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <functional>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/load_scope.h"
#include "base/status_macros.h"
#include "engine/graph/passes/passes.h"
#include "engine/tensor/flush_denormals.h"
#include "engine/tensor/onednn.h"

namespace ulfd::engine {

namespace {

// A folded value may be larger than what it is computed from (a broadcast), but not by much.
constexpr int64_t kMaxGrownElements = 1 << 14;

constexpr std::align_val_t kAlignment{64};

struct Free {
  void operator()(void* p) const { operator delete(p, kAlignment); }
};

// Whether the node reads constants only, makes one float32 tensor, and folding it costs no memory
// to speak of.
bool Foldable(const GraphEditor& editor, int index) {
  const Node& node = editor.node(index);
  const Semantics::Op op = editor.semantics(index).op;
  if (node.outputs.size() != 1 || op == Semantics::Op::kEmbedding) return false;
  const TensorSpec& spec = editor.spec(node.outputs[0]);
  if (spec.dtype != DType::kFloat32 || !spec.shape.IsConcrete()) return false;
  const int64_t elements = spec.shape.Elements().value();
  if (elements == 0) return false;
  if (op == Semantics::Op::kConstant) {
    return static_cast<int64_t>(editor.semantics(index).constant.size()) == elements;
  }
  if (node.inputs.empty()) return false;
  int64_t read = 0;
  for (ValueId id : node.inputs) {
    const Value& value = editor.graph().values[id];
    if (value.kind != Value::Kind::kConstant || value.dtype != DType::kFloat32) return false;
    read += static_cast<int64_t>(value.constant.size());
  }
  return elements <= std::max(read, kMaxGrownElements);
}

Tensor TensorOf(const Shape& shape, void* data) {
  Tensor tensor{DType::kFloat32, {}, data};
  for (Dim d : shape.dims()) tensor.dims.push_back(d.value());
  return tensor;
}

// What the node's own kernel makes of its constants.
absl::StatusOr<std::vector<float>> Compute(const GraphEditor& editor, int index) {
  const Node& node = editor.node(index);
  std::vector<TensorSpec> specs;
  std::vector<Tensor> in;
  for (ValueId id : node.inputs) {
    specs.push_back(editor.spec(id));
    // Kernels take inputs as tensors without const and do not write to them.
    float* data = const_cast<float*>(editor.graph().values[id].constant.data());
    in.push_back(TensorOf(editor.shape(id), data));
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<Kernel> kernel, node.layer->Prepare(specs));
  std::vector<float> result(editor.shape(node.outputs[0]).Elements().value());
  if (kernel->IsView()) {
    std::copy_n(in[0].f32(), result.size(), result.data());
    return result;
  }
  const size_t bytes = static_cast<size_t>(kernel->ScratchBytes(in));
  const std::unique_ptr<void, Free> scratch(operator new(bytes, kAlignment));
  Tensor out[] = {TensorOf(editor.shape(node.outputs[0]), result.data())};
  RunCounters counters;
  const std::function<bool()> stop = [] { return !LoadScope::Check().ok(); };
  RunContext context{.in = in,
                     .out = absl::MakeSpan(out),
                     .scratch = scratch.get(),
                     .counters = &counters,
                     .pace = Pace(&stop)};
  UseOneThread();              // The calling thread stays so.
  const FlushDenormals flush;  // As in a run.
  RETURN_IF_ERROR(kernel->Run(context));
  RETURN_IF_ERROR(LoadScope::Check());
  return result;
}

}  // namespace

absl::Status FoldConstants(GraphEditor& editor) {
  return editor.ForEach([&](int i) -> absl::Status {
    if (!Foldable(editor, i)) return absl::OkStatus();
    const Node& node = editor.node(i);
    std::vector<float> data;
    if (editor.semantics(i).op == Semantics::Op::kConstant) {
      const absl::Span<const float> constant = editor.semantics(i).constant;
      data.assign(constant.begin(), constant.end());
    } else {
      ASSIGN_OR_RETURN(data, Compute(editor, i));
    }
    return editor.Fold(node.outputs[0], std::move(data),
                       absl::StrCat(node.Label(), " computed at load"));
  });
}

}  // namespace ulfd::engine

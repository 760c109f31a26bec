// Computes once what several layers compute from the same inputs.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/hash_map.h"
#include "base/status_macros.h"
#include "engine/graph/passes/passes.h"

namespace ulfd::engine {

namespace {

bool Commutes(Semantics::Op op) {
  return op == Semantics::Op::kAdd || op == Semantics::Op::kMultiply;
}

// Values that are equal on every request get the number of the first of them.
class Numbering {
 public:
  explicit Numbering(const GraphEditor& editor) : editor_(editor) {
    const std::vector<Value>& values = editor.graph().values;
    first_.resize(values.size());
    std::iota(first_.begin(), first_.end(), 0);
    HashMap<std::string, ValueId> constants;
    for (ValueId id = 0; id < static_cast<ValueId>(values.size()); ++id) {
      if (values[id].kind != Value::Kind::kConstant) continue;
      std::string key = absl::StrCat(absl::StrJoin(values[id].constant_dims, "x"), ":");
      key.append(reinterpret_cast<const char*>(values[id].constant.data()),
                 values[id].constant.size() * sizeof(float));
      first_[id] = constants.try_emplace(std::move(key), id).first->second;
    }
  }

  // Equal for nodes whose outputs are equal; "" for a node that is compared with nothing.
  std::string KeyOf(int index) const {
    const Node& node = editor_.node(index);
    if (node.function.empty()) return "";
    std::vector<ValueId> inputs;
    for (ValueId id : node.inputs) inputs.push_back(first_[id]);
    if (Commutes(editor_.semantics(index).op)) std::sort(inputs.begin(), inputs.end());
    return absl::StrCat(node.outputs.size(), ":", absl::StrJoin(inputs, ","), ":", node.function);
  }

  void SetEqual(ValueId id, ValueId to) { first_[id] = first_[to]; }

 private:
  const GraphEditor& editor_;
  std::vector<ValueId> first_;
};

// Moves node `index`, whose value is an output of the graph, to where node `earlier` computes the
// same, and drops that one.
absl::Status Supersede(GraphEditor& editor, int index, int earlier, const std::string& text) {
  const ValueId kept = editor.node(index).outputs[0];
  const ValueId dropped = editor.node(earlier).outputs[0];
  RETURN_IF_ERROR(editor.Replace({index}, earlier, {editor.node(index)}, text));
  return editor.Redirect(dropped, kept, text);
}

// Lets readers of node `index` read what `equal` (values of an earlier node) hold already.
absl::Status Merge(GraphEditor& editor, int index, std::vector<ValueId>& equal) {
  const Node node = editor.node(index);
  const int earlier = editor.Producer(equal[0]);
  const std::string text =
      absl::StrCat(node.Label(), " computes what ", editor.node(earlier).Label(), " does");
  if (equal.size() == 1 && editor.IsOutput(node.outputs[0])) {
    // Two outputs of the graph stay two.
    if (editor.IsOutput(equal[0])) return absl::OkStatus();
    RETURN_IF_ERROR(Supersede(editor, index, earlier, text));
    equal[0] = node.outputs[0];
    return absl::OkStatus();
  }
  for (size_t i = 0; i < equal.size(); ++i) {
    const ValueId from = node.outputs[i];
    if (editor.IsOutput(from) || editor.Readers(from).empty()) continue;
    RETURN_IF_ERROR(editor.Redirect(from, equal[i], text));
  }
  return absl::OkStatus();
}

// Whether the node is a reshape to the shape that is there.
bool IsSame(const GraphEditor& editor, int index) {
  const Node& node = editor.node(index);
  return editor.semantics(index).op == Semantics::Op::kReshape &&
         editor.SameSpec(node.inputs[0], node.outputs[0]) && !editor.IsOutput(node.outputs[0]) &&
         !editor.Readers(node.outputs[0]).empty();
}

}  // namespace

absl::Status MergeCommonSubexpressions(GraphEditor& editor) {
  Numbering numbering(editor);
  HashMap<std::string, std::vector<ValueId>> made;
  for (int i = 0; i < editor.size();) {
    const Node& node = editor.node(i);
    if (IsSame(editor, i)) {
      RETURN_IF_ERROR(editor.Redirect(node.outputs[0], node.inputs[0],
                                      absl::StrCat(node.Label(), " changes nothing")));
      continue;
    }
    const std::string key = numbering.KeyOf(i);
    const auto [it, is_new] =
        key.empty() ? std::pair(made.end(), true) : made.try_emplace(key, node.outputs);
    std::vector<ValueId>* equal = is_new ? nullptr : &it->second;
    for (size_t o = 0; equal != nullptr && o < equal->size(); ++o) {
      if (!editor.SameSpec(node.outputs[o], (*equal)[o])) equal = nullptr;
    }
    if (equal == nullptr) {
      ++i;
      continue;
    }
    for (size_t o = 0; o < equal->size(); ++o) numbering.SetEqual(node.outputs[o], (*equal)[o]);
    const int before = editor.size();
    RETURN_IF_ERROR(Merge(editor, i, *equal));
    if (editor.size() == before) ++i;
  }
  return absl::OkStatus();
}

}  // namespace ulfd::engine

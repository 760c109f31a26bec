// Several fully connected layers over the same columns -> a wide one, whose readers take their
// columns of it.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/graph/passes/columns.h"
#include "engine/graph/passes/passes.h"
#include "engine/graph/passes/weights.h"
#include "engine/layers/fused/fused_fc.h"
#include "engine/layers/types/building_blocks.h"

namespace ulfd::engine {

namespace {

using Block = FusedFcOptions::Block;

const FusedFcOptions& OptionsOf(const GraphEditor& editor, int index) {
  return *editor.semantics(index).fused_fc;
}

// Equal for layers that can be one; "" for a node that cannot be part of a wide layer.
std::string KeyOf(const GraphEditor& editor, int index) {
  if (editor.semantics(index).op != Semantics::Op::kFusedFc) return "";
  const FusedFcOptions& options = OptionsOf(editor, index);
  if (!options.flat) return "";
  const Node& node = editor.node(index);
  const FcEpilogue& epilogue = options.epilogue;
  std::string key = absl::StrCat(epilogue.affine, ",", static_cast<int>(epilogue.activation), ",");
  if (options.init >= 0) {
    const Shape& init = editor.shape(node.inputs[options.init]);
    absl::StrAppend(&key, "init ", init[0].ToString());
  }
  for (const Block& block : options.blocks) {
    absl::StrAppend(&key, ",", node.inputs[block.input], "[", block.offset, "+", block.k, "]");
  }
  return key;
}

// Whether reader `index` can take columns of a wider tensor instead of `value`.
bool ReadsColumns(const GraphEditor& editor, int index, ValueId value) {
  if (editor.semantics(index).op != Semantics::Op::kFusedFc) return false;
  const FusedFcOptions& options = OptionsOf(editor, index);
  const std::vector<ValueId>& inputs = editor.node(index).inputs;
  return options.flat && (options.init < 0 || inputs[options.init] != value);
}

// What the kernel does for n columns: single ones up to 4, else groups of 8.
double PaddedColumns(int64_t n) { return static_cast<double>(n <= 4 ? n : (n + 7) / 8 * 8); }
Cost Padded(Cost cost, int64_t n) {
  const double factor = PaddedColumns(n) / static_cast<double>(n);
  cost.flops.per_user *= factor;
  cost.flops.per_ad *= factor;
  return cost;
}

// Blocks that follow one another in one input -> one block.
void JoinNeighbours(std::vector<Block>& blocks) {
  std::vector<Block> joined;
  for (const Block& block : blocks) {
    if (!joined.empty() && joined.back().input == block.input &&
        joined.back().offset + joined.back().k == block.offset) {
      joined.back().k += block.k;
    } else {
      joined.push_back(block);
    }
  }
  blocks = std::move(joined);
}

void Append(const std::vector<float>& from, std::vector<float>& to) {
  to.insert(to.end(), from.begin(), from.end());
}

class Group {
 public:
  Group(GraphEditor& editor, std::vector<int> nodes) : editor_(editor), nodes_(std::move(nodes)) {
    for (int node : nodes_) {
      members_.push_back({editor.node(node).outputs[0], n_, OptionsOf(editor, node).n()});
      n_ += members_.back().n;
    }
  }

  // Merges the members if that is cheaper.
  absl::Status Merge() {
    Weights weights;
    weights.Add(editor_, nodes_);
    if (!editor_.MayCopy(weights.matrices, weights.floats)) return absl::OkStatus();
    std::vector<Node> added;
    wide_ = MakeWide(nodes_, "wide", added);
    if (wide_ == kNoValue) return absl::OkStatus();
    ASSIGN_OR_RETURN(const bool cheaper, IsWorthwhile(added));
    weights.Add(editor_, starting_);
    if (!cheaper || !editor_.TakeCopy(weights.matrices, weights.floats)) return absl::OkStatus();
    std::string text;
    for (int node : nodes_) {
      absl::StrAppend(&text, text.empty() ? "" : ", ", editor_.node(node).Label());
    }
    absl::StrAppend(&text, " -> one with ", n_, " columns");
    RETURN_IF_ERROR(editor_.Replace({}, nodes_[0], std::move(added), std::move(text)));
    std::vector<ValueId> inits;
    for (size_t m = 0; m < starting_.size(); ++m) {
      inits.push_back(InitOf(editor_.Producer(members_[m].value)));
    }
    for (const Member& member : members_) RETURN_IF_ERROR(Release(member));
    for (ValueId init : inits) {
      const int node = editor_.Producer(init);
      editor_.Remove(node, absl::StrCat(editor_.node(node).Label(), " is part of a wide one"));
    }
    return absl::OkStatus();
  }

 private:
  struct Weights {
    void Add(const GraphEditor& editor, const std::vector<int>& nodes) {
      for (const int node : nodes) {
        const FusedFcOptions& options = OptionsOf(editor, node);
        matrices.push_back(&options.weight);
        floats += options.k() * options.n();
      }
    }
    std::vector<const MatrixRef*> matrices;
    int64_t floats = 0;
  };

  struct Member {
    ValueId value;
    int64_t offset, n;  // Its columns of the wide layer.
  };

  ValueId InitOf(int node) const {
    const int init = OptionsOf(editor_, node).init;
    return init < 0 ? kNoValue : editor_.node(node).inputs[init];
  }

  // The layers that compute the starting sums of `nodes` if those can be one, too, and nothing else
  // reads them; empty otherwise.
  std::vector<int> StartingLayers(const std::vector<int>& nodes) const {
    std::vector<int> layers;
    for (int node : nodes) {
      const ValueId init = InitOf(node);
      const int producer = init == kNoValue ? -1 : editor_.Producer(init);
      if (producer < 0 || editor_.OnlyReader(init) != node) return {};
      layers.push_back(producer);
    }
    const std::string key = KeyOf(editor_, layers[0]);
    const bool alike = !key.empty() && std::all_of(layers.begin(), layers.end(), [&](int layer) {
      return KeyOf(editor_, layer) == key;
    });
    return alike ? layers : std::vector<int>();
  }

  // The value that holds the starting sums of `nodes` side by side, all of them computed before
  // the first member; adds nodes if there is none.  kNoValue: that cannot be.
  ValueId WideInit(const std::vector<int>& nodes, std::vector<Node>& added) {
    std::vector<int> through;
    std::vector<Columns> columns;
    for (int node : nodes) {
      for (const Columns& found : TraceColumns(editor_, InitOf(node), through)) {
        if (!columns.empty() && columns.back().value == found.value &&
            columns.back().offset + columns.back().width == found.offset) {
          columns.back().width += found.width;
        } else {
          columns.push_back(found);
        }
      }
    }
    const Dim rows = editor_.shape(InitOf(nodes[0]))[0];
    if (columns.size() == 1 && columns[0].offset == 0 &&
        editor_.shape(columns[0].value) == Shape({rows, Dim::Of(n_)})) {
      return editor_.Producer(columns[0].value) < nodes_[0] ? columns[0].value : kNoValue;
    }
    starting_ = StartingLayers(nodes);
    if (!starting_.empty()) {
      // A wide layer's own inputs are there where the first layer is; further starting sums are not
      // looked for.
      if (OptionsOf(editor_, starting_[0]).init < 0 && starting_[0] < nodes_[0]) {
        return MakeWide(starting_, "wide_start", added);
      }
      starting_.clear();
    }
    std::vector<ValueId> inits;
    for (int node : nodes) {
      inits.push_back(InitOf(node));
      if (editor_.Producer(inits.back()) >= nodes_[0]) return kNoValue;
    }
    const ValueId wide = editor_.NewValue(absl::StrCat(editor_.node(nodes[0]).name, "/starts"));
    added.push_back(
        editor_.NewNode(nodes[0], "starts", "concat_layer", MakeConcat(1), inits, {wide}));
    return wide;
  }

  // Adds the layers `nodes` as one; gives its value.  kNoValue: that cannot be.
  ValueId MakeWide(const std::vector<int>& nodes, absl::string_view suffix,
                   std::vector<Node>& added) {
    const FusedFcOptions& first = OptionsOf(editor_, nodes[0]);
    FusedFcOptions options{.flat = true};
    std::vector<ValueId> inputs;
    for (const Block& block : first.blocks) {
      const ValueId value = editor_.node(nodes[0]).inputs[block.input];
      options.blocks.push_back({PlaceInput(value, inputs), block.offset, block.k});
    }
    if (first.init >= 0) {
      const ValueId init = WideInit(nodes, added);
      if (init == kNoValue) return kNoValue;
      options.init = PlaceInput(init, inputs);
    }
    JoinWeights(nodes, options);
    JoinEpilogues(nodes, options.epilogue);
    const Node& origin = editor_.node(nodes[0]);
    const ValueId wide = editor_.NewValue(absl::StrCat(origin.name, "/", suffix));
    added.push_back(editor_.NewNode(nodes[0], suffix, origin.type,
                                    std::make_shared<FusedFc>(std::move(options)),
                                    std::move(inputs), {wide}));
    return wide;
  }

  void JoinWeights(const std::vector<int>& nodes, FusedFcOptions& options) const {
    const int64_t k = options.k();
    std::vector<float> weights(k * n_);
    bool biased = false;
    for (size_t m = 0; m < nodes.size(); ++m) {
      const FusedFcOptions& member = OptionsOf(editor_, nodes[m]);
      biased |= member.init < 0 && !member.bias.empty();
      for (int64_t i = 0; i < k; ++i) {
        for (int64_t j = 0; j < member.n(); ++j) {
          weights[i * n_ + members_[m].offset + j] = member.weight.at(i, j);
        }
      }
    }
    SetWeight(std::move(weights), n_, options);
    if (!biased) return;
    options.bias.assign(n_, 0.0f);
    for (size_t m = 0; m < nodes.size(); ++m) {
      const std::vector<float>& bias = OptionsOf(editor_, nodes[m]).bias;
      std::copy(bias.begin(), bias.end(), options.bias.begin() + members_[m].offset);
    }
  }

  void JoinEpilogues(const std::vector<int>& nodes, FcEpilogue& joined) const {
    for (int node : nodes) {
      const FcEpilogue& epilogue = OptionsOf(editor_, node).epilogue;
      joined.affine = epilogue.affine;
      joined.activation = epilogue.activation;
      Append(epilogue.affine_mean, joined.affine_mean);
      Append(epilogue.affine_scale, joined.affine_scale);
      Append(epilogue.affine_beta, joined.affine_beta);
      Append(epilogue.slope, joined.slope);
      Append(epilogue.mean, joined.mean);
      Append(epilogue.scale, joined.scale);
      Append(epilogue.gamma, joined.gamma);
    }
  }

  // Whether something needs the member's value as a tensor of its own.
  bool NeedsTensor(const Member& member) const {
    const std::vector<int>& readers = editor_.Readers(member.value);
    return editor_.IsOutput(member.value) ||
           std::any_of(readers.begin(), readers.end(),
                       [&](int reader) { return !ReadsColumns(editor_, reader, member.value); });
  }

  Node SliceOf(const Member& member, int origin) const {
    return editor_.NewNode(origin, "columns", "slice_layer", MakeSlice({{member.offset, member.n}}),
                           {wide_}, {member.value});
  }

  absl::StatusOr<bool> IsWorthwhile(const std::vector<Node>& added) const {
    std::vector<Node> all = added;
    for (size_t m = 0; m < members_.size(); ++m) {
      if (NeedsTensor(members_[m])) all.push_back(SliceOf(members_[m], nodes_[m]));
    }
    // So few columns are multiplied in the time that reading x takes, out of the first-level cache;
    // cutting them out again, value by value, takes longer than reading x once more.
    constexpr int64_t kFewColumns = 8;
    if (all.size() > added.size() && n_ <= kFewColumns) return false;
    ASSIGN_OR_RETURN(const Cost after, editor_.CostIfAdded(all));
    ASSIGN_OR_RETURN(const Cost wide, editor_.CostIfAdded(added));
    Cost before, before_padded;
    for (size_t m = 0; m < members_.size(); ++m) {
      before += editor_.CostOfNode(nodes_[m]);
      before_padded += Padded(editor_.CostOfNode(nodes_[m]), members_[m].n);
    }
    for (size_t m = 0; m < starting_.size(); ++m) {
      before += editor_.CostOfNode(starting_[m]);
      before_padded += Padded(editor_.CostOfNode(starting_[m]), members_[m].n);
    }
    Cost after_padded = Padded(wide, n_);
    after_padded.bytes += after.bytes - wide.bytes;
    return IsCheaper(after, before) && IsCheaper(after_padded, before_padded);
  }

  // Lets the readers of a member take columns of the wide layer; a slice remains for the others.
  absl::Status Release(const Member& member) {
    while (true) {
      const std::vector<int>& readers = editor_.Readers(member.value);
      const auto reader = std::find_if(readers.begin(), readers.end(), [&](int index) {
        return ReadsColumns(editor_, index, member.value);
      });
      if (reader == readers.end()) break;
      RETURN_IF_ERROR(Redirect(*reader, member));
    }
    const int node = editor_.Producer(member.value);
    std::string text = absl::StrCat(editor_.node(node).Label(), " is part of a wide one");
    if (NeedsTensor(member)) {
      return editor_.Replace({node}, node, {SliceOf(member, node)}, std::move(text));
    }
    editor_.Remove(node, std::move(text));
    return absl::OkStatus();
  }

  absl::Status Redirect(int reader, const Member& member) {
    const Node& old = editor_.node(reader);
    FusedFcOptions options = OptionsOf(editor_, reader);
    std::vector<ValueId> inputs;
    for (Block& block : options.blocks) {
      const ValueId value = old.inputs[block.input];
      if (value == member.value) {
        block = {PlaceInput(wide_, inputs), block.offset + member.offset, block.k};
      } else {
        block.input = PlaceInput(value, inputs);
      }
    }
    if (options.init >= 0) options.init = PlaceInput(old.inputs[options.init], inputs);
    JoinNeighbours(options.blocks);
    std::string text =
        absl::StrCat(old.Label(), " reads columns of \"", editor_.graph().values[wide_].name, "\"");
    Node node = editor_.NewNode(reader, "", old.type, std::make_shared<FusedFc>(std::move(options)),
                                std::move(inputs), old.outputs);
    node.name = old.name;
    return editor_.Replace({reader}, reader, {std::move(node)}, std::move(text));
  }

  GraphEditor& editor_;
  const std::vector<int> nodes_;  // Valid until the first change, as are the next.
  std::vector<int> starting_;     // Layers of the starting sums that become one as well.
  std::vector<Member> members_;
  int64_t n_ = 0;
  ValueId wide_ = kNoValue;
};

}  // namespace

absl::Status MergeParallelFc(GraphEditor& editor) {
  std::set<std::string> tried;
  while (true) {
    // In the order of their first members, so that the user's part of a split layer comes first.
    std::map<std::string, std::vector<int>> groups;
    std::vector<std::string> order;
    for (int i = 0; i < editor.size(); ++i) {
      const std::string key = KeyOf(editor, i);
      if (key.empty()) continue;
      std::vector<int>& group = groups[key];
      if (group.empty()) order.push_back(key);
      group.push_back(i);
    }
    const auto next = std::find_if(order.begin(), order.end(), [&](const std::string& key) {
      return groups[key].size() > 1 && tried.insert(key).second;
    });
    if (next == order.end()) return absl::OkStatus();
    RETURN_IF_ERROR(Group(editor, groups[*next]).Merge());
  }
}

}  // namespace ulfd::engine

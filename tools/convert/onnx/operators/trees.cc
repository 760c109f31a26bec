// Tree ensembles of ai.onnx.ml.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/hash_map.h"
#include "base/status_macros.h"
#include "tools/convert/onnx/operators/layers.h"
#include "tools/convert/recipes.h"

namespace ulfd::convert {
namespace {

using engine::Dim;

constexpr int kMostDepth = 1000;

const onnx::AttributeProto& ListOf(const onnx::NodeProto& node, const char* name) {
  static const onnx::AttributeProto none;
  const onnx::AttributeProto* const found = FindAttribute(node, name);
  return found == nullptr ? none : *found;
}

// The number before this one, as a run takes them: denormal numbers are 0.
float Below(float number) {
  const float below = std::nextafter(number, -INFINITY);
  return below < 0 ? std::min(below, -std::numeric_limits<float>::min()) : below;
}

// The weights of trees_layer, made node by node: each after what follows it, until all are turned
// round.
class ForestWriter {
 public:
  explicit ForestWriter(const onnx::NodeProto& node)
      : node_(node),
        trees_(ListOf(node, "nodes_treeids")),
        ids_(ListOf(node, "nodes_nodeids")),
        modes_(ListOf(node, "nodes_modes")),
        features_(ListOf(node, "nodes_featureids")),
        values_(ListOf(node, "nodes_values")),
        missing_(ListOf(node, "nodes_missing_value_tracks_true")),
        thens_(ListOf(node, "nodes_truenodeids")),
        elses_(ListOf(node, "nodes_falsenodeids")),
        outputs_(IntAttribute(node, "n_targets", 1)) {}

  absl::StatusOr<std::vector<ulf::BlobData>> Write();
  int64_t outputs() const { return outputs_; }

 private:
  // Of a node that is there already, or, below 0, leaf -1 - place.
  using Place = int64_t;
  struct Split {
    int64_t feature;
    float threshold;
    Place holds, fails;
    bool of_missing;  // Whether it holds of what is no number.
  };
  struct Leaf {
    int64_t tree;
    std::vector<std::pair<int64_t, float>> weights;  // By output.
  };

  absl::Status Index();
  absl::StatusOr<Place> Grow(int at, int64_t tree, int depth);
  absl::StatusOr<Place> Child(int at, bool holds, int64_t tree, int depth);
  absl::StatusOr<Place> AddSplit(int at, Place holds, Place fails);
  absl::Status AddWeights();
  std::vector<ulf::BlobData> Blobs() const;
  Place Add(Split split) {
    splits_.push_back(split);
    return static_cast<Place>(splits_.size()) - 1;
  }

  const onnx::NodeProto& node_;
  const onnx::AttributeProto &trees_, &ids_, &modes_, &features_, &values_, &missing_, &thens_,
      &elses_;
  const int64_t outputs_;
  HashMap<std::pair<int64_t, int64_t>, int> index_;  // By tree and number in it.
  enum class State : uint8_t { kUnseen, kGrowing, kGrown };
  std::vector<State> states_;
  std::vector<Place> places_;  // Of those that have grown.
  std::vector<Split> splits_;
  std::vector<Leaf> leaves_;
  std::vector<Place> roots_;
};

absl::Status ForestWriter::Index() {
  const int count = trees_.ints_size();
  const int lengths[] = {ids_.ints_size(),      modes_.strings_size(), features_.ints_size(),
                         values_.floats_size(), thens_.ints_size(),    elses_.ints_size()};
  if (count == 0 || std::any_of(std::begin(lengths), std::end(lengths),
                                [count](int length) { return length != count; })) {
    return InvalidArgument("lists of nodes of different lengths");
  }
  if (missing_.ints_size() != 0 && missing_.ints_size() != count) {
    return InvalidArgument("lists of nodes of different lengths");
  }
  for (int i = 0; i < count; ++i) {
    if (!index_.emplace(std::pair(trees_.ints(i), ids_.ints(i)), i).second) {
      return InvalidArgument("node ", ids_.ints(i), " of tree ", trees_.ints(i), " is there twice");
    }
  }
  states_.assign(static_cast<size_t>(count), State::kUnseen);
  places_.assign(static_cast<size_t>(count), 0);
  return absl::OkStatus();
}

absl::StatusOr<ForestWriter::Place> ForestWriter::Child(int at, bool holds, int64_t tree,
                                                        int depth) {
  const int64_t id = holds ? thens_.ints(at) : elses_.ints(at);
  const auto child = index_.find(std::pair(trees_.ints(at), id));
  if (child == index_.end()) {
    return InvalidArgument("no node ", id, " in tree ", trees_.ints(at));
  }
  return Grow(child->second, tree, depth + 1);
}

absl::StatusOr<ForestWriter::Place> ForestWriter::Grow(int at, int64_t tree, int depth) {
  State& state = states_[static_cast<size_t>(at)];
  Place& place = places_[static_cast<size_t>(at)];
  if (state == State::kGrown) return place;
  if (state == State::kGrowing || depth > kMostDepth) {
    return InvalidArgument("a tree with a cycle, or one that is too deep");
  }
  if (modes_.strings(at) == "LEAF") {
    leaves_.push_back({.tree = tree, .weights = {}});
    place = -static_cast<Place>(leaves_.size());
  } else {
    state = State::kGrowing;
    ASSIGN_OR_RETURN(const Place holds, Child(at, true, tree, depth));
    ASSIGN_OR_RETURN(const Place fails, Child(at, false, tree, depth));
    ASSIGN_OR_RETURN(place, AddSplit(at, holds, fails));
  }
  state = State::kGrown;
  return place;
}

// Every decision as value <= threshold.
absl::StatusOr<ForestWriter::Place> ForestWriter::AddSplit(int at, Place holds, Place fails) {
  const std::string& mode = modes_.strings(at);
  const float value = values_.floats(at);
  const int64_t feature = features_.ints(at);
  const bool tracks = missing_.ints_size() > 0 && missing_.ints(at) != 0;
  if (mode == "BRANCH_LEQ") return Add({feature, value, holds, fails, tracks});
  if (mode == "BRANCH_LT") return Add({feature, Below(value), holds, fails, tracks});
  if (mode == "BRANCH_GT") return Add({feature, value, fails, holds, !tracks});
  if (mode == "BRANCH_GTE") return Add({feature, Below(value), fails, holds, !tracks});
  if (mode == "BRANCH_EQ" || mode == "BRANCH_NEQ") {
    const bool equal = mode == "BRANCH_EQ";
    const Place same = equal ? holds : fails, other = equal ? fails : holds;
    const Place up_to = Add({feature, Below(value), other, same, false});
    return Add({feature, value, up_to, other, equal && tracks});
  }
  return Unimplemented("a decision of the kind ", mode);
}

absl::Status ForestWriter::AddWeights() {
  const onnx::AttributeProto &of = ListOf(node_, "target_treeids"),
                             &ids = ListOf(node_, "target_nodeids"),
                             &to = ListOf(node_, "target_ids"),
                             &weights = ListOf(node_, "target_weights");
  const int count = weights.floats_size();
  if (of.ints_size() != count || ids.ints_size() != count || to.ints_size() != count) {
    return InvalidArgument("lists of weights of different lengths");
  }
  const bool mean = StringAttribute(node_, "aggregate_function", "SUM") == "AVERAGE";
  const float share = mean ? static_cast<float>(roots_.size()) : 1.0f;
  for (int i = 0; i < count; ++i) {
    const auto found = index_.find(std::pair(of.ints(i), ids.ints(i)));
    const Place place =
        found == index_.end() || states_[static_cast<size_t>(found->second)] != State::kGrown
            ? 0
            : places_[static_cast<size_t>(found->second)];
    if (place >= 0 || to.ints(i) < 0 || to.ints(i) >= outputs_) {
      return InvalidArgument("a weight of node ", ids.ints(i), " of tree ", of.ints(i),
                             " for output ", to.ints(i), ", which is no leaf or no output");
    }
    leaves_[static_cast<size_t>(-1 - place)].weights.emplace_back(to.ints(i),
                                                                  weights.floats(i) / share);
  }
  return absl::OkStatus();
}

// Leaves have one number where those of each tree add to one output, else one per output.
std::vector<ulf::BlobData> ForestWriter::Blobs() const {
  std::vector<int64_t> output(roots_.size(), -1);
  bool single = true;
  for (const Leaf& leaf : leaves_) {
    int64_t& own = output[static_cast<size_t>(leaf.tree)];
    for (const auto& [to, weight] : leaf.weights) {
      single &= own == -1 || own == to;
      own = to;
    }
  }
  const int64_t width = single ? 1 : outputs_, last = static_cast<int64_t>(splits_.size()) - 1;
  const auto number = [last](Place place) { return static_cast<float>(last - place); };
  std::vector<float> nodes, trees, leaves(leaves_.size() * static_cast<size_t>(width), 0.0f);
  for (auto split = splits_.rbegin(); split != splits_.rend(); ++split) {
    for (const float value :
         {static_cast<float>(split->feature), split->threshold, number(split->holds),
          number(split->fails), split->of_missing ? 1.0f : 0.0f}) {
      nodes.push_back(value);
    }
  }
  for (size_t t = 0; t < roots_.size(); ++t) {
    trees.push_back(number(roots_[t]));
    trees.push_back(static_cast<float>(single ? std::max<int64_t>(0, output[t]) : 0));
  }
  for (size_t i = 0; i < leaves_.size(); ++i) {
    for (const auto& [to, weight] : leaves_[i].weights) {
      leaves[i * static_cast<size_t>(width) + static_cast<size_t>(single ? 0 : to)] += weight;
    }
  }
  std::vector<float> base(static_cast<size_t>(outputs_), 0.0f);
  const onnx::AttributeProto& given = ListOf(node_, "base_values");
  std::copy(given.floats().begin(), given.floats().end(), base.begin());
  return {MakeBlob({last + 1, 5}, nodes), MakeBlob({static_cast<int64_t>(roots_.size()), 2}, trees),
          MakeBlob({static_cast<int64_t>(leaves_.size()), width}, leaves),
          MakeBlob({outputs_}, base)};
}

absl::StatusOr<std::vector<ulf::BlobData>> ForestWriter::Write() {
  RETURN_IF_ERROR(Index());
  const int base = ListOf(node_, "base_values").floats_size();
  constexpr int64_t kMostOutputs = 1 << 16;
  if (outputs_ < 1 || outputs_ > kMostOutputs || (base != 0 && base != outputs_)) {
    return InvalidArgument(base, " base values for ", outputs_, " outputs");
  }
  std::map<int64_t, int> first;  // Of each tree.
  for (int i = trees_.ints_size(); i-- > 0;) first[trees_.ints(i)] = i;
  roots_.resize(first.size());
  // From the last one, so that the first is in front in the end.
  auto tree = static_cast<int64_t>(first.size());
  for (auto root = first.rbegin(); root != first.rend(); ++root) {
    --tree;
    ASSIGN_OR_RETURN(roots_[static_cast<size_t>(tree)], Grow(root->second, tree, 0));
  }
  if (splits_.empty()) Add({0, 0, -1, -1, false});  // The layer wants one.
  RETURN_IF_ERROR(AddWeights());
  return Blobs();
}

}  // namespace

absl::Status ConvertTrees(OnnxNode& node) {
  ASSIGN_OR_RETURN(const OnnxValue x, node.value(0));
  if (x.rank() != 2) return Unimplemented("an input that is no matrix");
  RETURN_IF_ERROR(WantNoRows(x, 1));
  ForestWriter forest(node.node);
  ASSIGN_OR_RETURN(std::vector<ulf::BlobData> weights, forest.Write());
  ASSIGN_OR_RETURN(const std::string in, node.graph.PlainAlong(x, {1}));
  const std::string out = node.Top();
  RETURN_IF_ERROR(
      node.builder().AddLayer(MakeLayer("trees_layer", node.name, {in}, out), std::move(weights)));
  node.Set(out, Dims{x.dims[0], Dim::Of(forest.outputs())});
  return absl::OkStatus();
}

}  // namespace ulfd::convert

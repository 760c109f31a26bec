// Tree ensembles of ai.onnx.ml as matrices.
// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/onnx/model/trees.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ulfd::convert {
namespace {

// Products per row beyond which a walk down the trees would be far cheaper.
constexpr int64_t kMostProducts = 1 << 20;
constexpr int64_t kMostNodes = 1 << 20, kMostDepth = 1000;

const onnx::AttributeProto& ListOf(const onnx::NodeProto& node, const std::string& name) {
  static const onnx::AttributeProto none;
  for (const onnx::AttributeProto& attribute : node.attribute()) {
    if (attribute.name() == name) return attribute;
  }
  return none;
}

// A node's place in the lists: of the tree and the number in it.
using Places = std::map<std::pair<int64_t, int64_t>, int>;

// The decisions and leaves of one tree, with the way to each leaf.
struct Tree {
  struct Step {
    int decision;  // Of the tree.
    bool holds;
  };
  std::vector<int> decisions, leaves;  // Places in the lists.
  std::vector<std::vector<Step>> ways;
};

class TreeReader {
 public:
  explicit TreeReader(const onnx::NodeProto& node)
      : trees_(ListOf(node, "nodes_treeids")),
        ids_(ListOf(node, "nodes_nodeids")),
        modes_(ListOf(node, "nodes_modes")),
        thens_(ListOf(node, "nodes_truenodeids")),
        elses_(ListOf(node, "nodes_falsenodeids")) {}

  bool Read(std::string& why) {
    const int count = trees_.ints_size();
    if (count == 0 || count > kMostNodes || ids_.ints_size() != count ||
        modes_.strings_size() != count || thens_.ints_size() != count ||
        elses_.ints_size() != count) {
      why = "lists of nodes of different lengths, or more nodes than a million";
      return false;
    }
    for (int i = 0; i < count; ++i) {
      if (!places_.emplace(std::pair(trees_.ints(i), ids_.ints(i)), i).second) {
        why = absl::StrCat("node ", ids_.ints(i), " of tree ", trees_.ints(i), " is there twice");
        return false;
      }
    }
    seen_.assign(static_cast<size_t>(count), false);
    std::map<int64_t, int> roots;  // The first of each tree.
    for (int i = count; i-- > 0;) roots[trees_.ints(i)] = i;
    for (const auto& [tree, root] : roots) {
      std::vector<Tree::Step> way;
      if (!Grow(root, way, result_.emplace_back(), why)) return false;
    }
    return true;
  }
  const std::vector<Tree>& trees() const { return result_; }
  const Places& places() const { return places_; }
  const std::string& mode(int place) const { return modes_.strings(place); }

 private:
  bool Grow(int place, std::vector<Tree::Step>& way, Tree& tree, std::string& why) {
    if (seen_[static_cast<size_t>(place)] || static_cast<int64_t>(way.size()) > kMostDepth) {
      why = "a tree with a cycle, or one that is too deep";
      return false;
    }
    seen_[static_cast<size_t>(place)] = true;
    if (mode(place) == "LEAF") {
      tree.leaves.push_back(place);
      tree.ways.push_back(way);
      return true;
    }
    const auto decision = static_cast<int>(tree.decisions.size());
    tree.decisions.push_back(place);
    for (const bool holds : {true, false}) {
      const int64_t next = holds ? thens_.ints(place) : elses_.ints(place);
      const auto child = places_.find({trees_.ints(place), next});
      if (child == places_.end()) {
        why = absl::StrCat("no node ", next, " in tree ", trees_.ints(place));
        return false;
      }
      way.push_back({decision, holds});
      if (!Grow(child->second, way, tree, why)) return false;
      way.pop_back();
    }
    return true;
  }

  const onnx::AttributeProto &trees_, &ids_, &modes_, &thens_, &elses_;
  Places places_;
  std::vector<bool> seen_;
  std::vector<Tree> result_;
};

// The number before this one, as a run takes them: denormal numbers are 0.
float Below(float number) {
  const float below = std::nextafter(number, -INFINITY);
  return below < 0 ? std::min(below, -std::numeric_limits<float>::min()) : below;
}

// The decision as value <= threshold; `opposite`: as what does not hold then.
bool AsLessOrEqual(const std::string& mode, float& threshold, bool& opposite) {
  opposite = mode == "BRANCH_GT" || mode == "BRANCH_GTE";
  if (mode == "BRANCH_LT" || mode == "BRANCH_GTE") threshold = Below(threshold);
  return opposite || mode == "BRANCH_LT" || mode == "BRANCH_LEQ";
}

// Fills in tree number t.
bool Place(const onnx::NodeProto& node, const TreeReader& reader, int64_t t, Trees& trees,
           std::string& why) {
  const onnx::AttributeProto& features = ListOf(node, "nodes_featureids");
  const onnx::AttributeProto& values = ListOf(node, "nodes_values");
  const onnx::AttributeProto& missing = ListOf(node, "nodes_missing_value_tracks_true");
  const Tree& tree = reader.trees()[static_cast<size_t>(t)];
  std::vector<bool> opposites;
  for (size_t d = 0; d < tree.decisions.size(); ++d) {
    const int place = tree.decisions[d];
    if (place >= features.ints_size() || place >= values.floats_size()) {
      why = "lists of nodes of different lengths";
      return false;
    }
    float threshold = values.floats(place);
    bool opposite = false;
    if (!AsLessOrEqual(reader.mode(place), threshold, opposite)) {
      why = absl::StrCat("a decision of the kind ", reader.mode(place));
      return false;
    }
    opposites.push_back(opposite);
    const size_t at = static_cast<size_t>(t * trees.decisions) + d;
    const bool tracks = place < missing.ints_size() && missing.ints(place) != 0;
    trees.features[at] = features.ints(place);
    trees.thresholds[at] = threshold;
    trees.missing[at] = tracks != opposite ? 1.0f : 0.0f;
  }
  for (size_t leaf = 0; leaf < tree.ways.size(); ++leaf) {
    float& wanted = trees.wanted[static_cast<size_t>(t * trees.leaves) + leaf];
    wanted = 0;
    for (const auto& [decision, holds] : tree.ways[leaf]) {
      const bool own = holds != opposites[static_cast<size_t>(decision)];
      const int64_t row = t * trees.decisions + decision;
      trees.paths[static_cast<size_t>(row * trees.leaves) + leaf] = own ? 1.0f : -1.0f;
      wanted += own ? 1.0f : 0.0f;
    }
  }
  return true;
}

}  // namespace

std::optional<Trees> ReadTrees(const onnx::NodeProto& node, const std::string& kind,
                               int64_t outputs, std::string& why) {
  TreeReader reader(node);
  if (!reader.Read(why)) return std::nullopt;
  Trees trees{.trees = static_cast<int64_t>(reader.trees().size()),
              .decisions = 1,
              .leaves = 1,
              .outputs = outputs};
  for (const Tree& tree : reader.trees()) {
    trees.decisions = std::max(trees.decisions, static_cast<int64_t>(tree.decisions.size()));
    trees.leaves = std::max(trees.leaves, static_cast<int64_t>(tree.leaves.size()));
  }
  const int64_t rows = trees.trees * trees.decisions, leaves = trees.trees * trees.leaves;
  if (rows > kMostProducts / trees.leaves || outputs < 1 || outputs > kMostProducts / leaves) {
    why = absl::StrCat(trees.trees, " trees of up to ", trees.leaves,
                       " leaves, which take too many products here");
    return std::nullopt;
  }
  trees.features.assign(static_cast<size_t>(rows), 0);
  trees.thresholds.assign(static_cast<size_t>(rows), 0);
  trees.missing.assign(static_cast<size_t>(rows), 0);
  trees.paths.assign(static_cast<size_t>(rows * trees.leaves), 0);
  trees.wanted.assign(static_cast<size_t>(leaves), -1);  // No sum of a path of zeros.
  trees.weights.assign(static_cast<size_t>(leaves * outputs), 0);
  std::map<int, int64_t> leaf_rows;  // By place.
  for (int64_t t = 0; t < trees.trees; ++t) {
    if (!Place(node, reader, t, trees, why)) return std::nullopt;
    const std::vector<int>& own = reader.trees()[static_cast<size_t>(t)].leaves;
    for (size_t leaf = 0; leaf < own.size(); ++leaf) {
      leaf_rows[own[leaf]] = t * trees.leaves + static_cast<int64_t>(leaf);
    }
  }
  const onnx::AttributeProto &of = ListOf(node, kind + "_treeids"),
                             &ids = ListOf(node, kind + "_nodeids"),
                             &to = ListOf(node, kind + "_ids"),
                             &weights = ListOf(node, kind + "_weights");
  const int count = weights.floats_size();
  if (of.ints_size() != count || ids.ints_size() != count || to.ints_size() != count) {
    why = "lists of weights of different lengths";
    return std::nullopt;
  }
  for (int i = 0; i < count; ++i) {
    const auto place = reader.places().find({of.ints(i), ids.ints(i)});
    const auto row =
        place == reader.places().end() ? leaf_rows.end() : leaf_rows.find(place->second);
    if (row == leaf_rows.end() || to.ints(i) < 0 || to.ints(i) >= outputs) {
      why = absl::StrCat("a weight of node ", ids.ints(i), " of tree ", of.ints(i), " for output ",
                         to.ints(i), ", which is no leaf or no output");
      return std::nullopt;
    }
    trees.weights[static_cast<size_t>(row->second * outputs + to.ints(i))] += weights.floats(i);
  }
  return trees;
}

}  // namespace ulfd::convert

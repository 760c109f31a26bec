// The interpreter's tree ensembles.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <utility>

#include "base/errors.h"
#include "base/hash_map.h"
#include "base/status_macros.h"
#include "tools/convert/onnx/model/constant.h"
#include "tools/convert/onnx/proof/interpreter.h"

namespace ulfd::convert::reference {
namespace {

// The attributes of one ensemble.
struct Ensemble {
  HashMap<std::pair<int64_t, int64_t>, size_t> places;  // By tree and number in it.
  std::vector<size_t> roots;
  std::vector<int64_t> trees, ids, features, thens, elses, missing;
  std::vector<float> values;
  std::vector<std::string> modes;
  std::vector<std::vector<std::pair<int64_t, double>>> weights;  // Of leaves, by output.
};

absl::StatusOr<Ensemble> ReadEnsemble(const Call& c, int64_t outputs) {
  const onnx::NodeProto& node = c.node;
  Ensemble e{.trees = IntsAttribute(node, "nodes_treeids"),
             .ids = IntsAttribute(node, "nodes_nodeids"),
             .features = IntsAttribute(node, "nodes_featureids"),
             .thens = IntsAttribute(node, "nodes_truenodeids"),
             .elses = IntsAttribute(node, "nodes_falsenodeids"),
             .missing = IntsAttribute(node, "nodes_missing_value_tracks_true"),
             .values = FloatsAttribute(node, "nodes_values")};
  if (const onnx::AttributeProto* const modes = FindAttribute(node, "nodes_modes")) {
    e.modes.assign(modes->strings().begin(), modes->strings().end());
  }
  const size_t count = e.trees.size();
  if (e.missing.empty()) e.missing.resize(count, 0);
  for (const size_t size : {e.ids.size(), e.features.size(), e.thens.size(), e.elses.size(),
                            e.missing.size(), e.values.size(), e.modes.size()}) {
    if (size != count) return Misfit(c, "lists of different lengths");
  }
  HashSet<int64_t> known;
  for (size_t i = 0; i < count; ++i) {
    e.places[{e.trees[i], e.ids[i]}] = i;
    if (known.insert(e.trees[i]).second) e.roots.push_back(i);
  }
  e.weights.resize(count);
  const std::vector<int64_t> of = IntsAttribute(node, "target_treeids"),
                             ids = IntsAttribute(node, "target_nodeids"),
                             to = IntsAttribute(node, "target_ids");
  const std::vector<float> weights = FloatsAttribute(node, "target_weights");
  for (size_t i = 0; i < weights.size(); ++i) {
    if (i >= of.size() || i >= ids.size() || i >= to.size()) return Misfit(c, "too many weights");
    const auto found = e.places.find({of[i], ids[i]});
    if (found == e.places.end() || to[i] < 0 || to[i] >= outputs) {
      return Misfit(c, "a weight of no leaf or for no output");
    }
    e.weights[found->second].emplace_back(to[i], double{weights[i]});
  }
  return e;
}

absl::StatusOr<bool> Holds(const Ensemble& e, size_t at, double value) {
  const std::string& mode = e.modes[at];
  const double than = double{e.values[at]};
  if (std::isnan(value) && e.missing[at] != 0) return true;
  if (mode == "BRANCH_LEQ") return value <= than;
  if (mode == "BRANCH_LT") return value < than;
  if (mode == "BRANCH_GT") return value > than;
  if (mode == "BRANCH_GTE") return value >= than;
  if (mode == "BRANCH_EQ") return value == than;
  if (mode == "BRANCH_NEQ") return value != than;
  return Unimplemented("decisions of mode ", mode);
}

// The leaf of a tree that row `x` reaches.
absl::StatusOr<size_t> Reach(const Call& c, const Ensemble& e, size_t at, int64_t x) {
  const int64_t width = c.in[0]->dims[1];
  for (size_t steps = 0; e.modes[at] != "LEAF"; ++steps) {
    if (steps > e.modes.size()) return Misfit(c, "a tree with a cycle");
    if (e.features[at] < 0 || e.features[at] >= width) return Misfit(c, "no such feature");
    ASSIGN_OR_RETURN(const bool holds, Holds(e, at, c.in[0]->at(x * width + e.features[at])));
    const auto next = e.places.find({e.trees[at], holds ? e.thens[at] : e.elses[at]});
    if (next == e.places.end()) return Misfit(c, "no such node");
    at = next->second;
  }
  return at;
}

Results TreeEnsemble(const Call& c) {
  RETURN_IF_ERROR(WantFloats(c));
  if (c.in[0]->rank() != 2) return Misfit(c, "want a matrix");
  const int64_t outputs = IntAttribute(c.node, "n_targets", 1);
  const Sizes dims = {c.in[0]->dims[0], outputs};
  ASSIGN_OR_RETURN(const int64_t count, CountOf(c, dims));
  ASSIGN_OR_RETURN(const Ensemble e, ReadEnsemble(c, outputs));
  const bool mean = StringAttribute(c.node, "aggregate_function", "SUM") == "AVERAGE";
  const std::vector<float> base = FloatsAttribute(c.node, "base_values");
  if (!base.empty() && static_cast<int64_t>(base.size()) != outputs) {
    return Misfit(c, "another number of base values");
  }
  constexpr int kType = onnx::TensorProto::FLOAT;
  std::vector<double> out(static_cast<size_t>(count), 0.0);
  for (int64_t x = 0; x < dims[0]; ++x) {
    RETURN_IF_ERROR(c.options.budget.Check());
    double* const sums = out.data() + x * outputs;
    for (const size_t root : e.roots) {
      ASSIGN_OR_RETURN(const size_t leaf, Reach(c, e, root, x));
      for (const auto& [to, weight] : e.weights[leaf]) {
        sums[to] = c.Round(kType, sums[to] + weight);
      }
    }
    for (size_t i = 0; i < static_cast<size_t>(outputs); ++i) {
      const double divided = mean ? sums[i] / static_cast<double>(e.roots.size()) : sums[i];
      sums[i] = c.Round(kType, divided + (base.empty() ? 0 : double{base[i]}));
    }
  }
  return One(Floats(kType, dims, std::move(out)));
}

constexpr Operator kOperators[] = {{"TreeEnsembleRegressor", 1, &TreeEnsemble}};

}  // namespace

absl::Span<const Operator> TreeOperators() { return kOperators; }

}  // namespace ulfd::convert::reference

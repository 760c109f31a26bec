// Ensembles of decision trees: trees.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "engine/layers/checks.h"
#include "engine/layers/common/multiversion.h"
#include "engine/layers/common/packed_weights.h"
#include "engine/layers/types/families.h"

namespace ulfd::engine {
namespace {

// Where a walk is: at a node, or, below 0, at leaf -1 - place.
using Place = int32_t;

// Four to a cache line.
struct Node {
  float threshold;
  int32_t feature;
  Place next[2];  // Where value <= threshold, and where not.
};

struct Tree {
  Place begin;
  int64_t output;  // The first one that its leaves add to.
};

struct Forest {
  std::vector<Node> nodes;  // Each in front of those that follow it; one at least.
  std::vector<Tree> trees;
  std::vector<float> leaves, base;
  int64_t width = 0;     // Numbers of a leaf.
  int64_t features = 0;  // That are read.
  // Nodes may read features from this one on, too: the same, where what is no number is below all.
  bool knows_missing = false;
  int64_t steps = 0;  // Of the longest ways through all trees.

  int64_t bytes() const {
    return static_cast<int64_t>(nodes.size() * sizeof(Node) + trees.size() * sizeof(Tree) +
                                (leaves.size() + base.size()) * sizeof(float));
  }
};

// One walk waits for memory at each step; so many at once do not.
constexpr int64_t kLanes = 16;
// Multiplications that take about as long as a step of one walk, and as adding a number of a leaf.
constexpr int64_t kStepWork = 32, kNumberWork = 8;
constexpr int64_t kStepsAtOnce = 1 << 14;
// Rows that go through a tree one after the other stay in the cache.
constexpr int64_t kRows = 256;

// From each place towards a leaf, by the values of a row each, for so many steps; returns how many
// the longest walk took.
ULFD_MULTIVERSION int64_t Walk(const Node* nodes, const float* const* rows, int64_t most,
                               Place* at) {
  int64_t steps = 0;
  for (Place all = 0; all >= 0 && steps < most; ++steps) {
    all = -1;
    for (int64_t l = 0; l < kLanes; ++l) {
      const Place place = at[l];
      const Node& node = nodes[std::max(place, 0)];
      const Place next = node.next[!(rows[l][node.feature] <= node.threshold)];
      at[l] = place < 0 ? place : next;
      all &= at[l];
    }
  }
  return steps;
}

// [rows, width] -> [rows, 2 * features]: see Forest::knows_missing.
ULFD_MULTIVERSION void SplitMissing(const float* x, int64_t rows, int64_t width, int64_t features,
                                    float* y) {
  for (int64_t row = 0; row < rows; ++row, x += width, y += 2 * features) {
    for (int64_t i = 0; i < features; ++i) {
      y[i] = x[i];
      y[features + i] = std::isnan(x[i]) ? -std::numeric_limits<float>::infinity() : x[i];
    }
  }
}

class TreesKernel final : public Kernel {
 public:
  explicit TreesKernel(std::shared_ptr<const Forest> forest) : forest_(std::move(forest)) {}
  size_t ScratchBytes(absl::Span<const Tensor> in) const override {
    const auto rows = static_cast<size_t>(std::min(in[0].dims[0], kRows));
    const size_t split = forest_->knows_missing ? 2 * static_cast<size_t>(forest_->features) : 0;
    return rows * (forest_->base.size() * sizeof(double) + split * sizeof(float));
  }
  absl::Status Run(RunContext& ctx) const override {
    const int64_t rows = ctx.in[0].dims[0], width = ctx.in[0].dims[1];
    const auto outputs = static_cast<int64_t>(forest_->base.size());
    for (int64_t row = 0; row < rows; row += kRows) {
      const int64_t count = std::min(kRows, rows - row);
      double* const sums = static_cast<double*>(ctx.scratch);
      for (int64_t i = 0; i < count; ++i) {
        std::copy(forest_->base.begin(), forest_->base.end(), sums + i * outputs);
      }
      const float* const x = ctx.in[0].f32() + row * width;
      if (forest_->knows_missing) {
        float* const split = reinterpret_cast<float*>(sums + count * outputs);
        SplitMissing(x, count, width, forest_->features, split);
        AddLeaves(split, count, 2 * forest_->features, ctx.pace, sums);
      } else {
        AddLeaves(x, count, width, ctx.pace, sums);
      }
      if (!ctx.pace.status().ok()) return absl::OkStatus();
      std::copy_n(sums, count * outputs, ctx.out[0].f32() + row * outputs);
    }
    return absl::OkStatus();
  }

 private:
  // Goes through pairs of a tree and a row, tree by tree, so that its nodes stay in the cache.
  void AddLeaves(const float* x, int64_t rows, int64_t width, Pace& pace, double* sums) const {
    const Forest& forest = *forest_;
    const auto outputs = static_cast<int64_t>(forest.base.size());
    int64_t row = 0;
    const float* values[kLanes];
    Place at[kLanes];
    double* to[kLanes];
    for (const Tree *tree = forest.trees.data(), *end = tree + forest.trees.size(); tree < end;) {
      int64_t lanes = 0;
      for (; lanes < kLanes && tree < end; ++lanes) {
        values[lanes] = x + row * width;
        at[lanes] = tree->begin;
        to[lanes] = sums + row * outputs + tree->output;
        if (++row == rows) row = 0, ++tree;
      }
      for (int64_t l = lanes; l < kLanes; ++l) values[l] = x, at[l] = -1;
      int64_t steps = kStepsAtOnce;
      while (steps == kStepsAtOnce) {  // Trees may be chains of millions.
        steps = Walk(forest.nodes.data(), values, kStepsAtOnce, at);
        if (pace.Stops(steps * kLanes * kStepWork)) return;
      }
      if (pace.Stops(lanes * forest.width * kNumberWork)) return;
      for (int64_t l = 0; l < lanes; ++l) {
        const float* const leaf = forest.leaves.data() + (-1 - at[l]) * forest.width;
        for (int64_t i = 0; i < forest.width; ++i) to[l][i] += double{leaf[i]};
      }
    }
  }

  const std::shared_ptr<const Forest> forest_;
};

// Reads the weights of a forest, as whole numbers where they are places.
class ForestReader {
 public:
  explicit ForestReader(LayerWeights weights) : weights_(weights) {}

  absl::StatusOr<Forest> Read() {
    RETURN_IF_ERROR(WantRows(kNodes, 5, "[nodes, 5]"));
    RETURN_IF_ERROR(WantRows(kTrees, 2, "[trees, 2]"));
    RETURN_IF_ERROR(WantRows(kLeaves, 0, "[leaves, outputs]"));
    if (weights_[kBase].rank() != 1 || weights_[kBase].data.empty()) {
      return BadWeight(weights_, kBase, "[outputs]");
    }
    nodes_ = weights_[kNodes].dims[0];
    places_ = nodes_ + weights_[kLeaves].dims[0];
    // Single precision has all whole numbers up to here.
    constexpr int64_t kMost = 1 << 24;
    if (places_ > kMost) {
      return InvalidArgument(places_, " nodes and leaves, want at most ", kMost);
    }
    Forest forest;
    for (const int index : {kLeaves, kBase}) {
      std::vector<float>& to = index == kBase ? forest.base : forest.leaves;
      to.assign(weights_[index].data.begin(), weights_[index].data.end());
    }
    forest.width = weights_[kLeaves].dims[1];
    RETURN_IF_ERROR(ReadNodes(forest));
    RETURN_IF_ERROR(ReadTrees(forest));
    return forest;
  }

 private:
  enum Index : int { kNodes, kTrees, kLeaves, kBase };

  // `columns`: 0 for any number of them.
  absl::Status WantRows(int index, int64_t columns, absl::string_view wanted) {
    const Weight& weight = weights_[index];
    const bool fits = weight.rank() == 2 && weight.dims[0] > 0 && weight.dims[1] > 0;
    if (fits && (columns == 0 || weight.dims[1] == columns)) return absl::OkStatus();
    return BadWeight(weights_, index, wanted);
  }
  // The number in a row and column of weight `index`, from `min` to `max`.
  absl::StatusOr<int64_t> Number(int index, int64_t row, int column, int64_t min, int64_t max) {
    const Weight& weight = weights_[index];
    const float value = weight.data[static_cast<size_t>(row * weight.dims[1] + column)];
    if (value >= static_cast<float>(min) && value <= static_cast<float>(max) &&
        value == std::floor(value)) {
      return static_cast<int64_t>(value);
    }
    return InvalidArgument(WeightLabel(weights_, index), ": ", value, " in row ", row, ", column ",
                           column, ", want a whole number from ", min, " to ", max);
  }
  absl::StatusOr<Place> ReadPlace(int index, int64_t row, int column, int64_t min) {
    ASSIGN_OR_RETURN(const int64_t place, Number(index, row, column, min, places_ - 1));
    return static_cast<Place>(place < nodes_ ? place : nodes_ - 1 - place);
  }

  absl::Status ReadNodes(Forest& forest) {
    constexpr int64_t kMostFeatures = 1 << 20;
    std::vector<bool> missing;
    for (int64_t i = 0; i < nodes_; ++i) {
      Node& node = forest.nodes.emplace_back();
      ASSIGN_OR_RETURN(const int64_t feature, Number(kNodes, i, 0, 0, kMostFeatures));
      node.feature = static_cast<int32_t>(feature);
      forest.features = std::max(forest.features, feature + 1);
      node.threshold = weights_[kNodes].data[static_cast<size_t>(i * 5 + 1)];
      if (std::isnan(node.threshold)) {
        return InvalidArgument(WeightLabel(weights_, kNodes), ": NaN in row ", i,
                               ", column 1, want a threshold");
      }
      for (const int side : {0, 1}) {
        // What follows has a higher place, so that every walk ends.
        ASSIGN_OR_RETURN(node.next[side], ReadPlace(kNodes, i, 2 + side, i + 1));
      }
      ASSIGN_OR_RETURN(const int64_t holds, Number(kNodes, i, 4, 0, 1));
      missing.push_back(holds == 1);
    }
    for (int64_t i = 0; i < nodes_; ++i) {
      if (!missing[static_cast<size_t>(i)]) continue;
      forest.nodes[static_cast<size_t>(i)].feature += static_cast<int32_t>(forest.features);
      forest.knows_missing = true;
    }
    return absl::OkStatus();
  }

  absl::Status ReadTrees(Forest& forest) {
    const auto spare = static_cast<int64_t>(forest.base.size()) - forest.width;
    if (spare < 0) {
      return BadWeight(weights_, kLeaves, "at most ", forest.base.size(), " columns, as outputs");
    }
    std::vector<int64_t> longest(forest.nodes.size());
    const auto steps = [&](Place place) {
      return place < 0 ? 0 : longest[static_cast<size_t>(place)];
    };
    for (size_t i = longest.size(); i-- > 0;) {
      longest[i] = 1 + std::max(steps(forest.nodes[i].next[0]), steps(forest.nodes[i].next[1]));
    }
    for (int64_t i = 0; i < weights_[kTrees].dims[0]; ++i) {
      ASSIGN_OR_RETURN(const Place begin, ReadPlace(kTrees, i, 0, 0));
      ASSIGN_OR_RETURN(const int64_t output, Number(kTrees, i, 1, 0, spare));
      forest.trees.push_back({begin, output});
      forest.steps += std::max<int64_t>(1, steps(begin));
    }
    return absl::OkStatus();
  }

  const LayerWeights weights_;
  int64_t nodes_ = 0, places_ = 0;
};

// trees_layer.  What follows a node has a higher place.  Sums are in double precision, in the order
// of the trees.
class Trees final : public Layer {
 public:
  static absl::StatusOr<std::unique_ptr<Layer>> Parse(const ParseContext& ctx) {
    ASSIGN_OR_RETURN(Forest forest, ForestReader(ctx.weights).Read());
    if (ctx.packed != nullptr) {
      for (const Weight& weight : ctx.weights) ctx.packed->AddCopy(weight);
      ctx.packed->AddBytes(forest.bytes());
    }
    return std::unique_ptr<Layer>(new Trees(std::make_shared<const Forest>(std::move(forest))));
  }
  absl::StatusOr<TensorSpecs> Infer(absl::Span<const TensorSpec> in) const override {
    RETURN_IF_ERROR(WantFloat32(in));
    RETURN_IF_ERROR(WantRank(in, 0, 2, 2));
    const Dim width = in[0].shape[1];
    if (width.IsConst() && width.value() < forest_->features) {
      return BadInput(0, in[0], "at least ", forest_->features, " columns");
    }
    TensorSpec out = in[0];
    out.shape[1] = Dim::Of(static_cast<int64_t>(forest_->base.size()));
    return OnlyOutput(std::move(out), in);
  }
  void SuggestInputs(absl::Span<TensorSpec> in) const override {
    Suggest(in[0], Shape({Dim::Unknown(), Dim::Of(forest_->features)}), Level::kUnknown);
  }
  double Flops(absl::Span<const TensorSpec> in, absl::Span<const TensorSpec>) const override {
    const auto trees = static_cast<int64_t>(forest_->trees.size());
    return static_cast<double>(in[0].shape[0].value()) *
           static_cast<double>(forest_->steps * kStepWork + trees * forest_->width * kNumberWork);
  }
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(absl::Span<const TensorSpec>) const override {
    return std::unique_ptr<Kernel>(new TreesKernel(forest_));
  }
  std::string Describe() const override {
    return absl::StrCat("trees=", forest_->trees.size(), " nodes=", forest_->nodes.size(),
                        " features=", forest_->features, forest_->knows_missing ? " missing" : "");
  }

 private:
  explicit Trees(std::shared_ptr<const Forest> forest) : forest_(std::move(forest)) {}
  const std::shared_ptr<const Forest> forest_;
};

constexpr LayerType kTypes[] = {
    {.name = "trees_layer",
     .summary = "the sum of the leaves of decision trees that a row reaches",
     .weights = {4, 4},
     .parse = &Trees::Parse,
     .doc = {.formula = "y[n, :] = base + sum over trees of the leaf that x[n] reaches",
             .inputs = "x [rows, features] float32",
             .weights = "nodes [nodes, 5]: feature, threshold, place if x[feature] <= threshold, "
                        "place if not, 1 if it holds of NaN; places count nodes, then leaves\n"
                        "trees [trees, 2]: the first place, the first output\n"
                        "leaves [leaves, outputs of a leaf]\nbase [outputs]",
             .source = "ONNX TreeEnsembleRegressor",
             .example_inputs = "x:2",
             .example_files = "weights.pb|layer_weights_params { name: \"example\" "
                              "blob_datas { shape: [1, 5] data: [1, 0.5, 1, 2, 0] } "
                              "blob_datas { shape: [1, 2] data: [0, 0] } "
                              "blob_datas { shape: [2, 1] data: [-1, 1] } "
                              "blob_datas { shape: 1 data: 0.25 } }"}},
};

}  // namespace

absl::Span<const LayerType> TreeLayers() { return kTypes; }

}  // namespace ulfd::engine

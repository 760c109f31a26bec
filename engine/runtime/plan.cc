// What is decided at load about running a graph.
// SPDX-License-Identifier: Apache-2.0
#include "engine/runtime/plan.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/status_macros.h"
#include "engine/weights/file.h"

namespace ulfd::engine {

namespace {

constexpr int64_t kAlignment = 64;
// A tile's values should stay in the second-level cache; 1 MiB lets the large, streamed ones spill.
constexpr int64_t kTileBytes = 1 << 20;
constexpr int64_t kMinTileRows = 16;
constexpr int64_t kMaxTileRows = 512;

int64_t Aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

bool IsKnown(const Shape& shape) {
  return shape.ranked() && std::none_of(shape.dims().begin(), shape.dims().end(),
                                        [](Dim d) { return d.IsUnknown(); });
}

int64_t BytesOf(const TensorSpec& spec, int64_t ads) {
  int64_t elements = 1;
  for (Dim d : spec.shape.dims()) elements *= Resolve(d, ads);
  return elements * static_cast<int64_t>(SizeOf(spec.dtype));
}

// A list of free ranges, merged where they touch.
class FreeList {
 public:
  // First fit; grows the arena if nothing fits.
  int64_t Take(int64_t bytes) {
    for (size_t i = 0; i < ranges_.size(); ++i) {
      Range& range = ranges_[i];
      if (range.bytes < bytes) continue;
      const int64_t offset = range.offset;
      range.offset += bytes;
      range.bytes -= bytes;
      if (range.bytes == 0) ranges_.erase(ranges_.begin() + static_cast<int64_t>(i));
      return offset;
    }
    if (!ranges_.empty() && ranges_.back().offset + ranges_.back().bytes == end_) {
      const int64_t offset = ranges_.back().offset;
      ranges_.pop_back();
      end_ = offset + bytes;
      return offset;
    }
    const int64_t offset = end_;
    end_ += bytes;
    return offset;
  }

  void Give(int64_t offset, int64_t bytes) {
    const auto at = std::lower_bound(ranges_.begin(), ranges_.end(), offset,
                                     [](const Range& r, int64_t o) { return r.offset < o; });
    auto it = ranges_.insert(at, Range{offset, bytes});
    if (it + 1 != ranges_.end() && it->offset + it->bytes == (it + 1)->offset) {
      it->bytes += (it + 1)->bytes;
      ranges_.erase(it + 1);
    }
    if (it != ranges_.begin() && (it - 1)->offset + (it - 1)->bytes == it->offset) {
      (it - 1)->bytes += it->bytes;
      ranges_.erase(it);
    }
  }

  int64_t end() const { return end_; }

 private:
  struct Range {
    int64_t offset, bytes;
  };
  std::vector<Range> ranges_;
  int64_t end_ = 0;
};

// What is known without guesses must be right; guesses that do not fit together are dropped.
absl::Status InferSpecs(const Graph& graph, absl::Span<const InputStatement> statements,
                        GraphSpecs& strict, GraphSpecs& best) {
  const GraphSpecs stated = StatedSpecs(graph, statements);
  strict = stated;
  RETURN_IF_ERROR(InferGraph(graph, strict));
  best = SuggestedSpecs(graph, stated, strict, statements);
  if (!InferGraph(graph, best).ok()) best = strict;
  return absl::OkStatus();
}

int64_t ChooseTileRows(const Plan& plan) {
  if (!plan.shapes_known) return kMinTileRows;
  std::vector<int64_t> bytes;
  // Per ad: the difference of two sizes leaves out what does not grow with the ads.
  for (const TensorSpec& spec : plan.specs) {
    bytes.push_back(IsKnown(spec.shape) ? BytesOf(spec, 2) - BytesOf(spec, 1) : 0);
  }
  const std::vector<bool> keep(plan.graph.values.size(), false);
  const int64_t per_ad =
      LayOut(plan, plan.user_steps, static_cast<int>(plan.steps.size()), bytes, keep, true).bytes;
  const int64_t rows = kTileBytes / std::max<int64_t>(per_ad, 1) / kMinTileRows * kMinTileRows;
  return std::clamp(rows, kMinTileRows, kMaxTileRows);
}

bool DependsOnAds(const Node& node, const GraphSpecs& specs) {
  const auto high = [&](ValueId id) {
    return specs[id].level == Level::kAd || specs[id].level == Level::kUnknown;
  };
  return std::any_of(node.inputs.begin(), node.inputs.end(), high) ||
         std::any_of(node.outputs.begin(), node.outputs.end(), high);
}

}  // namespace

int64_t Resolve(Dim dim, int64_t ads) { return dim.IsAds() ? dim.value() * ads : dim.value(); }

std::vector<ValueId> StorageRoots(const Plan& plan) {
  std::vector<ValueId> roots(plan.graph.values.size());
  std::iota(roots.begin(), roots.end(), 0);
  for (const Step& step : plan.steps) {
    if (step.view) roots[step.node->outputs[0]] = roots[step.node->inputs[0]];
  }
  return roots;
}

ArenaLayout LayOut(const Plan& plan, int begin, int end, absl::Span<const int64_t> bytes,
                   const std::vector<bool>& keep, bool reuse) {
  const std::vector<ValueId> roots = StorageRoots(plan);
  // The last step in the range that touches each root; kept ones are never released.
  std::vector<int> last_use(roots.size(), -1);
  for (int s = begin; s < end; ++s) {
    for (ValueId id : plan.steps[s].node->inputs) last_use[roots[id]] = s;
    for (ValueId id : plan.steps[s].node->outputs) last_use[roots[id]] = s;
  }
  for (size_t id = 0; id < roots.size(); ++id) {
    if (keep[id]) last_use[roots[id]] = end;
  }
  ArenaLayout layout;
  layout.offsets.assign(roots.size(), -1);
  FreeList free;
  for (int s = begin; s < end; ++s) {
    const Step& step = plan.steps[s];
    if (!step.view) {
      for (ValueId id : step.node->outputs) {
        layout.offsets[id] = free.Take(Aligned(std::max<int64_t>(bytes[id], 1)));
      }
    }
    if (!reuse) continue;
    for (size_t id = 0; id < roots.size(); ++id) {
      if (last_use[id] == s && layout.offsets[id] >= 0) {
        free.Give(layout.offsets[id], Aligned(std::max<int64_t>(bytes[id], 1)));
      }
    }
  }
  layout.bytes = free.end();
  return layout;
}

namespace {

// `strict`: what kernels may rely on.
absl::StatusOr<std::unique_ptr<const Plan>> MakePlan(Graph graph, GraphSpecs best,
                                                     const GraphSpecs& strict) {
  auto plan = std::make_unique<Plan>();
  plan->graph = std::move(graph);
  plan->specs = std::move(best);
  const GraphSpecs& specs = plan->specs;

  plan->separable = true;
  plan->shapes_known = true;
  std::vector<const Node*> order;
  for (bool ads : {false, true}) {
    for (const Node& node : plan->graph.nodes) {
      if (DependsOnAds(node, specs) == ads) order.push_back(&node);
    }
    if (!ads) plan->user_steps = static_cast<int>(order.size());
  }
  for (const Node* node : order) {
    Step step{.node = node};
    std::vector<TensorSpec> inputs;
    for (ValueId id : node->inputs) inputs.push_back(strict[id]);
    absl::StatusOr<std::unique_ptr<Kernel>> kernel = node->layer->Prepare(inputs);
    if (!kernel.ok()) return Annotate(kernel.status(), node->Label());
    step.kernel = *std::move(kernel);
    step.view = step.kernel->IsView();
    step.embedding = node->type == "embedding_layer";
    Level joined = Level::kConstant;
    for (ValueId id : node->inputs) joined = Join(joined, specs[id].level);
    for (ValueId id : node->outputs) {
      // An output below its inputs (a feature read at both levels, say) is a contradiction: nothing
      // is proved then.
      const bool proved = specs[id].level != Level::kUnknown &&
                          (joined != Level::kAd || specs[id].level == Level::kAd);
      plan->separable &= proved;
      plan->shapes_known &= proved && IsKnown(specs[id].shape);
    }
    plan->separable &= joined != Level::kUnknown;
    plan->steps.push_back(std::move(step));
  }
  plan->tile_rows = ChooseTileRows(*plan);
  return std::unique_ptr<const Plan>(std::move(plan));
}

}  // namespace

absl::StatusOr<std::unique_ptr<const Plan>> MakePlan(Graph graph,
                                                     absl::Span<const InputStatement> statements) {
  GraphSpecs strict, specs;
  RETURN_IF_ERROR(InferSpecs(graph, statements, strict, specs));
  return MakePlan(std::move(graph), std::move(specs), strict);
}

absl::StatusOr<std::unique_ptr<const Plan>> MakePlan(Graph graph, GraphSpecs specs) {
  const GraphSpecs known = specs;
  return MakePlan(std::move(graph), std::move(specs), known);
}

}  // namespace ulfd::engine

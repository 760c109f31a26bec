// How a pass looks at a graph and changes it.
// SPDX-License-Identifier: Apache-2.0
#include "engine/graph/editor.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/layers/fused_fc.h"
#include "engine/status_macros.h"

namespace ulfd::engine {

namespace {

Cost operator-(const Cost& a, const Cost& b) { return {a.flops - b.flops, a.bytes - b.bytes}; }

TensorSpec WithAds(const TensorSpec& spec, int64_t ads) {
  TensorSpec concrete = spec;
  for (Dim& dim : concrete.shape.dims()) {
    // Lengths that only the request knows (ids of a feature) count as one per row.
    if (dim.IsUnknown()) dim = Dim::Of(spec.level == Level::kAd ? ads : 1);
    if (!dim.IsConst()) dim = Dim::Of(dim.value() * (dim.IsAds() ? ads : 1));
  }
  return concrete;
}

}  // namespace

namespace {

double BytesOf(const TensorSpec& spec) {
  if (!spec.shape.ranked()) return 0;
  return static_cast<double>(spec.shape.Elements().value()) *
         static_cast<double>(SizeOf(spec.dtype));
}

// What a fused_fc reads of its inputs: columns, not all that is there.
double BytesRead(const FusedFcOptions& options, absl::Span<const TensorSpec> in) {
  double bytes = 0;
  for (const FusedFcOptions::Block& block : options.blocks) {
    const Shape& x = in[block.input].shape;
    double rows = static_cast<double>(x[0].value());
    if (!options.flat) rows *= static_cast<double>(x[1].value());
    bytes += rows * static_cast<double>(block.k) * sizeof(float);
  }
  for (const int extra : {options.init, options.weight_input}) {
    if (extra >= 0) bytes += BytesOf(in[extra]);
  }
  return bytes;
}

}  // namespace

Cost CostOf(const Node& node, const GraphSpecs& specs) {
  const Semantics semantics = node.layer->semantics();
  double flops[2], bytes[2];
  for (int64_t ads : {1, 2}) {
    std::vector<TensorSpec> in, out;
    for (ValueId id : node.inputs) in.push_back(WithAds(specs[id], ads));
    for (ValueId id : node.outputs) out.push_back(WithAds(specs[id], ads));
    double& sum = bytes[ads - 1] = 0;
    flops[ads - 1] = node.layer->Flops(in, out);
    for (const TensorSpec& spec : out) sum += BytesOf(spec);
    if (semantics.op == Semantics::Op::kFusedFc) {
      sum += BytesRead(*semantics.fused_fc, in);
    } else {
      for (const TensorSpec& spec : in) sum += BytesOf(spec);
    }
  }
  const auto work = [](const double at[2]) { return Work{2 * at[0] - at[1], at[1] - at[0]}; };
  return {work(flops), work(bytes)};
}

double EstimatedNs(const Cost& cost, double ads) {
  constexpr double kFlopsPerNs = 40, kBytesPerNs = 20;
  return cost.flops.At(ads) / kFlopsPerNs + cost.bytes.At(ads) / kBytesPerNs;
}

bool IsCheaper(const Cost& after, const Cost& before) {
  return EstimatedNs(after, 1) < EstimatedNs(before, 1) &&
         EstimatedNs(after, 200) < EstimatedNs(before, 200);
}

GraphEditor::GraphEditor(const PassOptions& options, Graph& graph, GraphSpecs& specs,
                         std::vector<Rewrite>& rewrites)
    : options_(options), graph_(graph), specs_(specs), rewrites_(rewrites) {
  Reindex();
}

void GraphEditor::Reindex() {
  const size_t n = graph_.values.size();
  specs_.resize(n);
  producers_.assign(n, -1);
  readers_.assign(n, {});
  outputs_.assign(n, false);
  semantics_.clear();
  for (int i = 0; i < size(); ++i) {
    const Node& node = graph_.nodes[i];
    semantics_.push_back(node.layer->semantics());
    for (ValueId id : node.inputs) readers_[id].push_back(i);
    for (ValueId id : node.outputs) producers_[id] = i;
  }
  for (const NamedValue& output : graph_.outputs) outputs_[output.value] = true;
}

void GraphEditor::Record(std::vector<int> layers, std::string text, const Cost& saved) {
  std::sort(layers.begin(), layers.end());
  layers.erase(std::unique(layers.begin(), layers.end()), layers.end());
  rewrites_.push_back({pass_, std::move(text), std::move(layers), saved});
}

int GraphEditor::OnlyReader(ValueId value) const {
  if (outputs_[value] || readers_[value].empty()) return -1;
  const int reader = readers_[value].front();
  return readers_[value].back() == reader ? reader : -1;
}

absl::StatusOr<Cost> GraphEditor::CostIfAdded(absl::Span<const Node> nodes) const {
  GraphSpecs specs = specs_;
  Cost sum;
  for (const Node& node : nodes) {
    RETURN_IF_ERROR(InferNode(graph_, node, specs));
    sum += CostOf(node, specs);
  }
  return sum;
}

ValueId GraphEditor::NewValue(absl::string_view name) {
  const ValueId id = graph_.AddValue({.name = std::string(name)});
  specs_.resize(graph_.values.size());
  producers_.push_back(-1);
  readers_.emplace_back();
  outputs_.push_back(false);
  return id;
}

Node GraphEditor::NewNode(int origin, absl::string_view suffix, absl::string_view type,
                          std::shared_ptr<const Layer> layer, std::vector<ValueId> inputs,
                          std::vector<ValueId> outputs) const {
  const Node& from = graph_.nodes[origin];
  Node node{.file_index = from.file_index, .name = from.name, .type = std::string(type)};
  if (!suffix.empty()) node.name = absl::StrCat(from.name, "/", suffix);
  node.layer = std::move(layer);
  node.inputs = std::move(inputs);
  node.outputs = std::move(outputs);
  return node;
}

absl::Status GraphEditor::Replace(absl::Span<const int> replaced, int at, std::vector<Node> added,
                                  std::string text) {
  std::vector<int> layers;
  Cost saved;
  std::vector<bool> remade(graph_.values.size(), false);
  for (const Node& node : added) {
    for (ValueId id : node.outputs) {
      remade[id] = true;
      const int producer = producers_[id];
      if (producer >= 0 &&
          std::find(replaced.begin(), replaced.end(), producer) == replaced.end()) {
        return absl::InternalError(
            absl::StrCat(pass_, ": \"", graph_.values[id].name, "\" would be computed twice"));
      }
    }
    const GraphSpecs before = specs_;
    RETURN_IF_ERROR(InferNode(graph_, node, specs_));
    for (ValueId id : node.outputs) {
      if (producers_[id] < 0 || before[id].shape == specs_[id].shape) continue;
      return absl::InternalError(absl::StrCat(pass_, ": shape of \"", graph_.values[id].name,
                                              "\" would become ", specs_[id].shape.ToString(),
                                              " instead of ", before[id].shape.ToString()));
    }
    saved = saved - CostOf(node, specs_);
    layers.push_back(node.file_index);
  }
  // A replaced node goes if each of its values is computed anew or read by nodes that go only.
  std::vector<bool> gone(graph_.nodes.size(), false);
  std::vector<bool> read(graph_.values.size(), false);
  for (const Node& node : added) {
    for (ValueId id : node.inputs) read[id] = true;
  }
  std::vector<int> order(replaced.begin(), replaced.end());
  std::sort(order.rbegin(), order.rend());
  order.erase(std::unique(order.begin(), order.end()), order.end());
  for (int index : order) {
    layers.push_back(graph_.nodes[index].file_index);
    bool needed = false;
    for (ValueId id : graph_.nodes[index].outputs) {
      if (remade[id]) continue;
      needed |= outputs_[id] || read[id];
      for (int reader : readers_[id]) needed |= !gone[reader];
    }
    bool remakes = false;
    for (ValueId id : graph_.nodes[index].outputs) remakes |= remade[id];
    if (needed && remakes) {
      return absl::InternalError(
          absl::StrCat(pass_, ": ", graph_.nodes[index].Label(), " would be replaced in part"));
    }
    if (needed) continue;
    gone[index] = true;
    saved += CostOf(graph_.nodes[index], specs_);
  }
  std::vector<Node> nodes;
  for (int i = 0; i < size(); ++i) {
    if (i == at) std::move(added.begin(), added.end(), std::back_inserter(nodes));
    if (!gone[i]) nodes.push_back(std::move(graph_.nodes[i]));
  }
  graph_.nodes = std::move(nodes);
  Reindex();
  Record(std::move(layers), std::move(text), saved);
  return absl::OkStatus();
}

absl::Status GraphEditor::Redirect(ValueId from, ValueId to, std::string text) {
  if (outputs_[from] || specs_[from].shape != specs_[to].shape) {
    return absl::InternalError(absl::StrCat(pass_, ": \"", graph_.values[from].name,
                                            "\" cannot be read from \"", graph_.values[to].name,
                                            "\""));
  }
  for (int reader : readers_[from]) {
    for (ValueId& id : graph_.nodes[reader].inputs) id = id == from ? to : id;
  }
  const int producer = producers_[from];
  Reindex();
  if (producer < 0) return absl::OkStatus();
  bool needed = false;
  for (ValueId id : graph_.nodes[producer].outputs) needed |= outputs_[id] || !readers_[id].empty();
  if (!needed) Remove(producer, std::move(text));
  return absl::OkStatus();
}

absl::Status GraphEditor::Fold(ValueId value, std::vector<float> data, std::string text) {
  const Shape& shape = specs_[value].shape;
  if (!shape.IsConcrete() || shape.Elements().value() != static_cast<int64_t>(data.size())) {
    return absl::InternalError(absl::StrCat(pass_, ": \"", graph_.values[value].name,
                                            "\" has shape ", shape.ToString(), ", not ",
                                            data.size(), " values"));
  }
  Value& folded = graph_.values[value];
  folded.kind = Value::Kind::kConstant;
  folded.constant_dims.clear();
  for (Dim d : shape.dims()) folded.constant_dims.push_back(d.value());
  folded.owned = std::make_shared<const std::vector<float>>(std::move(data));
  folded.constant = *folded.owned;
  specs_[value].level = Level::kConstant;
  Remove(producers_[value], std::move(text));
  return absl::OkStatus();
}

void GraphEditor::Remove(int index, std::string text) {
  const Cost saved = CostOf(graph_.nodes[index], specs_);
  const int layer = graph_.nodes[index].file_index;
  graph_.nodes.erase(graph_.nodes.begin() + index);
  Reindex();
  Record({layer}, std::move(text), saved);
}

}  // namespace ulfd::engine

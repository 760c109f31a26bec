// SPDX-License-Identifier: Apache-2.0
#include "engine/graph/editor.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/hash_map.h"
#include "base/load_scope.h"
#include "base/status_macros.h"
#include "engine/layers/fused/fused_fc.h"

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
  if (options.init >= 0) bytes += BytesOf(in[options.init]);
  return bytes;
}

}  // namespace

Cost CostOf(const Node& node, const GraphSpecs& specs) {
  const Semantics semantics = node.layer->semantics();
  if (semantics.op == Semantics::Op::kReshape) return {};  // A view.
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
    } else if (semantics.op == Semantics::Op::kBroadcast) {
      sum += BytesOf(in[0]);  // Of the other, the shape alone counts.
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
                         std::vector<Rewrite>& rewrites, int64_t& copy_bytes)
    : options_(options),
      graph_(graph),
      specs_(specs),
      rewrites_(rewrites),
      copy_bytes_(copy_bytes) {
  const size_t n = graph_.values.size();
  specs_.resize(n);
  producers_.assign(n, -1);
  readers_.resize(n);
  outputs_.assign(n, false);
  for (const NamedValue& output : graph_.outputs) outputs_[output.value] = true;
  std::vector<Node> nodes = std::move(graph_.nodes);
  graph_.nodes.clear();
  Splice({}, 0, std::move(nodes));
}

GraphEditor::~GraphEditor() {
  const LoadScope::WithoutRefusals no_exceptions;  // One may be on its way already.
  graph_.nodes.reserve(items_.size());
  for (std::unique_ptr<Item>& item : items_) graph_.nodes.push_back(std::move(item->node));
}

void GraphEditor::Link(int index) {
  for (ValueId id : node(index).inputs) {
    std::vector<int>& readers = readers_[id];
    readers.insert(std::upper_bound(readers.begin(), readers.end(), index), index);
  }
  for (ValueId id : node(index).outputs) producers_[id] = index;
}

void GraphEditor::Unlink(int index) {
  for (ValueId id : node(index).inputs) {
    std::vector<int>& readers = readers_[id];
    readers.erase(std::remove(readers.begin(), readers.end(), index), readers.end());
  }
  for (ValueId id : node(index).outputs) producers_[id] = -1;
}

void GraphEditor::Splice(absl::Span<const int> gone, int at, std::vector<Node> added) {
  // ForEach stays at the place among the nodes that are left.
  const auto ahead = std::lower_bound(gone.begin(), gone.end(), visited_) - gone.begin();
  visited_ += (at < visited_ ? static_cast<int>(added.size()) : 0) - static_cast<int>(ahead);
  changed_ = true;
  // Only nodes [first, last) change places among each other.
  const int first = gone.empty() ? at : std::min(at, gone.front());
  const int last = gone.empty() ? at : std::max(at, gone.back() + 1);
  for (int i = first; i < last; ++i) Unlink(i);
  std::vector<std::unique_ptr<Item>> changed;
  const auto add = [&] {
    for (Node& node : added) {
      changed.push_back(std::make_unique<Item>(Item{std::move(node), {}}));
      changed.back()->semantics = changed.back()->node.layer->semantics();
    }
  };
  for (int i = first; i < last; ++i) {
    if (i == at) add();
    if (!std::binary_search(gone.begin(), gone.end(), i)) changed.push_back(std::move(items_[i]));
  }
  if (at == last) add();
  const int end = first + static_cast<int>(changed.size());
  if (const int moved = end - last; moved != 0) {
    for (int& producer : producers_) producer += producer >= last ? moved : 0;
    for (std::vector<int>& readers : readers_) {
      for (int& reader : readers) reader += reader >= last ? moved : 0;
    }
  }
  items_.erase(items_.begin() + first, items_.begin() + last);
  items_.insert(items_.begin() + first, std::make_move_iterator(changed.begin()),
                std::make_move_iterator(changed.end()));
  for (int i = first; i < end; ++i) Link(i);
}

void GraphEditor::Record(std::vector<int> layers, std::string text, const Cost& saved) {
  std::sort(layers.begin(), layers.end());
  layers.erase(std::unique(layers.begin(), layers.end()), layers.end());
  rewrites_.push_back({pass_, std::move(text), std::move(layers), saved});
}

ItemValues GraphEditor::FindItems() const {
  ItemValues items(graph_, specs_);
  for (const auto& item : items_) items.Add(item->node);
  return items;
}

int GraphEditor::OnlyReader(ValueId value) const {
  if (outputs_[value] || readers_[value].empty()) return -1;
  const int reader = readers_[value].front();
  return readers_[value].back() == reader ? reader : -1;
}

absl::StatusOr<Cost> GraphEditor::CostIfAdded(absl::Span<const Node> nodes) const {
  std::vector<std::pair<ValueId, TensorSpec>> before;
  absl::Status status;
  Cost sum;
  for (const Node& node : nodes) {
    for (ValueId id : node.outputs) before.emplace_back(id, specs_[id]);
    status = InferNode(graph_, node, specs_);
    if (!status.ok()) break;
    sum += CostOf(node, specs_);
  }
  for (size_t i = before.size(); i-- > 0;) specs_[before[i].first] = std::move(before[i].second);
  if (!status.ok()) return status;
  return sum;
}

int64_t GraphEditor::CopyBytes(absl::Span<const MatrixRef* const> from, int64_t floats) {
  const bool any_shared =
      std::any_of(from.begin(), from.end(), [](const MatrixRef* m) { return m->shared(); });
  return any_shared ? floats * static_cast<int64_t>(sizeof(float)) : 0;
}

bool GraphEditor::MayCopy(absl::Span<const MatrixRef* const> from, int64_t floats) const {
  return CopyBytes(from, floats) <= copy_bytes_;
}

bool GraphEditor::TakeCopy(absl::Span<const MatrixRef* const> from, int64_t floats) {
  if (!MayCopy(from, floats)) return false;
  copy_bytes_ -= CopyBytes(from, floats);
  return true;
}

absl::Status GraphEditor::ForEach(const std::function<absl::Status(int index)>& visit) {
  for (visited_ = 0; visited_ < size(); visited_ += changed_ ? 0 : 1) {
    changed_ = false;
    RETURN_IF_ERROR(visit(visited_));
  }
  return absl::OkStatus();
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
  const Node& from = node(origin);
  Node made{.file_index = from.file_index, .name = from.name, .type = std::string(type)};
  if (!suffix.empty()) made.name = absl::StrCat(from.name, "/", suffix);
  made.layer = std::move(layer);
  made.inputs = std::move(inputs);
  made.outputs = std::move(outputs);
  return made;
}

absl::Status GraphEditor::Admit(const Node& node, absl::Span<const int> replaced, Cost& saved) {
  std::vector<Shape> before;
  for (ValueId id : node.outputs) {
    const int producer = producers_[id];
    if (producer >= 0 && std::find(replaced.begin(), replaced.end(), producer) == replaced.end()) {
      return Internal(pass_, ": \"", graph_.values[id].name, "\" would be computed twice");
    }
    before.push_back(specs_[id].shape);
  }
  RETURN_IF_ERROR(InferNode(graph_, node, specs_));
  for (size_t i = 0; i < before.size(); ++i) {
    const ValueId id = node.outputs[i];
    if (producers_[id] < 0 || before[i] == specs_[id].shape) continue;
    return Internal(pass_, ": shape of \"", graph_.values[id].name, "\" would become ",
                    specs_[id].shape.ToString(), " instead of ", before[i].ToString());
  }
  saved = saved - CostOf(node, specs_);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int>> GraphEditor::Unneeded(absl::Span<const int> replaced,
                                                       absl::Span<const Node> added) const {
  HashSet<ValueId> remade, read;
  for (const Node& node : added) {
    remade.insert(node.outputs.begin(), node.outputs.end());
    read.insert(node.inputs.begin(), node.inputs.end());
  }
  std::vector<int> order(replaced.begin(), replaced.end());
  std::sort(order.rbegin(), order.rend());
  order.erase(std::unique(order.begin(), order.end()), order.end());
  std::vector<int> gone;
  // A node goes if each of its values is computed anew or read by nodes that go only.
  for (int index : order) {
    bool needed = false, remakes = false;
    for (ValueId id : node(index).outputs) {
      if (remade.contains(id)) {
        remakes = true;
        continue;
      }
      needed |= outputs_[id] || read.contains(id);
      for (int reader : readers_[id]) {
        needed |= std::find(gone.begin(), gone.end(), reader) == gone.end();
      }
    }
    if (needed && remakes) {
      return Internal(pass_, ": ", node(index).Label(), " would be replaced in part");
    }
    if (!needed) gone.push_back(index);
  }
  std::reverse(gone.begin(), gone.end());
  return gone;
}

absl::Status GraphEditor::Replace(absl::Span<const int> replaced, int at, std::vector<Node> added,
                                  std::string text) {
  RETURN_IF_ERROR(LoadScope::Check());
  std::vector<int> layers;
  Cost saved;
  for (const Node& node : added) {
    RETURN_IF_ERROR(Admit(node, replaced, saved));
    layers.push_back(node.file_index);
  }
  ASSIGN_OR_RETURN(const std::vector<int> gone, Unneeded(replaced, added));
  for (int index : gone) saved += CostOfNode(index);
  for (int index : replaced) layers.push_back(node(index).file_index);
  Splice(gone, at, std::move(added));
  Record(std::move(layers), std::move(text), saved);
  return absl::OkStatus();
}

absl::Status GraphEditor::Redirect(ValueId from, ValueId to, std::string text) {
  RETURN_IF_ERROR(LoadScope::Check());
  if (outputs_[from] || specs_[from].shape != specs_[to].shape) {
    return Internal(pass_, ": \"", graph_.values[from].name, "\" cannot be read from \"",
                    graph_.values[to].name, "\"");
  }
  if (from == to) return absl::OkStatus();
  for (int reader : readers_[from]) {
    for (ValueId& id : items_[reader]->node.inputs) id = id == from ? to : id;
  }
  std::vector<int> readers;
  std::merge(readers_[from].begin(), readers_[from].end(), readers_[to].begin(), readers_[to].end(),
             std::back_inserter(readers));
  readers_[from].clear();
  readers_[to] = std::move(readers);
  const int producer = producers_[from];
  if (producer < 0) return absl::OkStatus();
  bool needed = false;
  for (ValueId id : node(producer).outputs) needed |= outputs_[id] || !readers_[id].empty();
  if (!needed) Remove(producer, std::move(text));
  return absl::OkStatus();
}

absl::Status GraphEditor::Fold(ValueId value, std::vector<float> data, std::string text) {
  RETURN_IF_ERROR(LoadScope::Check());
  const Shape& shape = specs_[value].shape;
  if (!shape.IsConcrete() || shape.Elements().value() != static_cast<int64_t>(data.size())) {
    return Internal(pass_, ": \"", graph_.values[value].name, "\" has shape ", shape.ToString(),
                    ", not ", data.size(), " values");
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
  const Cost saved = CostOfNode(index);
  const int layer = node(index).file_index;
  Splice({index}, index, {});
  Record({layer}, std::move(text), saved);
}

}  // namespace ulfd::engine

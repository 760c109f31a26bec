// Arithmetic that chooses between x and a multiple of x by a sigmoid of x -> one dice_layer.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "engine/graph/passes/affine.h"
#include "engine/graph/passes/passes.h"
#include "engine/layers/types/building_blocks.h"

namespace ulfd::engine {
namespace {

using Op = Semantics::Op;

// fixed + gated * p, or that times x; column by column, repeating.
struct Form {
  bool times_x = false;
  std::vector<double> fixed, gated;
};

// f of the two, column by column; empty: they repeat together after too many.
template <typename Function>
std::vector<double> Zip(const std::vector<double>& a, const std::vector<double>& b, Function f) {
  if (a.empty() || b.empty() || std::lcm(a.size(), b.size()) > kMaxPeriod) return {};
  std::vector<double> values(std::lcm(a.size(), b.size()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = f(a[i % a.size()], b[i % b.size()]);
  return values;
}

// What is computed of x and p = sigmoid(columns of x), and nothing else.
class Gate {
 public:
  Gate(const GraphEditor& editor, int sigmoid, ValueId x, std::vector<Affine> columns)
      : editor_(editor), x_(x), p_(editor.node(sigmoid).outputs[0]), columns_(std::move(columns)) {
    forms_[x] = {true, {1}, {0}};
    forms_[p_] = {false, {0}, {1}};
  }

  // The last node that makes fixed * x + (1 - fixed) * p * x, if nothing else reads what lies
  // between; -1: there is none.
  int Find() {
    // Real ones have eight at most.
    constexpr size_t kMaxNodes = 16, kMaxReaders = 64;
    if (editor_.Readers(x_).size() > kMaxReaders) return -1;
    std::set<int> next(editor_.Readers(p_).begin(), editor_.Readers(p_).end());
    next.insert(editor_.Readers(x_).begin(), editor_.Readers(x_).end());
    int last = -1;
    while (!next.empty() && nodes_.size() < kMaxNodes) {
      const int index = *next.begin();
      next.erase(next.begin());
      const Node& node = editor_.node(index);
      if (node.outputs.size() != 1 || !editor_.SameSpec(node.outputs[0], x_)) continue;
      std::optional<Form> form = FormOf(index);
      if (!form.has_value()) continue;
      nodes_.insert(index);
      if (Chooses(*form)) last = index;
      forms_[node.outputs[0]] = *std::move(form);
      next.insert(editor_.Readers(node.outputs[0]).begin(), editor_.Readers(node.outputs[0]).end());
    }
    if (last >= 0) KeepWhatMakes(last);
    return last >= 0 && IsApart(last) ? last : -1;
  }
  // Of Find's result.
  const std::set<int>& nodes() const { return nodes_; }
  absl::StatusOr<std::unique_ptr<Layer>> MakeLayer(int last) const {
    const Form& form = forms_.at(editor_.node(last).outputs[0]);
    const auto period = static_cast<int64_t>(
        std::lcm(columns_.size(), std::lcm(form.fixed.size(), form.gated.size())));
    if (period > kMaxPeriod) return Unimplemented("");
    std::vector<float> gamma, mean, var;
    for (int64_t i = 0; i < period; ++i) {
      const Affine& column = columns_[i % columns_.size()];
      // A gate that falls, or never moves, is no dice.
      if (!(column.scale > 0)) return Unimplemented("");
      gamma.push_back(static_cast<float>(form.fixed[i % form.fixed.size()]));
      mean.push_back(static_cast<float>(column.mean - column.shift / column.scale));
      var.push_back(static_cast<float>(1 / (column.scale * column.scale)));
      for (const float v : {mean.back(), var.back()}) {
        if (!Representable(v)) return Unimplemented("");
      }
    }
    return MakeDice(gamma, mean, var);
  }

 private:
  const Form* Find(ValueId id) const {
    const auto found = forms_.find(id);
    return found == forms_.end() ? nullptr : &found->second;
  }

  std::optional<Form> FormOf(int index) const {
    const Node& node = editor_.node(index);
    const Op op = editor_.semantics(index).op;
    const Form* const a = Find(node.inputs[0]);
    const Form* const b = node.inputs.size() == 2 ? Find(node.inputs[1]) : nullptr;
    if (a != nullptr && b != nullptr) return Combined(op, *a, *b);
    const std::optional<Link> link = AsLink(editor_, index);
    const Form* const of = link.has_value() ? Find(link->x) : nullptr;
    return of == nullptr ? std::nullopt : Behind(*link, *of);
  }
  std::optional<Form> Behind(const Link& link, const Form& of) const {
    std::vector<Affine> columns(link.period);
    Apply(editor_, link, columns);
    std::vector<double> scale, shift;
    for (const Affine& column : columns) {
      scale.push_back(column.scale);
      shift.push_back(column.shift - column.mean * column.scale);
      if (of.times_x && shift.back() != 0) return std::nullopt;
    }
    return Fitting({of.times_x,
                    Zip(Zip(of.fixed, scale, std::multiplies<>()), shift, std::plus<>()),
                    Zip(of.gated, scale, std::multiplies<>())});
  }
  static std::optional<Form> Combined(Op op, const Form& a, const Form& b) {
    if (op == Op::kMultiply) {
      if (a.times_x && b.times_x) return std::nullopt;
      const auto times = [](const auto& u, const auto& v) {
        return Zip(u, v, std::multiplies<>());
      };
      const std::vector<double> squares = times(a.gated, b.gated);
      if (squares.empty() ||
          std::any_of(squares.begin(), squares.end(), [](double v) { return v != 0; })) {
        return std::nullopt;
      }
      return Fitting({a.times_x || b.times_x, times(a.fixed, b.fixed),
                      Zip(times(a.fixed, b.gated), times(a.gated, b.fixed), std::plus<>())});
    }
    if (a.times_x != b.times_x || (op != Op::kAdd && op != Op::kSubtract)) return std::nullopt;
    const double sign = op == Op::kAdd ? 1 : -1;
    const auto sum = [&](double u, double v) { return u + sign * v; };
    return Fitting({a.times_x, Zip(a.fixed, b.fixed, sum), Zip(a.gated, b.gated, sum)});
  }
  static std::optional<Form> Fitting(Form form) {
    const bool fits = !form.fixed.empty() && !form.gated.empty();
    return fits ? std::optional(std::move(form)) : std::nullopt;
  }

  // Constants are floats: 1 - gamma is rounded.
  static bool Chooses(const Form& form) {
    constexpr double kRounding = 1e-6;
    const std::vector<double> sums = Zip(form.fixed, form.gated, std::plus<>());
    const auto moves = [](double gated) { return gated != 0; };
    return form.times_x && !sums.empty() &&
           std::any_of(form.gated.begin(), form.gated.end(), moves) &&
           std::all_of(sums.begin(), sums.end(),
                       [&](double sum) { return std::abs(sum - 1) <= kRounding; });
  }

  void KeepWhatMakes(int last) {
    std::set<int> makes = {last};
    for (auto it = nodes_.rbegin(); it != nodes_.rend(); ++it) {
      if (!makes.contains(*it)) continue;
      for (const ValueId input : editor_.node(*it).inputs) {
        const int producer = editor_.Producer(input);
        if (nodes_.contains(producer)) makes.insert(producer);
      }
    }
    nodes_ = std::move(makes);
  }
  bool IsApart(int last) const {
    std::vector<ValueId> between = {p_};
    for (const int index : nodes_) {
      if (index != last) between.push_back(editor_.node(index).outputs[0]);
    }
    return std::all_of(between.begin(), between.end(), [&](ValueId id) {
      const std::vector<int>& readers = editor_.Readers(id);
      return !editor_.IsOutput(id) && std::all_of(readers.begin(), readers.end(), [&](int reader) {
        return nodes_.contains(reader);
      });
    });
  }

  const GraphEditor& editor_;
  const ValueId x_, p_;
  const std::vector<Affine> columns_;
  std::map<ValueId, Form> forms_;
  std::set<int> nodes_;
};

absl::Status Fuse(GraphEditor& editor, int sigmoid, ValueId x, std::vector<Affine> columns) {
  Gate gate(editor, sigmoid, x, std::move(columns));
  const int last = gate.Find();
  if (last < 0) return absl::OkStatus();
  absl::StatusOr<std::unique_ptr<Layer>> layer = gate.MakeLayer(last);
  if (!layer.ok()) return absl::OkStatus();
  Node node =
      editor.NewNode(last, "dice", "dice_layer", *std::move(layer), {x}, editor.node(last).outputs);
  const absl::StatusOr<TensorSpecs> specs = node.layer->Infer({editor.spec(x)});
  if (!specs.ok() || specs->front().shape != editor.shape(node.outputs[0])) return absl::OkStatus();
  std::set<int> replaced = gate.nodes();
  replaced.insert(sigmoid);
  const int before = editor.Producer(editor.node(sigmoid).inputs[0]);
  if (editor.node(sigmoid).inputs[0] != x) replaced.insert(before);
  std::string text = absl::StrCat(editor.node(sigmoid).Label(), " to ", editor.node(last).Label(),
                                  " choose between x and a multiple of it");
  return editor.Replace(std::vector<int>(replaced.begin(), replaced.end()), last, {std::move(node)},
                        std::move(text));
}

// Of a sigmoid: with what is before it, if that is affine, or of its input.
absl::Status FuseSigmoid(GraphEditor& editor, int sigmoid) {
  if (editor.semantics(sigmoid).op != Op::kSigmoid) return absl::OkStatus();
  const ValueId z = editor.node(sigmoid).inputs[0];
  const int before = editor.Producer(z);
  const std::optional<Link> link = before < 0 ? std::nullopt : AsLink(editor, before);
  if (link.has_value()) {
    std::vector<Affine> columns(link->period);
    Apply(editor, *link, columns);
    RETURN_IF_ERROR(Fuse(editor, sigmoid, link->x, std::move(columns)));
  }
  return editor.changed() ? absl::OkStatus() : Fuse(editor, sigmoid, z, {Affine()});
}

}  // namespace

absl::Status FuseDice(GraphEditor& editor) {
  return editor.ForEach([&](int index) { return FuseSigmoid(editor, index); });
}

}  // namespace ulfd::engine

// ONNX's recurrent operators: gru_layer or lstm_layer where these compute the same, else step by
// step.
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "tools/convert/onnx/model/graph.h"
#include "tools/convert/onnx/operators/layers.h"
#include "tools/convert/recipes.h"

namespace ulfd::convert {
namespace {

using engine::Dim;

enum class Cell : uint8_t { kRnn, kGru, kLstm };

constexpr int64_t kAds = -1;

// Parameters of one direction; rows of the matrices are gate values.
struct Weights {
  std::vector<float> w, r, w_bias, r_bias;
};

struct Recurrent {
  Cell cell = Cell::kRnn;
  int64_t gates = 1, n = 0, k = 0;
  int64_t steps = 0;  // kAds: those of one row are the ads.
  std::vector<Weights> directions;
  std::vector<bool> backwards;
  std::string activation = "tanh";  // RNN
  bool linear_before_reset = true;  // GRU
  bool batch_first = false;
  std::string lengths;  // A tensor [rows, 1]: a row's steps; empty: all.
};

// Tensors [rows, steps, n], in the order of the input; [rows, n]; LSTM's cell [rows, n].
struct Result {
  std::string all, last, cell;
};

absl::Status ReadActivations(const OnnxNode& node, Recurrent& net) {
  for (const onnx::AttributeProto& attribute : node.node.attribute()) {
    if (attribute.name() == "clip" || attribute.name() == "input_forget") {
      if (attribute.name() == "input_forget" && attribute.i() == 0) continue;
      return Unimplemented("attribute ", attribute.name());
    }
    if (attribute.name() != "activations") continue;
    const std::vector<std::string> found(attribute.strings().begin(), attribute.strings().end());
    const bool relu = net.cell == Cell::kRnn && !found.empty() && found[0] == "Relu";
    std::vector<std::string> wanted;
    for (size_t d = 0; d < net.directions.size(); ++d) {
      if (net.cell != Cell::kRnn) wanted.emplace_back("Sigmoid");
      wanted.emplace_back(relu ? "Relu" : "Tanh");
      if (net.cell == Cell::kLstm) wanted.emplace_back("Tanh");
    }
    if (found != wanted) return Unimplemented("activations other than the usual");
    if (relu) net.activation = "relu";
  }
  return absl::OkStatus();
}

absl::StatusOr<Recurrent> ReadRecurrent(OnnxNode& node, Cell cell) {
  Recurrent net{.cell = cell, .gates = cell == Cell::kLstm ? 4 : cell == Cell::kGru ? 3 : 1};
  const Constant *w = node.constant(1), *r = node.constant(2), *bias = node.constant(3);
  if (w == nullptr || r == nullptr || (node.Has(3) && bias == nullptr)) {
    return Unimplemented("weights that are computed");
  }
  if (w->dims.size() != 3 || r->dims.size() != 3 || w->uniform || r->uniform) {
    return InvalidArgument("weights of shapes ", DimsText(w->dims), " and ", DimsText(r->dims),
                           ", want 3 dimensions");
  }
  const std::string direction = StringAttribute(node.node, "direction", "forward");
  net.backwards = {direction == "reverse"};
  if (direction == "bidirectional") net.backwards.push_back(true);
  const auto directions = static_cast<int64_t>(net.backwards.size());
  net.n = r->dims[2].value();
  net.k = w->dims[2].value();
  const int64_t rows = net.gates * net.n;
  if (w->sizes() != std::vector<int64_t>{directions, rows, net.k} ||
      r->sizes() != std::vector<int64_t>{directions, rows, net.n} ||
      (bias != nullptr && bias->sizes() != std::vector<int64_t>{directions, 2 * rows})) {
    return InvalidArgument("weights of shapes ", DimsText(w->dims), " and ", DimsText(r->dims),
                           ", want [", directions, ", ", net.gates, "*n, k] and [", directions,
                           ", ", net.gates, "*n, n], and biases for them");
  }
  if (node.Has(7)) return Unimplemented("peepholes");
  ASSIGN_OR_RETURN(const std::vector<float> all_w, w->ToFloats());
  ASSIGN_OR_RETURN(const std::vector<float> all_r, r->ToFloats());
  std::vector<float> all_bias(static_cast<size_t>(directions * 2 * rows), 0.0f);
  if (bias != nullptr) {
    ASSIGN_OR_RETURN(all_bias, bias->ToFloats());
  }
  const auto part = [](const std::vector<float>& from, int64_t index, int64_t size) {
    return std::vector<float>(from.begin() + index * size, from.begin() + (index + 1) * size);
  };
  for (int64_t d = 0; d < directions; ++d) {
    net.directions.push_back({.w = part(all_w, d, rows * net.k),
                              .r = part(all_r, d, rows * net.n),
                              .w_bias = part(all_bias, 2 * d, rows),
                              .r_bias = part(all_bias, 2 * d + 1, rows)});
  }
  net.linear_before_reset = IntAttribute(node.node, "linear_before_reset", 0) != 0;
  net.batch_first = IntAttribute(node.node, "layout", 0) != 0;
  RETURN_IF_ERROR(ReadActivations(node, net));
  return net;
}

bool IsZero(const Constant& constant) {
  if (!constant.is_float || !(constant.uniform || IsNumbers(constant.dims))) return false;
  for (int64_t i = 0; i < (constant.uniform ? 1 : constant.elements()); ++i) {
    if (constant.f32(i) != 0) return false;
  }
  return true;
}

// The first state of a direction, [rows, n]; empty: zeros.
absl::StatusOr<std::string> FirstState(OnnxNode& node, const Recurrent& net, int input, int64_t d) {
  if (!node.Has(input)) return std::string();
  if (node.constant(input) != nullptr && IsZero(*node.constant(input))) return std::string();
  ASSIGN_OR_RETURN(OnnxValue x, node.value(input));
  const int axis = net.batch_first ? 1 : 0;
  if (x.rank() != 3) return InvalidArgument("a first state without 3 dimensions");
  ASSIGN_OR_RETURN(x, PickAlong(node, x, axis, {d}, node.Scratch("first")));
  ASSIGN_OR_RETURN(std::string state, node.graph.PlainAlong(WithoutAxis(std::move(x), axis), {1}));
  if (net.steps != kAds) return state;
  // The steps' only row: not the user's, whose rows would become those of the steps.
  const std::string only = node.Scratch("state");
  ASSIGN_OR_RETURN(state, SumAlong(node, std::move(state), {0}, only, only));
  return Sized(node, "state", state, {1, net.n});
}

// ONNX: one row per gate value; gates update, reset, candidate, or input, output, forget, cell.
// ULF: one column per gate value; reset, update, candidate, or input, forget, candidate, output.
std::vector<float> GateColumns(const Recurrent& net, const std::vector<float>& rows, int64_t k) {
  const std::vector<int64_t> from =
      net.cell == Cell::kGru ? std::vector<int64_t>{1, 0, 2} : std::vector<int64_t>{0, 2, 3, 1};
  const int64_t n = net.n;
  std::vector<float> columns(rows.size());
  for (int64_t gate = 0; gate < net.gates; ++gate) {
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < k; ++j) {
        columns[static_cast<size_t>((j * net.gates + gate) * n + i)] =
            rows[static_cast<size_t>((from[static_cast<size_t>(gate)] * n + i) * k + j)];
      }
    }
  }
  return columns;
}

// `in`: the input and, where they are no zeros, the first states.
absl::StatusOr<std::string> AddRecurrent(OnnxNode& node, const Recurrent& net,
                                         const Weights& weights,
                                         const std::vector<std::string>& in) {
  const bool gru = net.cell == Cell::kGru;
  const std::string steps = node.Scratch("steps");
  ulf::LayerParameter layer = MakeLayer(gru ? "gru_layer" : "lstm_layer", node.name, in, steps);
  if (gru) layer.mutable_gru_param()->set_leading_zeros(ulf::GruParameter::STEPS);
  const int64_t width = net.gates * net.n;
  RETURN_IF_ERROR(node.builder().AddLayer(
      std::move(layer), {MakeBlob({net.n, width}, GateColumns(net, weights.r, net.n)),
                         MakeBlob({net.k, width}, GateColumns(net, weights.w, net.k)),
                         MakeBlob({width}, GateColumns(net, weights.r_bias, 1)),
                         MakeBlob({width}, GateColumns(net, weights.w_bias, 1))}));
  return steps;
}

absl::StatusOr<std::string> Product(OnnxNode& node, const std::string& in,
                                    const std::vector<float>& weight, int64_t n, int64_t k,
                                    const std::vector<float>& bias, const char* what) {
  const std::string out = node.Scratch(what);
  ulf::LayerParameter layer = MakeLayer("inner_product_layer", out, {in}, out);
  layer.mutable_inner_product_param()->set_transpose(true);
  RETURN_IF_ERROR(
      node.builder().AddLayer(std::move(layer), {MakeBlob({n, k}, weight), MakeBlob({n}, bias)}));
  return out;
}

// One step of the cell: `x` is its part of the input's product, with its bias.
class Step {
 public:
  Step(OnnxNode& node, const Recurrent& net, const Weights& weights)
      : node_(node), net_(net), weights_(weights) {}

  std::string h, c;  // Empty: zeros.

  // Step `at`, which leaves the states of rows that end before it alone.  Returns what it gives.
  absl::StatusOr<std::string> Run(const std::string& x, int64_t at) {
    const std::string h_before = h, c_before = c;
    RETURN_IF_ERROR(Compute(x));
    if (net_.lengths.empty()) return h;
    const std::string within = absl::StrCat("@0 > ", at);
    const std::string now = h;
    for (const auto& [state, before] : {std::pair(&h, &h_before), std::pair(&c, &c_before)}) {
      if (state->empty()) continue;
      const bool zeros = before->empty();
      RETURN_IF_ERROR(Set(*state, absl::StrCat("where(", within, ", @1, ", zeros ? "0)" : "@2)"),
                          zeros ? std::vector<std::string>{net_.lengths, *state}
                                : std::vector<std::string>{net_.lengths, *state, *before}));
    }
    return Made(absl::StrCat("where(", within, ", @1, 0)"), {net_.lengths, now});
  }

 private:
  absl::Status Compute(const std::string& x) {
    std::string of_h;  // Its product, with its bias.
    if (!h.empty()) {
      ASSIGN_OR_RETURN(of_h, Product(node_, h, weights_.r, net_.gates * net_.n, net_.n,
                                     weights_.r_bias, "recurrent"));
    } else {
      of_h = node_.Scratch("recurrent");
      RETURN_IF_ERROR(AddConstant(node_.builder(), of_h,
                                  MakeBlob({1, net_.gates * net_.n}, weights_.r_bias), of_h));
    }
    if (net_.cell == Cell::kGru) return Gru(x, of_h);
    if (net_.cell == Cell::kRnn)
      return Set(h, absl::StrCat(net_.activation, "(@0 + @1)"), {x, of_h});
    ASSIGN_OR_RETURN(const std::string sum, Made("@0 + @1", {x, of_h}));
    std::vector<std::string> gate;  // Input, output, forget, cell.
    for (int i = 0; i < 4; ++i) {
      ASSIGN_OR_RETURN(gate.emplace_back(), Gate(sum, i));
    }
    if (c.empty()) {
      RETURN_IF_ERROR(Set(c, "sigmoid(@0) * tanh(@1)", {gate[0], gate[3]}));
    } else {
      RETURN_IF_ERROR(
          Set(c, "sigmoid(@0) * tanh(@1) + sigmoid(@2) * @3", {gate[0], gate[3], gate[2], c}));
    }
    return Set(h, "sigmoid(@0) * tanh(@1)", {gate[1], c});
  }

  absl::Status Gru(const std::string& x, const std::string& of_h) {
    std::string update, reset, candidate;
    for (int i = 0; i < 2; ++i) {
      ASSIGN_OR_RETURN(const std::string a, Gate(x, i));
      ASSIGN_OR_RETURN(const std::string b, Gate(of_h, i));
      RETURN_IF_ERROR(Set(i == 0 ? update : reset, "sigmoid(@0 + @1)", {a, b}));
    }
    ASSIGN_OR_RETURN(const std::string a, Gate(x, 2));
    ASSIGN_OR_RETURN(std::string b, Gate(of_h, 2));
    if (!net_.linear_before_reset && !h.empty()) {
      ASSIGN_OR_RETURN(const std::string scaled, Made("@0 * @1", {reset, h}));
      const int64_t n = net_.n;
      ASSIGN_OR_RETURN(
          b, Product(node_, scaled,
                     std::vector<float>(weights_.r.begin() + 2 * n * n, weights_.r.end()), n, n,
                     std::vector<float>(weights_.r_bias.begin() + 2 * n, weights_.r_bias.end()),
                     "scaled"));
    }
    const bool times_reset = net_.linear_before_reset;
    RETURN_IF_ERROR(
        Set(candidate, times_reset ? "tanh(@0 + @2 * @1)" : "tanh(@0 + @1)",
            times_reset ? std::vector<std::string>{a, b, reset} : std::vector<std::string>{a, b}));
    if (h.empty()) return Set(h, "(1 - @0) * @1", {update, candidate});
    return Set(h, "(1 - @0) * @1 + @0 * @2", {update, candidate, h});
  }
  absl::StatusOr<std::string> Gate(const std::string& of, int64_t gate) {
    return CutOut(node_, "gate", of, 1, gate * net_.n, net_.n);
  }
  absl::StatusOr<std::string> Made(const std::string& formula,
                                   const std::vector<std::string>& from) {
    return Computed(node_, "step", formula, from);
  }
  absl::Status Set(std::string& to, const std::string& formula,
                   const std::vector<std::string>& from) {
    ASSIGN_OR_RETURN(to, Made(formula, from));
    return absl::OkStatus();
  }

  OnnxNode& node_;
  const Recurrent& net_;
  const Weights& weights_;
};

// `in`: [rows, steps, k].
absl::StatusOr<Result> RunStepByStep(OnnxNode& node, const Recurrent& net, int64_t d,
                                     const std::string& in, std::string h, std::string c) {
  const Weights& weights = net.directions[static_cast<size_t>(d)];
  const int64_t width = net.gates * net.n;
  ASSIGN_OR_RETURN(const std::string product,
                   Product(node, in, weights.w, width, net.k, weights.w_bias, "input"));
  ASSIGN_OR_RETURN(const std::string flat, Sized(node, "flat", product, {0, net.steps * width}));
  Step step(node, net, weights);
  step.h = std::move(h);
  step.c = std::move(c);
  std::vector<std::string> all(static_cast<size_t>(net.steps));
  for (int64_t i = 0; i < net.steps; ++i) {
    const int64_t at = net.backwards[static_cast<size_t>(d)] ? net.steps - 1 - i : i;
    ASSIGN_OR_RETURN(const std::string x, CutOut(node, "x", flat, 1, at * width, width));
    ASSIGN_OR_RETURN(all[static_cast<size_t>(at)], step.Run(x, at));
  }
  Result result{.last = step.h, .cell = step.c};
  std::string side_by_side = all[0];
  if (all.size() > 1) {
    ASSIGN_OR_RETURN(side_by_side, Joined(node, "joined", all, 1));
  }
  ASSIGN_OR_RETURN(result.all, Sized(node, "all", side_by_side, {0, net.steps, net.n}));
  return result;
}

// Steps [rows, steps, n] of which each row has as many as it says: zeros behind them.
absl::StatusOr<Result> CutAtLengths(OnnxNode& node, const Recurrent& net,
                                    const std::string& steps) {
  ASSIGN_OR_RETURN(const std::string places, AddPlaces(node, net.steps, 1));
  ASSIGN_OR_RETURN(const std::string lengths, Sized(node, "lengths", net.lengths, {0, 1, 1}));
  const std::vector<std::string> in = {lengths, places, steps};
  Result result{.last = node.Scratch("last")};
  ASSIGN_OR_RETURN(result.all, Computed(node, "all", "where(@0 > @1, @2, 0)", in));
  ASSIGN_OR_RETURN(const std::string ends,
                   Computed(node, "ends", "where(@0 == @1 + 1, @2, 0)", in));
  RETURN_IF_ERROR(SumAlong(node, ends, {1}, result.last, result.last).status());
  return result;
}

// The last step of each row, or the first one.
absl::StatusOr<std::string> EndOf(OnnxNode& node, const Recurrent& net, const std::string& steps,
                                  bool first) {
  const std::string end = node.Scratch("end");
  if (net.steps != kAds) {
    ASSIGN_OR_RETURN(const std::string cut,
                     CutOut(node, "end_step", steps, 1, first ? 0 : net.steps - 1, 1));
    return Sized(node, "end", cut, {0, net.n});
  }
  ASSIGN_OR_RETURN(const OnnxValue numbers, node.graph.AdNumbers());
  ASSIGN_OR_RETURN(const std::string places, Sized(node, "places", numbers.tensor, {1, -1, 1}));
  ASSIGN_OR_RETURN(const std::string count, node.graph.AdCount());
  ASSIGN_OR_RETURN(
      const std::string ends,
      Computed(node, "ends", first ? "where(@0 == 0, @1, 0)" : "where(@0 == @2 - 1, @1, 0)",
               first ? std::vector<std::string>{places, steps}
                     : std::vector<std::string>{places, steps, count}));
  return SumAlong(node, ends, {1}, end, end);
}

// in: the input and the first states.  `last` is left empty unless it is wanted.
absl::StatusOr<Result> RunByOneLayer(OnnxNode& node, const Recurrent& net, int64_t d,
                                     std::vector<std::string> in, bool want_last) {
  const bool backwards = net.backwards[static_cast<size_t>(d)];
  if (backwards) {
    ASSIGN_OR_RETURN(const OnnxValue turned, Reversed(node, node.graph.Whole(in[0]), 1));
    in[0] = turned.tensor;
  }
  Result result;
  ASSIGN_OR_RETURN(result.all, AddRecurrent(node, net, net.directions[static_cast<size_t>(d)], in));
  if (!net.lengths.empty()) return CutAtLengths(node, net, result.all);
  if (backwards) {
    ASSIGN_OR_RETURN(const OnnxValue turned, Reversed(node, node.graph.Whole(result.all), 1));
    result.all = turned.tensor;
  }
  if (want_last) {
    ASSIGN_OR_RETURN(result.last, EndOf(node, net, result.all, backwards));
  }
  return result;
}

// Tensors of the directions side by side along a new axis in front of the last.
absl::StatusOr<std::string> Stack(OnnxNode& node, const std::vector<std::string>& parts,
                                  std::vector<int64_t> sizes) {
  std::string tensor = parts[0];
  if (parts.size() > 1) {
    const int last = static_cast<int>(sizes.size()) - 1;
    ASSIGN_OR_RETURN(tensor, Joined(node, "directions", parts, last));
  }
  sizes.insert(sizes.end() - 1, static_cast<int64_t>(parts.size()));
  return Sized(node, "stacked", tensor, sizes);
}

absl::StatusOr<int64_t> NumberOfSteps(const Dim& steps, const Dim& rows) {
  constexpr int64_t kMostSteps = 1024;
  if (steps == Dim::Ads() && (rows == Dim::Of(1) || rows == Dim::Users())) return kAds;
  if (!steps.IsConst()) {
    return InvalidArgument("the number of steps is not known; --dims can state it");
  }
  if (steps.value() < 1 || steps.value() > kMostSteps) {
    return Unimplemented(steps.value(), " steps, want 1 to ", kMostSteps);
  }
  return steps.value();
}

template <Cell cell>
absl::Status Run(OnnxNode& node) {
  ASSIGN_OR_RETURN(Recurrent net, ReadRecurrent(node, cell));
  ASSIGN_OR_RETURN(OnnxValue x, node.value(0));  // [steps, rows, k]
  if (x.rank() != 3) return InvalidArgument("shape ", DimsText(x.dims));
  if (!net.batch_first) x = MoveAxis(std::move(x), 1, 0);
  ASSIGN_OR_RETURN(net.steps, NumberOfSteps(x.dims[1], x.dims[0]));
  NoteRows(node, x.dims, {1});
  ASSIGN_OR_RETURN(const std::string in, node.graph.PlainAlong(x, {1, 2}));
  if (node.Has(4)) {
    ASSIGN_OR_RETURN(const OnnxValue lengths, node.value(4));
    if (lengths.rank() != 1) return InvalidArgument("sequence_lens is no vector");
    if (lengths.dims[0].IsAds()) x.dims[0] = lengths.dims[0];
    ASSIGN_OR_RETURN(net.lengths, node.graph.Plain(WithAxis(lengths, 1)));
  }
  const auto used = [&](int i) {
    return i < node.node.output_size() && node.uses.contains(node.node.output(i));
  };
  // They do not tell the last cell.
  const bool of_a_layer =
      cell == Cell::kLstm ? !used(2) : cell == Cell::kGru && net.linear_before_reset;
  std::vector<std::string> all, last, cells;
  for (int64_t d = 0; d < static_cast<int64_t>(net.directions.size()); ++d) {
    ASSIGN_OR_RETURN(std::string h, FirstState(node, net, 5, d));
    std::string c;
    if (cell == Cell::kLstm) {
      ASSIGN_OR_RETURN(c, FirstState(node, net, 6, d));
    }
    std::vector<std::string> from = {in};
    if (!h.empty()) from.push_back(h);
    if (!c.empty()) from.push_back(c);
    // Rows that end before the first step keep their first states, and those of a layer go on.
    const bool whole =
        of_a_layer && (c.empty() || !h.empty()) &&
        (net.lengths.empty() || (h.empty() && !net.backwards[static_cast<size_t>(d)]));
    if (net.steps == kAds && (!whole || !net.lengths.empty())) {
      return Unimplemented("steps that are the ads: want GRU with linear_before_reset or LSTM, ",
                           "without lengths and the last cell");
    }
    ASSIGN_OR_RETURN(const Result result,
                     whole ? RunByOneLayer(node, net, d, std::move(from), used(1))
                           : RunStepByStep(node, net, d, in, std::move(h), std::move(c)));
    all.push_back(result.all);
    last.push_back(result.last);
    cells.push_back(result.cell);
  }
  const Dim n = Dim::Of(net.n), directions = Dim::Of(static_cast<int64_t>(all.size()));
  if (used(0)) {
    ASSIGN_OR_RETURN(const std::string tensor, Stack(node, all, {0, net.steps, net.n}));
    OnnxValue y{
        .tensor = tensor, .dims = {x.dims[1], directions, x.dims[0], n}, .axes = {1, 2, 0, 3}};
    node.Set(net.batch_first ? MoveAxis(std::move(y), 2, 0) : std::move(y));
  }
  for (int i = 1; i < 3; ++i) {
    if (!used(i)) continue;
    ASSIGN_OR_RETURN(const std::string tensor, Stack(node, i == 1 ? last : cells, {0, net.n}));
    OnnxValue y{.tensor = tensor, .dims = {directions, x.dims[0], n}, .axes = {1, 0, 2}};
    node.Set(net.batch_first ? MoveAxis(std::move(y), 1, 0) : std::move(y), i);
  }
  return absl::OkStatus();
}

constexpr OnnxType kTypes[] = {
    {"GRU", &Run<Cell::kGru>}, {"LSTM", &Run<Cell::kLstm>}, {"RNN", &Run<Cell::kRnn>}};

}  // namespace

absl::Span<const OnnxType> RecurrentOnnxTypes() { return kTypes; }

}  // namespace ulfd::convert

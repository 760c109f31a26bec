// ONNX's recurrent operators: gru_layer, lstm_layer, rnn_layer.
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

// Parameters of one direction; rows of the matrices are gate values.
struct Weights {
  std::vector<float> w, r, w_bias, r_bias;
};

struct Recurrent {
  Cell cell = Cell::kRnn;
  int64_t gates = 1, n = 0, k = 0;
  std::vector<Weights> directions;
  std::vector<bool> backwards;
  bool reset_first = false;  // GRU
  bool relu = false;         // RNN
  bool batch_first = false;
  bool lengths = false;
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
    net.relu = relu;
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
  net.reset_first = IntAttribute(node.node, "linear_before_reset", 0) == 0;
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

// The first state of a direction, [rows, n]; empty: zeros.  Of steps that are the ads, it is that
// of their only row: not the user's, whose rows would become theirs.
absl::StatusOr<std::string> FirstState(OnnxNode& node, const Recurrent& net, int input, int64_t d,
                                       bool of_ads) {
  if (!node.Has(input)) return std::string();
  if (node.constant(input) != nullptr && IsZero(*node.constant(input))) return std::string();
  ASSIGN_OR_RETURN(OnnxValue x, node.value(input));
  const int axis = net.batch_first ? 1 : 0;
  if (x.rank() != 3) return InvalidArgument("a first state without 3 dimensions");
  ASSIGN_OR_RETURN(x, PickAlong(node, x, axis, {d}, node.Scratch("first")));
  ASSIGN_OR_RETURN(std::string state, node.graph.PlainAlong(WithoutAxis(std::move(x), axis), {1}));
  if (!of_ads) return state;
  const std::string only = node.Scratch("state");
  ASSIGN_OR_RETURN(state, SumAlong(node, std::move(state), {0}, only, only));
  return Sized(node, "state", state, {1, net.n});
}

// Those of all kinds; none if all are zeros.
absl::StatusOr<std::vector<std::string>> FirstStates(OnnxNode& node, const Recurrent& net,
                                                     int64_t d, bool of_ads) {
  ASSIGN_OR_RETURN(std::string h, FirstState(node, net, 5, d, of_ads));
  std::string c;
  if (net.cell == Cell::kLstm) {
    ASSIGN_OR_RETURN(c, FirstState(node, net, 6, d, of_ads));
  }
  if (h.empty() && !c.empty()) {
    h = node.Scratch("zeros");
    const std::vector<float> zeros(static_cast<size_t>(net.n), 0.0f);
    RETURN_IF_ERROR(AddConstant(node.builder(), h, MakeBlob({1, net.n}, zeros), h));
  }
  std::vector<std::string> states;
  if (!h.empty()) states.push_back(std::move(h));
  if (!c.empty()) states.push_back(std::move(c));
  return states;
}

// ONNX: one row per gate value; gates update, reset, candidate, or input, output, forget, cell.
// ULF: one column per gate value; reset, update, candidate, or input, forget, candidate, output.
std::vector<float> GateColumns(const Recurrent& net, const std::vector<float>& rows, int64_t k) {
  const std::vector<int64_t> from = net.cell == Cell::kGru    ? std::vector<int64_t>{1, 0, 2}
                                    : net.cell == Cell::kLstm ? std::vector<int64_t>{0, 2, 3, 1}
                                                              : std::vector<int64_t>{0};
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

// One direction: the first tops of its layer, the states of every step [rows, steps, n], the last
// h and the last c [rows, n].
absl::StatusOr<std::vector<std::string>> AddRecurrent(OnnxNode& node, const Recurrent& net,
                                                      int64_t d, const std::vector<std::string>& in,
                                                      int tops) {
  const Weights& weights = net.directions[static_cast<size_t>(d)];
  std::vector<std::string> made;
  for (const char* what : {"steps", "last", "cell"}) made.push_back(node.Scratch(what));
  made.resize(static_cast<size_t>(tops));
  const char* const type = net.cell == Cell::kGru    ? "gru_layer"
                           : net.cell == Cell::kLstm ? "lstm_layer"
                                                     : "rnn_layer";
  ulf::LayerParameter layer = MakeLayer(type, node.name, in, made[0]);
  for (int i = 1; i < tops; ++i) layer.add_top(made[static_cast<size_t>(i)]);
  const auto say = [&](auto* param) {
    if (net.backwards[static_cast<size_t>(d)]) param->set_backwards(true);
    if (net.lengths) param->set_lengths(true);
    return param;
  };
  if (net.cell == Cell::kGru) {
    ulf::GruParameter* const param = say(layer.mutable_gru_param());
    param->set_leading_zeros(ulf::GruParameter::STEPS);
    if (net.reset_first) param->set_reset_first(true);
  } else if (net.cell == Cell::kLstm) {
    say(layer.mutable_lstm_param());
  } else if (ulf::RnnParameter* const param = say(layer.mutable_rnn_param()); net.relu) {
    param->set_activation(ulf::RnnParameter::RELU);
  }
  const int64_t width = net.gates * net.n;
  RETURN_IF_ERROR(node.builder().AddLayer(
      std::move(layer), {MakeBlob({net.n, width}, GateColumns(net, weights.r, net.n)),
                         MakeBlob({net.k, width}, GateColumns(net, weights.w, net.k)),
                         MakeBlob({width}, GateColumns(net, weights.r_bias, 1)),
                         MakeBlob({width}, GateColumns(net, weights.w_bias, 1))}));
  return made;
}

// Tensors of the directions side by side, along an axis in front of the last one.
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

template <Cell cell>
absl::Status Run(OnnxNode& node) {
  ASSIGN_OR_RETURN(Recurrent net, ReadRecurrent(node, cell));
  ASSIGN_OR_RETURN(OnnxValue x, node.value(0));  // [steps, rows, k]
  if (x.rank() != 3) return InvalidArgument("shape ", DimsText(x.dims));
  if (!net.batch_first) x = MoveAxis(std::move(x), 1, 0);
  NoteRows(node, x.dims, {1});
  ASSIGN_OR_RETURN(const std::string in, node.graph.PlainAlong(x, {1, 2}));
  std::vector<std::string> lengths;
  if (node.Has(4)) {
    ASSIGN_OR_RETURN(const OnnxValue steps, node.value(4));
    if (steps.rank() != 1) return InvalidArgument("sequence_lens is no vector");
    if (steps.dims[0].IsAds()) x.dims[0] = steps.dims[0];
    ASSIGN_OR_RETURN(lengths.emplace_back(), node.graph.Plain(WithAxis(steps, 1)));
    net.lengths = true;
  }
  const auto used = [&](int i) {
    return i < node.node.output_size() && node.uses.contains(node.node.output(i));
  };
  const int tops = used(2) ? 3 : used(1) ? 2 : 1;
  std::vector<std::string> made[3];  // By top, of each direction.
  for (int64_t d = 0; d < static_cast<int64_t>(net.directions.size()); ++d) {
    std::vector<std::string> inputs = {in};
    ASSIGN_OR_RETURN(const std::vector<std::string> states,
                     FirstStates(node, net, d, x.dims[1].IsAds()));
    inputs.insert(inputs.end(), states.begin(), states.end());
    inputs.insert(inputs.end(), lengths.begin(), lengths.end());
    ASSIGN_OR_RETURN(const std::vector<std::string> of_one,
                     AddRecurrent(node, net, d, inputs, tops));
    for (size_t i = 0; i < of_one.size(); ++i) made[i].push_back(of_one[i]);
  }
  const Dim n = Dim::Of(net.n), directions = Dim::Of(static_cast<int64_t>(net.directions.size()));
  if (used(0)) {
    ASSIGN_OR_RETURN(const std::string tensor, Stack(node, made[0], {0, 0, net.n}));
    OnnxValue y{
        .tensor = tensor, .dims = {x.dims[1], directions, x.dims[0], n}, .axes = {1, 2, 0, 3}};
    node.Set(net.batch_first ? MoveAxis(std::move(y), 2, 0) : std::move(y));
  }
  for (int i = 1; i < 3; ++i) {
    if (!used(i)) continue;
    ASSIGN_OR_RETURN(const std::string tensor, Stack(node, made[i], {0, net.n}));
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

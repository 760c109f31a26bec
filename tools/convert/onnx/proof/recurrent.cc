// The interpreter's recurrent operators.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "tools/convert/onnx/model/constant.h"
#include "tools/convert/onnx/proof/interpreter.h"

namespace ulfd::convert::reference {
namespace {

double Logistic(double x) { return 1 / (1 + std::exp(-x)); }

enum class Cell : uint8_t { kRnn, kGru, kLstm };

// RNN: one gate.  GRU: update, reset, candidate.  LSTM: input, output, forget, cell.
struct Net {
  Cell cell = Cell::kRnn;
  int64_t gates = 1, steps = 0, rows = 0, k = 0, n = 0, directions = 1;
  bool batch_first = false, relu = false, linear_before_reset = false;

  size_t state_at(int64_t d, int64_t row) const {
    return static_cast<size_t>((batch_first ? row * directions + d : d * rows + row) * n);
  }
};

absl::Status ReadActivations(const Call& c, Net& net) {
  for (const onnx::AttributeProto& attribute : c.node.attribute()) {
    const std::string& name = attribute.name();
    if (name == "clip" || (name == "input_forget" && attribute.i() != 0)) {
      return Unimplemented("attribute ", name);
    }
    if (name != "activations") continue;
    net.relu =
        net.cell == Cell::kRnn && attribute.strings_size() > 0 && attribute.strings(0) == "Relu";
    std::vector<std::string> usual = {net.relu ? "Relu" : "Tanh"};
    if (net.cell != Cell::kRnn) usual.insert(usual.begin(), "Sigmoid");
    if (net.cell == Cell::kLstm) usual.emplace_back("Tanh");
    for (int i = 0; i < attribute.strings_size(); ++i) {
      if (attribute.strings(i) == usual[static_cast<size_t>(i) % usual.size()]) continue;
      return Unimplemented("activation ", attribute.strings(i));
    }
    if (attribute.strings_size() != net.directions * static_cast<int64_t>(usual.size())) {
      return InvalidArgument("another number of activations");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Net> ReadNet(const Call& c, Cell cell) {
  const Array &x = *c.in[0], &w = *c.in[1], &r = *c.in[2];
  if (c.Has(7)) return Unimplemented("peepholes");
  if (x.rank() != 3 || w.rank() != 3 || r.rank() != 3) return Misfit(c, "want three dimensions");
  Net net{.cell = cell, .gates = cell == Cell::kLstm ? 4 : cell == Cell::kGru ? 3 : 1};
  net.batch_first = IntAttribute(c.node, "layout", 0) != 0;
  net.linear_before_reset = IntAttribute(c.node, "linear_before_reset", 0) != 0;
  net.steps = x.dims[net.batch_first ? 1 : 0];
  net.rows = x.dims[net.batch_first ? 0 : 1];
  net.k = x.dims[2];
  net.n = r.dims[2];
  net.directions = StringAttribute(c.node, "direction", "forward") == "bidirectional" ? 2 : 1;
  const int64_t width = net.gates * net.n, d = net.directions;
  const Sizes state = net.batch_first ? Sizes{net.rows, d, net.n} : Sizes{d, net.rows, net.n};
  if (w.dims != Sizes{d, width, net.k} || r.dims != Sizes{d, width, net.n} ||
      (c.Has(3) && c.in[3]->dims != Sizes{d, 2 * width}) ||
      (c.Has(4) && (c.in[4]->dims != Sizes{net.rows} || c.in[4]->is_float())) ||
      (c.Has(5) && c.in[5]->dims != state) || (c.Has(6) && c.in[6]->dims != state)) {
    return Misfit(c, "weights that do not fit");
  }
  for (int64_t row = 0; c.Has(4) && row < net.rows; ++row) {
    const double length = c.in[4]->at(row);
    if (length < 0 || length > static_cast<double>(net.steps)) {
      return OutOfRange("length ", length, " of ", net.steps, " steps");
    }
  }
  RETURN_IF_ERROR(ReadActivations(c, net));
  return net;
}

// A matrix of direction `d`, [gates * n, columns], times a vector, plus one half of the bias.
double GateSum(const Call& c, const Net& net, int64_t d, int64_t gate, size_t matrix,
               int64_t columns, const std::function<double(int64_t)>& vector) {
  const int64_t width = net.gates * net.n;
  double sum = c.Has(3) ? c.in[3]->at((2 * d + (matrix == 2 ? 1 : 0)) * width + gate) : 0;
  for (int64_t j = 0; j < columns; ++j) {
    sum += vector(j) * c.in[matrix]->at((d * width + gate) * columns + j);
  }
  return sum;
}

// The next state of one row: `h` and `cell` point to its n values.
void NextState(const Call& c, const Net& net, int64_t d, int64_t from, double* h, double* cell) {
  const int type = c.in[0]->type;
  const std::vector<double> before(h, h + net.n);
  const auto of_x = [&](int64_t gate) {
    return GateSum(c, net, d, gate, 1, net.k,
                   [&](int64_t j) { return c.in[0]->at(from * net.k + j); });
  };
  const auto of_h = [&](int64_t gate, const std::vector<double>& state) {
    return GateSum(c, net, d, gate, 2, net.n,
                   [&](int64_t j) { return state[static_cast<size_t>(j)]; });
  };
  const int64_t n = net.n;
  std::vector<double> reset(before.size()), scaled = before;
  for (int64_t i = 0; net.cell == Cell::kGru && i < n; ++i) {
    const auto at = static_cast<size_t>(i);
    reset[at] = Logistic(of_x(n + i) + of_h(n + i, before));
    scaled[at] *= reset[at];
  }
  for (int64_t i = 0; i < n; ++i) {
    const auto both = [&](int64_t gate) { return of_x(gate * n + i) + of_h(gate * n + i, before); };
    if (net.cell == Cell::kLstm) {
      cell[i] = c.Round(type, Logistic(both(2)) * cell[i] + Logistic(both(0)) * std::tanh(both(3)));
      h[i] = c.Round(type, Logistic(both(1)) * std::tanh(cell[i]));
    } else if (net.cell == Cell::kGru) {
      const double update = Logistic(both(0));
      const double inner = net.linear_before_reset
                               ? reset[static_cast<size_t>(i)] * of_h(2 * n + i, before)
                               : of_h(2 * n + i, scaled);
      const double candidate = std::tanh(of_x(2 * n + i) + inner);
      h[i] = c.Round(type, (1 - update) * candidate + update * before[static_cast<size_t>(i)]);
    } else {
      h[i] = c.Round(type, net.relu ? std::max(0.0, both(0)) : std::tanh(both(0)));
    }
  }
}

template <Cell cell>
Results Recurrent(const Call& c) {
  ASSIGN_OR_RETURN(const Net net, ReadNet(c, cell));
  const int64_t directions = net.directions, rows = net.rows, steps = net.steps, n = net.n;
  const Sizes state = net.batch_first ? Sizes{rows, directions, n} : Sizes{directions, rows, n};
  const Sizes dims =
      net.batch_first ? Sizes{rows, steps, directions, n} : Sizes{steps, directions, rows, n};
  ASSIGN_OR_RETURN(const int64_t count, CountOf(c, dims));
  std::vector<double> all(static_cast<size_t>(count), 0.0);
  const std::vector<double> zeros(static_cast<size_t>(directions * rows * n), 0.0);
  std::vector<double> h = c.Has(5) ? ValuesOf(*c.in[5]) : zeros;
  std::vector<double> cells = c.Has(6) ? ValuesOf(*c.in[6]) : zeros;
  for (int64_t d = 0; d < directions; ++d) {
    const bool backwards = StringAttribute(c.node, "direction", "forward") == "reverse" || d == 1;
    for (int64_t step = 0; step < steps; ++step) {
      RETURN_IF_ERROR(c.options.budget.Check());
      const int64_t t = backwards ? steps - 1 - step : step;
      for (int64_t row = 0; row < rows; ++row) {
        if (c.Has(4) && t >= (*c.in[4]->ints)[static_cast<size_t>(row)]) continue;
        const size_t at = net.state_at(d, row);
        NextState(c, net, d, net.batch_first ? row * steps + t : t * rows + row, h.data() + at,
                  cells.data() + at);
        const int64_t to = net.batch_first ? (row * steps + t) * directions + d
                                           : (t * directions + d) * rows + row;
        std::copy_n(h.begin() + static_cast<int64_t>(at), n, all.begin() + to * n);
      }
    }
  }
  std::vector<Array> results = {Floats(c.in[0]->type, dims, std::move(all)),
                                Floats(c.in[0]->type, state, std::move(h))};
  if (cell == Cell::kLstm) results.push_back(Floats(c.in[0]->type, state, std::move(cells)));
  return results;
}

constexpr Operator kOperators[] = {{"LSTM", 3, &Recurrent<Cell::kLstm>},
                                   {"RNN", 3, &Recurrent<Cell::kRnn>},
                                   {"GRU", 3, &Recurrent<Cell::kGru>}};

}  // namespace

absl::Span<const Operator> RecurrentOperators() { return kOperators; }

}  // namespace ulfd::convert::reference

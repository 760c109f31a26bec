// The interpreter's recurrent operators other than GRU.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "tools/convert/onnx_constant.h"
#include "tools/convert/onnx_reference.h"

namespace ulfd::convert::reference {
namespace {

double Logistic(double x) { return 1 / (1 + std::exp(-x)); }

absl::Status CheckAttributes(const Call& c, int64_t directions, bool lstm, bool& relu) {
  for (const onnx::AttributeProto& attribute : c.node.attribute()) {
    const std::string& name = attribute.name();
    if (name == "clip" || (name == "input_forget" && attribute.i() != 0)) {
      return absl::UnimplementedError(absl::StrCat("attribute ", name));
    }
    if (name != "activations") continue;
    relu = !lstm && attribute.strings_size() > 0 && attribute.strings(0) == "Relu";
    const std::vector<std::string> usual = lstm
                                               ? std::vector<std::string>{"Sigmoid", "Tanh", "Tanh"}
                                               : std::vector<std::string>{relu ? "Relu" : "Tanh"};
    for (int i = 0; i < attribute.strings_size(); ++i) {
      if (attribute.strings(i) == usual[static_cast<size_t>(i) % usual.size()]) continue;
      return absl::UnimplementedError(absl::StrCat("activation ", attribute.strings(i)));
    }
    if (attribute.strings_size() != directions * static_cast<int64_t>(usual.size())) {
      return absl::InvalidArgumentError("another number of activations");
    }
  }
  return absl::OkStatus();
}

// LSTM: gates input, output, forget, cell.  RNN: one gate.
Results Recurrent(const Call& c, bool lstm) {
  const Array &x = *c.in[0], &w = *c.in[1], &r = *c.in[2];
  const int64_t gates = lstm ? 4 : 1;
  const bool batch_first = IntAttribute(c.node, "layout", 0) != 0;
  if (c.Has(4) || c.Has(7)) return absl::UnimplementedError("sequence_lens or peepholes");
  if (x.rank() != 3 || w.rank() != 3 || r.rank() != 3) {
    return absl::InvalidArgumentError("want three dimensions");
  }
  const int64_t steps = x.dims[batch_first ? 1 : 0], rows = x.dims[batch_first ? 0 : 1];
  const int64_t k = x.dims[2], n = r.dims[2];
  const std::string direction = StringAttribute(c.node, "direction", "forward");
  const int64_t directions = direction == "bidirectional" ? 2 : 1;
  const Sizes state = batch_first ? Sizes{rows, directions, n} : Sizes{directions, rows, n};
  if (w.dims != Sizes{directions, gates * n, k} || r.dims != Sizes{directions, gates * n, n} ||
      (c.Has(3) && c.in[3]->dims != Sizes{directions, 2 * gates * n}) ||
      (c.Has(5) && c.in[5]->dims != state) || (c.Has(6) && c.in[6]->dims != state)) {
    return absl::InvalidArgumentError("weights that do not fit");
  }
  bool relu = false;
  RETURN_IF_ERROR(CheckAttributes(c, directions, lstm, relu));
  const Sizes dims =
      batch_first ? Sizes{rows, steps, directions, n} : Sizes{steps, directions, rows, n};
  ASSIGN_OR_RETURN(const int64_t count, CountOf(c, dims));
  const auto state_at = [&](int64_t d, int64_t row, int64_t i) {
    return static_cast<size_t>((batch_first ? row * directions + d : d * rows + row) * n + i);
  };
  std::vector<double> all(static_cast<size_t>(count));
  std::vector<double> h(static_cast<size_t>(directions * rows * n), 0.0), cell = h;
  for (size_t i = 0; i < h.size(); ++i) {
    if (c.Has(5)) h[i] = c.in[5]->at(static_cast<int64_t>(i));
    if (c.Has(6)) cell[i] = c.in[6]->at(static_cast<int64_t>(i));
  }
  for (int64_t d = 0; d < directions; ++d) {
    const bool backwards = direction == "reverse" || d == 1;
    for (int64_t step = 0; step < steps; ++step) {
      RETURN_IF_ERROR(c.options.budget.Check());
      const int64_t t = backwards ? steps - 1 - step : step;
      for (int64_t row = 0; row < rows; ++row) {
        std::vector<double> gate(static_cast<size_t>(gates * n));
        for (int64_t g = 0; g < gates * n; ++g) {
          double sum = 0;
          if (c.Has(3)) {
            sum = c.in[3]->at(d * 2 * gates * n + g) + c.in[3]->at((d * 2 + 1) * gates * n + g);
          }
          const int64_t from = batch_first ? row * steps + t : t * rows + row;
          for (int64_t j = 0; j < k; ++j) {
            sum += x.at(from * k + j) * w.at((d * gates * n + g) * k + j);
          }
          for (int64_t j = 0; j < n; ++j) {
            sum += h[state_at(d, row, j)] * r.at((d * gates * n + g) * n + j);
          }
          gate[static_cast<size_t>(g)] = sum;
        }
        for (int64_t i = 0; i < n; ++i) {
          const auto of = [&](int64_t g) { return gate[static_cast<size_t>(g * n + i)]; };
          const size_t at = state_at(d, row, i);
          if (lstm) {
            cell[at] =
                c.Round(x.type, Logistic(of(2)) * cell[at] + Logistic(of(0)) * std::tanh(of(3)));
            h[at] = c.Round(x.type, Logistic(of(1)) * std::tanh(cell[at]));
          } else {
            h[at] = c.Round(x.type, relu ? std::max(0.0, of(0)) : std::tanh(of(0)));
          }
          const int64_t to =
              batch_first ? (row * steps + t) * directions + d : (t * directions + d) * rows + row;
          all[static_cast<size_t>(to * n + i)] = h[at];
        }
      }
    }
  }
  std::vector<Array> results = {Floats(x.type, dims, std::move(all)),
                                Floats(x.type, state, std::move(h))};
  if (lstm) results.push_back(Floats(x.type, state, std::move(cell)));
  return results;
}
Results Lstm(const Call& c) { return Recurrent(c, true); }
Results Rnn(const Call& c) { return Recurrent(c, false); }

constexpr Operator kOperators[] = {{"LSTM", 3, &Lstm}, {"RNN", 3, &Rnn}};

}  // namespace

absl::Span<const Operator> RecurrentOperators() { return kOperators; }

}  // namespace ulfd::convert::reference

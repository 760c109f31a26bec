// SPDX-License-Identifier: Apache-2.0
#include "engine/graph/cancellation.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "engine/graph/graph.h"
#include "engine/layers/checks.h"
#include "engine/layers/common/double_math.h"

namespace ulfd::engine {

namespace {

using Op = Semantics::Op;
using Vector = std::vector<double>;

constexpr double kUlp = 0x1p-24;        // Largest relative error of rounding to float32.
constexpr double kReported = 1e-5;      // The engine's promise for scores.
constexpr double kFollowed = 1e-6;      // What is left of the promise when a layer is rounded.
constexpr size_t kChannels = 16;        // Worst channels that are followed backwards.
constexpr double kTypicalOutput = 3;    // Deviations.
constexpr double kSigmoidSlope = 0.25;  // The steepest.

// What the parameters of a bn or dice say of its input and output, per channel.
struct Normaliser {
  Vector mean, deviation;
  Vector slope;   // d output / d input, in units of a typical output.
  Vector center;  // The output at the mean.
};

Normaliser ReadNormaliser(const Semantics& s) {
  const bool bn = s.op == Op::kBatchNorm;
  const auto& values = s.params->values;
  const std::vector<float>&gamma = values[bn ? 1 : 0], &mean = values[bn ? 2 : 1],
        &var = values[bn ? 3 : 2];
  Normaliser result;
  for (int64_t c = 0; c < s.params->period; ++c) {
    const double deviation = std::sqrt(double{var[c]} + double{s.eps});
    const double beta = bn ? values[0][c] : 0;
    // Dice switches between x and gamma * x where x passes the mean: relative to x.
    const double unit = bn ? std::abs(beta) + kTypicalOutput * std::abs(gamma[c]) : 1;
    const double slope = bn ? std::abs(gamma[c]) : kSigmoidSlope;
    result.mean.push_back(mean[c]);
    result.deviation.push_back(deviation);
    result.slope.push_back(unit > 0 && deviation > 0 ? slope / deviation / unit : 0);
    result.center.push_back(bn ? beta : mean[c] * (1 + double{gamma[c]}) / 2);
  }
  return result;
}

bool IsNormaliser(const Semantics& s) {
  return (s.op == Op::kBatchNorm || s.op == Op::kDice) && s.params != nullptr;
}

// Follows the rounding errors that one normaliser amplifies.
class ErrorTracer {
 public:
  ErrorTracer(const Graph& graph, const std::vector<TensorSpec>& specs,
              const ObservedMagnitudes& observed)
      : graph_(graph), specs_(specs), observed_(observed), producers_(graph.values.size(), -1) {
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      semantics_.push_back(graph.nodes[i].layer->semantics());
      for (ValueId id : graph.nodes[i].outputs) producers_[id] = static_cast<int>(i);
    }
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      if (IsNormaliser(semantics_[i])) {
        normalised_by_[graph.nodes[i].inputs[0]] = static_cast<int>(i);
      }
    }
  }

  std::vector<Cancellation> Run() {
    std::vector<Cancellation> found;
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (!IsNormaliser(semantics_[i])) continue;
      Cancellation cancellation;
      if (Trace(static_cast<int>(i), cancellation)) found.push_back(std::move(cancellation));
    }
    return found;
  }

 private:
  // d (units of the normaliser's output) / d (a tensor's channels), for some of its channels.
  using Rows = std::vector<Vector>;

  bool Trace(int index, Cancellation& result) {
    const Node& node = graph_.nodes[index];
    const Normaliser n = ReadNormaliser(semantics_[index]);
    const size_t channels = n.mean.size();
    const ValueId x = node.inputs[0];
    Vector magnitude = Observe(x, channels);
    if (magnitude.empty()) magnitude = Absolute(n.mean);
    std::vector<size_t> order(channels);
    std::iota(order.begin(), order.end(), 0);
    const auto error = [&](size_t c) { return kUlp * n.slope[c] * magnitude[c]; };
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return error(a) > error(b); });
    if (channels == 0 || !(error(order[0]) > kReported)) return false;

    result.layer = node.file_index;
    result.label = node.Label();
    result.error = error(order[0]);
    for (size_t c = 0; c < channels; ++c) {
      if (n.deviation[c] > 0) {
        result.ratio = std::max(result.ratio, std::abs(n.mean[c]) / n.deviation[c]);
      }
    }
    order.resize(std::min(order.size(), kChannels));
    Rows rows;
    for (size_t c : order) rows.emplace_back(channels, 0.0).at(c) = n.slope[c];
    chosen_ = {index};
    Follow(x, rows);
    for (int i : chosen_) Name(graph_.nodes[i], semantics_[i], result);
    return true;
  }

  static void Name(const Node& node, const Semantics& semantics, Cancellation& result) {
    if (node.name.empty() || node.composite || MakeDoubleFunction(semantics).run == nullptr) {
      result.obstacles.push_back(node.Label());
    } else if (std::find(result.double_layers.begin(), result.double_layers.end(), node.name) ==
               result.double_layers.end()) {
      result.double_layers.push_back(node.name);
    }
  }

  // The error that rounding a tensor of that magnitude makes, at the worst followed channel.
  static double ErrorOf(const Rows& rows, const Vector& magnitude) {
    double worst = 0;
    for (const Vector& row : rows) {
      double sum = 0;
      for (size_t i = 0; i < row.size(); ++i) {
        const double part = row[i] * magnitude[i];
        sum += part * part;
      }
      worst = std::max(worst, kUlp * std::sqrt(sum));
    }
    return worst;
  }

  // Chooses the layer that makes `value`, whose rounding matters, and what stands before it as far
  // as that matters, too.  False: nothing was chosen.
  bool Follow(ValueId value, const Rows& rows) {
    const int index = producers_[value];
    if (index < 0 || chosen_.count(index) > 0) return index >= 0;
    switch (semantics_[index].op) {
      case Op::kFullyConnected:
        return FollowFullyConnected(index, value, rows);
      case Op::kBatchNorm:
      case Op::kDice:
      case Op::kRelu:
      case Op::kPrelu:
      case Op::kSigmoid:
      case Op::kTanh:
        return FollowElementwise(index, rows);
      case Op::kConcat:
      case Op::kFuse:
        return FollowConcat(index, value, rows);
      default:
        return false;
    }
  }

  bool FollowFullyConnected(int index, ValueId value, const Rows& rows) {
    const Semantics& s = semantics_[index];
    const MatrixRef& w = s.matrices[0];
    if (w.n != static_cast<int64_t>(rows[0].size())) return false;
    chosen_.insert(index);
    const ValueId x = graph_.nodes[index].inputs[0];
    Rows before;
    for (const Vector& row : rows) {
      Vector& next = before.emplace_back(static_cast<size_t>(w.k), 0.0);
      for (int64_t i = 0; i < w.k; ++i) {
        for (int64_t j = 0; j < w.n; ++j) next[i] += row[j] * double{w.at(i, j)};
      }
    }
    const Vector magnitude = Magnitude(x, static_cast<size_t>(w.k));
    double error = 0;
    if (!magnitude.empty()) {
      error = ErrorOf(before, magnitude);
    } else {
      // x * W = output - bias: what of the output's magnitude comes from x.
      Vector part = Center(value, static_cast<size_t>(w.n));
      if (part.empty()) return true;
      const auto reader = normalised_by_.find(value);
      const Vector deviation = reader == normalised_by_.end()
                                   ? Vector(part.size(), 0.0)
                                   : ReadNormaliser(semantics_[reader->second]).deviation;
      for (size_t j = 0; j < part.size(); ++j) {
        part[j] = std::abs(part[j] - (s.bias.empty() ? 0.0 : double{s.bias[j]})) + deviation[j];
      }
      error = ErrorOf(rows, part);
    }
    if (error > kFollowed) Follow(x, before);
    return true;
  }

  bool FollowElementwise(int index, const Rows& rows) {
    chosen_.insert(index);
    const ValueId x = graph_.nodes[index].inputs[0];
    const size_t channels = rows[0].size();
    const Vector slope = SlopeAt(index, channels), magnitude = Magnitude(x, channels);
    if (slope.empty() || magnitude.empty()) return true;
    Rows before = rows;
    for (Vector& row : before) {
      for (size_t i = 0; i < channels; ++i) row[i] *= slope[i];
    }
    if (ErrorOf(before, magnitude) > kFollowed) Follow(x, before);
    return true;
  }

  // Copying rounds nothing: it is chosen only to connect what stands before it.
  bool FollowConcat(int index, ValueId value, const Rows& rows) {
    const Node& node = graph_.nodes[index];
    const Shape& shape = specs_[value].shape;
    const bool columns = semantics_[index].op == Op::kFuse ||
                         (shape.ranked() && semantics_[index].axis == shape.rank() - 1);
    if (!columns) return false;
    bool any = false;
    size_t at = 0;
    for (ValueId id : node.inputs) {
      const size_t width = Width(id);
      if (width == 0 || at + width > rows[0].size()) return any;
      Rows part;
      for (const Vector& row : rows) {
        part.emplace_back(row.begin() + static_cast<int64_t>(at),
                          row.begin() + static_cast<int64_t>(at + width));
      }
      at += width;
      const Vector magnitude = Magnitude(id, width);
      if (!magnitude.empty() && ErrorOf(part, magnitude) > kFollowed) any |= Follow(id, part);
    }
    if (any) chosen_.insert(index);
    return any;
  }

  // Size of the last dimension; 0: not known.
  size_t Width(ValueId id) const {
    const Shape& shape = specs_[id].shape;
    if (!shape.ranked() || shape.rank() == 0 || !shape[shape.rank() - 1].IsConst()) return 0;
    return static_cast<size_t>(shape[shape.rank() - 1].value());
  }

  static Vector Absolute(Vector v) {
    for (double& x : v) x = std::abs(x);
    return v;
  }

  Vector Observe(ValueId id, size_t channels) const {
    if (!observed_) return {};
    Vector found = observed_(id, static_cast<int64_t>(channels));
    return found.size() == channels ? found : Vector();
  }

  Vector Magnitude(ValueId id, size_t channels) const {
    const Vector found = Observe(id, channels);
    return found.empty() ? Absolute(Center(id, channels)) : found;
  }

  // A typical value per channel, from the weights alone; empty: they do not say.
  Vector Center(ValueId id, size_t channels) const {
    Vector center;
    const auto reader = normalised_by_.find(id);
    const int index = producers_[id];
    if (reader != normalised_by_.end()) {
      center = ReadNormaliser(semantics_[reader->second]).mean;
    } else if (index >= 0) {
      center = CenterOf(index, channels);
    }
    return center.size() == channels ? center : Vector();
  }

  Vector CenterOf(int index, size_t channels) const {
    const Semantics& s = semantics_[index];
    const Node& node = graph_.nodes[index];
    if (IsNormaliser(s)) return ReadNormaliser(s).center;
    if (s.op == Op::kFullyConnected) {
      const MatrixRef& w = s.matrices[0];
      const Vector x = Center(node.inputs[0], static_cast<size_t>(w.k));
      if (x.empty() || s.bias_rows > 1) return {};
      Vector center(static_cast<size_t>(w.n), 0.0);
      for (int64_t j = 0; j < w.n; ++j) {
        center[j] = s.bias.empty() ? 0.0 : double{s.bias[j]};
        for (int64_t i = 0; i < w.k; ++i) center[j] += x[i] * double{w.at(i, j)};
      }
      return center;
    }
    if (s.op != Op::kRelu && s.op != Op::kPrelu && s.op != Op::kSigmoid && s.op != Op::kTanh) {
      return {};
    }
    Vector center = Center(node.inputs[0], channels);
    for (size_t i = 0; i < center.size(); ++i) center[i] = Apply(s, center[i], i);
    return center;
  }

  static double Apply(const Semantics& s, double x, size_t channel) {
    switch (s.op) {
      case Op::kRelu:
        return std::max(x, 0.0);
      case Op::kPrelu:
        return x > 0 ? x : x * SlopeOf(s, channel);
      case Op::kSigmoid:
        return 1 / (1 + std::exp(-x));
      default:
        return std::tanh(x);
    }
  }

  static double SlopeOf(const Semantics& s, size_t channel) {
    const std::vector<float>& slope = s.params->values[0];
    return slope[channel % slope.size()];
  }

  // |d output / d input| of an elementwise layer, per channel.
  Vector SlopeAt(int index, size_t channels) const {
    const Semantics& s = semantics_[index];
    if (s.op == Op::kBatchNorm || s.op == Op::kDice) {
      Vector slope(channels);
      const auto& values = s.params->values;
      for (size_t i = 0; i < channels; ++i) {
        const size_t c = i % static_cast<size_t>(s.params->period);
        const double deviation = std::sqrt(double{values.back()[c]} + double{s.eps});
        // Dice lies between x and gamma * x.
        slope[i] = s.op == Op::kDice ? std::max(1.0, std::abs(double{values[0][c]}))
                   : deviation > 0   ? std::abs(double{values[1][c]}) / deviation
                                     : 0.0;
      }
      return slope;
    }
    const Vector x = Center(graph_.nodes[index].inputs[0], channels);
    Vector slope(channels, 1.0);
    for (size_t i = 0; i < channels; ++i) {
      // Without a center: the steepest.
      if (s.op == Op::kPrelu) {
        slope[i] = x.empty()  ? std::max(1.0, std::abs(SlopeOf(s, i)))
                   : x[i] > 0 ? 1.0
                              : std::abs(SlopeOf(s, i));
      } else if (s.op == Op::kSigmoid) {
        slope[i] = kSigmoidSlope;
      }
    }
    return slope;
  }

  const Graph& graph_;
  const std::vector<TensorSpec>& specs_;
  const ObservedMagnitudes& observed_;
  std::vector<Semantics> semantics_;  // Per node.
  std::vector<int> producers_;        // Per value.
  std::map<ValueId, int> normalised_by_;
  std::set<int> chosen_;  // Nodes, for the normaliser that is traced.
};

}  // namespace

std::vector<Cancellation> FindCancellation(const Graph& graph, const std::vector<TensorSpec>& specs,
                                           const ObservedMagnitudes& observed) {
  return ErrorTracer(graph, specs, observed).Run();
}

}  // namespace ulfd::engine

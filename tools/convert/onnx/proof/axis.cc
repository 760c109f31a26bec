// The interpreter's operators along axes: sums, softmax, losses, norms.
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

Results SoftmaxAlong(const Call& c, const Sizes& dims, size_t axis, bool logarithm) {
  const Array& x = *c.in[0];
  std::vector<double> values = ValuesOf(x);
  const int64_t size = dims[axis];
  Lines(dims, axis, [&](int64_t first, int64_t step) {
    double most = -INFINITY, total = 0;
    for (int64_t i = 0; i < size; ++i) {
      most = std::max(most, values[static_cast<size_t>(first + i * step)]);
    }
    for (int64_t i = 0; i < size; ++i) {
      total += std::exp(values[static_cast<size_t>(first + i * step)] - most);
    }
    for (int64_t i = 0; i < size; ++i) {
      double& value = values[static_cast<size_t>(first + i * step)];
      value = logarithm ? value - most - std::log(total) : std::exp(value - most) / total;
      value = c.Round(x.type, value);
    }
  });
  return One(Floats(x.type, x.dims, std::move(values)));
}
Results SoftmaxOf(const Call& c, bool logarithm) {
  RETURN_IF_ERROR(WantFloats(c));
  const Array& x = *c.in[0];
  if (x.rank() == 0) return SoftmaxAlong(c, {1}, 0, logarithm);  // As PyTorch takes numbers.
  const bool flattens = c.opset < 13;
  ASSIGN_OR_RETURN(const size_t axis,
                   AxisOf(IntAttribute(c.node, "axis", flattens ? 1 : -1), x.rank()));
  if (!flattens) return SoftmaxAlong(c, x.dims, axis, logarithm);
  return SoftmaxAlong(c, {ProductOf(x.dims, 0, axis), ProductOf(x.dims, axis)}, 1, logarithm);
}
// By the definition: -weight[label] * x[row, label, ...].
Results LossOf(const Call& c, const Array& x) {
  const Array& labels = *c.in[1];
  if (x.rank() < 2 || labels.rank() + 1 != x.rank()) return Misfit(c, "labels of another rank");
  const int64_t classes = x.dims[1], rows = x.dims[0];
  Sizes dims = x.dims;
  dims.erase(dims.begin() + 1);
  if (labels.dims != dims || (c.Has(2) && c.in[2]->elements() != classes)) {
    return Misfit(c, "labels or weights of another shape");
  }
  const int64_t inner = rows == 0 ? 0 : labels.elements() / rows;
  const bool ignores = FindAttribute(c.node, "ignore_index") != nullptr;
  const int64_t ignored = IntAttribute(c.node, "ignore_index", 0);
  std::vector<double> losses;
  double total = 0, weights = 0;
  for (int64_t i = 0; i < labels.elements(); ++i) {
    const auto label = static_cast<int64_t>(labels.at(i));
    if (ignores && label == ignored) {
      losses.push_back(0);
      continue;
    }
    if (label < 0 || label >= classes) return OutOfRange("a label that is no class");
    const double weight = c.Has(2) ? c.in[2]->at(label) : 1;
    losses.push_back(-weight * x.at((i / inner * classes + label) * inner + i % inner));
    total += losses.back();
    weights += weight;
    losses.back() = c.Round(x.type, losses.back());
  }
  const std::string reduction = StringAttribute(c.node, "reduction", "mean");
  if (reduction == "none") return One(Floats(x.type, dims, std::move(losses)));
  if (reduction != "sum") total /= weights;
  return One(Floats(x.type, {}, {c.Round(x.type, total)}));
}
Results NegativeLogLikelihoodLoss(const Call& c) { return LossOf(c, *c.in[0]); }
Results SoftmaxCrossEntropyLoss(const Call& c) {
  if (c.in[0]->rank() < 2) return Misfit(c, "want classes");
  ASSIGN_OR_RETURN(std::vector<Array> logs, SoftmaxAlong(c, c.in[0]->dims, 1, true));
  ASSIGN_OR_RETURN(std::vector<Array> results, LossOf(c, logs[0]));
  results.push_back(std::move(logs[0]));
  return results;
}

Results Softmax(const Call& c) { return SoftmaxOf(c, false); }
Results LogSoftmax(const Call& c) { return SoftmaxOf(c, true); }

Results Reduce(const Call& c, const std::function<double(const std::vector<double>&)>& fn) {
  const Array& x = *c.in[0];
  ASSIGN_OR_RETURN(Sizes axes, ListOf(c, 1, "axes"));
  if (axes.empty() && IntAttribute(c.node, "noop_with_empty_axes", 0) != 0) return One(x);
  if (axes.empty()) {
    axes.resize(x.dims.size());
    std::iota(axes.begin(), axes.end(), 0);
  }
  std::vector<bool> reduced(x.dims.size(), false);
  for (const int64_t axis : axes) {
    ASSIGN_OR_RETURN(const size_t d, AxisOf(axis, x.rank()));
    reduced[d] = true;
  }
  if (x.rank() == 0) return One(x);
  const bool keep = IntAttribute(c.node, "keepdims", 1) != 0;
  const Sizes own = StridesOf(x.dims);
  Sizes dims, outer, outer_strides, inner, inner_strides;
  for (size_t d = 0; d < reduced.size(); ++d) {
    (reduced[d] ? inner : outer).push_back(x.dims[d]);
    (reduced[d] ? inner_strides : outer_strides).push_back(own[d]);
    if (!reduced[d] || keep) dims.push_back(reduced[d] ? 1 : x.dims[d]);
  }
  std::vector<double> out, line;
  const Sizes outer_walk[] = {outer_strides}, inner_walk[] = {inner_strides};
  Walk(outer, outer_walk, [&](const int64_t* from) {
    const int64_t start = from[0];
    line.clear();
    Walk(inner, inner_walk, [&](const int64_t* at) { line.push_back(x.at(start + at[0])); });
    out.push_back(fn(line));
  });
  if (x.is_float()) {
    for (double& value : out) value = c.Round(x.type, value);
    return One(Floats(x.type, dims, std::move(out)));
  }
  std::vector<int64_t> ints;
  for (const double value : out) {
    if (!(std::fabs(value) < 9e15)) return Unimplemented("a sum beyond 2^53");
    ints.push_back(Wrap(x.type, static_cast<int64_t>(value)));
  }
  return One(Ints(x.type, dims, std::move(ints)));
}

// Each step in the precision of the run, as a runtime sums: what is small beside its terms is then
// known to be uncertain.  Integers are exact.
double Total(const Call& c, const std::vector<double>& line) {
  double total = 0;
  for (const double value : line) total = c.Round(c.in[0]->type, total + value);
  return total;
}
Results ReduceSum(const Call& c) {
  return Reduce(c, [&](const auto& line) { return Total(c, line); });
}
Results ReduceMean(const Call& c) {
  return Reduce(
      c, [&](const auto& line) { return Total(c, line) / static_cast<double>(line.size()); });
}
Results ReduceMax(const Call& c) {
  return Reduce(c, [](const auto& line) {
    return line.empty() ? -INFINITY : *std::max_element(line.begin(), line.end());
  });
}
Results ReduceMin(const Call& c) {
  return Reduce(c, [](const auto& line) {
    return line.empty() ? INFINITY : *std::min_element(line.begin(), line.end());
  });
}
Results ReduceProd(const Call& c) {
  return Reduce(c, [](const auto& line) {
    double product = 1;
    for (const double value : line) product *= value;
    return product;
  });
}
Results ReduceLogSumExp(const Call& c) {
  return Reduce(c, [](const auto& line) {
    double most = line.empty() ? 0 : *std::max_element(line.begin(), line.end());
    if (std::isinf(most)) most = 0;
    double total = 0;
    for (const double value : line) total += std::exp(value - most);
    return most + std::log(total);
  });
}

Results LayerNormalization(const Call& c) {
  RETURN_IF_ERROR(WantFloats(c));
  const Array& x = *c.in[0];
  ASSIGN_OR_RETURN(const size_t axis, AxisOf(IntAttribute(c.node, "axis", -1), x.rank()));
  Sizes back(x.dims.begin() + static_cast<int64_t>(axis), x.dims.end());
  ASSIGN_OR_RETURN(const int64_t size, CountOf(c, back));
  const double epsilon = double{FloatAttribute(c.node, "epsilon", 1e-5f)};
  const bool centred = c.node.op_type() != "RMSNormalization";
  std::vector<double> values = ValuesOf(x);
  const Sizes scale_strides = BroadcastStrides(c.in[1]->dims, back);
  const Sizes bias_strides = c.Has(2) ? BroadcastStrides(c.in[2]->dims, back) : Sizes(back.size());
  for (size_t i = 1; i < 3; ++i) {
    if (!c.Has(i)) continue;
    ASSIGN_OR_RETURN(const Sizes both, BroadcastSizes(c.in[i]->dims, back));
    if (both != back) return Misfit(c, "a parameter of another shape");
  }
  std::vector<double> means, factors;
  for (size_t first = 0; size > 0 && first < values.size(); first += static_cast<size_t>(size)) {
    double mean = 0, variance = 0;
    for (size_t i = 0; centred && i < static_cast<size_t>(size); ++i) mean += values[first + i];
    mean /= static_cast<double>(size);
    for (size_t i = 0; i < static_cast<size_t>(size); ++i) {
      variance += (values[first + i] - mean) * (values[first + i] - mean);
    }
    const double factor = 1 / std::sqrt(variance / static_cast<double>(size) + epsilon);
    means.push_back(c.Round(x.type, mean));
    factors.push_back(c.Round(x.type, factor));
    size_t next = first;
    const Sizes strides[] = {scale_strides, bias_strides};
    Walk(back, strides, [&](const int64_t* at) {
      const double bias = c.Has(2) ? c.in[2]->at(at[1]) : 0;
      values[next] = c.Round(x.type, (values[next] - mean) * factor * c.in[1]->at(at[0]) + bias);
      ++next;
    });
  }
  Sizes kept = x.dims;
  std::fill(kept.begin() + static_cast<int64_t>(axis), kept.end(), 1);
  return std::vector<Array>{Floats(x.type, x.dims, std::move(values)),
                            Floats(x.type, kept, std::move(means)),
                            Floats(x.type, kept, std::move(factors))};
}

Results BatchNormalization(const Call& c) {
  RETURN_IF_ERROR(WantFloats(c));
  const Array& x = *c.in[0];
  if (x.rank() < 2) return Misfit(c, "want channels");
  const int64_t channels = x.dims[1];
  const int64_t inner = ProductOf(x.dims, 2);
  for (size_t i = 1; i < 5; ++i) {
    if (c.in[i]->elements() != channels) return Misfit(c, "want a parameter per channel");
  }
  const double epsilon = double{FloatAttribute(c.node, "epsilon", 1e-5f)};
  std::vector<double> values = ValuesOf(x);
  const auto channel_of = [&](size_t k) { return static_cast<int64_t>(k) / inner % channels; };
  std::vector<double> mean = ValuesOf(*c.in[3]), variance = ValuesOf(*c.in[4]);
  if (IntAttribute(c.node, "training_mode", 0) != 0) {
    const double count = static_cast<double>(values.size()) / static_cast<double>(channels);
    std::fill(mean.begin(), mean.end(), 0);
    std::fill(variance.begin(), variance.end(), 0);
    for (size_t k = 0; k < values.size(); ++k) mean[channel_of(k)] += values[k] / count;
    for (size_t k = 0; k < values.size(); ++k) {
      const double away = values[k] - mean[channel_of(k)];
      variance[channel_of(k)] += away * away / count;
    }
  }
  for (size_t k = 0; k < values.size(); ++k) {
    const int64_t channel = channel_of(k);
    const double normal = (values[k] - mean[channel]) / std::sqrt(variance[channel] + epsilon);
    values[k] = c.Round(x.type, normal * c.in[1]->at(channel) + c.in[2]->at(channel));
  }
  return One(Floats(x.type, x.dims, std::move(values)));
}

constexpr Operator kOperators[] = {
    {"Softmax", 1, &Softmax},
    {"LogSoftmax", 1, &LogSoftmax},
    {"ReduceSum", 1, &ReduceSum},
    {"ReduceMean", 1, &ReduceMean},
    {"ReduceMax", 1, &ReduceMax},
    {"ReduceMin", 1, &ReduceMin},
    {"ReduceProd", 1, &ReduceProd},
    {"ReduceLogSumExp", 1, &ReduceLogSumExp},
    {"NegativeLogLikelihoodLoss", 2, &NegativeLogLikelihoodLoss},
    {"SoftmaxCrossEntropyLoss", 2, &SoftmaxCrossEntropyLoss},
    {"LayerNormalization", 2, &LayerNormalization},
    {"RMSNormalization", 2, &LayerNormalization},
    {"BatchNormalization", 5, &BatchNormalization},
};

}  // namespace

absl::Span<const Operator> AxisOperators() { return kOperators; }

}  // namespace ulfd::convert::reference

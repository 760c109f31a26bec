// The interpreter's operators that compute along axes: products, sums, norms, windows, recurrences.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "tools/convert/onnx_constant.h"
#include "tools/convert/onnx_reference.h"

namespace ulfd::convert::reference {
namespace {

absl::Status Misfit(const Call& c, absl::string_view what) {
  std::vector<std::string> shapes;
  for (const Array* x : c.in) {
    shapes.push_back(x == nullptr ? "-" : absl::StrCat("[", absl::StrJoin(x->dims, ", "), "]"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("inputs of shapes ", absl::StrJoin(shapes, " "), ": ", what));
}

absl::Status WantFloats(const Call& c) {
  for (const Array* x : c.in) {
    if (x != nullptr && !x->is_float()) {
      return absl::UnimplementedError(absl::StrCat(c.node.op_type(), " of integers"));
    }
  }
  return absl::OkStatus();
}

// out [m, n] += a [m, k] * b [k, n]; asks for the time now and then.
template <typename T>
absl::Status MultiplyIn(const Budget& budget, const T* a, const T* b, T* out, int64_t m, int64_t k,
                        int64_t n) {
  for (int64_t i = 0; i < m; ++i) {
    if (i % 16 == 0) RETURN_IF_ERROR(budget.Check());
    for (int64_t l = 0; l < k; ++l) {
      const T factor = a[i * k + l];
      for (int64_t j = 0; j < n; ++j) out[i * n + j] += factor * b[l * n + j];
    }
  }
  return absl::OkStatus();
}

// The same, summed in the precision of the run: long sums round as they do in a runtime.
absl::Status Multiply(const RunOptions& options, const double* a, const double* b, double* out,
                      int64_t m, int64_t k, int64_t n) {
  if (!options.single) return MultiplyIn(options.budget, a, b, out, m, k, n);
  const std::vector<float> x(a, a + m * k), y(b, b + k * n);
  std::vector<float> sums(out, out + m * n);
  RETURN_IF_ERROR(MultiplyIn(options.budget, x.data(), y.data(), sums.data(), m, k, n));
  std::copy(sums.begin(), sums.end(), out);
  return absl::OkStatus();
}

Results MatMul(const Call& c) {
  RETURN_IF_ERROR(WantFloats(c));
  Sizes a = c.in[0]->dims, b = c.in[1]->dims;
  if (a.empty() || b.empty()) return Misfit(c, "a product with a number");
  const bool row = a.size() == 1, column = b.size() == 1;
  if (row) a.insert(a.begin(), 1);
  if (column) b.push_back(1);
  const int64_t m = a[a.size() - 2], k = a.back(), n = b.back();
  if (b[b.size() - 2] != k) return Misfit(c, "have no product");
  const Sizes batch_a(a.begin(), a.end() - 2), batch_b(b.begin(), b.end() - 2);
  ASSIGN_OR_RETURN(const Sizes batch, BroadcastSizes(batch_a, batch_b));
  Sizes dims = batch;
  dims.insert(dims.end(), {m, n});
  ASSIGN_OR_RETURN(const int64_t count, CountOf(c, dims));
  const std::vector<double> x = ValuesOf(*c.in[0]), y = ValuesOf(*c.in[1]);
  std::vector<double> out(static_cast<size_t>(count), 0.0);
  const Sizes strides[] = {BroadcastStrides(batch_a, batch), BroadcastStrides(batch_b, batch)};
  double* next = out.data();
  absl::Status status;
  Walk(batch, strides, [&](const int64_t* at) {
    if (!status.ok()) return;
    status = Multiply(c.options, x.data() + at[0] * m * k, y.data() + at[1] * k * n, next, m, k, n);
    next += m * n;
  });
  RETURN_IF_ERROR(status);
  for (double& value : out) value = c.Round(c.in[0]->type, value);
  if (column) dims.pop_back();
  if (row) dims.erase(dims.end() - (column ? 1 : 2));
  return One(Floats(c.in[0]->type, dims, std::move(out)));
}

std::vector<double> Swapped(const std::vector<double>& x, int64_t rows, int64_t columns) {
  std::vector<double> out(x.size());
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      out[static_cast<size_t>(j * rows + i)] = x[static_cast<size_t>(i * columns + j)];
    }
  }
  return out;
}

Results Gemm(const Call& c) {
  RETURN_IF_ERROR(WantFloats(c));
  Sizes a = c.in[0]->dims, b = c.in[1]->dims;
  if (a.size() != 2 || b.size() != 2) return Misfit(c, "want two matrices");
  std::vector<double> x = ValuesOf(*c.in[0]), y = ValuesOf(*c.in[1]);
  if (IntAttribute(c.node, "transA", 0) != 0) {
    x = Swapped(x, a[0], a[1]);
    std::swap(a[0], a[1]);
  }
  if (IntAttribute(c.node, "transB", 0) != 0) {
    y = Swapped(y, b[0], b[1]);
    std::swap(b[0], b[1]);
  }
  if (a[1] != b[0]) return Misfit(c, "have no product");
  const Sizes dims = {a[0], b[1]};
  ASSIGN_OR_RETURN(const int64_t count, CountOf(c, dims));
  std::vector<double> out(static_cast<size_t>(count), 0.0);
  RETURN_IF_ERROR(Multiply(c.options, x.data(), y.data(), out.data(), a[0], a[1], b[1]));
  const double alpha = double{FloatAttribute(c.node, "alpha", 1)};
  const double beta = double{FloatAttribute(c.node, "beta", 1)};
  for (double& value : out) value *= alpha;
  if (c.Has(2)) {
    ASSIGN_OR_RETURN(const Sizes both, BroadcastSizes(dims, c.in[2]->dims));
    if (both != dims) return Misfit(c, "a bias larger than the product");
    size_t next = 0;
    const Sizes strides[] = {BroadcastStrides(c.in[2]->dims, dims)};
    Walk(dims, strides, [&](const int64_t* at) { out[next++] += beta * c.in[2]->at(at[0]); });
  }
  for (double& value : out) value = c.Round(c.in[0]->type, value);
  return One(Floats(c.in[0]->type, dims, std::move(out)));
}

// --------------------------------------------------------------------------------------- Einsum

// "ij,jk->ik" by its definition: every combination of the labels.
Results Einsum(const Call& c) {
  RETURN_IF_ERROR(WantFloats(c));
  std::string text = StringAttribute(c.node, "equation", "");
  text.erase(std::remove(text.begin(), text.end(), ' '), text.end());
  const size_t arrow = text.find("->");
  std::vector<std::string> terms = {""};
  for (const char ch : text.substr(0, arrow)) {
    if (ch == ',') {
      terms.emplace_back();
    } else if (ch >= 'A' && ch <= 'z') {
      terms.back() += ch;
    } else {
      return absl::UnimplementedError(absl::StrCat("equation \"", text, "\""));
    }
  }
  if (terms.size() != c.in.size()) return Misfit(c, "another number of terms in the equation");
  std::map<char, int64_t> sizes;
  std::map<char, int> seen;
  for (size_t i = 0; i < terms.size(); ++i) {
    if (!c.Has(i) || terms[i].size() != c.in[i]->dims.size()) return Misfit(c, "ranks differ");
    for (size_t d = 0; d < terms[i].size(); ++d) {
      ++seen[terms[i][d]];
      const auto [it, added] = sizes.emplace(terms[i][d], c.in[i]->dims[d]);
      if (!added && it->second == 1) it->second = c.in[i]->dims[d];
      if (!added && c.in[i]->dims[d] != 1 && it->second != c.in[i]->dims[d]) {
        return Misfit(c, "sizes of a label differ");
      }
    }
  }
  std::string out_labels;
  if (arrow != std::string::npos) {
    out_labels = text.substr(arrow + 2);
  } else {
    for (const auto& [label, times] : seen) {
      if (times == 1) out_labels += label;
    }
  }
  std::string labels = out_labels;
  Sizes out_dims, dims;
  for (const char label : out_labels) {
    if (!sizes.contains(label)) return Misfit(c, "a label that no input has");
    out_dims.push_back(sizes[label]);
  }
  for (const auto& [label, size] : sizes) {
    if (labels.find(label) == std::string::npos) labels += label;
  }
  for (const char label : labels) dims.push_back(sizes[label]);
  ASSIGN_OR_RETURN(const int64_t count, CountOf(c, out_dims));
  double work = 1;
  for (const int64_t d : dims) work *= static_cast<double>(d);
  constexpr double kMost = 2e9;
  if (work > kMost) return absl::ResourceExhaustedError("takes longer than the proof may");
  std::vector<double> out(static_cast<size_t>(count), 0.0);
  std::vector<Sizes> strides;
  std::vector<std::vector<double>> values;
  for (size_t i = 0; i < terms.size(); ++i) {
    const Sizes own = StridesOf(c.in[i]->dims);
    Sizes by_label(labels.size(), 0);
    for (size_t d = 0; d < terms[i].size(); ++d) {
      if (c.in[i]->dims[d] != 1) by_label[labels.find(terms[i][d])] += own[d];
    }
    strides.push_back(std::move(by_label));
    values.push_back(ValuesOf(*c.in[i]));
  }
  Sizes to = StridesOf(out_dims);
  to.resize(labels.size(), 0);
  Sizes at(labels.size(), 0);
  for (int64_t left = static_cast<int64_t>(work); left-- > 0;) {
    if (left % (1 << 20) == 0) RETURN_IF_ERROR(c.options.budget.Check());
    double product = 1;
    int64_t place = 0;
    for (size_t i = 0; i < terms.size(); ++i) {
      int64_t offset = 0;
      for (size_t d = 0; d < at.size(); ++d) offset += at[d] * strides[i][d];
      product *= values[i][static_cast<size_t>(offset)];
    }
    for (size_t d = 0; d < at.size(); ++d) place += at[d] * to[d];
    out[static_cast<size_t>(place)] += product;
    for (size_t d = at.size(); d-- > 0;) {
      if (++at[d] < dims[d]) break;
      at[d] = 0;
    }
  }
  for (double& value : out) value = c.Round(c.in[0]->type, value);
  return One(Floats(c.in[0]->type, out_dims, std::move(out)));
}

// -------------------------------------------------------------------------------- along an axis

// Calls fn(first, step) for every line along the axis.
template <typename Fn>
void Lines(const Sizes& dims, size_t axis, Fn fn) {
  int64_t inner = 1, outer = 1;
  for (size_t d = 0; d < dims.size(); ++d) {
    if (d < axis) outer *= dims[d];
    if (d > axis) inner *= dims[d];
  }
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = 0; i < inner; ++i) fn(o * dims[axis] * inner + i, inner);
  }
}

// x as if it had the shape `dims`.
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
  const bool flattens = c.opset < 13;
  ASSIGN_OR_RETURN(size_t axis, AxisOf(IntAttribute(c.node, "axis", flattens ? 1 : -1), x.rank()));
  Sizes dims = x.dims;
  if (flattens) {
    Sizes flat = {1, 1};
    for (size_t d = 0; d < dims.size(); ++d) flat[d < axis ? 0 : 1] *= dims[d];
    dims = flat;
    axis = 1;
  }
  return SoftmaxAlong(c, dims, axis, logarithm);
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
  const bool ignores = HasAttribute(c.node, "ignore_index");
  const int64_t ignored = IntAttribute(c.node, "ignore_index", 0);
  std::vector<double> losses;
  double total = 0, weights = 0;
  for (int64_t i = 0; i < labels.elements(); ++i) {
    const auto label = static_cast<int64_t>(labels.at(i));
    if (ignores && label == ignored) {
      losses.push_back(0);
      continue;
    }
    if (label < 0 || label >= classes) return absl::OutOfRangeError("a label that is no class");
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
    if (!(std::fabs(value) < 9e15)) return absl::UnimplementedError("a sum beyond 2^53");
    ints.push_back(Wrap(x.type, static_cast<int64_t>(value)));
  }
  return One(Ints(x.type, dims, std::move(ints)));
}

double Total(const std::vector<double>& line) {
  double total = 0;
  for (const double value : line) total += value;
  return total;
}
double TotalOfSquares(const std::vector<double>& line) {
  double total = 0;
  for (const double value : line) total += value * value;
  return total;
}
Results ReduceSum(const Call& c) { return Reduce(c, &Total); }
Results ReduceMean(const Call& c) {
  return Reduce(c, [](const auto& line) { return Total(line) / static_cast<double>(line.size()); });
}
Results ReduceSumSquare(const Call& c) { return Reduce(c, &TotalOfSquares); }
Results ReduceL2(const Call& c) {
  return Reduce(c, [](const auto& line) { return std::sqrt(TotalOfSquares(line)); });
}
Results ReduceL1(const Call& c) {
  return Reduce(c, [](const auto& line) {
    double total = 0;
    for (const double value : line) total += std::fabs(value);
    return total;
  });
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
Results ReduceLogSum(const Call& c) {
  return Reduce(c, [](const auto& line) { return std::log(Total(line)); });
}
Results ReduceLogSumExp(const Call& c) {
  return Reduce(c, [](const auto& line) {
    const double most = line.empty() ? 0 : *std::max_element(line.begin(), line.end());
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
    for (size_t i = 0; i < static_cast<size_t>(size); ++i) mean += values[first + i];
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

Results InstanceNormalization(const Call& c) {
  RETURN_IF_ERROR(WantFloats(c));
  const Array& x = *c.in[0];
  if (x.rank() < 3) return Misfit(c, "want places");
  const int64_t channels = x.dims[1], planes = x.dims[0] * channels;
  const int64_t size = planes == 0 ? 0 : x.elements() / planes;
  if (c.in[1]->elements() != channels || c.in[2]->elements() != channels) {
    return Misfit(c, "want a parameter per channel");
  }
  const double epsilon = double{FloatAttribute(c.node, "epsilon", 1e-5f)};
  std::vector<double> values = ValuesOf(x);
  for (int64_t plane = 0; plane < planes; ++plane) {
    double mean = 0, variance = 0;
    double* const first = values.data() + plane * size;
    for (int64_t i = 0; i < size; ++i) mean += first[i] / static_cast<double>(size);
    for (int64_t i = 0; i < size; ++i) {
      variance += (first[i] - mean) * (first[i] - mean) / static_cast<double>(size);
    }
    for (int64_t i = 0; i < size; ++i) {
      first[i] = c.Round(x.type, (first[i] - mean) / std::sqrt(variance + epsilon) *
                                         c.in[1]->at(plane % channels) +
                                     c.in[2]->at(plane % channels));
    }
  }
  return One(Floats(x.type, x.dims, std::move(values)));
}

Results MeanVarianceNormalization(const Call& c) {
  RETURN_IF_ERROR(WantFloats(c));
  const Array& x = *c.in[0];
  Sizes axes = IntsAttribute(c.node, "axes");
  if (axes.empty()) axes = {0, 2, 3};
  Sizes outer = x.dims, inner(x.dims.size(), 1);
  for (const int64_t axis : axes) {
    ASSIGN_OR_RETURN(const size_t d, AxisOf(axis, x.rank()));
    inner[d] = x.dims[d];
    outer[d] = 1;
  }
  double size = 1;
  for (const int64_t d : inner) size *= static_cast<double>(d);
  std::vector<double> values = ValuesOf(x);
  const Sizes strides[] = {StridesOf(x.dims)};
  Walk(outer, strides, [&](const int64_t* from) {
    double mean = 0, variance = 0;
    const int64_t start = from[0];
    const auto each = [&](auto fn) {
      Walk(inner, strides,
           [&](const int64_t* at) { fn(values[static_cast<size_t>(start + at[0])]); });
    };
    each([&](double& value) { mean += value / size; });
    each([&](double& value) { variance += (value - mean) * (value - mean) / size; });
    each([&](double& value) {
      value = c.Round(x.type, (value - mean) / (std::sqrt(variance) + 1e-9));
    });
  });
  return One(Floats(x.type, x.dims, std::move(values)));
}

Results BatchNormalization(const Call& c) {
  RETURN_IF_ERROR(WantFloats(c));
  const Array& x = *c.in[0];
  if (IntAttribute(c.node, "training_mode", 0) != 0) {
    return absl::UnimplementedError("training_mode");
  }
  if (x.rank() < 2) return Misfit(c, "want channels");
  const int64_t channels = x.dims[1];
  int64_t inner = 1;
  for (size_t d = 2; d < x.dims.size(); ++d) inner *= x.dims[d];
  for (size_t i = 1; i < 5; ++i) {
    if (c.in[i]->elements() != channels) return Misfit(c, "want a parameter per channel");
  }
  const double epsilon = double{FloatAttribute(c.node, "epsilon", 1e-5f)};
  std::vector<double> values = ValuesOf(x);
  for (size_t k = 0; k < values.size(); ++k) {
    const int64_t channel = static_cast<int64_t>(k) / inner % channels;
    values[k] =
        c.Round(x.type, (values[k] - c.in[3]->at(channel)) /
                                std::sqrt(c.in[4]->at(channel) + epsilon) * c.in[1]->at(channel) +
                            c.in[2]->at(channel));
  }
  return One(Floats(x.type, x.dims, std::move(values)));
}

// -------------------------------------------------------------------------------------- windows

struct Window {
  Sizes kernel, strides, pads, dilations;  // Pads: all begins, then all ends.
  Sizes out;                               // Sizes of the result's spatial axes.
};

absl::StatusOr<Window> WindowOf(const Call& c, const Sizes& kernel, bool ceil_mode) {
  const Array& x = *c.in[0];
  Window w{.kernel = kernel,
           .strides = IntsAttribute(c.node, "strides"),
           .pads = IntsAttribute(c.node, "pads"),
           .dilations = IntsAttribute(c.node, "dilations")};
  const size_t n = kernel.size();
  if (w.strides.empty()) w.strides.assign(n, 1);
  if (w.pads.empty()) w.pads.assign(2 * n, 0);
  if (w.dilations.empty()) w.dilations.assign(n, 1);
  const std::string auto_pad = StringAttribute(c.node, "auto_pad", "NOTSET");
  const bool same = auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER";
  for (size_t d = 0; same && d < n && w.strides.size() == n && x.dims.size() == n + 2; ++d) {
    if (w.strides[d] < 1 || w.dilations.size() != n || w.pads.size() != 2 * n) break;
    const int64_t size = x.dims[d + 2], out = (size + w.strides[d] - 1) / w.strides[d];
    const int64_t extent = (kernel[d] - 1) * w.dilations[d] + 1;
    const int64_t pad = std::max<int64_t>(0, (out - 1) * w.strides[d] + extent - size);
    w.pads[d] = auto_pad == "SAME_UPPER" ? pad / 2 : pad - pad / 2;
    w.pads[n + d] = pad - w.pads[d];
  }
  if (w.strides.size() != n || w.pads.size() != 2 * n || w.dilations.size() != n ||
      x.dims.size() != n + 2) {
    return Misfit(c, "a window of another rank");
  }
  constexpr int64_t kMost = 1 << 20, kMostCells = 1 << 22;
  int64_t cells = 1;
  for (size_t d = 0; d < n; ++d) {
    for (const int64_t size :
         {w.kernel[d], w.strides[d], w.dilations[d], w.pads[d] + 1, w.pads[n + d] + 1}) {
      if (size < 1 || size > kMost) return Misfit(c, "a window that cannot be");
    }
    cells *= w.kernel[d];
    if (cells > kMostCells) return absl::ResourceExhaustedError("a window of too many cells");
    const int64_t extent = (w.kernel[d] - 1) * w.dilations[d] + 1;
    const int64_t room = x.dims[d + 2] + w.pads[d] + w.pads[n + d] - extent;
    if (room < 0) return Misfit(c, "smaller than the window");
    int64_t out = room / w.strides[d] + 1;
    if (ceil_mode && room % w.strides[d] != 0) {
      // The last window must begin within the input or the padding in front.
      if (out * w.strides[d] < x.dims[d + 2] + w.pads[d]) ++out;
    }
    w.out.push_back(out);
  }
  return w;
}

// Calls fn(input place or -1 in the padding, kernel place) for the window at `out`.
template <typename Fn>
void WindowPlaces(const Window& w, const Sizes& image, const Sizes& out, Fn fn) {
  const size_t n = w.kernel.size();
  Sizes at(n, 0);
  int64_t cells = 1;
  for (const int64_t k : w.kernel) cells *= k;
  for (int64_t cell = 0; cell < cells; ++cell) {
    int64_t place = 0;
    bool inside = true, counted = true;
    for (size_t d = 0; d < n; ++d) {
      const int64_t i = out[d] * w.strides[d] - w.pads[d] + at[d] * w.dilations[d];
      inside = inside && i >= 0 && i < image[d];
      counted = counted && i < image[d] + w.pads[n + d];
      place = place * image[d] + i;
    }
    fn(inside ? place : -1, cell, counted);
    for (size_t d = n; d-- > 0;) {
      if (++at[d] < w.kernel[d]) break;
      at[d] = 0;
    }
  }
}

template <typename Fn>
absl::Status EachWindow(const Call& c, const Window& w, Fn fn) {
  int64_t count = 1;
  for (const int64_t d : w.out) count *= d;
  Sizes at(w.out.size(), 0);
  for (int64_t k = 0; k < count; ++k) {
    RETURN_IF_ERROR(c.options.budget.Check());
    fn(k, at);
    for (size_t d = at.size(); d-- > 0;) {
      if (++at[d] < w.out[d]) break;
      at[d] = 0;
    }
  }
  return absl::OkStatus();
}

int64_t Product(const Sizes& dims) {
  int64_t n = 1;
  for (const int64_t d : dims) n *= d;
  return n;
}

Results Conv(const Call& c) {
  RETURN_IF_ERROR(WantFloats(c));
  const Array &x = *c.in[0], &weight = *c.in[1];
  if (x.rank() < 3 || weight.rank() != x.rank()) return Misfit(c, "want an image and its weight");
  const Sizes image(x.dims.begin() + 2, x.dims.end());
  ASSIGN_OR_RETURN(const Window w,
                   WindowOf(c, Sizes(weight.dims.begin() + 2, weight.dims.end()), false));
  const int64_t group = IntAttribute(c.node, "group", 1);
  const int64_t channels = x.dims[1], outputs = weight.dims[0], per_group = weight.dims[1];
  if (group < 1 || outputs % group != 0 || per_group * group != channels) {
    return Misfit(c, "channels that do not fit");
  }
  if (c.Has(2) && c.in[2]->elements() != outputs) return Misfit(c, "a bias of another size");
  Sizes dims = {x.dims[0], outputs};
  dims.insert(dims.end(), w.out.begin(), w.out.end());
  ASSIGN_OR_RETURN(const int64_t count, CountOf(c, dims));
  const std::vector<double> in = ValuesOf(x), kernel = ValuesOf(weight);
  std::vector<double> out(static_cast<size_t>(count), 0.0);
  const int64_t pixels = Product(image), places = Product(w.out), cells = Product(w.kernel);
  RETURN_IF_ERROR(EachWindow(c, w, [&](int64_t place, const Sizes& at) {
    WindowPlaces(w, image, at, [&](int64_t from, int64_t cell, bool) {
      if (from < 0) return;
      for (int64_t r = 0; r < x.dims[0]; ++r) {
        for (int64_t o = 0; o < outputs; ++o) {
          double& sum = out[static_cast<size_t>((r * outputs + o) * places + place)];
          const int64_t first = o / (outputs / group) * per_group;
          for (int64_t i = 0; i < per_group; ++i) {
            sum += in[static_cast<size_t>((r * channels + first + i) * pixels + from)] *
                   kernel[static_cast<size_t>((o * per_group + i) * cells + cell)];
          }
        }
      }
    });
  }));
  for (size_t k = 0; k < out.size(); ++k) {
    const int64_t o = static_cast<int64_t>(k) / places % outputs;
    out[k] = c.Round(x.type, out[k] + (c.Has(2) ? c.in[2]->at(o) : 0));
  }
  return One(Floats(x.type, dims, std::move(out)));
}

Results Pool(const Call& c, bool average) {
  RETURN_IF_ERROR(WantFloats(c));
  const Array& x = *c.in[0];
  if (x.rank() < 3) return Misfit(c, "want an image");
  const Sizes image(x.dims.begin() + 2, x.dims.end());
  ASSIGN_OR_RETURN(const Window w, WindowOf(c, IntsAttribute(c.node, "kernel_shape"),
                                            IntAttribute(c.node, "ceil_mode", 0) != 0));
  const bool count_pad = IntAttribute(c.node, "count_include_pad", 0) != 0;
  Sizes dims = {x.dims[0], x.dims[1]};
  dims.insert(dims.end(), w.out.begin(), w.out.end());
  ASSIGN_OR_RETURN(const int64_t count, CountOf(c, dims));
  std::vector<double> out(static_cast<size_t>(count));
  const int64_t pixels = Product(image), places = Product(w.out);
  RETURN_IF_ERROR(EachWindow(c, w, [&](int64_t place, const Sizes& at) {
    for (int64_t plane = 0; plane < x.dims[0] * x.dims[1]; ++plane) {
      double most = -INFINITY, sum = 0;
      int64_t cells = 0;
      WindowPlaces(w, image, at, [&](int64_t from, int64_t, bool counted) {
        if (from >= 0 || (count_pad && counted)) ++cells;
        if (from < 0) return;
        most = std::max(most, x.at(plane * pixels + from));
        sum += x.at(plane * pixels + from);
      });
      const double value = average ? sum / static_cast<double>(cells) : most;
      out[static_cast<size_t>(plane * places + place)] = c.Round(x.type, value);
    }
  }));
  return One(Floats(x.type, dims, std::move(out)));
}
Results MaxPool(const Call& c) { return Pool(c, false); }
Results AveragePool(const Call& c) { return Pool(c, true); }

Results GlobalPool(const Call& c, bool average) {
  RETURN_IF_ERROR(WantFloats(c));
  const Array& x = *c.in[0];
  if (x.rank() < 3) return Misfit(c, "want an image");
  Sizes dims = x.dims;
  std::fill(dims.begin() + 2, dims.end(), 1);
  const int64_t planes = x.dims[0] * x.dims[1];
  const int64_t pixels = planes == 0 ? 0 : x.elements() / planes;
  std::vector<double> out;
  for (int64_t plane = 0; plane < planes; ++plane) {
    double most = -INFINITY, sum = 0;
    for (int64_t i = 0; i < pixels; ++i) {
      most = std::max(most, x.at(plane * pixels + i));
      sum += x.at(plane * pixels + i);
    }
    out.push_back(c.Round(x.type, average ? sum / static_cast<double>(pixels) : most));
  }
  return One(Floats(x.type, dims, std::move(out)));
}
Results GlobalMaxPool(const Call& c) { return GlobalPool(c, false); }
Results GlobalAveragePool(const Call& c) { return GlobalPool(c, true); }

// ------------------------------------------------------------------------------------------ GRU

Results Gru(const Call& c) {
  const Array &x = *c.in[0], &w = *c.in[1], &r = *c.in[2];
  for (const char* attribute : {"activations", "clip"}) {
    if (HasAttribute(c.node, attribute)) {
      return absl::UnimplementedError(absl::StrCat("attribute ", attribute));
    }
  }
  if (c.Has(4) || IntAttribute(c.node, "layout", 0) != 0) {
    return absl::UnimplementedError("sequence_lens or layout 1");
  }
  if (x.rank() != 3 || w.rank() != 3 || r.rank() != 3) return Misfit(c, "want three dimensions");
  const int64_t steps = x.dims[0], rows = x.dims[1], k = x.dims[2], n = r.dims[2];
  const std::string direction = StringAttribute(c.node, "direction", "forward");
  const int64_t directions = direction == "bidirectional" ? 2 : 1;
  if (w.dims != Sizes{directions, 3 * n, k} || r.dims != Sizes{directions, 3 * n, n} ||
      (c.Has(3) && c.in[3]->dims != Sizes{directions, 6 * n}) ||
      (c.Has(5) && c.in[5]->dims != Sizes{directions, rows, n})) {
    return Misfit(c, "weights that do not fit");
  }
  const bool linear = IntAttribute(c.node, "linear_before_reset", 0) != 0;
  const Sizes dims = {steps, directions, rows, n}, last_dims = {directions, rows, n};
  ASSIGN_OR_RETURN(const int64_t count, CountOf(c, dims));
  std::vector<double> all(static_cast<size_t>(count)), last;
  for (int64_t d = 0; d < directions; ++d) {
    const bool backwards = direction == "reverse" || d == 1;
    const auto bias = [&](int64_t i) { return c.Has(3) ? c.in[3]->at(d * 6 * n + i) : 0; };
    std::vector<double> h(static_cast<size_t>(rows * n), 0.0);
    for (size_t i = 0; c.Has(5) && i < h.size(); ++i) {
      h[i] = c.in[5]->at(d * rows * n + static_cast<int64_t>(i));
    }
    for (int64_t step = 0; step < steps; ++step) {
      RETURN_IF_ERROR(c.options.budget.Check());
      const int64_t t = backwards ? steps - 1 - step : step;
      std::vector<double> next(h.size());
      for (int64_t row = 0; row < rows; ++row) {
        const auto from_x = [&](int64_t gate) {
          double sum = bias(gate);
          for (int64_t j = 0; j < k; ++j) {
            sum += x.at((t * rows + row) * k + j) * w.at((d * 3 * n + gate) * k + j);
          }
          return sum;
        };
        const auto from_h = [&](int64_t gate, const std::vector<double>& state) {
          double sum = 0;
          for (int64_t j = 0; j < n; ++j) {
            sum += state[static_cast<size_t>(row * n + j)] * r.at((d * 3 * n + gate) * n + j);
          }
          return sum;
        };
        std::vector<double> reset(static_cast<size_t>(n)), scaled = h;
        for (int64_t i = 0; i < n; ++i) {
          const double sum = from_x(n + i) + from_h(n + i, h) + bias(4 * n + i);
          reset[static_cast<size_t>(i)] = 1 / (1 + std::exp(-sum));
          scaled[static_cast<size_t>(row * n + i)] *= reset[static_cast<size_t>(i)];
        }
        for (int64_t i = 0; i < n; ++i) {
          const double update = 1 / (1 + std::exp(-(from_x(i) + from_h(i, h) + bias(3 * n + i))));
          const double inner =
              linear ? reset[static_cast<size_t>(i)] * (from_h(2 * n + i, h) + bias(5 * n + i))
                     : from_h(2 * n + i, scaled) + bias(5 * n + i);
          const double candidate = std::tanh(from_x(2 * n + i) + inner);
          const auto place = static_cast<size_t>(row * n + i);
          next[place] = c.Round(x.type, (1 - update) * candidate + update * h[place]);
          all[static_cast<size_t>(((t * directions + d) * rows + row) * n + i)] = next[place];
        }
      }
      h = std::move(next);
    }
    last.insert(last.end(), h.begin(), h.end());
  }
  return std::vector<Array>{Floats(x.type, dims, std::move(all)),
                            Floats(x.type, last_dims, std::move(last))};
}

constexpr Operator kOperators[] = {
    {"MatMul", 2, &MatMul},
    {"Gemm", 2, &Gemm},
    {"Einsum", 1, &Einsum},
    {"Softmax", 1, &Softmax},
    {"LogSoftmax", 1, &LogSoftmax},
    {"ReduceSum", 1, &ReduceSum},
    {"ReduceMean", 1, &ReduceMean},
    {"ReduceSumSquare", 1, &ReduceSumSquare},
    {"ReduceL1", 1, &ReduceL1},
    {"ReduceL2", 1, &ReduceL2},
    {"ReduceMax", 1, &ReduceMax},
    {"ReduceMin", 1, &ReduceMin},
    {"ReduceProd", 1, &ReduceProd},
    {"ReduceLogSum", 1, &ReduceLogSum},
    {"ReduceLogSumExp", 1, &ReduceLogSumExp},
    {"NegativeLogLikelihoodLoss", 2, &NegativeLogLikelihoodLoss},
    {"SoftmaxCrossEntropyLoss", 2, &SoftmaxCrossEntropyLoss},
    {"LayerNormalization", 2, &LayerNormalization},
    {"MeanVarianceNormalization", 1, &MeanVarianceNormalization},
    {"BatchNormalization", 5, &BatchNormalization},
    {"InstanceNormalization", 3, &InstanceNormalization},
    {"Conv", 2, &Conv},
    {"MaxPool", 1, &MaxPool},
    {"AveragePool", 1, &AveragePool},
    {"GlobalMaxPool", 1, &GlobalMaxPool},
    {"GlobalAveragePool", 1, &GlobalAveragePool},
    {"GRU", 3, &Gru},
};

}  // namespace

absl::Span<const Operator> ProductOperators() { return kOperators; }

}  // namespace ulfd::convert::reference

// The interpreter's products.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <complex>
#include <map>
#include <numeric>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "tools/convert/onnx/model/constant.h"
#include "tools/convert/onnx/proof/interpreter.h"

namespace ulfd::convert::reference {
namespace {

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

// An equation for arrays of these sizes.
struct Labels {
  std::vector<std::string> terms;
  std::string out;                // Labels of the result.
  std::map<char, int64_t> sizes;  // Of every label.
};

absl::StatusOr<Labels> ReadEquation(const Call& c) {
  std::string text = StringAttribute(c.node, "equation", "");
  text.erase(std::remove(text.begin(), text.end(), ' '), text.end());
  const size_t arrow = text.find("->");
  Labels labels{.terms = absl::StrSplit(text.substr(0, arrow), ',')};
  if (labels.terms.size() != c.in.size()) {
    return Misfit(c, "another number of terms in the equation");
  }
  // Dimensions of "...", counted from behind.
  std::string more;
  for (size_t i = 0; i < labels.terms.size(); ++i) {
    std::string& term = labels.terms[i];
    const size_t at = term.find("..."), rank = c.Has(i) ? c.in[i]->dims.size() : 0;
    if (at != std::string::npos) {
      std::string own;
      for (size_t d = term.size() - 3; d < rank && own.size() < 10; ++d) {
        own.insert(own.begin(), static_cast<char>('0' + own.size()));
      }
      term.replace(at, 3, own);
      if (own.size() > more.size()) more = own;
    }
    for (const char ch : term) {
      if (absl::ascii_isalnum(static_cast<unsigned char>(ch))) continue;
      return Unimplemented("equation \"", text, "\"");
    }
  }
  std::map<char, int> seen;
  for (size_t i = 0; i < labels.terms.size(); ++i) {
    const std::string& term = labels.terms[i];
    if (!c.Has(i) || term.size() != c.in[i]->dims.size()) return Misfit(c, "ranks differ");
    for (size_t d = 0; d < term.size(); ++d) {
      ++seen[term[d]];
      const auto [it, added] = labels.sizes.emplace(term[d], c.in[i]->dims[d]);
      if (!added && it->second == 1) it->second = c.in[i]->dims[d];
      if (!added && c.in[i]->dims[d] != 1 && it->second != c.in[i]->dims[d]) {
        return Misfit(c, "sizes of a label differ");
      }
    }
  }
  if (arrow != std::string::npos) {
    labels.out = text.substr(arrow + 2);
    if (const size_t at = labels.out.find("..."); at != std::string::npos) {
      labels.out.replace(at, 3, more);
    }
  } else {
    labels.out = more;
    for (const auto& [label, times] : seen) {
      if (times == 1 && more.find(label) == std::string::npos) labels.out += label;
    }
  }
  for (const char label : labels.out) {
    if (!labels.sizes.contains(label)) return Misfit(c, "a label that no input has");
  }
  return labels;
}

// "ij,jk->ik" by its definition: every combination of the labels.
Results Einsum(const Call& c) {
  RETURN_IF_ERROR(WantFloats(c));
  ASSIGN_OR_RETURN(const Labels labels, ReadEquation(c));
  std::string order = labels.out;  // Of the combinations: what is summed comes last.
  for (const auto& [label, size] : labels.sizes) {
    if (order.find(label) == std::string::npos) order += label;
  }
  Sizes dims;
  double work = 1;
  for (const char label : order) {
    dims.push_back(labels.sizes.at(label));
    work *= static_cast<double>(dims.back());
  }
  const Sizes out_dims(dims.begin(), dims.begin() + static_cast<int64_t>(labels.out.size()));
  ASSIGN_OR_RETURN(const int64_t count, CountOf(c, out_dims));
  constexpr double kMost = 2e9;
  if (work > kMost) return ResourceExhausted("takes longer than the proof may");
  std::vector<double> out(static_cast<size_t>(count), 0.0);
  std::vector<Sizes> strides;  // Of the terms, and of the result.
  std::vector<std::vector<double>> values;
  for (size_t i = 0; i < labels.terms.size(); ++i) {
    const Sizes own = StridesOf(c.in[i]->dims);
    strides.emplace_back(order.size(), 0);
    for (size_t d = 0; d < own.size(); ++d) {
      if (c.in[i]->dims[d] != 1) strides.back()[order.find(labels.terms[i][d])] += own[d];
    }
    values.push_back(ValuesOf(*c.in[i]));
  }
  strides.push_back(StridesOf(out_dims));
  strides.back().resize(order.size(), 0);
  Sizes at(order.size(), 0);
  for (int64_t left = static_cast<int64_t>(work); left-- > 0;) {
    if (left % (1 << 20) == 0) RETURN_IF_ERROR(c.options.budget.Check());
    const auto place = [&](const Sizes& steps) {
      return static_cast<size_t>(
          std::inner_product(at.begin(), at.end(), steps.begin(), int64_t{0}));
    };
    double product = 1;
    for (size_t i = 0; i < values.size(); ++i) product *= values[i][place(strides[i])];
    double& sum = out[place(strides.back())];
    sum = c.Round(c.in[0]->type, sum + product);
    Step(dims, at);
  }
  for (double& value : out) value = c.Round(c.in[0]->type, value);
  return One(Floats(c.in[0]->type, out_dims, std::move(out)));
}

// --------------------------------------------------------------------------------------- Fourier

struct Signal {
  size_t axis = 0;
  int64_t length = 0;
  bool inverse = false, onesided = false;
};

absl::StatusOr<Signal> ReadSignal(const Call& c) {
  constexpr int64_t kAxisIsInput = 20;
  const Array& x = *c.in[0];
  Signal s{.inverse = IntAttribute(c.node, "inverse", 0) != 0,
           .onesided = IntAttribute(c.node, "onesided", 0) != 0};
  int64_t axis = IntAttribute(c.node, "axis", 1);
  if (c.opset >= kAxisIsInput) {
    if (c.Has(2) && c.in[2]->elements() != 1) return Misfit(c, "want one axis");
    axis = c.Has(2) ? static_cast<int64_t>(c.in[2]->at(0)) : -2;
  }
  ASSIGN_OR_RETURN(s.axis, AxisOf(axis, x.rank()));
  const int64_t parts = x.dims.empty() ? 0 : x.dims.back();
  if (s.axis + 1 >= x.dims.size() || parts < 1 || parts > 2) {
    return Misfit(c, "want an axis before the last, which has 1 or 2");
  }
  if (s.onesided && !s.inverse && parts == 2) return Misfit(c, "one side of complex numbers");
  s.length = s.onesided && s.inverse ? 2 * (x.dims[s.axis] - 1) : x.dims[s.axis];
  if (c.Has(1) && c.in[1]->elements() != 1) return Misfit(c, "want one length");
  if (c.Has(1)) s.length = static_cast<int64_t>(c.in[1]->at(0));
  if (s.length < 1) return Misfit(c, "a length below 1");
  return s;
}

// By the definition.  One side of what is real is completed by its conjugates.
Results Dft(const Call& c) {
  using Complex = std::complex<double>;
  const Array& x = *c.in[0];
  if (!x.is_float()) return Misfit(c, "want floats");
  ASSIGN_OR_RETURN(const Signal s, ReadSignal(c));
  const int64_t n = s.length, parts = x.dims.back(), given = std::min(x.dims[s.axis], n);
  const bool reals = s.inverse && s.onesided;
  Sizes dims = x.dims;
  dims[s.axis] = s.onesided && !s.inverse ? n / 2 + 1 : n;
  dims.back() = reals ? 1 : 2;
  ASSIGN_OR_RETURN(const int64_t count, CountOf(c, dims));
  RETURN_IF_ERROR(CountOf(c, {n}).status());
  std::vector<double> out(static_cast<size_t>(count), 0.0);
  Sizes lines = x.dims;
  lines[s.axis] = lines.back() = 1;
  const Sizes strides[] = {StridesOf(x.dims), StridesOf(dims)};
  absl::Status status;
  Walk(lines, strides, [&](const int64_t* at) {
    if (!status.ok()) return;
    std::vector<Complex> line(static_cast<size_t>(n));
    for (int64_t k = 0; k < given; ++k) {
      const int64_t from = at[0] + k * strides[0][s.axis];
      line[static_cast<size_t>(k)] = {x.at(from), parts == 2 ? x.at(from + 1) : 0};
    }
    for (int64_t k = n / 2 + 1; reals && k < n; ++k) {
      line[static_cast<size_t>(k)] = std::conj(line[static_cast<size_t>(n - k)]);
    }
    for (int64_t to = 0; to < dims[s.axis]; ++to) {
      if (status = c.options.budget.Check(); !status.ok()) return;
      Complex sum = 0;
      for (int64_t k = 0; k < n; ++k) {
        const double turns = static_cast<double>(k * to % n) / static_cast<double>(n);
        sum +=
            line[static_cast<size_t>(k)] * std::polar(1.0, 2 * M_PI * (s.inverse ? turns : -turns));
      }
      if (s.inverse) sum /= static_cast<double>(n);
      const auto place = static_cast<size_t>(at[1] + to * strides[1][s.axis]);
      out[place] = c.Round(x.type, sum.real());
      if (!reals) out[place + 1] = c.Round(x.type, sum.imag());
    }
  });
  RETURN_IF_ERROR(status);
  return One(Floats(x.type, dims, std::move(out)));
}

constexpr Operator kOperators[] = {
    {"MatMul", 2, &MatMul},
    {"Gemm", 2, &Gemm},
    {"Einsum", 1, &Einsum},
    {"DFT", 1, &Dft},
};

}  // namespace

absl::Span<const Operator> ProductOperators() { return kOperators; }

}  // namespace ulfd::convert::reference

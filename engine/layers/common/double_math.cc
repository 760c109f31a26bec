// SPDX-License-Identifier: Apache-2.0
#include "engine/layers/common/double_math.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "engine/layers/checks.h"
#include "engine/layers/common/broadcast.h"
#include "engine/layers/common/multiversion.h"

namespace ulfd::engine {

int64_t DoubleTensor::elements() const {
  int64_t n = 1;
  for (int64_t d : dims) n *= d;
  return n;
}

namespace {

using Op = Semantics::Op;
using In = absl::Span<const DoubleTensor>;

// Product of dimensions [from, to).
int64_t Product(const TensorDims& dims, int from, int to) {
  int64_t product = 1;
  for (int i = from; i < to; ++i) product *= dims[i];
  return product;
}

// ----------------------------------------------------------------------------- fully connected

constexpr int64_t kRows = 4, kColumns = 8;  // Of a block of sums that stay in registers.

// y[rows <= kRows, kColumns] += x w for one panel of w, which is [k, kColumns].
template <int64_t kBlockRows>
[[gnu::always_inline]] inline void MultiplyBlock(const double* x, int64_t k, const float* w,
                                                 double* y, int64_t n, int64_t columns) {
  double sums[kBlockRows][kColumns] = {};
  for (int64_t i = 0; i < k; ++i) {
    for (int64_t r = 0; r < kBlockRows; ++r) {
      const double value = x[r * k + i];
      for (int64_t c = 0; c < kColumns; ++c) sums[r][c] += value * double{w[i * kColumns + c]};
    }
  }
  for (int64_t r = 0; r < kBlockRows; ++r) {
    for (int64_t c = 0; c < columns; ++c) y[r * n + c] += sums[r][c];
  }
}

ULFD_MULTIVERSION void MultiplyPanel(const double* x, int64_t rows, int64_t k, const float* w,
                                     double* y, int64_t n, int64_t columns) {
  int64_t r = 0;
  for (; r + kRows <= rows; r += kRows) {
    MultiplyBlock<kRows>(x + r * k, k, w, y + r * n, n, columns);
  }
  for (; r < rows; ++r) MultiplyBlock<1>(x + r * k, k, w, y + r * n, n, columns);
}

// A weight matrix in panels of kColumns columns, padded with zeros.  float: its values are.
class Panels {
 public:
  explicit Panels(const MatrixRef& m) : k_(m.k), n_(m.n) {
    data_.reserve(static_cast<size_t>(k_ * ((n_ + kColumns - 1) / kColumns) * kColumns));
    for (int64_t panel = 0; panel < n_; panel += kColumns) {
      for (int64_t i = 0; i < k_; ++i) {
        for (int64_t j = panel; j < panel + kColumns; ++j) {
          data_.push_back(j < n_ ? m.at(i, j) : 0.0f);
        }
      }
    }
  }
  int64_t k() const { return k_; }
  int64_t n() const { return n_; }
  int64_t bytes() const { return static_cast<int64_t>(data_.size() * sizeof(float)); }
  // y[rows, n] += x[rows, k] * this
  void MultiplyAdd(const double* x, int64_t rows, double* y, Pace& pace) const {
    const int64_t at_once = Pace::RowsAtOnce(k_ * kColumns, kRows);
    for (int64_t panel = 0; panel < n_; panel += kColumns) {
      for (int64_t row = 0; row < rows; row += at_once) {
        const int64_t now = std::min(at_once, rows - row);
        if (pace.Stops(now * k_ * kColumns)) return;
        MultiplyPanel(x + row * k_, now, k_, data_.data() + panel * k_, y + row * n_ + panel, n_,
                      std::min(kColumns, n_ - panel));
      }
    }
  }

 private:
  int64_t k_, n_;
  std::vector<float> data_;
};

// One or two inputs, each with a matrix; an input of one row counts for all rows.
DoubleFunction FullyConnected(const Semantics& s) {
  std::vector<Panels> all(s.matrices.begin(), s.matrices.end());
  int64_t bytes = 0;
  for (const Panels& panels : all) bytes += panels.bytes();
  auto run = [all = std::move(all), bias = s.bias, bias_rows = std::max<int64_t>(1, s.bias_rows)](
                 In in, DoubleTensor& out, Pace& pace) {
    const int64_t n = all[0].n();
    const int64_t rows = n == 0 ? 0 : out.elements() / n;
    // A bias of several rows is added to a first product by numpy's rules.
    for (int64_t r = 0; r < rows; ++r) {
      double* y = out.data + r * n;
      if (bias.empty()) {
        std::fill_n(y, n, 0.0);
      } else {
        std::copy_n(bias.data() + r % bias_rows * n, n, y);
      }
    }
    for (size_t i = 0; i < all.size(); ++i) {
      const int64_t k = all[i].k();
      const int64_t given = Product(in[i].dims, 0, static_cast<int>(in[i].dims.size()) - 1);
      if (given == rows) {
        all[i].MultiplyAdd(in[i].data, rows, out.data, pace);
        continue;
      }
      // Fewer rows than the output: they repeat (a user's row, or under a bias of several rows).
      for (int64_t r = 0; r < rows && given > 0; ++r) {
        all[i].MultiplyAdd(in[i].data + r % given * k, 1, out.data + r * n, pace);
      }
    }
  };
  return {std::move(run), bytes};
}

// --------------------------------------------------------------------------------- elementwise

double Sigmoid(double x) {
  if (x >= 0) return 1 / (1 + std::exp(-x));
  const double e = std::exp(x);
  return e / (1 + e);
}
double Tanh(double x) { return std::tanh(x); }
double Relu(double x) { return x < 0 ? 0 : x; }  // NaN stays NaN.

template <double (*kFunction)(double)>
DoubleFunction Elementwise(const Semantics&) {
  return {[](In in, DoubleTensor& out, Pace&) {
    const int64_t n = out.elements();
    for (int64_t i = 0; i < n; ++i) out.data[i] = kFunction(in[0].data[i]);
  }};
}

// Of each element and its place in the period of the parameters, which the layer owns.
template <class Fn>
DoubleFunction Cyclic(const Semantics& s, int64_t bytes, Fn function) {
  const auto period = static_cast<int64_t>(s.params->values[0].size());
  auto run = [period, function = std::move(function)](In in, DoubleTensor& out, Pace&) {
    const int64_t n = out.elements();
    for (int64_t i = 0, c = 0; i < n; ++i, c = c + 1 == period ? 0 : c + 1) {
      out.data[i] = function(in[0].data[i], c);
    }
  };
  return {std::move(run), bytes};
}

DoubleFunction Prelu(const Semantics& s) {
  return Cyclic(s, 0, [slope = s.params->values[0].data()](double x, int64_t c) {
    return x > 0 ? x : double{slope[c]} * x;
  });
}

// 1 / sqrt(var + eps)
std::vector<double> InverseDeviation(const std::vector<float>& var, float eps) {
  std::vector<double> inverse(var.begin(), var.end());
  for (double& v : inverse) v = 1 / std::sqrt(v + double{eps});
  return inverse;
}

int64_t BytesOf(const std::vector<double>& values) {
  return static_cast<int64_t>(values.size() * sizeof(double));
}

DoubleFunction BatchNorm(const Semantics& s) {
  std::vector<double> inverse = InverseDeviation(s.params->values[3], s.eps);
  const int64_t bytes = BytesOf(inverse);
  return Cyclic(
      s, bytes,
      [beta = s.params->values[0].data(), gamma = s.params->values[1].data(),
       mean = s.params->values[2].data(), inverse = std::move(inverse)](double x, int64_t c) {
        return (x - mean[c]) * inverse[c] * gamma[c] + beta[c];
      });
}

DoubleFunction Dice(const Semantics& s) {
  std::vector<double> inverse = InverseDeviation(s.params->values[2], s.eps);
  const int64_t bytes = BytesOf(inverse);
  return Cyclic(s, bytes,
                [gamma = s.params->values[0].data(), mean = s.params->values[1].data(),
                 inverse = std::move(inverse)](double x, int64_t c) {
                  const double p = Sigmoid((x - mean[c]) * inverse[c]);
                  return x * (p + (1 - p) * gamma[c]);
                });
}

double Add(double a, double b) { return a + b; }
double Subtract(double a, double b) { return a - b; }
double Multiply(double a, double b) { return a * b; }
double Divide(double a, double b) { return a / b; }

template <double (*kFunction)(double, double)>
DoubleFunction Binary(const Semantics&) {
  return {[](In in, DoubleTensor& out, Pace&) {
    const BroadcastPlan plan = PlanBroadcast(out.dims, {in[0].dims, in[1].dims});
    const int64_t a_step = plan.advances[0] ? 1 : 0, b_step = plan.advances[1] ? 1 : 0;
    plan.ForEachRun([&](const BroadcastPlan::Offsets& at, int64_t to) {
      const double* a = in[0].data + at[0];
      const double* b = in[1].data + at[1];
      for (int64_t i = 0; i < plan.run; ++i) {
        out.data[to + i] = kFunction(a[i * a_step], b[i * b_step]);
      }
    });
  }};
}

// ------------------------------------------------------------------------------- along an axis

// A tensor seen as [outer, length, inner] around an axis.
struct AxisView {
  int64_t outer, length, inner;
  AxisView(const TensorDims& dims, int axis)
      : outer(Product(dims, 0, axis)),
        length(dims[axis]),
        inner(Product(dims, axis + 1, static_cast<int>(dims.size()))) {}
};

DoubleFunction Softmax(const Semantics& s) {
  return {[axis = s.axis](In in, DoubleTensor& out, Pace&) {
    const AxisView v(out.dims, axis);
    for (int64_t o = 0; o < v.outer; ++o) {
      for (int64_t i = 0; i < v.inner; ++i) {
        const double* x = in[0].data + o * v.length * v.inner + i;
        double* y = out.data + o * v.length * v.inner + i;
        double max = -std::numeric_limits<double>::infinity(), sum = 0;
        for (int64_t l = 0; l < v.length; ++l) max = std::max(max, x[l * v.inner]);
        for (int64_t l = 0; l < v.length; ++l) {
          sum += y[l * v.inner] = std::exp(x[l * v.inner] - max);
        }
        for (int64_t l = 0; l < v.length; ++l) y[l * v.inner] /= sum;
      }
    }
  }};
}

DoubleFunction Sum(const Semantics& s) {
  return {[axis = s.axis](In in, DoubleTensor& out, Pace&) {
    const AxisView v(in[0].dims, axis);
    std::fill_n(out.data, out.elements(), 0.0);
    const double* x = in[0].data;
    for (int64_t o = 0; o < v.outer; ++o) {
      for (int64_t l = 0; l < v.length; ++l, x += v.inner) {
        for (int64_t i = 0; i < v.inner; ++i) out.data[o * v.inner + i] += x[i];
      }
    }
  }};
}

// ------------------------------------------------------------------------------------- copying

DoubleFunction Concat(const Semantics& s) {
  return {[axis = s.axis](In in, DoubleTensor& out, Pace&) {
    const AxisView whole(out.dims, axis);
    double* to = out.data;
    for (const DoubleTensor& part : in) {
      const int64_t run = AxisView(part.dims, axis).length * whole.inner;
      for (int64_t o = 0; o < whole.outer; ++o) {
        std::copy_n(part.data + o * run, run, to + o * whole.length * whole.inner);
      }
      to += run;
    }
  }};
}

DoubleFunction Fuse(const Semantics&) {
  return {[](In in, DoubleTensor& out, Pace&) {
    double* to = out.data;
    for (const DoubleTensor& part : in) {
      const int64_t width = part.dims[1], step = part.dims[0] == 1 ? 0 : width;
      for (int64_t r = 0; r < out.dims[0]; ++r) {
        std::copy_n(part.data + r * step, width, to + r * out.dims[1]);
      }
      to += width;
    }
  }};
}

DoubleFunction Copy(const Semantics&) {
  return {
      [](In in, DoubleTensor& out, Pace&) { std::copy_n(in[0].data, out.elements(), out.data); }};
}

DoubleFunction Slice(const Semantics& s) {
  return {[pieces = s.pieces, axis = s.axis](In in, DoubleTensor& out, Pace&) {
    if (out.elements() == 0) return;
    const int64_t rows = in[0].dims[0], width = in[0].elements() / rows;
    const int64_t outer = Product(out.dims, 1, axis);  // Dimensions of a piece before the axis.
    double* to = out.data;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t o = 0; o < outer; ++o) {
        for (const Semantics::Piece& piece : pieces) {
          const int64_t run = piece.elements / outer;
          to = std::copy_n(in[0].data + r * width + piece.offset + o * run, run, to);
        }
      }
    }
  }};
}

constexpr std::pair<Op, DoubleFunction (*)(const Semantics&)> kFunctions[] = {
    {Op::kFullyConnected, &FullyConnected},
    {Op::kFullyConnectedEx, &FullyConnected},
    {Op::kRelu, &Elementwise<Relu>},
    {Op::kSigmoid, &Elementwise<Sigmoid>},
    {Op::kTanh, &Elementwise<Tanh>},
    {Op::kPrelu, &Prelu},
    {Op::kBatchNorm, &BatchNorm},
    {Op::kDice, &Dice},
    {Op::kSoftmax, &Softmax},
    {Op::kConcat, &Concat},
    {Op::kReshape, &Copy},
    {Op::kSlice, &Slice},
    {Op::kSum, &Sum},
    {Op::kFuse, &Fuse},
    {Op::kAdd, &Binary<Add>},
    {Op::kSubtract, &Binary<Subtract>},
    {Op::kMultiply, &Binary<Multiply>},
    {Op::kDivide, &Binary<Divide>},
};

}  // namespace

DoubleFunction MakeDoubleFunction(const Semantics& semantics) {
  for (const auto& [op, make] : kFunctions) {
    if (op == semantics.op) return make(semantics);
  }
  return {};
}

absl::string_view DoubleTypes() {
  return "inner_product_layer, inner_product_layer_ex, relu_layer, sigmoid_layer, tanh_layer, "
         "prelu_layer, bn_layer, dice_layer, softmax_layer, concat_layer, reshape_layer, "
         "slice_layer, sum_layer, fuse_layer, add_layer, sub_layer, multiply_layer, div_layer";
}

}  // namespace ulfd::engine

// Layer functions computed in double.
// SPDX-License-Identifier: Apache-2.0
#include "engine/layers/common/double_math.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
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
  void MultiplyAdd(const double* x, int64_t rows, double* y) const {
    for (int64_t panel = 0; panel < n_; panel += kColumns) {
      MultiplyPanel(x, rows, k_, data_.data() + panel * k_, y + panel, n_,
                    std::min(kColumns, n_ - panel));
    }
  }

 private:
  int64_t k_, n_;
  std::vector<float> data_;
};

// One or two inputs, each with a matrix; an input of one row counts for all rows.
class FullyConnected final : public DoubleFunction {
 public:
  explicit FullyConnected(const Semantics& s)
      : panels_(s.matrices.begin(), s.matrices.end()), bias_(s.bias), bias_rows_(s.bias_rows) {}
  int64_t bytes() const override {
    int64_t bytes = 0;
    for (const Panels& panels : panels_) bytes += panels.bytes();
    return bytes;
  }
  void Run(absl::Span<const DoubleTensor> in, DoubleTensor& out) const override {
    const int64_t n = panels_[0].n();
    const int64_t rows = n == 0 ? 0 : out.elements() / n;
    // A bias of several rows is added to a first product by numpy's rules.
    for (int64_t r = 0; r < rows; ++r) {
      double* y = out.data + r * n;
      if (bias_.empty()) {
        std::fill_n(y, n, 0.0);
      } else {
        std::copy_n(bias_.data() + r % std::max<int64_t>(1, bias_rows_) * n, n, y);
      }
    }
    for (size_t i = 0; i < panels_.size(); ++i) {
      const int64_t k = panels_[i].k();
      const int64_t given = Product(in[i].dims, 0, static_cast<int>(in[i].dims.size()) - 1);
      if (given == rows) {
        panels_[i].MultiplyAdd(in[i].data, rows, out.data);
        continue;
      }
      // Fewer rows than the output: they repeat (a user's row, or under a bias of several rows).
      for (int64_t r = 0; r < rows && given > 0; ++r) {
        panels_[i].MultiplyAdd(in[i].data + r % given * k, 1, out.data + r * n);
      }
    }
  }

 private:
  const std::vector<Panels> panels_;
  const absl::Span<const float> bias_;
  const int64_t bias_rows_;
};

// --------------------------------------------------------------------------------- elementwise

double Sigmoid(double x) {
  if (x >= 0) return 1 / (1 + std::exp(-x));
  const double e = std::exp(x);
  return e / (1 + e);
}
double Tanh(double x) { return std::tanh(x); }
double Relu(double x) { return x < 0 ? 0 : x; }  // NaN stays NaN.

template <double (*kFunction)(double)>
class Elementwise final : public DoubleFunction {
 public:
  void Run(absl::Span<const DoubleTensor> in, DoubleTensor& out) const override {
    const int64_t n = out.elements();
    for (int64_t i = 0; i < n; ++i) out.data[i] = kFunction(in[0].data[i]);
  }
};

class Prelu final : public DoubleFunction {
 public:
  explicit Prelu(const Semantics& s) : slope_(s.params->values[0]) {}
  void Run(absl::Span<const DoubleTensor> in, DoubleTensor& out) const override {
    const int64_t n = out.elements(), block = static_cast<int64_t>(slope_.size());
    for (int64_t i = 0, c = 0; i < n; ++i, c = c + 1 == block ? 0 : c + 1) {
      const double x = in[0].data[i];
      out.data[i] = x > 0 ? x : double{slope_[c]} * x;
    }
  }

 private:
  const std::vector<float>& slope_;  // Owned by the layer.
};

// 1 / sqrt(var + eps)
std::vector<double> InverseDeviation(const std::vector<float>& var, float eps) {
  std::vector<double> inverse(var.begin(), var.end());
  for (double& v : inverse) v = 1 / std::sqrt(v + double{eps});
  return inverse;
}

class BatchNorm final : public DoubleFunction {
 public:
  explicit BatchNorm(const Semantics& s)
      : beta_(s.params->values[0]),
        gamma_(s.params->values[1]),
        mean_(s.params->values[2]),
        inverse_(InverseDeviation(s.params->values[3], s.eps)) {}
  int64_t bytes() const override { return static_cast<int64_t>(inverse_.size() * sizeof(double)); }
  void Run(absl::Span<const DoubleTensor> in, DoubleTensor& out) const override {
    const int64_t n = out.elements(), block = static_cast<int64_t>(mean_.size());
    for (int64_t i = 0, c = 0; i < n; ++i, c = c + 1 == block ? 0 : c + 1) {
      out.data[i] = (in[0].data[i] - mean_[c]) * inverse_[c] * gamma_[c] + beta_[c];
    }
  }

 private:
  // Owned by the layer.
  const std::vector<float>&beta_, &gamma_, &mean_;
  const std::vector<double> inverse_;
};

class Dice final : public DoubleFunction {
 public:
  explicit Dice(const Semantics& s)
      : gamma_(s.params->values[0]),
        mean_(s.params->values[1]),
        inverse_(InverseDeviation(s.params->values[2], s.eps)) {}
  int64_t bytes() const override { return static_cast<int64_t>(inverse_.size() * sizeof(double)); }
  void Run(absl::Span<const DoubleTensor> in, DoubleTensor& out) const override {
    const int64_t n = out.elements(), block = static_cast<int64_t>(mean_.size());
    for (int64_t i = 0, c = 0; i < n; ++i, c = c + 1 == block ? 0 : c + 1) {
      const double x = in[0].data[i];
      const double p = Sigmoid((x - mean_[c]) * inverse_[c]);
      out.data[i] = x * (p + (1 - p) * gamma_[c]);
    }
  }

 private:
  const std::vector<float>&gamma_, &mean_;  // Owned by the layer.
  const std::vector<double> inverse_;
};

double Add(double a, double b) { return a + b; }
double Subtract(double a, double b) { return a - b; }
double Multiply(double a, double b) { return a * b; }
double Divide(double a, double b) { return a / b; }

template <double (*kFunction)(double, double)>
class Binary final : public DoubleFunction {
 public:
  void Run(absl::Span<const DoubleTensor> in, DoubleTensor& out) const override {
    const BroadcastPlan plan = PlanBroadcast(out.dims, {in[0].dims, in[1].dims});
    const int64_t a_step = plan.advances[0] ? 1 : 0, b_step = plan.advances[1] ? 1 : 0;
    plan.ForEachRun([&](const BroadcastPlan::Offsets& at, int64_t to) {
      const double* a = in[0].data + at[0];
      const double* b = in[1].data + at[1];
      for (int64_t i = 0; i < plan.run; ++i) {
        out.data[to + i] = kFunction(a[i * a_step], b[i * b_step]);
      }
    });
  }
};

// ------------------------------------------------------------------------------- along an axis

// A tensor seen as [outer, length, inner] around an axis.
struct AxisView {
  int64_t outer, length, inner;
  AxisView(const TensorDims& dims, int axis)
      : outer(Product(dims, 0, axis)),
        length(dims[axis]),
        inner(Product(dims, axis + 1, static_cast<int>(dims.size()))) {}
};

class Softmax final : public DoubleFunction {
 public:
  explicit Softmax(const Semantics& s) : axis_(s.axis) {}
  void Run(absl::Span<const DoubleTensor> in, DoubleTensor& out) const override {
    const AxisView v(out.dims, axis_);
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
  }

 private:
  const int axis_;
};

class Sum final : public DoubleFunction {
 public:
  explicit Sum(const Semantics& s) : axis_(s.axis) {}
  void Run(absl::Span<const DoubleTensor> in, DoubleTensor& out) const override {
    const AxisView v(in[0].dims, axis_);
    std::fill_n(out.data, out.elements(), 0.0);
    const double* x = in[0].data;
    for (int64_t o = 0; o < v.outer; ++o) {
      for (int64_t l = 0; l < v.length; ++l, x += v.inner) {
        for (int64_t i = 0; i < v.inner; ++i) out.data[o * v.inner + i] += x[i];
      }
    }
  }

 private:
  const int axis_;
};

// ------------------------------------------------------------------------------------- copying

class Concat final : public DoubleFunction {
 public:
  explicit Concat(const Semantics& s) : axis_(s.axis) {}
  void Run(absl::Span<const DoubleTensor> in, DoubleTensor& out) const override {
    const AxisView whole(out.dims, axis_);
    double* to = out.data;
    for (const DoubleTensor& part : in) {
      const int64_t run = AxisView(part.dims, axis_).length * whole.inner;
      for (int64_t o = 0; o < whole.outer; ++o) {
        std::copy_n(part.data + o * run, run, to + o * whole.length * whole.inner);
      }
      to += run;
    }
  }

 private:
  const int axis_;
};

class Fuse final : public DoubleFunction {
 public:
  void Run(absl::Span<const DoubleTensor> in, DoubleTensor& out) const override {
    double* to = out.data;
    for (const DoubleTensor& part : in) {
      const int64_t width = part.dims[1], step = part.dims[0] == 1 ? 0 : width;
      for (int64_t r = 0; r < out.dims[0]; ++r) {
        std::copy_n(part.data + r * step, width, to + r * out.dims[1]);
      }
      to += width;
    }
  }
};

class Copy final : public DoubleFunction {
 public:
  void Run(absl::Span<const DoubleTensor> in, DoubleTensor& out) const override {
    std::copy_n(in[0].data, out.elements(), out.data);
  }
};

class Slice final : public DoubleFunction {
 public:
  explicit Slice(const Semantics& s) : pieces_(s.pieces), axis_(s.axis) {}
  void Run(absl::Span<const DoubleTensor> in, DoubleTensor& out) const override {
    if (out.elements() == 0) return;
    const int64_t rows = in[0].dims[0], width = in[0].elements() / rows;
    const int64_t outer = Product(out.dims, 1, axis_);  // Dimensions of a piece before the axis.
    double* to = out.data;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t o = 0; o < outer; ++o) {
        for (const Semantics::Piece& piece : pieces_) {
          const int64_t run = piece.elements / outer;
          to = std::copy_n(in[0].data + r * width + piece.offset + o * run, run, to);
        }
      }
    }
  }

 private:
  const std::vector<Semantics::Piece> pieces_;
  const int axis_;
};

template <class T>
std::unique_ptr<const DoubleFunction> Make(const Semantics& s) {
  if constexpr (std::is_constructible_v<T, const Semantics&>) {
    return std::make_unique<T>(s);
  } else {
    return std::make_unique<T>();
  }
}

struct Row {
  Op op;
  std::unique_ptr<const DoubleFunction> (*make)(const Semantics& s);
};

constexpr Row kFunctions[] = {
    {Op::kFullyConnected, &Make<FullyConnected>},
    {Op::kFullyConnectedEx, &Make<FullyConnected>},
    {Op::kRelu, &Make<Elementwise<Relu>>},
    {Op::kSigmoid, &Make<Elementwise<Sigmoid>>},
    {Op::kTanh, &Make<Elementwise<Tanh>>},
    {Op::kPrelu, &Make<Prelu>},
    {Op::kBatchNorm, &Make<BatchNorm>},
    {Op::kDice, &Make<Dice>},
    {Op::kSoftmax, &Make<Softmax>},
    {Op::kConcat, &Make<Concat>},
    {Op::kReshape, &Make<Copy>},
    {Op::kSlice, &Make<Slice>},
    {Op::kSum, &Make<Sum>},
    {Op::kFuse, &Make<Fuse>},
    {Op::kAdd, &Make<Binary<Add>>},
    {Op::kSubtract, &Make<Binary<Subtract>>},
    {Op::kMultiply, &Make<Binary<Multiply>>},
    {Op::kDivide, &Make<Binary<Divide>>},
};

}  // namespace

std::unique_ptr<const DoubleFunction> MakeDoubleFunction(const Semantics& semantics) {
  for (const Row& row : kFunctions) {
    if (row.op == semantics.op) return row.make(semantics);
  }
  return nullptr;
}

absl::string_view DoubleTypes() {
  return "inner_product_layer, inner_product_layer_ex, relu_layer, sigmoid_layer, tanh_layer, "
         "prelu_layer, bn_layer, dice_layer, softmax_layer, concat_layer, reshape_layer, "
         "slice_layer, sum_layer, fuse_layer, add_layer, sub_layer, multiply_layer, div_layer";
}

}  // namespace ulfd::engine

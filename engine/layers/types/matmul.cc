// Fully connected layers: inner_product, inner_product_layer_ex.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "engine/kernels/fc.h"
#include "engine/layers/checks.h"
#include "engine/layers/common/packed_weights.h"
#include "engine/layers/types/building_blocks.h"
#include "engine/layers/types/families.h"

namespace ulfd::engine {
namespace {

// ---------------------------------------------------------------------------------------- weights

// A weight matrix, laid out for the kernel.
struct Matrix {
  Weight weight;            // Without data: what the file says of it.
  bool transposed = false;  // There it is [n, k] instead of [k, n].
  std::shared_ptr<const PackedMatrix> packed;
  bool own = false;  // No other layer has it.

  int64_t k() const { return packed->k(); }
  int64_t n() const { return packed->n(); }
  int64_t own_bytes() const { return own ? packed->bytes() : 0; }
  MatrixRef ref() const { return {.k = k(), .n = n(), .rows = {{packed, 0, k()}}}; }
};

Matrix MakeMatrix(Weight weight, bool transposed, PackedWeights* packed) {
  Matrix matrix{.transposed = transposed, .own = packed == nullptr};
  matrix.packed = matrix.own ? PackWeight(weight, transposed) : packed->Get(weight, transposed);
  weight.data = {};
  matrix.weight = std::move(weight);
  return matrix;
}

absl::StatusOr<Matrix> ReadMatrix(const ParseContext& ctx, int index) {
  ASSIGN_OR_RETURN(Weight weight, WantMatrix(ctx.weights, index));
  return MakeMatrix(std::move(weight), ctx.param.inner_product_param().transpose(), ctx.packed);
}

// y[rows, n] = init + x[rows, k] * w; x and init are rows or one row (stride 0), init also null or
// rows repeated with a period.
absl::Status Multiply(RunContext& ctx, const float* x, int64_t x_stride, int64_t rows,
                      const Product& w, const float* init, int64_t init_stride, int64_t init_period,
                      float* y, void* scratch) {
  FcBlock block{x, x_stride, w.k()};
  const FcCall call{.rows = rows,
                    .init = init,
                    .init_stride = init_stride,
                    .init_period = init_period,
                    .y = y,
                    .y_stride = w.n()};
  return InPieces(call, absl::MakeSpan(&block, 1), w.k() * w.n(), ctx.pace,
                  [&](const FcCall& piece) { return w.Run(piece, scratch); });
}

// Bytes of so many floats, up to a multiple of 64.
size_t AlignedFloats(int64_t count) {
  return (static_cast<size_t>(count) * sizeof(float) + 63) / 64 * 64;
}

// A bias: none, one row [n], or [m, n] that is added by numpy's rules.
struct Bias {
  absl::Span<const float> data;
  int64_t rows = 0;  // 0: no bias.

  // As where sums start.
  const float* init() const { return rows == 0 ? nullptr : data.data(); }
  int64_t stride(int64_t n) const { return rows > 1 ? n : 0; }
};

// The bias stands behind the matrices if there is to be one.  Also checks the number of weights.
absl::StatusOr<Bias> ReadBias(const ParseContext& ctx, int matrices, int64_t n) {
  const bool bias_term = ctx.param.inner_product_param().bias_term();
  const int found = static_cast<int>(ctx.weights.size());
  if (!bias_term) {
    if (found > matrices) {
      ctx.notices.push_back(absl::StrCat(WeightLabel(ctx.weights, matrices),
                                         " is ignored: inner_product_param.bias_term is false"));
    }
    return Bias{};
  }
  if (found <= matrices) {
    return InvalidArgument(
        found, " weights, want ", matrices + 1,
        " (the last is the bias; without one, set inner_product_param.bias_term to false)");
  }
  Weight bias = ctx.weights[matrices];
  while (bias.rank() > 1 && bias.dims[0] == 1) bias.dims.erase(bias.dims.begin());
  if (bias.rank() < 1 || bias.rank() > 2 || bias.dims[bias.rank() - 1] != n) {
    return BadWeight(ctx.weights, matrices, "[", n, "] for ", n, " outputs");
  }
  return Bias{bias.data, bias.rank() == 1 ? 1 : bias.dims[0]};
}

// Adds a bias of several rows to the spec of a product of shape [..., rows, n].
absl::Status BroadcastBias(const Bias& bias, Shape& shape) {
  if (bias.rows <= 1) return absl::OkStatus();
  Dim& rows = shape[shape.rank() - 2];
  const std::optional<Dim> both = Broadcast(rows, Dim::Of(bias.rows));
  if (!both.has_value()) {
    return InvalidArgument("a bias of ", bias.rows, " rows does not broadcast to shape ",
                           shape.ToString());
  }
  rows = *both;
  return absl::OkStatus();
}

// y[r] = bias[r % bias.rows], the start of an accumulation.
void FillBias(const Bias& bias, int64_t rows, int64_t n, float* y) {
  if (bias.rows == 0) {
    std::fill_n(y, rows * n, 0.0f);
    return;
  }
  for (int64_t r = 0; r < rows; ++r) {
    std::copy_n(bias.data.data() + (r % bias.rows) * n, n, y + r * n);
  }
}

// Product of all dimensions but the last.
int64_t RowsOf(const Tensor& x) {
  int64_t rows = 1;
  for (int i = 0; i + 1 < x.rank(); ++i) rows *= x.dims[i];
  return rows;
}

// `input 0: shape [4, 5], want last dimension 3 (weight [3, 2])`.
absl::Status WantWidth(absl::Span<const TensorSpec> in, int index, const Matrix& m) {
  const Shape& shape = in[index].shape;
  if (CouldBeEqual(shape[shape.rank() - 1], Dim::Of(m.k()))) return absl::OkStatus();
  return BadInput(index, in[index], "last dimension ", m.k(), " to match weight ", index,
                  " of shape ", ShapeText(m.weight), m.transposed ? ", transposed" : "");
}

// ----------------------------------------------------------------------------------- inner_product

class InnerProductKernel final : public Kernel {
 public:
  InnerProductKernel(const Matrix& matrix, const Bias& bias)
      : product_(matrix.packed), own_bytes_(matrix.own_bytes()), bias_(bias) {}

  int64_t bytes() const override { return own_bytes_ + product_.bytes(); }
  std::vector<Product*> products() override { return {&product_}; }
  // A single row that a bias of several rows repeats is multiplied once, aside.
  size_t ScratchBytes(absl::Span<const Tensor> in) const override {
    return AsideBytes(in[0]) + product_.ScratchBytes(RowsOf(in[0]));
  }
  absl::Status Run(RunContext& ctx) const override {
    const Tensor& x = ctx.in[0];
    const int64_t n = product_.n();
    const int64_t rows = RowsOf(x);
    float* y = ctx.out[0].f32();
    void* scratch = static_cast<char*>(ctx.scratch) + AsideBytes(x);
    if (!Expands(x)) {
      return Multiply(ctx, x.f32(), product_.k(), rows, product_, bias_.init(), bias_.stride(n),
                      bias_.rows, y, scratch);
    }
    float* product = static_cast<float*>(ctx.scratch);
    RETURN_IF_ERROR(
        Multiply(ctx, x.f32(), product_.k(), rows, product_, nullptr, 0, 0, product, scratch));
    FillBias(bias_, rows * bias_.rows, n, y);
    for (int64_t r = 0; r < rows * bias_.rows; ++r) {
      for (int64_t j = 0; j < n; ++j) y[r * n + j] += product[r / bias_.rows * n + j];
    }
    return absl::OkStatus();
  }

 private:
  bool Expands(const Tensor& x) const { return bias_.rows > 1 && x.dims[x.rank() - 2] == 1; }
  size_t AsideBytes(const Tensor& x) const {
    return Expands(x) ? AlignedFloats(RowsOf(x) * product_.n()) : 0;
  }

  Product product_;
  const int64_t own_bytes_;
  const Bias bias_;
};

// inner_product_layer.  Leading dimensions of 1 of the weights are dropped; a bias [m, n] is added
// by numpy's rules, and one without bias_term is ignored with a notice.
class InnerProduct final : public Layer {
 public:
  InnerProduct(Matrix matrix, Bias bias) : matrix_(std::move(matrix)), bias_(bias) {}

  static absl::StatusOr<std::unique_ptr<Layer>> Parse(const ParseContext& ctx) {
    ASSIGN_OR_RETURN(Matrix matrix, ReadMatrix(ctx, 0));
    ASSIGN_OR_RETURN(const Bias bias, ReadBias(ctx, 1, matrix.n()));
    return std::unique_ptr<Layer>(new InnerProduct(std::move(matrix), bias));
  }
  absl::StatusOr<TensorSpecs> Infer(absl::Span<const TensorSpec> in) const override {
    RETURN_IF_ERROR(WantFloat32(in));
    RETURN_IF_ERROR(WantRank(in, 0, 2, 3));
    RETURN_IF_ERROR(WantWidth(in, 0, matrix_));
    TensorSpec out = in[0];
    out.shape[out.shape.rank() - 1] = Dim::Of(matrix_.n());
    RETURN_IF_ERROR(BroadcastBias(bias_, out.shape));
    return OnlyOutput(std::move(out), in);
  }
  void SuggestInputs(absl::Span<TensorSpec> in) const override {
    Suggest(in[0], Shape({Dim::Unknown(), Dim::Of(matrix_.k())}), Level::kUnknown);
  }
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(absl::Span<const TensorSpec>) const override {
    return std::unique_ptr<Kernel>(new InnerProductKernel(matrix_, bias_));
  }
  Semantics semantics() const override {
    return {.op = Semantics::Op::kFullyConnected,
            .matrices = {matrix_.ref()},
            .bias = bias_.data,
            .bias_rows = bias_.rows};
  }
  double Flops(absl::Span<const TensorSpec>, absl::Span<const TensorSpec> out) const override {
    return 2.0 * static_cast<double>(matrix_.k()) *
           static_cast<double>(out[0].shape.Elements().value());
  }
  std::string Describe() const override {
    return absl::StrCat("transpose=", matrix_.transposed ? "true" : "false",
                        " bias_term=", bias_.rows > 0 ? "true" : "false");
  }

 private:
  const Matrix matrix_;
  const Bias bias_;
};

// -------------------------------------------------------------------------- inner_product_layer_ex

class InnerProductExKernel final : public Kernel {
 public:
  InnerProductExKernel(const Matrix& a, const Matrix& b, const Bias& bias)
      : products_{Product(a.packed), Product(b.packed)},
        own_bytes_(a.own_bytes() + b.own_bytes()),
        bias_(bias) {}

  int64_t bytes() const override {
    return own_bytes_ + products_[0].bytes() + products_[1].bytes();
  }
  std::vector<Product*> products() override { return {&products_[0], &products_[1]}; }
  // What single rows give for all, per row of the bias.
  size_t ScratchBytes(absl::Span<const Tensor> in) const override {
    const int64_t rows = std::max({in[0].dims[0], in[1].dims[0], bias_rows()});
    return SharedBytes() +
           std::max(products_[0].ScratchBytes(rows), products_[1].ScratchBytes(rows));
  }
  absl::Status Run(RunContext& ctx) const override {
    const int64_t n = products_[0].n();
    const int64_t rows = ctx.out[0].dims[0];
    float* y = ctx.out[0].f32();
    void* scratch = static_cast<char*>(ctx.scratch) + SharedBytes();
    // The sums start with the bias and with what a single row gives for all.
    const float* start = bias_.init();
    int64_t stride = bias_.stride(n), period = bias_.rows;
    for (int i = 0; i < 2; ++i) {
      if (ctx.in[i].dims[0] == rows) continue;
      float* shared = static_cast<float*>(ctx.scratch) + i * bias_rows() * n;
      RETURN_IF_ERROR(Multiply(ctx, ctx.in[i].f32(), 0, bias_rows(), products_[i], start, stride, 0,
                               shared, scratch));
      start = shared;
    }
    bool done = false;
    for (int i = 0; i < 2; ++i) {
      if (ctx.in[i].dims[0] != rows) continue;
      RETURN_IF_ERROR(Multiply(ctx, ctx.in[i].f32(), products_[i].k(), rows, products_[i], start,
                               stride, period, y, scratch));
      start = y;  // Each row goes on where it was.
      stride = n;
      period = 0;
      done = true;
    }
    if (!done) std::copy_n(start, rows * n, y);
    return absl::OkStatus();
  }

 private:
  int64_t bias_rows() const { return std::max<int64_t>(1, bias_.rows); }
  size_t SharedBytes() const { return AlignedFloats(2 * bias_rows() * products_[0].n()); }

  Product products_[2];
  const int64_t own_bytes_;
  const Bias bias_;
};

// inner_product_layer_ex: a fully connected layer whose input columns come in two parts, one of
// which usually is the user's single row and is multiplied once.  x-deeplearning's gemm_op is wrong
// for equal rows, transpose and no bias.
class InnerProductEx final : public Layer {
 public:
  static absl::StatusOr<std::unique_ptr<Layer>> Parse(const ParseContext& ctx) {
    ASSIGN_OR_RETURN(Matrix a, ReadMatrix(ctx, 0));
    ASSIGN_OR_RETURN(Matrix b, ReadMatrix(ctx, 1));
    if (a.n() != b.n()) {
      return BadWeight(ctx.weights, 1, a.n(), " outputs like ", WeightLabel(ctx.weights, 0),
                       " of shape ", ShapeText(ctx.weights[0]));
    }
    ASSIGN_OR_RETURN(const Bias bias, ReadBias(ctx, 2, a.n()));
    return std::unique_ptr<Layer>(new InnerProductEx(std::move(a), std::move(b), bias));
  }
  absl::StatusOr<TensorSpecs> Infer(absl::Span<const TensorSpec> in) const override {
    RETURN_IF_ERROR(WantFloat32(in));
    for (int i = 0; i < 2; ++i) {
      RETURN_IF_ERROR(WantRank(in, i, 2, 2));
      RETURN_IF_ERROR(WantWidth(in, i, matrices_[i]));
    }
    const std::optional<Dim> rows = Broadcast(in[0].shape[0], in[1].shape[0]);
    if (!rows.has_value()) {
      return BadInput(1, in[1], "1 row or as many as input 0: shape ", in[0].shape.ToString());
    }
    TensorSpec out{DType::kFloat32, Shape({*rows, Dim::Of(matrices_[0].n())}), Level::kUnknown};
    RETURN_IF_ERROR(BroadcastBias(bias_, out.shape));
    return OnlyOutput(std::move(out), in);
  }
  void SuggestInputs(absl::Span<TensorSpec> in) const override {
    for (int i = 0; i < 2; ++i) {
      Suggest(in[i], Shape({Dim::Unknown(), Dim::Of(matrices_[i].k())}), Level::kUnknown);
    }
  }
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(absl::Span<const TensorSpec>) const override {
    return std::unique_ptr<Kernel>(new InnerProductExKernel(matrices_[0], matrices_[1], bias_));
  }
  Semantics semantics() const override {
    return {.op = Semantics::Op::kFullyConnectedEx,
            .matrices = {matrices_[0].ref(), matrices_[1].ref()},
            .bias = bias_.data,
            .bias_rows = bias_.rows};
  }
  double Flops(absl::Span<const TensorSpec> in, absl::Span<const TensorSpec>) const override {
    double flops = 0;
    for (int i = 0; i < 2; ++i) {
      flops += 2.0 * static_cast<double>(matrices_[i].n() * in[i].shape.Elements().value());
    }
    return flops;
  }
  std::string Describe() const override {
    return absl::StrCat("transpose=", matrices_[0].transposed ? "true" : "false",
                        " bias_term=", bias_.rows > 0 ? "true" : "false");
  }

 private:
  InnerProductEx(Matrix a, Matrix b, Bias bias)
      : matrices_{std::move(a), std::move(b)}, bias_(bias) {}
  const Matrix matrices_[2];
  const Bias bias_;
};

constexpr LayerType kTypes[] = {
    {.name = "inner_product_layer",
     .summary = "fully connected: x * W + b",
     .weights = {1, 2},
     .param_field = ulf::LayerParameter::kInnerProductParamFieldNumber,
     .parse = &InnerProduct::Parse,
     .doc = {.formula = "y = x W + b",
             .inputs = "x [rows, k] or [rows, t, k] float32",
             .weights = "W [k, n], or [n, k] with transpose\nb [n], unless bias_term is false",
             .source = "ULF layer guide",
             .example_inputs = "x:4",
             .example_weights = "4,2;2"}},
    {.name = "inner_product_layer_ex",
     .summary = "fully connected over two inputs: x1 * W1 + x2 * W2 + b",
     .inputs = {2, 2},
     .weights = {2, 3},
     .param_field = ulf::LayerParameter::kInnerProductParamFieldNumber,
     .parse = &InnerProductEx::Parse,
     .doc = {.formula = "y = x1 W1 + x2 W2 + b",
             .inputs = "x1 [rows, k1], x2 [rows, k2] float32; either may be the user's one row",
             .weights = "W1 [k1, n]\nW2 [k2, n]\nb [n], unless bias_term is false",
             .source = "ULF layer guide",
             .example_inputs = "a@user:3;b:4",
             .example_weights = "3,2;4,2;2"}},
};

}  // namespace

std::unique_ptr<Layer> MakeInnerProduct(const Weight& weight) {
  return std::make_unique<InnerProduct>(MakeMatrix(weight, false, nullptr), Bias{});
}

absl::Span<const LayerType> MatmulLayers() { return kTypes; }

}  // namespace ulfd::engine

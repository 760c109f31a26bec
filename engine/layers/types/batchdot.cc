// Batched matrix product: batchdot.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "engine/kernels/fc.h"
#include "engine/kernels/table.h"
#include "engine/layers/checks.h"
#include "engine/layers/common/broadcast.h"
#include "engine/layers/common/multiversion.h"
#include "engine/layers/types/building_blocks.h"
#include "engine/layers/types/families.h"

namespace ulfd::engine {
namespace {

// One operand: a batch of stored matrices [rows, columns] (before `transposed` applies).
struct Operand {
  const float* data = nullptr;
  TensorDims batch;  // Leading dimensions.
  int64_t batches = 1;
  int64_t rows = 0, columns = 0;
  bool transposed = false;

  // A vector is the same in memory whichever way it lies.
  void SetTransposed(bool wanted) {
    if (transposed == wanted || (rows != 1 && columns != 1)) return;
    std::swap(rows, columns);
    transposed = wanted;
  }
};

// `lift` is where a rank-2 tensor gets its dimension of 1: [n, k] -> [n, 1, k] (1) or [n, k, 1]
// (2).
Operand OperandOf(const Tensor& x, int lift, bool transposed) {
  TensorDims dims = x.dims;
  if (dims.size() == 2) dims.insert(dims.begin() + lift, 1);
  Operand operand;
  operand.data = x.f32();
  operand.transposed = transposed;
  operand.columns = dims.back();
  dims.pop_back();
  operand.rows = dims.back();
  dims.pop_back();
  for (int64_t d : dims) operand.batches *= d;
  operand.batch = std::move(dims);
  return operand;
}

// The right operand of a product of matrices: [k, n], stored as [n, k] if it is transposed.
struct Right {
  const float* data = nullptr;
  int64_t k = 0, n = 0;
  bool transposed = false;
};

// Floats of scratch that Multiply takes for a right operand of this size.
int64_t PackedFloats(int64_t k, int64_t n) {
  return (PackedMatrix::PackedFloats(k, n) + 15) / 16 * 16;
}

// Rows so short that finding the kernel for each would take longer than its work.
constexpr int64_t kShortRow = 64;

// y[i] = a[i] * b[i], sums of k products.
ULFD_MULTIVERSION void DotRows(const float* a, int64_t a_step, const float* b, int64_t b_step,
                               int64_t rows, int64_t k, float* __restrict y) {
  constexpr int kLanes = 8;
  for (int64_t row = 0; row < rows; ++row, a += a_step, b += b_step) {
    float sum = 0;
    int64_t i = 0;
    if (k >= kLanes) {
      float lanes[kLanes] = {};
      for (; i + kLanes <= k; i += kLanes) {
        for (int j = 0; j < kLanes; ++j) lanes[j] += a[i + j] * b[i + j];
      }
      for (int half = kLanes / 2; half > 0; half /= 2) {
        for (int j = 0; j < half; ++j) lanes[j] += lanes[j + half];
      }
      sum = lanes[0];
    }
    for (; i < k; ++i) sum += a[i] * b[i];
    y[row] = sum;
  }
}

// y[i, j] = a[i] * b[j], [m, n].
ULFD_MULTIVERSION void OuterProduct(const float* a, int64_t m, const float* b, int64_t n,
                                    float* __restrict y) {
  for (int64_t i = 0; i < m; ++i, y += n) {
    for (int64_t j = 0; j < n; ++j) y[j] = a[i] * b[j];
  }
}

// As kernels read it: where it lies, or laid out anew in `scratch`.
MatrixView ViewOf(const Right& b, int64_t rows, float* scratch) {
  constexpr int64_t kWorthPacking = 32;  // Rows that read the copy.
  if (b.n <= MatrixView::kMaxColumns && (b.transposed || b.n == 1)) {
    return PackedMatrix::ViewOf(b.data, b.k, b.n);  // Column by column is how it lies.
  }
  const bool lies_packed = b.n == MatrixView::kPanel;
  if (b.n > MatrixView::kMaxColumns && !b.transposed && (lies_packed || rows < kWorthPacking)) {
    return PackedMatrix::Borrow(b.data, b.k, b.n, b.n).view();
  }
  return PackedMatrix::PackInto(b.data, b.k, b.n, b.transposed ? 1 : b.n, b.transposed ? b.k : 1,
                                scratch);
}

// y[rows, n] = x[rows, k] * b, whose rows are so far apart.
void Multiply(RunContext& ctx, const float* x, int64_t x_stride, int64_t rows, const MatrixView& b,
              float* y, int64_t y_stride) {
  FcBlock block{x, x_stride, b.k};
  FcInPieces({.rows = rows, .w = b, .y = y, .y_stride = y_stride}, absl::MakeSpan(&block, 1),
             ctx.pace);
}
// Without gaps.
void Multiply(RunContext& ctx, const float* x, int64_t rows, const MatrixView& b, float* y) {
  Multiply(ctx, x, b.k, rows, b, y, b.n);
}

// One vector per row and further batch, times a matrix that all rows share: y[row, further, n] =
// x[row, further, k] * w[further].  `x` advances along the rows, `w` does not.
struct SharedMatrices {
  const Operand &x, &w;
  int64_t k = 0, n = 0;
  bool transposed = false;  // w is stored as [n, k].
};

// Whether `w` is the same for all rows, the leading dimension of the batch, and `x` is not.
bool SharesRows(const Operand& x, const Operand& w, absl::Span<const int64_t> batch) {
  return batch.size() >= 2 && batch[0] > 1 && x.batch.size() == batch.size() &&
         x.batch[0] == batch[0] && (w.batch.size() < batch.size() || w.batch[0] == 1);
}

class BatchDotKernel final : public Kernel {
 public:
  BatchDotKernel(bool transpose_a, bool transpose_b)
      : transpose_a_(transpose_a), transpose_b_(transpose_b) {}

  // For a right operand laid out anew (either may be it), and for a left one that is transposed.
  size_t ScratchBytes(absl::Span<const Tensor> in) const override {
    const Product p = ProductOf(in);
    const int64_t right = PackedFloats(p.k, std::max(p.n, p.m));
    return static_cast<size_t>(right + (p.a.transposed ? p.m * p.k : 0)) * sizeof(float);
  }
  absl::Status Run(RunContext& ctx) const override {
    RunProduct(ctx, ProductOf(ctx.in));
    return absl::OkStatus();
  }

 private:
  // [m, k] x [k, n] for each batch.
  struct Product {
    Operand a, b;
    int64_t m = 0, k = 0, n = 0;
  };

  static void RunProduct(RunContext& ctx, const Product& p) {
    const Operand &a = p.a, &b = p.b;
    const int64_t m = p.m, k = p.k, n = p.n;
    const Tensor& out = ctx.out[0];
    float* y = ctx.out[0].f32();
    float* const scratch = static_cast<float*>(ctx.scratch);
    int64_t batches = 1;
    for (int i = 0; i + 2 < out.rank(); ++i) batches *= out.dims[i];
    if (batches * m * n == 0) return;
    if (b.batches == 1 && a.batches == batches && !a.transposed) {
      // One matrix for all batches: the rows of all of them are one tall matrix.
      return Multiply(ctx, a.data, batches * m,
                      ViewOf({b.data, k, n, b.transposed}, batches * m, scratch), y);
    }
    if (a.batches == 1 && b.batches == batches && n == 1) {
      // One matrix for all batches of vectors: y^T = b^T a^T, for which the vectors are the rows.
      return Multiply(ctx, b.data, batches, ViewOf({a.data, k, m, !a.transposed}, batches, scratch),
                      y);
    }
    if (a.batches == 1 && b.batches == batches && m == 1 && b.transposed) {
      // One vector for all batches of matrices.
      return Multiply(ctx, b.data, batches * n, PackedMatrix::ViewOf(a.data, k, 1), y);
    }
    const absl::Span<const int64_t> batch = absl::MakeConstSpan(out.dims.data(), out.rank() - 2);
    if (m == 1 && SharesRows(a, b, batch)) {
      return RunShared(ctx, {a, b, k, n, b.transposed}, batch, scratch, y);
    }
    if (n == 1 && SharesRows(b, a, batch)) {  // y^T = b^T a^T, as above.
      return RunShared(ctx, {b, a, k, m, !a.transposed}, batch, scratch, y);
    }
    RunEach(ctx, p, batch, scratch, y);
  }

  Product ProductOf(absl::Span<const Tensor> in) const {
    Product p{OperandOf(in[0], 2, transpose_a_), OperandOf(in[1], 1, transpose_b_)};
    p.m = p.a.transposed ? p.a.columns : p.a.rows;
    p.k = p.a.transposed ? p.a.rows : p.a.columns;
    p.n = p.b.transposed ? p.b.rows : p.b.columns;
    p.a.SetTransposed(false);
    p.b.SetTransposed(false);
    return p;
  }

  // A product of matrices for each index of the batch behind the rows.
  static void RunShared(RunContext& ctx, const SharedMatrices& s, absl::Span<const int64_t> batch,
                        float* scratch, float* y) {
    const absl::Span<const int64_t> inner = batch.subspan(1);
    const auto behind_rows = [&](const Operand& operand) {
      const absl::Span<const int64_t> dims = operand.batch;
      return dims.size() < batch.size() ? dims : dims.subspan(1);
    };
    const int64_t x_row = s.x.batches / batch[0] * s.k, y_row = Volume(inner) * s.n;
    const BroadcastPlan plan = PlanBroadcast(inner, {behind_rows(s.x), behind_rows(s.w)});
    plan.ForEachRun([&](const BroadcastPlan::Offsets& at, int64_t first) {
      for (int64_t i = 0; i < plan.run && !ctx.pace.Stops(s.k * s.n); ++i) {
        const float* x = s.x.data + (at[0] + (plan.advances[0] ? i : 0)) * s.k;
        const float* w = s.w.data + (at[1] + (plan.advances[1] ? i : 0)) * s.k * s.n;
        Multiply(ctx, x, x_row, batch[0], ViewOf({w, s.k, s.n, s.transposed}, batch[0], scratch),
                 y + (first + i) * s.n, y_row);
      }
    });
  }

  static void RunEach(RunContext& ctx, const Product& p, absl::Span<const int64_t> batch,
                      float* scratch, float* y) {
    const Operand &a = p.a, &b = p.b;
    const int64_t m = p.m, k = p.k, n = p.n;
    const BroadcastPlan plan = PlanBroadcast(batch, {a.batch, b.batch});
    const int64_t a_step = plan.advances[0] ? m * k : 0;
    const int64_t b_step = plan.advances[1] ? k * n : 0;
    float* const turned = scratch + PackedFloats(k, std::max(n, m));
    const float* viewed = nullptr;  // What `view` shows.
    MatrixView view;
    plan.ForEachRun([&](const BroadcastPlan::Offsets& at, int64_t first) {
      const float* from_a = a.data + at[0] * m * k;
      const float* from_b = b.data + at[1] * k * n;
      float* to = y + first * m * n;
      if (m == 1 && n == 1 && k <= kShortRow) {
        if (!ctx.pace.Stops(plan.run * k)) {
          DotRows(from_a, a_step, from_b, b_step, plan.run, k, to);
        }
        return;
      }
      for (int64_t i = 0; i < plan.run && !ctx.pace.Stops(k * (m + n));
           ++i, from_a += a_step, from_b += b_step, to += m * n) {
        if (m == 1 && n == 1) {
          *to = Kernels().dot(from_a, from_b, k);
          continue;
        }
        if (m == 1 && !b.transposed) {  // A sum of b's rows.
          Kernels().weighted_sum(from_a, from_b, b.columns, k, n, to);
          continue;
        }
        if (m == 1) {  // The rows that b has in memory times a vector.
          Multiply(ctx, from_b, n, PackedMatrix::ViewOf(from_a, k, 1), to);
          continue;
        }
        if (n == 1 && a.transposed) {  // A sum of a's stored rows.
          Kernels().weighted_sum(from_b, from_a, a.columns, k, m, to);
          continue;
        }
        if (k == 1) {
          OuterProduct(from_a, m, from_b, n, to);
          continue;
        }
        // Of fields with each other (DLRM, PNN).  Of more rows than columns, laying them out anew
        // takes less than adding up lanes for each pair.
        if (from_a == from_b && b.transposed && !a.transposed && m <= k) {
          Kernels().row_products(from_a, m, from_b, n, k, to);
          continue;
        }
        if (viewed != from_b) view = ViewOf({from_b, k, n, b.transposed}, m, scratch);
        viewed = from_b;
        if (a.transposed) Kernels().transpose(from_a, m, k, m, turned, k);
        Multiply(ctx, a.transposed ? turned : from_a, m, view, to);
      }
    });
  }

  const bool transpose_a_, transpose_b_;
};

// batchdot_layer.  a [n, m] counts as [n, m, 1], b [n, k] as [n, 1, k], before transposition;
// leading dimensions broadcast; the output has rank 3 at least.  transpose_b is true without the
// message, too.  x-deeplearning's batchdot_op leaves its operands reshaped; we do not.
class BatchDot final : public Layer {
 public:
  BatchDot(bool transpose_a, bool transpose_b)
      : transpose_a_(transpose_a), transpose_b_(transpose_b) {}

  static absl::StatusOr<std::unique_ptr<Layer>> Parse(const ParseContext& ctx) {
    const ulf::BatchDotParameter& p = ctx.param.batch_dot_param();
    return std::unique_ptr<Layer>(new BatchDot(p.transpose_a(), p.transpose_b()));
  }
  absl::StatusOr<TensorSpecs> Infer(absl::Span<const TensorSpec> in) const override {
    RETURN_IF_ERROR(WantFloat32(in));
    RETURN_IF_ERROR(WantRank(in, 0, 2, kMaxRank));
    RETURN_IF_ERROR(WantRank(in, 1, 2, kMaxRank));
    const int rank = std::max({3, in[0].shape.rank(), in[1].shape.rank()});
    Shape a = Lift(in[0], 2, transpose_a_, rank);
    Shape b = Lift(in[1], 1, transpose_b_, rank);
    const Dim m = a[a.rank() - 2], n = b[b.rank() - 1];
    if (!CouldBeEqual(a[a.rank() - 1], b[b.rank() - 2])) {
      return InvalidArgument(
          "input 1: shape ", in[1].shape.ToString(), ", want ", a[a.rank() - 1].ToString(),
          " rather than ", b[b.rank() - 2].ToString(),
          " as inner dimension to match input 0: shape ", in[0].shape.ToString(), " (transpose_a ",
          Text(transpose_a_), ", transpose_b ", Text(transpose_b_), ")");
    }
    a.dims().resize(a.rank() - 2);
    b.dims().resize(b.rank() - 2);
    absl::StatusOr<Shape> batch = BroadcastShapes(a, b);
    if (!batch.ok()) {
      return InvalidArgument("input 1: leading ", batch.status().message());
    }
    TensorSpec out{DType::kFloat32, *std::move(batch), Level::kUnknown};
    out.shape.dims().push_back(m);
    out.shape.dims().push_back(n);
    return OnlyOutput(std::move(out), in);
  }
  Semantics semantics() const override {
    return {
        .op = Semantics::Op::kBatchDot, .transpose_a = transpose_a_, .transpose_b = transpose_b_};
  }
  double Flops(absl::Span<const TensorSpec> in, absl::Span<const TensorSpec> out) const override {
    const Shape a = Lift(in[0], 2, transpose_a_, std::max(3, in[0].shape.rank()));
    return 2.0 * static_cast<double>(a[a.rank() - 1].value() * out[0].shape.Elements().value());
  }
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(absl::Span<const TensorSpec>) const override {
    return std::unique_ptr<Kernel>(new BatchDotKernel(transpose_a_, transpose_b_));
  }
  std::string Describe() const override {
    return absl::StrCat("transpose_a=", Text(transpose_a_), " transpose_b=", Text(transpose_b_));
  }

 private:
  static absl::string_view Text(bool value) { return value ? "true" : "false"; }

  // The operand as it takes part in the product.
  static Shape Lift(const TensorSpec& spec, int lift, bool transpose, int rank) {
    TensorSpec lifted = spec;
    if (spec.shape.rank() == 2) {
      lifted.shape.dims().insert(lifted.shape.dims().begin() + lift, Dim::Of(1));
    }
    Shape shape = AlignUserRow(lifted, rank);
    if (transpose) std::swap(shape[shape.rank() - 1], shape[shape.rank() - 2]);
    return shape;
  }

  const bool transpose_a_, transpose_b_;
};

constexpr LayerType kTypes[] = {
    {.name = "batchdot_layer",
     .summary = "batched matrix product a * b with optional transposition",
     .inputs = {2, 2},
     .param_field = ulf::LayerParameter::kBatchDotParamFieldNumber,
     .parse = &BatchDot::Parse,
     .doc = {.formula = "y = a b for each row, transposed as batch_dot_param says",
             .inputs = "a [rows, n, k], b [rows, m, k] float32; rank 2 reads as [rows, n, 1] and "
                       "[rows, 1, k]",
             .source = "ULF layer guide",
             .example_inputs = "a:2,3;b:4,3",
             .example_param = "batch_dot_param { transpose_b: true }"}},
};

}  // namespace

std::unique_ptr<Layer> MakeBatchDot(bool transpose_a, bool transpose_b) {
  return std::make_unique<BatchDot>(transpose_a, transpose_b);
}

absl::Span<const LayerType> BatchDotLayers() { return kTypes; }

}  // namespace ulfd::engine

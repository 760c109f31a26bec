// Batched matrix product: batchdot.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/kernels/elementwise.h"
#include "engine/layers/broadcast.h"
#include "engine/layers/checks.h"
#include "engine/layers/families.h"
#include "engine/status_macros.h"
#include "engine/tensor/onednn.h"

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

class BatchDotKernel final : public Kernel {
 public:
  BatchDotKernel(bool transpose_a, bool transpose_b)
      : transpose_a_(transpose_a), transpose_b_(transpose_b) {}

  absl::Status Run(RunContext& ctx) const override {
    Operand a = OperandOf(ctx.in[0], 2, transpose_a_);
    Operand b = OperandOf(ctx.in[1], 1, transpose_b_);
    const Tensor& out = ctx.out[0];
    float* y = ctx.out[0].f32();
    const int64_t m = a.transposed ? a.columns : a.rows;
    const int64_t k = a.transposed ? a.rows : a.columns;
    const int64_t n = b.transposed ? b.rows : b.columns;
    int64_t batches = 1;
    for (int i = 0; i + 2 < out.rank(); ++i) batches *= out.dims[i];
    if (batches * m * n == 0) return absl::OkStatus();
    a.SetTransposed(false);
    b.SetTransposed(false);
    // One matrix for all batches: the rows of all of them are one tall matrix.
    if (b.batches == 1 && a.batches == batches && !a.transposed) {
      return Gemm(false, b.transposed, batches * m, n, k, a.data, k, b.data, b.columns, false, y,
                  n);
    }
    // One matrix for all batches of vectors: y^T = b^T a^T, for which the vectors are the rows.
    if (a.batches == 1 && b.batches == batches && n == 1) {
      return Gemm(false, !a.transposed, batches, m, k, b.data, k, a.data, a.columns, false, y, m);
    }
    // One vector for all batches of matrices.
    if (a.batches == 1 && b.batches == batches && m == 1 && b.transposed) {
      return Gemm(false, false, batches * n, 1, k, b.data, k, a.data, 1, false, y, 1);
    }
    return RunEach(a, b, absl::MakeConstSpan(out.dims.data(), out.rank() - 2), m, n, k, y);
  }

 private:
  static absl::Status RunEach(const Operand& a, const Operand& b, absl::Span<const int64_t> batch,
                              int64_t m, int64_t n, int64_t k, float* y) {
    const BroadcastPlan plan = PlanBroadcast(batch, {a.batch, b.batch});
    const int64_t a_step = plan.advances[0] ? m * k : 0;
    const int64_t b_step = plan.advances[1] ? k * n : 0;
    absl::Status status;
    plan.ForEachRun([&](const BroadcastPlan::Offsets& at, int64_t first) {
      const float* from_a = a.data + at[0] * m * k;
      const float* from_b = b.data + at[1] * k * n;
      float* to = y + first * m * n;
      for (int64_t i = 0; i < plan.run && status.ok(); ++i) {
        if (m == 1 && n == 1) {
          *to = Dot(from_a, from_b, k);
        } else if (m == 1 && !b.transposed) {  // A sum of b's rows.
          WeightedSum(from_a, from_b, b.columns, k, n, to);
        } else if (n == 1 && a.transposed) {  // A sum of a's stored rows.
          WeightedSum(from_b, from_a, a.columns, k, m, to);
        } else {
          status = Gemm(a.transposed, b.transposed, m, n, k, from_a, a.columns, from_b, b.columns,
                        false, to, n);
        }
        from_a += a_step;
        from_b += b_step;
        to += m * n;
      }
    });
    return status;
  }

  const bool transpose_a_, transpose_b_;
};

// batchdot_layer: y[i] = a[i] * b[i] (matrix product), each operand transposed if asked for.
// Input   0 a [..., M, K], 1 b [..., K, N], f32, rank 2 or more; a [n, m] counts as [n, m, 1], b
//         [n, k] as [n, 1, k], before transposition. Leading dimensions broadcast.
// Weights none.
// Output  0 [..., M, N], at least rank 3; level of the higher input.
// Params  batch_dot_param.transpose_a, default false; batch_dot_param.transpose_b, default true,
//         also without the message.
// Errors  InvalidArgument for another type or rank, K that differs, leading dimensions that do not
//         broadcast.
// Source  ULF guide; x-deeplearning blaze/operator/op/batchdot_op (which leaves its operands
//         reshaped; we do not).
class BatchDot final : public Layer {
 public:
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
      return absl::InvalidArgumentError(absl::StrCat(
          "input 1: shape ", in[1].shape.ToString(), ", want ", a[a.rank() - 1].ToString(),
          " rather than ", b[b.rank() - 2].ToString(),
          " as inner dimension to match input 0: shape ", in[0].shape.ToString(), " (transpose_a ",
          Text(transpose_a_), ", transpose_b ", Text(transpose_b_), ")"));
    }
    a.dims().resize(a.rank() - 2);
    b.dims().resize(b.rank() - 2);
    absl::StatusOr<Shape> batch = BroadcastShapes(a, b);
    if (!batch.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("input 1: leading ", batch.status().message()));
    }
    TensorSpec out{DType::kFloat32, *std::move(batch), Level::kUnknown};
    out.shape.dims().push_back(m);
    out.shape.dims().push_back(n);
    out.level = LevelOf(out.shape, in);
    return TensorSpecs{out};
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
  static constexpr int kMaxRank = 1 << 20;

  BatchDot(bool transpose_a, bool transpose_b)
      : transpose_a_(transpose_a), transpose_b_(transpose_b) {}

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
     .outputs = {1, 1},
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

absl::Span<const LayerType> BatchDotLayers() { return kTypes; }

}  // namespace ulfd::engine

// SPDX-License-Identifier: Apache-2.0
#include "engine/layers/fused/fused_fc.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/status_macros.h"
#include "engine/kernels/fc.h"
#include "engine/layers/checks.h"

namespace ulfd::engine {

namespace {

std::shared_ptr<const PackedMatrix> Packed(const MatrixRef& w) {
  const auto pack = [&](const float* data, int64_t row_stride, int64_t column_stride) {
    return std::make_shared<const PackedMatrix>(
        PackedMatrix::Pack(data, w.k, w.n, row_stride, column_stride));
  };
  if (!w.shared()) return pack(w.data, w.row_stride, w.column_stride);
  std::vector<float> rows(w.k * w.n);
  for (int64_t i = 0; i < w.k; ++i) {
    for (int64_t j = 0; j < w.n; ++j) rows[i * w.n + j] = w.at(i, j);
  }
  return pack(rows.data(), w.n, 1);
}

// The matrix that all rows of `w` are of; null: there is no such matrix.
std::shared_ptr<const PackedMatrix> SharedBy(const MatrixRef& w) {
  for (const MatrixRef::Rows& part : w.rows) {
    if (part.matrix != w.rows[0].matrix) return nullptr;
  }
  return w.shared() ? w.rows[0].matrix : nullptr;
}

class FusedFcKernel final : public Kernel {
 public:
  explicit FusedFcKernel(const FusedFcOptions& options) : options_(options) {
    std::shared_ptr<const PackedMatrix> matrix = SharedBy(options_.weight);
    if (matrix != nullptr) {
      SplitBlocks();
    } else {
      for (const FusedFcOptions::Block& block : options_.blocks) {
        pieces_.push_back({block, FcBlock::kNext});
      }
    }
    std::vector<Product::Rows> rows;
    for (const Piece& piece : pieces_) rows.push_back({piece.block.k, piece.w_row});
    if (matrix == nullptr) {
      matrix = Packed(options_.weight);
      own_bytes_ = matrix->bytes();
    }
    product_.emplace(std::move(matrix), std::move(rows));
    options_.owner = nullptr;  // The copy is enough.
    options_.weight.rows.clear();
    epilogue_ = ViewOf(options_.epilogue);
  }

  size_t ScratchBytes(absl::Span<const Tensor> in) const override {
    int64_t rows = 1;
    for (const Tensor& x : in) rows = std::max(rows, RowsOf(x));
    return BlockBytes() + product_->ScratchBytes(rows);
  }
  int64_t bytes() const override {
    return product_->reads_matrix() ? own_bytes_ : product_->bytes();
  }
  std::vector<Product*> products() override { return {&*product_}; }
  absl::Status Run(RunContext& ctx) const override {
    const Tensor& out = ctx.out[0];
    const int64_t k = options_.k(), n = options_.n();
    const int64_t rows = n > 0 ? out.elements() / n : 0;
    if (rows == 0) return absl::OkStatus();
    FcBlock* blocks = static_cast<FcBlock*>(ctx.scratch);
    for (size_t i = 0; i < pieces_.size(); ++i) {
      const FusedFcOptions::Block& block = pieces_[i].block;
      const Tensor& x = ctx.in[block.input];
      const int64_t x_rows = RowsOf(x);
      const int64_t stride = x_rows > 0 ? x.elements() / x_rows : 0;
      blocks[i] = {x.f32() + block.offset, x_rows == 1 && rows > 1 ? 0 : stride, block.k,
                   pieces_[i].w_row};
    }
    FcCall call{.rows = rows, .epilogue = epilogue_, .y = ctx.out[0].f32(), .y_stride = n};
    SetInit(ctx, call);
    const absl::Span<FcBlock> all(blocks, pieces_.size());
    void* const scratch = static_cast<char*>(ctx.scratch) + BlockBytes();
    return InPieces(call, all, k * n, ctx.pace,
                    [&](const FcCall& piece) { return product_->Run(piece, scratch); });
  }

 private:
  size_t BlockBytes() const { return (pieces_.size() * sizeof(FcBlock) + 63) / 64 * 64; }
  // Rows of an input, as the product sees them.
  int64_t RowsOf(const Tensor& x) const {
    return options_.flat ? x.dims[0] : x.dims[0] * x.dims[1];
  }
  void SetInit(const RunContext& ctx, FcCall& call) const {
    if (options_.init < 0) {
      call.init = options_.bias.empty() ? nullptr : options_.bias.data();
      return;
    }
    const Tensor& init = ctx.in[options_.init];
    const TensorDims& out = ctx.out[0].dims;
    call.init = init.f32();
    const int64_t init_rows = init.elements() / options_.n();
    if (init_rows == 1) return;  // One row for all.
    call.init_stride = options_.n();
    if (options_.flat || init_rows == call.rows) return;
    if (init.dims[0] == out[0]) {
      call.init_repeat = out[1];
    } else {
      call.init_period = out[1];
    }
  }

  // Blocks, cut where their rows in the shared matrix do not follow one another.
  void SplitBlocks() {
    size_t part = 0;
    int64_t used = 0;  // Of that part.
    for (FusedFcOptions::Block block : options_.blocks) {
      while (block.k > 0) {
        const MatrixRef::Rows& rows = options_.weight.rows[part];
        const int64_t k = std::min(block.k, rows.count - used);
        if (k > 0) pieces_.push_back({{block.input, block.offset, k}, rows.first + used});
        block.offset += k;
        block.k -= k;
        used += k;
        if (used < rows.count) continue;
        used = 0;
        ++part;
      }
    }
  }

  struct Piece {
    FusedFcOptions::Block block;
    int64_t w_row = FcBlock::kNext;
  };

  FusedFcOptions options_;
  std::vector<Piece> pieces_;
  std::optional<Product> product_;  // Never empty once constructed.
  int64_t own_bytes_ = 0;
  Epilogue epilogue_;
};

}  // namespace

int64_t FusedFcOptions::k() const {
  int64_t sum = 0;
  for (const Block& block : blocks) sum += block.k;
  return sum;
}

absl::StatusOr<TensorSpecs> FusedFc::Infer(absl::Span<const TensorSpec> in) const {
  RETURN_IF_ERROR(WantFloat32(in));
  const int rank = options_.flat ? 2 : 3;
  Shape shape = options_.flat ? Shape({Dim::Of(1), Dim::Of(options_.n())})
                              : Shape({Dim::Of(1), Dim::Of(1), Dim::Of(options_.n())});
  const auto join = [&](int index, int dims) -> absl::Status {
    for (int d = 0; d < dims; ++d) {
      const std::optional<Dim> both = Broadcast(shape[d], in[index].shape[d]);
      if (!both.has_value()) {
        return BadInput(index, in[index], "leading dimensions that go with ", shape.ToString());
      }
      shape[d] = *both;
    }
    return absl::OkStatus();
  };
  for (const FusedFcOptions::Block& block : options_.blocks) {
    const Shape& x = in[block.input].shape;
    RETURN_IF_ERROR(WantRank(in, block.input, rank, options_.flat ? 8 : 3));
    const Dim width = options_.flat ? x.RowElements() : x[2];
    if (!width.IsConst() || width.value() < block.offset + block.k) {
      return BadInput(block.input, in[block.input], "at least ", block.offset + block.k,
                      " columns");
    }
    RETURN_IF_ERROR(join(block.input, rank - 1));
  }
  if (options_.init >= 0) {
    const Shape& init = in[options_.init].shape;
    RETURN_IF_ERROR(WantRank(in, options_.init, rank, rank));
    if (init[rank - 1] != Dim::Of(options_.n())) {
      return BadInput(options_.init, in[options_.init], options_.n(), " columns");
    }
    RETURN_IF_ERROR(join(options_.init, rank - 1));
  }
  TensorSpec out{DType::kFloat32, std::move(shape), Level::kUnknown};
  return OnlyOutput(std::move(out), in);
}

absl::StatusOr<std::unique_ptr<Kernel>> FusedFc::Prepare(absl::Span<const TensorSpec>) const {
  return std::unique_ptr<Kernel>(new FusedFcKernel(options_));
}

Semantics FusedFc::semantics() const {
  return {.op = Semantics::Op::kFusedFc, .fused_fc = &options_};
}

double FusedFc::Flops(absl::Span<const TensorSpec>, absl::Span<const TensorSpec> out) const {
  const double elements = static_cast<double>(out[0].shape.Elements().value());
  const double epilogue = (options_.epilogue.affine ? 2.0 : 0.0) +
                          (options_.epilogue.activation != Activation::Kind::kNone ? 1.0 : 0.0);
  return (2.0 * static_cast<double>(options_.k()) + epilogue) * elements;
}

std::shared_ptr<const Layer> FusedFc::WithoutWeights() const {
  FusedFcOptions options = options_;
  options.weight.data = nullptr;
  options.weight.rows.clear();
  options.owner = nullptr;
  return std::make_shared<FusedFc>(std::move(options));
}

}  // namespace ulfd::engine

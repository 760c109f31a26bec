// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/product.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "engine/kernels/measure.h"
#include "engine/kernels/table.h"
#include "engine/tensor/onednn.h"

namespace ulfd::engine {
namespace {

size_t Aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

// 64-byte aligned.
using Line = struct alignas(64) { char bytes[64]; };

// In int8: how many products of two bytes are certain to fit a sum of 32 bits.
constexpr int64_t kMaxInt8Rows = 65536;

// What the left operand of `w` takes after rounding.
struct RoundedLayout {
  RoundedLayout(const PackedMatrix& w, int64_t rows)
      : stride(StrideOf(w.k())),
        ranges(Aligned((rows * stride + RoundedRows::kSlack) * sizeof(float))),
        bytes(ranges + Aligned(2 * rows * sizeof(float))) {}
  // Rows begin on cache lines, and do not evict each other (fc_body.h).
  static int64_t StrideOf(int64_t k) {
    const int64_t lines = (k + 15) / 16 * 16;
    return lines % 256 == 0 ? lines + 16 : lines;
  }
  int64_t stride;
  size_t ranges, bytes;
};

void RunRounded(const PackedMatrix& w, FcCall call, void* scratch) {
  const RoundedLayout layout(w, call.rows);
  float* const x = static_cast<float*>(scratch);
  float* const ranges = reinterpret_cast<float*>(static_cast<char*>(scratch) + layout.ranges);
  RoundRows(w.view().precision, call.blocks, call.rows, {x, layout.stride, ranges});
  const FcBlock block{x, layout.stride, w.k()};
  call.blocks = absl::MakeConstSpan(&block, 1);
  call.w = w.view();
  call.ranges = ranges;
  Fc(call);
}

// Whether a column of w, [k, n], has a number beside which most of the others would become the byte
// 0.
bool LosesWeights(absl::Span<const float> w, int64_t k, int64_t n) {
  for (int64_t j = 0; j < n; ++j) {
    float most = 0;
    for (int64_t i = 0; i < k; ++i) most = std::max(most, std::abs(w[i * n + j]));
    const float least = most / 254;  // Half a step of FourRows.
    int64_t lost = 0, kept = 0;
    for (int64_t i = 0; i < k; ++i) {
      const float size = std::abs(w[i * n + j]);
      lost += size > 0 && size < least ? 1 : 0;
      kept += size > 0 && size >= least ? 1 : 0;
    }
    if (lost > kept) return true;
  }
  return false;
}

}  // namespace

absl::string_view Name(Backend backend) {
  static constexpr absl::string_view kNames[] = {"native", "onednn", "auto"};
  return kNames[static_cast<size_t>(backend)];
}

absl::StatusOr<Backend> ParseBackend(absl::string_view name) {
  for (const Backend backend : {Backend::kNative, Backend::kOneDnn, Backend::kAuto}) {
    if (absl::EqualsIgnoreCase(name, Name(backend))) return backend;
  }
  return InvalidArgument("backend \"", name, "\", want auto, onednn or native");
}

Product::Product(std::shared_ptr<const PackedMatrix> matrix, std::vector<Rows> rows)
    : matrix_(std::move(matrix)), rows_(std::move(rows)), n_(matrix_->n()) {
  for (const Rows& part : rows_) k_ += part.k;
  if (rows_.empty()) k_ = matrix_->k();
}

void Product::SetPrecision(Precision precision, int64_t rows) {
  if (precision == Precision::kFp32 || k_ == 0 || n_ == 0) return;
  if (precision == Precision::kInt8 && (n_ <= MatrixView::kMaxColumns || k_ > kMaxInt8Rows ||
                                        LosesWeights(RowsMet(/*unit=*/1), k_, n_))) {
    return;
  }
  if (precision == Precision::kAuto) {
    if (!FoundOnce(KeyOf("bf16", rows), [&] { return Bf16IsFaster(rows); })) return;
    precision = Precision::kBf16;
  }
  rounded_ = std::make_unique<const PackedMatrix>(Rounded(precision));
  matrix_ = nullptr;
}

absl::Status Product::Choose(Backend backend, int64_t rows) {
  if (backend == Backend::kNative || matrix_ == nullptr || k_ == 0 || n_ == 0) {
    return absl::OkStatus();
  }
  // A call of oneDNN costs as much as so small a product.
  constexpr int64_t kWorthMeasuring = 16 << 10;
  if (backend == Backend::kAuto &&
      (k_ * n_ < kWorthMeasuring ||
       !FoundOnce(KeyOf("onednn", rows), [&] { return OneDnnIsFaster(rows); }))) {
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(onednn_, OneDnnProduct::Create(RowsMet(/*unit=*/1).data(), k_, n_));
  zeros_.assign(n_, 0.0f);
  matrix_ = nullptr;
  return absl::OkStatus();
}

std::string Product::KeyOf(absl::string_view what, int64_t rows) const {
  return absl::StrCat(what, " ", k_, " ", n_, " ", rows);
}

PackedMatrix Product::Rounded(Precision precision) const {
  const std::vector<float> w = RowsMet(PerFloat(precision));
  const int64_t k = static_cast<int64_t>(w.size()) / n_;
  return PackedMatrix::PackRounded(precision, w.data(), k, n_, n_, 1);
}

std::vector<float> Product::RowsMet(int64_t unit) const {
  std::vector<float> w;
  int64_t row = 0;
  const auto add = [&](const Rows& part) {
    if (part.w_row != FcBlock::kNext) row = part.w_row;
    for (int64_t i = 0; i < part.k; ++i, ++row) {
      for (int64_t j = 0; j < n_; ++j) w.push_back(matrix_->at(row, j));
    }
    w.resize(w.size() + (unit - part.k % unit) % unit * n_, 0.0f);
  };
  w.reserve((k_ + (static_cast<int64_t>(rows_.size()) + 1) * (unit - 1)) * n_);
  if (rows_.empty()) add({k_});
  for (const Rows& part : rows_) add(part);
  return w;
}

bool Product::IsFaster(int64_t rows, absl::FunctionRef<void(const FcCall& call)> run) const {
  std::vector<float> x(rows * k_), y(rows * n_);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 17) * 0.125f - 1.0f;
  std::vector<FcBlock> blocks;
  if (rows_.empty()) blocks.push_back({x.data(), k_, k_});
  for (const Rows& part : rows_) blocks.push_back({x.data(), k_, part.k, part.w_row});
  const FcCall call{
      .blocks = blocks, .rows = rows, .w = matrix_->view(), .y = y.data(), .y_stride = n_};
  return TakesLess([&] { run(call); }, [&] { Fc(call); });
}

bool Product::Bf16IsFaster(int64_t rows) const {
  const PackedMatrix w = Rounded(Precision::kBf16);
  std::vector<Line> scratch(RoundedLayout(w, rows).bytes / sizeof(Line));
  return IsFaster(rows, [&](const FcCall& call) { RunRounded(w, call, scratch.data()); });
}

bool Product::OneDnnIsFaster(int64_t rows) const {
  const auto product = OneDnnProduct::Create(RowsMet(/*unit=*/1).data(), k_, n_);
  if (!product.ok()) return false;
  const OneThread one_thread;
  constexpr int64_t kAll = OneDnnProduct::kMaxRows;
  std::vector<float> x(kAll * k_), y(kAll * n_), z(kAll * n_);
  const std::vector<float> zeros(n_);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 17) * 0.125f - 1.0f;
  std::vector<Line> scratch(Aligned((*product)->scratch_bytes()) / sizeof(Line) + 1);
  const auto run = [&](const float* from, int64_t count, float* to) {
    return (*product)->Run(from, count, zeros.data(), to, scratch.data()).ok();
  };
  if (!run(x.data(), kAll, y.data())) return false;
  for (int64_t count = 1; count < kAll; count *= 2) {
    const float* same = y.data() + (kAll - count) * n_;
    if (!run(x.data() + (kAll - count) * k_, count, z.data())) return false;
    if (std::memcmp(z.data(), same, count * n_ * sizeof(float)) != 0) return false;
  }
  return IsFaster(rows, [&](const FcCall& call) { run(call.blocks[0].x, rows, call.y); });
}

size_t Product::ScratchBytes(int64_t rows) const {
  if (rounded_ != nullptr) return RoundedLayout(*rounded_, rows).bytes;
  if (onednn_ == nullptr) return 0;
  const int64_t gathered = std::min(rows, OneDnnProduct::kMaxRows) * k_;
  return Aligned(onednn_->scratch_bytes()) + Aligned(gathered * sizeof(float));
}

absl::Status Product::Run(FcCall call, void* scratch) const {
  if (onednn_ != nullptr) return RunOneDnn(*onednn_, call, scratch);
  if (rounded_ != nullptr) {
    RunRounded(*rounded_, call, scratch);
    return absl::OkStatus();
  }
  call.w = matrix_->view();
  Fc(call);
  return absl::OkStatus();
}

absl::Status Product::RunOneDnn(const OneDnnProduct& product, const FcCall& call,
                                void* scratch) const {
  assert(call.y_stride == n_);
  const bool one_start = call.init == nullptr || call.init_stride == 0;
  const float* bias = !one_start ? nullptr : call.init == nullptr ? zeros_.data() : call.init;
  if (!one_start && call.init != call.y) {
    for (int64_t r = 0; r < call.rows; ++r) {
      int64_t row = r / call.init_repeat;
      if (call.init_period > 0) row %= call.init_period;
      std::copy_n(call.init + row * call.init_stride, n_, call.y + r * n_);
    }
  }
  if (call.blocks.size() == 1 && (call.blocks[0].stride == k_ || call.rows == 1)) {
    RETURN_IF_ERROR(product.Run(call.blocks[0].x, call.rows, bias, call.y, scratch));
  } else {
    float* const x =
        reinterpret_cast<float*>(static_cast<char*>(scratch) + Aligned(product.scratch_bytes()));
    for (int64_t begin = 0; begin < call.rows; begin += OneDnnProduct::kMaxRows) {
      const int64_t rows = std::min(OneDnnProduct::kMaxRows, call.rows - begin);
      int64_t column = 0;
      for (const FcBlock& block : call.blocks) {
        for (int64_t r = 0; r < rows; ++r) {
          std::copy_n(block.x + (begin + r) * block.stride, block.k, x + r * k_ + column);
        }
        column += block.k;
      }
      RETURN_IF_ERROR(product.Run(x, rows, bias, call.y + begin * n_, scratch));
    }
  }
  // Not as post-ops: oneDNN's relu makes a NaN 0, and its sigmoid takes longer than ours.
  const Epilogue& e = call.epilogue;
  if (e.affine.mean != nullptr || e.activation.kind != Activation::Kind::kNone) {
    Kernels().epilogue(e, call.y, n_, call.y, n_, call.rows, n_);
  }
  return absl::OkStatus();
}

}  // namespace ulfd::engine

// A product with a matrix that does not change.
// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/product.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "engine/kernels/elementwise.h"
#include "engine/tensor/onednn.h"

namespace ulfd::engine {
namespace {

size_t Aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

// 64-byte aligned.
using Line = struct alignas(64) { char bytes[64]; };

// What kAuto found out in this process: whether oneDNN is faster, by k, n and rows.  Times do not
// depend on the weights, and a model loaded again gets the same backend.
Mutex measured_mu;
std::map<std::array<int64_t, 3>, bool>& MeasuredShapes()
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(measured_mu) {
  static auto& shapes = *new std::map<std::array<int64_t, 3>, bool>;
  return shapes;
}
std::optional<bool> Measured(const std::array<int64_t, 3>& shape) {
  const MutexLock lock(measured_mu);
  const auto found = MeasuredShapes().find(shape);
  if (found == MeasuredShapes().end()) return std::nullopt;
  return found->second;
}
void Remember(const std::array<int64_t, 3>& shape, bool faster) {
  const MutexLock lock(measured_mu);
  MeasuredShapes()[shape] = faster;
}

double Seconds(const std::function<void()>& run) {
  const auto begin = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

absl::string_view Name(Backend backend) {
  switch (backend) {
    case Backend::kNative:
      return "native";
    case Backend::kOneDnn:
      return "onednn";
    case Backend::kAuto:
      return "auto";
  }
  return "";
}

absl::StatusOr<Backend> ParseBackend(absl::string_view name) {
  for (const Backend backend : {Backend::kNative, Backend::kOneDnn, Backend::kAuto}) {
    if (absl::EqualsIgnoreCase(name, Name(backend))) return backend;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("backend \"", name, "\", want auto, onednn or native"));
}

Product::Product(std::shared_ptr<const PackedMatrix> matrix, std::vector<Rows> rows)
    : matrix_(std::move(matrix)), rows_(std::move(rows)), n_(matrix_->n()) {
  for (const Rows& part : rows_) k_ += part.k;
  if (rows_.empty()) k_ = matrix_->k();
}

absl::Status Product::Choose(Backend backend, int64_t rows) {
  if (backend == Backend::kNative || onednn_ != nullptr || k_ == 0 || n_ == 0) {
    return absl::OkStatus();
  }
  // A call of oneDNN costs as much as so small a product.
  constexpr int64_t kWorthMeasuring = 16 * 1024;
  const bool measures = backend == Backend::kAuto;
  if (measures && k_ * n_ < kWorthMeasuring) return absl::OkStatus();
  const std::array<int64_t, 3> shape = {k_, n_, rows};
  std::optional<bool> faster;
  if (measures) faster = Measured(shape);
  if (measures && faster.has_value() && !*faster) return absl::OkStatus();

  std::vector<float> w(k_ * n_);
  int64_t to = 0, row = 0;
  const auto copy = [&](const Rows& part) {
    if (part.w_row != FcBlock::kNext) row = part.w_row;
    for (int64_t i = 0; i < part.k; ++i, ++to, ++row) {
      for (int64_t j = 0; j < n_; ++j) w[to * n_ + j] = matrix_->at(row, j);
    }
  };
  if (rows_.empty()) copy({k_});
  for (const Rows& part : rows_) copy(part);
  ASSIGN_OR_RETURN(auto made, OneDnnProduct::Create(w.data(), k_, n_));
  zeros_.assign(n_, 0.0f);
  if (measures && !faster.has_value()) {
    faster = IsFaster(*made, rows);
    Remember(shape, *faster);
    if (!*faster) return absl::OkStatus();
  }
  onednn_ = std::move(made);
  matrix_ = nullptr;
  return absl::OkStatus();
}

bool Product::IsFaster(const OneDnnProduct& product, int64_t rows) const {
  const OneThread one_thread;
  constexpr int64_t kAll = OneDnnProduct::kMaxRows;
  std::vector<float> x(std::max(kAll, rows) * k_), y(kAll * n_), z(std::max(kAll, rows) * n_);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 17) * 0.125f - 1.0f;
  std::vector<Line> scratch(Aligned(product.scratch_bytes()) / sizeof(Line) + 1);
  const auto run = [&](int64_t first, int64_t count, float* to) {
    return product.Run(x.data() + first * k_, count, zeros_.data(), to, scratch.data()).ok();
  };
  if (!run(0, kAll, y.data())) return false;
  for (int64_t count = 1; count < kAll; count *= 2) {
    const float* same = y.data() + (kAll - count) * n_;
    if (!run(kAll - count, count, z.data())) return false;
    if (std::memcmp(z.data(), same, count * n_ * sizeof(float)) != 0) return false;
  }
  std::vector<FcBlock> blocks;
  if (rows_.empty()) blocks.push_back({x.data(), k_, k_});
  for (const Rows& part : rows_) blocks.push_back({x.data(), k_, part.k, part.w_row});
  const FcCall call{
      .blocks = blocks, .rows = rows, .w = matrix_->view(), .y = z.data(), .y_stride = n_};
  // The shortest of a few turns: others may have the CPU meanwhile.
  double ours = 1e9, theirs = 1e9;
  constexpr int kTurns = 5;
  for (int i = 0; i < kTurns; ++i) {
    ours = std::min(ours, Seconds([&] { Fc(call); }));
    theirs = std::min(theirs, Seconds([&] { run(0, rows, z.data()); }));
  }
  return theirs < 0.97 * ours;
}

size_t Product::ScratchBytes(int64_t rows) const {
  if (onednn_ == nullptr) return 0;
  const int64_t gathered = std::min(rows, OneDnnProduct::kMaxRows) * k_;
  return Aligned(onednn_->scratch_bytes()) + Aligned(gathered * sizeof(float));
}

absl::Status Product::Run(FcCall call, void* scratch) const {
  if (onednn_ != nullptr) return RunOneDnn(*onednn_, call, scratch);
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
    ApplyEpilogue(e, call.y, n_, call.y, n_, call.rows, n_);
  }
  return absl::OkStatus();
}

}  // namespace ulfd::engine

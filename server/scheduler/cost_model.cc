// CostModel: decayed least squares with parts that cannot be negative.
// SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/cost_model.h"

#include <algorithm>
#include <cmath>

namespace ulfd::server {

namespace {

// Runs that the first guess counts for: it is forgotten after a few real ones.
constexpr double kGuessWeight = 0.05;
// After so many runs an outlier is known as one: what takes so many times the prediction, and more
// than a small amount above it.
constexpr int64_t kTrustedRuns = 20;
constexpr double kOutlierFactor = 4, kOutlierNs = 200e3;

using Matrix = std::array<std::array<double, 3>, 3>;
using Vector = std::array<double, 3>;

// Solves the equations of the variables in `used`; the others are 0.  false: singular.
bool Solve(const Matrix& xx, const Vector& xy, const std::array<bool, 3>& used, Vector& x) {
  std::array<std::array<double, 4>, 3> a{};
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 3; ++j) a[i][j] = used[i] && used[j] ? xx[i][j] : (i == j ? 1.0 : 0.0);
    a[i][3] = used[i] ? xy[i] : 0.0;
  }
  for (int column = 0; column < 3; ++column) {
    int pivot = column;
    for (int i = column + 1; i < 3; ++i) {
      if (std::abs(a[i][column]) > std::abs(a[pivot][column])) pivot = i;
    }
    if (std::abs(a[pivot][column]) < 1e-12) return false;
    std::swap(a[column], a[pivot]);
    for (int i = 0; i < 3; ++i) {
      if (i == column) continue;
      const double factor = a[i][column] / a[column][column];
      for (int j = column; j < 4; ++j) a[i][j] -= factor * a[column][j];
    }
  }
  for (int i = 0; i < 3; ++i) x[i] = a[i][3] / a[i][i];
  return true;
}

}  // namespace

constexpr CostModel::Parts CostModel::kGuess = {.base_ns = 50e3, .user_ns = 20e3, .row_ns = 5e3};

CostModel::CostModel(const Parts& guess) : parts_(guess) {
  // Three imaginary runs that the guess fits exactly, and that tell all parts apart.
  constexpr double kRuns[3][3] = {{1, 1, 1}, {1, 1, 200}, {1, 8, 200}};
  for (const auto& x : kRuns) {
    const double y = guess.base_ns * x[0] + guess.user_ns * x[1] + guess.row_ns * x[2];
    for (int i = 0; i < 3; ++i) {
      for (int j = 0; j < 3; ++j) xx_[i][j] += kGuessWeight * x[i] * x[j];
      xy_[i] += kGuessWeight * x[i] * y;
    }
  }
}

double CostModel::Believable(const Vector& x, double ns) const {
  if (observations_ < kTrustedRuns) return ns;
  const double predicted = parts_.base_ns + parts_.user_ns * x[1] + parts_.row_ns * x[2];
  return std::min(ns, kOutlierFactor * predicted + kOutlierNs);
}

void CostModel::Observe(int64_t users, int64_t rows, std::chrono::nanoseconds took) {
  const Vector x = {1, static_cast<double>(users), static_cast<double>(rows)};
  static const double kDecay = std::exp2(-1.0 / kHalfLife);
  MutexLock lock(mu_);
  const double y = Believable(x, static_cast<double>(std::max<int64_t>(took.count(), 0)));
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 3; ++j) xx_[i][j] = xx_[i][j] * kDecay + x[i] * x[j];
    xy_[i] = xy_[i] * kDecay + x[i] * y;
  }
  ++observations_;
  Fit();
}

void CostModel::Fit() {
  // Without a part that would be negative, the others explain the runs better; the base goes first,
  // because users tell it apart the least.
  std::array<bool, 3> used = {true, true, true};
  // Runs that differ in nothing leave the equations nearly singular: a little of the old parts
  // decides then.
  Matrix xx = xx_;
  Vector xy = xy_;
  const double old[3] = {parts_.base_ns, parts_.user_ns, parts_.row_ns};
  for (int i = 0; i < 3; ++i) {
    const double weight = 1e-6 * xx_[i][i];
    xx[i][i] += weight;
    xy[i] += weight * old[i];
  }
  Vector x{};
  for (int round = 0; round < 3; ++round) {
    if (!Solve(xx, xy, used, x)) return;
    int worst = -1;
    for (int i : {0, 1, 2}) {
      if (used[i] && x[i] < 0 && (worst < 0 || x[i] < x[worst])) worst = i;
    }
    if (worst < 0) break;
    used[worst] = false;
  }
  parts_ = {std::max(0.0, x[0]), std::max(0.0, x[1]), std::max(0.0, x[2])};
}

CostModel::Parts CostModel::parts() const {
  MutexLock lock(mu_);
  return parts_;
}

}  // namespace ulfd::server

// Rejection-inversion.
// SPDX-License-Identifier: Apache-2.0
#include "tools/load/zipf.h"

#include <algorithm>
#include <cmath>

namespace ulfd::tools {
namespace {

// expm1(x) / x and log1p(x) / x, also at 0: exponents near 1 divide by nearly nothing.
double ExpRatio(double x) { return std::abs(x) > 1e-8 ? std::expm1(x) / x : 1 + x / 2; }
double LogRatio(double x) { return std::abs(x) > 1e-8 ? std::log1p(x) / x : 1 - x / 2; }

}  // namespace

Zipf::Zipf(int64_t n, double exponent) : n_(n), exponent_(exponent) {
  first_ = Integral(1.5) - 1;
  last_ = Integral(static_cast<double>(n) + 0.5);
  accept_ = 2 - Inverse(Integral(2.5) - Density(2));
}

double Zipf::Integral(double x) const {
  const double log_x = std::log(x);
  return ExpRatio((1 - exponent_) * log_x) * log_x;
}

double Zipf::Inverse(double area) const {
  const double t = std::max(-1.0, area * (1 - exponent_));
  return std::exp(LogRatio(t) * area);
}

double Zipf::Density(double x) const { return std::exp(-exponent_ * std::log(x)); }

int64_t Zipf::Draw(Random& random) const {
  if (exponent_ == 0) return static_cast<int64_t>(random.Below(static_cast<uint64_t>(n_)));
  while (true) {
    const double area = last_ + random.Uniform() * (first_ - last_);
    const double x = Inverse(area);
    const double k = std::clamp(std::floor(x + 0.5), 1.0, static_cast<double>(n_));
    if (k - x <= accept_ || area >= Integral(k + 0.5) - Density(k)) {
      return static_cast<int64_t>(k) - 1;
    }
  }
}

}  // namespace ulfd::tools

// Numbers whose frequency falls with a power of their rank, as that of users and ids does.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_LOAD_ZIPF_H_
#define ULFD_TOOLS_LOAD_ZIPF_H_

#include <cstdint>

#include "tools/load/random.h"

namespace ulfd::tools {

// Draws a rank r of 0..n-1 with probability proportional to 1 / (r + 1)^exponent, in constant time
// and memory whatever n is: rejection-inversion (Hoermann and Derflinger, 1996).  Thread-safe.
class Zipf {
 public:
  // REQUIRES: n >= 1, exponent >= 0 (0: every rank alike).
  Zipf(int64_t n, double exponent);
  int64_t Draw(Random& random) const;

 private:
  // Integral of x^-exponent from 1, its inverse, and the density itself.
  double Integral(double x) const;
  double Inverse(double area) const;
  double Density(double x) const;

  const int64_t n_;
  const double exponent_;
  double first_ = 0, last_ = 0, accept_ = 0;
};

}  // namespace ulfd::tools

#endif  // ULFD_TOOLS_LOAD_ZIPF_H_

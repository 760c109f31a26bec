// SPDX-License-Identifier: Apache-2.0
#include "tools/load/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace ulfd::tools {

size_t LatencyHistogram::IndexOf(int64_t ns) const {
  const auto value = static_cast<uint64_t>(ns);
  const int shift = std::max(0, static_cast<int>(std::bit_width(value)) - (bits_ + 1));
  return (static_cast<size_t>(shift) << bits_) + (value >> shift);
}

int64_t LatencyHistogram::LowOf(size_t index) const {
  const size_t half = size_t{1} << bits_;
  const size_t shift = index < 2 * half ? 0 : (index >> bits_) - 1;
  return static_cast<int64_t>(index - shift * half) << shift;
}

void LatencyHistogram::Record(int64_t ns, int64_t count) {
  ns = std::clamp<int64_t>(ns, 0, kMaxNs);
  const size_t index = IndexOf(ns);
  if (index >= counts_.size()) counts_.resize(index + 1);
  counts_[index] += count;
  count_ += count;
  sum_ += static_cast<double>(ns) * static_cast<double>(count);
  min_ = std::min(min_, ns);
  max_ = std::max(max_, ns);
}

double LatencyHistogram::mean() const {
  return count_ == 0 ? 0 : sum_ / static_cast<double>(count_);
}

int64_t LatencyHistogram::Quantile(double q) const {
  if (count_ == 0) return 0;
  const double exact = std::clamp(q, 0.0, 1.0) * static_cast<double>(count_);
  // 0.99 of 100 values is the 99th, whatever the product's last bit says.
  const auto wanted = std::max<int64_t>(1, static_cast<int64_t>(std::ceil(exact - 1e-9 * exact)));
  int64_t seen = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    seen += counts_[i];
    if (seen >= wanted) return std::clamp(HighOf(i), min_, max_);
  }
  return max_;
}

LatencyHistogram LatencyHistogram::CorrectedFor(int64_t interval_ns) const {
  LatencyHistogram corrected(bits_);
  ForEach([&](int64_t low, int64_t high, int64_t count) {
    // Buckets know the extremes exactly.
    const int64_t value = std::clamp(low + (high - low) / 2, min_, max_);
    corrected.Record(value, count);
    if (interval_ns <= 0) return;
    for (int64_t missing = value - interval_ns; missing >= interval_ns; missing -= interval_ns) {
      corrected.Record(missing, count);
    }
  });
  if (count_ > 0) {
    corrected.min_ = std::min(corrected.min_, min_);
    corrected.max_ = max_;
  }
  return corrected;
}

void LatencyHistogram::ForEach(const std::function<void(int64_t, int64_t, int64_t)>& visit) const {
  for (size_t i = 0; i < counts_.size(); ++i) {
    if (counts_[i] > 0) visit(LowOf(i), HighOf(i), counts_[i]);
  }
}

}  // namespace ulfd::tools

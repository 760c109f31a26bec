// A histogram of durations with a bounded relative error over their whole range, after Gil Tene's
// HdrHistogram: buckets are linear within each power of two.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_LOAD_HISTOGRAM_H_
#define ULFD_TOOLS_LOAD_HISTOGRAM_H_

#include <cstdint>
#include <functional>
#include <vector>

namespace ulfd::tools {

// Values are nanoseconds; negative ones count as 0, those above kMaxNs as kMaxNs.  Not thread-safe.
class LatencyHistogram {
 public:
  static constexpr int64_t kMaxNs = int64_t{1} << 42;  // 73 minutes.
  // Quantiles are at most 1 / 2^precision_bits too high, and never too low.
  explicit LatencyHistogram(int precision_bits = 10) : bits_(precision_bits) {}

  void Record(int64_t ns, int64_t count = 1);

  int64_t count() const { return count_; }
  int64_t min() const { return count_ == 0 ? 0 : min_; }  // Exact.
  int64_t max() const { return max_; }                    // Exact.
  double mean() const;                                    // Exact.
  // The smallest value that at least a share `q` of the values does not exceed; 0 if there are
  // none.
  int64_t Quantile(double q) const;

  // What a client that sends only after the reply would have seen, had it sent every
  // `interval_ns`: a value v stands also for v - interval, v - 2 interval, ..., the waits of the
  // calls that it held up.
  LatencyHistogram CorrectedFor(int64_t interval_ns) const;

  // Every bucket with a count, ascending; values of a bucket are in [low, high].
  void ForEach(
      const std::function<void(int64_t low_ns, int64_t high_ns, int64_t count)>& visit) const;

 private:
  size_t IndexOf(int64_t ns) const;
  int64_t LowOf(size_t index) const;
  int64_t HighOf(size_t index) const { return LowOf(index + 1) - 1; }

  int bits_;
  std::vector<int64_t> counts_;  // Grows up to the highest bucket in use.
  int64_t count_ = 0;
  int64_t min_ = kMaxNs;
  int64_t max_ = 0;
  double sum_ = 0;
};

}  // namespace ulfd::tools

#endif  // ULFD_TOOLS_LOAD_HISTOGRAM_H_

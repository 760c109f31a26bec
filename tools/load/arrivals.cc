// SPDX-License-Identifier: Apache-2.0
#include "tools/load/arrivals.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace ulfd::tools {
namespace {

constexpr double kNsPerSecond = 1e9;

int64_t ToNs(double seconds) { return static_cast<int64_t>(std::llround(seconds * kNsPerSecond)); }

class Constant final : public Arrivals {
 public:
  explicit Constant(double per_second) : per_second_(per_second) {}
  std::optional<int64_t> Next() override {
    return ToNs(static_cast<double>(count_++) / per_second_);
  }

 private:
  const double per_second_;
  int64_t count_ = 0;
};

class Poisson final : public Arrivals {
 public:
  Poisson(double per_second, uint64_t seed) : per_second_(per_second), random_(seed) {}
  std::optional<int64_t> Next() override {
    seconds_ += random_.Exponential() / per_second_;
    return ToNs(seconds_);
  }

 private:
  const double per_second_;
  Random random_;
  double seconds_ = 0;
};

// A Poisson process of rate 1 on an axis that is stretched where the rate is low.
class Bursty final : public Arrivals {
 public:
  Bursty(double per_second, const Bursts& bursts, uint64_t seed) : bursts_(bursts), random_(seed) {
    const double share = bursts.length_s / bursts.period_s;
    pause_rate_ = per_second / (1 + (bursts.factor - 1) * share);
    burst_rate_ = pause_rate_ * bursts.factor;
    // A period begins with its pause.
    pause_work_ = pause_rate_ * (bursts.period_s - bursts.length_s);
    period_work_ = pause_work_ + burst_rate_ * bursts.length_s;
  }
  std::optional<int64_t> Next() override {
    work_ += random_.Exponential();
    const double periods = std::floor(work_ / period_work_);
    const double rest = work_ - periods * period_work_;
    const double within = rest < pause_work_ ? rest / pause_rate_
                                             : bursts_.period_s - bursts_.length_s +
                                                   (rest - pause_work_) / burst_rate_;
    last_ = std::max(last_, ToNs(periods * bursts_.period_s + within));
    return last_;
  }

 private:
  const Bursts bursts_;
  Random random_;
  double pause_rate_, burst_rate_, pause_work_, period_work_;
  double work_ = 0;
  int64_t last_ = 0;
};

class Recorded final : public Arrivals {
 public:
  Recorded(std::vector<int64_t> times, double speed, bool repeat)
      : times_(std::move(times)), speed_(speed), repeat_(repeat) {
    if (times_.empty()) return;
    const int64_t length = times_.back() - times_.front();
    const auto gaps = static_cast<int64_t>(times_.size()) - 1;
    // A single call has no gap: a second is as good as any.
    period_ = gaps == 0 ? ToNs(1) : length + length / gaps;
  }
  std::optional<int64_t> Next() override {
    if (next_ == times_.size()) {
      if (!repeat_ || times_.empty()) return std::nullopt;
      next_ = 0;
      offset_ += period_;
    }
    const int64_t at = times_[next_++] - times_.front() + offset_;
    return static_cast<int64_t>(std::llround(static_cast<double>(at) / speed_));
  }

 private:
  const std::vector<int64_t> times_;
  const double speed_;
  const bool repeat_;
  int64_t period_ = 0, offset_ = 0;
  size_t next_ = 0;
};

}  // namespace

std::unique_ptr<Arrivals> ConstantArrivals(double per_second) {
  return std::make_unique<Constant>(per_second);
}

std::unique_ptr<Arrivals> PoissonArrivals(double per_second, uint64_t seed) {
  return std::make_unique<Poisson>(per_second, seed);
}

std::unique_ptr<Arrivals> BurstArrivals(double per_second, const Bursts& bursts, uint64_t seed) {
  return std::make_unique<Bursty>(per_second, bursts, seed);
}

std::unique_ptr<Arrivals> RecordedArrivals(std::vector<int64_t> times_ns, double speed,
                                           bool repeat) {
  return std::make_unique<Recorded>(std::move(times_ns), speed, repeat);
}

}  // namespace ulfd::tools

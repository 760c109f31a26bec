// What a request of a model generation costs, learned from what was measured.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SCHEDULER_COST_MODEL_H_
#define ULFD_SERVER_SCHEDULER_COST_MODEL_H_

#include <array>
#include <chrono>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"

namespace ulfd::server {

// time = base + users * per_user + rows * per_row, each part at least 0, fitted by least squares to
// recent runs (older ones fade with a half-life of kHalfLife runs).  Thread-safe.
class CostModel {
 public:
  struct Parts {
    double base_ns = 0, user_ns = 0, row_ns = 0;
    std::chrono::nanoseconds Of(int64_t users, int64_t rows) const {
      return std::chrono::nanoseconds(static_cast<int64_t>(
          base_ns + user_ns * static_cast<double>(users) + row_ns * static_cast<double>(rows)));
    }
  };
  static constexpr double kHalfLife = 200;
  // Before anything is measured: forgotten after a few runs.
  static const Parts kGuess;

  explicit CostModel(const Parts& guess = kGuess);

  // One run of `rows` ads of `users` users took `took`.  A run far above what is predicted (the
  // thread lost its core, say) counts only as far as a few such runs in a row would be believed.
  void Observe(int64_t users, int64_t rows, std::chrono::nanoseconds took);
  std::chrono::nanoseconds Predict(int64_t users, int64_t rows) const {
    return parts().Of(users, rows);
  }
  Parts parts() const;

 private:
  double Believable(const std::array<double, 3>& x, double ns) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Fit() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable Mutex mu_;
  // Sums of x x^T and x y over runs, x = (1, users, rows), the guess counting as a few runs.
  std::array<std::array<double, 3>, 3> xx_ ABSL_GUARDED_BY(mu_){};
  std::array<double, 3> xy_ ABSL_GUARDED_BY(mu_){};
  Parts parts_ ABSL_GUARDED_BY(mu_);
  int64_t observations_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SCHEDULER_COST_MODEL_H_

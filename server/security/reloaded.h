// Reloaded<T>: something read from files that changes while the server runs; the last good one
// counts.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SECURITY_RELOADED_H_
#define ULFD_SERVER_SECURITY_RELOADED_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"

namespace ulfd::server {

// Thread-safe, but one Look at a time.
template <typename T>
class Reloaded {
 public:
  using Read = std::function<absl::StatusOr<T>()>;
  enum class Change { kNone, kNew, kBroken };
  struct Outcome {
    Change change = Change::kNone;
    absl::Status error;  // Of kBroken.
  };

  // Fails if the first reading does.
  static absl::StatusOr<std::unique_ptr<Reloaded>> Create(Read read) {
    absl::StatusOr<T> first = read();
    if (!first.ok()) return first.status();
    return std::unique_ptr<Reloaded>(new Reloaded(std::move(read), *std::move(first)));
  }

  // Takes a short lock.
  std::shared_ptr<const T> Get() const {
    MutexLock lock(mu_);
    return current_;
  }

  // Reads again.  What is no good leaves the current value in place and is told once, until it
  // changes.
  Outcome Look() {
    absl::StatusOr<T> next = read_();
    MutexLock lock(mu_);
    if (!next.ok()) {
      const bool told = next.status() == error_;
      error_ = next.status();
      if (told) return {};
      ++failures_;
      return {Change::kBroken, error_};
    }
    const bool was_broken = !error_.ok();
    error_ = absl::OkStatus();
    if (*next == *current_ && !was_broken) return {};
    current_ = std::make_shared<const T>(*std::move(next));
    ++reloads_;
    return {Change::kNew, absl::OkStatus()};
  }

  int64_t reloads() const {
    MutexLock lock(mu_);
    return reloads_;
  }
  int64_t failures() const {
    MutexLock lock(mu_);
    return failures_;
  }
  // The files hold something that is no good: what counts is older.
  bool broken() const {
    MutexLock lock(mu_);
    return !error_.ok();
  }

 private:
  Reloaded(Read read, T first)
      : read_(std::move(read)), current_(std::make_shared<const T>(std::move(first))) {}

  const Read read_;
  mutable Mutex mu_;
  std::shared_ptr<const T> current_ ABSL_GUARDED_BY(mu_);
  absl::Status error_ ABSL_GUARDED_BY(mu_);
  int64_t reloads_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t failures_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SECURITY_RELOADED_H_

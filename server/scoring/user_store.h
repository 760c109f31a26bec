// UserStore: users' features under keys of the caller's choice, so that requests for their next ads
// bring the key alone (user_key of predict.proto).
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SCORING_USER_STORE_H_
#define ULFD_SERVER_SCORING_USER_STORE_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "base/lru_cache.h"
#include "proto/predict.pb.h"
#include "server/observe/metric_page.h"
#include "server/scheduler/clock.h"

namespace ulfd::server {

inline constexpr size_t kMaxUserKeyBytes = 128;

// Thread-safe.
class UserStore {
 public:
  // max_bytes: 0: nothing is kept.  `clock` is borrowed.
  UserStore(int64_t max_bytes, std::chrono::milliseconds max_age, const Clock& clock)
      : max_bytes_(max_bytes), max_age_(max_age), clock_(clock), users_(max_bytes) {}

  // Adds the features of a request that has a key alone, and says under which name to Keep those of
  // one that has both, once they are known to be good; empty: not at all.  `client`: who asks; keys
  // of others are not theirs.  FAILED_PRECONDITION: the features are not here; INVALID_ARGUMENT: no
  // good key or version.
  absl::StatusOr<std::string> Complete(const std::string& client,
                                       ulfd::v1::PredictRequest& request);
  // FAILED_PRECONDITION for a request that Complete added features to which `error` shows to be
  // those of another version of the model: a miss, after all.
  absl::Status DoNotFit(const ulfd::v1::PredictRequest& request, const absl::Status& error);
  // `name`: of Complete; empty: nothing is kept.
  void Keep(std::string name, const ulfd::v1::PredictRequest& request);
  CacheStats stats() const { return users_.stats(); }
  void Collect(MetricPage& page) const;

 private:
  struct Kept {
    google::protobuf::RepeatedPtrField<ulfd::v1::Feature> features;
    int64_t wire_bytes = 0;
    TimePoint until;
  };

  const int64_t max_bytes_;
  const std::chrono::milliseconds max_age_;
  const Clock& clock_;
  LruCache<Kept> users_;
  std::atomic<int64_t> saved_bytes_{0};  // That callers did not send.
  std::atomic<int64_t> misfits_{0};      // Hits that were none.
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SCORING_USER_STORE_H_

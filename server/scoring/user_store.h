// UserStore: users' features under keys of the caller's choice, so that requests for their next ads
// bring the key alone (user_key of predict.proto).
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SCORING_USER_STORE_H_
#define ULFD_SERVER_SCORING_USER_STORE_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/lru_cache.h"
#include "proto/predict.pb.h"
#include "server/observe/metric_page.h"
#include "server/scheduler/clock.h"

namespace ulfd::server {

inline constexpr size_t kMaxUserKeyBytes = 128;

// Takes features that were lent to a request out of it again.
struct ReturnFeatures {
  using Features = google::protobuf::RepeatedPtrField<ulfd::v1::Feature>;
  void operator()(ulfd::v1::PredictRequest* request) const;
  std::shared_ptr<const Features> lent;
};
// A request with features that stay the store's, so that each of many calls with one key takes
// neither time nor memory for them; has to go before the request does, or is changed.
using LentFeatures = std::unique_ptr<ulfd::v1::PredictRequest, ReturnFeatures>;

// Thread-safe.
class UserStore {
 public:
  // max_bytes: 0: nothing is kept.  `clock` is borrowed.
  UserStore(int64_t max_bytes, std::chrono::milliseconds max_age, const Clock& clock)
      : max_bytes_(max_bytes), max_age_(max_age), clock_(clock), users_(max_bytes) {}

  struct Completed {
    // Under which name to Keep the features of a request that has a key and features, once they are
    // known to be good; empty: not at all.
    std::string name;
    LentFeatures lent;  // To a request that has a key alone.
  };
  // `client`: who asks; keys of others are not theirs.  FAILED_PRECONDITION: the features are not
  // here; INVALID_ARGUMENT: no good key or version.
  absl::StatusOr<Completed> Complete(const std::string& client, ulfd::v1::PredictRequest& request);
  // `status`: of decoding the request.  Keeps the features that it brought; features that were
  // lent, and are those of another version of the model, are a miss: FAILED_PRECONDITION.
  absl::Status Decoded(const Completed& user, const ulfd::v1::PredictRequest& request,
                       absl::Status status);
  int64_t bytes() const { return users_.stats().bytes; }
  void Collect(MetricPage& page) const;

 private:
  void Keep(const std::string& name, const ulfd::v1::PredictRequest& request);
  struct Kept {
    ReturnFeatures::Features features;
    int64_t wire_bytes = 0;
    TimePoint until;
  };

  const int64_t max_bytes_;
  const std::chrono::milliseconds max_age_;
  const Clock& clock_;
  LruCache<Kept> users_;
  std::atomic<int64_t> saved_bytes_{0};  // That callers did not send.
  // Of requests of a key alone.
  std::atomic<int64_t> hits_{0}, misses_{0};
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SCORING_USER_STORE_H_

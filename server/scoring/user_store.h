// UserStore: users' features under keys of the caller's choice, so that requests for their next ads
// bring the key alone (user_key of predict.proto).
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SCORING_USER_STORE_H_
#define ULFD_SERVER_SCORING_USER_STORE_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
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

// Clients have shares, by a secret hash of their names.  Where there is no more room the largest
// share gives some, so that who leaves many users behind pushes out its own.  Thread-safe.
class UserStore {
  struct Kept;
  using Share = LruCache<Kept>;

 public:
  // max_bytes: 0: nothing is kept.  `clock` is borrowed.
  UserStore(int64_t max_bytes, std::chrono::milliseconds max_age, const Clock& clock);

  struct Completed {
    Share* share = nullptr;  // The client's.
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
  int64_t bytes() const;
  void Collect(MetricPage& page) const;

 private:
  void Keep(const Completed& user, const ulfd::v1::PredictRequest& request);
  struct Kept {
    ReturnFeatures::Features features;
    int64_t wire_bytes = 0;
    TimePoint until;
  };

  const int64_t max_bytes_;
  const std::chrono::milliseconds max_age_;
  const Clock& clock_;
  std::deque<Share> shares_;
  std::atomic<size_t> kept_{0};          // Users so far.
  std::atomic<int64_t> saved_bytes_{0};  // That callers did not send.
  // Of requests of a key alone.
  std::atomic<int64_t> hits_{0}, misses_{0};
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SCORING_USER_STORE_H_

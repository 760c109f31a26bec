// SharedReplies: replies that are the same for all who ask are made and serialised once, and the
// bytes are shared: thousands that wait for a client who takes none take no more than one.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SERVICES_SHARED_REPLIES_H_
#define ULFD_SERVER_SERVICES_SHARED_REPLIES_H_

#include <grpcpp/support/byte_buffer.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"
#include "server/models/model_lookup.h"
#include "server/rpc/call_receiver.h"
#include "server/scheduler/clock.h"

namespace ulfd::server {

// Thread-safe.  Of one method.
class SharedReplies {
 public:
  // Finishes the call with the reply for `time` and `more`, which `fill` makes if nobody has asked
  // before.  Those of the least `time` are forgotten first.
  template <typename Call, typename Fill>
  void Finish(Call& call, int64_t time, const std::string& more, Fill fill) {
    const Key key(time, more);
    grpc::ByteBuffer reply;
    if (!Find(key, reply)) {
      fill(call.response());
      const grpc::Status made = call.Serialize(reply);
      if (!made.ok()) return call.Finish(made);
      Keep(key, reply);
      return call.FinishWith(reply, /*own=*/true);
    }
    call.FinishWith(reply, /*own=*/false);
  }
  // The same of a list of what `caller` may use of the models: tens of thousands that ask at once
  // get one.  A load that begins may be seen ten milliseconds late, with thousands of models
  // up to a hundred, so that a flood takes no more than a tenth of a CPU; all else at once.
  template <typename Call, typename Fill>
  void FinishList(Call& call, const ModelLookup& models, const ModelChoice& caller, TimePoint now,
                  Fill fill) {
    const auto time = now.time_since_epoch();
    const TimePoint::duration period(period_.load(std::memory_order_relaxed));
    Finish(call, (time - time % period).count(), ListKey(models, caller), [&](auto& reply) {
      const auto begun = std::chrono::steady_clock::now();
      fill(reply);
      const TimePoint::duration took = std::chrono::steady_clock::now() - begun;
      period_.store(std::clamp<TimePoint::duration>(10 * took, kLeast, kMost).count(),
                    std::memory_order_relaxed);
    });
  }

 private:
  static std::string ListKey(const ModelLookup& models, const ModelChoice& caller);
  using Key = std::pair<int64_t, std::string>;
  bool Find(const Key& key, grpc::ByteBuffer& reply) const;
  void Keep(const Key& key, const grpc::ByteBuffer& reply);

  // For how long a list is the same.
  static constexpr std::chrono::milliseconds kLeast{10}, kMost{100};
  std::atomic<TimePoint::rep> period_{TimePoint::duration(kLeast).count()};
  mutable Mutex mu_;
  size_t bytes_ ABSL_GUARDED_BY(mu_) = 0;  // Of the replies.
  std::map<Key, grpc::ByteBuffer> replies_ ABSL_GUARDED_BY(mu_);
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SERVICES_SHARED_REPLIES_H_

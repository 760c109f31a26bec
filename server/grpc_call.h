// What the gRPC side of the scoring calls shares.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_GRPC_CALL_H_
#define ULFD_SERVER_GRPC_CALL_H_

#include <grpc/support/time.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <chrono>

#include "server/grpc_status.h"
#include "server/scheduler/clock.h"

namespace ulfd::server {

// The deadline of a call on the steady clock; TimePoint::max() if it has none.
inline TimePoint DeadlineOf(const grpc::CallbackServerContext& context, TimePoint now) {
  // gRPC keeps it on its monotonic clock; by way of the wall clock, a jump in between would end the call.
  const gpr_timespec deadline = context.raw_deadline();
  const gpr_timespec left = gpr_time_sub(deadline, gpr_now(deadline.clock_type));
  // Deadlines further away than any call may last are none.
  if (left.tv_sec > int64_t{365} * 24 * 3600) return TimePoint::max();
  return now + std::chrono::seconds(left.tv_sec) + std::chrono::nanoseconds(left.tv_nsec);
}

// Answers a call at once, on the thread that received it.
inline grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context,
                                        const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

// A scoring call as a reactor: `Call` is a ScoreCall that is created with the rest of the arguments
// and declares `void Finish(const absl::Status&)` by deriving from this.
template <typename Call>
class ScoreReactor : public grpc::ServerUnaryReactor, public Call {
 public:
  template <typename... Args>
  explicit ScoreReactor(Args&&... args) : Call(std::forward<Args>(args)...) {}

 private:
  void Finish(const absl::Status& status) override {
    grpc::ServerUnaryReactor::Finish(ToGrpcStatus(status));
  }
  void OnCancel() override { this->Cancel(); }
  void OnDone() override { delete this; }
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_GRPC_CALL_H_

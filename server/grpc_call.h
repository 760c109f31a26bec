// What the gRPC side of the scoring calls shares.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_GRPC_CALL_H_
#define ULFD_SERVER_GRPC_CALL_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <chrono>

#include "server/grpc_status.h"
#include "server/scheduler/clock.h"

namespace ulfd::server {

// The deadline of a call on the steady clock; TimePoint::max() if it has none.
inline TimePoint DeadlineOf(const grpc::CallbackServerContext& context, TimePoint now) {
  const auto deadline = context.deadline();
  const auto left = deadline - std::chrono::system_clock::now();
  // Deadlines further away than any call may last are none.
  if (left > std::chrono::hours(24 * 365)) return TimePoint::max();
  return now + std::chrono::duration_cast<TimePoint::duration>(left);
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

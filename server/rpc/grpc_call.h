// What the gRPC side of the scoring calls shares.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_RPC_GRPC_CALL_H_
#define ULFD_SERVER_RPC_GRPC_CALL_H_

#include <grpc/support/time.h>
#include <grpcpp/server_context.h>

#include <chrono>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "server/rpc/call_receiver.h"
#include "server/rpc/grpc_status.h"
#include "server/scheduler/clock.h"
#include "server/scheduler/refusal.h"
#include "server/scoring/score_call.h"

namespace ulfd::server {

// The deadline of a call on the steady clock; TimePoint::max() if it has none.
inline TimePoint DeadlineOf(const grpc::ServerContext& context, TimePoint now) {
  // gRPC keeps it on its monotonic clock; by way of the wall clock, a jump in between would end the call.
  const gpr_timespec deadline = context.raw_deadline();
  const gpr_timespec left = gpr_time_sub(deadline, gpr_now(deadline.clock_type));
  // Deadlines further away than any call may last are none.
  if (left.tv_sec > int64_t{365} * 24 * 3600) return TimePoint::max();
  return now + std::chrono::seconds(left.tv_sec) + std::chrono::nanoseconds(left.tv_nsec);
}

// The value of a metadata key of the call; empty if it has none.
inline absl::string_view MetadataOf(const grpc::ServerContext& context, const std::string& key) {
  const auto it = context.client_metadata().find(key);
  if (it == context.client_metadata().end()) return "";
  return {it->second.data(), it->second.size()};
}

// The metadata keys of priorities ("high", "normal", "low"; default "normal") and of the time after
// which a refused caller may try again, which clients of gRPC with a retry policy obey.
inline constexpr char kPriorityKey[] = "ulfd-priority";
inline constexpr char kPushbackKey[] = "grpc-retry-pushback-ms";

// INVALID_ARGUMENT: a priority that is none.
inline absl::StatusOr<CallTerms> TermsOf(const grpc::ServerContext& context,
                                         const ServingContext& serving) {
  CallTerms terms;
  terms.deadline = DeadlineOf(context, serving.clock.Now());
  if (const absl::string_view word = MetadataOf(context, kPriorityKey); !word.empty()) {
    ASSIGN_OR_RETURN(terms.priority, ParsePriority(word));
  }
  if (serving.client_quota != nullptr) {
    terms.client = std::string(MetadataOf(context, serving.client_key));
  }
  return terms;
}

// A scoring call of gRPC: `Call` is a ScoreCall that is created with the rest of the arguments.
template <typename Call>
class GrpcScoreCall final : public Call {
 public:
  template <typename... Args>
  explicit GrpcScoreCall(RpcCall& rpc, Args&&... args)
      : Call(std::forward<Args>(args)...), rpc_(rpc) {}

 private:
  bool cancelled() const override { return rpc_.cancelled(); }
  void Finish(const absl::Status& status) override {
    RpcCall& rpc = rpc_;
    if (const auto pushback = RetryAfter(status); pushback.has_value()) {
      rpc.context().AddTrailingMetadata(kPushbackKey, absl::StrCat(pushback->count()));
    }
    const grpc::Status answer = ToGrpcStatus(status);
    delete this;  // It refers to the request, which may go as soon as the call has ended.
    rpc.Finish(answer);
  }

  RpcCall& rpc_;
};

// Makes a scoring call and starts it.
template <typename Call, typename Request, typename Response>
void StartScoring(UnaryCall<Request, Response>& rpc, const ServingContext& serving,
                  const absl::StatusOr<ModelChoice>& choice) {
  absl::StatusOr<CallTerms> terms = TermsOf(rpc.context(), serving);
  auto* scoring = new GrpcScoreCall<Call>(rpc, serving, terms.ok() ? *terms : CallTerms{},
                                          rpc.request(), rpc.response());
  scoring->Start(terms.ok() ? choice : terms.status());
}

}  // namespace ulfd::server

#endif  // ULFD_SERVER_RPC_GRPC_CALL_H_

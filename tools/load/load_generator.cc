// SPDX-License-Identifier: Apache-2.0
#include "tools/load/load_generator.h"

#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <sys/prctl.h>

#include <algorithm>
#include <thread>

namespace ulfd::tools {

using std::chrono::nanoseconds;
using std::chrono::steady_clock;

// From sending to the reply.
struct LoadGenerator::Call {
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientAsyncResponseReader<grpc::ByteBuffer>> reader;
  grpc::ByteBuffer reply;
  grpc::Status status;
  CallOutcome outcome;
};

LoadGenerator::LoadGenerator(LoadPlan plan, const RequestSource& requests, LoadTargets& targets,
                             LoadResults& results)
    : plan_(std::move(plan)),
      requests_(requests),
      targets_(targets),
      results_(results),
      start_(steady_clock::now()) {}

void LoadGenerator::Run(const std::atomic<bool>& stop) {
  // By default the kernel may wake a sleeper 50 us late, which would count as the server's latency.
  prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
  std::thread receiver([this] { TakeReplies(); });
  Send(stop);
  sent_until_ns_ = std::min(NowNs(), plan_.duration_ns);
  {
    // Every call has a deadline, so this ends.
    MutexLock lock(mu_);
    while (in_flight_.load() > 0) ended_.Wait(mu_);
  }
  queue_.Shutdown();
  receiver.join();
}

bool LoadGenerator::SleepUntil(int64_t ns, const std::atomic<bool>& stop) const {
  constexpr nanoseconds kLook = std::chrono::milliseconds(100);
  const auto until = start_ + nanoseconds(ns);
  while (!stop.load(std::memory_order_relaxed)) {
    const auto now = steady_clock::now();
    if (now >= until) return true;
    std::this_thread::sleep_until(std::min(until, now + kLook));
  }
  return false;
}

std::optional<int64_t> LoadGenerator::AwaitPlace(const std::atomic<bool>& stop) {
  {
    MutexLock lock(mu_);
    while (in_flight_.load() >= plan_.concurrency && !stop.load()) {
      ended_.WaitUntil(mu_, steady_clock::now() + std::chrono::milliseconds(100));
    }
  }
  const int64_t now = NowNs();
  if (stop.load() || now >= plan_.duration_ns) return std::nullopt;
  return now;
}

std::optional<int64_t> LoadGenerator::AwaitNext(const std::atomic<bool>& stop) {
  if (plan_.arrivals == nullptr) return AwaitPlace(stop);
  const std::optional<int64_t> next = plan_.arrivals();
  if (!next || *next >= plan_.duration_ns || !SleepUntil(*next, stop)) return std::nullopt;
  return next;
}

void LoadGenerator::Send(const std::atomic<bool>& stop) {
  for (int64_t number = 0; plan_.calls == 0 || number < plan_.calls; ++number) {
    std::optional<int64_t> due = AwaitNext(stop);
    if (!due) return;
    int target = targets_.Pick();
    // A closed loop waits for a server; an open one has lost a call.
    while (target < 0 && plan_.arrivals == nullptr) {
      const int64_t look = NowNs() + 1000000;
      if (look >= plan_.duration_ns || !SleepUntil(look, stop)) return;
      due = look;
      target = targets_.Pick();
    }
    if (target < 0) {
      results_.CountUnsent(*due, Unsent::kNoTarget);
    } else if (plan_.arrivals != nullptr && in_flight() >= plan_.max_in_flight) {
      results_.CountUnsent(*due, Unsent::kInFlight);
    } else {
      Start(*due, target, requests_.Get(static_cast<uint64_t>(number)));
    }
  }
}

void LoadGenerator::Start(int64_t intended_ns, int target, const LoadRequest& request) {
  auto* call = new Call;
  for (const auto& [key, value] : plan_.metadata) call->context.AddMetadata(key, value);
  const int64_t timeout_us = request.timeout_us > 0 ? request.timeout_us : plan_.timeout_us;
  call->context.set_deadline(std::chrono::system_clock::now() +
                             std::chrono::microseconds(timeout_us));
  call->outcome.intended_ns = intended_ns;
  call->outcome.ads = request.ads;
  call->outcome.target = target;
  in_flight_.fetch_add(1);
  call->outcome.sent_ns = NowNs();
  call->reader = targets_.StubOf(target).PrepareUnaryCall(&call->context, MethodOf(request.api),
                                                          request.message, &queue_);
  call->reader->StartCall();
  call->reader->Finish(&call->reply, &call->status, call);
}

void LoadGenerator::TakeReplies() {
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
    const std::unique_ptr<Call> call(static_cast<Call*>(tag));
    call->outcome.done_ns = NowNs();
    call->outcome.code = static_cast<int>(call->status.error_code());
    const std::string message = call->status.error_message();
    call->outcome.message = message;
    results_.Count(call->outcome);
    // Only a closed loop, or the end of the load, waits for a call to end.
    MutexLock lock(mu_);
    in_flight_.fetch_sub(1);
    ended_.NotifyOne();
  }
}

}  // namespace ulfd::tools

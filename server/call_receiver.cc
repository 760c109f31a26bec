// The threads that receive calls.
// SPDX-License-Identifier: Apache-2.0
#include "server/call_receiver.h"

#include <pthread.h>

#include "absl/strings/str_cat.h"

namespace ulfd::server {

CallReceiver::CallReceiver(grpc::ServerBuilder& builder, int64_t max_header_bytes)
    : queue_(builder.AddCompletionQueue()), max_header_bytes_(max_header_bytes) {}

CallReceiver::~CallReceiver() { Stop(); }

void CallReceiver::Start(int threads) {
  MutexLock lock(stop_mu_);
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([this] {
      pthread_setname_np(pthread_self(), "ulfd-grpc");
      Loop();
    });
  }
}

void CallReceiver::Loop() {
  void* event = nullptr;
  bool ok = false;
  while (queue_->Next(&event, &ok)) static_cast<CallEvent*>(event)->Happened(ok);
}

bool CallReceiver::Enter() {
  MutexLock lock(mu_);
  if (stopping_) return false;
  ++calls_;
  return true;
}

void CallReceiver::Leave() {
  MutexLock lock(mu_);
  if (--calls_ == 0 && stopping_) empty_.NotifyAll();
}

grpc::Status CallReceiver::CheckHeaders(const grpc::ServerContext& context) const {
  constexpr int64_t kOverhead = 32;  // Of each header: RFC 7540, 6.5.2.
  int64_t bytes = 0;
  for (const auto& [key, value] : context.client_metadata()) {
    bytes += static_cast<int64_t>(key.size() + value.size()) + kOverhead;
  }
  if (bytes <= max_header_bytes_) return grpc::Status::OK;
  return {grpc::StatusCode::RESOURCE_EXHAUSTED,
          absl::StrCat("headers of ", bytes, " bytes, limit ", max_header_bytes_,
                       " (connections.max_header_bytes)")};
}

void CallReceiver::Keep(std::shared_ptr<const void> thing) {
  MutexLock lock(mu_);
  kept_.push_back(std::move(thing));
}

void CallReceiver::Stop() {
  MutexLock stop_lock(stop_mu_);
  if (closed_) return;
  closed_ = true;
  {
    // A call that still has something to say needs the queue open.
    MutexLock lock(mu_);
    stopping_ = true;
    while (calls_ > 0) empty_.Wait(mu_);
  }
  queue_->Shutdown();
  for (std::thread& thread : threads_) thread.join();
  // gRPC wants the queue empty, even that of a server that did not start.
  if (threads_.empty()) Loop();
}

}  // namespace ulfd::server

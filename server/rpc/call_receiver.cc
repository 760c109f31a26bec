// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/call_receiver.h"

#include <grpc/byte_buffer.h>
#include <grpcpp/alarm.h>
#include <grpcpp/support/proto_buffer_reader.h>
#include <pthread.h>

#include <cstdlib>
#include <future>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/rpc/connection_turns.h"
#include "server/rpc/grpc_status.h"
#include "server/system/threads.h"

namespace ulfd::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// How often the threads are looked at.
constexpr milliseconds kLook{50};
// How long spare threads stay, in looks.
constexpr int kQuietLooks = 40;
constexpr size_t kMostSpares = 16;
// What a reply may need to leave, once the server shuts down.
constexpr milliseconds kReplyTime{600};

// Tells how the bytes are compressed, which grpc::ByteBuffer does not.
class MessageReader : public grpc::ProtoBufferReader {
 public:
  using grpc::ProtoBufferReader::ProtoBufferReader;
  grpc_compression_algorithm compression() { return reader()->buffer_in->data.raw.compression; }
};

// Does some work on a receiving thread, after what waits for one.
// NOLINTNEXTLINE(cppcoreguidelines-virtual-class-destructor): it ends itself.
class Errand final : public CallEvent {
 public:
  Errand(grpc::CompletionQueue* queue, std::function<void()> work) : work_(std::move(work)) {
    alarm_.Set(queue, gpr_inf_past(GPR_CLOCK_MONOTONIC), static_cast<CallEvent*>(this));
  }
  void Happened(bool) override {
    work_();
    delete this;
  }

 private:
  const std::function<void()> work_;
  grpc::Alarm alarm_;
};

}  // namespace

CallReceiver::CallReceiver(grpc::ServerBuilder& builder, const ReceiverOptions& options)
    : queue_(builder.AddCompletionQueue()), options_(options), ledger_(options.budget) {}

CallReceiver::~CallReceiver() { Stop(); }

void CallReceiver::Start(int threads) {
  MutexLock lock(stop_mu_);
  for (int i = 0; i < threads; ++i) {
    Add(threads_, "ulfd-grpc", &CallReceiver::Loop);
  }
  watch_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "ulfd-watch");
    Watch();
  });
}

void CallReceiver::Add(Threads& threads, const char* name, void (CallReceiver::*loop)(Thread&)) {
  auto added = std::make_unique<Thread>();
  added->thread = std::thread([this, &self = *added, name, loop] {
    pthread_setname_np(pthread_self(), name);
    (this->*loop)(self);
  });
  threads.push_back(std::move(added));
}

void CallReceiver::AddSpare() {
  spares_wanted_.store(true);
  try {
    Add(spares_, "ulfd-spare", &CallReceiver::SpareLoop);
    spares_started_.fetch_add(1, std::memory_order_relaxed);
  } catch (const std::system_error&) {
    // It goes on without, and is tried again at the next look.
    spares_refused_.fetch_add(1, std::memory_order_relaxed);
  }
}

void CallReceiver::Handle(Thread& self, void* event, bool ok) {
  self.events.fetch_add(1, std::memory_order_relaxed);
  static_cast<CallEvent*>(event)->Happened(ok);
}

void CallReceiver::Loop(Thread& self) {
  void* event = nullptr;
  bool ok = false;
  while (queue_->Next(&event, &ok)) Handle(self, event, ok);
}

void CallReceiver::SpareLoop(Thread& self) {
  using Queue = grpc::CompletionQueue;
  auto got = Queue::TIMEOUT;
  while (got != Queue::SHUTDOWN && spares_wanted_.load()) {
    void* event = nullptr;
    bool ok = false;
    got = queue_->AsyncNext(&event, &ok, std::chrono::system_clock::now() + kLook);
    if (got == Queue::GOT_EVENT) Handle(self, event, ok);
  }
  self.ended.store(true);
}

bool CallReceiver::Busy(Thread& thread) {
  if (thread.ended.load()) return false;
  const auto cpu = CpuTimeOf(thread.thread);
  const int64_t events = thread.events.load(std::memory_order_relaxed);
  const bool busy = events == thread.seen_events && cpu - thread.seen_cpu >= kLook / 5;
  thread.seen_events = events;
  thread.seen_cpu = cpu;
  return busy;
}

bool CallReceiver::AllBusy(const Threads& threads) {
  bool all = true;
  for (const auto& thread : threads) all &= Busy(*thread);  // Each is looked at.
  return all;
}

bool CallReceiver::WaitForLook() {
  const auto look = std::chrono::steady_clock::now() + kLook;
  for (bool woken = true; woken;) {
    GiveTurns();
    MutexLock lock(mu_);
    if (Done()) return false;
    woken = wake_watch_.WaitUntil(mu_, look);
  }
  return true;
}

void CallReceiver::Watch() {
  const TurnWaker waker([this] { wake_watch_.NotifyAll(); });
  int quiet_looks = 0;
  for (;;) {
    if (!WaitForLook()) return;
    std::erase_if(spares_, [](const auto& spare) {
      if (!spare->ended.load()) return false;
      spare->thread.join();
      return true;
    });
    const bool all_busy = AllBusy(threads_), spares_busy = AllBusy(spares_);
    quiet_looks = all_busy ? 0 : quiet_looks + 1;
    if (all_busy && spares_busy && spares_.size() < kMostSpares) AddSpare();
    MaybeCancel();
    // Threads that were busy a moment ago may be so again in the next.
    if (quiet_looks == kQuietLooks) spares_wanted_.store(false);
  }
}

bool CallReceiver::Run(const std::function<void()>& work) {
  if (!Enter()) return false;
  // Who is waited for may be in it for a little longer.
  const auto done = std::make_shared<std::promise<void>>();
  new Errand(queue_.get(), [&work, done] {
    work();
    done->set_value();
  });
  done->get_future().wait();
  Leave();
  return true;
}

void CallReceiver::GiveTurns() {
  if (TurnsWait() && !woken_.exchange(true)) {
    new Errand(queue_.get(), [this] { woken_.store(false); });
  }
}

void CallReceiver::EndWhenAnswered(std::function<void()> cancel) {
  MutexLock lock(mu_);
  cancel_ = std::move(cancel);
  // Replies may be on their way.
  last_answer_.store(steady_clock::now().time_since_epoch().count(), std::memory_order_relaxed);
}

void CallReceiver::MaybeCancel() {
  std::function<void()> cancel;
  {
    MutexLock lock(mu_);
    cancel = cancel_;
  }
  if (cancel == nullptr || unanswered() > 0) return;
  const steady_clock::duration last(last_answer_.load(std::memory_order_relaxed));
  if (steady_clock::now().time_since_epoch() - last >= kReplyTime) cancel();
}

bool CallReceiver::Enter() {
  MutexLock lock(mu_);
  if (stopping_) return false;
  ++calls_;
  return true;
}

void CallReceiver::Leave() {
  MutexLock lock(mu_);
  --calls_;
  if (Done()) wake_watch_.NotifyAll();
}

grpc::Status CallReceiver::CheckHeaders(const grpc::ServerContext& context) const {
  constexpr int64_t kOverhead = 32;  // Of each header: RFC 7540, 6.5.2.
  int64_t bytes = 0;
  for (const auto& [key, value] : context.client_metadata()) {
    bytes += static_cast<int64_t>(key.size() + value.size()) + kOverhead;
  }
  if (bytes <= options_.max_header_bytes) return grpc::Status::OK;
  return {grpc::StatusCode::RESOURCE_EXHAUSTED,
          absl::StrCat("headers of ", bytes, " bytes, limit ", options_.max_header_bytes,
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
    while (!Done()) wake_watch_.Wait(mu_);
  }
  wake_watch_.NotifyAll();  // If there was no call whose end would have told the watch.
  if (watch_.joinable()) watch_.join();
  queue_->Shutdown();
  for (Threads* threads : {&threads_, &spares_}) {
    for (auto& thread : *threads) thread->thread.join();
  }
  // gRPC wants the queue empty, even that of a server that did not start.
  if (threads_.empty()) {
    Thread self;
    Loop(self);
  }
}

grpc::Status RpcCall::Read(grpc::ByteBuffer& bytes, const MessageScan& scan,
                           google::protobuf::Message& message) {
  Forget();
  receiver_.ledger().Receive(connection_, static_cast<int64_t>(bytes.Length()));
  MessageReader reader(&bytes);
  if (!reader.status().ok()) return reader.status();
  if (reader.compression() != GRPC_COMPRESS_NONE) {
    context_.AddTrailingMetadata("grpc-accept-encoding", "identity");
    return {grpc::StatusCode::UNIMPLEMENTED,
            "the message is compressed; this server takes identity only"};
  }
  const auto price =
      scan.Price(reader, static_cast<int>(bytes.Length()), receiver_.options().message);
  if (!price.ok()) return ToGrpcStatus(price.status());
  if (!receiver_.ledger().ReserveRequest(connection_, price->parsed_bytes)) {
    return {grpc::StatusCode::RESOURCE_EXHAUSTED,
            absl::StrCat("memory: ", price->parsed_bytes,
                         " bytes for the request, and those under way hold nearly ",
                         receiver_.options().budget.request_bytes,
                         " (half of connections.memory_quota_bytes)")};
  }
  request_bytes_ = price->parsed_bytes;
  MessageReader again(&bytes);
  if (again.status().ok() && message.ParseFromZeroCopyStream(&again)) return grpc::Status::OK;
  return {grpc::StatusCode::INVALID_ARGUMENT,
          absl::StrCat("not a message of type ", message.GetDescriptor()->full_name())};
}

void UnknownCall::Await(grpc::AsyncGenericService& service, CallReceiver& receiver) {
  if (!receiver.Enter()) return;
  auto* call = new UnknownCall(service, receiver);
  service.RequestCall(&call->generic_context(), &call->stream_, receiver.queue(), receiver.queue(),
                      call->received());
}

void UnknownCall::Answer() { Finish({grpc::StatusCode::UNIMPLEMENTED, "unknown method"}); }

int MethodIndex(const char* service, absl::string_view method) {
  const auto* found = google::protobuf::DescriptorPool::generated_pool()
                          ->FindServiceByName(service)
                          ->FindMethodByName(std::string(method));
  if (found == nullptr) std::abort();  // A slip of the programmer.
  return found->index();
}

}  // namespace ulfd::server

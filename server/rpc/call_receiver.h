// Receives calls of gRPC: a completion queue, the threads that wait at it, and the calls that are
// to come.
//
// gRPC's callback API would do without this, but it starts two threads at least, and half as many
// as the machine has cores, whatever the process may use of them; the threads hand the lead to each
// other at every event.  With the asynchronous API their number is ours (decision 0034).
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_RPC_CALL_RECEIVER_H_
#define ULFD_SERVER_RPC_CALL_RECEIVER_H_

#include <google/protobuf/message.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/async_unary_call.h>
#include <grpcpp/support/byte_buffer.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "base/mutex.h"
#include "server/rpc/call_ledger.h"
#include "server/rpc/message_scan.h"

namespace ulfd::server {

// What the completion queue gives back: a step of a call that has ended.
class CallEvent {
 public:
  // On a receiving thread; must not block.  `ok`: as grpc::CompletionQueue::Next says it.
  virtual void Happened(bool ok) = 0;

 protected:
  ~CallEvent() = default;
};

// The event that calls a member function.
template <typename Owner, void (Owner::*kStep)(bool ok)>
// NOLINTNEXTLINE(cppcoreguidelines-virtual-class-destructor): final, and a member.
class StepEvent final : public CallEvent {
 public:
  explicit StepEvent(Owner& owner) : owner_(owner) {}
  void Happened(bool ok) override { (owner_.*kStep)(ok); }

 private:
  Owner& owner_;
};

struct ReceiverOptions {
  // Calls with more headers are refused: of headers that come in pieces (CONTINUATION frames) gRPC
  // 1.51 measures only the last one.
  int64_t max_header_bytes = 16384;
  // Of requests; those beyond are refused before they are parsed.
  MessageLimits message;
  CallBudget budget;
};

// Thread-safe.
//
// gRPC 1.51 can keep a thread busy with one connection for seconds (a header of many megabytes is
// copied with every piece of it that comes), and a message of many megabytes is parsed on the
// thread that received it.  While that is so of all threads, spare ones receive as well.
class CallReceiver {
 public:
  // Adds a completion queue to the server that is being built.
  CallReceiver(grpc::ServerBuilder& builder, const ReceiverOptions& options);
  // Stop.
  ~CallReceiver();

  // Starts the threads, once the server has started.
  void Start(int threads);
  // How many spare threads have been started so far, and how many the system refused.
  int64_t spares() const { return spares_started_.load(std::memory_order_relaxed); }
  int64_t refused_spares() const { return spares_refused_.load(std::memory_order_relaxed); }
  // Does some work on a receiving thread, after what waits for one, and waits for it; false: no
  // longer.
  bool Run(const std::function<void()>& work);
  // While the server shuts down: calls `cancel`, which ends all calls at once, as soon as every
  // call that wants an answer has had it for a while.  What nobody will ever answer (streams, calls
  // that never send their message) must not hold up the shutdown.
  void EndWhenAnswered(std::function<void()> cancel);
  // Waits until every call has ended, then ends the threads.  After the server's Shutdown, which
  // makes calls end.
  void Stop();

  // What a call needs that is to be received or under way: the queue for its events, and a place
  // that keeps the queue open.
  grpc::ServerCompletionQueue* queue() { return queue_.get(); }
  // false: no more calls are received.
  bool Enter();
  void Leave();
  const ReceiverOptions& options() const { return options_; }
  CallLedger& ledger() { return ledger_; }
  // A call that wants an answer has come, or has it.
  void Asked() { unanswered_.fetch_add(1, std::memory_order_relaxed); }
  void Answered() {
    last_answer_.store(std::chrono::steady_clock::now().time_since_epoch().count(),
                       std::memory_order_relaxed);
    unanswered_.fetch_sub(1, std::memory_order_release);
  }
  int64_t unanswered() const { return unanswered_.load(std::memory_order_acquire); }
  // RESOURCE_EXHAUSTED: too many headers.
  grpc::Status CheckHeaders(const grpc::ServerContext& context) const;
  // Keeps what its calls refer to, until after the last of them.
  void Keep(std::shared_ptr<const void> thing);

 private:
  // A thread that receives, and what was last seen of it.
  struct Thread {
    std::atomic<int64_t> events{0};
    std::atomic<bool> ended{false};
    int64_t seen_events = 0;
    std::chrono::nanoseconds seen_cpu{0};
    std::thread thread;  // Last: it uses the others.
  };
  using Threads = std::vector<std::unique_ptr<Thread>>;
  // std::system_error: the system refuses a thread.
  void Add(Threads& threads, const char* name, void (CallReceiver::*loop)(Thread& self));
  void AddSpare();
  // Wakes a thread if connections wait for their turns: all may wait for events.
  void GiveTurns();
  // Calls cancel_ if it is time.
  void MaybeCancel();
  static void Handle(Thread& self, void* event, bool ok);
  void Loop(Thread& self);
  // Until it is no longer wanted.
  void SpareLoop(Thread& self);
  // Looks after the threads until it is over.
  void Watch();
  // Gives turns until then; false: it is over.
  bool WaitForLook();
  // No call is left and none comes.
  bool Done() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return stopping_ && calls_ == 0; }
  // Whether it has computed since the last look, and received nothing.
  static bool Busy(Thread& thread);
  static bool AllBusy(const Threads& threads);

  const std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  const ReceiverOptions options_;
  CallLedger ledger_;
  // On a cache line of their own: every call changes them.
  alignas(64) std::atomic<int64_t> unanswered_{0};
  std::atomic<int64_t> last_answer_{0};  // On the steady clock.
  Mutex mu_;
  CondVar wake_watch_;  // And Stop.
  int64_t calls_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::function<void()> cancel_ ABSL_GUARDED_BY(mu_);
  std::vector<std::shared_ptr<const void>> kept_ ABSL_GUARDED_BY(mu_);
  std::atomic<bool> spares_wanted_{false};
  std::atomic<int64_t> spares_started_{0}, spares_refused_{0};
  std::atomic<bool> woken_{false};  // An event that wakes a thread is on its way.
  Mutex stop_mu_;                   // One Stop at a time.  Before mu_.
  bool closed_ ABSL_GUARDED_BY(stop_mu_) = false;
  // Those of Start do not change while the watch runs, the spare ones are its own.
  Threads threads_;
  Threads spares_;
  std::thread watch_ ABSL_GUARDED_BY(stop_mu_);
};

// A call that is to come or under way.  Belongs to the receiver: it is gone once it is over on both
// sides and every step that was begun has ended.
// NOLINTNEXTLINE(cppcoreguidelines-virtual-class-destructor): it ends itself.
class RpcCall {
 public:
  RpcCall(const RpcCall&) = delete;
  RpcCall& operator=(const RpcCall&) = delete;

  grpc::ServerContext& context() { return context_; }
  // Whether the client has gone before it had everything.  From any thread, without a lock: it is
  // asked often.
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }
  // The connection's other side, once the call has come: "ipv4:127.0.0.1:4242".
  const std::string& peer() const { return peer_; }
  // Sends the reply, or the error instead of it.  Once, from any thread; the call may be gone
  // afterwards.
  virtual void Finish(const grpc::Status& status) = 0;

 protected:
  // The receiver has been entered.
  explicit RpcCall(CallReceiver& receiver) : receiver_(receiver) {
    context_.AsyncNotifyWhenDone(static_cast<CallEvent*>(&closed_));
  }
  virtual ~RpcCall() = default;

  // It has come.  On a receiving thread, as all of these; must not block, and sees to it that the
  // call is finished.  Who hands it on, to be finished elsewhere, lets no exception out from then
  // on.
  virtual void Answer() = 0;
  // Asks for the next call of the method.
  virtual void AwaitNext() = 0;
  // The client is gone, or has everything.
  virtual void Closed() {}
  // The call will be deleted.
  virtual void Over() {}

  CallReceiver& receiver() { return receiver_; }
  // Want of memory in `step` ends the call, not the process.
  template <typename Step>
  void OrNoMemory(Step step) {
    try {
      step();
    } catch (const std::bad_alloc&) {
      Finish({grpc::StatusCode::RESOURCE_EXHAUSTED, "no memory"});
    }
  }
  // Looks at a message of the call before it parses it; an error is for the client.  Its memory
  // counts until Forget.
  grpc::Status Read(grpc::ByteBuffer& bytes, const MessageScan& scan,
                    google::protobuf::Message& message);
  // What was read is there no longer.
  void Forget() {
    if (request_bytes_ == 0) return;
    receiver_.ledger().ReleaseRequest(connection_, std::exchange(request_bytes_, 0));
  }
  // Bytes of a reply wait to be sent, until the call is over.
  void Hold(int64_t bytes) {
    if (bytes <= CallLedger::kSmallReply) return;
    held_bytes_ += bytes;
    receiver_.ledger().Hold(connection_, bytes);
  }
  grpc::GenericServerContext& generic_context() { return context_; }
  CallEvent* received() { return &received_; }
  CallEvent* finished() { return &finished_; }
  // Another step, beside these, that ends with StepEnded; begun before the call is finished.
  void StepBegun() { steps_.fetch_add(1, std::memory_order_relaxed); }
  void StepEnded() {
    if (steps_.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
    Over();
    Release();
  }

 private:
  void OnReceived(bool ok) {
    if (!ok) return Release();  // The server shuts down, and nothing else will be heard of it.
    OrNoMemory([this] { Begin(); });
    AwaitNext();
    StepEnded();
  }
  void Begin() {
    peer_ = context_.peer();
    bool closing = false;
    connection_ = receiver_.ledger().Begin(peer_, &closing);
    if (closing) {
      Finish({grpc::StatusCode::UNAVAILABLE, "the connection is closed for what it takes"});
    } else if (const grpc::Status checked = receiver_.CheckHeaders(context_); checked.ok()) {
      Answer();
    } else {
      Finish(checked);
    }
  }
  void OnClosed(bool) {
    if (context_.IsCancelled()) cancelled_.store(true, std::memory_order_relaxed);
    Closed();
    StepEnded();
  }
  void OnFinished(bool) { StepEnded(); }
  void Release() {
    CallReceiver& receiver = receiver_;
    Forget();
    if (connection_ != nullptr) receiver.ledger().End(connection_, held_bytes_);
    delete this;
    receiver.Leave();
  }

  CallReceiver& receiver_;
  grpc::GenericServerContext context_;
  std::string peer_;                              // Once it has come.
  CallLedger::Connection* connection_ = nullptr;  // Then, too.
  int64_t request_bytes_ = 0, held_bytes_ = 0;    // Of the ledger.
  std::atomic<bool> cancelled_{false};
  std::atomic<int> steps_{3};  // To be received, closed and finished.
  StepEvent<RpcCall, &RpcCall::OnReceived> received_{*this};
  StepEvent<RpcCall, &RpcCall::OnClosed> closed_{*this};
  StepEvent<RpcCall, &RpcCall::OnFinished> finished_{*this};
};

// The place of a method in its service.
int MethodIndex(const char* service, absl::string_view method);

// One with one request and one reply.
template <typename Request, typename Response>
class UnaryCall final : public RpcCall {
 public:
  // How calls of a method are asked for and answered.
  struct Method {
    CallReceiver& receiver;
    std::function<void(grpc::ServerContext* context, grpc::ByteBuffer* request,
                       grpc::ServerAsyncResponseWriter<grpc::ByteBuffer>* writer,
                       grpc::ServerCompletionQueue* queue, void* event)>
        ask;
    // As RpcCall::Answer.
    std::function<void(UnaryCall& call)> answer;
    MessageScan scan{*Request::descriptor()};
  };

  // Asks for one call of the method; each that comes asks for the next one.
  static void Await(const Method& method) {
    if (!method.receiver.Enter()) return;
    auto* call = new UnaryCall(method);
    method.ask(&call->context(), &call->bytes_, &call->writer_, method.receiver.queue(),
               call->received());
  }

  // Until the call is finished.
  const Request& request() const { return request_; }
  Request& mutable_request() { return request_; }
  Response& response() { return response_; }

  void Finish(const grpc::Status& status) override {
    End();
    if (!status.ok()) return writer_.FinishWithError(status, finished());
    const grpc::Status written = Serialize(bytes_);
    if (!written.ok()) return writer_.FinishWithError(written, finished());
    Hold(static_cast<int64_t>(bytes_.Length()));
    writer_.Finish(bytes_, status, finished());
  }
  // Sends a serialised reply that others may send, too; of those who do, one has it as its own.
  void FinishWith(const grpc::ByteBuffer& reply, bool own) {
    End();
    if (own) Hold(static_cast<int64_t>(reply.Length()));
    bytes_ = reply;
    writer_.Finish(bytes_, grpc::Status::OK, finished());
  }
  // response(), which is empty afterwards.
  grpc::Status Serialize(grpc::ByteBuffer& bytes) {
    bool own = false;
    grpc::Status written = grpc::SerializationTraits<Response>::Serialize(response_, &bytes, &own);
    Response().Swap(&response_);  // The call may wait for the client for long.
    return written;
  }

 private:
  void End() {
    // The call goes on for a while; the memory of its request is for the next one, as long as it is
    // in a cache.
    Request().Swap(&request_);
    Forget();
    if (std::exchange(asked_, false)) receiver().Answered();
  }
  explicit UnaryCall(const Method& method)
      : RpcCall(method.receiver), method_(method), writer_(&context()) {}

  void Answer() override {
    asked_ = true;
    receiver().Asked();
    const grpc::Status read = Read(bytes_, method_.scan, request_);
    bytes_.Clear();
    if (!read.ok()) return Finish(read);
    method_.answer(*this);
  }
  void AwaitNext() override { Await(method_); }

  const Method& method_;
  bool asked_ = false;
  grpc::ByteBuffer bytes_;  // The request, then the reply.
  Request request_;
  Response response_;
  grpc::ServerAsyncResponseWriter<grpc::ByteBuffer> writer_;
};

// Calls of a method that wait for a client at a time.  More that arrive at once are kept by gRPC
// for a moment.  Few: gRPC takes the one that has waited longest, and with many its memory is in no
// cache any more (decision 0034).
inline constexpr int kAwaitedCalls = 8;

// A call of a method that nobody has.
class UnknownCall final : public RpcCall {
 public:
  static void Await(grpc::AsyncGenericService& service, CallReceiver& receiver);
  void Finish(const grpc::Status& status) override { stream_.Finish(status, finished()); }

 private:
  UnknownCall(grpc::AsyncGenericService& service, CallReceiver& receiver)
      : RpcCall(receiver), service_(service), stream_(&context()) {}
  void Answer() override;
  void AwaitNext() override { Await(service_, receiver()); }

  grpc::AsyncGenericService& service_;
  grpc::GenericServerAsyncReaderWriter stream_;
};

// A service of gRPC that receives its calls this way.
class RpcService {
 public:
  virtual ~RpcService() = default;
  virtual const char* full_name() const = 0;
  // What the server has to know before it starts.
  virtual grpc::Service& methods() = 0;
  // Receives calls of every method from now on.
  virtual void AwaitCalls(CallReceiver& receiver) = 0;
};

// That of the generated class `Api`, whose unary calls are answered by member functions of `Self`.
template <typename Self, typename Api>
class RpcServiceOf : public RpcService {
 public:
  const char* full_name() const final { return Api::service_full_name(); }
  grpc::Service& methods() final { return methods_; }

 protected:
  // The generated functions that ask for calls have them parsed by gRPC.
  struct RawMethods final : Api::AsyncService {
    using grpc::Service::RequestAsyncBidiStreaming;
    using grpc::Service::RequestAsyncServerStreaming;
    using grpc::Service::RequestAsyncUnary;
  };

  // Receives calls of one method from now on.  The service is borrowed, until the receiver has
  // stopped.
  template <typename Request, typename Response>
  void Await(CallReceiver& receiver, absl::string_view name,
             void (Self::*answer)(UnaryCall<Request, Response>&)) {
    using Call = UnaryCall<Request, Response>;
    const auto method = std::make_shared<const typename Call::Method>(typename Call::Method{
        receiver,
        [this, index = MethodIndex(Api::service_full_name(), name)](
            grpc::ServerContext* context, grpc::ByteBuffer* request,
            grpc::ServerAsyncResponseWriter<grpc::ByteBuffer>* writer,
            grpc::ServerCompletionQueue* queue, void* event) {
          methods_.RequestAsyncUnary(index, context, request, writer, queue, queue, event);
        },
        [this, answer](Call& call) { (static_cast<Self&>(*this).*answer)(call); }});
    receiver.Keep(method);
    for (int i = 0; i < kAwaitedCalls; ++i) Call::Await(*method);
  }

  RawMethods methods_;
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_RPC_CALL_RECEIVER_H_

// Calls of a real gRPC server, received by threads of ours.
// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/call_receiver.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "proto/health.grpc.pb.h"
#include "proto/predict.grpc.pb.h"

namespace ulfd::server {
namespace {

namespace v1 = ulfd::v1;
using Call = UnaryCall<v1::ListModelsRequest, v1::ListModelsResponse>;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int64_t kMaxHeaderBytes = 4096;
constexpr int kMaxFields = 100;

// Answers by what it is told to do.
class Service final : public RpcServiceOf<Service, v1::PredictionService> {
 public:
  explicit Service(std::function<void(Call&)> answer) : answer_(std::move(answer)) {}
  void AwaitCalls(CallReceiver& receiver) override {
    Await(receiver, "ListModels", &Service::ListModels);
  }

 private:
  void ListModels(Call& call) { answer_(call); }
  const std::function<void(Call&)> answer_;
};

struct AsyncCall {
  grpc::ClientContext context;
  v1::ListModelsRequest request;
  v1::ListModelsResponse response;
};

class CallReceiverTest : public ::testing::Test {
 protected:
  void Serve(int threads, std::function<void(Call&)> answer) {
    service_ = std::make_unique<Service>(std::move(answer));
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service_->methods());
    builder.RegisterAsyncGenericService(&others_);
    builder.AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
    builder.AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_COMPRESSION, 0);
    receiver_ = std::make_unique<CallReceiver>(
        builder, ReceiverOptions{.max_header_bytes = kMaxHeaderBytes,
                                 .message = {.max_fields = kMaxFields}});
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    service_->AwaitCalls(*receiver_);
    receiver_->Start(threads);
    channel_ = grpc::CreateChannel("127.0.0.1:" + std::to_string(port),
                                   grpc::InsecureChannelCredentials());
    stub_ = v1::PredictionService::NewStub(channel_);
  }
  void Shutdown() {
    server_->Shutdown(std::chrono::system_clock::now());
    receiver_->Stop();
  }
  ~CallReceiverTest() override {
    if (server_ != nullptr) Shutdown();
  }
  grpc::Status ListModels(milliseconds timeout, v1::ListModelsResponse* response) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + timeout);
    return stub_->ListModels(&context, {}, response);
  }
  // Serves calls that are answered at once, and counted.
  void ServeAndCount() {
    Serve(1, [this](Call& call) {
      ++answered_;
      call.Finish(grpc::Status::OK);
    });
  }
  // A call with headers and message of its own: its code, and `why` in the error if it is refused.
  void ExpectCode(grpc::StatusCode code, const char* why, grpc::ClientContext& context,
                  const v1::ListModelsRequest& request) {
    v1::ListModelsResponse response;
    const grpc::Status status = stub_->ListModels(&context, request, &response);
    EXPECT_EQ(status.error_code(), code) << status.error_message();
    if (!status.ok()) {
      EXPECT_THAT(status.error_message(), ::testing::HasSubstr(why));
    }
  }

  std::atomic<int> answered_{0};
  std::unique_ptr<Service> service_;
  std::unique_ptr<CallReceiver> receiver_;
  grpc::AsyncGenericService others_;  // Methods that the service has not.
  std::unique_ptr<grpc::Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::PredictionService::Stub> stub_;
};

TEST_F(CallReceiverTest, ACallThatFindsNoMemoryEndsAlone) {
  int calls = 0;
  Serve(1, [&calls](Call& call) {
    if (calls++ == 0) throw std::bad_alloc();
    call.Finish(grpc::Status::OK);
  });
  v1::ListModelsResponse response;
  EXPECT_EQ(ListModels(seconds(60), &response).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(ListModels(seconds(60), &response).ok());
}

// A call of any other method, which finds no memory.
class Greedy final : public RpcCall {
 public:
  static void Await(grpc::AsyncGenericService& service, CallReceiver& receiver) {
    if (!receiver.Enter()) return;
    auto* call = new Greedy(service, receiver);
    service.RequestCall(&call->generic_context(), &call->stream_, receiver.queue(),
                        receiver.queue(), call->received());
  }
  void Finish(const grpc::Status& status) override { stream_.Finish(status, finished()); }

 private:
  Greedy(grpc::AsyncGenericService& service, CallReceiver& receiver)
      : RpcCall(receiver), service_(service), stream_(&context()) {}
  void Answer() override { throw std::bad_alloc(); }
  void AwaitNext() override { Await(service_, receiver()); }

  grpc::AsyncGenericService& service_;
  grpc::GenericServerAsyncReaderWriter stream_;
};

TEST_F(CallReceiverTest, AStreamThatFindsNoMemoryEndsAlone) {
  ServeAndCount();
  Greedy::Await(others_, *receiver_);
  const auto health = grpc::health::v1::Health::NewStub(channel_);
  for (int i = 0; i < 2; ++i) {
    grpc::ClientContext context;
    grpc::health::v1::HealthCheckResponse response;
    EXPECT_EQ(health->Check(&context, {}, &response).error_code(),
              grpc::StatusCode::RESOURCE_EXHAUSTED);
  }
  v1::ListModelsResponse response;
  EXPECT_TRUE(ListModels(seconds(60), &response).ok());
}

TEST_F(CallReceiverTest, CallsOfManyClientsAreAnsweredByManyThreads) {
  constexpr int kClients = 8, kCalls = 200;
  static_assert(kClients * kCalls > kAwaitedCalls);
  std::atomic<int64_t> answered{0};
  Serve(3, [&](Call& call) {
    call.response().set_generation(++answered);
    // Every other one fails.
    call.Finish(answered % 2 == 0 ? grpc::Status::OK
                                  : grpc::Status(grpc::StatusCode::NOT_FOUND, "odd"));
  });
  std::atomic<int> good{0}, bad{0};
  std::vector<std::thread> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.emplace_back([&] {
      for (int k = 0; k < kCalls; ++k) {
        v1::ListModelsResponse response;
        const grpc::Status status = ListModels(seconds(60), &response);
        if (status.ok() && response.generation() > 0) ++good;
        if (status.error_code() == grpc::StatusCode::NOT_FOUND) ++bad;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(good + bad, kClients * kCalls);
  EXPECT_GT(good, 0);
  EXPECT_EQ(answered, kClients * kCalls);
}

TEST_F(CallReceiverTest, ACallThatIsAnsweredLaterHoldsUpNobody) {
  std::atomic<Call*> held{nullptr};
  Serve(1, [&](Call& call) {
    if (held.load() == nullptr) {
      held.store(&call);
    } else {
      call.Finish(grpc::Status::OK);
    }
  });
  v1::ListModelsResponse response;
  std::thread first([&] { EXPECT_TRUE(ListModels(seconds(60), &response).ok()); });
  while (held.load() == nullptr) std::this_thread::yield();
  v1::ListModelsResponse others;
  for (int i = 0; i < 2 * kAwaitedCalls; ++i) EXPECT_TRUE(ListModels(seconds(60), &others).ok());
  EXPECT_FALSE(held.load()->cancelled());
  held.load()->response().set_generation(7);
  held.load()->Finish(grpc::Status::OK);
  first.join();
  EXPECT_EQ(response.generation(), 7);
}

TEST_F(CallReceiverTest, SpareThreadsReceiveWhileAllOthersAreBusy) {
  constexpr int kBusy = 3;
  std::atomic<int> busy{0};
  std::atomic<bool> go_on{false};
  // The first calls keep the threads that receive them.
  Serve(1, [&](Call& call) {
    if (busy.fetch_add(1) < kBusy) {
      while (!go_on) {
      }
    }
    call.Finish(grpc::Status::OK);
  });
  std::vector<std::thread> clients;
  for (int i = 0; i < kBusy; ++i) {
    clients.emplace_back([&] {
      v1::ListModelsResponse mine;
      EXPECT_TRUE(ListModels(seconds(120), &mine).ok());
    });
  }
  while (busy < kBusy) std::this_thread::yield();
  v1::ListModelsResponse response;
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(ListModels(seconds(60), &response).ok());
  EXPECT_FALSE(go_on);
  EXPECT_GE(receiver_->spares(), kBusy);
  go_on.store(true);
  for (std::thread& client : clients) client.join();
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(ListModels(seconds(60), &response).ok());
}

TEST_F(CallReceiverTest, StopsWhileASpareThreadReceives) {
  std::atomic<Call*> held{nullptr};
  std::atomic<bool> go_on{false};
  Serve(1, [&](Call& call) {
    if (held.exchange(&call) != nullptr) return call.Finish(grpc::Status::OK);
    while (!go_on) {
    }
    call.Finish(grpc::Status::OK);
  });
  std::thread client([&] {
    v1::ListModelsResponse mine;
    ListModels(seconds(60), &mine);
  });
  while (held.load() == nullptr) std::this_thread::yield();
  v1::ListModelsResponse response;
  EXPECT_TRUE(ListModels(seconds(60), &response).ok());
  std::thread shutdown([&] { Shutdown(); });
  go_on.store(true);
  shutdown.join();
  client.join();
}

TEST_F(CallReceiverTest, ACallerThatLeavesIsNoticed) {
  std::atomic<Call*> held{nullptr};
  Serve(1, [&](Call& call) { held.store(&call); });
  v1::ListModelsResponse response;
  EXPECT_EQ(ListModels(milliseconds(100), &response).error_code(),
            grpc::StatusCode::DEADLINE_EXCEEDED);
  while (held.load() == nullptr) std::this_thread::yield();
  while (!held.load()->cancelled()) std::this_thread::yield();
  held.load()->Finish(grpc::Status::OK);
}

TEST_F(CallReceiverTest, StopWaitsForTheCallsUnderWay) {
  std::atomic<Call*> held{nullptr};
  Serve(2, [&](Call& call) { held.store(&call); });
  v1::ListModelsResponse response;
  std::thread client([&] {
    // The server has no patience.
    EXPECT_FALSE(ListModels(seconds(60), &response).ok());
  });
  while (held.load() == nullptr) std::this_thread::yield();
  std::atomic<bool> finished{false};
  std::thread worker([&] {
    while (!held.load()->cancelled()) std::this_thread::yield();
    finished.store(true);
    held.load()->Finish(grpc::Status::OK);
  });
  Shutdown();
  EXPECT_TRUE(finished);
  EXPECT_FALSE(receiver_->Enter());
  worker.join();
  client.join();
}

TEST_F(CallReceiverTest, HeadersBeyondTheLimitAreRefused) {
  ServeAndCount();
  for (const auto& [size, code] : {std::pair<size_t, grpc::StatusCode>{3900, grpc::StatusCode::OK},
                                   {4100, grpc::StatusCode::RESOURCE_EXHAUSTED}}) {
    grpc::ClientContext context;
    context.AddMetadata("x-large", std::string(size, 'x'));
    SCOPED_TRACE(size);
    ExpectCode(code, "max_header_bytes", context, {});
  }
  EXPECT_EQ(answered_, 1);
}

TEST_F(CallReceiverTest, AMessageIsLookedAtBeforeItIsParsed) {
  ServeAndCount();
  // Fields that ListModelsRequest does not know.
  for (const auto& [times, code] :
       {std::pair<int, grpc::StatusCode>{kMaxFields, grpc::StatusCode::OK},
        {kMaxFields + 1, grpc::StatusCode::RESOURCE_EXHAUSTED}}) {
    v1::ListModelsRequest request;
    for (int i = 0; i < times; ++i) {
      request.GetReflection()->MutableUnknownFields(&request)->AddVarint(7, 1);
    }
    grpc::ClientContext context;
    SCOPED_TRACE(times);
    ExpectCode(code, "max_request_fields", context, request);
  }
  EXPECT_EQ(answered_, 1);
}

TEST_F(CallReceiverTest, ACompressedMessageIsRefused) {
  ServeAndCount();
  for (const auto algorithm : {GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE}) {
    v1::ListModelsRequest request;
    // So that it is worth compressing.
    request.GetReflection()->MutableUnknownFields(&request)->AddLengthDelimited(
        7, std::string(100000, 'x'));
    grpc::ClientContext context;
    context.set_compression_algorithm(algorithm);
    ExpectCode(grpc::StatusCode::UNIMPLEMENTED, "identity only", context, request);
  }
  EXPECT_EQ(answered_, 0);
}

TEST_F(CallReceiverTest, AServerThatDoesNotStartLeavesNothing) {
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix:/nowhere/at/all", grpc::InsecureServerCredentials());
  Service service([](Call&) {});
  builder.RegisterService(&service.methods());
  CallReceiver receiver(builder, {.max_header_bytes = kMaxHeaderBytes});
  EXPECT_EQ(builder.BuildAndStart(), nullptr);
}

}  // namespace
}  // namespace ulfd::server

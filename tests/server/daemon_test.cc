// The daemon in this process: real ports, real calls, a real model.
// SPDX-License-Identifier: Apache-2.0
#include "server/daemon.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "google/protobuf/text_format.h"
#include "proto/admin.grpc.pb.h"
#include "proto/health.grpc.pb.h"
#include "proto/open_inference.grpc.pb.h"
#include "proto/predict.grpc.pb.h"
#include "server/rpc/grpc_status.h"
#include "tests/testing/loopback.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_model.h"

namespace ulfd::server {
namespace {

namespace v1 = ulfd::v1;
using grpc::StatusCode;
using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::EndsWith;
using ::testing::HasSubstr;

v1::PredictRequest TinyRequest() {
  v1::PredictRequest request;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(ulfd::testing::kTinyRequest, &request));
  return request;
}

class DaemonTest : public ::testing::Test {
 protected:
  DaemonTest() {
    options_.settings.set_model_repository(repository_.path());
    options_.settings.set_grpc_address("127.0.0.1");
    options_.settings.set_http_address("127.0.0.1");
    options_.settings.set_admin_address("127.0.0.1:0");
    options_.settings.set_grpc_port(0);
    options_.settings.set_http_port(0);
    options_.settings.set_workers(2);
    options_.settings.mutable_watch()->set_poll_interval_ms(20);
    options_.settings.mutable_watch()->set_settle_time_ms(0);
    options_.settings.mutable_shutdown()->set_drain_delay_ms(0);
    options_.settings.mutable_logging()->set_level("error");
    options_.port_file = ports_.File("ports");
  }
  void Start() {
    auto daemon = Daemon::Create(options_);
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    daemon_ = *std::move(daemon);
    channel_ = grpc::CreateChannel(absl::StrCat("127.0.0.1:", daemon_->grpc_port()),
                                   grpc::InsecureChannelCredentials());
    predict_ = v1::PredictionService::NewStub(channel_);
    kserve_ = inference::GRPCInferenceService::NewStub(channel_);
    health_ = grpc::health::v1::Health::NewStub(channel_);
    admin_ = ulfd::admin::v1::AdminService::NewStub(grpc::CreateChannel(
        absl::StrCat("127.0.0.1:", daemon_->admin_port()), grpc::InsecureChannelCredentials()));
  }
  void StartWithTinyModel() {
    ulfd::testing::WriteTinyModel(repository_.File("tiny/3"));
    Start();
    WaitUntilReady();
  }
  void WaitUntilReady() {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + seconds(30));
    HealthCheckRequest request;
    HealthCheckResponse response;
    const auto watch = health_->Watch(&context, request);
    while (watch->Read(&response) && response.status() != HealthCheckResponse::SERVING) {
    }
    ASSERT_EQ(response.status(), HealthCheckResponse::SERVING);
    context.TryCancel();
  }
  grpc::Status Predict(const v1::PredictRequest& request, v1::PredictResponse& response,
                       milliseconds timeout = seconds(30)) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + timeout);
    return predict_->Predict(&context, request, &response);
  }
  grpc::Status Predict(const v1::PredictRequest& request) {
    v1::PredictResponse response;
    return Predict(request, response);
  }
  HealthCheckResponse::ServingStatus Health(const std::string& service) {
    grpc::ClientContext context;
    HealthCheckRequest request;
    HealthCheckResponse response;
    request.set_service(service);
    const grpc::Status status = health_->Check(&context, request, &response);
    return status.error_code() == StatusCode::NOT_FOUND ? HealthCheckResponse::SERVICE_UNKNOWN
                                                        : response.status();
  }

  TempDir repository_, ports_;
  Options options_;
  std::unique_ptr<Daemon> daemon_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::PredictionService::Stub> predict_;
  std::unique_ptr<inference::GRPCInferenceService::Stub> kserve_;
  std::unique_ptr<grpc::health::v1::Health::Stub> health_;
  std::unique_ptr<ulfd::admin::v1::AdminService::Stub> admin_;
};

TEST_F(DaemonTest, Predicts) {
  StartWithTinyModel();
  v1::PredictRequest request = TinyRequest();
  request.set_return_timings(true);
  request.set_request_id("id-1");
  v1::PredictResponse response;
  const grpc::Status status = Predict(request, response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_THAT(response.outputs(0).values(), ::testing::ElementsAre(3.25, 1, 1.5, 1, 6, 1));
  EXPECT_EQ(response.model().name(), "tiny");
  EXPECT_EQ(response.model().version(), 3);
  EXPECT_EQ(response.request_id(), "id-1");
  EXPECT_TRUE(response.has_timings());
  EXPECT_GE(response.timings().total_us(), response.timings().queue_us());

  const std::string metrics = HttpGet(daemon_->http_port(), "/metrics");
  EXPECT_THAT(metrics,
              HasSubstr("ulfd_requests_total{model=\"tiny\",version=\"3\",code=\"OK\"} 1\n"));
  EXPECT_THAT(metrics, HasSubstr("ulfd_candidates_total{model=\"tiny\"} 3\n"));
  EXPECT_THAT(metrics, HasSubstr("ulfd_inflight_requests 0\n"));
  EXPECT_THAT(metrics, HasSubstr("ulfd_model_info{model=\"tiny\",version=\"3\",label=\"\",sha=\""));
  EXPECT_THAT(metrics, HasSubstr("ulfd_model_generation 1\n"));
  EXPECT_THAT(metrics, HasSubstr("ulfd_build_info{"));
  EXPECT_THAT(metrics, HasSubstr("process_cpu_seconds_total "));
}

TEST_F(DaemonTest, ErrorsHaveCodeAndText) {
  StartWithTinyModel();
  v1::PredictRequest request = TinyRequest();
  request.mutable_model()->set_name("nobody");
  EXPECT_EQ(Predict(request).error_code(), StatusCode::NOT_FOUND);
  EXPECT_THAT(Predict(request).error_message(), HasSubstr("nobody"));
  request = TinyRequest();
  request.mutable_model()->set_version(4);
  EXPECT_EQ(Predict(request).error_code(), StatusCode::NOT_FOUND);
  request.mutable_model()->set_label("canary");
  EXPECT_EQ(Predict(request).error_code(), StatusCode::NOT_FOUND);
  request = TinyRequest();
  request.add_outputs("scroe");
  EXPECT_EQ(Predict(request).error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Predict(request).error_message(), "output \"scroe\": unknown; did you mean \"score\"?");
  request = TinyRequest();
  request.set_request_id(std::string(17 << 20, 'x'));
  EXPECT_EQ(Predict(request).error_code(), StatusCode::RESOURCE_EXHAUSTED);
  // Long names are clipped.
  request = TinyRequest();
  request.add_outputs(std::string(100000, 'y'));
  EXPECT_EQ(Predict(request).error_message().size(), kMaxErrorBytes);

  const std::string metrics = HttpGet(daemon_->http_port(), "/metrics");
  EXPECT_THAT(metrics,
              HasSubstr("ulfd_requests_total{model=\"\",version=\"\",code=\"NOT_FOUND\"} 4\n"));
  EXPECT_THAT(metrics, ::testing::Not(HasSubstr("\"nobody\"")));
}

TEST_F(DaemonTest, DescribesModels) {
  StartWithTinyModel();
  v1::GetModelMetadataRequest request;
  v1::GetModelMetadataResponse metadata;
  request.mutable_model()->set_name("tiny");
  grpc::ClientContext context, list_context;
  ASSERT_TRUE(predict_->GetModelMetadata(&context, request, &metadata).ok());
  EXPECT_EQ(metadata.inputs_size(), 8);
  ASSERT_EQ(metadata.sparse_features_size(), 2);
  EXPECT_EQ(metadata.sparse_features(1).name(), "mid");
  EXPECT_EQ(metadata.sparse_features(1).level(), v1::TENSOR_LEVEL_AD);
  EXPECT_THAT(metadata.sparse_features(1).tables(), ::testing::ElementsAre("mid_table"));
  EXPECT_EQ(metadata.sparse_features(1).matrix(), "items");
  EXPECT_TRUE(metadata.sparse_features(1).has_padding_id());
  EXPECT_FALSE(metadata.sparse_features(0).has_padding_id());
  v1::ListModelsResponse list;
  ASSERT_TRUE(predict_->ListModels(&list_context, {}, &list).ok());
  ASSERT_EQ(list.models_size(), 1);
  ASSERT_EQ(list.models(0).versions_size(), 1);
  EXPECT_EQ(list.models(0).versions(0).state(), v1::VERSION_STATE_SERVING);
  EXPECT_TRUE(list.models(0).versions(0).serving());
  EXPECT_EQ(list.generation(), 1);
}

TEST_F(DaemonTest, ServesKserve) {
  StartWithTinyModel();
  grpc::ClientContext live_context, ready_context, model_context, none_context, metadata_context,
      server_context;
  inference::ServerLiveResponse live;
  ASSERT_TRUE(kserve_->ServerLive(&live_context, {}, &live).ok());
  EXPECT_TRUE(live.live());
  inference::ServerReadyResponse ready;
  ASSERT_TRUE(kserve_->ServerReady(&ready_context, {}, &ready).ok());
  EXPECT_TRUE(ready.ready());
  inference::ModelReadyRequest model;
  inference::ModelReadyResponse model_ready;
  model.set_name("tiny");
  model.set_version("3");
  ASSERT_TRUE(kserve_->ModelReady(&model_context, model, &model_ready).ok());
  EXPECT_TRUE(model_ready.ready());
  model.set_version("4");
  ASSERT_TRUE(kserve_->ModelReady(&none_context, model, &model_ready).ok());
  EXPECT_FALSE(model_ready.ready());
  inference::ModelMetadataRequest metadata_request;
  inference::ModelMetadataResponse metadata;
  metadata_request.set_name("tiny");
  ASSERT_TRUE(kserve_->ModelMetadata(&metadata_context, metadata_request, &metadata).ok());
  EXPECT_THAT(metadata.versions(), ::testing::ElementsAre("3"));
  inference::ServerMetadataResponse server;
  ASSERT_TRUE(kserve_->ServerMetadata(&server_context, {}, &server).ok());
  EXPECT_EQ(server.name(), "ulfd");
  EXPECT_THAT(server.extensions(),
              ::testing::ElementsAre("model_configuration", "statistics", "model_repository"));
}

TEST_F(DaemonTest, IsNotReadyBeforeItsModelIs) {
  std::filesystem::create_directories(repository_.File("tiny/3"));
  Start();
  EXPECT_THAT(HttpGet(daemon_->http_port(), "/healthz"), HasSubstr("200 OK"));
  EXPECT_THAT(HttpGet(daemon_->http_port(), "/readyz"), HasSubstr("503 Service Unavailable"));
  EXPECT_EQ(Health(""), HealthCheckResponse::NOT_SERVING);
  EXPECT_FALSE(Predict(TinyRequest()).ok());
  ulfd::testing::WriteTinyModel(repository_.File("tiny/3"));
  WaitUntilReady();
  EXPECT_THAT(HttpGet(daemon_->http_port(), "/readyz"), HasSubstr("200 OK"));
  EXPECT_EQ(Health("model/tiny"), HealthCheckResponse::SERVING);
  EXPECT_EQ(Health("ulfd.v1.PredictionService"), HealthCheckResponse::SERVING);
  EXPECT_EQ(Health("inference.GRPCInferenceService"), HealthCheckResponse::SERVING);
  EXPECT_EQ(Health("model/nobody"), HealthCheckResponse::SERVICE_UNKNOWN);
  EXPECT_TRUE(Predict(TinyRequest()).ok());
}

TEST_F(DaemonTest, WatchersComeAndGoWhileModelsDo) {
  options_.settings.set_grpc_threads(3);
  StartWithTinyModel();
  constexpr int kClients = 4, kWatches = 60;
  std::atomic<int> first_statuses{0}, running{kClients};
  std::vector<std::thread> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.emplace_back([&] {
      for (int k = 0; k < kWatches; ++k) {
        grpc::ClientContext context;
        context.set_deadline(std::chrono::system_clock::now() + seconds(60));
        HealthCheckRequest request;
        if (k % 2 == 0) request.set_service("model/other");
        const auto watch = health_->Watch(&context, request);
        HealthCheckResponse response;
        if (watch->Read(&response)) ++first_statuses;
        context.TryCancel();
        EXPECT_EQ(watch->Finish().error_code(), StatusCode::CANCELLED);
      }
      --running;
    });
  }
  while (running > 0) {
    ulfd::testing::WriteTinyModel(repository_.File("other/1"));
    std::this_thread::sleep_for(milliseconds(30));
    std::filesystem::remove_all(repository_.File("other"));
    std::this_thread::sleep_for(milliseconds(30));
    EXPECT_TRUE(Predict(TinyRequest()).ok());
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(first_statuses, kClients * kWatches);
  EXPECT_EQ(Health(""), HealthCheckResponse::SERVING);
}

TEST_F(DaemonTest, WatchFollowsAModelThatAppears) {
  StartWithTinyModel();
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + seconds(30));
  HealthCheckRequest request;
  HealthCheckResponse response;
  request.set_service("model/second");
  const auto watch = health_->Watch(&context, request);
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVICE_UNKNOWN);
  ulfd::testing::WriteTinyModel(repository_.File("second/1"));
  while (watch->Read(&response) && response.status() != HealthCheckResponse::SERVING) {
  }
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);
  context.TryCancel();
}

TEST_F(DaemonTest, ExpiredCallsAreNotComputed) {
  StartWithTinyModel();
  v1::PredictResponse response;
  EXPECT_EQ(Predict(TinyRequest(), response, milliseconds(-1)).error_code(),
            StatusCode::DEADLINE_EXCEEDED);
}

TEST_F(DaemonTest, AdminTellsAndReloads) {
  StartWithTinyModel();
  grpc::ClientContext status_context, reload_context;
  ulfd::admin::v1::GetStatusResponse report;
  ASSERT_TRUE(admin_->GetStatus(&status_context, {}, &report).ok());
  EXPECT_TRUE(report.server().ready());
  EXPECT_FALSE(report.server().draining());
  EXPECT_EQ(report.server().workers(), 2);
  EXPECT_EQ(report.server().max_queued_requests(), 1000);
  EXPECT_EQ(report.models_size(), 1);
  ulfd::testing::WriteTinyModel(repository_.File("another/1"));
  ulfd::admin::v1::ReloadRepositoryResponse reload;
  const grpc::Status status = admin_->ReloadRepository(&reload_context, {}, &reload);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(reload.models_size(), 2);
  EXPECT_EQ(reload.models(0).name(), "another");
  EXPECT_TRUE(reload.models(0).versions(0).serving());
  EXPECT_GE(reload.generation_after(), 2);
  const std::string status_page = HttpGet(daemon_->http_port(), "/statusz");
  EXPECT_THAT(status_page, HasSubstr("\"name\": \"another\""));
  EXPECT_THAT(status_page, HasSubstr("KIND_PUBLISHED"));
  EXPECT_THAT(HttpGet(daemon_->http_port(), "/plans.json"), HasSubstr("\"model\":\"another\""));
  EXPECT_THAT(HttpGet(daemon_->http_port(), "/statusz", "text/html"),
              HasSubstr("<title>ulfd</title>"));
  EXPECT_THAT(HttpGet(daemon_->http_port(), "/history.json"), HasSubstr("\"bounds\":[0.00025,"));
  EXPECT_THAT(HttpGet(daemon_->http_port(), "/metrics", "application/openmetrics-text;q=0.5"),
              EndsWith("# EOF\n"));
}

TEST_F(DaemonTest, DrainSaysNotServingAnswersAndThenStops) {
  StartWithTinyModel();
  grpc::ClientContext context;
  HealthCheckResponse response;
  const auto watch = health_->Watch(&context, {});
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);
  bool in_delay = true;
  daemon_->Drain([&](milliseconds) {
    if (in_delay) {  // Not serving, and yet answering.
      in_delay = false;
      EXPECT_TRUE(watch->Read(&response));
      EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);
      EXPECT_THAT(HttpGet(daemon_->http_port(), "/readyz"), HasSubstr("503"));
      EXPECT_THAT(HttpGet(daemon_->http_port(), "/healthz"), HasSubstr("200"));
      EXPECT_TRUE(Predict(TinyRequest()).ok());
    } else {
      std::this_thread::yield();
    }
    return false;
  });
  EXPECT_FALSE(watch->Read(&response));
  EXPECT_EQ(watch->Finish().error_code(), StatusCode::UNAVAILABLE);
  EXPECT_EQ(Predict(TinyRequest()).error_code(), StatusCode::UNAVAILABLE);
}

// The promise of a graceful end: whoever follows the health service loses no call.
TEST_F(DaemonTest, ClientsThatFollowHealthLoseNoCallWhenItDrains) {
  StartWithTinyModel();
  grpc::ClientContext context;
  const auto watch = health_->Watch(&context, {});
  HealthCheckResponse response;
  ASSERT_TRUE(watch->Read(&response));
  std::atomic<bool> serving{true};
  std::atomic<int> answered{0}, failed{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < 3; ++i) {
    callers.emplace_back([&] {
      while (serving.load()) ++(Predict(TinyRequest()).ok() ? answered : failed);
    });
  }
  std::thread follower([&] {
    while (watch->Read(&response) && response.status() == HealthCheckResponse::SERVING) {
    }
    serving.store(false);
  });
  while (answered.load() < 20 && failed.load() == 0) std::this_thread::yield();
  bool in_delay = true;
  daemon_->Drain([&](milliseconds) {
    if (!in_delay) return false;
    in_delay = false;  // As long as the drain delay lasts, every caller can notice and end.
    follower.join();
    for (std::thread& caller : callers) caller.join();
    return false;
  });
  EXPECT_EQ(failed.load(), 0);
}

TEST_F(DaemonTest, WritesThePortFile) {
  StartWithTinyModel();
  std::ifstream file(options_.port_file);
  std::ostringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str(),
            absl::StrCat("grpc_port: ", daemon_->grpc_port(), "\nhttp_port: ", daemon_->http_port(),
                         "\nadmin_port: ", daemon_->admin_port(), "\n"));
  options_.port_file = "/does/not/exist/ports";
  EXPECT_EQ(Daemon::Create(options_).status().message(),
            "port file: cannot write /does/not/exist/ports: No such file or directory");
}

TEST_F(DaemonTest, APortInUseIsAnError) {
  StartWithTinyModel();
  Options second = options_;
  second.settings.set_grpc_port(daemon_->grpc_port());
  EXPECT_EQ(Daemon::Create(second).status(),
            absl::UnavailableError(
                absl::StrCat("cannot listen on 127.0.0.1:", second.settings.grpc_port(),
                             " for gRPC: Address already in use")));
  second.settings.set_grpc_port(0);
  second.settings.set_http_port(daemon_->http_port());
  EXPECT_EQ(Daemon::Create(second).status(),
            absl::UnavailableError(
                absl::StrCat("cannot listen on 127.0.0.1:", second.settings.http_port(),
                             " for HTTP: Address already in use")));
  second.settings.set_http_port(0);
  second.settings.set_admin_address("nowhere");
  EXPECT_EQ(Daemon::Create(second).status(),
            absl::InvalidArgumentError("\"nowhere\", want IP:PORT or unix:PATH"));
}

TEST_F(DaemonTest, ARepositoryThatIsNotThereIsAnError) {
  options_.settings.set_model_repository("/does/not/exist");
  EXPECT_FALSE(Daemon::Create(options_).ok());
  std::vector<std::string> notices;
  const absl::Status status = CheckRepository(options_, notices);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/does/not/exist"));
}

}  // namespace
}  // namespace ulfd::server

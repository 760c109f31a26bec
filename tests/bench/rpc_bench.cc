// Calls per second of the daemon on a trivial model against those of a bare gRPC callback server.
// SPDX-License-Identifier: Apache-2.0
//
// Two servers run in processes of their own: `ulfd` beside this program, and this program with
// --bare, whose Predict answers every call with the bytes that the daemon answered, in gRPC's own
// threads.  A closed loop of asynchronous calls in this process loads one after the other in turns.
// With --before, the daemon of another build takes part; with --watched, one whose console is open,
// and one that traces.  It reports; only a call that fails ends it with 1.
#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "proto/otlp.grpc.pb.h"
#include "proto/predict.grpc.pb.h"
#include "tests/bench/bench_main.h"
#include "tests/bench/scratch_model.h"
#include "tests/bench/turns.h"
#include "tests/testing/loopback.h"

extern char** environ;

namespace ulfd::bench {
namespace {

namespace v1 = ulfd::v1;
namespace otlp = opentelemetry::proto::collector::trace::v1;
using std::chrono::steady_clock;

constexpr int kColumns = 25;      // 200 ads x 25 floats: 20 KB.
constexpr double kTarget = 0.85;  // Of the bare server's calls per second.
constexpr double kStartSeconds = 30;

struct Options {
  int turns = 100, in_flight = 64, channels = 4, ads = 200;
  double seconds = 0.2;
  bool watched = false;
  std::string before, bare, port_file;
};

// A server in a process of its own, ended with this object.
class ServerProcess {
 public:
  static absl::StatusOr<std::unique_ptr<ServerProcess>> Start(std::vector<std::string> arguments,
                                                              const std::string& port_file) {
    std::unique_ptr<ServerProcess> server(new ServerProcess());
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    if (posix_spawn(&server->pid_, argv[0], nullptr, nullptr, argv.data(), environ) != 0) {
      server->pid_ = 0;
      return absl::NotFoundError(absl::StrCat("cannot start ", arguments[0]));
    }
    const auto end = steady_clock::now() + std::chrono::duration<double>(kStartSeconds);
    while (steady_clock::now() < end) {
      std::ifstream file(port_file);
      std::string word;
      if (file >> word >> server->port_ && word == "grpc_port:") {
        file >> word >> server->http_port_;
        return server;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return absl::DeadlineExceededError(absl::StrCat(arguments[0], " does not listen"));
  }
  ~ServerProcess() {
    if (pid_ == 0) return;
    kill(pid_, SIGTERM);
    waitpid(pid_, nullptr, 0);
  }
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }
  int http_port() const { return http_port_; }
  // CPU time used so far, in seconds.
  double CpuSeconds() const {
    std::ifstream file(absl::StrCat("/proc/", pid_, "/stat"));
    std::stringstream text;
    text << file.rdbuf();
    // Fields 14 and 15 of the line; the second, in parentheses, may hold blanks.
    const std::string line = text.str();
    const std::vector<std::string> fields =
        absl::StrSplit(line.substr(std::min(line.rfind(')') + 2, line.size())), ' ');
    int64_t user = 0, system = 0;
    if (fields.size() < 13 || !absl::SimpleAtoi(fields[11], &user) ||
        !absl::SimpleAtoi(fields[12], &system)) {
      return 0;
    }
    return static_cast<double>(user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
  }

 private:
  ServerProcess() = default;
  pid_t pid_ = 0;
  int port_ = 0, http_port_ = 0;
};

// Calls that replace themselves when they end.
class ClosedLoop {
 public:
  ClosedLoop(const std::string& address, int channels, const v1::PredictRequest& request)
      : request_(request) {
    for (int c = 0; c < channels; ++c) {
      grpc::ChannelArguments arguments;
      arguments.SetInt("channel", c);  // Channels with equal arguments share a connection.
      stubs_.push_back(v1::PredictionService::NewStub(
          grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments)));
    }
  }

  // Runs `in_flight` calls at a time; counts those that end within `seconds`.  Returns calls per
  // second.
  absl::StatusOr<double> Run(int in_flight, double seconds) {
    stop_ = false;
    finished_ = 0;
    running_ = in_flight;
    const auto begin = steady_clock::now();
    for (int i = 0; i < in_flight; ++i) Begin(*stubs_[i % stubs_.size()]);
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    const int64_t finished = finished_;
    const std::chrono::duration<double> took = steady_clock::now() - begin;
    stop_ = true;
    while (running_ > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const MutexLock lock(mutex_);
    RETURN_IF_ERROR(failure_);
    return static_cast<double>(finished) / took.count();
  }

 private:
  struct Call {
    grpc::ClientContext context;
    v1::PredictResponse response;
  };
  void Begin(v1::PredictionService::Stub& stub) {
    auto* call = new Call();
    stub.async()->Predict(&call->context, &request_, &call->response,
                          [this, call, &stub](grpc::Status status) {
                            delete call;
                            if (!status.ok()) Fail(status);
                            ++finished_;
                            if (stop_) {
                              --running_;
                            } else {
                              Begin(stub);
                            }
                          });
  }
  void Fail(const grpc::Status& status) {
    stop_ = true;
    const MutexLock lock(mutex_);
    failure_ = absl::InternalError(absl::StrCat("a call failed: ", status.error_message()));
  }

  const v1::PredictRequest& request_;
  std::vector<std::unique_ptr<v1::PredictionService::Stub>> stubs_;
  std::atomic<bool> stop_{false};
  std::atomic<int64_t> finished_{0};
  std::atomic<int> running_{0};
  Mutex mutex_;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
};

class BareService final : public v1::PredictionService::CallbackService {
 public:
  explicit BareService(v1::PredictResponse response) : response_(std::move(response)) {}
  grpc::ServerUnaryReactor* Predict(grpc::CallbackServerContext* context,
                                    const v1::PredictRequest* request,
                                    v1::PredictResponse* response) override {
    *response = response_;
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

 private:
  const v1::PredictResponse response_;
};

// Takes spans, and does nothing with them.
class Collector final : public otlp::TraceService::CallbackService {
 public:
  grpc::ServerUnaryReactor* Export(grpc::CallbackServerContext* context,
                                   const otlp::ExportTraceServiceRequest* /*request*/,
                                   otlp::ExportTraceServiceResponse* /*response*/) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

// Serves until somebody ends the process.
absl::Status BeBare(const Options& options) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  v1::PredictResponse response;
  std::ifstream file(options.bare, std::ios::binary);
  if (!response.ParseFromIstream(&file)) return absl::NotFoundError(options.bare);
  BareService service(std::move(response));
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  Collector collector;
  builder.RegisterService(&collector);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return absl::UnavailableError("the bare server cannot listen");
  const std::string temporary = options.port_file + ".tmp";
  std::ofstream(temporary) << "grpc_port: " << port << "\n";
  std::filesystem::rename(temporary, options.port_file);
  int caught = 0;
  sigwait(&signals, &caught);
  server->Shutdown();
  return absl::OkStatus();
}

v1::PredictRequest MakeRequest(int ads) {
  v1::PredictRequest request;
  request.mutable_model()->set_name("trivial");
  v1::Feature& x = *request.add_ad_features();
  x.set_name("x");
  const std::vector<float> values(static_cast<size_t>(ads) * kColumns, 0.5f);
  x.mutable_dense()->mutable_floats()->Add(values.begin(), values.end());
  x.mutable_dense()->add_shape(ads);
  x.mutable_dense()->add_shape(kColumns);
  return request;
}

// Waits until the daemon has loaded the model; returns its answer.
absl::StatusOr<v1::PredictResponse> FirstAnswer(const std::string& address,
                                                const v1::PredictRequest& request) {
  const auto stub = v1::PredictionService::NewStub(
      grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  const auto end = steady_clock::now() + std::chrono::duration<double>(kStartSeconds);
  for (;;) {
    grpc::ClientContext context;
    v1::PredictResponse response;
    const grpc::Status status = stub->Predict(&context, request, &response);
    if (status.ok()) return response;
    if (steady_clock::now() >= end) {
      return absl::DeadlineExceededError(
          absl::StrCat("the daemon does not score: ", status.error_message()));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

// A server under load, and what was seen of it.
struct LoadedServer {
  std::string name;
  std::unique_ptr<ServerProcess> process;
  std::unique_ptr<ClosedLoop> loop;
  bool page_open = false;
  // Per turn: calls per second, CPU time of the server per call.
  std::vector<double> rates, cpu_us;
};

absl::Status LoadOnce(LoadedServer& server, const Options& options) {
  const double before = server.process->CpuSeconds();
  const auto begin = steady_clock::now();
  ASSIGN_OR_RETURN(const double rate, server.loop->Run(options.in_flight, options.seconds));
  const std::chrono::duration<double> took = steady_clock::now() - begin;
  server.rates.push_back(rate);
  server.cpu_us.push_back((server.process->CpuSeconds() - before) / (rate * took.count()) * 1e6);
  return absl::OkStatus();
}

absl::Status MeasureOnce(LoadedServer& server, const Options& options) {
  if (!server.page_open) return LoadOnce(server, options);
  // What the console asks for every two seconds, and for plans every ten.
  std::thread page([port = server.process->http_port()] {
    for (const char* path : {"/statusz", "/metrics", "/plans.json"}) server::HttpGet(port, path);
  });
  const absl::Status status = LoadOnce(server, options);
  page.join();
  return status;
}

std::string Percent(const Spread& ratio) {
  return absl::StrFormat("%.1f %% (%.1f .. %.1f)", 100 * ratio.median, 100 * ratio.low,
                         100 * ratio.high);
}

// The first server is the daemon, the second one the bare server.
void Print(const v1::PredictRequest& request, const Options& options,
           absl::Span<const LoadedServer> servers) {
  std::printf(
      "requests of %zu bytes, %d in flight on %d channels, %d turns of %.2g s each, client and "
      "servers on %u CPUs; medians\n\n| server | calls/s | CPU us per call |\n|---|---|---|\n",
      request.ByteSizeLong(), options.in_flight, options.channels, options.turns, options.seconds,
      std::thread::hardware_concurrency());
  for (const LoadedServer& server : servers) {
    std::printf("| %s | %.0f | %.1f |\n", server.name.c_str(), SpreadOf(server.rates).median,
                SpreadOf(server.cpu_us).median);
  }
  const Spread ratio = SpreadOf(Ratios(servers[0].rates, servers[1].rates));
  std::printf("\nulfd reaches %s of the bare server's calls; target at least %.0f %%: %s\n",
              Percent(ratio).c_str(), 100 * kTarget,
              ratio.median >= kTarget ? "reached" : "MISSED");
  for (const LoadedServer& other : servers.subspan(2)) {
    std::printf("%s reaches %s; ulfd makes %s of its calls\n", other.name.c_str(),
                Percent(SpreadOf(Ratios(other.rates, servers[1].rates))).c_str(),
                Percent(SpreadOf(Ratios(servers[0].rates, other.rates))).c_str());
  }
}

// Starts a daemon on the models in `scratch`, with a configuration if there is one.
absl::StatusOr<std::unique_ptr<ServerProcess>> StartDaemon(const std::string& program,
                                                           const std::string& scratch,
                                                           const std::string& name,
                                                           const std::string& config = "") {
  const std::string ports = absl::StrCat(scratch, "/", name, ".ports");
  const std::string config_file = absl::StrCat(scratch, "/", name, ".config");
  std::ofstream(config_file) << config;
  return ServerProcess::Start(
      {program, "--config=" + config_file, "--model_repository=" + scratch + "/models",
       "--grpc_address=127.0.0.1", "--http_address=127.0.0.1", "--grpc_port=0", "--http_port=0",
       "--log_level=error", "--port_file=" + ports},
      ports);
}

absl::Status Run(const Options& options) {
  const TempDirectory scratch;
  ScratchModel model;
  model.Input("x", {kColumns});
  model.Layer("inner_product_layer", {"x"}, "score", "", {{kColumns, 1}, {1}});
  RETURN_IF_ERROR(model.Load(scratch.path() + "/models/trivial/1").status());
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  const v1::PredictRequest request = MakeRequest(options.ads);
  std::vector<LoadedServer> servers(2);
  servers[0].name = "ulfd";
  const std::string daemon = std::filesystem::path(program).parent_path() / "ulfd";
  ASSIGN_OR_RETURN(servers[0].process, StartDaemon(daemon, scratch.path(), "ulfd"));
  ASSIGN_OR_RETURN(const v1::PredictResponse answer,
                   FirstAnswer(servers[0].process->address(), request));
  const std::string answer_file = scratch.path() + "/answer";
  std::ofstream(answer_file, std::ios::binary) << answer.SerializeAsString();
  servers[1].name = "bare callback server";
  const std::string bare_ports = scratch.path() + "/bare.ports";
  ASSIGN_OR_RETURN(servers[1].process, ServerProcess::Start({program, "--bare=" + answer_file,
                                                             "--port_file=" + bare_ports},
                                                            bare_ports));
  if (!options.before.empty()) {
    LoadedServer& before = servers.emplace_back();
    before.name = options.before;
    ASSIGN_OR_RETURN(before.process, StartDaemon(options.before, scratch.path(), "before"));
  }
  if (options.watched) {
    LoadedServer& page = servers.emplace_back();
    page.name = "ulfd, console open";
    page.page_open = true;
    ASSIGN_OR_RETURN(page.process, StartDaemon(daemon, scratch.path(), "page"));
    LoadedServer& traced = servers.emplace_back();
    traced.name = "ulfd, 1 % traced";
    ASSIGN_OR_RETURN(traced.process,
                     StartDaemon(daemon, scratch.path(), "traced",
                                 absl::StrCat("tracing { collector: \"",
                                              servers[1].process->address(), "\" share: 0.01 }")));
  }
  for (size_t i = 2; i < servers.size(); ++i) {
    RETURN_IF_ERROR(FirstAnswer(servers[i].process->address(), request).status());
  }
  for (LoadedServer& server : servers) {
    server.loop =
        std::make_unique<ClosedLoop>(server.process->address(), options.channels, request);
    RETURN_IF_ERROR(MeasureOnce(server, options));  // Warms up.
    server.rates.clear();
    server.cpu_us.clear();
  }
  for (int turn = 0; turn < options.turns; ++turn) {
    // There and back, so that a machine that becomes slower favours none of them.
    for (size_t i = 0; i < servers.size(); ++i) {
      const size_t which = turn % 2 == 0 ? i : servers.size() - 1 - i;
      RETURN_IF_ERROR(MeasureOnce(servers[which], options));
    }
  }
  Print(request, options, servers);
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  Options options;
  FlagSet flags("rpc_bench [flags]", "Calls per second of the daemon and of a bare gRPC server.");
  flags.Add("turns", "How often each server is measured.", &options.turns, 1);
  flags.Add("seconds", "Of each server in each turn.", &options.seconds, 1e-6);
  flags.Add("in_flight", "Calls at a time.", &options.in_flight, 1);
  flags.Add("channels", "Connections.", &options.channels, 1);
  flags.Add("ads", "Ads of a request, of 25 floats each.", &options.ads, 1);
  flags.Add("before", "The daemon of another build.", &options.before);
  flags.Add("watched",
            "Measures a daemon whose console is open, one look a turn, and one that traces, too.",
            &options.watched);
  flags.Add("bare", "FILE: be the bare server, answering with what FILE holds.", &options.bare);
  flags.Add("port_file", "Of the bare server.", &options.port_file);
  return RunMain(argc, argv, flags,
                 [&] { return options.bare.empty() ? Run(options) : BeBare(options); });
}

}  // namespace
}  // namespace ulfd::bench

int main(int argc, char** argv) { return ulfd::bench::Main(argc, argv); }

// SPDX-License-Identifier: Apache-2.0
#include "server/daemon.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "base/text_file.h"
#include "server/config/state_file.h"
#include "server/models/onnx_conversion.h"
#include "server/observe/process_metrics.h"
#include "server/scheduler/cpu_count.h"
#include "server/scoring/golden_check.h"
#include "server/services/console_page.h"
#include "server/system/listening_socket.h"
#include "server/system/threads.h"

namespace ulfd::server {
namespace {

using std::chrono::milliseconds;

int WorkerCount(const ServerConfig& settings) {
  return settings.workers() > 0 ? settings.workers() : UsableCpuCount();
}

int GrpcThreadCount(const ServerConfig& settings) {
  if (settings.grpc_threads() > 0) return settings.grpc_threads();
  // They also compute what is cheap (kAtOnce): one alone would leave the second CPU idle.
  const int cpus = UsableCpuCount();
  return std::clamp(cpus / 2, std::min(cpus, 2), 16);
}

// The CPU of each worker; empty: none of its own.
absl::StatusOr<std::vector<int>> WorkerCpus(const ServerConfig& settings) {
  std::vector<int> cpus;
  if (!settings.pin_workers()) return cpus;
  cpus = SpreadOverCores("", AffinityCpus());
  const auto workers = static_cast<size_t>(WorkerCount(settings));
  if (cpus.size() < workers) {
    return InvalidArgument("pin_workers: ", workers, " workers, but the affinity mask has only ",
                           cpus.size(), " CPUs");
  }
  cpus.resize(workers);
  return cpus;
}

// Below this a call is computed where it was received (decision 0035): to wake a worker, and to
// share the connection with it when it answers, costs 10 to 20 us of CPU.  The limit is above that
// because what is learned is wall time, which other threads of a busy machine stretch.
constexpr std::chrono::microseconds kAtOnce{100};

absl::StatusOr<WorkerPoolOptions> PoolOptions(const ServerConfig& settings, Metrics& metrics) {
  WorkerPoolOptions pool;
  ASSIGN_OR_RETURN(pool.cpus, WorkerCpus(settings));
  pool.queue = {.workers = WorkerCount(settings),
                .max_queued_requests = settings.limits().max_queued_requests(),
                .max_queued_rows = settings.limits().max_queued_rows(),
                .max_job_rows = settings.limits().max_ads(),
                .max_held_bytes = settings.limits().max_request_memory_bytes(),
                .max_queued_work = milliseconds(settings.scheduling().max_queued_ms()),
                .tile = std::chrono::microseconds(settings.scheduling().tile_us()),
                .max_batch_rows = settings.scheduling().max_batch_rows(),
                .max_batch_requests = settings.scheduling().max_batch_requests(),
                .codel_target = milliseconds(settings.scheduling().codel_target_ms()),
                .codel_interval = milliseconds(settings.scheduling().codel_interval_ms())};
  pool.at_once = kAtOnce;
  if (settings.scheduling().codel_target_ms() == 0)
    pool.queue.codel_target = std::chrono::hours(24);
  pool.on_batch = [&metrics](int worker, int64_t jobs, int64_t rows) {
    metrics.ObserveBatch(worker + 1, jobs, rows);
  };
  return pool;
}

// How long the end may take once every call has its answer: 0.8 s for each of two ports, so that
// replies can be taken, and the rest for what there is to free, which the system frees as well.
constexpr milliseconds kWayDown{1800};

RequestLimits Limits(const ServerConfig& settings) {
  return {.max_ads = settings.limits().max_ads(),
          .max_ids = settings.limits().max_ids_per_request(),
          .max_ids_per_feature = settings.limits().max_ids_per_feature(),
          .max_memory_bytes = settings.limits().max_request_memory_bytes(),
          .max_message_bytes = settings.limits().max_message_bytes()};
}

bool ReachableFromHereOnly(const std::string& address) {
  return absl::StartsWith(address, "unix:") || absl::StartsWith(address, "127.") ||
         address == "::1" || address == "[::1]";
}

std::unique_ptr<Tracer> MakeTracer(const ServerConfig& settings) {
  const config::v1::Tracing& tracing = settings.tracing();
  if (tracing.collector().empty()) return nullptr;
  return std::make_unique<Tracer>(
      TracerOptions{.share = tracing.share(), .max_queued_spans = tracing.max_queued_spans()});
}

HttpReply ReadyPage(const Readiness& readiness) {
  const std::string why = readiness.WhyNotReady();
  if (why.empty()) return {.body = "ok\n"};
  return {.code = 503, .body = why + "\n"};
}

}  // namespace

Daemon::Daemon(const Options& options)
    : options_(options),
      config_in_force_(options.config_text),
      // The words are checked.
      logger_(*ParseLogLevel(options.settings.logging().level()),
              *ParseLogFormat(options.settings.logging().format())),
      grpc_log_(logger_),
      call_log_(logger_, {.share = options.settings.logging().call_share(),
                          .max_per_second = options.settings.logging().max_calls_per_second()}),
      missing_ids_(options.settings.logging().missing_ids_per_second()),
      tracer_(MakeTracer(options.settings)),
      metrics_(WorkerCount(options.settings)),
      events_(logger_, metrics_, tracer_.get()) {}

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Create(const Options& options) {
  auto daemon = std::unique_ptr<Daemon>(new Daemon(options));
  RETURN_IF_ERROR(daemon->Start());
  return daemon;
}

namespace {

// Reads the plug-ins, which outlive the manager, as `redis` does.
absl::StatusOr<ModelManagerOptions> LoadingOptions(const Options& options,
                                                   const engine::RedisClusters& redis,
                                                   engine::LayerPlugins& plugins) {
  for (const std::string& path : options.settings.layer_plugins()) {
    RETURN_IF_ERROR(plugins.Add(path));
  }
  ModelManagerOptions manager = ManagerOptions(options);
  manager.layer_types = plugins.types();
  manager.redis = &redis;
  manager.check = [limits = Limits(options.settings)](
                      const engine::Model& model, const std::string& directory,
                      const engine::RunOptions& run, std::vector<std::string>& notices) {
    return CheckRecordings(model, directory, limits, run, notices);
  };
  if (const std::string& kept = options.settings.converted_directory(); !kept.empty()) {
    ASSIGN_OR_RETURN(std::shared_ptr<const OnnxConversion> conversion,
                     OnnxConversion::Create(kept));
    manager.link_targets.push_back(kept);  // What is converted is read there.
    manager.convert = [conversion](const std::string& directory,
                                   const engine::DirectoryRules& rules) {
      return conversion->Convert(directory, rules);
    };
  }
  if (const std::string& file = options.settings.state_file(); !file.empty()) {
    ASSIGN_OR_RETURN(manager.operator_states, ReadStateFile(file));
    manager.keep = [file](const OperatorStates& states) { return WriteStateFile(file, states); };
  }
  return manager;
}

// What calls would meet: versions that do not load, labels that lead nowhere.
std::vector<std::string> FaultsOf(const ModelLookup& models,
                                  const std::vector<ModelConfig>& configured) {
  std::vector<std::string> faults;
  std::map<std::string, std::set<int64_t>> serving;  // By model.
  for (const ModelStatus& model : models.List()) {
    for (const VersionStatus& version : model.versions) {
      if (version.serving != nullptr) serving[model.name].insert(version.version);
      if (version.state == VersionState::kFailed) faults.push_back(version.error);
    }
    if (model.required && !serving.contains(model.name)) {
      faults.push_back(absl::StrCat("model \"", model.name, "\": no version of it serves",
                                    model.error.empty() ? "" : ": ", model.error));
    }
  }
  for (const ModelConfig& model : configured) {
    const auto check = [&](absl::string_view setting, int64_t version) {
      if (serving[model.name].contains(version)) return;
      faults.push_back(absl::StrCat("model \"", model.name, "\": ", setting, ": version ", version,
                                    " does not serve"));
    };
    for (const int64_t version : model.policy.specific) check("version_policy", version);
    for (const auto& [label, version] : model.labels) {
      check(absl::StrCat("label \"", label, "\""), version);
    }
  }
  return faults;
}

// What a start would write to the log; of a manager that works on one thread.
class NoticeCollector final : public ModelObserver {
 public:
  explicit NoticeCollector(std::vector<std::string>& notices) : notices_(notices) {}
  void OnNotice(const std::string& name, int64_t version, const std::string& notice) override {
    const std::string of_version = version == 0 ? "" : absl::StrCat(" v", version);
    notices_.push_back(
        name.empty() ? notice : absl::StrCat("model \"", name, "\"", of_version, ": ", notice));
  }

 private:
  std::vector<std::string>& notices_;
};

// Settings that are good and do what nobody may have meant.
std::vector<std::string> NoticesOf(const ServerConfig& settings, const Security& security) {
  std::vector<std::string> notices;
  const auto check_clients = [&](const std::string& whose, const auto& clients) {
    for (const std::string& client : security.WithoutToken(clients)) {
      notices.push_back(absl::StrCat(whose, ": client ", Quote(client), " has no token in ",
                                     settings.authentication().token_file()));
    }
  };
  check_clients("authentication.allowed_clients", settings.authentication().allowed_clients());
  check_clients("authentication.admin_clients", settings.authentication().admin_clients());
  for (const config::v1::ModelConfig& model : settings.models()) {
    check_clients(absl::StrCat("model ", Quote(model.name()), ": allowed_clients"),
                  model.allowed_clients());
  }
  const std::string& admin = settings.admin_address();
  if (!admin.empty() && !ReachableFromHereOnly(admin) &&
      settings.authentication().admin_clients().empty() &&
      settings.admin_tls().client_ca_file().empty()) {
    notices.push_back(absl::StrCat("admin_address: ", admin,
                                   " asks nobody who they are: want admin_tls with a "
                                   "client_ca_file, or authentication.admin_clients"));
  }
  const std::string& address = settings.grpc_address();
  if (!settings.authentication().token_file().empty() && !settings.has_tls() &&
      !ReachableFromHereOnly(address)) {
    notices.push_back(absl::StrCat("grpc_address: ", address,
                                   " with tokens without tls: connections from other machines are "
                                   "closed"));
  }
  const bool wants_recorder =
      settings.recorder().slowest_per_minute() > 0 ||
      absl::c_any_of(settings.models(), [](const auto& model) { return model.record_share() > 0; });
  if (settings.recorder().directory().empty() && wants_recorder) {
    notices.push_back("nothing is recorded: recorder.directory is not set");
  }
  for (const std::string& directory : settings.model_link_targets()) {
    std::error_code ignored;
    if (std::filesystem::is_directory(directory, ignored)) continue;
    notices.push_back(absl::StrCat("model_link_targets: ", directory, " is no directory"));
  }
  return notices;
}

}  // namespace

absl::Status Daemon::Start() {
  for (const char* name : {"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY"}) {
    if (std::getenv(name) == nullptr) continue;
    logger_.Warning("libgomp may bind the whole daemon to one CPU", {{"variable", name}});
  }
  if (tracer_ != nullptr) {
    const config::v1::Tracing& tracing = options_.settings.tracing();
    trace_exporter_ = std::make_unique<TraceExporter>(
        TraceExporterOptions{.collector = tracing.collector(),
                             .timeout = milliseconds(tracing.timeout_ms()),
                             .server_version = ThisBuild().version},
        *tracer_, logger_);
  }
  ASSIGN_OR_RETURN(security_, Security::Create(options_.settings, logger_));
  for (const std::string& notice : NoticesOf(options_.settings, *security_)) {
    logger_.Warning(notice);
  }
  redis_ = std::make_unique<engine::RedisClusters>(RedisOptionsOf(options_.settings));
  ASSIGN_OR_RETURN(ModelManagerOptions manager, LoadingOptions(options_, *redis_, plugins_));
  for (const auto& [name, state] : manager.operator_states) {
    logger_.Info("operators changed the model before the start",
                 {{"model", name}, {"state_file", options_.settings.state_file()}});
  }
  ASSIGN_OR_RETURN(models_, ModelManager::Create(std::move(manager), &events_));
  ASSIGN_OR_RETURN(WorkerPoolOptions pool, PoolOptions(options_.settings, metrics_));
  ASSIGN_OR_RETURN(pool_, WorkerPool::Create(std::move(pool), clock_));
  lookups_ = std::make_unique<LookupPool>(options_.settings.lookup_threads(),
                                          options_.settings.limits().max_queued_requests());
  shadow_ = std::make_unique<Shadow>(*models_, Limits(options_.settings), logger_);
  RETURN_IF_ERROR(StartRecorder());
  readiness_ = std::make_unique<Readiness>(*models_);
  model_metrics_ = std::make_unique<ModelMetrics>(*models_);
  report_ = std::make_unique<StatusReport>(*models_, *pool_, *readiness_, slow_calls_, events_,
                                           options_.settings.limits().max_queued_requests(),
                                           options_.settings.limits().max_queued_rows());
  history_ = std::make_unique<TrafficHistory>(metrics_, *pool_);
  if (options_.settings.client_quota().max_rows() > 0) {
    client_quota_ = std::make_unique<ClientQuota>(options_.settings.client_quota().max_rows());
  }
  users_ =
      std::make_unique<UserStore>(options_.settings.limits().kept_users_bytes(),
                                  milliseconds(options_.settings.limits().kept_users_ms()), clock_);
  context_ = std::unique_ptr<ServingContext>(new ServingContext{
      *models_, *pool_, metrics_, logger_, clock_, Limits(options_.settings), abandon_,
      client_quota_.get(), options_.settings.client_quota().metadata_key(), shadow_.get(),
      recorder_.get(), users_.get(), &call_log_, tracer_.get(), &slow_calls_, lookups_.get(),
      options_.settings.logging().missing_ids_per_second() > 0 ? &missing_ids_ : nullptr});
  RETURN_IF_ERROR(StartHttp());
  RETURN_IF_ERROR(StartGrpc());
  serving_.store(true);
  RETURN_IF_ERROR(WritePortFile());
  logger_.Info("listening", {{"grpc_port", grpc_port()},
                             {"http_port", http_port()},
                             {"admin_port", admin_port()},
                             {"workers", WorkerCount(options_.settings)},
                             {"version", ThisBuild().version}});
  models_->Start();
  return absl::OkStatus();
}

absl::Status Daemon::StartRecorder() {
  if (options_.settings.recorder().directory().empty()) return absl::OkStatus();
  const auto on_change = [this](const absl::Status& status, int64_t lost) {
    if (status.ok()) {
      logger_.Info("recorder goes on", {{"calls_lost", lost}});
    } else {
      logger_.Error("recorder stopped",
                    {{"error", status.ToString(absl::StatusToStringMode::kWithNoExtraData)},
                     {"retry_ms", options_.settings.recorder().retry_interval_ms()}});
    }
  };
  ASSIGN_OR_RETURN(recorder_, Recorder::Create(RecorderOptionsOf(options_), clock_, on_change));
  return absl::OkStatus();
}

absl::Status Daemon::StartHttp() {
  HttpServer::Pages all;
  all.quick["/healthz"] = [] { return HttpReply{.body = "ok\n"}; };
  all.quick["/readyz"] = [this] { return ReadyPage(*readiness_); };
  std::map<std::string, HttpServer::Page>& pages = all.dear;
  const std::vector<std::pair<std::string, std::string>> vary = {{"Vary", "Accept"}};
  pages["/metrics"] = [this, vary] {
    return HttpReply{.content_type = "text/plain; version=0.0.4; charset=utf-8",
                     .body = CollectMetrics().Text(),
                     .headers = vary};
  };
  pages["/metrics application/openmetrics-text"] = [this, vary] {
    return HttpReply{.content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8",
                     .body = CollectMetrics().OpenMetricsText(),
                     .headers = vary};
  };
  pages["/statusz"] = [this, vary] {
    return HttpReply{.content_type = "application/json", .body = report_->Json(), .headers = vary};
  };
  pages["/statusz text/html"] = [page = ConsolePage()] { return page; };
  pages["/plans.json"] = [this] {
    return HttpReply{.content_type = "application/json", .body = PlansJson(*models_, metrics_)};
  };
  pages["/history.json"] = [this] {
    return HttpReply{.content_type = "application/json", .body = history_->ToJson()};
  };
  HttpServer::Limits limits;
  limits.max_connections = static_cast<int>(RoomForConnections().http);
  HttpServer::Service service;
  if (options_.settings.http_inference()) {
    // As many as receive gRPC's calls: they do the same.
    rest_ = std::make_unique<RestService>(
        *context_, *security_, *readiness_, ThisBuild().version,
        JsonLimits{.max_fields = options_.settings.limits().max_request_fields()},
        GrpcThreadCount(options_.settings));
    service.prefix = "/v2";
    service.max_body_bytes = options_.settings.limits().max_message_bytes();
    // What is read of a body takes up to eight times its size beside it, and a reply as JSON four
    // times that of its bytes.
    const uint64_t quota = options_.settings.connections().memory_quota_bytes();
    service.max_bodies_bytes = std::max(2 * service.max_body_bytes, quota / 16);
    limits.max_unsent_bytes = std::max(5 * service.max_body_bytes, quota / 8);
    service.admit = [this](const HttpRequest& request, const std::string& peer) {
      return rest_->Admit(request, peer);
    };
    service.take = [this](std::unique_ptr<HttpExchange> exchange) {
      rest_->Take(std::move(exchange));
    };
  }
  ASSIGN_OR_RETURN(
      http_, HttpServer::Create(options_.settings.http_address(), options_.settings.http_port(),
                                std::move(all), std::move(service), limits));
  return absl::OkStatus();
}

absl::Status Daemon::StartGrpc() {
  prediction_ = std::make_unique<PredictionService>(*context_, *security_);
  kserve_ =
      std::make_unique<KserveService>(*context_, *security_, *readiness_, ThisBuild().version);
  tf_prediction_ = std::make_unique<TfPredictionService>(*context_, *security_);
  tf_models_ = std::make_unique<TfModelService>(*context_, *security_);
  std::vector<std::string> names = {ulfd::v1::PredictionService::service_full_name(),
                                    inference::GRPCInferenceService::service_full_name(),
                                    tf_prediction_->full_name(), tf_models_->full_name()};
  if (!options_.settings.admin_address().empty()) {
    names.push_back(ulfd::admin::v1::AdminService::service_full_name());
  }
  health_ = std::make_unique<HealthService>(*models_, *readiness_, std::move(names));
  events_.set_listeners(health_.get(), readiness_.get(), models_.get());
  if (!options_.settings.admin_address().empty()) {
    ASSIGN_OR_RETURN(const Endpoint admin, ParseEndpoint(options_.settings.admin_address()));
    admin_ =
        std::make_unique<AdminService>(*models_, *report_, clock_, [this] { return ReadChange(); });
    ASSIGN_OR_RETURN(admin_grpc_, GrpcListener::Create(admin.address, admin.port, /*threads=*/1,
                                                       options_.settings, security_->admin(),
                                                       {admin_.get()}, logger_));
  }
  ASSIGN_OR_RETURN(
      grpc_,
      GrpcListener::Create(
          options_.settings.grpc_address(), options_.settings.grpc_port(),
          GrpcThreadCount(options_.settings), options_.settings, security_->grpc(),
          {prediction_.get(), kserve_.get(), tf_prediction_.get(), tf_models_.get(), health_.get()},
          logger_));
  return absl::OkStatus();
}

absl::StatusOr<ModelChange> Daemon::ReadChange() {
  // First: what changes from here on is a change for the next SIGHUP, too.
  const absl::StatusOr<std::string> text = ReadTextFile(options_.config_file);
  ASSIGN_OR_RETURN(ModelChange change, ReadConfigure(options_));
  change.published = [this, text = text.value_or(""), shares = RecordShares(change.models)] {
    config_in_force_ = text;
    if (recorder_ != nullptr) recorder_->SetModelShares(shares);
  };
  return change;
}

void Daemon::TakeConfigSoon(bool asked) {
  // A long load must not find a heap of looks behind it.
  if (options_.config_file.empty() || (!asked && looking_at_config_.exchange(true))) return;
  const auto read = [this, asked]() -> absl::StatusOr<ModelChange> {
    const absl::StatusOr<std::string> text = ReadTextFile(options_.config_file);
    const std::string found = text.ok() ? *text : std::string(text.status().message());
    const std::string before = std::exchange(config_seen_, found);
    // What operators changed meanwhile stays.
    if (text.ok() && found == config_in_force_) return AlreadyExists("no change");
    // Nobody asked: what is being written is left alone, and what was refused is not tried again.
    if (!asked && (found != before || found == config_tried_)) {
      return AlreadyExists("no news");
    }
    config_tried_ = found;
    return ReadChange();
  };
  models_->Apply(read, [this](const ModelChangeResult& result) {
    looking_at_config_.store(false);
    if (absl::IsAlreadyExists(result.status)) return;
    const LogField file = {"file", options_.config_file};
    if (result.applied) return logger_.Info("the configuration is in force", {file});
    absl::Status why = result.status;
    for (const ModelOutcome& model : result.models) {
      why.Update(model.error);
      for (const VersionChange& version : model.versions) why.Update(version.error);
    }
    logger_.Error("the configuration is refused, the one before stays in force",
                  {file, {"error", why.ToString(absl::StatusToStringMode::kWithNoExtraData)}});
  });
}

MetricPage Daemon::CollectMetrics() const {
  MetricPage page;
  metrics_.Collect(page);
  page.AddCounter("ulfd_log_lines_dropped_total", "Log lines that nobody read in time",
                  logger_.dropped());
  if (recorder_ != nullptr) CollectRecorder(recorder_->Stats(), page);
  security_->Collect(page);
  if (tracer_ != nullptr) tracer_->Collect(page);
  // The HTTP port answers before the others are there.
  if (serving_.load()) {
    users_->Collect(page);
    grpc_->Collect(page);
  }
  model_metrics_->Collect(page);
  CollectScheduler(pool_->Stats(), page);
  shadow_->Collect(page);
  const BuildFacts build = ThisBuild();
  page.AddGauge("ulfd_build_info", "1; what runs", 1,
                {{"version", build.version}, {"build", build.build}});
  CollectProcessMetrics(page);
  return page;
}

absl::Status Daemon::WritePortFile() const {
  if (options_.port_file.empty()) return absl::OkStatus();
  std::string text = absl::StrCat("grpc_port: ", grpc_port(), "\nhttp_port: ", http_port(), "\n");
  if (admin_ != nullptr) absl::StrAppend(&text, "admin_port: ", admin_port(), "\n");
  return Annotate(WriteTextFile(options_.port_file, text), "port file");
}

std::optional<milliseconds> Daemon::config_interval() const {
  const config::v1::RepositoryWatch& watch = options_.settings.watch();
  if (options_.config_file.empty() || !watch.configuration()) return std::nullopt;
  return milliseconds(watch.poll_interval_ms());
}

void Daemon::LookAtConfig() { TakeConfigSoon(/*asked=*/false); }

void Daemon::Reload() {
  logger_.Info("looking at configuration and repository on request");
  TakeConfigSoon(/*asked=*/true);
  // The deadline has passed already: the look is asked for, not awaited.
  const absl::Status status = models_->PollNow(clock_.Now());
  if (!status.ok() && !absl::IsDeadlineExceeded(status)) {
    logger_.Error("cannot look at the repository",
                  {{"error", status.ToString(absl::StatusToStringMode::kWithNoExtraData)}});
  }
}

std::optional<TimePoint> Daemon::Drain(const std::function<bool(milliseconds)>& hurry) {
  logger_.Info("draining", {{"delay_ms", options_.settings.shutdown().drain_delay_ms()}});
  readiness_->StartDraining();
  health_->Refresh();
  bool hurried = hurry(milliseconds(options_.settings.shutdown().drain_delay_ms()));
  logger_.Info("taking no more calls");
  health_->EndWatches();  // Open streams would hold up the shutdown.
  if (admin_ != nullptr) admin_->Stop();
  abandon_.store(hurried);
  const TimePoint until =
      clock_.Now() + milliseconds(options_.settings.shutdown().drain_timeout_ms());
  const auto shut_down = [this, until] {
    for (GrpcListener* const port : {admin_grpc_.get(), grpc_.get()}) {
      const auto left = std::chrono::duration_cast<milliseconds>(until - clock_.Now());
      if (port != nullptr) port->Shutdown(std::max(milliseconds(0), left));
    }
    pool_->Drain();
  };
  TimePoint answered = clock_.Now();
  const auto give_up = [&] {
    if (hurry(milliseconds(20))) abandon_.store(hurried = true);
    if (AnyCallWaits()) answered = std::min(clock_.Now(), until);
    return clock_.Now() > answered + kWayDown;
  };
  const bool ended = EndsUnless(shut_down, give_up);
  if (recorder_ != nullptr) recorder_->Finish();
  logger_.Info("drained", {{"hurried", hurried ? 1 : 0}});
  if (!ended) return std::nullopt;
  return answered + kWayDown;
}

bool Daemon::AnyCallWaits() const {
  const SchedulerStats work = pool_->Stats();
  return grpc_->unanswered() > 0 || work.queued_requests > 0 || work.busy_workers > 0;
}

Daemon::~Daemon() {
  // Servers first, even where Start failed half-way: nothing may call into what is being destroyed.
  if (health_ != nullptr) health_->EndWatches();
  if (admin_ != nullptr) admin_->Stop();
  http_.reset();  // Its pages look at the ports.
  rest_.reset();
  grpc_.reset();
  admin_grpc_.reset();
  admin_.reset();
  history_.reset();  // Its thread looks at the workers.
  // The manager's threads may be telling the health service something: they end before it does.
  // Workers hold models, so they go first.
  events_.set_listeners(nullptr, nullptr, nullptr);
  pool_.reset();
  shadow_.reset();
  models_.reset();
}

absl::Status CheckRepository(const Options& options, std::vector<std::string>& notices) {
  RETURN_IF_ERROR(WorkerCpus(options.settings).status());
  Logger quiet(LogLevel::kError, *ParseLogFormat(options.settings.logging().format()));
  ASSIGN_OR_RETURN(const auto security, Security::Create(options.settings, quiet));
  notices = NoticesOf(options.settings, *security);
  engine::LayerPlugins plugins;
  const engine::RedisClusters redis(RedisOptionsOf(options.settings));
  RETURN_IF_ERROR(redis.CheckFiles());
  ASSIGN_OR_RETURN(ModelManagerOptions manager, LoadingOptions(options, redis, plugins));
  manager.keep = nullptr;
  // All at once, on this thread.
  manager.poll_interval = milliseconds(-1);
  manager.settle_time = milliseconds(0);
  NoticeCollector observer(notices);
  ASSIGN_OR_RETURN(const auto models, ModelManager::Create(std::move(manager), &observer));
  models->Poll();
  std::vector<std::string> faults = FaultsOf(*models, options.models);
  const std::vector<ModelStatus> found = models->List();
  for (const ModelStatus& model : found) {
    for (const std::string& text : LabelsOfNoVersion(model)) observer.OnNotice(model.name, 0, text);
  }
  for (const auto& [setting, address] :
       {std::pair("grpc_address", options.settings.grpc_address()),
        std::pair("http_address", options.settings.http_address())}) {
    // Its port may be this daemon's, which runs.
    const absl::Status listens = ListenOn(address, 0, setting).status();
    if (!listens.ok()) notices.emplace_back(listens.message());
  }
  if (found.empty()) {
    notices.push_back(
        absl::StrCat("there is no model yet in ", options.settings.model_repository()));
  } else if (faults.empty() && !models->Ready()) {
    faults.push_back(Readiness(*models).WhyNotReady());
  }
  if (faults.empty()) return absl::OkStatus();
  return FailedPrecondition(absl::StrJoin(faults, "\n"));
}

}  // namespace ulfd::server

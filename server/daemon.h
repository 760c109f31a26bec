// Daemon: owns everything that serves, from the log to the ports, and takes it down in order.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_DAEMON_H_
#define ULFD_SERVER_DAEMON_H_

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/layers/plugin.h"
#include "engine/stores/redis_store.h"
#include "server/config/options.h"
#include "server/models/model_manager.h"
#include "server/observe/call_log.h"
#include "server/observe/http_server.h"
#include "server/observe/logging.h"
#include "server/observe/metrics.h"
#include "server/recorder/recorder.h"
#include "server/rpc/grpc_listener.h"
#include "server/rpc/grpc_log.h"
#include "server/rpc/listener_security.h"
#include "server/rpc/trace_exporter.h"
#include "server/scheduler/clock.h"
#include "server/scheduler/lookup_pool.h"
#include "server/scheduler/worker_pool.h"
#include "server/scoring/score_call.h"
#include "server/scoring/shadow.h"
#include "server/scoring/user_store.h"
#include "server/services/admin_service.h"
#include "server/services/health_service.h"
#include "server/services/kserve_service.h"
#include "server/services/model_events.h"
#include "server/services/model_metrics.h"
#include "server/services/prediction_service.h"
#include "server/services/readiness.h"
#include "server/services/rest_service.h"
#include "server/services/status_report.h"
#include "server/services/tf_serving_service.h"
#include "server/services/traffic_history.h"

namespace ulfd::server {

class Daemon {
 public:
  // Listens on all ports, writes the port file and starts to load models; calls are answered from
  // then on, with UNAVAILABLE until their model is loaded.  Errors: a repository that does not
  // exist, a port in use, a port file that cannot be written. Threads are started in here: block
  // the signals that somebody waits for first.
  static absl::StatusOr<std::unique_ptr<Daemon>> Create(const Options& options);
  // REQUIRES: Drain has returned, or nobody calls any more.
  ~Daemon();

  int grpc_port() const { return grpc_->port(); }
  int http_port() const { return http_->port(); }
  // 0 without admin_address.
  int admin_port() const { return admin_grpc_ == nullptr ? 0 : admin_grpc_->port(); }

  // Takes over what the configuration file says of models, if it differs from what is in force, and
  // looks at the repository; does not wait.
  void Reload();
  // How often LookAtConfig wants to be called; nullopt: never.
  std::optional<std::chrono::milliseconds> config_interval() const;
  // As Reload for the configuration file alone, once it is different and at rest.
  void LookAtConfig();

  // Says "not serving", keeps answering for drain_delay, then takes no more calls and returns when
  // those under way have ended, at the latest after drain_timeout.  `hurry(t)` waits for up to t
  // and returns true if somebody wants it to go faster: no more delay, and calls under way end with
  // UNAVAILABLE at their next check.  What was recorded is on disk then.
  // Returns by when the daemon should be gone, for nobody waits for anything any more; nullopt:
  // that has passed, and something still holds up the end (a peer that keeps one of gRPC's threads,
  // a layer that does not stop), so the daemon cannot be destroyed.
  std::optional<TimePoint> Drain(const std::function<bool(std::chrono::milliseconds)>& hurry);

 private:
  explicit Daemon(const Options& options);
  absl::Status Start();
  absl::Status StartRecorder();
  absl::Status StartHttp();
  absl::Status StartGrpc();
  absl::Status WritePortFile() const;
  // What ReloadConfig has to carry out.
  absl::StatusOr<ModelChange> ReadChange();
  // `asked`: by somebody, rather than by the clock.
  void TakeConfigSoon(bool asked);
  // Whether somebody still waits for a score, or a worker computes one.
  bool AnyCallWaits() const;
  // What /metrics says.
  MetricPage CollectMetrics() const;

  // In the order of construction; each uses what stands above it, and destruction goes the other
  // way.
  const Options options_;
  const SteadyClock clock_;
  std::atomic<bool> abandon_{false};
  std::atomic<bool> serving_{false};  // grpc_ is there.
  // Texts of the file, of the loader thread: in force, of the last look, taken or refused last.
  std::string config_in_force_, config_seen_, config_tried_;
  std::atomic<bool> looking_at_config_{false};
  Logger logger_;
  const GrpcLog grpc_log_;
  CallLog call_log_;
  LineLimit missing_ids_;
  SlowCalls slow_calls_;
  std::unique_ptr<Tracer> tracer_;  // Null without tracing.
  Metrics metrics_;
  ModelEvents events_;
  std::unique_ptr<TraceExporter> trace_exporter_;  // Null without tracing.
  std::unique_ptr<Security> security_;
  std::unique_ptr<Recorder> recorder_;            // Null if nothing is recorded.  Calls use it.
  std::unique_ptr<engine::RedisClusters> redis_;  // Where tables of models may be.
  engine::LayerPlugins plugins_;                  // What models are made of, hence before them.
  std::unique_ptr<ModelManager> models_;          // Its threads report to events_.
  std::unique_ptr<WorkerPool> pool_;              // Its tasks hold models.
  std::unique_ptr<LookupPool> lookups_;           // Its calls go on to pool_.
  std::unique_ptr<Shadow> shadow_;                // What it queues holds models, too.
  std::unique_ptr<Readiness> readiness_;
  std::unique_ptr<ModelMetrics> model_metrics_;
  std::unique_ptr<StatusReport> report_;
  std::unique_ptr<TrafficHistory> history_;
  std::unique_ptr<ClientQuota> client_quota_;  // Null without a quota.
  std::unique_ptr<UserStore> users_;
  std::unique_ptr<ServingContext> context_;
  std::unique_ptr<HealthService> health_;
  std::unique_ptr<PredictionService> prediction_;
  std::unique_ptr<KserveService> kserve_;
  std::unique_ptr<TfPredictionService> tf_prediction_;
  std::unique_ptr<TfModelService> tf_models_;
  std::unique_ptr<AdminService> admin_;       // Null without admin_address.
  std::unique_ptr<RestService> rest_;         // Null without http_inference.
  std::unique_ptr<HttpServer> http_;          // Its pages read everything above.
  std::unique_ptr<GrpcListener> admin_grpc_;  // Null without admin_address.
  std::unique_ptr<GrpcListener> grpc_;  // Last: it calls the services, and waits for its calls.
};

// Checks what the daemon would meet: repository, certificates, tokens, CPUs; then loads each model
// as the daemon would, warm-up and golden checks included, and holds them all.  The error has a
// line for each version that does not load and each label that leads nowhere; or says why nothing
// can be called.  `notices`: what a start would warn of.
absl::Status CheckRepository(const Options& options, std::vector<std::string>& notices);

}  // namespace ulfd::server

#endif  // ULFD_SERVER_DAEMON_H_

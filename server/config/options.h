// Options: everything that can be set, from the command line and the configuration file, checked.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_CONFIG_OPTIONS_H_
#define ULFD_SERVER_CONFIG_OPTIONS_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/models/model_change.h"
#include "server/models/model_manager_options.h"
#include "server/models/model_types.h"
#include "server/observe/logging.h"
#include "server/recorder/recorder.h"
#include "server/security/security_options.h"

namespace ulfd::server {

// The defaults are those of proto/server_config.proto, which has units and ranges.
struct Options {
  std::string model_repository;
  std::vector<ModelConfig>
      models;  // base_path "": <model_repository>/<name>, filled by LoadOptions.
  VersionPolicy default_version_policy;
  std::vector<std::string> model_link_targets;
  std::chrono::milliseconds poll_interval{1000};
  std::chrono::milliseconds settle_time{2000};
  bool use_inotify = true;
  std::chrono::milliseconds retry_backoff{1000};

  std::string grpc_address = "0.0.0.0";
  int grpc_port = 8500;
  std::string http_address = "0.0.0.0";
  int http_port = 8501;
  bool reflection = true;
  std::string admin_address;  // "ADDRESS:PORT" or "unix:PATH"; "": off

  int64_t memory_budget_bytes = 0;  // 0: DefaultMemoryBudget()
  LoadBounds load;

  std::vector<std::string> layer_plugins;  // Paths of shared libraries.

  int workers = 0;  // 0: UsableCpuCount()
  bool pin_workers = false;
  int grpc_threads = 0;  // 0: half of UsableCpuCount(), 2..16 (1 on 1 CPU).
  int max_ads = 2000;
  int max_ids_per_request = 1000000;
  int max_ids_per_feature = 500000;
  int64_t max_request_memory_bytes = int64_t{256} << 20;
  int max_message_bytes = 16 << 20;
  int max_request_fields = 200000;
  int max_queued_requests = 1000;
  int max_queued_rows = 200000;

  std::chrono::milliseconds max_queued_work{10000};
  std::chrono::microseconds tile{1000};
  int max_batch_rows = 1024;
  int max_batch_requests = 64;
  std::chrono::milliseconds codel_target{20};  // 0: never
  std::chrono::milliseconds codel_interval{200};
  std::string client_key;   // Metadata key that names the client.
  int client_max_rows = 0;  // 0: no limit

  std::chrono::milliseconds max_connection_age{300000};  // 0: no limit
  std::chrono::milliseconds max_connection_age_grace{30000};
  std::chrono::milliseconds keepalive_time{60000};
  std::chrono::milliseconds keepalive_timeout{20000};
  std::chrono::milliseconds min_client_ping_interval{10000};
  std::chrono::milliseconds max_connection_idle{600000};  // 0: no limit
  int max_connections = 10000;
  int max_concurrent_streams = 256;  // Of one connection.
  int max_header_bytes = 16384;
  int64_t max_unsent_bytes = int64_t{64} << 20;  // Of one connection.
  int max_lost_streams = 500;                    // Of one connection, in ten seconds.
  int max_ping_strikes = 2;
  std::chrono::milliseconds handshake_timeout{10000};
  int64_t memory_quota_bytes = int64_t{512} << 20;

  TlsOptions tls, admin_tls;
  AuthenticationOptions authentication;

  std::chrono::milliseconds drain_delay{2000};
  std::chrono::milliseconds drain_timeout{20000};

  RecorderOptions recorder;  // Without a directory: off.

  LogLevel log_level = LogLevel::kInfo;
  LogFormat log_format = LogFormat::kText;

  std::string port_file;  // "": none.  Command line only.

  std::string config_file;  // Of --config; "": none.
  std::string config_text;  // What it held at the start.
};

// What the command line says; absent: not said.
struct Flags {
  std::optional<std::string> model_repository, config, grpc_address, http_address, admin_address;
  std::optional<int> grpc_port, http_port, workers;
  std::optional<LogLevel> log_level;
  std::optional<LogFormat> log_format;
  std::optional<std::string> port_file;
  bool check_config = false, version = false, help = false;
};

// Reads "--name=value", "--name value" and, for switches, "--name"; `args` is without the program's
// name.  INVALID_ARGUMENT: an unknown flag, a bad or missing value, a flag given twice, a stray
// argument.
absl::StatusOr<Flags> ParseFlags(absl::Span<const std::string> args);

// Defaults, then the file of --config, then the other flags; checked as a whole, without touching
// the repository.  NOT_FOUND: no such file; INVALID_ARGUMENT: an error in it
// ("FILE:LINE:COLUMN: ...", one line each) or options that contradict each other.
absl::StatusOr<Options> LoadOptions(const Flags& flags);

// FAILED_PRECONDITION, naming the settings, if two good configurations differ in more than models and
// default_version_policy.
absl::Status CheckOnlyModelsDiffer(const std::string& before, const std::string& after,
                                   absl::string_view source);

// Sets what the text-proto ServerConfig `text` sets.  INVALID_ARGUMENT: "SOURCE:LINE:COLUMN: ...",
// one line per error.
absl::Status ReadConfig(absl::string_view text, absl::string_view source, Options& options);

ModelManagerOptions ManagerOptions(const Options& options);
// RecorderOptions::model_shares, from what the models say.
std::map<std::string, double> RecordShares(const std::vector<ModelConfig>& models);

// Reads options.config_file again, for what it says about models.  FAILED_PRECONDITION: there is none,
// or it differs from options.config_text in something that takes a restart, which is named; other
// errors as for LoadOptions.
absl::StatusOr<ModelChange> ReadConfigure(const Options& options);

// The text of --help.
std::string HelpText();

}  // namespace ulfd::server

#endif  // ULFD_SERVER_CONFIG_OPTIONS_H_

// SPDX-License-Identifier: Apache-2.0
#include "server/config/options.h"

#include <google/protobuf/text_format.h>
#include <google/protobuf/util/message_differencer.h>
#include <unistd.h>

#include <filesystem>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/errors.h"
#include "base/flags/flag_set.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "base/text_file.h"
#include "engine/embedding/output_file.h"
#include "engine/kernels/isa.h"
#include "server/config/model_settings.h"
#include "server/config/settings.h"
#include "server/system/listening_socket.h"

namespace ulfd::server {
namespace {

namespace pb = google::protobuf;
namespace config = ulfd::config::v1;
using std::chrono::milliseconds;

// A flag that sets a field of ServerConfig.
struct SettingFlag {
  absl::string_view name, setting, help;
};

constexpr SettingFlag kSettingFlags[] = {
    {"model_repository", "model_repository", "DIR: serve every model of DIR/<model>/<version>/."},
    {"grpc_address", "grpc_address", "IP address of the gRPC port.  Default: 0.0.0.0."},
    {"grpc_port", "grpc_port", "0: any free port.  Default: 8500."},
    {"http_address", "http_address", "IP address of the HTTP port.  Default: 0.0.0.0."},
    {"http_port", "http_port",
     "/metrics /healthz /readyz /statusz; 0: any free port.  Default: 8501."},
    {"admin_address", "admin_address", "IP:PORT or unix:PATH of the AdminService.  Default: off."},
    {"fold_directory", "deltas.fold_directory",
     "DIR: where tables are folded with their deltas.  Default: the version's directory."},
    {"workers", "workers", "Threads that score; 0: from CPU quota and affinity.  Default: 0."},
    {"log_level", "logging.level", "debug, info, warning or error.  Default: info."},
    {"log_format", "logging.format", "text or json.  Default: text."},
};

constexpr char kSynopsis[] =
    "ulfd --model_repository=DIR [flags]\n"
    "       ulfd --config=FILE [flags]";
constexpr char kDescription[] =
    "Scores one user against many ads with ULF models, over gRPC.\n\n"
    "Environment: ULFD_ISA=portable|avx2|avx512|amx|neon makes kernels use less than the machine's "
    "best.\n"
    "SIGTERM drains and stops; a second one hastens.  SIGHUP looks at the repository at once, and "
    "takes over what --config says of models.\n"
    "Exit codes: 0 ended in order, 1 could not start or serve, 2 wrong command line.";

absl::StatusOr<config::ServerConfig> ReadFile(absl::string_view text, absl::string_view source) {
  config::ServerConfig file;
  RETURN_IF_ERROR(ReadSettings(
      text, source, [&](const SettingsPlace& place) { CheckModelSettings(file, place); }, file));
  return file;
}

// Options with `given`, which is checked.
Options OptionsOf(config::ServerConfig given) {
  Options options;
  FillDefaults(given);
  options.settings = std::move(given);
  options.models = ModelsOf(options.settings);
  options.default_version_policy = DefaultPolicyOf(options.settings);
  return options;
}

// FAILED_PRECONDITION, naming the settings, if two good files differ in more than models and
// default_version_policy.
absl::Status CheckOnlyModelsDiffer(const std::string& before, config::ServerConfig after,
                                   absl::string_view source) {
  config::ServerConfig old;
  if (!pb::TextFormat::ParseFromString(before, &old)) {
    return Internal(source, ": was read, and cannot be read again");
  }
  for (config::ServerConfig* file : {&old, &after}) {
    file->clear_models();
    file->clear_default_version_policy();
  }
  std::string differences;
  pb::util::MessageDifferencer differencer;
  differencer.ReportDifferencesToString(&differences);
  if (differencer.Compare(old, after)) return absl::OkStatus();
  return FailedPrecondition(
      source, ": only models and default_version_policy can change while the daemon runs: ",
      absl::StrJoin(absl::StrSplit(differences, '\n', absl::SkipEmpty()), "; "));
}

// Rules that nobody could satisfy, or that would protect nothing, are mistakes.
absl::Status CheckSecurity(const Options& options) {
  const config::ServerConfig& settings = options.settings;
  const AuthenticationOptions authentication = AuthenticationOptionsOf(settings.authentication());
  const bool tokens = !authentication.token_file.empty();
  const bool names = tokens || !settings.tls().client_ca_file().empty();
  for (const ModelConfig& model : options.models) {
    if (!names && !model.allowed_clients.empty()) {
      return InvalidArgument("model \"", model.name,
                             "\": allowed_clients, but clients have no names without "
                             "authentication.token_file and tls.client_ca_file");
    }
  }
  if (!names && authentication.allowed_clients != std::vector<std::string>{"*"}) {
    return InvalidArgument(
        "authentication.allowed_clients: clients have no names without authentication.token_file "
        "and tls.client_ca_file");
  }
  if (settings.http_inference() && !settings.tls().client_ca_file().empty()) {
    return InvalidArgument(
        "http_inference: with tls.client_ca_file the gRPC port wants certificates, for which the "
        "HTTP port does not ask");
  }
  if (settings.admin_address().empty()) {
    if (settings.has_admin_tls()) return InvalidArgument("admin_tls: no admin_address");
    if (!authentication.admin_clients.empty()) {
      return InvalidArgument("authentication.admin_clients: no admin_address");
    }
  }
  if (!authentication.admin_clients.empty() && !tokens &&
      settings.admin_tls().client_ca_file().empty()) {
    return InvalidArgument(
        "authentication.admin_clients: clients have no names without authentication.token_file and "
        "admin_tls.client_ca_file");
  }
  return absl::OkStatus();
}

// No two on one port, unless of different addresses.
absl::Status CheckPorts(const config::ServerConfig& settings) {
  std::vector<std::pair<absl::string_view, Endpoint>> ports = {
      {"grpc_port", {settings.grpc_address(), settings.grpc_port()}},
      {"http_port", {settings.http_address(), settings.http_port()}}};
  if (!settings.admin_address().empty()) {
    ASSIGN_OR_RETURN(Endpoint admin, ParseEndpoint(settings.admin_address()));
    ports.emplace_back("admin_address", std::move(admin));
  }
  const auto everywhere = [](const std::string& address) {
    return address == "0.0.0.0" || address == "::" || address == "[::]";
  };
  for (size_t i = 0; i < ports.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const Endpoint &a = ports[j].second, &b = ports[i].second;
      if (a.port == 0 || a.port != b.port) continue;
      if (a.address != b.address && !everywhere(a.address) && !everywhere(b.address)) continue;
      return InvalidArgument(ports[j].first, " and ", ports[i].first, " are both ", a.port);
    }
  }
  return absl::OkStatus();
}

// The folder of a file that is not there yet; "": of none.
std::string FolderOf(absl::string_view file) {
  if (file.empty()) return "";
  const size_t slash = file.rfind('/');
  return slash == file.npos ? "." : std::string(file.substr(0, slash + 1));
}

// Directories that are only written to later, when nobody looks.
absl::Status CheckPlaces(const Options& options) {
  const config::ServerConfig& settings = options.settings;
  std::error_code ignored;
  const std::string& admin = settings.admin_address();
  const std::string socket(absl::StartsWith(admin, "unix:") ? admin.substr(5) : "");
  if (std::filesystem::exists(socket, ignored) && !std::filesystem::is_socket(socket, ignored)) {
    return InvalidArgument("admin_address: ", socket, ": what is there is no socket");
  }
  // Made at the start, where it can be.
  std::filesystem::path recordings = settings.recorder().directory();
  if (!recordings.empty()) recordings = std::filesystem::absolute(recordings, ignored);
  while (recordings.has_relative_path() && !std::filesystem::exists(recordings, ignored)) {
    recordings = recordings.parent_path();
  }
  const std::pair<absl::string_view, std::string> places[] = {
      {"hot_ids_directory", settings.hot_ids_directory()},
      {"deltas.fold_directory", settings.deltas().fold_directory()},
      {"recorder.directory", recordings.string()},
      {"state_file", FolderOf(settings.state_file())},
      {"admin_address", FolderOf(socket)},
      {"port_file", FolderOf(options.port_file)}};
  for (const auto& [setting, path] : places) {
    if (path.empty() ||
        (std::filesystem::is_directory(path, ignored) && access(path.c_str(), W_OK | X_OK) == 0)) {
      continue;
    }
    return InvalidArgument(setting, ": ", path, " is no directory that can be written to");
  }
  const std::string& fold = settings.deltas().fold_directory();
  return fold.empty() ? absl::OkStatus()
                      : Annotate(engine::OutputFile().OpenUnnamed(fold), "deltas.fold_directory");
}

absl::Status CheckAll(Options& options) {
  const config::ServerConfig& settings = options.settings;
  const config::Limits& limits = settings.limits();
  if (settings.model_repository().empty() && options.models.empty()) {
    return InvalidArgument(
        "nothing to serve: want --model_repository=DIR, or model_repository or models in the "
        "configuration");
  }
  for (ModelConfig& model : options.models) {
    if (!model.base_path.empty()) continue;
    if (settings.model_repository().empty()) {
      return InvalidArgument("model \"", model.name,
                             "\": no base_path, and no model_repository to find it in");
    }
    model.base_path = absl::StrCat(settings.model_repository(), "/", model.name);
  }
  if (limits.max_queued_rows() < limits.max_ads()) {
    return InvalidArgument("limits.max_queued_rows: ", limits.max_queued_rows(),
                           " is less than limits.max_ads, ", limits.max_ads(),
                           ": the largest request could never wait");
  }
  if (settings.connections().memory_quota_bytes() < int64_t{4} * limits.max_message_bytes()) {
    return InvalidArgument(
        "connections.memory_quota_bytes: ", settings.connections().memory_quota_bytes(),
        " is less than four times limits.max_message_bytes, ", limits.max_message_bytes());
  }
  RETURN_IF_ERROR(CheckPorts(settings));
  std::set<std::string> clusters;
  for (const config::RedisCluster& cluster : settings.redis_clusters()) {
    if (clusters.insert(cluster.name()).second) continue;
    return InvalidArgument("redis_clusters: \"", cluster.name(), "\" is there twice");
  }
  return CheckSecurity(options);
}

}  // namespace

Options::Options() { FillDefaults(settings); }

absl::StatusOr<Flags> ParseFlags(Args args) {
  Flags flags;
  FlagSet set(kSynopsis, kDescription);
  for (const SettingFlag& flag : kSettingFlags) {
    set.AddRead(std::string(flag.name), std::string(flag.help), [&](const std::string& value) {
      return SetSetting(flag.setting, value, flags.settings);
    });
  }
  const auto add_path = [&](const char* name, const char* help, std::string& path) {
    set.AddRead(name, help, [&path](const std::string& value) {
      path = value;
      return value.empty() ? UsageError("empty, want a path") : absl::OkStatus();
    });
  };
  add_path("config", "Text-proto ServerConfig; flags win over it.", flags.config);
  add_path("port_file", "Write the ports there once all listen.", flags.port_file);
  set.Add("check_config", "Check the configuration, load all models, then exit.",
          &flags.check_config);
  set.Add("version", "Print the version and exit.", &flags.version);
  RETURN_IF_ERROR(set.Parse(args, 0, 0).status());
  return flags;
}

absl::StatusOr<Options> ReadConfig(absl::string_view text, absl::string_view source) {
  ASSIGN_OR_RETURN(config::ServerConfig file, ReadFile(text, source));
  return OptionsOf(std::move(file));
}

absl::StatusOr<Options> LoadOptions(const Flags& flags) {
  config::ServerConfig settings;
  std::string text;
  if (!flags.config.empty()) {
    ASSIGN_OR_RETURN(text, ReadTextFile(flags.config));
    ASSIGN_OR_RETURN(settings, ReadFile(text, flags.config));
  }
  settings.MergeFrom(flags.settings);
  Options options = OptionsOf(std::move(settings));
  options.config_file = flags.config;
  options.config_text = std::move(text);
  options.port_file = flags.port_file;
  RETURN_IF_ERROR(CheckAll(options));
  RETURN_IF_ERROR(CheckPlaces(options));
  RETURN_IF_ERROR(engine::IsaOfEnvironment().status());
  return options;
}

absl::StatusOr<ModelChange> ReadConfigure(const Options& options) {
  if (options.config_file.empty()) {
    return FailedPrecondition(
        "the daemon was started without --config: there is no configuration to reload");
  }
  ASSIGN_OR_RETURN(const std::string text, ReadTextFile(options.config_file));
  ASSIGN_OR_RETURN(config::ServerConfig file, ReadFile(text, options.config_file));
  RETURN_IF_ERROR(CheckOnlyModelsDiffer(options.config_text, file, options.config_file));
  // Flags may have won over the file; neither can have changed.
  file.set_model_repository(options.settings.model_repository());
  file.set_admin_address(options.settings.admin_address());
  Options fresh = OptionsOf(std::move(file));
  RETURN_IF_ERROR(CheckAll(fresh));
  ModelChange change{.kind = ModelChange::Kind::kConfigure};
  change.models = std::move(fresh.models);
  change.default_policy = std::move(fresh.default_version_policy);
  return change;
}

ModelManagerOptions ManagerOptions(const Options& options) {
  const config::ServerConfig& settings = options.settings;
  ModelManagerOptions manager;
  manager.repository = settings.model_repository();
  manager.found_required = settings.found_models_required();
  manager.models = options.models;
  manager.default_policy = options.default_version_policy;
  manager.default_clients = AuthenticationOptionsOf(settings.authentication()).allowed_clients;
  manager.poll_interval = milliseconds(settings.watch().poll_interval_ms());
  manager.settle_time = milliseconds(settings.watch().settle_time_ms());
  manager.retry_backoff = milliseconds(settings.watch().retry_backoff_ms());
  manager.memory_budget_bytes = settings.memory_budget_bytes();
  manager.load_bounds = {.max_memory_bytes = settings.load().max_memory_bytes(),
                         .max_time = milliseconds(settings.load().max_time_ms()),
                         .max_files = settings.load().max_files()};
  manager.fold = {.share = settings.deltas().fold_share(),
                  .directory = settings.deltas().fold_directory()};
  manager.hot_ids_directory = settings.hot_ids_directory();
  manager.link_targets.assign(settings.model_link_targets().begin(),
                              settings.model_link_targets().end());
  manager.max_request_memory_bytes = settings.limits().max_request_memory_bytes();
  return manager;
}

RecorderOptions RecorderOptionsOf(const Options& options) {
  const config::Recorder& recorder = options.settings.recorder();
  return {.directory = recorder.directory(),
          .share = recorder.share(),
          .model_shares = RecordShares(options.models),
          .max_per_second = recorder.max_per_second(),
          .slowest_per_minute = recorder.slowest_per_minute(),
          .max_file_bytes = recorder.max_file_bytes(),
          .max_files = recorder.max_files(),
          .max_queued_bytes = recorder.max_queued_bytes(),
          .retry_interval = milliseconds(recorder.retry_interval_ms())};
}

std::vector<engine::RedisOptions> RedisOptionsOf(const config::ServerConfig& settings) {
  std::vector<engine::RedisOptions> clusters;
  for (const config::RedisCluster& cluster : settings.redis_clusters()) {
    clusters.push_back({.name = cluster.name(),
                        .nodes = {cluster.nodes().begin(), cluster.nodes().end()},
                        .username = cluster.username(),
                        .password_file = cluster.password_file(),
                        .ca_file = cluster.tls().ca_file(),
                        .certificate_file = cluster.tls().certificate_file(),
                        .key_file = cluster.tls().key_file()});
  }
  return clusters;
}

TlsOptions TlsOptionsOf(const config::Tls& settings) {
  return {.certificate_file = settings.certificate_file(),
          .key_file = settings.key_file(),
          .client_ca_file = settings.client_ca_file(),
          .reload_interval = milliseconds(settings.reload_interval_ms())};
}

AuthenticationOptions AuthenticationOptionsOf(const config::Authentication& settings) {
  const auto& allowed = settings.allowed_clients();
  const auto& admin = settings.admin_clients();
  return {.token_file = settings.token_file(),
          .allowed_clients = {allowed.begin(), allowed.end()},
          .admin_clients = {admin.begin(), admin.end()},
          .open_health = settings.open_health(),
          .reload_interval = milliseconds(settings.reload_interval_ms())};
}

std::map<std::string, double> RecordShares(const std::vector<ModelConfig>& models) {
  std::map<std::string, double> shares;
  for (const ModelConfig& model : models) {
    if (model.record_share.has_value()) shares[model.name] = *model.record_share;
  }
  return shares;
}

}  // namespace ulfd::server

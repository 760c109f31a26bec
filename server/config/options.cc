// The command line, and the checks over all options together.  The configuration file:
// config_file.cc.
// SPDX-License-Identifier: Apache-2.0
#include "server/config/options.h"

#include <functional>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "base/text_file.h"
#include "engine/kernels/isa.h"

namespace ulfd::server {
namespace {

absl::Status SetText(std::optional<std::string>& target, const std::string& value) {
  target = value;
  return absl::OkStatus();
}

absl::Status SetInt(std::optional<int>& target, const std::string& value, int min, int max) {
  int number = 0;
  if (!absl::SimpleAtoi(value, &number) || number < min || number > max) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", value, "\", want a number in ", min, "..", max));
  }
  target = number;
  return absl::OkStatus();
}

// One flag.  `value` is the placeholder in the help text; empty: a switch.
struct FlagRow {
  absl::string_view name, value, help;
  std::function<absl::Status(Flags&, const std::string&)> set;
};

std::vector<FlagRow> FlagTable() {
  return {
      {"model_repository", "DIR", "serve every model of DIR/<model>/<version>/",
       [](Flags& f, const std::string& v) { return SetText(f.model_repository, v); }},
      {"config", "FILE", "text-proto ServerConfig; flags win over it",
       [](Flags& f, const std::string& v) { return SetText(f.config, v); }},
      {"grpc_address", "IP", "address of the gRPC port (default 0.0.0.0)",
       [](Flags& f, const std::string& v) { return SetText(f.grpc_address, v); }},
      {"grpc_port", "N", "0: any free port (default 8500)",
       [](Flags& f, const std::string& v) { return SetInt(f.grpc_port, v, 0, 65535); }},
      {"http_address", "IP", "address of the HTTP port (default 0.0.0.0)",
       [](Flags& f, const std::string& v) { return SetText(f.http_address, v); }},
      {"http_port", "N", "/metrics /healthz /readyz /statusz; 0: any free port (default 8501)",
       [](Flags& f, const std::string& v) { return SetInt(f.http_port, v, 0, 65535); }},
      {"admin_address", "IP:N", "serve the AdminService there (default: off)",
       [](Flags& f, const std::string& v) { return SetText(f.admin_address, v); }},
      {"workers", "N", "threads that score; 0: from CPU quota and affinity (default 0)",
       [](Flags& f, const std::string& v) { return SetInt(f.workers, v, 0, 1024); }},
      {"log_level", "LEVEL", "debug, info, warning or error (default info)",
       [](Flags& f, const std::string& v) -> absl::Status {
         ASSIGN_OR_RETURN(f.log_level, ParseLogLevel(v));
         return absl::OkStatus();
       }},
      {"log_format", "FORMAT", "text or json (default text)",
       [](Flags& f, const std::string& v) -> absl::Status {
         ASSIGN_OR_RETURN(f.log_format, ParseLogFormat(v));
         return absl::OkStatus();
       }},
      {"port_file", "FILE", "write grpc_port and http_port there once both listen",
       [](Flags& f, const std::string& v) { return SetText(f.port_file, v); }},
      {"check_config", "", "check configuration and repository, then exit",
       [](Flags& f, const std::string&) {
         f.check_config = true;
         return absl::OkStatus();
       }},
      {"version", "", "print the version and exit",
       [](Flags& f, const std::string&) {
         f.version = true;
         return absl::OkStatus();
       }},
      {"help", "", "print this text and exit",
       [](Flags& f, const std::string&) {
         f.help = true;
         return absl::OkStatus();
       }},
  };
}

template <typename T>
void Override(const std::optional<T>& flag, T& option) {
  if (flag) option = *flag;
}

// Rules that nobody could satisfy, or that would protect nothing, are mistakes.
absl::Status CheckSecurity(const Options& options) {
  const AuthenticationOptions& authentication = options.authentication;
  const bool tokens = !authentication.token_file.empty();
  const bool names = tokens || !options.tls.client_ca_file.empty();
  for (const ModelConfig& model : options.models) {
    if (!names && !model.allowed_clients.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("model \"", model.name,
                       "\": allowed_clients, but clients have no names without "
                       "authentication.token_file and tls.client_ca_file"));
    }
  }
  if (!names && authentication.allowed_clients != AuthenticationOptions().allowed_clients) {
    return absl::InvalidArgumentError(
        "authentication.allowed_clients: clients have no names without authentication.token_file "
        "and tls.client_ca_file");
  }
  if (options.admin_address.empty()) {
    if (options.admin_tls.on()) return absl::InvalidArgumentError("admin_tls: no admin_address");
    if (!authentication.admin_clients.empty()) {
      return absl::InvalidArgumentError("authentication.admin_clients: no admin_address");
    }
  }
  if (!authentication.admin_clients.empty() && !tokens &&
      options.admin_tls.client_ca_file.empty()) {
    return absl::InvalidArgumentError(
        "authentication.admin_clients: clients have no names without authentication.token_file and "
        "admin_tls.client_ca_file");
  }
  return absl::OkStatus();
}

absl::Status CheckAll(Options& options) {
  if (options.model_repository.empty() && options.models.empty()) {
    return absl::InvalidArgumentError(
        "nothing to serve: want --model_repository=DIR, or model_repository or models in the "
        "configuration");
  }
  for (ModelConfig& model : options.models) {
    if (!model.base_path.empty()) continue;
    if (options.model_repository.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "model \"", model.name, "\": no base_path, and no model_repository to find it in"));
    }
    model.base_path = absl::StrCat(options.model_repository, "/", model.name);
  }
  if (options.max_queued_rows < options.max_ads) {
    return absl::InvalidArgumentError(absl::StrCat(
        "limits.max_queued_rows: ", options.max_queued_rows, " is less than limits.max_ads, ",
        options.max_ads, ": the largest request could never wait"));
  }
  if (options.memory_quota_bytes < int64_t{4} * options.max_message_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "connections.memory_quota_bytes: ", options.memory_quota_bytes,
        " is less than four times limits.max_message_bytes, ", options.max_message_bytes));
  }
  return CheckSecurity(options);
}

}  // namespace

absl::StatusOr<Flags> ParseFlags(absl::Span<const std::string> args) {
  const std::vector<FlagRow> table = FlagTable();
  Flags flags;
  std::set<absl::string_view> seen;
  for (size_t i = 0; i < args.size(); ++i) {
    absl::string_view arg = args[i];
    if (!absl::ConsumePrefix(&arg, "--")) {
      return absl::InvalidArgumentError(absl::StrCat("stray argument \"", args[i], "\""));
    }
    const size_t equals = arg.find('=');
    const absl::string_view name = arg.substr(0, equals);
    const FlagRow* row = nullptr;
    for (const FlagRow& candidate : table) {
      if (candidate.name == name) row = &candidate;
    }
    if (row == nullptr) return absl::InvalidArgumentError(absl::StrCat("unknown flag --", name));
    if (!seen.insert(row->name).second) {
      return absl::InvalidArgumentError(absl::StrCat("flag --", name, " is given twice"));
    }
    std::string value;
    if (row->value.empty() && equals != absl::string_view::npos) {
      return absl::InvalidArgumentError(absl::StrCat("flag --", name, " takes no value"));
    }
    if (!row->value.empty()) {
      if (equals == absl::string_view::npos && ++i == args.size()) {
        return absl::InvalidArgumentError(absl::StrCat("flag --", name, " wants a value"));
      }
      value = equals == absl::string_view::npos ? args[i] : std::string(arg.substr(equals + 1));
    }
    if (const absl::Status status = row->set(flags, value); !status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("flag --", name, ": ", status.message()));
    }
  }
  return flags;
}

absl::StatusOr<Options> LoadOptions(const Flags& flags) {
  Options options;
  if (flags.config) {
    ASSIGN_OR_RETURN(const std::string text, ReadTextFile(*flags.config));
    RETURN_IF_ERROR(ReadConfig(text, *flags.config, options));
    options.config_file = *flags.config;
    options.config_text = text;
  }
  Override(flags.model_repository, options.model_repository);
  Override(flags.grpc_address, options.grpc_address);
  Override(flags.grpc_port, options.grpc_port);
  Override(flags.http_address, options.http_address);
  Override(flags.http_port, options.http_port);
  Override(flags.admin_address, options.admin_address);
  Override(flags.workers, options.workers);
  Override(flags.log_level, options.log_level);
  Override(flags.log_format, options.log_format);
  Override(flags.port_file, options.port_file);
  RETURN_IF_ERROR(CheckAll(options));
  RETURN_IF_ERROR(engine::IsaOfEnvironment().status());
  return options;
}

ModelManagerOptions ManagerOptions(const Options& options) {
  ModelManagerOptions manager;
  manager.repository = options.model_repository;
  manager.models = options.models;
  manager.default_policy = options.default_version_policy;
  manager.default_clients = options.authentication.allowed_clients;
  manager.poll_interval = options.poll_interval;
  manager.settle_time = options.settle_time;
  manager.use_inotify = options.use_inotify;
  manager.retry_backoff = options.retry_backoff;
  manager.memory_budget_bytes = options.memory_budget_bytes;
  manager.load_bounds = options.load;
  manager.link_targets = options.model_link_targets;
  manager.max_request_memory_bytes = options.max_request_memory_bytes;
  return manager;
}

std::map<std::string, double> RecordShares(const std::vector<ModelConfig>& models) {
  std::map<std::string, double> shares;
  for (const ModelConfig& model : models) {
    if (model.record_share.has_value()) shares[model.name] = *model.record_share;
  }
  return shares;
}

absl::StatusOr<ModelChange> ReadConfigure(const Options& options) {
  if (options.config_file.empty()) {
    return absl::FailedPreconditionError(
        "the daemon was started without --config: there is no configuration to reload");
  }
  ASSIGN_OR_RETURN(const std::string text, ReadTextFile(options.config_file));
  Options fresh;
  RETURN_IF_ERROR(ReadConfig(text, options.config_file, fresh));
  RETURN_IF_ERROR(CheckOnlyModelsDiffer(options.config_text, text, options.config_file));
  // Flags may have won over the file; neither can have changed.
  fresh.model_repository = options.model_repository;
  fresh.admin_address = options.admin_address;
  RETURN_IF_ERROR(CheckAll(fresh));
  ModelChange change{.kind = ModelChange::Kind::kConfigure};
  change.models = std::move(fresh.models);
  change.default_policy = std::move(fresh.default_version_policy);
  return change;
}

std::string HelpText() {
  std::string text =
      "ulfd: scores one user against many ads with ULF models, over gRPC.\n\n"
      "  ulfd --model_repository=DIR [flags]\n  ulfd --config=FILE [flags]\n\n";
  for (const FlagRow& row : FlagTable()) {
    const std::string left = row.value.empty() ? absl::StrCat("--", row.name)
                                               : absl::StrCat("--", row.name, "=", row.value);
    absl::StrAppendFormat(&text, "  %-24s %s\n", left, row.help);
  }
  absl::StrAppend(
      &text,
      "\nEnvironment: ULFD_ISA=portable|avx2|avx512 makes kernels use less than the "
      "machine's best.\nSIGTERM drains and stops; a second one hastens.  SIGHUP looks at the "
      "repository at once.\nExit codes: 0 ended in order, 1 could not start or "
      "serve, 2 wrong command line.\n");
  return text;
}

}  // namespace ulfd::server

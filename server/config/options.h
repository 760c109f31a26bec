// Options: everything that can be set, from the command line and the configuration file, checked.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_CONFIG_OPTIONS_H_
#define ULFD_SERVER_CONFIG_OPTIONS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/flags/flag_set.h"
#include "base/tls/tls_material.h"
#include "engine/stores/redis_options.h"
#include "proto/server_config.pb.h"
#include "server/models/model_change.h"
#include "server/models/model_manager_options.h"
#include "server/models/model_types.h"
#include "server/recorder/recorder.h"
#include "server/security/security_options.h"

namespace ulfd::server {

struct Options {
  Options();  // Every setting has its default.

  // Complete; units and ranges are in proto/server_config.proto.
  ulfd::config::v1::ServerConfig settings;
  // What the settings say about models; LoadOptions fills in base_path.
  std::vector<ModelConfig> models;
  VersionPolicy default_version_policy;

  std::string port_file;    // "": none.
  std::string config_file;  // Of --config; "": none.
  std::string config_text;  // What it held at the start.
};

// What the command line says.
struct Flags {
  ulfd::config::v1::ServerConfig settings;  // Only what was given.
  std::string config, port_file;
  bool check_config = false, version = false;
};

// Reads the command line, without the program's name.  Errors: those of FlagSet::Parse.
absl::StatusOr<Flags> ParseFlags(Args args);

// Defaults, then the file of --config, then the other flags; checked as a whole, without touching
// the repository.  NOT_FOUND: no such file; INVALID_ARGUMENT: an error in it
// ("FILE:LINE:COLUMN: ...", one line each) or options that contradict each other.
absl::StatusOr<Options> LoadOptions(const Flags& flags);

// Options with what the text-proto ServerConfig `text` sets.  INVALID_ARGUMENT:
// "SOURCE:LINE:COLUMN: ...", one line per error.
absl::StatusOr<Options> ReadConfig(absl::string_view text, absl::string_view source);

// Reads options.config_file again, for what it says about models.  FAILED_PRECONDITION: there is
// none, or it differs from options.config_text in something that takes a restart, which is named;
// other errors as for LoadOptions.
absl::StatusOr<ModelChange> ReadConfigure(const Options& options);

// Settings as those take them whom they concern.
ModelManagerOptions ManagerOptions(const Options& options);
RecorderOptions RecorderOptionsOf(const Options& options);
std::vector<engine::RedisOptions> RedisOptionsOf(const ulfd::config::v1::ServerConfig& settings);
TlsOptions TlsOptionsOf(const ulfd::config::v1::Tls& settings);
AuthenticationOptions AuthenticationOptionsOf(const ulfd::config::v1::Authentication& settings);
// Model -> its share of calls that is recorded, where it has one of its own.
std::map<std::string, double> RecordShares(const std::vector<ModelConfig>& models);

}  // namespace ulfd::server

#endif  // ULFD_SERVER_CONFIG_OPTIONS_H_

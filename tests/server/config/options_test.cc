// Flags and the configuration file: values, precedence, and the exact text of errors.
// SPDX-License-Identifier: Apache-2.0
#include "server/config/options.h"

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/server_config.pb.h"

namespace ulfd::server {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

std::string FlagError(const std::vector<std::string>& args) {
  return std::string(ParseFlags(args).status().message());
}

std::string ConfigError(const std::string& text) {
  Options options;
  const absl::Status status = ReadConfig(text, "f.textproto", options);
  EXPECT_FALSE(status.ok());
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  return std::string(status.message());
}

TEST(Flags, BothSpellingsAndSwitches) {
  const auto flags = ParseFlags({{"--model_repository=a=b", "--grpc_port", "0", "--check_config",
                                  "--log_level=error", "--log_format=json"}});
  ASSERT_TRUE(flags.ok()) << flags.status();
  EXPECT_EQ(flags->model_repository, "a=b");
  EXPECT_EQ(flags->grpc_port, 0);
  EXPECT_TRUE(flags->check_config);
  EXPECT_FALSE(flags->help);
  EXPECT_EQ(flags->log_level, LogLevel::kError);
  EXPECT_EQ(flags->log_format, LogFormat::kJson);
  EXPECT_EQ(flags->http_port, std::nullopt);
}

TEST(Flags, Errors) {
  EXPECT_EQ(FlagError({"--grpc_prot=1"}), "unknown flag --grpc_prot");
  EXPECT_EQ(FlagError({"-v"}), "stray argument \"-v\"");
  EXPECT_EQ(FlagError({"models"}), "stray argument \"models\"");
  EXPECT_EQ(FlagError({"--grpc_port=65536"}),
            "flag --grpc_port: \"65536\", want a number in 0..65535");
  EXPECT_EQ(FlagError({"--workers=two"}), "flag --workers: \"two\", want a number in 0..1024");
  EXPECT_EQ(FlagError({"--config"}), "flag --config wants a value");
  EXPECT_EQ(FlagError({"--check_config=true"}), "flag --check_config takes no value");
  EXPECT_EQ(FlagError({"--workers=1", "--workers=2"}), "flag --workers is given twice");
  EXPECT_EQ(FlagError({"--log_level=loud"}),
            "flag --log_level: \"loud\", want debug, info, warning or error");
}

TEST(Flags, HelpNamesEveryFlag) {
  for (const char* flag : {"--model_repository=DIR", "--config=FILE", "--grpc_port=N",
                           "--http_port=N", "--port_file=FILE", "--check_config", "--workers=N",
                           "--log_level=LEVEL", "--version", "--help", "--admin_address=IP:N"}) {
    EXPECT_THAT(HelpText(), HasSubstr(flag));
  }
}

TEST(Config, EveryFieldIsRead) {
  Options o;
  const absl::Status status = ReadConfig(R"(
    model_repository: "repo"
    models {
      name: "rank" base_path: "/b" version_policy { specific { versions: [3, 5] } }
      labels { key: "stable" value: 3 } labels { key: "canary" value: 5 } required: false
      allowed_clients: "shop" allowed_clients: "lab"
    }
    models { name: "other" }
    default_version_policy { latest { count: 2 } }
    watch { poll_interval_ms: 11 settle_time_ms: 12 use_inotify: false retry_backoff_ms: 13 }
    grpc_address: "127.0.0.1" grpc_port: 0 http_address: "127.0.0.2" http_port: 14
    admin_address: "127.0.0.1:0" reflection: false workers: 3 pin_workers: true grpc_threads: 28 layer_plugins: "a.so" layer_plugins: "/b/c.so"
    limits {
      max_ads: 15 max_ids_per_request: 16 max_message_bytes: 2048 max_queued_requests: 17
      max_request_fields: 1234
      max_queued_rows: 18 max_ids_per_feature: 23 max_request_memory_bytes: 6000000000
    }
    connections {
      max_age_ms: 0 max_age_grace_ms: 19 keepalive_time_ms: 2000 keepalive_timeout_ms: 200
      min_client_ping_interval_ms: 20 max_idle_ms: 0 max_connections: 24
      max_concurrent_streams: 25 max_unsent_bytes: 1048577 max_lost_streams: 29 max_header_bytes: 2048 max_ping_strikes: 26
      handshake_timeout_ms: 127 memory_quota_bytes: 5000000000
    }
    tls { certificate_file: "c" key_file: "k" client_ca_file: "a" reload_interval_ms: 28 }
    admin_tls { certificate_file: "d" key_file: "l" }
    authentication {
      token_file: "t" allowed_clients: "shop" admin_clients: "ops" open_health: false
      reload_interval_ms: 29
    }
    shutdown { drain_delay_ms: 21 drain_timeout_ms: 22 }
    logging { level: "debug" format: "json" })",
                                         "f", o);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(o.model_repository, "repo");
  ASSERT_EQ(o.models.size(), 2u);
  EXPECT_EQ(o.models[0].name, "rank");
  EXPECT_EQ(o.models[0].base_path, "/b");
  EXPECT_THAT(o.models[0].policy.specific, ::testing::ElementsAre(3, 5));
  EXPECT_EQ(o.models[0].labels, (std::map<std::string, int64_t>{{"stable", 3}, {"canary", 5}}));
  EXPECT_FALSE(o.models[0].required);
  EXPECT_TRUE(o.models[1].required);
  EXPECT_EQ(o.models[1].policy.latest, 2);
  EXPECT_EQ(o.default_version_policy.latest, 2);
  EXPECT_EQ(o.poll_interval, milliseconds(11));
  EXPECT_EQ(o.settle_time, milliseconds(12));
  EXPECT_FALSE(o.use_inotify);
  EXPECT_EQ(o.retry_backoff, milliseconds(13));
  EXPECT_EQ(o.grpc_address, "127.0.0.1");
  EXPECT_EQ(o.grpc_port, 0);
  EXPECT_EQ(o.http_address, "127.0.0.2");
  EXPECT_EQ(o.http_port, 14);
  EXPECT_EQ(o.admin_address, "127.0.0.1:0");
  EXPECT_FALSE(o.reflection);
  EXPECT_EQ(o.workers, 3);
  EXPECT_THAT(o.layer_plugins, ::testing::ElementsAre("a.so", "/b/c.so"));
  EXPECT_EQ(o.max_ads, 15);
  EXPECT_EQ(o.max_ids_per_request, 16);
  EXPECT_EQ(o.max_message_bytes, 2048);
  EXPECT_EQ(o.max_request_fields, 1234);
  EXPECT_EQ(o.max_queued_requests, 17);
  EXPECT_EQ(o.max_queued_rows, 18);
  EXPECT_EQ(o.max_connection_age, milliseconds(0));
  EXPECT_EQ(o.max_connection_age_grace, milliseconds(19));
  EXPECT_EQ(o.keepalive_time, milliseconds(2000));
  EXPECT_EQ(o.keepalive_timeout, milliseconds(200));
  EXPECT_EQ(o.min_client_ping_interval, milliseconds(20));
  EXPECT_EQ(o.max_connection_idle, milliseconds(0));
  EXPECT_EQ(o.max_connections, 24);
  EXPECT_EQ(o.max_concurrent_streams, 25);
  EXPECT_EQ(o.max_header_bytes, 2048);
  EXPECT_EQ(o.max_unsent_bytes, 1048577);
  EXPECT_EQ(o.max_lost_streams, 29);
  EXPECT_EQ(o.max_ping_strikes, 26);
  EXPECT_EQ(o.handshake_timeout, milliseconds(127));
  EXPECT_EQ(o.memory_quota_bytes, 5000000000);
  EXPECT_EQ(o.max_ids_per_feature, 23);
  EXPECT_EQ(o.max_request_memory_bytes, 6000000000);
  EXPECT_TRUE(o.pin_workers);
  EXPECT_EQ(o.grpc_threads, 28);
  EXPECT_EQ(o.tls.certificate_file, "c");
  EXPECT_EQ(o.tls.key_file, "k");
  EXPECT_EQ(o.tls.client_ca_file, "a");
  EXPECT_EQ(o.tls.reload_interval, milliseconds(28));
  EXPECT_EQ(o.admin_tls.certificate_file, "d");
  EXPECT_EQ(o.admin_tls.key_file, "l");
  EXPECT_EQ(o.authentication.token_file, "t");
  EXPECT_THAT(o.authentication.allowed_clients, ::testing::ElementsAre("shop"));
  EXPECT_THAT(o.authentication.admin_clients, ::testing::ElementsAre("ops"));
  EXPECT_FALSE(o.authentication.open_health);
  EXPECT_EQ(o.authentication.reload_interval, milliseconds(29));
  EXPECT_THAT(o.models[0].allowed_clients, ::testing::ElementsAre("shop", "lab"));
  EXPECT_EQ(o.drain_delay, milliseconds(21));
  EXPECT_EQ(o.drain_timeout, milliseconds(22));
  EXPECT_EQ(o.log_level, LogLevel::kDebug);
  EXPECT_EQ(o.log_format, LogFormat::kJson);
}

TEST(Config, SchedulingAndQuotasAreRead) {
  Options o;
  const absl::Status status = ReadConfig(R"(
    models { name: "rank" weight: 2.5 max_queued_rows: 30 }
    models { name: "other" }
    scheduling {
      max_queued_ms: 31 tile_us: 320 max_batch_rows: 33 max_batch_requests: 34 codel_target_ms: 0
      codel_interval_ms: 36
    }
    client_quota { metadata_key: "x-client" max_rows: 37 })",
                                         "f", o);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(o.models[0].limits.weight, 2.5);
  EXPECT_EQ(o.models[0].limits.max_queued_rows, 30);
  EXPECT_EQ(o.models[1].limits.weight, 1);
  EXPECT_EQ(o.models[1].limits.max_queued_rows, INT64_MAX);
  EXPECT_EQ(o.max_queued_work, milliseconds(31));
  EXPECT_EQ(o.tile, std::chrono::microseconds(320));
  EXPECT_EQ(o.max_batch_rows, 33);
  EXPECT_EQ(o.max_batch_requests, 34);
  EXPECT_EQ(o.codel_target, milliseconds(0));
  EXPECT_EQ(o.codel_interval, milliseconds(36));
  EXPECT_EQ(o.client_key, "x-client");
  EXPECT_EQ(o.client_max_rows, 37);
}

TEST(Config, ErrorsOfSchedulingAndQuotasSayWhere) {
  EXPECT_EQ(ConfigError("models { name: \"a\" weight: 0 }"),
            "f.textproto:1:20: weight: 0, want 0.01..100");
  EXPECT_EQ(ConfigError("models { name: \"a\" weight: nan }"),
            "f.textproto:1:20: weight: nan, want 0.01..100");
  EXPECT_EQ(ConfigError("scheduling { tile_us: 5 }"),
            "f.textproto:1:14: tile_us: 5, want 100..1000000");
  EXPECT_THAT(ConfigError("client_quota { metadata_key: \"X-Client\" max_rows: 1 }"),
              HasSubstr("f.textproto:1:16: metadata_key: \"X-Client\", want lower case"));
  EXPECT_THAT(ConfigError("client_quota { metadata_key: \"key-bin\" max_rows: 1 }"),
              HasSubstr("metadata_key: \"key-bin\""));
  EXPECT_THAT(ConfigError("client_quota { metadata_key: \"key\" }"),
              HasSubstr("max_rows: missing, want 1..1000000000"));
}

TEST(Config, ErrorsSayWhere) {
  EXPECT_EQ(ConfigError("grpc_port: 1\n  grpc_prot: 2\n"),
            "f.textproto:2:12: Message type \"ulfd.config.v1.ServerConfig\" has no field named "
            "\"grpc_prot\".");
  EXPECT_EQ(ConfigError("workers: -1"), "f.textproto:1:1: workers: -1, want 0..1024");
  EXPECT_EQ(ConfigError("limits {\n  max_ads: 0\n  max_queued_rows: 0\n}"),
            "f.textproto:2:3: max_ads: 0, want 1..100000\n"
            "f.textproto:3:3: max_queued_rows: 0, want 1..1000000000");
  EXPECT_EQ(ConfigError("connections { max_age_ms: 5 }"),
            "f.textproto:1:15: max_age_ms: 5, want 0 or 1000..86400000");
  EXPECT_EQ(ConfigError("logging { level: \"loud\" }"),
            "f.textproto:1:11: level: \"loud\", want debug, info, warning or error");
  EXPECT_EQ(ConfigError("grpc_address: \"\""),
            "f.textproto:1:1: grpc_address: empty, want an IP address");
  EXPECT_EQ(ConfigError("workers: 1\nworkers: 2"),
            "f.textproto:2:8: Non-repeated field \"workers\" is specified multiple times.");
  EXPECT_THAT(ConfigError("workers: many"), HasSubstr("f.textproto:1:10: "));
  EXPECT_EQ(ConfigError("connections { memory_quota_bytes: 5 }"),
            "f.textproto:1:15: memory_quota_bytes: 5, want 16777216..1099511627776");
  EXPECT_EQ(ConfigError("tls { client_ca_file: \"a\" }"),
            "f.textproto:1:1: tls: no certificate_file\nf.textproto:1:1: tls: no key_file");
  EXPECT_EQ(ConfigError("authentication { admin_clients: \"\" }"),
            "f.textproto:1:18: admin_clients: empty");
}

TEST(Config, ErrorsOfModelsSayWhere) {
  EXPECT_EQ(ConfigError("models { name: \"a\" }\nmodels { name: \"a\" }"),
            "f.textproto:2:1: models: model \"a\" is given twice");
  EXPECT_EQ(ConfigError("models { name: \"a/b\" }"),
            "f.textproto:1:1: models: name \"a/b\", want letters, digits, \"_\", \"-\" and \".\"");
  EXPECT_EQ(ConfigError("models { }"),
            "f.textproto:1:1: models: name \"\", want letters, digits, \"_\", \"-\" and \".\"");
  EXPECT_EQ(ConfigError("models {\n name: \"a\"\n labels { key: \"x\" value: 0 }\n}"),
            "f.textproto:3:2: labels: \"x\": 0, want a name and a positive version");
  EXPECT_EQ(ConfigError("default_version_policy { latest { count: 0 } }"),
            "f.textproto:1:26: latest: no count, want 1..100");
  EXPECT_EQ(ConfigError("default_version_policy { specific { versions: 4 versions: -4 } }"),
            "f.textproto:1:49: versions: -4, want a positive number");
  EXPECT_EQ(ConfigError("default_version_policy { specific { versions: 4 versions: 4 } }"),
            "f.textproto:1:49: versions: 4 is given twice");
  EXPECT_EQ(ConfigError("default_version_policy { specific { } }"),
            "f.textproto:1:26: specific: no versions, want at least one");
}

TEST(LoadOptions, FlagsWinOverTheFile) {
  const std::string path = ::testing::TempDir() + "/flags_win.textproto";
  std::ofstream(path) << "model_repository: 'file' grpc_port: 1 http_port: 2 workers: 3";
  Flags flags;
  flags.config = path;
  flags.grpc_port = 0;
  flags.model_repository = "flag";
  const auto options = LoadOptions(flags);
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->model_repository, "flag");
  EXPECT_EQ(options->grpc_port, 0);
  EXPECT_EQ(options->http_port, 2);
  EXPECT_EQ(options->workers, 3);
}

TEST(LoadOptions, ChecksOptionsTogether) {
  Flags flags;
  EXPECT_EQ(LoadOptions(flags).status().message(),
            "nothing to serve: want --model_repository=DIR, or model_repository or models in the "
            "configuration");
  flags.config = "/does/not/exist";
  EXPECT_EQ(LoadOptions(flags).status(),
            absl::NotFoundError("/does/not/exist: No such file or directory"));
  const std::string path = ::testing::TempDir() + "/together.textproto";
  flags.config = path;
  std::ofstream(path) << "models { name: 'a' }";
  EXPECT_EQ(LoadOptions(flags).status().message(),
            "model \"a\": no base_path, and no model_repository to find it in");
  std::ofstream(path) << "model_repository: 'r' limits { max_ads: 2000 max_queued_rows: 100 }";
  EXPECT_EQ(LoadOptions(flags).status().message(),
            "limits.max_queued_rows: 100 is less than limits.max_ads, 2000: the largest request "
            "could never wait");
  std::ofstream(path) << "model_repository: 'r' models { name: 'a' }";
  EXPECT_EQ(LoadOptions(flags)->models[0].base_path, "r/a");
}

TEST(LoadOptions, SecurityThatCouldNotWork) {
  const std::string path = ::testing::TempDir() + "/security.textproto";
  Flags flags;
  flags.config = path;
  const auto error = [&](const std::string& text) {
    std::ofstream(path) << "model_repository: 'r' " << text;
    return std::string(LoadOptions(flags).status().message());
  };
  EXPECT_EQ(error("models { name: 'a' allowed_clients: 'b' }"),
            "model \"a\": allowed_clients, but clients have no names without "
            "authentication.token_file and tls.client_ca_file");
  EXPECT_EQ(error("authentication { allowed_clients: 'b' }"),
            "authentication.allowed_clients: clients have no names without "
            "authentication.token_file and tls.client_ca_file");
  EXPECT_EQ(error("admin_tls { certificate_file: 'c' key_file: 'k' }"),
            "admin_tls: no admin_address");
  EXPECT_EQ(error("authentication { token_file: 't' admin_clients: 'b' }"),
            "authentication.admin_clients: no admin_address");
  EXPECT_EQ(error("admin_address: '127.0.0.1:0' authentication { admin_clients: 'b' }"),
            "authentication.admin_clients: clients have no names without "
            "authentication.token_file and admin_tls.client_ca_file");
  EXPECT_EQ(error("authentication { token_file: 't' allowed_clients: 'b' }"), "");
  EXPECT_EQ(error("limits { max_message_bytes: 20000000 } "
                  "connections { memory_quota_bytes: 79999999 }"),
            "connections.memory_quota_bytes: 79999999 is less than four times "
            "limits.max_message_bytes, 20000000");
}

// Names of all fields below `message`, "limits.max_ads".
void FieldNames(const google::protobuf::Descriptor& message, const std::string& prefix,
                std::vector<std::string>& names) {
  for (int i = 0; i < message.field_count(); ++i) {
    const auto* field = message.field(i);
    names.push_back(field->name());
    if (field->message_type() != nullptr && !field->is_map()) {
      FieldNames(*field->message_type(), prefix + field->name() + ".", names);
    }
  }
}

TEST(ExampleConfig, HasEveryFieldWithItsDefault) {
  std::ifstream file(ULFD_SOURCE_DIR "/config/server.textproto");
  std::ostringstream text;
  text << file.rdbuf();
  Options o;
  const absl::Status status = ReadConfig(text.str(), "server.textproto", o);
  ASSERT_TRUE(status.ok()) << status;
  std::vector<std::string> names;
  FieldNames(*ulfd::config::v1::ServerConfig::descriptor(), "", names);
  for (const std::string& name : names) {
    EXPECT_THAT(text.str(), testing::AnyOf(HasSubstr(name + ":"), HasSubstr(name + " {")));
  }
  const Options d;
  EXPECT_TRUE(o.models.empty());
  EXPECT_EQ(o.default_version_policy.latest, d.default_version_policy.latest);
  EXPECT_EQ(o.poll_interval, d.poll_interval);
  EXPECT_EQ(o.load.max_memory_bytes, d.load.max_memory_bytes);
  EXPECT_EQ(o.load.max_time, d.load.max_time);
  EXPECT_EQ(o.load.max_files, d.load.max_files);
  EXPECT_TRUE(o.model_link_targets.empty());
  EXPECT_EQ(o.settle_time, d.settle_time);
  EXPECT_EQ(o.use_inotify, d.use_inotify);
  EXPECT_EQ(o.retry_backoff, d.retry_backoff);
  EXPECT_EQ(o.grpc_address, d.grpc_address);
  EXPECT_EQ(o.grpc_port, d.grpc_port);
  EXPECT_EQ(o.http_address, d.http_address);
  EXPECT_EQ(o.http_port, d.http_port);
  EXPECT_EQ(o.admin_address, d.admin_address);
  EXPECT_EQ(o.reflection, d.reflection);
  EXPECT_EQ(o.workers, d.workers);
  EXPECT_EQ(o.max_ads, d.max_ads);
  EXPECT_EQ(o.max_ids_per_request, d.max_ids_per_request);
  EXPECT_EQ(o.max_message_bytes, d.max_message_bytes);
  EXPECT_EQ(o.max_request_fields, d.max_request_fields);
  EXPECT_EQ(o.max_queued_requests, d.max_queued_requests);
  EXPECT_EQ(o.max_queued_rows, d.max_queued_rows);
  EXPECT_EQ(o.max_queued_work, d.max_queued_work);
  EXPECT_EQ(o.tile, d.tile);
  EXPECT_EQ(o.max_batch_rows, d.max_batch_rows);
  EXPECT_EQ(o.max_batch_requests, d.max_batch_requests);
  EXPECT_EQ(o.codel_target, d.codel_target);
  EXPECT_EQ(o.codel_interval, d.codel_interval);
  EXPECT_EQ(o.client_max_rows, d.client_max_rows);
  EXPECT_EQ(o.max_connection_age, d.max_connection_age);
  EXPECT_EQ(o.max_connection_age_grace, d.max_connection_age_grace);
  EXPECT_EQ(o.keepalive_time, d.keepalive_time);
  EXPECT_EQ(o.keepalive_timeout, d.keepalive_timeout);
  EXPECT_EQ(o.min_client_ping_interval, d.min_client_ping_interval);
  EXPECT_EQ(o.max_connection_idle, d.max_connection_idle);
  EXPECT_EQ(o.max_connections, d.max_connections);
  EXPECT_EQ(o.max_concurrent_streams, d.max_concurrent_streams);
  EXPECT_EQ(o.max_header_bytes, d.max_header_bytes);
  EXPECT_EQ(o.max_unsent_bytes, d.max_unsent_bytes);
  EXPECT_EQ(o.max_lost_streams, d.max_lost_streams);
  EXPECT_EQ(o.max_ping_strikes, d.max_ping_strikes);
  EXPECT_EQ(o.handshake_timeout, d.handshake_timeout);
  EXPECT_EQ(o.memory_quota_bytes, d.memory_quota_bytes);
  EXPECT_EQ(o.max_ids_per_feature, d.max_ids_per_feature);
  EXPECT_EQ(o.max_request_memory_bytes, d.max_request_memory_bytes);
  EXPECT_EQ(o.pin_workers, d.pin_workers);
  EXPECT_EQ(o.grpc_threads, d.grpc_threads);
  EXPECT_FALSE(o.tls.on());
  EXPECT_FALSE(o.admin_tls.on());
  EXPECT_EQ(o.authentication.allowed_clients, d.authentication.allowed_clients);
  EXPECT_EQ(o.authentication.open_health, d.authentication.open_health);
  EXPECT_EQ(o.authentication.reload_interval, d.authentication.reload_interval);
  EXPECT_EQ(o.drain_delay, d.drain_delay);
  EXPECT_EQ(o.drain_timeout, d.drain_timeout);
  EXPECT_EQ(o.log_level, d.log_level);
  EXPECT_EQ(o.log_format, d.log_format);
}

TEST(RecorderConfig, IsRead) {
  Options o;
  const absl::Status status = ReadConfig(
      "models { name: 'a' record_share: 0.5 } models { name: 'b' record_share: 0 } "
      "models { name: 'c' } "
      "recorder { directory: '/r' share: 0.25 max_per_second: 7 max_file_bytes: 65536 max_files: 2 "
      "max_queued_bytes: 70000 retry_interval_ms: 100 }",
      "f", o);
  ASSERT_TRUE(status.ok()) << status;
  const RecorderOptions& r = o.recorder;
  EXPECT_EQ(RecordShares(o.models), (std::map<std::string, double>{{"a", 0.5}, {"b", 0}}));
  EXPECT_EQ(r.directory, "/r");
  EXPECT_EQ(r.share, 0.25);
  EXPECT_EQ(r.max_per_second, 7);
  EXPECT_EQ(r.max_file_bytes, 65536);
  EXPECT_EQ(r.max_files, 2);
  EXPECT_EQ(r.max_queued_bytes, 70000);
  EXPECT_EQ(r.retry_interval, milliseconds(100));
}

TEST(RecorderConfig, ErrorsSayWhere) {
  EXPECT_EQ(ConfigError("recorder { share: 1.5 }"), "f.textproto:1:12: share: 1.5, want 0..1");
  EXPECT_EQ(ConfigError("recorder { share: nan }"), "f.textproto:1:12: share: nan, want 0..1");
  EXPECT_EQ(ConfigError("models { name: 'a' record_share: -1 }"),
            "f.textproto:1:20: record_share: -1, want 0..1");
  EXPECT_EQ(ConfigError("recorder { max_files: 1 }"),
            "f.textproto:1:12: max_files: 1, want 2..10000");
}

TEST(LoadConfig, IsReadAndChecked) {
  Options o;
  ASSERT_TRUE(ReadConfig("load { max_memory_bytes: 2000000 max_time_ms: 5000 max_files: 50 } "
                         "model_link_targets: '/a' model_link_targets: '/b'",
                         "f", o)
                  .ok());
  const ModelManagerOptions manager = ManagerOptions(o);
  EXPECT_EQ(manager.load_bounds.max_memory_bytes, 2000000);
  EXPECT_EQ(manager.load_bounds.max_time, std::chrono::seconds(5));
  EXPECT_EQ(manager.load_bounds.max_files, 50);
  EXPECT_EQ(manager.link_targets, std::vector<std::string>({"/a", "/b"}));
  EXPECT_EQ(ConfigError("load { max_memory_bytes: 5 }"),
            "f.textproto:1:8: max_memory_bytes: 5, want 0 or at least 1048576");
  EXPECT_EQ(ConfigError("load { max_time_ms: 0 }"),
            "f.textproto:1:8: max_time_ms: 0, want 100..86400000");
  EXPECT_EQ(ConfigError("load { max_files: 1 }"),
            "f.textproto:1:8: max_files: 1, want 10..10000000");
  EXPECT_EQ(ConfigError("model_link_targets: ''"), "f.textproto:1:1: model_link_targets: empty");
}

TEST(RecorderConfig, TheExampleHasTheDefaults) {
  std::ifstream file(ULFD_SOURCE_DIR "/config/server.textproto");
  std::ostringstream text;
  text << file.rdbuf();
  Options o;
  ASSERT_TRUE(ReadConfig(text.str(), "server.textproto", o).ok());
  const RecorderOptions r = o.recorder, d;
  EXPECT_EQ(r.directory, d.directory);
  EXPECT_EQ(r.share, d.share);
  EXPECT_EQ(r.max_per_second, d.max_per_second);
  EXPECT_EQ(r.max_file_bytes, d.max_file_bytes);
  EXPECT_EQ(r.max_files, d.max_files);
  EXPECT_EQ(r.max_queued_bytes, d.max_queued_bytes);
  EXPECT_EQ(r.retry_interval, d.retry_interval);
}

}  // namespace
}  // namespace ulfd::server

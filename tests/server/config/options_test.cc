// Flags and the configuration file: values, precedence, and the exact text of errors.
// SPDX-License-Identifier: Apache-2.0
#include "server/config/options.h"

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/server_config.pb.h"
#include "tests/testing/paths.h"

namespace ulfd::server {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

std::string FlagError(const std::vector<std::string>& args) {
  return std::string(ParseFlags(args).status().message());
}

std::string ConfigError(const std::string& text) {
  const absl::Status status = ReadConfig(text, "f.textproto").status();
  EXPECT_FALSE(status.ok());
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  return std::string(status.message());
}

constexpr char kWantModelName[] =
    ", want 1 to 255 bytes of printable text without \"/\", the first no \".\"";
constexpr char kWantName[] =
    ", want 1 to 255 letters, digits, \"_\", \"-\" and \".\", the first no \".\"";

TEST(Flags, BothSpellingsAndSwitches) {
  const auto flags = ParseFlags({{"--model_repository=a=b", "--grpc_port", "0", "--check_config",
                                  "--log_level=error", "--log_format=json"}});
  ASSERT_TRUE(flags.ok()) << flags.status();
  EXPECT_EQ(flags->settings.model_repository(), "a=b");
  EXPECT_EQ(flags->settings.grpc_port(), 0);
  EXPECT_TRUE(flags->check_config);
  EXPECT_EQ(flags->settings.logging().level(), "error");
  EXPECT_EQ(flags->settings.logging().format(), "json");
  EXPECT_FALSE(flags->settings.has_http_port());
}

TEST(Flags, Errors) {
  EXPECT_EQ(FlagError({"--grpc_prot=1"}), "unknown flag --grpc_prot; did you mean \"grpc_port\"?");
  EXPECT_EQ(FlagError({"-v"}), "unknown flag -v");
  EXPECT_EQ(FlagError({"models"}), "unexpected argument \"models\"");
  EXPECT_EQ(FlagError({"--grpc_port=65536"}), "--grpc_port: 65536, want 0..65535");
  EXPECT_EQ(FlagError({"--workers=two"}), "--workers: \"two\", want a number in 0..1024");
  for (const char* number : {"+5", " 5", "010", "0x1", "99999999999", ""}) {
    EXPECT_EQ(FlagError({"--workers", number}),
              absl::StrFormat("--workers: \"%s\", want a number in 0..1024", number));
  }
  EXPECT_EQ(FlagError({"--grpc_address=localhost"}),
            "--grpc_address: \"localhost\", want an IP address");
  EXPECT_EQ(FlagError({"--admin_address=127.0.0.1:99999"}),
            "--admin_address: \"127.0.0.1:99999\", want IP:PORT or unix:PATH");
  EXPECT_EQ(FlagError({"--config"}), "flag --config wants a value");
  EXPECT_EQ(FlagError({"--config="}), "--config: empty, want a path");
  EXPECT_EQ(FlagError({"--port_file", "--grpc_port=1"}), "flag --port_file wants a value");
  EXPECT_EQ(FlagError({"--check_config=1.5"}), "--check_config: \"1.5\", want true or false");
  EXPECT_EQ(FlagError({"--workers=1", "--workers=2"}), "flag --workers is given twice");
  EXPECT_EQ(FlagError({"--log_level=loud"}),
            "--log_level: \"loud\", want debug, info, warning or error");
}

TEST(Config, ModelsAreRead) {
  const auto o = ReadConfig(R"(
    model_repository: "repo"
    models {
      name: "rank" base_path: "/b" version_policy { specific { versions: [3, 5] } }
      labels { key: "stable" value: 3 } labels { key: "canary" value: 5 } required: false
      allowed_clients: "shop" allowed_clients: "lab" weight: 2.5 max_queued_rows: 30
    }
    models { name: "other" shadow { label: "next" share: 0.5 } }
    default_version_policy { latest { count: 2 } })",
                            "f");
  ASSERT_TRUE(o.ok()) << o.status();
  ASSERT_EQ(o->models.size(), 2u);
  const ModelConfig &rank = o->models[0], &other = o->models[1];
  EXPECT_EQ(rank.name, "rank");
  EXPECT_EQ(rank.base_path, "/b");
  EXPECT_THAT(rank.policy.specific, ElementsAre(3, 5));
  EXPECT_EQ(rank.labels, (std::map<std::string, int64_t>{{"stable", 3}, {"canary", 5}}));
  EXPECT_FALSE(rank.required);
  EXPECT_THAT(rank.allowed_clients, ElementsAre("shop", "lab"));
  EXPECT_EQ(rank.limits.weight, 2.5);
  EXPECT_EQ(rank.limits.max_queued_rows, 30);
  EXPECT_TRUE(other.required);
  EXPECT_EQ(other.policy.latest, 2);
  EXPECT_EQ(other.limits.weight, 1);
  EXPECT_EQ(other.limits.max_queued_rows, INT64_MAX);
  EXPECT_EQ(other.shadow, (ShadowConfig{.label = "next", .share = 0.5, .max_queued = 16}));
  EXPECT_EQ(o->default_version_policy.latest, 2);
}

TEST(Config, SettingsReachThoseWhomTheyConcern) {
  const auto o = ReadConfig(R"(
    watch { poll_interval_ms: 11 settle_time_ms: 12 retry_backoff_ms: 13 }
    memory_budget_bytes: 2000000 model_link_targets: '/a' model_link_targets: '/b'
    load { max_memory_bytes: 3000000 max_time_ms: 5000 max_files: 50 }
    limits { max_request_memory_bytes: 6000000000 }
    tls { certificate_file: "c" key_file: "k" client_ca_file: "a" reload_interval_ms: 28 }
    authentication {
      token_file: "t" allowed_clients: "shop" admin_clients: "ops" open_health: false
      reload_interval_ms: 29
    })",
                            "f");
  ASSERT_TRUE(o.ok()) << o.status();
  const ModelManagerOptions manager = ManagerOptions(*o);
  EXPECT_EQ(manager.poll_interval, milliseconds(11));
  EXPECT_EQ(manager.settle_time, milliseconds(12));
  EXPECT_EQ(manager.retry_backoff, milliseconds(13));
  EXPECT_EQ(manager.memory_budget_bytes, 2000000);
  EXPECT_THAT(manager.link_targets, ElementsAre("/a", "/b"));
  EXPECT_EQ(manager.load_bounds.max_memory_bytes, 3000000);
  EXPECT_EQ(manager.load_bounds.max_time, milliseconds(5000));
  EXPECT_EQ(manager.load_bounds.max_files, 50);
  EXPECT_EQ(manager.max_request_memory_bytes, 6000000000);
  EXPECT_THAT(manager.default_clients, ElementsAre("shop"));
  const TlsOptions tls = TlsOptionsOf(o->settings.tls());
  EXPECT_EQ(tls.certificate_file, "c");
  EXPECT_EQ(tls.key_file, "k");
  EXPECT_EQ(tls.client_ca_file, "a");
  EXPECT_EQ(tls.reload_interval, milliseconds(28));
  const AuthenticationOptions calls = AuthenticationOptionsOf(o->settings.authentication());
  EXPECT_EQ(calls.token_file, "t");
  EXPECT_THAT(calls.admin_clients, ElementsAre("ops"));
  EXPECT_FALSE(calls.open_health);
  EXPECT_EQ(calls.reload_interval, milliseconds(29));
}

// Every number at both ends of its range and beyond, by the options of its field.
void CheckRanges(const google::protobuf::Descriptor& message, const std::string& before,
                 const std::string& after) {
  for (int i = 0; i < message.field_count(); ++i) {
    const auto& field = *message.field(i);
    const auto& setting = field.options().GetExtension(config::v1::setting);
    if (field.message_type() != nullptr && !field.is_map()) {
      CheckRanges(*field.message_type(), before + field.name() + " { ", " }" + after);
    } else if (setting.has_min() && !field.is_map()) {
      const auto error = [&](double value) {
        const std::string text =
            absl::StrFormat("%s%s: %.17g%s", before, field.name(), value, after);
        return std::string(ReadConfig(text, "f").status().message());
      };
      const std::string refused = field.name() + ": ";
      EXPECT_THAT(error(std::min(setting.min() - 1, -1.0)), HasSubstr(refused));
      EXPECT_THAT(error(setting.min()), Not(HasSubstr(refused)));
      const bool zero = setting.zero() || setting.min() <= 0;
      EXPECT_EQ(absl::StrContains(error(0), refused), !zero) << field.full_name();
      if (setting.has_max()) {
        EXPECT_THAT(error(setting.max()), Not(HasSubstr(refused)));
        EXPECT_THAT(error(setting.max() + 1), HasSubstr(refused));
      }
    }
  }
}

TEST(Config, NumbersKeepToTheirRanges) {
  CheckRanges(*config::v1::ServerConfig::descriptor(), "", "");
}

// A default that its own field refuses would be one that no file can say.
TEST(Config, TheDefaultsAreAllowed) {
  const std::string text = Options().settings.DebugString();
  const auto options = ReadConfig(text, "defaults");
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->settings.DebugString(), text);
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

TEST(Config, AddressesAreThoseThatTheDaemonListensOn) {
  for (const char* good : {"0.0.0.0", "::", "[::]", "::1", "[::1]", "127.0.0.1"}) {
    EXPECT_TRUE(ReadConfig(absl::StrFormat("grpc_address: '%s'", good), "f").ok()) << good;
  }
  for (const char* bad : {"localhost", "x", "1.2.3.4.5", ":", "127.0.0.1:1", "[::1]:1", " ::1"}) {
    EXPECT_EQ(ConfigError(absl::StrFormat("http_address: '%s'", bad)),
              absl::StrFormat("f.textproto:1:1: http_address: \"%s\", want an IP address", bad));
  }
  for (const char* good : {"", "127.0.0.1:0", "[::1]:65535", "unix:a.sock"}) {
    EXPECT_TRUE(ReadConfig(absl::StrFormat("admin_address: '%s'", good), "f").ok()) << good;
  }
  const std::string long_path = "unix:" + std::string(108, 'a');
  for (const char* bad : {"x", "127.0.0.1", "127.0.0.1:", "127.0.0.1:-1", "127.0.0.1:65536",
                          "localhost:1", ":1", "unix:", long_path.c_str()}) {
    EXPECT_THAT(ConfigError(absl::StrFormat("admin_address: '%s'", bad)),
                HasSubstr("want IP:PORT or unix:PATH"));
  }
}

TEST(Config, TextIsUtf8WithoutMark) {
  EXPECT_EQ(ConfigError("workers: 1\n# \xc3\xa4 \xff"),
            "f.textproto:2:6: want UTF-8 without a byte order mark");
  for (const char* text : {"\xef\xbb\xbfworkers: 1", "\xff\xfew", "\xfe\xff"}) {
    EXPECT_EQ(ConfigError(text), "f.textproto:1:1: want UTF-8 without a byte order mark");
  }
  EXPECT_EQ(ConfigError("model_repository: 'a\\000z'"),
            "f.textproto:1:1: model_repository: \"a\\x00z\", want no byte 0 in it");
  EXPECT_TRUE(ReadConfig("model_repository: '\xc3\xa4'", "f").ok());
}

TEST(Config, SettingsOfOldFilesAreNoError) {
  EXPECT_TRUE(ReadConfig("watch { use_inotify: false poll_interval_ms: 11 }", "f").ok());
}

TEST(Config, ErrorsSayWhere) {
  EXPECT_EQ(ConfigError("grpc_port: 1\n  grpc_prot: 2\n"),
            "f.textproto:2:3: Message type \"ulfd.config.v1.ServerConfig\" has no field named "
            "\"grpc_prot\"; did you mean \"grpc_port\"?");
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
            "f.textproto:2:1: Non-repeated field \"workers\" is specified multiple times.");
  EXPECT_THAT(ConfigError("workers: many"), HasSubstr("f.textproto:1:10: "));
  EXPECT_EQ(ConfigError("connections { memory_quota_bytes: 5 }"),
            "f.textproto:1:15: memory_quota_bytes: 5, want 16777216..1099511627776");
  EXPECT_EQ(ConfigError("tls { client_ca_file: \"a\" }"),
            "f.textproto:1:1: certificate_file: missing\nf.textproto:1:1: key_file: missing");
  EXPECT_EQ(ConfigError("authentication { admin_clients: \"\" }"),
            "f.textproto:1:18: admin_clients: empty");
}

TEST(Config, AddressesOfOthersHaveAPort) {
  for (const char* bad : {"x", ":1", "h:", "h:0", "h:65536", "h:1x"}) {
    EXPECT_EQ(ConfigError(absl::StrCat("tracing { collector: '", bad, "' }")),
              absl::StrCat("f.textproto:1:11: collector: \"", bad, "\", want host:port"));
    EXPECT_THAT(ConfigError(absl::StrCat("redis_clusters { name: 'c' nodes: '", bad, "' }")),
                HasSubstr("want host:port"));
  }
  EXPECT_TRUE(ReadConfig("tracing { collector: '[::1]:4317' }", "f").ok());
}

// A file may have a megabyte; its errors go to the log, and to who asked for the reload.  Here each
// model has no name, and all but the first the same one.
TEST(Config, TheFirstErrorsOfMany) {
  std::string text;
  for (int i = 0; i < 90000; ++i) absl::StrAppend(&text, "models { }\n");
  const std::string error = ConfigError(text);
  EXPECT_THAT(error, HasSubstr("\nf.textproto:50:1: name: missing"));
  EXPECT_THAT(error, EndsWith("\nand 179949 more errors"));
  EXPECT_LT(error.size(), 10000);
}

// With a look at all those before it for each, this takes minutes.
TEST(Config, LongListsOfDifferentValues) {
  std::string text = "redis_clusters { name: 'c'";
  for (int i = 0; i < 60000; ++i) absl::StrAppend(&text, " nodes:'a:", i + 1, "'");
  EXPECT_EQ(ConfigError(absl::StrCat(text, " nodes:'a:7' }")),
            absl::StrCat("f.textproto:1:", text.size() + 2, ": nodes: \"a:7\" is given twice"));
}

TEST(Config, ErrorsOfModelsSayWhere) {
  EXPECT_EQ(ConfigError("models { name: \"a\" }\nmodels { name: \"a\" }"),
            "f.textproto:2:1: models: model \"a\" is given twice");
  EXPECT_EQ(ConfigError("models { name: \"a/b\" }"),
            absl::StrCat("f.textproto:1:10: name: \"a/b\"", kWantModelName));
  EXPECT_EQ(ConfigError("models { }"),
            absl::StrCat("f.textproto:1:1: name: missing", kWantModelName));
  for (const char* bad : {"", ".a", "a\\n", "\\377"}) {
    EXPECT_THAT(ConfigError(absl::StrCat("models { name: '", bad, "' }")),
                HasSubstr(kWantModelName));
  }
  // As directories of the repository may be called.
  EXPECT_TRUE(ReadConfig("models { name: 'Реклама, new' }", "f").ok());
  const std::string longest(255, 'a');
  EXPECT_TRUE(ReadConfig(absl::StrCat("models { name: '", longest, "' }"), "f").ok());
  EXPECT_THAT(ConfigError(absl::StrCat("models { name: 'a", longest, "' }")),
              HasSubstr(kWantModelName));
  EXPECT_EQ(ConfigError("models {\n name: \"a\"\n labels { key: \"x\" value: 0 }\n}"),
            "f.textproto:3:2: labels: \"x\": 0, want at least 1");
  EXPECT_EQ(ConfigError("models {\n name: 'a'\n labels { key: 'x' value: 1 }\n"
                        " labels { key: 'y' value: 1 }\n labels { key: 'x' value: 2 }\n}"),
            "f.textproto:5:2: labels: \"x\" is given twice");
  for (const char* key : {"", ".", "a b", "\\n", "\\377"}) {
    EXPECT_THAT(
        ConfigError(absl::StrFormat("models { name: 'a' labels { key: '%s' value: 1 } }", key)),
        HasSubstr(kWantName));
  }
  EXPECT_EQ(ConfigError("default_version_policy { }"),
            "f.textproto:1:1: empty, want latest or specific");
  EXPECT_EQ(ConfigError("models { name: 'a' version_policy { } }"),
            "f.textproto:1:20: empty, want latest or specific");
  EXPECT_EQ(ConfigError("default_version_policy { latest { count: 0 } }"),
            "f.textproto:1:35: count: 0, want 1..100");
  EXPECT_EQ(ConfigError("default_version_policy { specific { versions: 4 versions: -4 } }"),
            "f.textproto:1:49: versions: -4, want at least 1");
  EXPECT_EQ(ConfigError("default_version_policy { specific { versions: 4 versions: 4 } }"),
            "f.textproto:1:49: versions: 4 is given twice");
  EXPECT_EQ(ConfigError("default_version_policy { specific { } }"),
            "f.textproto:1:26: versions: missing, want at least 1");
}

TEST(LoadOptions, FlagsWinOverTheFile) {
  const std::string path = ::testing::TempDir() + "/flags_win.textproto";
  std::ofstream(path) << "model_repository: 'file' grpc_port: 1 http_port: 2 workers: 3";
  Flags flags;
  flags.config = path;
  flags.settings.set_grpc_port(0);
  flags.settings.set_model_repository("flag");
  const auto options = LoadOptions(flags);
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->settings.model_repository(), "flag");
  EXPECT_EQ(options->settings.grpc_port(), 0);
  EXPECT_EQ(options->settings.http_port(), 2);
  EXPECT_EQ(options->settings.workers(), 3);
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
  std::ofstream(path) << "model_repository: 'r' grpc_port: 8500 http_port: 8500";
  EXPECT_EQ(LoadOptions(flags).status().message(), "grpc_port and http_port are both 8500");
  std::ofstream(path) << "model_repository: 'r' admin_address: '127.0.0.1:8501'";
  EXPECT_EQ(LoadOptions(flags).status().message(), "http_port and admin_address are both 8501");
  std::ofstream(path) << "model_repository: 'r' http_address: '127.0.0.2' "
                         "admin_address: '127.0.0.1:8501'";
  EXPECT_TRUE(LoadOptions(flags).ok());
  std::ofstream(path) << "model_repository: 'r' redis_clusters { name: 'c' nodes: 'h:1' }"
                         "redis_clusters { name: 'c' nodes: 'g:1' }";
  EXPECT_EQ(LoadOptions(flags).status().message(), "redis_clusters: \"c\" is there twice");
  for (const char* place :
       {"hot_ids_directory: '/nope'", "deltas { fold_directory: '/nope' }", "state_file: '/nope/s'",
        "hot_ids_directory: '/dev/null'", "recorder { directory: '/dev/null' }",
        "recorder { directory: '/dev/null/below/it' }"}) {
    std::ofstream(path) << "model_repository: 'r' " << place;
    EXPECT_THAT(std::string(LoadOptions(flags).status().message()),
                HasSubstr(" is no directory that can be written to"))
        << place;
  }
  std::ofstream(path) << "model_repository: 'r' state_file: 's' models { name: 'a' }";
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
  EXPECT_EQ(error("http_inference: true "
                  "tls { certificate_file: 'c' key_file: 'k' client_ca_file: 'a' }"),
            "http_inference: with tls.client_ca_file the gRPC port wants certificates, for which "
            "the HTTP port does not ask");
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

TEST(ExampleConfig, HasTheDefaults) {
  std::ifstream file(testing::SourceDir() + "/config/server.textproto");
  std::ostringstream text;
  text << file.rdbuf();
  auto options = ReadConfig(text.str(), "server.textproto");
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->default_version_policy, VersionPolicy());
  options->settings.clear_default_version_policy();
  options->settings.clear_model_repository();
  Options defaults;
  EXPECT_TRUE(
      google::protobuf::util::MessageDifferencer::Equivalent(options->settings, defaults.settings))
      << options->settings.DebugString();
}

TEST(RecorderConfig, IsRead) {
  const auto o = ReadConfig(
      "models { name: 'a' record_share: 0.5 } models { name: 'b' record_share: 0 } "
      "models { name: 'c' } "
      "recorder { directory: '/r' share: 0.25 max_per_second: 7 max_file_bytes: 65536 max_files: 2 "
      "max_queued_bytes: 70000 retry_interval_ms: 100 slowest_per_minute: 9 }",
      "f");
  ASSERT_TRUE(o.ok()) << o.status();
  const RecorderOptions r = RecorderOptionsOf(*o);
  EXPECT_EQ(r.model_shares, (std::map<std::string, double>{{"a", 0.5}, {"b", 0}}));
  EXPECT_EQ(r.directory, "/r");
  EXPECT_EQ(r.share, 0.25);
  EXPECT_EQ(r.max_per_second, 7);
  EXPECT_EQ(r.slowest_per_minute, 9);
  EXPECT_EQ(r.max_file_bytes, 65536);
  EXPECT_EQ(r.max_files, 2);
  EXPECT_EQ(r.max_queued_bytes, 70000);
  EXPECT_EQ(r.retry_interval, milliseconds(100));
}

TEST(RecorderConfig, ErrorsSayWhere) {
  EXPECT_EQ(ConfigError("recorder { share: 1.5 }"), "f.textproto:1:12: share: 1.5, want 0..1");
  EXPECT_EQ(ConfigError("recorder { share: 1.000001 }"),
            "f.textproto:1:12: share: 1.000001, want 0..1");
  EXPECT_EQ(ConfigError("models { name: 'a' weight: 100.00001 }"),
            "f.textproto:1:20: weight: 100.00001, want 0.01..100");
  EXPECT_EQ(ConfigError("recorder { share: nan }"), "f.textproto:1:12: share: nan, want 0..1");
  EXPECT_EQ(ConfigError("models { name: 'a' record_share: -1 }"),
            "f.textproto:1:20: record_share: -1, want 0..1");
  EXPECT_EQ(ConfigError("recorder { max_files: 1 }"),
            "f.textproto:1:12: max_files: 1, want 2..10000");
}

TEST(LoadConfig, ErrorsSayWhere) {
  EXPECT_EQ(ConfigError("load { max_memory_bytes: 5 }"),
            "f.textproto:1:8: max_memory_bytes: 5, want 0 or 1048576..1125899906842624");
  EXPECT_EQ(ConfigError("load { max_time_ms: 0 }"),
            "f.textproto:1:8: max_time_ms: 0, want 100..86400000");
  EXPECT_EQ(ConfigError("load { max_files: 1 }"),
            "f.textproto:1:8: max_files: 1, want 10..10000000");
  EXPECT_EQ(ConfigError("model_link_targets: ''"), "f.textproto:1:1: model_link_targets: empty");
}

}  // namespace
}  // namespace ulfd::server

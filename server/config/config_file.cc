// The configuration file: text proto -> Options, every error with its place.
// SPDX-License-Identifier: Apache-2.0
#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/text.h"
#include "proto/server_config.pb.h"
#include "server/config/options.h"

namespace ulfd::server {
namespace {

namespace pb = google::protobuf;
namespace config = ulfd::config::v1;
using Tree = pb::TextFormat::ParseInfoTree;
using std::chrono::milliseconds;

// Errors of one file, each "SOURCE:LINE:COLUMN: message".
class Errors final : public pb::io::ErrorCollector {
 public:
  explicit Errors(absl::string_view source) : source_(source) {}
  void AddError(int line, pb::io::ColumnNumber column, const std::string& message) override {
    constexpr size_t kMaxBytes = 1000;
    const std::string what = Printable(message, kMaxBytes);  // It quotes the file.
    errors_.push_back(line < 0 ? absl::StrCat(source_, ": ", what)
                               : absl::StrCat(source_, ":", line + 1, ":", column + 1, ": ", what));
  }
  bool empty() const { return errors_.empty(); }
  absl::Status ToStatus() const {
    if (errors_.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrJoin(errors_, "\n"));
  }

 private:
  const std::string source_;
  std::vector<std::string> errors_;
};

// Reads the fields of one message; a field that is absent leaves its target alone.
class Reader {
 public:
  Reader(const pb::Message& message, const Tree* tree, Errors& errors)
      : message_(message), tree_(tree), errors_(errors) {}

  bool Has(const char* name) const {
    return message_.GetReflection()->HasField(message_, Field(name));
  }
  void Complain(const char* name, const std::string& text, int index = -1) const {
    pb::TextFormat::ParseLocation at;
    if (tree_ != nullptr) at = tree_->GetLocation(Field(name), index);
    errors_.AddError(at.line, at.column, absl::StrCat(name, ": ", text));
  }
  void Int(const char* name, int min, int max, int& target, bool zero_too = false) const {
    if (!Has(name)) return;
    const int value = message_.GetReflection()->GetInt32(message_, Field(name));
    if ((value < min || value > max) && !(zero_too && value == 0)) {
      Complain(name, absl::StrCat(value, ", want ", zero_too ? "0 or " : "", min, "..", max));
      return;
    }
    target = value;
  }
  void Int64(const char* name, int64_t min, int64_t max, int64_t& target) const {
    if (!Has(name)) return;
    const int64_t value = message_.GetReflection()->GetInt64(message_, Field(name));
    if (value < min || value > max) {
      Complain(name, absl::StrCat(value, ", want ", min, "..", max));
      return;
    }
    target = value;
  }
  // 0, or at least `min`.
  void Bytes(const char* name, int64_t min, int64_t& target) const {
    if (!Has(name)) return;
    const int64_t value = message_.GetReflection()->GetInt64(message_, Field(name));
    if (value != 0 && value < min) {
      Complain(name, absl::StrCat(value, ", want 0 or at least ", min));
      return;
    }
    target = value;
  }
  void Milliseconds(const char* name, int min, int max, milliseconds& target,
                    bool zero_too = false) const {
    int value = static_cast<int>(target.count());
    Int(name, min, max, value, zero_too);
    target = milliseconds(value);
  }
  void Double(const char* name, double min, double max, double& target) const {
    if (!Has(name)) return;
    const double value = message_.GetReflection()->GetDouble(message_, Field(name));
    if (!(value >= min && value <= max)) {  // Not a number, too.
      Complain(name, absl::StrCat(value, ", want ", min, "..", max));
      return;
    }
    target = value;
  }
  void Bool(const char* name, bool& target) const {
    if (Has(name)) target = message_.GetReflection()->GetBool(message_, Field(name));
  }
  // In 0..1.
  void Share(const char* name, double& target) const {
    if (!Has(name)) return;
    const double value = message_.GetReflection()->GetDouble(message_, Field(name));
    if (value >= 0 && value <= 1) {
      target = value;
    } else {
      Complain(name, absl::StrCat(value, ", want 0..1"));
    }
  }
  void Text(const char* name, std::string& target) const {
    if (Has(name)) target = message_.GetReflection()->GetString(message_, Field(name));
  }
  // Words, none of them empty; none given: `target` stays.
  void Texts(const char* name, std::vector<std::string>& target) const {
    const auto& reflection = *message_.GetReflection();
    const int count = reflection.FieldSize(message_, Field(name));
    if (count > 0) target.clear();
    for (int i = 0; i < count; ++i) {
      target.push_back(reflection.GetRepeatedString(message_, Field(name), i));
      if (target.back().empty()) Complain(name, "empty", i);
    }
  }
  // An address that may not be empty.
  void Address(const char* name, std::string& target) const {
    Text(name, target);
    if (Has(name) && target.empty()) Complain(name, "empty, want an IP address");
  }
  template <typename T>
  void Word(const char* name, absl::StatusOr<T> (*parse)(absl::string_view), T& target) const {
    if (!Has(name)) return;
    const auto value = parse(message_.GetReflection()->GetString(message_, Field(name)));
    if (value.ok()) {
      target = *value;
    } else {
      Complain(name, std::string(value.status().message()));
    }
  }
  Reader Sub(const char* name, const pb::Message& sub, int index = -1) const {
    return Reader(sub, tree_ == nullptr ? nullptr : tree_->GetTreeForNested(Field(name), index),
                  errors_);
  }

 private:
  const pb::FieldDescriptor* Field(const char* name) const {
    return message_.GetDescriptor()->FindFieldByName(name);
  }
  const pb::Message& message_;
  const Tree* const tree_;
  Errors& errors_;
};

VersionPolicy ReadPolicy(const config::VersionPolicy& policy, const Reader& reader) {
  VersionPolicy result;
  if (policy.has_latest()) {
    const Reader latest = reader.Sub("latest", policy.latest());
    if (latest.Has("count")) {
      latest.Int("count", 1, 100, result.latest);
    } else {
      reader.Complain("latest", "no count, want 1..100");
    }
  } else if (policy.has_specific()) {
    const Reader specific = reader.Sub("specific", policy.specific());
    const auto& versions = policy.specific().versions();
    result.specific.assign(versions.begin(), versions.end());
    if (versions.empty()) reader.Complain("specific", "no versions, want at least one");
    for (int i = 0; i < versions.size(); ++i) {
      if (versions[i] < 1) {
        specific.Complain("versions", absl::StrCat(versions[i], ", want a positive number"), i);
      } else if (std::count(versions.begin(), versions.begin() + i, versions[i]) > 0) {
        specific.Complain("versions", absl::StrCat(versions[i], " is given twice"), i);
      }
    }
  }
  return result;
}

bool IsModelName(absl::string_view name) {
  const auto ok = [](char c) { return absl::ascii_isalnum(c) || c == '_' || c == '-' || c == '.'; };
  return !name.empty() && name[0] != '.' && std::all_of(name.begin(), name.end(), ok);
}

// 0..1, and required: a share that is forgotten must not be taken for none.
void ReadShare(const Reader& reader, double share, double& target) {
  if (!reader.Has("share") || !(share >= 0 && share <= 1)) {
    reader.Complain("share", absl::StrCat(share, ", want 0..1"));
    return;
  }
  target = share;
}

void ReadRouting(const config::ModelConfig& model, const Reader& reader, ModelConfig& result) {
  if (model.has_canary()) {
    const Reader canary = reader.Sub("canary", model.canary());
    CanaryConfig& target = result.canary.emplace();
    canary.Text("label", target.label);
    if (target.label.empty()) canary.Complain("label", "empty, want the canary version's label");
    ReadShare(canary, model.canary().share(), target.share);
    canary.Text("sticky_metadata", target.metadata);
    canary.Text("sticky_feature", target.feature);
    if (!target.metadata.empty() && !target.feature.empty()) {
      canary.Complain("sticky_feature", "sticky_metadata is set, too, want at most one");
    }
    if (target.metadata != absl::AsciiStrToLower(target.metadata)) {
      canary.Complain("sticky_metadata", "want lower case, as metadata keys are");
    }
  }
  if (model.has_shadow()) {
    const Reader shadow = reader.Sub("shadow", model.shadow());
    ShadowConfig& target = result.shadow.emplace();
    shadow.Text("label", target.label);
    if (target.label.empty()) shadow.Complain("label", "empty, want the shadow version's label");
    ReadShare(shadow, model.shadow().share(), target.share);
    shadow.Int("max_queued", 1, 10000, target.max_queued);
  }
}

ModelConfig ReadModel(const config::ModelConfig& model, const Reader& reader,
                      const VersionPolicy& default_policy) {
  ModelConfig result;
  result.name = model.name();
  result.base_path = model.base_path();
  result.policy = default_policy;
  reader.Bool("required", result.required);
  reader.Double("weight", 0.01, 100, result.limits.weight);
  int max_queued_rows = 0;
  reader.Int("max_queued_rows", 1, 1000000000, max_queued_rows, /*zero_too=*/true);
  if (max_queued_rows > 0) result.limits.max_queued_rows = max_queued_rows;
  if (model.has_version_policy()) {
    result.policy =
        ReadPolicy(model.version_policy(), reader.Sub("version_policy", model.version_policy()));
  }
  int index = 0;
  for (const auto& [label, version] : model.labels()) {
    if (label.empty() || version < 1) {
      reader.Complain(
          "labels",
          absl::StrCat("\"", label, "\": ", version, ", want a name and a positive version"),
          index);
    }
    ++index;
    result.labels[label] = version;
  }
  ReadRouting(model, reader, result);
  reader.Texts("allowed_clients", result.allowed_clients);
  if (model.has_record_share()) reader.Share("record_share", result.record_share.emplace());
  return result;
}

void ReadModels(const config::ServerConfig& file, const Reader& reader, Options& options) {
  if (file.has_default_version_policy()) {
    options.default_version_policy =
        ReadPolicy(file.default_version_policy(),
                   reader.Sub("default_version_policy", file.default_version_policy()));
  }
  std::set<std::string> names;
  for (int i = 0; i < file.models_size(); ++i) {
    const config::ModelConfig& model = file.models(i);
    if (!IsModelName(model.name())) {
      reader.Complain(
          "models",
          absl::StrCat("name \"", model.name(), "\", want letters, digits, \"_\", \"-\" and \".\""),
          i);
    } else if (!names.insert(model.name()).second) {
      reader.Complain("models", absl::StrCat("model \"", model.name(), "\" is given twice"), i);
    }
    options.models.push_back(
        ReadModel(model, reader.Sub("models", model, i), options.default_version_policy));
  }
}

void ReadWatch(const Reader& reader, Options& options) {
  reader.Milliseconds("poll_interval_ms", 10, 3600000, options.poll_interval);
  reader.Milliseconds("settle_time_ms", 0, 3600000, options.settle_time);
  reader.Bool("use_inotify", options.use_inotify);
  reader.Milliseconds("retry_backoff_ms", 10, 60000, options.retry_backoff);
}

void ReadLoad(const Reader& reader, LoadBounds& load) {
  reader.Bytes("max_memory_bytes", 1 << 20, load.max_memory_bytes);
  reader.Milliseconds("max_time_ms", 100, 86400000, load.max_time);
  int max_files = static_cast<int>(load.max_files);
  reader.Int("max_files", 10, 10000000, max_files);
  load.max_files = max_files;
}

void ReadLimits(const Reader& reader, Options& options) {
  reader.Int("max_ads", 1, 100000, options.max_ads);
  reader.Int("max_ids_per_request", 1, 100000000, options.max_ids_per_request);
  reader.Int("max_ids_per_feature", 1, 100000000, options.max_ids_per_feature);
  reader.Int64("max_request_memory_bytes", 1 << 20, int64_t{1} << 40,
               options.max_request_memory_bytes);
  reader.Int("max_message_bytes", 1024, 1 << 30, options.max_message_bytes);
  reader.Int("max_request_fields", 100, 100000000, options.max_request_fields);
  reader.Int("max_queued_requests", 1, 1000000, options.max_queued_requests);
  reader.Int("max_queued_rows", 1, 1000000000, options.max_queued_rows);
}

void ReadScheduling(const Reader& reader, Options& options) {
  reader.Milliseconds("max_queued_ms", 1, 3600000, options.max_queued_work);
  int tile_us = static_cast<int>(options.tile.count());
  reader.Int("tile_us", 100, 1000000, tile_us);
  options.tile = std::chrono::microseconds(tile_us);
  reader.Int("max_batch_rows", 1, 100000, options.max_batch_rows);
  reader.Int("max_batch_requests", 1, 1000, options.max_batch_requests);
  reader.Milliseconds("codel_target_ms", 1, 60000, options.codel_target, /*zero_too=*/true);
  reader.Milliseconds("codel_interval_ms", 1, 600000, options.codel_interval);
}

// What gRPC lets a client send as text.
bool IsMetadataKey(absl::string_view key) {
  const auto ok = [](char c) {
    return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '_' || c == '-' || c == '.';
  };
  return !key.empty() && std::all_of(key.begin(), key.end(), ok) &&
         !absl::StartsWith(key, "grpc-") && !absl::EndsWith(key, "-bin");
}

void ReadClientQuota(const Reader& reader, Options& options) {
  reader.Text("metadata_key", options.client_key);
  if (!IsMetadataKey(options.client_key)) {
    reader.Complain("metadata_key",
                    absl::StrCat("\"", options.client_key,
                                 "\", want lower case letters, digits, \"_\", \"-\" and \".\""));
  }
  if (!reader.Has("max_rows")) reader.Complain("max_rows", "missing, want 1..1000000000");
  reader.Int("max_rows", 1, 1000000000, options.client_max_rows);
}

void ReadRecorder(const Reader& reader, RecorderOptions& recorder) {
  constexpr int kMinBytes = 65536, kMaxBytes = 1 << 30;
  reader.Text("directory", recorder.directory);
  reader.Share("share", recorder.share);
  reader.Int("max_per_second", 1, 100000, recorder.max_per_second);
  reader.Int("max_file_bytes", kMinBytes, kMaxBytes, recorder.max_file_bytes);
  reader.Int("max_files", 2, 10000, recorder.max_files);
  reader.Int("max_queued_bytes", kMinBytes, kMaxBytes, recorder.max_queued_bytes);
  reader.Milliseconds("retry_interval_ms", 100, 86400000, recorder.retry_interval);
}

void ReadConnections(const Reader& reader, Options& options) {
  constexpr bool kZeroToo = true;
  reader.Milliseconds("max_age_ms", 1000, 86400000, options.max_connection_age, kZeroToo);
  reader.Milliseconds("max_age_grace_ms", 0, 3600000, options.max_connection_age_grace);
  reader.Milliseconds("keepalive_time_ms", 1000, 86400000, options.keepalive_time);
  reader.Milliseconds("keepalive_timeout_ms", 100, 3600000, options.keepalive_timeout);
  reader.Milliseconds("min_client_ping_interval_ms", 0, 3600000, options.min_client_ping_interval);
  reader.Milliseconds("max_idle_ms", 1000, 86400000, options.max_connection_idle, kZeroToo);
  reader.Int("max_connections", 1, 1000000, options.max_connections);
  reader.Int("max_concurrent_streams", 1, 1000000, options.max_concurrent_streams);
  reader.Int("max_header_bytes", 1024, 1048576, options.max_header_bytes);
  reader.Int64("max_unsent_bytes", 1 << 20, int64_t{1} << 40, options.max_unsent_bytes);
  reader.Int("max_lost_streams", 10, 1000000, options.max_lost_streams);
  reader.Int("max_ping_strikes", 1, 1000, options.max_ping_strikes);
  reader.Milliseconds("handshake_timeout_ms", 100, 600000, options.handshake_timeout);
  reader.Int64("memory_quota_bytes", 16 << 20, int64_t{1} << 40, options.memory_quota_bytes);
}

void ReadTls(const Reader& parent, const char* name, const config::Tls& tls, TlsOptions& options) {
  if (!parent.Has(name)) return;
  const Reader reader = parent.Sub(name, tls);
  reader.Text("certificate_file", options.certificate_file);
  reader.Text("key_file", options.key_file);
  reader.Text("client_ca_file", options.client_ca_file);
  reader.Milliseconds("reload_interval_ms", 10, 3600000, options.reload_interval);
  if (options.certificate_file.empty()) parent.Complain(name, "no certificate_file");
  if (options.key_file.empty()) parent.Complain(name, "no key_file");
}

void ReadAuthentication(const Reader& reader, AuthenticationOptions& options) {
  reader.Text("token_file", options.token_file);
  reader.Texts("allowed_clients", options.allowed_clients);
  reader.Texts("admin_clients", options.admin_clients);
  reader.Bool("open_health", options.open_health);
  reader.Milliseconds("reload_interval_ms", 10, 3600000, options.reload_interval);
}

}  // namespace

absl::Status CheckOnlyModelsDiffer(const std::string& before, const std::string& after,
                                   absl::string_view source) {
  config::ServerConfig old_file, new_file;
  if (!pb::TextFormat::ParseFromString(before, &old_file) ||
      !pb::TextFormat::ParseFromString(after, &new_file)) {
    return absl::InternalError(absl::StrCat(source, ": was read, and cannot be read again"));
  }
  for (config::ServerConfig* file : {&old_file, &new_file}) {
    file->clear_models();
    file->clear_default_version_policy();
  }
  std::string differences;
  pb::util::MessageDifferencer differencer;
  differencer.ReportDifferencesToString(&differences);
  if (differencer.Compare(old_file, new_file)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      source, ": only models and default_version_policy can change while the daemon runs: ",
      absl::StrJoin(absl::StrSplit(differences, '\n', absl::SkipEmpty()), "; ")));
}

absl::Status ReadConfig(absl::string_view text, absl::string_view source, Options& options) {
  config::ServerConfig file;
  Errors errors(source);
  Tree tree;
  pb::TextFormat::Parser parser;
  parser.RecordErrorsTo(&errors);
  parser.WriteLocationsTo(&tree);
  parser.AllowCaseInsensitiveField(false);
  if (!parser.ParseFromString(std::string(text), &file)) return errors.ToStatus();

  const Reader reader(file, &tree, errors);
  reader.Text("model_repository", options.model_repository);
  ReadModels(file, reader, options);
  ReadWatch(reader.Sub("watch", file.watch()), options);
  reader.Address("grpc_address", options.grpc_address);
  reader.Int("grpc_port", 0, 65535, options.grpc_port);
  reader.Address("http_address", options.http_address);
  reader.Int("http_port", 0, 65535, options.http_port);
  reader.Text("admin_address", options.admin_address);
  reader.Bool("reflection", options.reflection);
  reader.Int("workers", 0, 1024, options.workers);
  reader.Bool("pin_workers", options.pin_workers);
  reader.Int("grpc_threads", 0, 64, options.grpc_threads);
  ReadTls(reader, "tls", file.tls(), options.tls);
  ReadTls(reader, "admin_tls", file.admin_tls(), options.admin_tls);
  ReadAuthentication(reader.Sub("authentication", file.authentication()), options.authentication);
  reader.Bytes("memory_budget_bytes", 1 << 20, options.memory_budget_bytes);
  for (int i = 0; i < file.layer_plugins_size(); ++i) {
    if (file.layer_plugins(i).empty()) reader.Complain("layer_plugins", "empty, want a path", i);
    options.layer_plugins.push_back(file.layer_plugins(i));
  }
  ReadLoad(reader.Sub("load", file.load()), options.load);
  reader.Texts("model_link_targets", options.model_link_targets);
  ReadLimits(reader.Sub("limits", file.limits()), options);
  ReadScheduling(reader.Sub("scheduling", file.scheduling()), options);
  if (file.has_client_quota()) {
    ReadClientQuota(reader.Sub("client_quota", file.client_quota()), options);
  }
  ReadConnections(reader.Sub("connections", file.connections()), options);
  ReadRecorder(reader.Sub("recorder", file.recorder()), options.recorder);
  const Reader shutdown = reader.Sub("shutdown", file.shutdown());
  shutdown.Milliseconds("drain_delay_ms", 0, 600000, options.drain_delay);
  shutdown.Milliseconds("drain_timeout_ms", 0, 3600000, options.drain_timeout);
  const Reader logging = reader.Sub("logging", file.logging());
  logging.Word("level", &ParseLogLevel, options.log_level);
  logging.Word("format", &ParseLogFormat, options.log_format);
  return errors.ToStatus();
}

}  // namespace ulfd::server

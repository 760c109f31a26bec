// SPDX-License-Identifier: Apache-2.0
#include "tools/model/model_flags.h"

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/errors.h"
#include "base/host_port.h"
#include "base/model_version.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "engine/directory/delta_directory.h"
#include "engine/directory/model_directory.h"

namespace ulfd::tools {

RedisFlags::RedisFlags(FlagSet& flags, absl::string_view what) : flags_(flags) {
  flags.Add("redis", absl::StrCat(what, ": ADDRESS:PORT of a node of the Redis Cluster."), &node_);
  flags.Add("redis_user", "--redis: the user; default: Redis's own.", &options_.username);
  flags.Add("redis_password_file", "--redis: its first line is the password.",
            &options_.password_file);
  flags.Add("redis_ca", "--redis: speaks TLS; PEM of who issued the nodes' certificates.",
            &options_.ca_file);
  flags.Add("redis_certificate", "--redis: certificate to show, PEM.", &options_.certificate_file);
  flags.Add("redis_key", "--redis: its key, PEM.", &options_.key_file);
}

absl::Status RedisFlags::Check() const {
  if (!node_.empty() && !IsHostAndPort(node_)) {
    return UsageError("--redis: ", Quote(node_), ", want ADDRESS:PORT");
  }
  return flags_.Only(
      !node_.empty(), "--redis",
      {"redis_user", "redis_password_file", "redis_ca", "redis_certificate", "redis_key"});
}

std::unique_ptr<engine::RedisClusters> RedisFlags::Clusters(
    const std::vector<std::string>& names) const {
  std::vector<engine::RedisOptions> clusters;
  for (const std::string& name : names) {
    engine::RedisOptions& cluster = clusters.emplace_back(options_);
    cluster.name = name;
    cluster.nodes = {node_};
  }
  return std::make_unique<engine::RedisClusters>(std::move(clusters));
}

std::string VersionDirectory(const std::string& directory) {
  if (engine::OpenModelDirectory(directory).ok()) return directory;
  std::string highest = directory;
  int64_t most = 0;
  std::error_code error;
  std::filesystem::directory_iterator it(directory, error);
  for (; !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    std::error_code gone;
    if (!it->is_directory(gone)) continue;
    const std::optional<int64_t> version = ParseVersion(it->path().filename().string());
    if (!version.has_value() || *version <= most) continue;
    most = *version;
    highest = it->path().string();
  }
  return highest;
}

namespace {

// `model` with the deltas of its version up to epoch `last`; -1: all.
absl::StatusOr<std::unique_ptr<const engine::Model>> WithDeltas(
    std::unique_ptr<const engine::Model> model, const std::string& version, int64_t last) {
  ASSIGN_OR_RETURN(const std::vector<engine::EpochMark> epochs,
                   engine::ListEpochs(version, INT64_MAX));
  std::vector<engine::DeltaSource> deltas;
  for (const engine::EpochMark& epoch : epochs) {
    if (last >= 0 && epoch.epoch > last) break;
    deltas.push_back({epoch.epoch, engine::EpochDirectory(version, epoch.epoch)});
  }
  if (last > 0 && (deltas.empty() || deltas.back().epoch != last)) {
    return NotFound("--epoch: ", version, " has no complete epoch ", last);
  }
  if (deltas.empty()) return model;
  engine::DeltasResult result = model->WithDeltas(deltas);
  for (const absl::Status& status : result.statuses) {
    if (!status.ok()) absl::FPrintF(stderr, "left out, as the daemon does: %s\n", status.message());
  }
  return result.model == nullptr ? std::move(model) : std::move(result.model);
}

}  // namespace

absl::Status ModelFlags::Load() {
  for (const std::string& path : paths_) RETURN_IF_ERROR(plugins_.Add(path));
  return absl::OkStatus();
}

absl::StatusOr<const engine::RedisClusters*> ModelFlags::RedisOf(
    const std::string& version_directory) {
  if (!redis_flags_.has_value()) return nullptr;
  RETURN_IF_ERROR(redis_flags_->Check());
  if (redis_flags_->node().empty()) return nullptr;
  ASSIGN_OR_RETURN(const engine::ModelDirectory directory,
                   engine::OpenModelDirectory(version_directory));
  std::vector<std::string> names;
  for (const auto& table : directory.manifest.tables()) {
    if (table.store().has_redis()) names.push_back(table.store().redis().cluster());
  }
  return redis_.emplace_back(redis_flags_->Clusters(names)).get();
}

absl::StatusOr<std::unique_ptr<const engine::Model>> ModelFlags::LoadModel(
    const std::string& directory, std::vector<engine::InputShape> inputs,
    std::optional<engine::PrecisionChoice> precision) {
  RETURN_IF_ERROR(Load());
  engine::LoadOptions options{.directory = VersionDirectory(directory),
                              .precision = std::move(precision),
                              .inputs = std::move(inputs),
                              .layer_types = types()};
  ASSIGN_OR_RETURN(options.redis, RedisOf(options.directory));
  if (backend_.has_value()) options.backend = *backend_;
  if (precision_.has_value()) options.precision.emplace().model = *precision_;
  ASSIGN_OR_RETURN(std::unique_ptr<const engine::Model> model, engine::Model::Load(options));
  return WithDeltas(std::move(model), options.directory, epoch_);
}

}  // namespace ulfd::tools

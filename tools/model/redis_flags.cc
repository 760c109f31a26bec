// SPDX-License-Identifier: Apache-2.0
#include "tools/model/redis_flags.h"

#include "absl/strings/str_cat.h"
#include "base/host_port.h"
#include "base/text.h"

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

}  // namespace ulfd::tools

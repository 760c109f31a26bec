// How commands reach a Redis Cluster: --redis, and with what password and certificates.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_MODEL_REDIS_FLAGS_H_
#define ULFD_TOOLS_MODEL_REDIS_FLAGS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/flags/flag_set.h"
#include "engine/stores/redis_store.h"

namespace ulfd::tools {

class RedisFlags {
 public:
  // `flags` must outlive this object.  `what`: what the cluster is for, for --help.
  RedisFlags(FlagSet& flags, absl::string_view what);
  // After FlagSet::Parse: a usage error for what is no address, and for the others without one.
  absl::Status Check() const;
  // "": no cluster is given.
  const std::string& node() const { return node_; }
  // The cluster under each of these names.
  std::unique_ptr<engine::RedisClusters> Clusters(const std::vector<std::string>& names) const;

 private:
  const FlagSet& flags_;
  std::string node_;
  engine::RedisOptions options_;
};

}  // namespace ulfd::tools

#endif  // ULFD_TOOLS_MODEL_REDIS_FLAGS_H_

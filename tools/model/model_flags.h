// How commands load a model, with --layer_plugins, --epoch, --redis and, where they run it,
// --backend and --precision.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_MODEL_MODEL_FLAGS_H_
#define ULFD_TOOLS_MODEL_MODEL_FLAGS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/flags/flag_set.h"
#include "engine/layers/plugin.h"
#include "engine/runtime/model.h"
#include "engine/stores/redis_store.h"

namespace ulfd::tools {

// The directory itself, or the highest version of a model's directory: one that holds no graph.
std::string VersionDirectory(const std::string& directory);

// How commands reach a Redis Cluster: --redis, and with what password and certificates.
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

// The flags and what they load.  Lives as long as the models that use its types.
class ModelFlags {
 public:
  // `flags` must not outlive this object.
  explicit ModelFlags(FlagSet& flags) {
    flags.Add("layer_plugins", "Shared libraries with further layer types, separated by commas.",
              &paths_);
  }
  // Of commands that load models: --epoch, and where tables in Redis are.
  void AddTables(FlagSet& flags) {
    AddRedis(flags);
    flags.Add("epoch", "The last delta of the version to apply; 0: none, -1: all, as the daemon.",
              &epoch_, -1);
  }
  void AddRedis(FlagSet& flags) { redis_flags_.emplace(flags, "Of models with tables in Redis"); }
  void AddBackend(FlagSet& flags) {
    AddChoice(flags, "backend",
              "What computes products with weights: auto, onednn or native; by default as the "
              "manifest says.",
              engine::ParseBackend, backend_);
    AddChoice(flags, "precision",
              "In what all of these are computed: auto, bf16, fp32 or int8; by default as the "
              "manifest says.",
              engine::ParsePrecision, precision_);
  }
  // After FlagSet::Parse.
  absl::Status Load();
  absl::Span<const engine::LayerType* const> types() const { return plugins_.types(); }
  // REQUIRES: AddRedis or AddTables.
  const RedisFlags& redis() const { return *redis_flags_; }
  // Where the tables in Redis of a version directory are; null: --redis does not say.  Valid until
  // this object ends.
  absl::StatusOr<const engine::RedisClusters*> RedisOf(const std::string& version_directory);
  // Load, and the model in VersionDirectory(directory) with its deltas, planned for `inputs`.
  // `precision`: instead of the manifest's.  What is said of deltas that the daemon would refuse
  // goes to standard error; NOT_FOUND for an epoch that there is not.
  absl::StatusOr<std::unique_ptr<const engine::Model>> LoadModel(
      const std::string& directory, std::vector<engine::InputShape> inputs = {},
      std::optional<engine::PrecisionChoice> precision = std::nullopt);

 private:
  template <typename T, typename Parse>
  static void AddChoice(FlagSet& flags, const std::string& name, const std::string& help,
                        Parse parse, std::optional<T>& choice) {
    flags.AddRead(name, help, [=, &choice](const std::string& text) {
      absl::StatusOr<T> parsed = parse(text);
      if (!parsed.ok()) return UsageError(parsed.status().message());
      choice = *parsed;
      return absl::OkStatus();
    });
  }

  std::vector<std::string> paths_;
  std::optional<engine::Backend> backend_;
  std::optional<engine::Precision> precision_;
  int64_t epoch_ = -1;
  engine::LayerPlugins plugins_;
  std::optional<RedisFlags> redis_flags_;
  std::vector<std::unique_ptr<engine::RedisClusters>> redis_;
};

}  // namespace ulfd::tools

#endif  // ULFD_TOOLS_MODEL_MODEL_FLAGS_H_

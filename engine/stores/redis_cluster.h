// A Redis Cluster: which node has which slot, connections to them, and reads over all of them.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_STORES_REDIS_CLUSTER_H_
#define ULFD_ENGINE_STORES_REDIS_CLUSTER_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/hash_map.h"
#include "base/mutex.h"
#include "engine/embedding/row_store.h"
#include "engine/stores/redis_connection.h"
#include "engine/stores/redis_names.h"
#include "engine/stores/redis_options.h"

namespace ulfd::engine {

inline constexpr int kRedisSlots = 16384;
// Of a cluster.  A fetch may have a connection to each.
inline constexpr size_t kMaxRedisNodes = 1000;

// The slot of a key with the hash tag `tag`.
uint16_t RedisSlotOf(absl::string_view tag);

// Immutable.
struct RedisTopology {
  struct Shard {
    std::vector<std::string> nodes;  // The master first.
  };
  std::vector<Shard> shards;
  std::set<std::string> nodes;                  // Of all shards.
  std::array<int16_t, kRedisSlots> shard_of{};  // -1: nobody has the slot.
};
// From the reply to CLUSTER SLOTS of `node`.  DATA_LOSS if it is none.
absl::StatusOr<RedisTopology> ParseSlots(const redisReply& reply, const std::string& node);

// Where a node sends who asks it for a slot that it does not have.
struct RedisRedirection {
  bool ask = false;  // For this command alone: the slot is on its way.
  std::string node;
};
// From a reply of `node`; nothing if it is another one.
std::optional<RedisRedirection> RedirectionOf(const redisReply& reply, const std::string& node);

// Thread-safe.
class RedisCluster {
 public:
  // Learns from one of the nodes who the others are.  UNAVAILABLE, naming the node, if none of them
  // says so within some seconds; PERMISSION_DENIED; INVALID_ARGUMENT for certificates.
  static absl::StatusOr<std::shared_ptr<RedisCluster>> Create(const RedisOptions& options);
  ~RedisCluster();

  const std::string& name() const { return options_.name; }
  std::shared_ptr<const RedisTopology> topology() const;
  // To learn it again, soon and on another thread.
  void AskTopology();

  // A connection that is idle, or a new one.  Asks nobody for the address of a node's name; where
  // it is not known, it will be soon.
  absl::StatusOr<std::unique_ptr<RedisConnection>> Take(const std::string& node);
  // Gives it back; replies that are still to come are skipped.
  void Give(std::unique_ptr<RedisConnection> connection);

  // The node of a shard to read from.  `but`: not that one, if there is another.
  const std::string& Choose(const RedisTopology::Shard& shard, absl::string_view but);
  // It did not answer, or not in time: others are chosen for some time.
  void Avoid(const std::string& node);
  // After how long a read is sent to another node, too; grows and shrinks with what reads take.
  std::chrono::nanoseconds hedge_after() const;
  void Observe(std::chrono::nanoseconds read);
  // Whether one more read may be sent twice; counts it.  A tenth of all may.
  bool TakeHedge();
  int64_t hedges() const { return hedges_.load(std::memory_order_relaxed); }

  // The replies of one node to so many commands, none of which a redirection is followed for.
  absl::StatusOr<std::vector<RedisReply>> CallNode(const std::string& node,
                                                   const std::string& commands, size_t replies,
                                                   TimePoint deadline);
  // One command and its reply, which may be an error; follows redirections of the slot.
  absl::StatusOr<RedisReply> Call(const std::vector<absl::string_view>& words, uint16_t slot,
                                  TimePoint deadline);

 private:
  RedisCluster(const RedisOptions& options, std::unique_ptr<const RedisSecurity> security);
  absl::Status Learn();
  // Asks for the addresses of names that have one already, as it may be another one by now, or of
  // those that have none; of as many as some seconds allow.
  void ResolveNames(const RedisTopology& topology, bool known);
  void LearnLoop();
  bool IsMember(const std::string& node) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const RedisOptions options_;
  const std::unique_ptr<const RedisSecurity> security_;
  RedisNames names_;
  std::atomic<int64_t> read_p95_ns_;
  std::atomic<int64_t> hedge_credit_{0}, hedges_{0};
  std::atomic<uint64_t> turn_{0};

  mutable Mutex mu_;
  CondVar asked_;
  std::shared_ptr<const RedisTopology> topology_ ABSL_GUARDED_BY(mu_);
  bool learn_ ABSL_GUARDED_BY(mu_) = false, stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::map<std::string, TimePoint> avoided_ ABSL_GUARDED_BY(mu_);  // Until when.
  HashMap<std::string, std::vector<std::unique_ptr<RedisConnection>>> idle_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;  // Last.
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_STORES_REDIS_CLUSTER_H_

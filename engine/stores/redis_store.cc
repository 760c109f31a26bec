// SPDX-License-Identifier: Apache-2.0
#include "engine/stores/redis_store.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "engine/embedding/key_hash.h"
#include "engine/stores/redis_cluster.h"
#include "engine/stores/redis_read.h"
#include "engine/stores/stored_table.h"

namespace ulfd::engine {
namespace {

namespace pb = ulfd::store::v1;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kPatience(5);
constexpr size_t kMaxNameBytes = 100;
constexpr uint32_t kPartitions = 256;
// Rows that are under way at a time.
constexpr size_t kRowsAtOnce = 2000;

absl::Status CheckName(const std::string& table) {
  const bool good = !table.empty() && table.size() <= kMaxNameBytes &&
                    std::all_of(table.begin(), table.end(), [](unsigned char c) {
                      return absl::ascii_isalnum(c) || c == '_' || c == '-' || c == '.' || c == ':';
                    });
  if (good) return absl::OkStatus();
  return InvalidArgument("table ", Quote(table), ": want at most ", kMaxNameBytes,
                         " letters, digits, \"_\", \"-\", \".\" and \":\"");
}

std::string TableKey(const std::string& table) { return absl::StrCat("{", table, "}"); }

// The keys of a table.
class Partitions {
 public:
  Partitions(const std::string& table, uint32_t count) {
    for (uint32_t p = 0; p < count; ++p) {
      tags_.push_back(absl::StrCat(table, "/", p));
      slots_.push_back(RedisSlotOf(tags_.back()));
    }
  }
  std::string KeyOf(int64_t id) const { return absl::StrCat("{", tags_[Of(id)], "}", id); }
  uint16_t SlotOf(int64_t id) const { return slots_[Of(id)]; }

 private:
  size_t Of(int64_t id) const { return HashKey(id) % tags_.size(); }
  std::vector<std::string> tags_;
  std::vector<uint16_t> slots_;
};

// What the cluster says of the table; nothing: it has none of that name.
absl::StatusOr<std::optional<pb::StoredTable>> ReadTable(RedisCluster& cluster,
                                                         const std::string& table) {
  const std::string key = TableKey(table);
  ASSIGN_OR_RETURN(const RedisReply reply,
                   cluster.Call({"GET", key}, RedisSlotOf(table), Clock::now() + kPatience));
  if (reply->type == REDIS_REPLY_NIL) return std::optional<pb::StoredTable>();
  if (reply->type != REDIS_REPLY_STRING) {
    const std::string what = absl::StrCat("key \"", key, "\": ", Printable(TextOf(*reply), 200));
    // A key of another type stays one; what else a node refuses (it is loading, the cluster is
    // down, the user may not) it may allow later.
    return absl::StartsWith(TextOf(*reply), "WRONGTYPE") ? DataLoss(what) : Unavailable(what);
  }
  ASSIGN_OR_RETURN(pb::StoredTable stored,
                   Annotate(ParseStoredTable(TextOf(*reply)), "key \"", key, "\""));
  if (stored.partitions() < 1 || stored.partitions() > kRedisSlots) {
    return DataLoss("key \"", key, "\": ", stored.partitions(), " partitions, want 1 to ",
                    kRedisSlots);
  }
  return std::optional(std::move(stored));
}

class RedisStore final : public RowStore {
 public:
  RedisStore(std::shared_ptr<RedisCluster> cluster, const std::string& table,
             const pb::StoredTable& stored)
      : cluster_(std::move(cluster)),
        table_(InfoOf(stored)),
        partitions_(table, stored.partitions()) {}

  const StoredTableInfo& table() const override { return table_; }
  const void* backend() const override { return cluster_.get(); }
  int64_t bytes() const override { return 0; }
  int64_t hedges() const override { return cluster_->hedges(); }

  void Read(absl::Span<RowRead* const> reads, TimePoint deadline) const override {
    std::vector<RedisKey> keys;
    for (RowRead* const read : reads) {
      const auto& store = *static_cast<const RedisStore*>(read->store);  // Of this backend.
      for (const size_t i : read->wanted) {
        const int64_t id = read->rows->ids()[i];
        keys.push_back({.key = store.partitions_.KeyOf(id),
                        .slot = store.partitions_.SlotOf(id),
                        .read = read,
                        .row = i});
      }
    }
    ReadRedis(*cluster_, std::move(keys), deadline);
  }

 private:
  const std::shared_ptr<RedisCluster> cluster_;
  const StoredTableInfo table_;
  const Partitions partitions_;
};

// Rows on their way to the nodes of a cluster.
class RowWriter {
 public:
  RowWriter(RedisCluster& cluster, const Partitions& partitions)
      : cluster_(cluster), partitions_(partitions) {}

  absl::Status Put(int64_t id, absl::string_view row) {
    rows_.push_back({partitions_.KeyOf(id), partitions_.SlotOf(id), std::string(row)});
    return rows_.size() < kRowsAtOnce ? absl::OkStatus() : Flush();
  }

  absl::Status Flush() {
    const auto topology = cluster_.topology();
    std::map<std::string, std::vector<const Row*>> by_node;
    std::vector<const Row*> again;
    for (const Row& row : rows_) {
      const int16_t shard = topology->shard_of[row.slot];
      if (shard < 0) {
        again.push_back(&row);
      } else {
        by_node[topology->shards[static_cast<size_t>(shard)].nodes[0]].push_back(&row);
      }
    }
    for (const auto& [node, rows] : by_node) RETURN_IF_ERROR(FlushTo(node, rows, again));
    for (const Row* row : again) RETURN_IF_ERROR(PutAlone(*row));
    rows_.clear();
    return absl::OkStatus();
  }

 private:
  struct Row {
    std::string key;
    uint16_t slot = 0;
    std::string value;
  };

  absl::Status FlushTo(const std::string& node, const std::vector<const Row*>& rows,
                       std::vector<const Row*>& again) {
    std::string commands;
    for (const Row* row : rows) AppendCommand({"SET", row->key, row->value}, commands);
    ASSIGN_OR_RETURN(const std::vector<RedisReply> replies,
                     cluster_.CallNode(node, commands, rows.size(), Clock::now() + kPatience));
    for (size_t r = 0; r < rows.size(); ++r) {
      // Of a slot that is elsewhere, or on its way.
      if (replies[r]->type == REDIS_REPLY_ERROR) again.push_back(rows[r]);
    }
    return absl::OkStatus();
  }

  absl::Status PutAlone(const Row& row) {
    ASSIGN_OR_RETURN(const RedisReply reply, cluster_.Call({"SET", row.key, row.value}, row.slot,
                                                           Clock::now() + kPatience));
    if (reply->type == REDIS_REPLY_STATUS) return absl::OkStatus();
    return Unavailable("key \"", row.key, "\": ", Printable(TextOf(*reply), 200));
  }

  RedisCluster& cluster_;
  const Partitions& partitions_;
  std::vector<Row> rows_;
};

absl::Status CheckSame(const pb::StoredTable& there, const pb::StoredTable& wanted) {
  if (there.partitions() != wanted.partitions()) {
    return InvalidArgument("is there with ", there.partitions(), " partitions, not ",
                           wanted.partitions(), ": choose another name");
  }
  if (there.dim() == wanted.dim() && there.format() == wanted.format()) return absl::OkStatus();
  return InvalidArgument("is there with rows of ", there.dim(), " values, ", there.format(),
                         ", not of ", wanted.dim(), ", ", wanted.format(), ": choose another name");
}

// Of all rows and their partitions.  INVALID_ARGUMENT if an id has two, before one is written.
absl::StatusOr<std::string> DigestOf(const RowSorter& rows, uint32_t partitions) {
  RowDigest digest;
  digest.Add(absl::StrCat(partitions, "\n"));
  SortedRows sorted(rows);
  RETURN_IF_ERROR(sorted.Start());
  while (!sorted.empty()) {
    digest.Add(absl::string_view(sorted.record(), rows.record_bytes()));
    RETURN_IF_ERROR(sorted.Next());
  }
  return digest.Get();
}

absl::Status WriteTable(RedisCluster& cluster, const RedisTableOptions& options,
                        const RowReport& report, RowSorter& rows, const WriteProgress& progress) {
  ASSIGN_OR_RETURN(const auto there, ReadTable(cluster, options.table));
  pb::StoredTable stored = DescribeRows(rows, report);
  stored.set_partitions(options.partitions > 0 ? options.partitions
                        : there.has_value()    ? there->partitions()
                                               : kPartitions);
  if (there.has_value()) RETURN_IF_ERROR(CheckSame(*there, stored));
  ASSIGN_OR_RETURN(const std::string digest, DigestOf(rows, stored.partitions()));
  stored.set_digest(digest);
  const Partitions partitions(options.table, stored.partitions());
  RowWriter writer(cluster, partitions);
  SortedRows sorted(rows);
  RETURN_IF_ERROR(sorted.Start());
  const size_t row_bytes = rows.record_bytes() - sizeof(int64_t);
  for (int64_t done = 0; !sorted.empty(); ++done) {
    RETURN_IF_ERROR(writer.Put(sorted.id(), absl::string_view(sorted.row(), row_bytes)));
    RETURN_IF_ERROR(sorted.Next());
    if (progress && done % 4096 == 0) RETURN_IF_ERROR(progress(done, report.rows));
  }
  RETURN_IF_ERROR(writer.Flush());
  const std::string key = TableKey(options.table), value = stored.SerializeAsString();
  ASSIGN_OR_RETURN(
      const RedisReply reply,
      cluster.Call({"SET", key, value}, RedisSlotOf(options.table), Clock::now() + kPatience));
  if (reply->type == REDIS_REPLY_STATUS) return absl::OkStatus();
  return Unavailable("key \"", key, "\": ", Printable(TextOf(*reply), 200));
}

std::string Where(const RedisCluster& cluster, const std::string& table) {
  return absl::StrCat("Redis cluster \"", cluster.name(), "\", table \"", table, "\"");
}

}  // namespace

RedisClusters::RedisClusters(std::vector<RedisOptions> options) : options_(std::move(options)) {}
RedisClusters::~RedisClusters() = default;

absl::Status RedisClusters::CheckFiles() const {
  for (const RedisOptions& options : options_) {
    const std::string what = absl::StrCat("Redis cluster \"", options.name, "\"");
    ASSIGN_OR_RETURN(const auto security, Annotate(RedisSecurity::Create(options), what));
    RETURN_IF_ERROR(Annotate(security->Greeting().status(), what));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<RedisCluster>> RedisClusters::Get(const std::string& name) const {
  const auto options = std::find_if(options_.begin(), options_.end(),
                                    [&](const RedisOptions& o) { return o.name == name; });
  if (options == options_.end()) {
    return NotFound("Redis cluster \"", name, "\": the configuration has none of that name");
  }
  MutexLock lock(mu_);
  std::shared_ptr<RedisCluster>& open = open_[name];
  if (open == nullptr) {
    ASSIGN_OR_RETURN(open, RedisCluster::Create(*options));
  }
  return open;
}

absl::StatusOr<std::unique_ptr<const RowStore>> OpenRedis(std::shared_ptr<RedisCluster> cluster,
                                                          const std::string& table) {
  RETURN_IF_ERROR(CheckName(table));
  ASSIGN_OR_RETURN(const std::optional<pb::StoredTable> stored,
                   Annotate(ReadTable(*cluster, table), Where(*cluster, table)));
  if (!stored.has_value()) {
    return NotFound(Where(*cluster, table),
                    ": is not there; `ulf table build --to=redis` writes one");
  }
  return std::make_unique<RedisStore>(std::move(cluster), table, *stored);
}

absl::StatusOr<RowReport> WriteRedis(RedisCluster& cluster, const RedisTableOptions& options,
                                     RowSorter& rows, const WriteProgress& progress) {
  RETURN_IF_ERROR(CheckName(options.table));
  ASSIGN_OR_RETURN(const RowReport report, rows.Finish());
  const absl::Status status = WriteTable(cluster, options, report, rows, progress);
  if (!status.ok()) return Annotate(status, Where(cluster, options.table));
  return report;
}

}  // namespace ulfd::engine

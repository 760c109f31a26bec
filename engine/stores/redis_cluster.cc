// SPDX-License-Identifier: Apache-2.0
#include "engine/stores/redis_cluster.h"

#include <poll.h>
#include <pthread.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/errors.h"
#include "base/load_scope.h"
#include "base/status_macros.h"
#include "base/text.h"

namespace ulfd::engine {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr milliseconds kLearnTimeout(500);
constexpr std::chrono::seconds kLearnInterval(5);
// Of those that the cluster is known to have, before those of the configuration: a thousand that
// hang would take minutes.
constexpr size_t kNodesAsked = 4;
constexpr std::chrono::seconds kResolveTimeout(5);  // Of all names.
constexpr milliseconds kLearnPause(50);
constexpr milliseconds kAvoidFor(500);
constexpr nanoseconds kFirstHedge = milliseconds(5), kLeastHedge = std::chrono::microseconds(500),
                      kMostHedge = milliseconds(200);
constexpr size_t kMostIdle = 64;  // Connections to a node.
// Of replies to the largest commands: slots, a mean row.
constexpr size_t kMaxReplyBytes = size_t{16} << 20, kMaxReplyElements = size_t{1} << 19;
constexpr int kRedirections = 5;
// Of hedges: what a read adds, what one takes, and how much there may be.
constexpr int64_t kHedgeShare = 1, kHedgePrice = 10, kMostCredit = 1000;

// What `node` calls a node of its cluster, as "host:port"; "" if it is no address.
std::string AddressOf(absl::string_view host, int64_t port, const std::string& node) {
  constexpr size_t kMaxHostBytes = 255;
  // A node that does not know its own address leaves it out.
  if (host.empty() || host == "?") host = absl::string_view(node).substr(0, node.rfind(':'));
  const bool good = host.size() <= kMaxHostBytes && port >= 0 && port <= UINT16_MAX &&
                    std::all_of(host.begin(), host.end(), absl::ascii_isgraph);
  if (!good) return "";
  const bool bare_ipv6 = absl::StrContains(host, ':') && host.front() != '[';
  return bare_ipv6 ? absl::StrCat("[", host, "]:", port) : absl::StrCat(host, ":", port);
}

}  // namespace

uint16_t RedisSlotOf(absl::string_view tag) {
  uint16_t crc = 0;  // CRC-16/XMODEM.
  for (const char c : tag) {
    crc = static_cast<uint16_t>(crc ^ (static_cast<uint16_t>(static_cast<uint8_t>(c)) << 8));
    for (int bit = 0; bit < 8; ++bit) {
      crc = static_cast<uint16_t>((crc & 0x8000) != 0 ? (crc << 1) ^ 0x1021 : crc << 1);
    }
  }
  return crc % kRedisSlots;
}

absl::StatusOr<RedisTopology> ParseSlots(const redisReply& reply, const std::string& node) {
  const auto bad = [&node] {
    return DataLoss("Redis node ", node, ": what it says of the cluster's slots is none");
  };
  RedisTopology topology;
  topology.shard_of.fill(-1);
  if (reply.type == REDIS_REPLY_ERROR) {
    return Unavailable("Redis node ", node, ": ", Printable(TextOf(reply), 200));
  }
  if (reply.type != REDIS_REPLY_ARRAY) return bad();
  for (size_t r = 0; r < reply.elements; ++r) {
    const redisReply& range = *reply.element[r];
    if (range.type != REDIS_REPLY_ARRAY || range.elements < 3) return bad();
    const redisReply &first = *range.element[0], &last = *range.element[1];
    if (first.type != REDIS_REPLY_INTEGER || last.type != REDIS_REPLY_INTEGER ||
        first.integer < 0 || last.integer >= kRedisSlots || first.integer > last.integer) {
      return bad();
    }
    RedisTopology::Shard shard;
    for (size_t n = 2; n < range.elements; ++n) {
      const redisReply& member = *range.element[n];
      if (member.type != REDIS_REPLY_ARRAY || member.elements < 2 ||
          member.element[1]->type != REDIS_REPLY_INTEGER) {
        return bad();
      }
      const redisReply& host = *member.element[0];
      std::string address = AddressOf(host.type == REDIS_REPLY_STRING ? TextOf(host) : "",
                                      member.element[1]->integer, node);
      if (address.empty()) return bad();
      topology.nodes.insert(address);
      shard.nodes.push_back(std::move(address));
    }
    if (topology.nodes.size() > kMaxRedisNodes) {
      return DataLoss("Redis node ", node, ": more than ", kMaxRedisNodes,
                      " nodes, it says, are in the cluster");
    }
    for (int64_t slot = first.integer; slot <= last.integer; ++slot) {
      int16_t& of = topology.shard_of[static_cast<size_t>(slot)];
      // In one range only: there are not more shards than slots.
      if (of >= 0) return bad();
      of = static_cast<int16_t>(topology.shards.size());
    }
    topology.shards.push_back(std::move(shard));
  }
  if (topology.shards.empty()) {
    return Unavailable("Redis node ", node, ": knows of no slots");
  }
  return topology;
}

std::optional<RedisRedirection> RedirectionOf(const redisReply& reply, const std::string& node) {
  if (reply.type != REDIS_REPLY_ERROR) return std::nullopt;
  // "MOVED SLOT HOST:PORT"
  const std::vector<absl::string_view> words =
      absl::StrSplit(TextOf(reply), absl::MaxSplits(' ', 3));
  if (words.size() != 3 || (words[0] != "MOVED" && words[0] != "ASK")) return std::nullopt;
  const size_t colon = words[2].rfind(':');
  int port = 0;
  if (colon == absl::string_view::npos || !absl::SimpleAtoi(words[2].substr(colon + 1), &port)) {
    return std::nullopt;
  }
  std::string address = AddressOf(words[2].substr(0, colon), port, node);
  if (address.empty()) return std::nullopt;
  return RedisRedirection{.ask = words[0] == "ASK", .node = std::move(address)};
}

RedisCluster::RedisCluster(const RedisOptions& options,
                           std::unique_ptr<const RedisSecurity> security)
    : options_(options), security_(std::move(security)), read_p95_ns_(kFirstHedge.count()) {}

absl::StatusOr<std::shared_ptr<RedisCluster>> RedisCluster::Create(const RedisOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<const RedisSecurity> security, RedisSecurity::Create(options));
  std::shared_ptr<RedisCluster> cluster(new RedisCluster(options, std::move(security)));
  const absl::Status learned = cluster->Learn();
  if (!learned.ok()) {
    return Annotate(learned, "Redis cluster \"", options.name, "\"");
  }
  try {
    cluster->thread_ = std::thread([c = cluster.get()] { c->LearnLoop(); });
  } catch (const std::system_error& error) {
    return Unavailable("Redis cluster \"", options.name, "\": no thread for it: ", error.what());
  }
  return cluster;
}

RedisCluster::~RedisCluster() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
  }
  asked_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

std::shared_ptr<const RedisTopology> RedisCluster::topology() const {
  MutexLock lock(mu_);
  return topology_;
}

void RedisCluster::AskTopology() {
  MutexLock lock(mu_);
  learn_ = true;
  asked_.NotifyAll();
}

absl::Status RedisCluster::Learn() {
  const std::shared_ptr<const RedisTopology> known = topology();
  std::vector<std::string> nodes;
  if (known != nullptr) nodes.assign(known->nodes.begin(), known->nodes.end());
  // Another one each time: one that hangs must not hold up all.
  if (!nodes.empty()) {
    std::rotate(nodes.begin(), nodes.begin() + turn_.fetch_add(kNodesAsked) % nodes.size(),
                nodes.end());
  }
  nodes.resize(std::min(nodes.size(), kNodesAsked));
  nodes.insert(nodes.end(), options_.nodes.begin(), options_.nodes.end());
  std::string command;
  AppendCommand({"CLUSTER", "SLOTS"}, command);
  absl::Status status = Unavailable("no nodes");
  for (const std::string& node : nodes) {
    const auto reply = CallNode(node, command, 1, Clock::now() + kLearnTimeout);
    if (!reply.ok()) {
      status = reply.status();
      continue;
    }
    absl::StatusOr<RedisTopology> topology = ParseSlots(*reply->front(), node);
    if (!topology.ok()) {
      status = topology.status();
      continue;
    }
    const auto learned = std::make_shared<const RedisTopology>(*std::move(topology));
    ResolveNames(*learned, /*known=*/false);
    {
      MutexLock lock(mu_);
      topology_ = learned;
      const auto gone = [&](const auto& entry) { return !learned->nodes.contains(entry.first); };
      std::erase_if(avoided_, gone);
      absl::erase_if(idle_, gone);
    }
    ResolveNames(*learned, /*known=*/true);
    names_.KeepOnly(learned->nodes);
    return absl::OkStatus();
  }
  // They may all be elsewhere by now.
  if (known != nullptr) ResolveNames(*known, /*known=*/true);
  return status;
}

void RedisCluster::ResolveNames(const RedisTopology& topology, bool known) {
  const TimePoint end = Clock::now() + kResolveTimeout;
  for (const std::string& node : topology.nodes) {
    if (Clock::now() > end) return;
    if (names_.Find(node).ok() == known) names_.Resolve(node).IgnoreError();
  }
}

void RedisCluster::LearnLoop() {
  pthread_setname_np(pthread_self(), "ulfd-redis");
  for (;;) {
    {
      MutexLock lock(mu_);
      const TimePoint next = Clock::now() + kLearnInterval;
      while (!learn_ && !stopping_ && Clock::now() < next) asked_.WaitUntil(mu_, next);
      if (stopping_) return;
      learn_ = false;
    }
    // What is known stays where nobody tells, or there is no memory for what they say.
    WithinMemory([&] { return Learn(); }).IgnoreError();
    MutexLock lock(mu_);
    const TimePoint next = Clock::now() + kLearnPause;
    while (!stopping_ && Clock::now() < next) asked_.WaitUntil(mu_, next);
  }
}

absl::StatusOr<std::unique_ptr<RedisConnection>> RedisCluster::Take(const std::string& node) {
  for (;;) {
    std::unique_ptr<RedisConnection> connection;
    {
      MutexLock lock(mu_);
      const auto idle = idle_.find(node);
      if (idle == idle_.end() || idle->second.empty()) break;
      connection = std::move(idle->second.back());
      idle->second.pop_back();
    }
    // Replies that nobody waits for any more may have come, or the other side may have gone.
    if (!connection->Advance().ok() || !connection->Next().ok()) continue;
    if (connection->idle()) return connection;
    // It lets others wait: better a new one.
  }
  const absl::StatusOr<RedisAddress> address = names_.Find(node);
  if (!address.ok()) {
    AskTopology();
    return address.status();
  }
  return RedisConnection::Start(node, *address, *security_);
}

void RedisCluster::Give(std::unique_ptr<RedisConnection> connection) {
  connection->Abandon();
  MutexLock lock(mu_);
  // There may be any number of others, to which redirections lead.
  if (!IsMember(connection->node())) return;
  std::vector<std::unique_ptr<RedisConnection>>& idle = idle_[connection->node()];
  if (idle.size() < kMostIdle) idle.push_back(std::move(connection));
}

const std::string& RedisCluster::Choose(const RedisTopology::Shard& shard, absl::string_view but) {
  const size_t count = shard.nodes.size();
  const size_t first = turn_.fetch_add(1, std::memory_order_relaxed) % count;
  const TimePoint now = Clock::now();
  const std::string* second_best = nullptr;
  MutexLock lock(mu_);
  for (size_t i = 0; i < count; ++i) {
    const std::string& node = shard.nodes[(first + i) % count];
    if (node == but) continue;
    second_best = &node;
    const auto avoided = avoided_.find(node);
    if (avoided == avoided_.end()) return node;
    if (avoided->second > now) continue;
    avoided_.erase(avoided);
    return node;
  }
  return second_best == nullptr ? shard.nodes[0] : *second_best;
}

void RedisCluster::Avoid(const std::string& node) {
  MutexLock lock(mu_);
  if (IsMember(node)) avoided_[node] = Clock::now() + kAvoidFor;
}

bool RedisCluster::IsMember(const std::string& node) const {
  return topology_ != nullptr && topology_->nodes.contains(node);
}

nanoseconds RedisCluster::hedge_after() const {
  return std::clamp(nanoseconds(read_p95_ns_.load(std::memory_order_relaxed)), kLeastHedge,
                    kMostHedge);
}

void RedisCluster::Observe(nanoseconds read) {
  // Steps of such sizes up and down balance where one of twenty reads takes longer.
  const int64_t p95 = read_p95_ns_.load(std::memory_order_relaxed);
  const int64_t step = p95 / 400 + 100;
  read_p95_ns_.store(read.count() > p95 ? p95 + 19 * step : p95 - step, std::memory_order_relaxed);
  if (hedge_credit_.load(std::memory_order_relaxed) < kMostCredit) {
    hedge_credit_.fetch_add(kHedgeShare, std::memory_order_relaxed);
  }
}

bool RedisCluster::TakeHedge() {
  if (hedge_credit_.load(std::memory_order_relaxed) < kHedgePrice) return false;
  hedge_credit_.fetch_sub(kHedgePrice, std::memory_order_relaxed);
  hedges_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

absl::StatusOr<std::vector<RedisReply>> RedisCluster::CallNode(const std::string& node,
                                                               const std::string& commands,
                                                               size_t replies, TimePoint deadline) {
  if (!names_.Find(node).ok()) RETURN_IF_ERROR(names_.Resolve(node));
  ASSIGN_OR_RETURN(std::unique_ptr<RedisConnection> connection, Take(node));
  connection->Send(commands,
                   {.replies = replies, .bytes = kMaxReplyBytes, .elements = kMaxReplyElements});
  std::vector<RedisReply> all;
  while (all.size() < replies) {
    const absl::Status moved = connection->Advance();
    // What came before the connection was closed may say why.
    ASSIGN_OR_RETURN(RedisReply reply, connection->Next());
    if (reply != nullptr) {
      all.push_back(std::move(reply));
      continue;
    }
    RETURN_IF_ERROR(moved);
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now()).count();
    pollfd poll_fd = {.fd = connection->fd(), .events = connection->events(), .revents = 0};
    if (left > 0 && (poll(&poll_fd, 1, static_cast<int>(left)) > 0 || errno == EINTR)) continue;
    return Unavailable("Redis node ", node, ": no answer in time");
  }
  Give(std::move(connection));
  return all;
}

absl::StatusOr<RedisReply> RedisCluster::Call(const std::vector<absl::string_view>& words,
                                              uint16_t slot, TimePoint deadline) {
  std::string command, asking;
  AppendCommand(words, command);
  AppendCommand({"ASKING"}, asking);
  std::string node, prefix;
  for (int i = 0; i < kRedirections; ++i) {
    if (node.empty()) {
      const auto known = topology();
      const int16_t shard = known->shard_of[slot];
      if (shard < 0) return Unavailable("nobody has slot ", slot);
      node = known->shards[static_cast<size_t>(shard)].nodes[0];
    }
    ASSIGN_OR_RETURN(std::vector<RedisReply> replies,
                     CallNode(node, prefix + command, prefix.empty() ? 1 : 2, deadline));
    prefix.clear();
    RedisReply reply = std::move(replies.back());
    std::optional<RedisRedirection> elsewhere = RedirectionOf(*reply, node);
    if (!elsewhere.has_value()) return reply;
    node = std::move(elsewhere->node);
    if (elsewhere->ask) {
      prefix = asking;
    } else {
      AskTopology();
    }
  }
  return Unavailable("too many redirections");
}

}  // namespace ulfd::engine

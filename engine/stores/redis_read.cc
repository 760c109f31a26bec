// SPDX-License-Identifier: Apache-2.0
#include "engine/stores/redis_read.h"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "base/text.h"

namespace ulfd::engine {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// Nodes that send a key elsewhere, one after the other, before it waits for them to agree.
constexpr int kMaxTries = 16;
// Of replies, beside their rows: the length of each; of all that a connection awaits, errors and
// values that are no rows.
constexpr size_t kLengthBytes = 32, kReplySlack = size_t{1} << 20;
// Nodes that are none of the cluster's, as far as is known, to which redirections lead.
constexpr int kMostStrangers = 16;
// Before what is in motion (a failover, a slot on its way) is asked again; doubles.
constexpr milliseconds kPause(5), kLongestPause(80);

class ClusterRead {
 public:
  ClusterRead(RedisCluster& cluster, std::vector<RedisKey> keys, TimePoint deadline)
      : cluster_(cluster), keys_(std::move(keys)), deadline_(deadline), failed_(keys_.size()) {}

  void Run() {
    std::sort(keys_.begin(), keys_.end(),
              [](const RedisKey& a, const RedisKey& b) { return a.slot < b.slot; });
    left_ = keys_.size();
    for (size_t begin = 0; begin < keys_.size();) {
      Command command;
      size_t end = begin;
      for (; end < keys_.size() && keys_[end].slot == keys_[begin].slot; ++end) {
        command.keys.push_back(end);
      }
      begin = end;
      Route(std::move(command), "");
    }
    while (left_ > 0 && Clock::now() < deadline_) {
      Flush();
      if (left_ > 0) Wait();
    }
    End();
  }

 private:
  // Keys of one slot, asked of one node.
  struct Command {
    std::vector<size_t> keys;  // Into keys_.
    bool asking = false;       // The node has the slot only for who asks so.
    bool of_master = false;    // What the node lacks is missing.
    bool confirms = false;     // A replica lacks them: only the master's word counts.
    bool hedged = false;       // Another node was asked, too,
    bool hedge = false;        // or this is what it was asked while the master still may answer.
    int tries = 0;
    milliseconds pause = kPause;  // The next one.
    TimePoint sent;
  };
  struct Link {
    std::unique_ptr<RedisConnection> connection;
    std::deque<Command> awaited;
  };
  struct Delayed {
    TimePoint when;
    Command command;
  };

  bool Done(size_t k) const {
    return failed_[k] || keys_[k].read->rows->state(keys_[k].row) != RowState::kLate;
  }
  void Fail(size_t k, const absl::Status& why) {
    keys_[k].read->status.Update(why);
    if (!Done(k)) --left_;
    failed_[k] = true;
  }

  const RedisTopology::Shard* ShardOf(const Command& command) const {
    const int16_t shard = topology_->shard_of[keys_[command.keys[0]].slot];
    return shard < 0 ? nullptr : &topology_->shards[static_cast<size_t>(shard)];
  }

  // Sends the command to a node of its slot, `but` that one if there is another.
  void Route(Command command, const std::string& but) {
    topology_ = cluster_.topology();
    const RedisTopology::Shard* const shard = ShardOf(command);
    if (shard == nullptr) {
      last_error_ = Unavailable("Redis cluster \"", cluster_.name(), "\": nobody has slot ",
                                keys_[command.keys[0]].slot);
      return Delay(std::move(command));
    }
    const std::string& node = command.confirms ? shard->nodes[0] : cluster_.Choose(*shard, but);
    command.of_master = node == shard->nodes[0];
    SendTo(node, std::move(command));
  }

  void Delay(Command command) {
    cluster_.AskTopology();
    command.asking = command.hedge = command.hedged = false;
    command.tries = 0;
    const TimePoint when = Clock::now() + command.pause;
    command.pause = std::min(2 * command.pause, kLongestPause);
    delayed_.push_back({when, std::move(command)});
  }

  void SendTo(const std::string& node, Command command) {
    std::erase_if(command.keys, [this](size_t k) { return Done(k); });
    if (command.keys.empty()) return;
    if (++command.tries > kMaxTries) {
      last_error_ = Unavailable("Redis node ", node, ": key \"", keys_[command.keys[0]].key,
                                "\": ", kMaxTries, " tries ended elsewhere");
      return Delay(std::move(command));
    }
    Link& link = links_[node];
    if (link.connection == nullptr) {
      if (!topology_->nodes.contains(node) && ++strangers_ > kMostStrangers) {
        last_error_ = Unavailable("Redis cluster \"", cluster_.name(), "\": more than ",
                                  kMostStrangers, " nodes that are none of it, such as ", node);
        return Delay(std::move(command));
      }
      absl::StatusOr<std::unique_ptr<RedisConnection>> connection = cluster_.Take(node);
      if (!connection.ok()) {
        last_error_ = connection.status();
        cluster_.Avoid(node);
        return Delay(std::move(command));
      }
      link.connection = *std::move(connection);
    }
    std::string bytes;
    if (command.asking) AppendCommand({"ASKING"}, bytes);
    std::vector<absl::string_view> words = {"MGET"};
    for (const size_t k : command.keys) words.emplace_back(keys_[k].key);
    AppendCommand(words, bytes);
    size_t reply_bytes = link.awaited.empty() ? kReplySlack : 0;
    for (const size_t k : command.keys) {
      reply_bytes += keys_[k].read->rows->row_bytes() + kLengthBytes;
    }
    link.connection->Send(bytes, {.replies = command.asking ? size_t{2} : size_t{1},
                                  .bytes = reply_bytes,
                                  .elements = command.keys.size()});
    command.sent = Clock::now();
    if (command.asking) {
      Command asking;
      asking.sent = command.sent;
      link.awaited.push_back(std::move(asking));  // Its reply is of no interest.
    }
    link.awaited.push_back(std::move(command));
  }

  // Moves bytes on every connection, and takes what has come.
  void Flush() {
    std::vector<std::string> nodes;
    for (const auto& [node, link] : links_) {
      if (link.connection != nullptr) nodes.push_back(node);
    }
    for (const std::string& node : nodes) {
      Link& link = links_[node];
      const absl::Status status = Advance(link);
      if (!status.ok()) Lost(node, status);
    }
    const TimePoint now = Clock::now();
    std::vector<Delayed> due;
    for (Delayed& delayed : delayed_) {
      if (delayed.when <= now) due.push_back(std::move(delayed));
    }
    std::erase_if(delayed_, [now](const Delayed& delayed) { return delayed.when <= now; });
    for (Delayed& delayed : due) Route(std::move(delayed.command), "");
    Hedge(now);
  }

  absl::Status Advance(Link& link) {
    absl::Status moved = link.connection->Advance();
    while (!link.awaited.empty()) {
      absl::StatusOr<RedisReply> reply = link.connection->Next();
      if (!reply.ok()) return reply.status();
      if (*reply == nullptr) break;
      Command command = std::move(link.awaited.front());
      link.awaited.pop_front();
      if (command.keys.empty()) continue;
      // One for all that a node was sent: it answers them in one go.
      if (link.awaited.empty()) cluster_.Observe(Clock::now() - command.sent);
      RETURN_IF_ERROR(Take(link.connection->node(), std::move(command), **reply));
    }
    return moved;
  }

  // The connection is gone: others are asked.
  void Lost(const std::string& node, const absl::Status& why) {
    last_error_ = why;
    cluster_.Avoid(node);
    bool too_long = links_[node].connection->too_long();
    std::deque<Command> commands = std::move(links_[node].awaited);
    links_.erase(node);
    for (Command& command : commands) {
      if (command.keys.empty()) continue;
      if (!std::exchange(too_long, false)) {
        Delay(std::move(command));
      } else if (command.keys.size() == 1) {
        Fail(command.keys[0],
             Annotate(why, absl::StrCat("key ", Quote(keys_[command.keys[0]].key))));
      } else {  // It would be as long again; the keys beside it may be rows.
        for (const size_t k : command.keys) Delay(Command{.keys = {k}, .pause = command.pause});
      }
    }
  }

  // Whether another node may answer before the one that has it.
  bool MayHedge(const Command& command) const {
    if (command.hedged || command.hedge || command.confirms || command.asking) return false;
    const RedisTopology::Shard* const shard = command.keys.empty() ? nullptr : ShardOf(command);
    return shard != nullptr && shard->nodes.size() > 1;
  }

  void Hedge(TimePoint now) {
    const nanoseconds after = cluster_.hedge_after();
    std::vector<std::pair<std::string, Command>> again;
    for (auto& [node, link] : links_) {
      const bool slow =
          std::any_of(link.awaited.begin(), link.awaited.end(),
                      [&](const Command& c) { return now - c.sent >= after && MayHedge(c); });
      if (!slow) continue;
      const bool allowed = cluster_.TakeHedge();
      if (allowed) cluster_.Avoid(node);
      for (Command& command : link.awaited) {
        if (!MayHedge(command)) continue;
        command.hedged = true;
        if (!allowed) continue;
        again.emplace_back(node, Command{.keys = command.keys,
                                         .hedge = command.of_master,
                                         .tries = command.tries,
                                         .pause = command.pause});
      }
    }
    for (auto& [node, command] : again) Route(std::move(command), node);
  }

  // An error: what follows on the connection may be replies to other commands, too.
  absl::Status Take(const std::string& node, Command command, const redisReply& reply) {
    if (reply.type == REDIS_REPLY_ERROR) {
      TakeError(node, std::move(command), reply);
      return absl::OkStatus();
    }
    if (reply.type != REDIS_REPLY_ARRAY || reply.elements != command.keys.size()) {
      absl::Status why =
          DataLoss("Redis node ", node, ": no answer to MGET of ", command.keys.size(),
                   " keys, such as \"", keys_[command.keys[0]].key, "\"");
      for (const size_t k : command.keys) Fail(k, why);
      return why;
    }
    Command confirm{.confirms = true, .tries = command.tries, .pause = command.pause};
    for (size_t i = 0; i < command.keys.size(); ++i) {
      const size_t k = command.keys[i];
      if (Done(k)) continue;
      const redisReply& value = *reply.element[i];
      if (value.type == REDIS_REPLY_NIL && !command.of_master) {
        confirm.keys.push_back(k);
      } else {
        TakeRow(node, k, value);
      }
    }
    if (!confirm.keys.empty() && !command.hedge) Route(std::move(confirm), "");
    return absl::OkStatus();
  }

  void TakeRow(const std::string& node, size_t k, const redisReply& value) {
    RowSet& rows = *keys_[k].read->rows;
    if (value.type == REDIS_REPLY_NIL) {
      rows.set_state(keys_[k].row, RowState::kMissing);
    } else if (value.type == REDIS_REPLY_STRING && value.len == rows.row_bytes()) {
      std::memcpy(rows.row(keys_[k].row), value.str, value.len);
      rows.set_state(keys_[k].row, RowState::kPresent);
    } else {
      return Fail(k, DataLoss("Redis node ", node, ": key \"", keys_[k].key, "\" holds ", value.len,
                              " bytes, want a row of ", rows.row_bytes()));
    }
    --left_;
  }

  void TakeError(const std::string& node, Command command, const redisReply& reply) {
    command.asking = false;
    if (const auto elsewhere = RedirectionOf(reply, node); elsewhere.has_value()) {
      if (!elsewhere->ask) cluster_.AskTopology();
      if (elsewhere->ask && command.keys.size() > 1) return SendAlone(node, command);
      command.asking = elsewhere->ask;
      command.of_master = command.confirms = true;
      return SendTo(elsewhere->node, std::move(command));
    }
    const absl::string_view text = TextOf(reply), word = text.substr(0, text.find(' '));
    if (word == "TRYAGAIN" && command.keys.size() > 1) return SendAlone(node, command);
    last_error_ = Unavailable("Redis node ", node, ": ", Printable(text, 200));
    for (const char* passing : {"TRYAGAIN", "CLUSTERDOWN", "LOADING", "MASTERDOWN"}) {
      if (word != passing) continue;
      cluster_.Avoid(node);
      return Delay(std::move(command));
    }
    for (const size_t k : command.keys) Fail(k, last_error_);
  }

  // While their slot moves, keys are here or there, each for itself.
  void SendAlone(const std::string& node, const Command& command) {
    for (const size_t k : command.keys) {
      SendTo(node, Command{.keys = {k},
                           .of_master = true,
                           .confirms = true,
                           .tries = command.tries,
                           .pause = command.pause});
    }
  }

  // Until something can be done, at most until the deadline.
  void Wait() {
    std::vector<pollfd> fds;
    const nanoseconds hedge_after = cluster_.hedge_after();
    TimePoint until = deadline_;
    for (const auto& [node, link] : links_) {
      if (link.connection == nullptr || link.awaited.empty()) continue;
      fds.push_back(
          {.fd = link.connection->fd(), .events = link.connection->events(), .revents = 0});
      for (const Command& command : link.awaited) {
        if (!MayHedge(command)) continue;
        until = std::min(until, command.sent + hedge_after);
        break;
      }
    }
    for (const Delayed& delayed : delayed_) until = std::min(until, delayed.when);
    const nanoseconds left = std::max(nanoseconds(0), nanoseconds(until - Clock::now()));
    const timespec timeout = {.tv_sec = left.count() / 1'000'000'000,
                              .tv_nsec = left.count() % 1'000'000'000};
    ppoll(fds.data(), fds.size(), &timeout, nullptr);
  }

  void End() {
    for (auto& [node, link] : links_) {
      // Who still owes an answer to a request whose time is over.
      if (left_ > 0 && !link.awaited.empty()) {
        cluster_.Avoid(node);
        if (last_error_.ok()) {
          last_error_ = Unavailable("Redis node ", node, ": no answer in time");
        }
      }
      if (link.connection != nullptr) cluster_.Give(std::move(link.connection));
    }
    if (left_ == 0) return;
    cluster_.AskTopology();
    for (size_t k = 0; k < keys_.size(); ++k) {
      if (!Done(k)) keys_[k].read->status.Update(last_error_);
    }
  }

  RedisCluster& cluster_;
  std::vector<RedisKey> keys_;
  const TimePoint deadline_;
  std::vector<bool> failed_;  // Keys that no further try is made for.
  size_t left_ = 0;           // Keys that are not done.
  int strangers_ = 0;         // Connections to nodes that are none of the cluster's.
  std::shared_ptr<const RedisTopology> topology_;
  std::map<std::string, Link> links_;  // By node.
  std::vector<Delayed> delayed_;
  absl::Status last_error_;
};

}  // namespace

void ReadRedis(RedisCluster& cluster, std::vector<RedisKey> keys, TimePoint deadline) {
  ClusterRead(cluster, std::move(keys), deadline).Run();
}

}  // namespace ulfd::engine

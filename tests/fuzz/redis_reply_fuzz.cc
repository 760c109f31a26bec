// What a Redis node sends: to CLUSTER SLOTS, to who asks it for a slot of another node, and what it
// says of a table; read from a socket, as the engine does it.
// SPDX-License-Identifier: Apache-2.0
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "engine/stores/redis_cluster.h"
#include "engine/stores/redis_connection.h"
#include "engine/stores/redis_names.h"
#include "engine/stores/stored_table.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace ulfd::engine;
using ulfd::fuzz::CheckMessage;
using ulfd::fuzz::Fail;

constexpr size_t kReplies = 64, kReplyBytes = 1 << 20;

// Listens where the node would.
class Node {
 public:
  Node() : listener_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    if (bind(listener_, any, size) != 0 || listen(listener_, 1) != 0 ||
        getsockname(listener_, any, &size) != 0) {
      Fail("no port");
    }
    name_ = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
  }
  const std::string& name() const { return name_; }
  // Sends it to who connects next; the connection.
  int SendToNext(absl::string_view bytes) const {
    const int fd = accept(listener_, nullptr, nullptr);
    if (send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0) Fail("nobody listens");
    return fd;
  }

 private:
  const int listener_;
  std::string name_;
};

void CheckAddress(const std::string& node) {
  if (node.find(':') == std::string::npos || node != ulfd::Printable(node, 300)) {
    Fail(absl::StrCat("a node of that name: ", ulfd::Printable(node, 300)));
  }
}

void TakeReply(const redisReply& reply, const std::string& node) {
  if (const auto elsewhere = RedirectionOf(reply, node)) CheckAddress(elsewhere->node);
  const auto topology = ParseSlots(reply, node);
  CheckMessage(topology.status());
  if (topology.ok()) {
    for (const int16_t shard : topology->shard_of) {
      if (shard >= 0 && topology->shards.at(static_cast<size_t>(shard)).nodes.empty()) {
        Fail("a shard without nodes");
      }
    }
    for (const auto& shard : topology->shards) {
      for (const std::string& member : shard.nodes) CheckAddress(member);
    }
  }
  if (reply.type != REDIS_REPLY_STRING) return;
  const auto table = ParseStoredTable(TextOf(reply));
  CheckMessage(table.status());
  if (table.ok() && InfoOf(*table).mean_row.size() != InfoOf(*table).row_bytes()) {
    Fail("a mean row of another width");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Node* const node = new Node;
  static const RedisSecurity* const security = RedisSecurity::Create({})->release();
  static const absl::StatusOr<RedisAddress> address = RedisNames().Find(node->name());
  if (!address.ok()) Fail(address.status().ToString());
  auto connection = RedisConnection::Start(node->name(), *address, *security);
  if (!connection.ok()) Fail(connection.status().ToString());
  const int peer = node->SendToNext(absl::StrCat("+OK\r\n", ulfd::fuzz::AsText(data, size)));
  (*connection)->Send("", {.replies = kReplies, .bytes = kReplyBytes, .elements = kReplyBytes});
  CheckMessage((*connection)->Advance());
  for (size_t i = 0; i < kReplies; ++i) {
    const auto reply = (*connection)->Next();
    CheckMessage(reply.status());
    if (!reply.ok() || *reply == nullptr) break;
    TakeReply(**reply, node->name());
  }
  connection->reset();  // First: then no port waits after the end of the connection.
  close(peer);
  return 0;
}

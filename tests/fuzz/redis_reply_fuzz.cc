// What a Redis node answers: to CLUSTER SLOTS, and what it says of a table.
// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "engine/stores/redis_cluster.h"
#include "engine/stores/stored_table.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ulfd::engine;
  redisReader* const reader = redisReaderCreate();
  redisReaderFeed(reader, reinterpret_cast<const char*>(data), size);
  void* raw = nullptr;
  while (redisReaderGetReply(reader, &raw) == REDIS_OK && raw != nullptr) {
    const RedisReply reply(static_cast<redisReply*>(raw));
    const auto topology = ParseSlots(*reply, "127.0.0.1:6379");
    if (!topology.ok()) {
      ulfd::fuzz::CheckMessage(topology.status());
    } else {
      for (const int16_t shard : topology->shard_of) {
        if (shard < 0) continue;
        if (topology->shards.at(static_cast<size_t>(shard)).nodes.empty()) {
          ulfd::fuzz::Fail("a shard without nodes");
        }
      }
    }
    if (reply->type != REDIS_REPLY_STRING) continue;
    const auto table = ParseStoredTable(TextOf(*reply));
    if (!table.ok()) {
      ulfd::fuzz::CheckMessage(table.status());
    } else if (InfoOf(*table).mean_row.size() != InfoOf(*table).row_bytes()) {
      ulfd::fuzz::Fail("a mean row of another width");
    }
  }
  redisReaderFree(reader);
  return 0;
}

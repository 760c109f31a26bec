// SPDX-License-Identifier: Apache-2.0
#include "server/services/shared_replies.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ulfd::server {

std::string SharedReplies::ListKey(const ModelLookup& models, const ModelChoice& caller) {
  return absl::StrCat(
      models.changes(),
      caller.client.has_value() ? absl::StrCat(" of ", absl::StrJoin(*caller.client, "\n")) : "");
}

bool SharedReplies::Find(const Key& key, grpc::ByteBuffer& reply) const {
  MutexLock lock(mu_);
  const auto found = replies_.find(key);
  if (found == replies_.end()) return false;
  reply = found->second;
  return true;
}

void SharedReplies::Keep(const Key& key, const grpc::ByteBuffer& reply) {
  constexpr size_t kMost = 256, kMostBytes = size_t{8} << 20;
  MutexLock lock(mu_);
  const auto [kept, added] = replies_.try_emplace(key, reply);
  if (!added) return;  // Two made it at a time.
  bytes_ += reply.Length();
  while (replies_.size() > 1 && (replies_.size() > kMost || bytes_ > kMostBytes)) {
    bytes_ -= replies_.begin()->second.Length();
    replies_.erase(replies_.begin());
  }
}

}  // namespace ulfd::server

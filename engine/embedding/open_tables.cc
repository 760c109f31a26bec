// SPDX-License-Identifier: Apache-2.0
#include "engine/embedding/open_tables.h"

#include <utility>

#include "base/hash_map.h"
#include "base/load_scope.h"
#include "base/mutex.h"

namespace ulfd::engine {
namespace {

using Key = std::pair<std::string, std::string>;  // Owner and digest.

struct OpenTables {
  Mutex mu;
  HashMap<Key, std::weak_ptr<const TableRows>> rows ABSL_GUARDED_BY(mu);
};

OpenTables& Open() {
  // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): of the process.
  static OpenTables* const open = new OpenTables();
  return *open;
}

Key KeyOf(const std::string& digest) {
  const LoadScope* const load = LoadScope::Current();
  return {load == nullptr ? "" : load->limits().owner, digest};
}

}  // namespace

std::shared_ptr<const TableRows> FindOpenTable(const std::string& digest) {
  OpenTables& open = Open();
  MutexLock lock(open.mu);
  const auto it = open.rows.find(KeyOf(digest));
  std::shared_ptr<const TableRows> rows = it == open.rows.end() ? nullptr : it->second.lock();
  const bool damaged = rows != nullptr && rows->file != nullptr && !rows->file->Check().ok();
  return damaged ? nullptr : rows;
}

void AddOpenTable(const std::shared_ptr<const TableRows>& rows) {
  OpenTables& open = Open();
  MutexLock lock(open.mu);
  absl::erase_if(open.rows, [](const auto& other) { return other.second.expired(); });
  open.rows[KeyOf(rows->digest)] = rows;
}

}  // namespace ulfd::engine

// SPDX-License-Identifier: Apache-2.0
#include "server/models/hot_ids.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/status_macros.h"
#include "base/text_file.h"
#include "engine/directory/delta_directory.h"

namespace ulfd::server {
namespace {

using engine::EmbeddingTable;
using std::chrono::steady_clock;

const EmbeddingTable* FindStored(const engine::Model& model, const std::string& name) {
  for (const auto& table : model.tables()) {
    if (table->name() == name && table->tier() != nullptr) return table.get();
  }
  return nullptr;
}

}  // namespace

std::string HotIds::PathOf(const std::string& name, const EmbeddingTable& table) const {
  const std::string file = absl::StrCat(name, "/", table.name(), ".ids");
  return absl::StrCat(directory_, "/", absl::StrReplaceAll(file, {{"%", "%25"}, {"/", "%2F"}}));
}

absl::Status HotIds::Keep(const std::string& name, const engine::Model& model) const {
  if (directory_.empty()) return absl::OkStatus();
  for (const auto& table : model.tables()) {
    if (table->tier() == nullptr) continue;
    const std::vector<int64_t> ids = table->tier()->HotIds();
    if (ids.empty()) continue;  // Nobody asked: what was kept before says more.
    RETURN_IF_ERROR(WriteTextFile(PathOf(name, *table), absl::StrJoin(ids, "\n") + "\n"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int64_t>> HotIds::Kept(const std::string& name,
                                                  const EmbeddingTable& table) const {
  if (directory_.empty()) return std::vector<int64_t>();
  const std::string path = PathOf(name, table);
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::vector<int64_t>();
  constexpr int64_t kMaxBytes = int64_t{1} << 28;
  ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxBytes));
  return engine::ParseIds(text, path);
}

void HotIds::ReadAhead(const std::string& name, const engine::Model& model,
                       const engine::Model* before, std::chrono::milliseconds most,
                       std::vector<std::string>& notices) const {
  const auto deadline = steady_clock::now() + most;
  for (const auto& table : model.tables()) {
    engine::RowTier* const tier = table->tier();
    if (tier == nullptr) continue;
    const EmbeddingTable* const served =
        before == nullptr ? nullptr : FindStored(*before, table->name());
    // Versions with the same rows share what is in memory.
    if (served != nullptr && served->tier() == tier) continue;
    absl::StatusOr<std::vector<int64_t>> ids =
        served == nullptr ? Kept(name, *table) : served->tier()->HotIds();
    const absl::Status status = ids.ok() ? tier->ReadAhead(*ids, deadline) : ids.status();
    if (status.ok()) continue;
    notices.push_back(absl::StrCat("table \"", table->name(),
                                   "\": hot rows are not read ahead: ", status.message()));
  }
}

}  // namespace ulfd::server
